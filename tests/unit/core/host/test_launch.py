"""Which launcher started a process is read from its environment: here from environments as they were recorded.

Recorded with Open MPI 5.0.11 and MPICH 5.0.2 from their wheels, and Slurm 22.05, on two nodes; shortened to what tells
the launcher, the rank and the job. Those of other launchers follow their documentation.
"""

import pytest

from mpi_runtime.config import LAUNCHER
from mpi_runtime.core.host.launch import Launch, detect, is_of_other_family, singleton_message
from mpi_runtime.core.host.launchers import child_environment

USER = {"PATH": "/usr/bin", "HOME": "/home/ada", "OMP_NUM_THREADS": "4", "OMPI_MCA_btl": "tcp,self", "UCX_TLS": "tcp"}

OPENMPI = {
    "OMPI_ARGV": "app.py", "OMPI_COMMAND": "sh", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_FILE_LOCATION": "/tmp/ompi.5332/1/3", "OMPI_MCA_PREFIXES": "mca,opal,ompi", "OMPI_MCA_cpu_type": "x86_64",
    "OMPI_MCA_initial_wdir": "/home/ada", "OMPI_MCA_num_procs": "4", "OMPI_UNIVERSE_SIZE": "4", "OMPI_VERSION": "5.0",
    "OPAL_USER_PARAMS_GIVEN": "1", "PMIX_NAMESPACE": "prterun-vm-5332@1", "PMIX_RANK": "3", "PMIX_VERSION": "5.0.11rc1",
    "PMIX_SERVER_URI41": "prterun-vm-5332@0.0;tcp4://127.0.0.1:59901", "PRTE_LAUNCHED": "1",
}  # fmt: skip
MPICH = {
    "GFORTRAN_UNBUFFERED_PRECONNECTED": "y", "HYDI_CONTROL_FD": "7", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1",
    "PMI_FD": "11", "PMI_HOSTNAME": "vm", "PMI_RANK": "1", "PMI_SIZE": "2",
}  # fmt: skip
# Intel MPI 2021.18.1.
INTEL = {
    "HYDRA_BSTRAP_LAUNCHER": "ssh", "HYDRA_BSTRAP_UPSTREAM_FD": "7", "HYDRA_IP_VERSION": "2", "HYDRA_LAUNCH_TYPE": "2",
    "I_MPI_HYDRA_UUID": "7f390000-a5b8-2679-3861-0600811e0111", "I_MPI_INFO_CORE": "0,1", "I_MPI_INTERNAL_MEM_POLICY":
    "default", "I_MPI_PIN_INFO": "1", "I_MPI_PIN_MAPPING": "3:0 0,1 1,2 0", "I_MPI_RETURN_WIN_MEM_NUMA": "-1,0",
    "MPI_LOCALNRANKS": "3", "MPI_LOCALRANKID": "1", "PMI_FD": "11", "PMI_RANK": "1", "PMI_SIZE": "3",
}  # fmt: skip

# A job of two nodes with two tasks each: what its batch script sees ...
BATCH = {
    "ENVIRONMENT": "BATCH", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "2", "SLURM_GTIDS": "0", "SLURM_JOBID": "5",
    "SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_NODELIST": "n[1-2]", "SLURM_NPROCS": "4", "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2", "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_TASK_PID": "14046",
}  # fmt: skip
# ... a shell of `salloc -N1 -n4` ...
SALLOC = {
    "SLURM_JOBID": "6", "SLURM_JOB_ID": "6", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_NODELIST": "n1", "SLURM_NPROCS": "4", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "4",
}  # fmt: skip
# ... and the last of four tasks of `srun -N2 -n4` with each kind of MPI.
SRUN_NONE = {
    "SLURMD_NODENAME": "n2", "SLURM_CPUS_ON_NODE": "1", "SLURM_GTIDS": "3", "SLURM_JOBID": "3", "SLURM_JOB_ID": "3",
    "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_LAUNCH_NODE_IPADDR": "10.81.7.1", "SLURM_LOCALID": "0", "SLURM_NNODES": "2",
    "SLURM_NODEID": "1", "SLURM_NODELIST": "n[1-2]", "SLURM_NPROCS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "3",
    "SLURM_SRUN_COMM_HOST": "10.81.7.1", "SLURM_SRUN_COMM_PORT": "40911", "SLURM_STEPID": "0", "SLURM_STEP_ID": "0",
    "SLURM_STEP_LAUNCHER_PORT": "40911", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_TASKS_PER_NODE": "3,1",
    "SLURM_TASK_PID": "28697", "SRUN_DEBUG": "3",
}  # fmt: skip
SRUN_PMIX = SRUN_NONE | {
    "PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_RANK": "3", "PMIX_SERVER_URI41": "pmix-server.28583;tcp4://127.0.0.1:1",
    "SLURM_MPI_TYPE": "pmix", "SLURM_PMIXP_ABORT_AGENT_PORT": "34475", "SLURM_PMIX_MAPPING_SERV": "(vector)",
}  # fmt: skip
SRUN_PMI2 = SRUN_NONE | {
    "PMI_FD": "11", "PMI_JOBID": "2.0", "PMI_RANK": "3", "PMI_SIZE": "4", "SLURM_MPI_TYPE": "pmi2",
}  # fmt: skip
SRUN_ONE = SRUN_NONE | {
    "SLURM_GTIDS": "0", "SLURM_NPROCS": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1",
}  # fmt: skip

# mpirun in the batch script, on the second node: Slurm's step variables are those of the launcher's daemon.
OPENMPI_DAEMON_STEP = {
    "SLURM_CPU_BIND": "quiet,none", "SLURM_NNODES": "1", "SLURM_NPROCS": "1", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0",
    "SLURM_STEPID": "0", "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
    "SLURMD_NODENAME": "n2",
}  # fmt: skip
OPENMPI_IN_SLURM = BATCH | OPENMPI_DAEMON_STEP | OPENMPI
MPICH_PROXY_STEP = {
    "SLURM_EXTERNAL_LAUNCHER": "1", "SLURM_GTIDS": "1", "SLURM_NPROCS": "2", "SLURM_NTASKS": "2", "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEPID": "1",
}  # fmt: skip
MPICH_IN_SLURM = BATCH | MPICH_PROXY_STEP | MPICH | {"PMI_RANK": "2", "PMI_SIZE": "4"}
# One rank on each of the two nodes: hydra's proxies are then as many as its ranks.
MPICH_IN_SLURM_ONE_EACH = BATCH | MPICH_PROXY_STEP | MPICH | {"MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0"}

RECORDED = {
    "python": ({}, Launch("none", 0, 1)),
    "openmpi": (OPENMPI, Launch("openmpi", 3, 4)),
    "mpich": (MPICH, Launch("mpich", 1, 2)),
    "intel": (INTEL, Launch("mpich", 1, 3)),
    "srun-pmix": (SRUN_PMIX, Launch("slurm-pmix", 3, 4)),
    "srun-pmi2": (SRUN_PMI2, Launch("slurm-pmi2", 3, 4)),
    "srun-pmi2-in-batch": (BATCH | SRUN_PMI2, Launch("slurm-pmi2", 3, 4)),
    "srun-one": (SRUN_ONE, Launch("none", 0, 1)),
    "batch": (BATCH, Launch("none", 0, 1)),
    "salloc": (SALLOC, Launch("none", 0, 1)),
    "openmpi-in-slurm": (OPENMPI_IN_SLURM, Launch("openmpi", 3, 4)),
    "mpich-in-slurm": (MPICH_IN_SLURM, Launch("mpich", 2, 4)),
    "mpich-in-slurm-one-each": (MPICH_IN_SLURM_ONE_EACH, Launch("mpich", 1, 2)),
}
DOCUMENTED = {
    "pals": ({"PALS_RANKID": "5", "PALS_NODEID": "1", "PMI_RANK": "5", "PMI_SIZE": "8"}, Launch("pals", 5, 8)),
    "pals-alone": ({"PALS_RANKID": "5", "PALS_APID": "a1"}, Launch("pals", 5, 0)),
    "mvapich2": ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "3", "PMI_RANK": "1"}, Launch("mvapich", 1, 3)),
    "mvapich4": ({"MVP_COMM_WORLD_RANK": "1", "MVP_COMM_WORLD_SIZE": "3"}, Launch("mvapich", 1, 3)),
    "flux": ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2", "PMI_RANK": "0", "PMI_SIZE": "2"}, Launch("flux", 0, 2)),
    "pmix": ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prun@3"}, Launch("pmix", 1, 0)),
    "cray": (SRUN_NONE | {"SLURM_MPI_TYPE": "cray_shasta", "PMI_CONTROL_PORT": "20175"}, Launch("slurm-cray", 3, 4)),
}


@pytest.mark.parametrize("name", [*RECORDED, *DOCUMENTED])
def test_launcher_rank_and_size(name: str) -> None:
    env, expected = (RECORDED | DOCUMENTED)[name]
    assert detect(USER | env) == expected


@pytest.mark.parametrize("name", [*RECORDED, *DOCUMENTED])
def test_what_a_rank_starts_is_no_rank(name: str) -> None:
    env, _ = (RECORDED | DOCUMENTED)[name]
    child = child_environment(USER | env)
    assert detect(child) == Launch()
    assert child.items() >= USER.items(), "settings of the user were lost"
    job = {name: value for name, value in env.items() if name.startswith("SLURM_JOB") or name == "SLURM_TASKS_PER_NODE"}
    assert child.items() >= job.items(), "mpirun in a task could not read the allocation"


def test_one_rank_is_no_launch() -> None:
    assert detect(OPENMPI | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) == Launch()
    assert detect({"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "6", "MPI_LOCALRANKID": "0"}) == Launch()


def test_srun_without_mpi_is_a_problem_with_a_cure() -> None:
    launch = detect(SRUN_NONE)
    assert (launch.kind, launch.rank, launch.size) == ("slurm-none", 3, 4)
    assert launch.problem is not None
    for cure in ("4 tasks", "--mpi=pmix", "--mpi=pmi2", f"{LAUNCHER}=none"):
        assert cure in launch.problem
    assert detect(SRUN_NONE | {LAUNCHER: "none"}) == Launch()


@pytest.mark.parametrize(
    "env",
    [
        {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "4"},
        {"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "-1", "PMI_SIZE": "4"},
        {"PMI_RANK": "0", "PMI_SIZE": "9" * 5000},
        {"PMI_RANK": "", "PMI_SIZE": ""},
    ],
)
def test_nonsense_is_quoted(env: dict[str, str]) -> None:
    problem = detect(env).problem
    assert problem is not None
    for name, value in env.items():
        assert f"{name}={value!r}" in problem
    assert detect(env | {LAUNCHER: "none"}) == Launch()


def test_unknown_launcher_setting_is_refused() -> None:
    problem = detect(OPENMPI | {LAUNCHER: "slrm"}).problem
    assert problem is not None
    assert "'slrm'" in problem


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        ("slurm-pmi2", "must use MPICH or a relative. With Open MPI use: srun --mpi=pmix"),
        ("slurm-pmix", "must use Open MPI. With MPICH use: srun --mpi=pmi2"),
        ("mpich", "MPICH"),
        ("openmpi", "Open MPI"),
        ("flux", "flux"),
    ],
)
def test_world_of_one_is_explained(kind: str, cure: str) -> None:
    message = singleton_message(Launch(kind, 2, 8))
    assert "8 ranks" in message
    assert "world of 1" in message
    assert cure in message
    assert "mpi_runtime run -n 8 app.py" in message


def test_libraries_that_do_not_understand_the_launcher() -> None:
    intel, mpich, open_mpi = "Intel(R) MPI Library 2021.18.1 for Linux* OS", "MPICH Version: 5.0.2", "Open MPI v5.0.11"
    launches = [Launch("openmpi", 0, 2), Launch("mpich", 0, 2)]
    found = [[is_of_other_family(launch, text) for text in (intel, mpich, open_mpi)] for launch in launches]
    assert found == [[True, True, False], [False, False, True]]

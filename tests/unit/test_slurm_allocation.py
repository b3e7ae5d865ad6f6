"""What batch systems grant is read from the environment of their jobs.

That of Slurm was recorded with Slurm 22.05, shortened to what tells of the allocation; those of PBS, LSF and Grid
Engine follow their documentation: qsub(1B) of OpenPBS and Torque, "Environment variables" of LSF 10.1, sge_pe(5).
"""

from pathlib import Path

import pytest

from mpi_runtime.slurm import nodelist
from mpi_runtime.slurm.allocation import Allocation, from_environment

BATCH = {
    "CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_ID": "1",
    "SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS_PER_NODE": "2", "SLURM_JOB_CPUS_PER_NODE": "2(x2)", "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_MEM_PER_CPU": "500", "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip
# A rank that Open MPI's mpirun has started on the second node: the step is that of its daemon.
SECOND_NODE = BATCH | {
    "SLURMD_NODENAME": "n2", "SLURM_NODEID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_GPUS": "2,3", "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_TASKS": "1", "CUDA_VISIBLE_DEVICES": "2,3",
}  # fmt: skip
HETEROGENEOUS = {
    "SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "g[01-02]",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1(x2)",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "4", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "1(x2)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("n[1-3,7],login", ["n1", "n2", "n3", "n7", "login"]),
        ("gpu[08-10]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("a,b[1],c-d-[2-3]", ["a", "b1", "c-d-2", "c-d-3"]),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert nodelist.expand(text) == names


@pytest.mark.parametrize("text", ["n[1-3", "n]", "n[a-b]", "n[1-]", ",n1"])
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of nodes"):
        nodelist.expand(text)


def test_counts() -> None:
    assert nodelist.expand_counts("4(x2),1") == [4, 4, 1]
    assert nodelist.expand_counts("") == []
    with pytest.raises(ValueError, match="not like 4"):
        nodelist.expand_counts("four")


def test_outside_of_a_job_there_is_nothing() -> None:
    assert from_environment({"PATH": "/usr/bin", "SLURM_JOB_ID": ""}) == Allocation()


def test_slurm() -> None:
    found = from_environment(BATCH)
    assert found == Allocation("slurm", "1", ("n1", "n2"), (2, 2), (2, 2), ("0", "1"))
    more = {"SLURM_RESTART_COUNT": "3", "SLURM_ARRAY_TASK_ID": "17", "SLURM_JOB_END_TIME": "1795300000"}
    found = from_environment(BATCH | more)
    assert (found.restarts, found.array_task, found.end_s) == (3, 17, 1795300000)


def test_gpus_of_a_process_are_those_it_sees_else_those_of_its_step() -> None:
    assert from_environment(SECOND_NODE).gpus == ("2", "3")
    unseen = {name: value for name, value in SECOND_NODE.items() if name != "CUDA_VISIBLE_DEVICES"}
    assert from_environment(unseen).gpus == ("2", "3")
    del unseen["SLURM_STEP_GPUS"]
    assert from_environment(unseen).gpus == ("0", "1")
    assert from_environment(unseen | {"SLURM_NODEID": "1"}).gpus is None, "true on the first node alone"
    assert from_environment(BATCH | {"CUDA_VISIBLE_DEVICES": ""}).gpus == ()
    assert from_environment(BATCH | {"CUDA_VISIBLE_DEVICES": "GPU-3a,-1,2"}).gpus == ("GPU-3a",)


def test_a_heterogeneous_job_has_the_nodes_of_all_its_components() -> None:
    found = from_environment(HETEROGENEOUS)
    assert found.nodes == ("n1", "g01", "g02")
    assert found.tasks == (2, 1, 1)
    assert found.cpus == (4, 1, 1)


def test_pbs(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("a.site\na.site\nb.site\nb.site\n")
    openpbs = {"PBS_JOBID": "12[3].server", "PBS_NODEFILE": str(file), "NCPUS": "8", "PBS_ARRAY_INDEX": "3"}
    assert from_environment(openpbs) == Allocation(
        "pbs", "12[3].server", ("a.site", "b.site"), (2, 2), (8, 8), array_task=3
    )
    torque = {"PBS_JOBID": "12.server", "PBS_NODEFILE": str(file), "PBS_NUM_PPN": "2", "PBS_ARRAYID": "4"}
    found = from_environment(torque)
    assert (found.cpus, found.array_task) == ((2, 2), 4)
    assert from_environment({"PBS_JOBID": "12.server", "PBS_NODEFILE": "absent"}).nodes == ()


def test_lsf() -> None:
    env = {"LSB_JOBID": "77", "LSB_MCPU_HOSTS": "h1 16 h2 8", "LSB_JOBINDEX": "0", "CUDA_VISIBLE_DEVICES": "1"}
    assert from_environment(env) == Allocation("lsf", "77", ("h1", "h2"), (16, 8), (16, 8), ("1",))
    assert from_environment(env | {"LSB_JOBINDEX": "5"}).array_task == 5


def test_grid_engine(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("h1 4 all.q@h1 UNDEFINED\nh2 2 all.q@h2 UNDEFINED\n")
    env = {"PE_HOSTFILE": str(file), "JOB_ID": "5", "SGE_TASK_ID": "undefined"}
    assert from_environment(env) == Allocation("sge", "5", ("h1", "h2"), (4, 2), (4, 2))
    assert from_environment(env | {"PE_HOSTFILE": "absent"}).nodes == ()

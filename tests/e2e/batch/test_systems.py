"""Jobs of PBS, LSF and Grid Engine, as their variables and files describe them, on several hosts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers import MARK, OPENMPI_ENVIRONMENT, ROOT, mpi_python
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts]
TASKS = {"host1": 1, "host2": 2}
"""More on the second: launchers that do not know the job fill the first."""
PLACE = "import os; print(f' {os.uname().nodename} ')"
"""With blanks, since launchers may write the lines of several ranks into each other."""
APP = """
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init()
own = slurm.allocation()
print(own.system, own.job, own.nodes, own.tasks, sorted(node["NodeManagerHostname"] for node in ray.nodes()))
"""


def variables(system: str, place: Path) -> dict[str, str]:
    """What a process of a job of so many tasks on each host has in its environment."""
    if system == "pbs":
        (place / "nodes").write_text("".join(f"{host}\n" * tasks for host, tasks in TASKS.items()))
        return {"PBS_JOBID": "12.head", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": str(place / "nodes")}
    if system == "lsf":
        hosts = [host for host, tasks in TASKS.items() for _ in range(tasks)]
        counts = " ".join(f"{host} {tasks}" for host, tasks in TASKS.items())
        return {"LSB_JOBID": "77", "LSB_JOBINDEX": "0", "LSB_HOSTS": " ".join(hosts), "LSB_MCPU_HOSTS": counts}
    lines = [f"{host} {tasks} all.q@{host} UNDEFINED\n" for host, tasks in TASKS.items()]
    (place / "hosts.pe").write_text("".join(lines))
    return {"PE_HOSTFILE": str(place / "hosts.pe"), "JOB_ID": "5", "SGE_TASK_ID": "undefined", "NHOSTS": "2"}


def run(lab: Lab, system: str, mpi: str, *words: str) -> str:
    """What `mpi-runtime run` prints in the batch script's place, which is on the first host."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PRTE_MCA_"))}
    root = {name: value for name, value in OPENMPI_ENVIRONMENT.items() if "ALLOW" in name}
    env = {
        **outside, **root, **variables(system, lab.place), "PYTHONPATH": str(ROOT), "MPI_RUNTIME_QUIET": "1",
        "PRTE_MCA_plm_ssh_agent": str(lab.place / "ssh"), "HYDRA_LAUNCHER_EXEC": str(lab.place / "ssh"),
        "OMPI_MCA_mca_base_env_list": f"PYTHONPATH;MPI_RUNTIME_QUIET;{MARK}",
    }  # fmt: skip
    command = [str(mpi_python(mpi)), "-m", "mpi_runtime", "run", *words]
    done = subprocess.run(
        [*lab.enter("host1"), *command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "mpi_runtime: " in line]
    assert all("the job has not begun after" in line for line in said), f"nothing of the job is unused: {said}"
    return done.stdout


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("system", ["pbs", "lsf", "sge"])
def test_ranks_are_on_all_hosts_of_the_job(system: str, mpi: str, two_hosts: Lab) -> None:
    for ranks, places in (
        (3, ["host1", "host2", "host2"]),  # as it has asked for
        (2, ["host1", "host2"]),
        (5, ["host1"] * 3 + ["host2"] * 2),
    ):
        assert sorted(run(two_hosts, system, mpi, "-n", str(ranks), "-c", PLACE).split()) == places
    job = {"pbs": "12.head", "lsf": "77", "sge": "5"}[system]
    said = run(two_hosts, system, mpi, "-n", "2", "-c", APP)
    assert said == f"{system} {job} ('host1', 'host2') (1, 2) ['host1', 'host2']\n"

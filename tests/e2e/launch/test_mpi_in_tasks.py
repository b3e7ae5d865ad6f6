"""MPI programs that tasks start: on their own host, with as many slots as the task has CPUs."""

import pytest

from mpi_runtime.core.host.mpiexec import find_launcher
from tests.helpers import OPENMPI_ENVIRONMENT, run_program

APP = """
import os, subprocess, sys
import mpi_runtime as ray

ray.init(num_cpus=3)

@ray.remote
def ranks(*words):
    done = subprocess.run([MPIRUN, *words, "sh", "-c", "echo $OMPI_COMM_WORLD_SIZE"], capture_output=True, text=True)
    return done.stdout.split(), done.stderr, os.environ.get("SLURM_JOB_ID")

print(ray.get(ranks.options(num_cpus=3).remote()))
print(ray.get(ranks.options(num_cpus=1).remote()))
print(ray.get(ranks.remote("-n", "4")))
"""


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_mpirun_in_a_task_of_a_job_has_slots_on_its_host_alone() -> None:
    """With the variables of the job it would start its ranks on other nodes, or wait for these for ever."""
    launcher = find_launcher("openmpi")
    assert launcher is not None
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOBID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURM_NTASKS_PER_NODE": "1",
    }
    without: dict[str, str | None] = {name: None for name in OPENMPI_ENVIRONMENT if name.startswith("PRTE_MCA_")}
    done = run_program(APP.replace("MPIRUN", repr(str(launcher.path))), env={**without, **job}).expect(0)
    assert done.stdout.splitlines() == [f"({[str(n)] * n}, '', '7')" for n in (3, 1, 4)]

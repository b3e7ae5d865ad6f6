"""Functions on gangs in a job of a real Slurm: on two nodes, with both MPI libraries, started by `srun`."""

from __future__ import annotations

from tests.slurm.cluster import Cluster

APP = """
import os
import mpi_runtime as ray

ray.init()

@ray.remote(num_ranks=4, ranks_per_node=2)
def where(comm):
    tasks = [name for name in os.environ if name.startswith(("SLURM_NTASKS", "SLURM_PROCID"))]
    return comm.size, comm.allreduce(comm.rank), len(set(comm.allgather(os.uname().nodename))), tasks

@ray.remote(num_ranks=4, max_retries=0)
def dies(comm):
    if comm.rank == 3:
        os._exit(0)
    comm.Barrier()

print(ray.get(where.remote()))
try:
    ray.get(dies.remote())
except ray.errors.WorkerCrashedError as error:
    print("rank 3 of its gang of 4" in str(error))
print(ray.get(where.remote()))
"""


def test_a_gang_on_two_nodes(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "app.py").write_text(APP)
    submit = ["mpi-runtime", "submit", "--wait", "--time=5", "--cpus-per-node=2", "-N", "2", "app.py"]
    started = [slurm.start(*submit, cwd=directory, mpi=mpi) for mpi in ("openmpi", "mpich")]
    for program in started:
        completed = program.finish().expect(0)
        # Open MPI's members report that the socket to the dead one has closed.
        own = [line for line in completed.stdout.splitlines() if not line.startswith("(dies pid=")]
        assert own[1:4] == ["(4, 6, 2, [])", "True", "(4, 6, 2, [])"]

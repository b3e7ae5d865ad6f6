"""The end of a job's time: who is asked for it, and how."""

from mpi_runtime.slurm import systems
from mpi_runtime.slurm.systems.system import Allocation, Question


def question(own: Allocation) -> Question | None:
    """Return a command that asks the batch system, and a function that reads its answer; None: no such command.

    The function takes the answer and the time now, and returns the end of the job's time, or None if it is not stated.
    Both times are in seconds since 1970.
    """
    system = systems.named(own.system)
    return None if system is None else system.question(own)

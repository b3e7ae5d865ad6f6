"""How many jobs are useful for what is left of a batch. Pure."""

import math
from collections.abc import Iterable

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.outlook import Left
from mpi_runtime.slurm.bounds import Bounds

SOON_S = 10.0
"""A job takes about this long to start: no job is submitted if those that run are done with the rest before."""


def jobs_for(left: Left, size: Bounds) -> int:
    """How many jobs of this size can run all at once that runs or may start."""
    shares = sum(_share(command, size) for command in (*left.ready, *left.running))
    return max(math.ceil(shares - 1e-9), int(bool(left.ready or left.running)))


def wanted(left: Left, size: Bounds, most: int, queued: int, running: int, waiting: int, mean_s: float | None) -> int:
    """How many jobs to submit now.

    Args:
        left: what is left of the batch.
        size: of a job; infinite where it is not known.
        most: how many jobs there may be.
        queued: how many of them may wait in the queue.
        running: how many jobs run.
        waiting: how many wait in the queue.
        mean_s: how long a command takes; None: not known yet.
    """
    if not left.ready:
        return 0
    if running and mean_s is not None:
        shares = sum(_share(command, size) for command in left.ready)
        if shares * mean_s < SOON_S * running:
            return 0
    return max(0, min(min(most, jobs_for(left, size)) - running - waiting, queued - waiting))


def _share(command: Command, size: Bounds) -> float:
    """The part of a job that a command takes while it runs. One of unknown size is taken whole by each command."""
    parts = []
    for demand in command.demands():
        amounts = (
            (demand.num_cpus, size.cpus), (demand.num_gpus, size.gpus), (float(demand.memory), size.memory),
        )  # fmt: skip
        if demand.num_cpus and size.cpus == math.inf:
            return 1.0
        parts.append(max(amount / whole if amount and whole else 0.0 for amount, whole in amounts))
    return min(parts) * command.ranks / max(1, size.nodes)


def mean_of(took_s: Iterable[float]) -> float | None:
    """The mean of these durations; None: there are none."""
    found = [*took_s]
    return math.fsum(found) / len(found) if found else None

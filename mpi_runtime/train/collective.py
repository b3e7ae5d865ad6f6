"""What the workers of a training do together besides reports. They call these functions equally often."""

from __future__ import annotations

from typing import TypeVar

from mpi_runtime.train.worker import worker_run

__all__ = ["barrier", "broadcast_from_rank_zero"]
T = TypeVar("T")


def barrier() -> None:
    """Wait for all workers.

    Calls that a worker has submitted before it reach an actor before those that others submit after it.

    Raises:
        RuntimeError: this is not a worker of a trainer, or another worker does something else.
    """
    worker_run("barrier()").share(None)


def broadcast_from_rank_zero(data: T) -> T:
    """Wait for all workers, and return what rank 0 has passed.

    Args:
        data: a value that can be pickled; ignored on other ranks. Use `torch.distributed` for large ones.

    Raises:
        RuntimeError: this is not a worker of a trainer, or another worker does something else.
    """
    return worker_run("broadcast_from_rank_zero()").share(data)

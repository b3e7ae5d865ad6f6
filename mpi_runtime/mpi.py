"""MPI inside tasks: the communicator of the running call, and arguments that are cut for its ranks.

A remote function with `num_ranks` runs on a gang of that many processes with an MPI world of their own:

    @mpi_runtime.remote(num_ranks=4)
    def total(comm, x):
        return comm.allreduce(x * comm.rank)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mpi_runtime.core.calls.arguments import Scatter
from mpi_runtime.core.gangs import member

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["comm", "scatter"]


def comm() -> Intracomm:
    """Return the communicator of the running call, for code that did not get it as an argument.

    It is the communicator that the remote function with `num_ranks` has as its first argument, and valid until that
    returns.

    Raises:
        RuntimeError: the caller is not in a call with `num_ranks`.

    Example:
        ```python
        def norm(part):
            return mpi_runtime.mpi.comm().allreduce((part * part).sum()) ** 0.5
        ```
    """
    found: Intracomm | None = member.running()
    if found is None:
        raise RuntimeError(
            "mpi.comm() is for calls with num_ranks: no such call runs here. Start one with @remote(num_ranks=4)."
        )
    return found


def scatter(values: Iterable[Any]) -> Scatter:
    """Mark an argument of a call with `num_ranks` of which each rank gets one item.

    Args:
        values: one item for each rank: references, whose values only their ranks load, or any values.

    Raises:
        TypeError: `values` has no items.

    Returns:
        The mark, to be passed to `.remote(...)` as an argument.

    Example:
        ```python
        blocks = [make_block.remote(i) for i in range(4)]
        solve.remote(mpi_runtime.mpi.scatter(blocks))  # rank i gets the value of blocks[i]
        ```
    """
    if not isinstance(values, Iterable):
        raise TypeError(f"mpi.scatter() takes one item for each rank, such as a list, not {values!r}")
    return Scatter(list(values))

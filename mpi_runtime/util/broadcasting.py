"""Copies values to all nodes before they are used there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpi_runtime import ObjectRef
from mpi_runtime.extend import job
from mpi_runtime.scheduler.protocol.events import BroadcastRequested

__all__ = ["broadcast"]


def broadcast(refs: ObjectRef[object] | Sequence[ObjectRef[object]]) -> None:
    """Copy large values to all nodes that run calls, ahead of use. Returns at once.

    Each node that gets a value passes it on, in parts while others still arrive. So the time is about that of one copy,
    with any number of nodes. Values that are not ready yet are copied later. Small values travel with the calls that
    use them, and a node with full shared memory is left out. Without `broadcast` a value is copied in the same way to
    the nodes that need it, when they need it.

    Raises:
        ObjectLostError: a reference belongs to a job that has ended.
        TypeError: an argument is not a reference.

    Example:
        ```python
        weights = ray.put(np.zeros(1_000_000))
        ray.util.broadcast(weights)
        ```
    """
    wanted = list(refs) if isinstance(refs, Iterable) else [refs]
    for ref in wanted:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"broadcast() takes references to values, not {ref!r}: put() the value first")
        ref.check_job()
    client = job()
    client.outbox.post(BroadcastRequested([ref.binary() for ref in wanted]))
    client.outbox.flush()

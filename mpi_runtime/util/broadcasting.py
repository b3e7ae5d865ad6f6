"""Copies values to all nodes before they are used there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.job import running
from mpi_runtime.scheduler.protocol.events import BroadcastRequested

__all__ = ["broadcast"]


def broadcast(refs: ObjectRef[Any] | Sequence[ObjectRef[Any]]) -> None:
    """Have large values brought to all nodes that run calls, ahead of use. Returns at once.

    Each node that gets a value passes it on, the parts of a large one while others still arrive. So the time is about
    that of one copy, whatever the number of nodes. Values that are not there yet are brought when they are. Small
    values travel with the calls that use them, and a node whose shared memory is full is left out. Without `broadcast`
    a value is brought in the same way to the nodes that need it, when they do.

    Example:
        ```python
        weights = ray.put(np.zeros(1_000_000))
        ray.util.broadcast(weights)
        ```

    Args:
        refs: a reference, or several.

    Raises:
        ObjectLostError: a reference belongs to a job that has ended.
        TypeError: something is no reference.
    """
    wanted = [refs] if isinstance(refs, ObjectRef) else list(refs)
    for ref in wanted:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"broadcast() takes references to values, not {ref!r}: put() the value first")
        ref.check_job()
    client = running.client()
    client.outbox.post(BroadcastRequested([ref.binary() for ref in wanted]))
    client.outbox.flush()

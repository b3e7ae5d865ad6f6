"""Checks of what clients send, which handlers make before they change anything: see `calls/refusals.py`."""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.events import RefusedError, Value
from mpi_runtime.scheduler.records.state import State


def require(holds: object, problem: str) -> None:
    """Raise `RefusedError` unless the condition holds."""
    if not holds:
        raise RefusedError(problem)


def check_ids(state: State, first: bytes, count: int) -> None:
    """Check that the ids of the values of a new call or object are new."""
    if count <= 1:
        require(first not in state.objects, f"{first.hex()} exists already")
        return
    start = int.from_bytes(first, "big")
    require(start + count < 1 << 128, f"there are no {count} ids after {first.hex()}")
    known = any((start + index).to_bytes(16, "big") in state.objects for index in range(count))
    require(not known, f"one of {count} ids after {first.hex()} exists already")


def check_values(state: State, values: list[Value]) -> None:
    """Check that values lie in memory that exists and that no other object has."""
    places = [(value.stored.rank, value.stored.offset) for value in values if value.stored is not None]
    for rank, offset in places:
        require(rank in state.ranks, f"there is no rank {rank}")
        require((rank, offset) not in state.extents, f"another object lies at offset {offset} of rank {rank}")
    require(len(set(places)) == len(places), "two values lie in one place")

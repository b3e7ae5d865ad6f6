"""Bugs to be planted: copies of values between hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.calls import copies
from mpi_runtime.scheduler.protocol.effects import StopFetch
from mpi_runtime.scheduler.protocol.events import Stored
from mpi_runtime.scheduler.protocol.rank_events import Arriving
from mpi_runtime.scheduler.records.state import Fetching, Object, State
from mpi_runtime.scheduler.values import spreading


def all_copies_come_from_the_first(patch: pytest.MonkeyPatch) -> None:
    """As it was before copies were passed on."""

    def planted(state: State, found: Object, fetches: dict[int, Fetching]) -> dict[int, tuple[Stored, int, int]]:
        node, place = next(iter((found.copies or {}).items()), (-1, None))
        return {} if place is None else {node: (place, 0, len(fetches))}

    patch.setattr(spreading, "open_sources", planted)


def who_waits_for_a_source_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    arrived = copies.arrived

    def planted(state: State, fetching: Fetching, event: object, now: int) -> None:
        serve = spreading.serve
        spreading.serve = lambda state, found: None
        try:
            arrived(state, fetching, event, now)  # type: ignore[arg-type]
        finally:
            spreading.serve = serve

    patch.setattr(copies, "arrived", planted)


def what_begins_to_arrive_is_there_for_good(patch: pytest.MonkeyPatch) -> None:
    """Its place is kept when it is given up."""
    give_up = spreading.give_up

    def planted(state: State, fetching: Fetching) -> None:
        offset, fetching.offset = fetching.offset, -1
        give_up(state, fetching)
        fetching.offset = offset

    patch.setattr(spreading, "give_up", planted)


def nothing_is_stopped(patch: pytest.MonkeyPatch) -> None:
    to_rank = State.to_rank

    def planted(self: State, rank: int, effect: object) -> None:
        if not isinstance(effect, StopFetch):
            to_rank(self, rank, effect)  # type: ignore[arg-type]

    patch.setattr(State, "to_rank", planted)


def what_arrives_may_be_had_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, event: Arriving, now: int) -> None:
        fetching = copies.find(state, event)
        if fetching is not None:
            fetching.offset = event.offset + 1
            spreading.serve(state, state.objects[event.id])

    patch.setitem(core.RANK_EVENTS, Arriving, planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    all_copies_come_from_the_first,
    who_waits_for_a_source_is_forgotten,
    what_begins_to_arrive_is_there_for_good,
    nothing_is_stopped,
    what_arrives_may_be_had_from_anywhere,
]
"""Without bugs that no run shows, for the next order frees what they leave, or unit tests find them: parts of an old
copy that count, and a node that is the source of a copy on the way to itself."""

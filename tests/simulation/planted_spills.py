"""Bugs to be planted: values that leave an arena which has no room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mpi_runtime.core.client.references import References
from mpi_runtime.scheduler.nodes import spilling
from mpi_runtime.scheduler.protocol.events import OnDisk, Stored
from mpi_runtime.scheduler.records.records import Node
from mpi_runtime.scheduler.records.state import Object, Room, State
from mpi_runtime.scheduler.values import objects, spreading


def nobody_is_asked_before_a_value_is_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spilling, "who_knows", lambda state, found, node: [])


def arguments_are_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spilling, "pinned", lambda state, node: set())


def what_is_looked_at_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    forget = References.forget

    def planted(self: References, ids: Sequence[bytes]) -> list[bytes]:
        forget(self, ids)
        return list(ids)

    patch.setattr(References, "forget", planted)


def values_are_dropped_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    write = spilling.write

    def planted(state: State, room: Room, found: Object, place: Stored, for_copies: bool) -> None:
        write(state, room, found, place, for_copies)
        state.frees.setdefault(place.rank, []).append(place.offset)

    patch.setattr(spilling, "write", planted)


def what_was_read_goes_no_further(patch: pytest.MonkeyPatch) -> None:
    serve = spreading.serve

    def planted(state: State, found: Object) -> None:
        if found.disk is None:
            serve(state, found)
        elif not found.copies:
            spreading.read(state, found)

    patch.setattr(spreading, "serve", planted)


def files_keep_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    def planted(state: State, place: OnDisk) -> None:
        del state.spilling.on_disk[place.rank, place.offset]

    patch.setattr(objects, "erase", planted)


def what_is_being_copied_is_moved(patch: pytest.MonkeyPatch) -> None:
    pinned = spilling.pinned

    def planted(state: State, node: Node) -> set[bytes]:
        return pinned(state, node) - set(state.fetching)

    patch.setattr(spilling, "pinned", planted)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    nobody_is_asked_before_a_value_is_moved,
    arguments_are_moved,
    what_is_looked_at_is_forgotten,
    values_are_dropped_before_they_are_written,
    what_was_read_goes_no_further,
    files_keep_what_is_gone,
    what_is_being_copied_is_moved,
]

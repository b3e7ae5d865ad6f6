"""Saved states of actors in a journal, and the calls that each contains.

A state names the life of its actor in which it was saved, and the state with which that life had begun. It contains the
calls recorded in this life before it, and those of the other state. It has their number: if a record of them cannot be
read, the calls of the state are not known, and neither this state nor any that builds on it is used.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mpi_runtime.scheduler.protocol.effects import Checkpoint, Recall, Record

STATES_KEPT = 2
"""The number of last states of each life of an actor to keep: the last one may be damaged."""


class Had(NamedTuple):
    """A call of an actor."""

    id: bytes
    key: bytes
    place: int
    """Where its record is."""


class Taken:
    """The calls that the restored state of an actor contains. Each stands for one call."""

    def __init__(self, calls: list[Had]) -> None:
        self.left = len(calls)
        """The number of them that this run has not made."""
        self._by_id = {call.id: call for call in calls}
        self._by_key: dict[bytes, deque[Had]] = {}
        for call in calls:
            self._by_key.setdefault(call.key, deque()).append(call)
        self._taken: dict[int, bytes] = {}
        """Calls of this run, by the places of their records."""

    def take(self, wanted: Recall) -> Had | None:
        """Return the recorded call that this one repeats, if any."""
        own = self._by_id.get(wanted.id)
        if own is None or own.key != wanted.key or self._taken.get(own.place, wanted.id) != wanted.id:
            calls = self._by_key.get(wanted.key, deque())
            while calls and calls[0].place in self._taken:
                calls.popleft()
            if not calls:
                return None
            own = calls.popleft()
            self._by_id[wanted.id] = own  # if it asks again
        self.left -= own.place not in self._taken
        self._taken[own.place] = wanted.id
        return own

    def has_another(self, wanted: Recall) -> bool:
        """Whether the call with this id was another one in the run that made the state."""
        own = self._by_id.get(wanted.id)
        return own is not None and own.key != wanted.key and own.place not in self._taken


class States:
    """All states of a journal, and those that this run has restored."""

    def __init__(self) -> None:
        self.count = 0
        self._lives: dict[bytes, list[Had]] = {}
        self._known: dict[bytes, Checkpoint] = {}
        self._by_key: dict[bytes, list[Checkpoint]] = {}
        self._actors: dict[bytes, Taken] = {}
        """Actors of this run that began with a state."""
        self._owners: dict[bytes, bytes] = {}
        """Actors of this run, by the actors of earlier runs that they continue."""

    def recorded(self, record: Record, place: int) -> None:
        """Add a call of an actor, in the order in which they were written."""
        self._lives.setdefault(record.life, []).append(Had(record.id, record.key, place))

    def saved(self, body: Checkpoint) -> None:
        """Add a state, in the same order."""
        is_complete = len(self._lives.get(body.life, ())) == body.calls
        if is_complete and (not body.base or body.base in self._known):
            self._known[body.number] = body
            self._by_key.setdefault(body.key, []).append(body)
            self.count += 1

    def candidates(self, wanted: Recall) -> list[Checkpoint]:
        """Return the states with which an actor may begin, all of one actor of an earlier run, the last first."""
        free = [
            state for state in self._by_key.get(wanted.key, []) if self._owners.get(state.id, wanted.id) == wanted.id
        ]
        if not free:
            return []
        ids = [state.id for state in free]
        own = wanted.id if wanted.id in ids else ids[0]
        return [state for state in reversed(free) if state.id == own]

    def begin(self, wanted: Recall, state: Checkpoint) -> None:
        """Note that an actor of this run begins with a state."""
        self._owners[state.id] = wanted.id
        calls: list[Had] = []
        at: Checkpoint | None = state
        while at is not None:
            calls[:0] = self._lives.get(at.life, [])[: at.calls]
            at = self._known[at.base] if at.base else None
        self._actors[wanted.id] = Taken(calls)

    def calls_of(self, actor: bytes) -> Taken | None:
        """Return the calls that the restored state of an actor contains; None: it has no such state."""
        return self._actors.get(actor)

    def left(self) -> int:
        """Return how many calls in restored states this run has not made."""
        return sum(taken.left for taken in self._actors.values())

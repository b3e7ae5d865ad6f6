"""Saved states of actors in a journal, and the calls that each contains.

A state names the life of its actor in which it was saved, and the state with which that life had begun. It contains the
calls recorded in this life before it, and those of the other state. It has their number: if a record of them cannot be
read, the calls of the state are not known, and neither this state nor any that builds on it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from mpi_runtime.scheduler.protocol.effects import Checkpoint, Fresh, Recall, Record
from mpi_runtime.scheduler.protocol.ids import PREFIX_BYTES

STATES_KEPT = 2
"""The number of last states of each life of an actor to keep: the last one may be damaged."""


class Had(NamedTuple):
    """A call of an actor."""

    id: bytes
    key: bytes
    place: int
    """Where its record is."""


class Calls:
    """Recorded calls, by their ids and their keys. Each stands for one call of this run."""

    def __init__(self, key_of: Callable[[int], bytes | None]) -> None:
        """Begin without calls. `key_of` returns the key of the call at a place; None: it cannot be read."""
        self.left = 0
        """The number of them that this run has not made."""
        self._key_of = key_of
        self._by_id: dict[bytes, int] = {}
        self._by_key: dict[bytes, int | deque[int]] = {}
        self._taken: dict[int, bytes] = {}
        """Calls of this run, by the places of their records."""

    def add(self, id: bytes, key: bytes, place: int) -> None:
        """Add a call, in the order in which they were recorded."""
        self.left += 1
        self._by_id[id] = place
        known = self._by_key.setdefault(key, place)
        if isinstance(known, deque):
            known.append(place)
        elif known != place:  # a deque for each key would take most of the memory
            self._by_key[key] = deque((known, place))

    def take(self, wanted: Recall) -> int | None:
        """Return the place of the recorded call that this one repeats, if any: its own, else the oldest."""
        place = self._by_id.get(wanted.id)
        if place is None or self._taken.get(place, wanted.id) != wanted.id or self._key_of(place) != wanted.key:
            place = self._oldest(wanted.key)
            if place is None:
                return None
            self._by_id[wanted.id] = place  # if it asks again
        self.left -= place not in self._taken
        self._taken[place] = wanted.id
        return place

    def _oldest(self, key: bytes) -> int | None:
        known = self._by_key.get(key, deque())
        places = known if isinstance(known, deque) else deque((known,))
        while places:
            place = places.popleft()
            if place not in self._taken and self._key_of(place) == key:
                return place
        return None

    def another(self, wanted: Recall) -> int | None:
        """Return the place of the call that had this id and was another one in the run that recorded it, if any."""
        place = self._by_id.get(wanted.id)
        return place if place is not None and place not in self._taken and self._key_of(place) != wanted.key else None


class States:
    """All states of a journal, and those that this run has restored."""

    def __init__(self) -> None:
        self.count = 0
        self._lives: dict[bytes, list[Had]] = {}
        self._known: dict[bytes, Checkpoint] = {}
        self._by_key: dict[bytes, list[Checkpoint]] = {}
        self._actors: dict[bytes, Calls] = {}
        """Actors of this run that began with a state."""
        self._equals: dict[bytes, dict[bytes, None]] = {}
        """Actors of earlier runs, by their keys, without those that another one has continued."""
        self._owners: dict[bytes, bytes] = {}
        """Actors of this run, by the actors of earlier runs that they continue."""

    def recorded(self, record: Record, place: int) -> None:
        """Add a call of an actor, in the order in which they were written."""
        self._lives.setdefault(record.life, []).append(Had(record.id, record.key, place))

    def began(self, body: Fresh) -> None:
        """Add an actor that had no state at first."""
        self._equals.setdefault(body.key, {})[body.id] = None

    def saved(self, body: Checkpoint) -> None:
        """Add a state, in the same order."""
        is_complete = len(self._lives.get(body.life, ())) == body.calls
        if is_complete and (not body.base or body.base in self._known):
            equals = self._equals.setdefault(body.key, {})
            if body.base:
                equals.pop(self._known[body.base].id, None)
            equals[body.id] = None
            self._known[body.number] = body
            self._by_key.setdefault(body.key, []).append(body)
            self.count += 1

    def candidates(self, wanted: Recall) -> list[Checkpoint]:
        """Return the states with which an actor may begin, all of one actor of an earlier run, the last first.

        That is the actor with its id. If there was none, the program may have been changed: then it is the only actor
        with its key, if that was made by the same call. If there were several, nobody knows which.
        """
        states = self._by_key.get(wanted.key, [])
        equals = self._equals.get(wanted.key, {})
        own = wanted.id
        if own not in equals and not any(state.id == own for state in states):
            one = next(iter(equals)) if len(equals) == 1 else own
            own = one if one[:PREFIX_BYTES] == own[:PREFIX_BYTES] else own
        if self._owners.get(own, wanted.id) != wanted.id:
            return []
        return [state for state in reversed(states) if state.id == own]

    def begin(self, wanted: Recall, state: Checkpoint) -> None:
        """Note that an actor of this run begins with a state."""
        self._owners[state.id] = wanted.id
        calls: list[Had] = []
        at: Checkpoint | None = state
        while at is not None:
            calls[:0] = self._lives.get(at.life, [])[: at.calls]
            at = self._known[at.base] if at.base else None
        self._actors[wanted.id] = own = Calls({call.place: call.key for call in calls}.get)
        for call in calls:
            own.add(*call)

    def calls_of(self, actor: bytes) -> Calls | None:
        """Return the calls that the restored state of an actor contains; None: it has no such state."""
        return self._actors.get(actor)

    def left(self) -> int:
        """Return how many calls in restored states this run has not made."""
        return sum(calls.left for calls in self._actors.values())

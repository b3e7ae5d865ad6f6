"""A job with a journal is cut at some moment, and the program runs again: the same answers, and no recorded call runs.

The journal is a list here. Small values are in its records; large ones are "files", which the executors that make them
write, and which now and then cannot be read.

The state of a virtual actor is the list of the calls that it has had. So it can be seen of each state that is saved
whether its calls are those that are recorded for it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec

from mpi_runtime.core.journal.states import States
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Fresh, Recall, Record
from mpi_runtime.scheduler.protocol.events import ActorSpec, Kept, MethodSpec, Spec, Value
from mpi_runtime.scheduler.protocol.ids import digest
from tests.simulation.options import Options, random_options
from tests.simulation.require import require

SAVING = 0.3
"""How often the state of an actor is saved after a call."""
UNREADABLE = 0.1
"""The share of files that cannot be read."""
CUT_US = 300_000
ANNOUNCED_US = 50_000
"""How long before the cut the end is announced, if it is."""


class Had(msgspec.Struct):
    """The state of a virtual actor."""

    calls: list[bytes]
    signals: list[int]
    """What calls have told each other."""


class CutError(BaseException):
    """The job is killed now."""


@dataclass
class Journal:
    """What one run has of it: the records of the runs before, and its own."""

    earlier: list[Record | Checkpoint | Fresh] = field(default_factory=list)
    own: list[Record | Checkpoint | Fresh] = field(default_factory=list)
    states: States = field(default_factory=States)
    had: dict[bytes, list[bytes]] = field(default_factory=dict)
    """The calls of each state, by its name, and of each life so far."""
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """The content of each, and how long it pretends to be."""
    recalled: set[bytes] = field(default_factory=set)
    """Calls that have ended by it. Only for membership."""
    loaded: set[bytes] = field(default_factory=set)
    """Calls that were given files. Only for membership."""
    announced_us: int = 0
    """When the end of the run is announced; 0: it is not."""
    taken: dict[int, bytes] = field(default_factory=dict)
    """Which call has which record, by its position."""

    def begin(self, before: Journal) -> None:
        """This run has the journal of another one."""
        self.earlier, self.files, self.had = before.own, before.files, before.had
        for place, body in enumerate(self.earlier):
            if isinstance(body, Checkpoint):
                self.states.saved(body)
            elif isinstance(body, Fresh):
                self.states.began(body)
            elif body.life:
                self.states.recorded(body, place)

    def take_state(self, wanted: Recall) -> tuple[list[Kept], bytes]:
        """The state with which an actor begins, and its name."""
        for state in self.states.candidates(wanted):
            require(state.id == wanted.id, f"actor {wanted.id.hex()} begins with a state of {state.id.hex()}")
            self.states.begin(wanted, state)
            return [state.state], state.number
        return [], b""

    def take(self, wanted: Recall) -> list[Kept]:
        """The values of a call."""
        if wanted.actor:
            calls = self.states.calls_of(wanted.actor)
            found = calls.take(wanted) if calls is not None else None
            fitting = [found] if found is not None else []
        else:
            fitting = [
                number
                for number, record in enumerate(self.earlier)
                if isinstance(record, Record) and not record.life and record.key == wanted.key
                if self.taken.get(number, wanted.id) == wanted.id
            ]
        fitting.sort(key=lambda number: self.earlier[number].id != wanted.id)
        if not fitting:
            return []
        self.taken[fitting[0]] = wanted.id
        record = self.earlier[fitting[0]]
        assert isinstance(record, Record)
        values = record.values
        if any(value.file for value in values):
            self.loaded.add(wanted.id)
        else:
            self.recalled.add(wanted.id)
        return values

    def give(self, record: Record | Checkpoint | Fresh) -> None:
        """A call is recorded, a state, or the beginning of an actor."""
        if isinstance(record, Fresh):
            self.own.append(record)
            return
        if record.life:
            record.life += b"again" if self.earlier else b"first"
        if isinstance(record, Checkpoint):
            calls = self.had.get(record.base, []) + self.had.get(record.life, [])
            names = msgspec.msgpack.decode(record.state.data, type=Had).calls
            require(sorted(names) == sorted(calls), f"the state of {record.name} has {names}, and recorded are {calls}")
            require(
                len(self.had.get(record.life, [])) == record.calls, f"{record.calls} calls are not what is recorded"
            )
            self.had[record.number] = calls
            self.own.append(record)
            return
        if record.life:
            self.had.setdefault(record.life, []).append(record.id)
        require(record.id not in self.recalled, f"call {record.id.hex()} was recalled and is recorded again")
        self.own.append(record)

    def write(self, id: bytes, index: int, content: bytes, value: Value) -> None:
        """An executor writes a large value."""
        value.file = f"{id.hex()}-{index}-{len(self.files)}"
        value.digest = digest(content, 16)
        assert value.stored is not None
        self.files[value.file] = content, value.stored.size


def with_code(spec: Spec) -> Spec:
    """The spec of a task of which the journal may know calls. All classes are equal."""
    name = "actor" if isinstance(spec.kind, ActorSpec) else spec.name
    return msgspec.structs.replace(spec, code=digest(name.encode(), 16))


def may_be_recorded(spec: Spec) -> bool:
    """Whether the journal may know calls of a spec. Of methods not those that may raise and be run again.

    What a state has of these is not known before their last attempt.
    """
    return spec.num_returns >= 0 and not (isinstance(spec.kind, MethodSpec) and spec.retry is not None)


def journal_options(seed: int) -> tuple[Options, Options, int]:
    """A world, another with the same program where other things happen, and when the first is cut."""
    rng = random.Random(seed * 8887 + 3)
    options = replace(random_options(seed), has_journal=True, kind="--journal")
    return options, replace(options, course=rng.randint(1, 1 << 30)), rng.randint(1000, CUT_US)

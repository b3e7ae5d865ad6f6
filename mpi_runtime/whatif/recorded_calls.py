"""The calls in a recording: their waits, submitters, starts and durations.

Two things are not in a recording, and are guessed. If calls of the driver have ended since its last submission, it is
assumed to have waited for all of them. If a call waits for more objects than a message names, it is assumed to wait for
all calls that it has submitted.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from mpi_runtime.scheduler.protocol import events
from mpi_runtime.scheduler.protocol.events import DRIVER, ActorSpec, Call, MethodSpec, Spec
from mpi_runtime.scheduler.protocol.ids import first_of
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from mpi_runtime.scheduler.recording import ClientSaid, Decided, RankSaid
from mpi_runtime.whatif.virtual_cluster import Shape, custom


@dataclass
class Part:
    """A call runs for some time, then may wait for others."""

    took_us: int
    waits_for: list[bytes] = field(default_factory=list)
    """Calls that end before the next part begins."""
    submits: list[tuple[int, bytes]] = field(default_factory=list)
    """Its submissions: the time after its start, and the call."""


@dataclass
class CallRecord:
    """A call that has ended."""

    id: bytes
    spec: Spec
    arguments: list[bytes]
    """The calls that produce its arguments."""
    actor: bytes
    """Of methods: the creation of the actor; else empty."""
    submitted_us: int
    """The time of its submission."""
    submitted_at: int
    """The place of its submission in the recording: for the messages of one client more exact than times."""
    by: int
    """The client that submitted it."""
    executor: int = -1
    began_us: int = -1
    ended_us: int = -1
    ended_at: int = -1
    """The place of its end in the recording."""
    parts: list[Part] = field(default_factory=list)


@dataclass
class Submission:
    """Calls that the driver submitted together."""

    calls: list[bytes]
    waits_for: list[bytes]
    """Calls that it waits for; none: it follows the previous submission."""
    delay_us: int
    """The delay after these."""


@dataclass
class JobRecord:
    """The calls of a job, in the order of their submission."""

    calls: dict[bytes, CallRecord]
    driver: list[Submission]
    nodes: list[Shape]
    released: set[bytes]
    """Objects and actors to which a process has dropped its last reference."""
    unended: int
    """The number of calls that had not ended; they are left out."""


class _Reader:
    def __init__(self) -> None:
        self.specs: dict[int, Spec] = {}
        self.calls: dict[bytes, CallRecord] = {}
        self.items: dict[bytes, bytes] = {}
        self.waits: dict[int, list[tuple[int, int, int, list[bytes]]]] = {}
        """The waits of each client: place in the recording, start, end, ids."""
        self.place = 0
        """The number of events so far."""
        self.nodes: dict[str, Shape] = {}
        self.processors: dict[str, set[int]] = {}
        """Of each node. They count where no rank states a number of CPUs."""
        self.stated: dict[str, float] = {}
        self.released: set[bytes] = set()

    def client_sent(self, entry: ClientSaid) -> None:
        last_us = 0
        for event in entry.events:
            if isinstance(event, events.Done | events.Returned):
                last_us = max(last_us, event.start_us + event.duration_us)
        for event in entry.events:
            self.place += 1
            if isinstance(event, Spec):
                self.specs[event.id] = event
            elif isinstance(event, Call):
                self._submitted(event, entry)
            elif isinstance(event, events.NamedActorRequested):
                self._submitted(event.creation, entry)
            elif isinstance(event, events.Yielded):
                self.items[event.id] = event.call
            elif isinstance(event, events.Released):
                self.released.update(event.ids)
            elif isinstance(event, events.Blocked):
                self.waits.setdefault(entry.client, []).append((self.place, entry.now, entry.now, event.ids))
            elif isinstance(event, events.Unblocked) and self.waits.get(entry.client):
                place, since_us, _, ids = self.waits[entry.client].pop()
                self.waits[entry.client].append((place, since_us, entry.now, ids))
            elif isinstance(event, events.Done | events.Returned) and event.id in self.calls:
                found = self.calls[event.id]
                # Several ends may arrive together: the last of them is now, and all have the same clock.
                found.ended_us = entry.now - (last_us - event.start_us - event.duration_us)
                found.began_us = found.ended_us - event.duration_us
                found.executor, found.ended_at = entry.client, self.place

    def _submitted(self, call: Call, entry: ClientSaid) -> None:
        arguments = [self.items.get(id, first_of(id)) for id in call.arguments]
        self.calls.setdefault(
            call.id,
            CallRecord(call.id, self.specs[call.spec], arguments, call.actor, entry.now, self.place, entry.client),
        )

    def joined(self, event: RankJoined) -> None:
        name = event.hostname
        known = self.nodes.get(name, Shape(0))
        processors = self.processors.setdefault(name, set())
        processors.update(event.cpus)
        if event.cpu >= 0:
            self.stated[name] = self.stated.get(name, 0) + event.cpu / UNIT
        self.nodes[name] = Shape(
            self.stated.get(name, len(processors)),
            max(known.gpus, len(event.devices), event.gpu / UNIT),
            max(known.memory, event.memory),
            custom({name: units / UNIT for name, units in event.custom.items()}) or known.resources,
        )

    def finish(self) -> JobRecord:
        ended = {id: call for id, call in self.calls.items() if call.ended_us >= 0}
        for call in ended.values():
            call.arguments = [id for id in call.arguments if id in ended]
        by_executor: dict[int, list[CallRecord]] = {}
        for call in sorted(ended.values(), key=lambda one: one.ended_at):
            by_executor.setdefault(call.executor, []).append(call)
            call.parts = [Part(call.ended_us - call.began_us)]
        submitted: dict[bytes, list[CallRecord]] = {}
        orphans: list[CallRecord] = []
        for call in ended.values():
            parent = _running(by_executor.get(call.by, []), call.submitted_at) if call.by != DRIVER else None
            (submitted.setdefault(parent.id, []) if parent is not None else orphans).append(call)
        for executor, calls in by_executor.items():
            own: dict[bytes, list[tuple[int, int, list[bytes]]]] = {}
            for place, since_us, until_us, ids in self.waits.get(executor, []):
                if (waiting := _running(calls, place)) is not None:
                    own.setdefault(waiting.id, []).append((since_us, until_us, ids))
            for call in calls:
                if call.id in own or call.id in submitted:
                    call.parts = self._parts(call, own.get(call.id, []), submitted.get(call.id, []), ended)
        unended = len(self.calls) - len(ended)
        return JobRecord(ended, _driver(orphans, ended), list(self.nodes.values()), self.released, unended)

    def _parts(
        self,
        call: CallRecord,
        waits: Iterable[tuple[int, int, list[bytes]]],
        submitted: list[CallRecord],
        ended: dict[bytes, CallRecord],
    ) -> list[Part]:
        """The parts of a call between its waits, with its submissions."""
        parts, since_us, left = [], call.began_us, [*submitted]
        for from_us, until_us, ids in [*waits, (call.ended_us, call.ended_us, [])]:
            part = Part(max(0, from_us - since_us))
            while left and (left[0].submitted_us <= from_us or from_us == call.ended_us):
                one = left.pop(0)
                part.submits.append((min(max(0, one.submitted_us - since_us), part.took_us), one.id))
            if from_us < call.ended_us:
                named = [self.items.get(id, first_of(id)) for id in ids]
                if not ids or len(ids) >= events.BLOCKED_IDS_MAX:
                    named += [one.id for one in submitted if one.submitted_us <= from_us]
                part.waits_for = [id for id in dict.fromkeys(named) if id in ended]
            parts.append(part)
            since_us = max(since_us, until_us)
        return parts


def _running(calls: list[CallRecord], place: int) -> CallRecord | None:
    """The call that an executor ran at this place: the next one to end, since they run one after another."""
    at = bisect.bisect_left(calls, place, key=lambda one: one.ended_at)
    return calls[min(at, len(calls) - 1)] if calls else None


def _driver(calls: list[CallRecord], ended: dict[bytes, CallRecord]) -> list[Submission]:
    """The submissions of the driver, with the waits before each."""
    ends = sorted((call.ended_us, call.id) for call in calls)
    found: list[Submission] = []
    before_us, at = calls[0].submitted_us if calls else 0, 0
    for call in calls:
        if found and call.submitted_us == before_us:
            found[-1].calls.append(call.id)
            continue
        awaited: list[bytes] = []
        while at < len(ends) and ends[at][0] <= call.submitted_us:
            awaited.append(ends[at][1])
            at += 1
        last_us = ended[awaited[-1]].ended_us if awaited else before_us
        found.append(Submission([call.id], awaited, call.submitted_us - last_us))
        before_us = call.submitted_us
    return found


def read_job(entries: Iterable[ClientSaid | RankSaid | Decided]) -> JobRecord:
    """Read the entries of a `Recording`."""
    reader = _Reader()
    for entry in entries:
        if isinstance(entry, ClientSaid):
            reader.client_sent(entry)
        elif isinstance(entry, RankSaid) and isinstance(entry.event, RankJoined):
            reader.joined(entry.event)
    return reader.finish()


def shape_of(spec: Spec) -> Shape:
    """The resources of a running call: none for a method, those of the actor for its creation."""
    if isinstance(spec.kind, MethodSpec):
        return Shape(0)
    asks, kind = spec.asks, spec.kind
    cpu = kind.held_cpu if isinstance(kind, ActorSpec) and keeps(spec) else asks.cpu
    return Shape(cpu / UNIT, asks.gpu / UNIT, asks.memory, custom({name: units / UNIT for name, units in asks.custom}))


def keeps(spec: Spec) -> bool:
    """Whether this is the creation of an actor that keeps resources for its life."""
    asks, kind = spec.asks, spec.kind
    return isinstance(kind, ActorSpec) and bool(kind.held_cpu or asks.gpu or asks.memory or asks.custom)

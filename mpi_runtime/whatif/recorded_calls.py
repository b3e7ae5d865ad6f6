"""What a recording of a job says of its calls: what each waited for, who submitted it and when, and how long it took.

Two things are not in a recording, and are guessed. A driver submits calls after it has waited for results, or after
some work of its own: where calls of the driver have ended since it last submitted some, it is thought to have waited
for all of these. And a call that waits for more objects than a message names is thought to wait for all calls that it
has submitted.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from mpi_runtime.scheduler.events import (
    ACTOR,
    BLOCKED_IDS_MAX,
    DRIVER,
    METHOD,
    Blocked,
    Call,
    Done,
    NamedActorRequested,
    Returned,
    Spec,
    Unblocked,
    Yielded,
)
from mpi_runtime.scheduler.ids import first_of
from mpi_runtime.scheduler.limits import UNIT
from mpi_runtime.scheduler.rank_events import RankJoined
from mpi_runtime.scheduler.recording import ClientSaid, Decided, RankSaid
from mpi_runtime.whatif.virtual_cluster import Shape


@dataclass
class Part:
    """A call runs for some time, then it may wait for others."""

    took_us: int
    waits_for: list[bytes] = field(default_factory=list)
    """Calls that end before the next part begins."""
    submits: list[tuple[int, bytes]] = field(default_factory=list)
    """Which calls it submits, and how long after its begin."""


@dataclass
class CallRecord:
    """A call that has ended."""

    id: bytes
    spec: Spec
    arguments: list[bytes]
    """The calls whose values it needs."""
    actor: bytes
    """Of methods: the creation of the actor; else empty."""
    said_us: int
    """When it was submitted."""
    by: int
    """Which client has submitted it."""
    executor: int = -1
    began_us: int = -1
    ended_us: int = -1
    parts: list[Part] = field(default_factory=list)


@dataclass
class Submission:
    """What a driver submits at a time."""

    calls: list[bytes]
    waits_for: list[bytes]
    """Calls whose end it waits for before; none: it goes on after the submission before."""
    delay_us: int
    """How long after that."""


@dataclass
class JobRecord:
    """The calls of a job, in the order in which they were submitted."""

    calls: dict[bytes, CallRecord]
    driver: list[Submission]
    nodes: list[Shape]
    unended: int
    """Calls that had not ended when the recording did; they are left out."""


class _Reader:
    def __init__(self) -> None:
        self.specs: dict[int, Spec] = {}
        self.calls: dict[bytes, CallRecord] = {}
        self.items: dict[bytes, bytes] = {}
        self.waits: dict[int, list[tuple[int, int, list[bytes]]]] = {}
        """Of each client: since when and until when it waited, and for what."""
        self.nodes: dict[str, Shape] = {}

    def said(self, entry: ClientSaid) -> None:
        last_us = 0
        for event in entry.events:
            if isinstance(event, Done | Returned):
                last_us = max(last_us, event.start_us + event.duration_us)
        for event in entry.events:
            if isinstance(event, Spec):
                self.specs[event.id] = event
            elif isinstance(event, Call):
                self._submitted(event, entry)
            elif isinstance(event, NamedActorRequested):
                self._submitted(event.creation, entry)
            elif isinstance(event, Yielded):
                self.items[event.id] = event.call
            elif isinstance(event, Blocked):
                self.waits.setdefault(entry.client, []).append((entry.now, entry.now, event.ids))
            elif isinstance(event, Unblocked) and self.waits.get(entry.client):
                since_us, _, ids = self.waits[entry.client].pop()
                self.waits[entry.client].append((since_us, entry.now, ids))
            elif isinstance(event, Done | Returned) and event.id in self.calls:
                found = self.calls[event.id]
                # Several ends may be told at once: the last of them has just been, and they have one clock.
                found.ended_us = entry.now - (last_us - event.start_us - event.duration_us)
                found.began_us = found.ended_us - event.duration_us
                found.executor = entry.client

    def _submitted(self, call: Call, entry: ClientSaid) -> None:
        arguments = [self.items.get(id, first_of(id)) for id in call.arguments]
        self.calls.setdefault(
            call.id, CallRecord(call.id, self.specs[call.spec], arguments, call.actor, entry.now, entry.client)
        )

    def joined(self, event: RankJoined) -> None:
        known = self.nodes.get(event.hostname, Shape(0))
        self.nodes[event.hostname] = Shape(
            known.cpus + event.cpu / UNIT,
            max(known.gpus, len(event.devices), event.gpu / UNIT),
            max(known.memory, event.memory),
        )

    def finish(self) -> JobRecord:
        ended = {id: call for id, call in self.calls.items() if call.ended_us >= 0}
        for call in ended.values():
            call.arguments = [id for id in call.arguments if id in ended]
        by_executor: dict[int, list[CallRecord]] = {}
        for call in sorted(ended.values(), key=lambda one: one.began_us):
            by_executor.setdefault(call.executor, []).append(call)
            call.parts = [Part(call.ended_us - call.began_us)]
        submitted: dict[bytes, list[CallRecord]] = {}
        orphans: list[CallRecord] = []
        for call in ended.values():
            parent = _running(by_executor.get(call.by, []), call.said_us) if call.by != DRIVER else None
            (submitted.setdefault(parent.id, []) if parent is not None else orphans).append(call)
        for executor, calls in by_executor.items():
            waits = self.waits.get(executor, [])
            for call in calls:
                own = [one for one in waits if call.began_us <= one[0] < call.ended_us]
                if own or call.id in submitted:
                    call.parts = self._parts(call, own, submitted.get(call.id, []), ended)
        return JobRecord(ended, _driver(orphans, ended), list(self.nodes.values()), len(self.calls) - len(ended))

    def _parts(
        self,
        call: CallRecord,
        waits: Iterable[tuple[int, int, list[bytes]]],
        submitted: list[CallRecord],
        ended: dict[bytes, CallRecord],
    ) -> list[Part]:
        """What a call does between its waits, and what it submits meanwhile."""
        parts, since_us, left = [], call.began_us, [*submitted]
        for from_us, until_us, ids in [*waits, (call.ended_us, call.ended_us, [])]:
            part = Part(max(0, from_us - since_us))
            while left and (left[0].said_us <= from_us or from_us == call.ended_us):
                one = left.pop(0)
                part.submits.append((min(max(0, one.said_us - since_us), part.took_us), one.id))
            if from_us < call.ended_us:
                named = [self.items.get(id, first_of(id)) for id in ids]
                if not ids or len(ids) >= BLOCKED_IDS_MAX:
                    named += [one.id for one in submitted if one.said_us <= from_us]
                part.waits_for = [id for id in dict.fromkeys(named) if id in ended]
            parts.append(part)
            since_us = max(since_us, until_us)
        return parts


def _running(calls: list[CallRecord], now_us: int) -> CallRecord | None:
    """Which of the calls of an executor, which begin one after the other, had begun last."""
    at = bisect.bisect_right(calls, now_us, key=lambda one: one.began_us) - 1
    return calls[max(0, at)] if calls else None


def _driver(calls: list[CallRecord], ended: dict[bytes, CallRecord]) -> list[Submission]:
    """What the driver has submitted, and what it has waited for before each time."""
    ends = sorted((call.ended_us, call.id) for call in calls)
    found: list[Submission] = []
    before_us, at = calls[0].said_us if calls else 0, 0
    for call in calls:
        if found and call.said_us == before_us:
            found[-1].calls.append(call.id)
            continue
        heard: list[bytes] = []
        while at < len(ends) and ends[at][0] <= call.said_us:
            heard.append(ends[at][1])
            at += 1
        last_us = ended[heard[-1]].ended_us if heard else before_us
        found.append(Submission([call.id], heard, call.said_us - last_us))
        before_us = call.said_us
    return found


def read_job(entries: Iterable[ClientSaid | RankSaid | Decided]) -> JobRecord:
    """Read the recording of a job.

    Args:
        entries: of a `Recording`.
    """
    reader = _Reader()
    for entry in entries:
        if isinstance(entry, ClientSaid):
            reader.said(entry)
        elif isinstance(entry, RankSaid) and isinstance(entry.event, RankJoined):
            reader.joined(entry.event)
    return reader.finish()


def shape_of(call: CallRecord, calls: dict[bytes, CallRecord]) -> Shape:
    """What a call has while it runs: a method what its actor keeps."""
    owner = calls.get(call.actor) if call.spec.kind == METHOD else None
    spec = owner.spec if owner is not None else call.spec
    cpu = spec.held_cpu if call.spec.kind == METHOD else spec.cpu
    return Shape(cpu / UNIT, spec.gpu / UNIT, spec.memory if call.spec.kind != METHOD else 0)


def width_of(creation: Spec) -> int:
    """How many methods of an actor may run at a time."""
    assert creation.kind == ACTOR
    return sum(creation.concurrency.values()) or 1

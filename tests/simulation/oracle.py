"""What a program must compute, worked out without any scheduler: each job once, in the order it is submitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise, product

from tests.simulation.steps import (
    ACTOR,
    CURSED,
    METHOD,
    STREAMING,
    Await,
    Broadcast,
    Cancel,
    Compute,
    Drop,
    Forget,
    Get,
    Job,
    Kill,
    MakeGroup,
    Open,
    Put,
    RemoveGroup,
    Signal,
    Step,
    Submit,
    Take,
    Wait,
    Workload,
    Yield,
)

VALUE, ERROR, FAILED = "value", "error", "failed"
REMOVED = b"PlacementGroupRemovedError"


@dataclass
class Thing:
    """What an object must turn out to be."""

    kind: str
    digest: bytes
    """VALUE, ERROR: told from all others by this. FAILED: the class of the error."""
    inner: list[Thing] = field(default_factory=list)
    """What the references inside stand for."""
    items: list[Thing] = field(default_factory=list)
    """Of a call that streams: what it yields."""
    other: Thing | None = None
    """What it may be as well: the call has two errors to get, and gets the first that is known; or it has computed its
    value from such an error."""

    def may_be(self, kind: str, digest: bytes) -> bool:
        """Whether that is what it must be, or may."""
        return (self.kind, self.digest) == (kind, digest) or (
            self.other is not None and self.other.may_be(kind, digest)
        )

    def digests(self) -> tuple[bytes, ...]:
        """Those that it may have."""
        return (self.digest, *(self.other.digests() if self.other is not None else ()))


def one_of(things: Sequence[Thing]) -> Thing:
    """A thing that may be any of these, which have no others."""
    for thing, other in pairwise(things):
        thing.other = other
    return things[0]


def either(thing: Thing, other: Thing) -> Thing:
    """A thing that may be what one of these may be."""
    return replace(thing, other=other if thing.other is None else either(thing.other, other))


def digest(*parts: bytes | int) -> bytes:
    """A short name for what was computed from these."""
    text = b"|".join([part if isinstance(part, bytes) else b"%d" % part for part in parts])
    return blake2b(text, digest_size=8).digest()


def item_digest(job: int, index: int, seen: Sequence[bytes]) -> bytes:
    """A short name for an item of a stream."""
    return digest(job, b"item", index, *seen)


@dataclass
class Frame:
    """A program that is evaluated: the driver's, or that of a call."""

    key: int = -1
    """The job."""
    slots: dict[int, Thing] = field(default_factory=dict)
    seen: list[tuple[bytes, ...]] = field(default_factory=list)
    """What it has computed from: of each thing what it may have been."""
    given: list[Thing] = field(default_factory=list)
    """The items that it has yielded."""
    taken: dict[int, int] = field(default_factory=dict)
    """For the slot of each stream how many items it has taken."""

    def all_seen(self) -> Iterator[tuple[bytes, ...]]:
        """All that it may have computed from. There is more than one way in one world of a thousand."""
        return product(*self.seen)


class Oracle:
    """Evaluates a workload."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.returns: dict[int, list[Thing]] = {}
        """For each job that is submitted, what its return values must be."""
        self.items: dict[int, list[Thing]] = {}
        """For each that streams, what it must yield."""
        self.puts: dict[int, Thing] = {}
        self.groups: dict[int, Thing] = {}
        """For each placement group what its object must be."""
        self._perform(work.steps, Frame())

    def _perform(self, steps: Sequence[Step], frame: Frame) -> None:
        slots = frame.slots
        for step in steps:
            if isinstance(step, Submit):
                self._submit(step, frame)
            elif isinstance(step, Put):
                if all(slot in slots for slot in step.holds):
                    inner = [slots[slot] for slot in step.holds]
                    slots[step.slot] = self.puts[step.key] = Thing(VALUE, digest(b"put", step.key), inner)
            elif isinstance(step, Get):
                frame.seen.extend(slots[slot].digests() for slot in step.slots if slot in slots)
            elif isinstance(step, Open):
                found = slots.get(step.slot)
                if found is not None:
                    frame.seen.append(found.digests())
                    slots.update(zip(range(step.into, step.into + step.count), found.inner, strict=False))
            elif isinstance(step, Drop):
                for slot in step.slots:
                    slots.pop(slot, None)
                    frame.taken.pop(slot, None)
            elif isinstance(step, MakeGroup):
                kind, name = (VALUE, digest(b"group", step.key)) if step.feasible else (FAILED, REMOVED)
                slots[step.slot] = self.groups[step.key] = Thing(kind, name)
            elif isinstance(step, Yield):
                inner = [slots[slot] for slot in step.holds if slot in slots]
                index = len(frame.given)
                names = [item_digest(frame.key, index, seen) for seen in frame.all_seen()]
                frame.given.append(one_of([Thing(VALUE, name, inner) for name in names]))
            elif isinstance(step, Take):
                self._take(step, frame)
            elif isinstance(step, Forget):
                frame.taken.pop(step.slot, None)
            else:
                assert isinstance(step, Broadcast | Compute | Wait | Kill | RemoveGroup | Cancel | Signal | Await)

    def _take(self, step: Take, frame: Frame) -> None:
        if step.slot not in frame.taken:
            return
        found = frame.slots[step.slot]
        first = frame.taken[step.slot]
        items = found.items[first : first + step.count]
        frame.taken[step.slot] += len(items)
        frame.slots.update(zip(range(step.into, step.into + step.count), items, strict=False))
        if len(items) < step.count:
            frame.seen.append(found.digests())

    def _submit(self, step: Submit, frame: Frame) -> None:
        slots = frame.slots
        needed = [*step.arguments, *step.holds, *(slot for slot in (step.actor, step.group) if slot >= 0)]
        if not all(slot in slots for slot in needed):
            return
        job = self.work.jobs[step.job]
        arguments = [slots[slot] for slot in step.arguments]
        actor = slots[step.actor] if step.actor >= 0 else None
        count = self.work.functions[job.function].num_returns
        inner = Frame(job.key, {index: slots[slot] for index, slot in enumerate(step.holds)})
        if step.group >= 0 and slots[step.group].kind == FAILED:
            things = [slots[step.group]] * max(1, count)
        else:
            things = self._call(job, arguments, inner, actor)
        if count == STREAMING:
            things = [replace(things[0], items=inner.given)]
            frame.taken[step.slot] = 0
            self.items[job.key] = inner.given
        self.returns[job.key] = things
        slots.update(zip(range(step.slot, step.slot + abs(count)), things, strict=False))

    def _call(self, job: Job, arguments: list[Thing], frame: Frame, actor: Thing | None) -> list[Thing]:
        function = self.work.functions[job.function]
        count = max(1, function.num_returns)
        if not function.feasible:
            return [Thing(FAILED, b"InfeasibleResourceError")] * count
        ended = None
        if actor is not None and actor.kind != VALUE:
            ended = actor if actor.kind == ERROR else Thing(FAILED, b"ActorDiedError")
        for argument in arguments:
            if argument.kind != VALUE:
                return [argument if ended is None else either(argument, ended)] * count
        if ended is not None:
            return [ended] * count
        assert (actor is not None) == (function.kind == METHOD)
        if function.environment == CURSED:
            return [Thing(FAILED, b"WorkerCrashedError")] * count
        frame.seen += [argument.digests() for argument in arguments]
        if job.raises < 0 or (job.raises and not function.retry_exceptions):
            self._perform(job.steps[: job.raises_at], frame)
            errors = [Thing(ERROR, digest(job.key, b"raised", *seen)) for seen in frame.all_seen()]
            return [one_of(errors)] * count
        self._perform(job.steps, frame)
        names = [digest(job.key, *seen) for seen in frame.all_seen()]
        if function.kind == ACTOR:
            return [one_of([Thing(VALUE, name) for name in names])]
        inner = [frame.slots[slot] for slot in job.holds if slot in frame.slots]
        return [
            one_of([Thing(VALUE, digest(name, index), inner if index == 0 else []) for name in names])
            for index in range(count)
        ]

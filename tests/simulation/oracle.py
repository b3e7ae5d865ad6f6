"""What a program must compute, worked out without any scheduler: each job once, in the order it is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from tests.simulation.workload import (
    ACTOR,
    METHOD,
    Compute,
    Drop,
    Get,
    Job,
    Kill,
    MakeGroup,
    Open,
    Put,
    RemoveGroup,
    Step,
    Submit,
    Wait,
    Workload,
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


def digest(*parts: bytes | int) -> bytes:
    """A short name for what was computed from these."""
    text = b"|".join(part if isinstance(part, bytes) else str(part).encode() for part in parts)
    return blake2b(text, digest_size=8).digest()


class Oracle:
    """Evaluates a workload."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.returns: dict[int, list[Thing]] = {}
        """For each job that is submitted, what its return values must be."""
        self.puts: dict[int, Thing] = {}
        self.groups: dict[int, Thing] = {}
        """For each placement group what its object must be."""
        self._perform(work.steps, {}, [])

    def _perform(self, steps: Sequence[Step], slots: dict[int, Thing], seen: list[bytes]) -> None:
        for step in steps:
            if isinstance(step, Submit):
                self._submit(step, slots)
            elif isinstance(step, Put):
                if all(slot in slots for slot in step.holds):
                    inner = [slots[slot] for slot in step.holds]
                    slots[step.slot] = self.puts[step.key] = Thing(VALUE, digest(b"put", step.key), inner)
            elif isinstance(step, Get):
                seen.extend(slots[slot].digest for slot in step.slots if slot in slots)
            elif isinstance(step, Open):
                found = slots.get(step.slot)
                if found is not None:
                    seen.append(found.digest)
                    slots.update(zip(range(step.into, step.into + step.count), found.inner, strict=False))
            elif isinstance(step, Drop):
                for slot in step.slots:
                    slots.pop(slot, None)
            elif isinstance(step, MakeGroup):
                kind, name = (VALUE, digest(b"group", step.key)) if step.feasible else (FAILED, REMOVED)
                slots[step.slot] = self.groups[step.key] = Thing(kind, name)
            else:
                assert isinstance(step, Compute | Wait | Kill | RemoveGroup)

    def _submit(self, step: Submit, slots: dict[int, Thing]) -> None:
        needed = [*step.arguments, *step.holds, *(slot for slot in (step.actor, step.group) if slot >= 0)]
        if not all(slot in slots for slot in needed):
            return
        job = self.work.jobs[step.job]
        arguments = [slots[slot] for slot in step.arguments]
        actor = slots[step.actor] if step.actor >= 0 else None
        count = self.work.functions[job.function].num_returns
        if step.group >= 0 and slots[step.group].kind == FAILED:
            things = [slots[step.group]] * max(1, count)
        else:
            things = self._call(job, arguments, [slots[slot] for slot in step.holds], actor)
        self.returns[job.key] = things
        slots.update(zip(range(step.slot, step.slot + count), things, strict=False))

    def _call(self, job: Job, arguments: list[Thing], given: list[Thing], actor: Thing | None) -> list[Thing]:
        function = self.work.functions[job.function]
        count = max(1, function.num_returns)
        if not function.feasible:
            return [Thing(FAILED, b"InfeasibleResourceError")] * count
        for argument in arguments:
            if argument.kind != VALUE:
                return [argument] * count
        if actor is not None and actor.kind == ERROR:
            return [actor] * count
        if actor is not None and actor.kind == FAILED:
            return [Thing(FAILED, b"ActorDiedError")] * count
        assert (actor is not None) == (function.kind == METHOD)
        slots = dict(enumerate(given))
        seen = [argument.digest for argument in arguments]
        if job.raises < 0 or (job.raises and not function.retry_exceptions):
            return [Thing(ERROR, digest(job.key, b"raised", *seen))] * count
        self._perform(job.steps, slots, seen)
        name = digest(job.key, *seen)
        inner = [slots[slot] for slot in job.holds if slot in slots]
        things = [Thing(VALUE, digest(name, index), inner if index == 0 else []) for index in range(count)]
        if function.kind == ACTOR:
            things = [Thing(VALUE, name)]
        return things

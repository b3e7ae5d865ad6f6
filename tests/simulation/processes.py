"""What the virtual driver and virtual executors have in common: the client's part of the protocol.

Follows `mpi_runtime/processes/client.py`: own objects are announced unasked, others are subscribed to; references are
counted for the process, and only the first and the last are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from mpi_runtime.scheduler import effects
from mpi_runtime.scheduler.events import (
    IN,
    Blocked,
    BundleSpec,
    Call,
    Cancelled,
    GroupCreated,
    GroupRemoved,
    Held,
    Killed,
    Label,
    Named,
    Released,
    Spec,
    Stored,
    Subscribed,
    Unblocked,
    Value,
    Where,
)
from mpi_runtime.scheduler.events import Put as PutEvent
from tests.simulation import oracle
from tests.simulation.places import NOWHERE
from tests.simulation.scope import CallInterruptedError, Pause, Program, Scope, TaintedError
from tests.simulation.steps import (
    STREAMING,
    Await,
    Cancel,
    Compute,
    Drop,
    Forget,
    Function,
    Get,
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
    Yield,
)
from tests.simulation.streams import Streams
from tests.simulation.world import World

Message: TypeAlias = (
    "effects.Ready | effects.ReadyStored | effects.ReadyError | effects.ReadyFailed | effects.ReadyElsewhere"
)
MESSAGES = (effects.Ready, effects.ReadyStored, effects.ReadyError, effects.ReadyFailed, effects.ReadyElsewhere)
INLINE_MAX = 64 * 1024
TAINT = b"tainted:"
"""How the error of a call starts that met a fault while it ran."""
CANCELLED = b"TaskCancelledError"
"""The error of a call that has heard that it was cancelled."""


class Content(msgspec.Struct):
    """What the bytes of a value say."""

    digest: bytes
    inner: list[bytes] = []
    padding: bytes = b""


class Process:
    """One client."""

    def __init__(self, world: World, number: int, arenas: Callable[[int], dict[int, bytes]]) -> None:
        self.world = world
        self.number = number
        self.arenas = arenas
        """The contents of a rank's part of the memory of this host."""
        self.counts: Counter[bytes] = Counter()
        self.values: dict[bytes, Message] = {}
        self.borrowed: dict[bytes, bool] = {}
        self.outbox: list[object] = []
        self.specs_sent: set[int] = set()
        self.alive = True
        self.lends_cpu = True
        """Whether it says when it waits."""
        self.streams = Streams(self)
        self.orders: Counter[bytes] = Counter()
        """How many calls were made of each actor."""

    def flush(self) -> None:
        """Send what was said."""
        raise NotImplementedError

    def allocate(self) -> tuple[int, int]:
        """A rank and an offset for a large value; offset -1: there is no room."""
        raise NotImplementedError

    # References

    def adopt(self, ids: Sequence[bytes]) -> None:
        """References were found inside a value."""
        new = []
        for id in ids:
            self.counts[id] += 1
            if self.counts[id] == 1:
                new.append(id)
                self.borrowed[id] = False
        if new:
            self.outbox.append(Held(new))

    def drop(self, ids: Sequence[bytes]) -> None:
        """References are gone."""
        gone = []
        for id in ids:
            self.counts[id] -= 1
            assert self.counts[id] >= 0
            if not self.counts[id]:
                del self.counts[id]
                self.values.pop(id, None)
                self.borrowed.pop(id, None)
                gone.append(id)
        if gone:
            self.outbox.append(Released(gone))

    def take_in(self, message: Message) -> None:
        """An object is ready."""
        if message.id in self.counts:
            self.values[message.id] = message

    # Values

    def store(self, content: Content, size: int, holds: list[bytes], is_error: bool = False) -> Value:
        """A value inline or in the arena. Raises TaintedError when there is no room."""
        if size <= INLINE_MAX:
            content.padding = bytes(size)
            return Value(msgspec.msgpack.encode(content), None, holds, is_error)
        rank, offset = self.allocate()
        if offset < 0:
            raise TaintedError("ObjectStoreFullError")
        self.arenas(rank)[offset] = msgspec.msgpack.encode(content)
        return Value(b"", Stored(rank, offset, size), holds, is_error)

    def read(self, message: Message) -> tuple[str, bytes, list[bytes]]:
        """The kind of a value, its digest or code, and the references inside."""
        if isinstance(message, effects.ReadyFailed):
            return oracle.FAILED, message.code.encode(), []
        assert not isinstance(message, effects.ReadyElsewhere)
        is_error = isinstance(message, effects.ReadyError)
        if isinstance(message, effects.ReadyStored):
            data = self.arenas(message.rank).get(message.offset, b"")
            assert data, f"{message} points to memory that was freed"
            is_error = message.is_error
        else:
            data = message.data
        if data.startswith(TAINT) or data == CANCELLED:
            return oracle.FAILED, data, []
        content = _decoder.decode(data)
        return (oracle.ERROR if is_error else oracle.VALUE), content.digest, content.inner

    # Steps

    def perform(self, steps: Sequence[Step], scope: Scope) -> Program:
        """Do what a program says, up to where it meets a fault (TaintedError)."""
        slots = scope.slots
        for step in steps:
            if isinstance(step, Compute):
                yield Pause(step.duration_us)
            elif isinstance(step, Submit):
                self.submit(step, scope)
            elif isinstance(step, Put):
                if all(slot in slots for slot in step.holds):
                    self.put(step, scope)
            elif isinstance(step, Get):
                ids = [slots[slot] for slot in step.slots if slot in slots]
                yield from self.get(ids)
                scope.seen.extend(self.look(id)[0] for id in ids)
            elif isinstance(step, Wait):
                ids = [slots[slot] for slot in step.slots if slot in slots]
                yield from self.wait(ids, min(step.count, len(ids)))
            elif isinstance(step, Open):
                box = slots.get(step.slot)
                if box is not None:
                    yield from self.get([box])
                    name, inner = self.look(box)
                    scope.seen.append(name)
                    self.adopt(inner)
                    slots.update(zip(range(step.into, step.into + step.count), inner, strict=False))
            elif isinstance(step, Take):
                yield from self.streams.take(step, scope)
            elif isinstance(step, Yield | Signal | Await):
                yield from self.perform_in_call(step, scope)
            else:
                self.say(step, scope)

    def perform_in_call(self, step: Yield | Signal | Await, scope: Scope) -> Program:
        """Do what only calls do, not the driver."""
        raise NotImplementedError

    def say(self, step: Step, scope: Scope) -> None:
        """Do what needs no waiting."""
        slots = scope.slots
        if isinstance(step, Drop):
            for slot in step.slots:
                self.streams.forget(scope, slot)
            self.drop([slots.pop(slot) for slot in step.slots if slot in slots])
        elif isinstance(step, MakeGroup):
            self.make_group(step, scope)
        elif isinstance(step, RemoveGroup):
            self.world.counters["removals" if step.is_early else "groups removed"] += 1
            self.outbox.append(GroupRemoved(slots[step.slot]))
        elif isinstance(step, Cancel):
            if step.slot in slots:
                self.cancel(slots[step.slot], step.force, step.recursive)
        elif isinstance(step, Forget):
            call = self.streams.forget(scope, step.slot)
            if call and step.cancel:
                self.cancel(call, force=False, recursive=False)
        else:
            assert isinstance(step, Kill)
            if step.slot in slots:
                self.world.counters["kills"] += 1
                self.outbox.append(Killed(slots[step.slot], step.no_restart))

    def cancel(self, id: bytes, force: bool, recursive: bool) -> None:
        """Have a call not run, or not run on."""
        self.world.counters["cancels"] += 1
        self.outbox.append(Cancelled(id, force, recursive))
        self.flush()

    def leave(self, scope: Scope) -> None:
        """A program is at its end: all that it had is gone."""
        for slot in scope.slots:
            self.streams.forget(scope, slot)
        self.drop(list(scope.slots.values()))
        scope.slots.clear()

    def submit(self, step: Submit, scope: Scope) -> None:
        slots = scope.slots
        needed = [*step.arguments, *step.holds, *(slot for slot in (step.actor, step.group) if slot >= 0)]
        if not all(slot in slots for slot in needed):
            return
        checker = self.world.checker
        job = checker.work.jobs[step.job]
        place = (slots[step.group], step.bundle) if step.group >= 0 else NOWHERE
        spec = checker.spec(job.function, place)
        if spec.id not in self.specs_sent:
            self.specs_sent.add(spec.id)
            self.outbox.append(spec)
        id = scope.next_id(spec.num_returns)
        actor = slots[step.actor] if step.actor >= 0 else b""
        self.orders[actor] += 1
        payload = msgspec.msgpack.encode((job.key, self.number, self.orders[actor]))
        arguments = [slots[slot] for slot in step.arguments]
        holds = [slots[slot] for slot in step.holds]
        if spec.num_returns == STREAMING:
            self.streams.begin(id, scope, step.slot, bool(spec.backpressure))
        call = Call(id, spec.id, payload, arguments, holds, actor)
        self.outbox.append(Named(0, "", step.name, b"handle", False, call) if step.name else call)
        ids = return_ids(id, spec.num_returns)
        for index, one in enumerate(ids):
            self.counts[one] += 1
            checker.named(one, job.key, index, self.number, scope)
            checker.places.told[one] = place
            if index < abs(spec.num_returns):
                slots[step.slot + index] = one
        if not spec.num_returns:
            self.drop(ids)

    def make_group(self, step: MakeGroup, scope: Scope) -> None:
        id = scope.slots[step.slot] = scope.next_id(1)
        self.counts[id] += 1
        self.world.checker.made_group(id, step)
        bundles = [BundleSpec(one.cpu, one.gpu, one.memory, dict(one.custom)) for one in step.bundles]
        data = msgspec.msgpack.encode(Content(self.world.checker.oracle.groups[step.key].digest))
        self.outbox.append(GroupCreated(id, bundles, step.strategy, data))

    def put(self, step: Put, scope: Scope) -> None:
        slots = scope.slots
        thing = self.world.checker.oracle.puts[step.key]
        holds = [slots[slot] for slot in step.holds]
        content = Content(thing.digest, holds)
        try:
            value = self.store(content, step.size, holds)
        except TaintedError:
            value = self.store(content, 8, holds)
        id = scope.next_id(1)
        self.world.checker.put(id, step.key)
        self.counts[id] += 1
        slots[step.slot] = id
        if value.stored is None:
            self.values[id] = effects.Ready(id, value.data)
        else:
            self.values[id] = effects.ReadyStored(id, value.stored.rank, value.stored.offset, value.stored.size)
        self.outbox.append(PutEvent(id, value))

    def look(self, id: bytes) -> tuple[bytes, list[bytes]]:
        """What an object is, as the oracle names it. Raises TaintedError when a fault has spoilt it."""
        kind, name, inner = self.read(self.values[id])
        if not self.world.checker.is_right(id, kind, name):
            raise TaintedError((name if kind == oracle.FAILED else CANCELLED).decode("ascii", "replace"))
        return name, inner

    def get(self, ids: list[bytes]) -> Program:
        """Wait for values."""
        values = self.values
        while True:
            elsewhere = [id for id in ids if isinstance(values.get(id), effects.ReadyElsewhere)]
            for id in elsewhere:
                values.pop(id, None)
            self.subscribe(list(dict.fromkeys(elsewhere)), True)
            self.subscribe_borrowed(ids, True)
            missing = [id for id in ids if id not in values]
            if not missing:
                return
            yield from self.blocked(missing, self.there(missing, len(missing)))

    def wait(self, ids: list[bytes], count: int) -> Program:
        """Wait until so many are there."""
        missing = [id for id in ids if id not in self.values]
        if len(ids) - len(missing) < count:
            self.subscribe_borrowed(missing, False)
            yield from self.blocked(ids, self.there(ids, count))

    def there(self, ids: list[bytes], count: int) -> Callable[[], bool]:
        """Tells whether so many of the objects are known."""
        return lambda: sum(id in self.values for id in ids) >= count

    def subscribe(self, ids: list[bytes], fetch: bool) -> None:
        if ids:
            for _ in range(1 + self.world.chance(self.world.options.duplicates)):
                self.outbox.append(Subscribed(ids, fetch))

    def subscribe_borrowed(self, ids: list[bytes], fetch: bool) -> None:
        borrowed = [id for id in dict.fromkeys(ids) if self.borrowed.get(id) is False and id not in self.values]
        for id in borrowed:
            self.borrowed[id] = True
        self.subscribe(borrowed, fetch)

    def blocked(self, ids: Sequence[bytes], is_over: Callable[[], bool]) -> Program:
        if self.lends_cpu:
            self.outbox.append(Blocked(list(ids[:20])))
        self.flush()
        try:
            yield Pause(0, is_over, ids)
        except CallInterruptedError:
            self.unblocked()
            raise
        self.unblocked()

    def unblocked(self) -> None:
        if self.lends_cpu:
            self.outbox.append(Unblocked())
        if self.world.rng.random() < 0.5:
            self.flush()


def return_ids(id: bytes, num_returns: int) -> list[bytes]:
    """The ids of all return values."""
    start = int.from_bytes(id, "big")
    return [(start + index).to_bytes(16, "big") for index in range(max(1, num_returns))]


def spec_of(function: Function) -> Spec:
    """The spec of a workload's function."""
    name = ("task", "Actor", "Actor.method")[function.kind]
    where = Where(function.spread, function.node, labels=(Label("zone", IN, (function.zone,)),) * bool(function.zone))
    return Spec(
        function.number + 1, function.kind, f"{name}{function.number}", b"code", function.cpu, function.gpu,
        function.memory, dict(function.custom), function.num_returns, function.max_retries, function.retry_exceptions,
        function.held_cpu, dict(function.environment), function.max_restarts,
        where=None if where == Where() else where, priority=function.priority,
        concurrency=dict(function.concurrency), is_async=function.is_async, group=function.group,
        backpressure=function.backpressure, out_of_order=function.out_of_order,
        time_limit_us=function.time_limit_us, gpu_memory=function.gpu_memory,
    )  # fmt: skip


_decoder = msgspec.msgpack.Decoder(Content)

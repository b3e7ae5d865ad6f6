"""What the virtual driver and virtual executors have in common: a client without a line.

It is made of what every client is made of (see `mpi_runtime/core/client/client.py`): these parts count references, sort
what arrives, and put what is to be sent into its order. Here is only what programs do with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mpi_runtime.core.client.blocking import Blocking
from mpi_runtime.core.client.executor_feed import Feed
from mpi_runtime.core.client.incoming import Arrivals, ReceivedItems
from mpi_runtime.core.client.outgoing import Outgoing
from mpi_runtime.core.client.references import References
from mpi_runtime.core.client.scope import Scope as RealScope
from mpi_runtime.core.client.scope import Scopes
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.amounts import Request, custom_of
from mpi_runtime.scheduler.protocol.effects import Entry
from mpi_runtime.scheduler.protocol.events import (
    IN,
    AccountSpec,
    ActorSpec,
    BroadcastRequested,
    BundleSpec,
    Call,
    CancelRequested,
    ErrorRead,
    GroupRemovalRequested,
    GroupRequested,
    KillRequested,
    Label,
    MethodSpec,
    NamedActorRequested,
    RetrySpec,
    Spec,
    Stored,
    SubscriptionRequested,
    TaskSpec,
    TimeSpec,
    Value,
    Where,
)
from mpi_runtime.scheduler.protocol.ids import digest, return_ids
from tests.simulation import oracle
from tests.simulation.places import NOWHERE
from tests.simulation.scope import CallInterruptedError, Pause, Program, Scope, TaintedError
from tests.simulation.steps import (
    ACTOR,
    METHOD,
    STREAMING,
    Await,
    Broadcast,
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
    attempt: int = 0
    """The attempt of a call that has made it."""


class Process:
    """One client."""

    def __init__(self, world: World, number: int, arenas: Callable[[int], dict[int, bytes]]) -> None:
        self.world = world
        self.number = number
        self.arenas = arenas
        """The contents of a rank's part of the memory of this host."""
        self.scopes = Scopes()
        self.feed = Feed()
        self.references = References()
        self.values = self.references.values
        self.outgoing = Outgoing(self.references)
        self.items = ReceivedItems(self.outgoing)
        self.blocking = Blocking(self.outgoing)
        self.arrivals = Arrivals(self.references, self.items, self.feed, self.answered, self.outgoing.forget)
        self.specs_sent: set[int] = set()
        self.alive = True
        self.streams = Streams(self)
        self.orders: Counter[bytes] = Counter()
        """How many calls were made of each actor."""

    def flush(self) -> None:
        """Send what was said."""
        raise NotImplementedError

    def allocate(self) -> tuple[int, int]:
        """A rank and an offset for a large value; offset -1: there is no room."""
        raise NotImplementedError

    def answered(self, reply: object) -> None:
        """A question was answered."""
        assert isinstance(reply, effects.Answer)
        self.world.counters["answers"] += 1
        assert msgspec.msgpack.decode(reply.data) is not None

    def hear(self, messages: list[Any]) -> None:
        """Take in a frame."""
        for message in messages:
            if isinstance(message, effects.Item):
                self.streams.hear(message)
        self.arrivals.take(messages)

    # References

    def adopt(self, ids: Sequence[bytes]) -> None:
        """References were found inside a value."""
        for id in ids:
            self.world.counters["references that came in values"] += id not in self.references.counts
            self.outgoing.adopt(id)

    def drop(self, ids: Sequence[bytes]) -> None:
        """References are gone."""
        for id in ids:
            self.outgoing.drop(id)

    # Values

    def store(self, content: Content, size: int, holds: list[bytes], is_error: bool = False) -> Value:
        """A value inline or in the arena. Raises TaintedError when there is no room."""
        if size <= INLINE_MAX:
            content.padding = bytes(size)
            return Value(msgspec.msgpack.encode(content), None, holds, is_error)
        rank, offset = self.allocate()
        if offset < 0:
            raise TaintedError("ObjectStoreFullError")
        self.arenas(rank)[offset] = data = msgspec.msgpack.encode(content)
        return Value(b"", Stored(rank, offset, size), holds, is_error, digest(data, 16) if self.world.journal else b"")

    def read(self, message: Entry) -> tuple[str, bytes, list[bytes]]:
        """The kind of a value, its digest or code, and the references inside."""
        if isinstance(message, effects.ReadyFailed):
            return oracle.FAILED, message.code.encode(), []
        assert not isinstance(message, effects.ReadyElsewhere)
        is_error = isinstance(message, effects.ReadyError)
        if isinstance(message, effects.ReadyStored):
            data = self.place_of(message).get(message.offset, b"")
            self.world.counters["values read past the arena"] += bool(message.file)
            assert data, f"{message} points to memory that was freed"
            is_error = message.is_error
        else:
            data = message.data
        if data.startswith(TAINT) or data == CANCELLED:
            return oracle.FAILED, data, []
        content = _decoder.decode(data)
        return (oracle.ERROR if is_error else oracle.VALUE), content.digest, content.inner

    def place_of(self, message: effects.ReadyStored) -> dict[int, bytes]:
        return self.world.files[message.file] if message.file else self.arenas(message.rank)

    def look_again(self, message: Entry) -> None:
        """Look at a value once more after a while, now and then: it must not have changed."""
        if not self.world.options.arena_slots or not isinstance(message, effects.ReadyStored):
            return
        if self.world.rng.random() < 0.7:
            return
        data = self.place_of(message)[message.offset]
        self.outgoing.view(message.id)
        self.world.counters["views"] += 1

        def look() -> None:
            if self.alive:
                now = self.place_of(message).get(message.offset)
                assert now == data, f"{message} has changed while it was looked at"
                self.outgoing.drop_view(message.id)
                self.flush()

        self.world.at(self.world.rng.choice((0, 1000, 20_000, 300_000)), look)

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
            self.outgoing.post(GroupRemovalRequested(slots[step.slot]))
        elif isinstance(step, Cancel):
            if step.slot in slots:
                self.cancel(slots[step.slot], step.force, step.recursive)
        elif isinstance(step, Broadcast):
            if step.slot in slots:
                self.outgoing.post(BroadcastRequested([slots[step.slot]]))
        elif isinstance(step, Forget):
            self.streams.forget(scope, step.slot, step.cancel)
        else:
            assert isinstance(step, Kill)
            if step.slot in slots:
                self.world.counters["kills"] += 1
                self.outgoing.post(KillRequested(slots[step.slot], step.no_restart))

    def cancel(self, id: bytes, force: bool, recursive: bool) -> None:
        """Have a call not run, or not run on."""
        self.world.counters["cancels"] += 1
        self.outgoing.post(CancelRequested(id, force, recursive))
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
            self.outgoing.post(spec)
        id = scope.next_ids(spec.num_returns)
        actor = slots[step.actor] if step.actor >= 0 else b""
        self.orders[actor] += 1
        payload = msgspec.msgpack.encode((job.key, self.number, self.orders[actor]))
        arguments = [slots[slot] for slot in step.arguments]
        holds = [slots[slot] for slot in step.holds]
        if spec.num_returns == STREAMING:
            self.streams.begin(id, scope, step.slot, bool(spec.backpressure))
        call = Call(id, spec.id, payload, tuple(arguments), tuple(holds), actor)
        if spec.code:
            key = 0 if isinstance(spec.kind, ActorSpec) else job.key  # a world has actors that are equal
            call.digest = digest(msgspec.msgpack.encode(key), 16)
        self.outgoing.post(NamedActorRequested(0, "", step.name, b"handle", False, call) if step.name else call)
        ids = return_ids(id, spec.num_returns)
        self.references.counts.update(dict.fromkeys(ids, 1))
        for index, one in enumerate(ids):
            checker.named(one, job.key, index, self.number, scope)
            checker.places.told[one] = place
            if index < abs(spec.num_returns):
                slots[step.slot + index] = one
        if not spec.num_returns:
            self.drop(ids)

    def make_group(self, step: MakeGroup, scope: Scope) -> None:
        self.world.counters["bundles with a label"] += sum(bool(bundle.zone) for bundle in step.bundles)
        id = scope.slots[step.slot] = scope.next_ids(1)
        self.references.counts[id] = 1
        self.world.checker.made_group(id, step)
        bundles = [
            BundleSpec(Request(one.cpu, one.gpu, one.memory, custom_of(dict(one.custom))), _in_zone(one.zone))
            for one in step.bundles
        ]
        data = msgspec.msgpack.encode(Content(self.world.checker.oracle.groups[step.key].digest))
        self.outgoing.post(GroupRequested(id, bundles, step.strategy, data))

    def put(self, step: Put, scope: Scope) -> None:
        slots = scope.slots
        thing = self.world.checker.oracle.puts[step.key]
        holds = [slots[slot] for slot in step.holds]
        content = Content(thing.digest, holds)
        try:
            value = self.store(content, step.size, holds)
        except TaintedError:
            value = self.store(content, 8, holds)
        id = scope.next_ids(1)
        self.world.checker.put(id, step.key)
        slots[step.slot] = id
        self.outgoing.post(self.references.made(id, value))

    def look(self, id: bytes) -> tuple[bytes, list[bytes]]:
        """What an object is, as the oracle names it. Raises TaintedError when a fault has spoilt it."""
        kind, name, inner = self.read(self.values[id])
        self.look_again(self.values[id])
        if kind != oracle.VALUE:
            self.outgoing.add(ErrorRead([id]))
        if not self.world.checker.values.is_right(id, kind, name):
            raise TaintedError((name if kind == oracle.FAILED else CANCELLED).decode("ascii", "replace"))
        return name, inner

    def get(self, ids: list[bytes]) -> Program:
        """Wait for values."""
        ids = list(dict.fromkeys(ids))
        viewed: dict[bytes, None] = {}
        try:
            while True:
                for id in ids:  # what has come once stays until all have
                    if id not in viewed and isinstance(self.outgoing.look_at(id), effects.ReadyStored):
                        viewed[id] = None
                self.subscribe(self.references.ask_again(ids))
                self.subscribe(self.references.subscribe(ids, True))
                missing = [id for id in ids if id not in self.values]
                if not missing:
                    return
                yield from self.blocked(missing, self.there(missing, len(missing)))
        finally:
            for id in viewed:
                self.outgoing.drop_view(id)

    def wait(self, ids: list[bytes], count: int) -> Program:
        """Wait until so many are there."""
        missing = [id for id in ids if id not in self.values]
        if len(ids) - len(missing) < count:
            self.subscribe(self.references.subscribe(list(dict.fromkeys(missing)), False))
            yield from self.blocked(ids, self.there(ids, count))

    def there(self, ids: list[bytes], count: int) -> Callable[[], bool]:
        """Tells whether so many of the objects are known."""
        return lambda: sum(id in self.values for id in ids) >= count

    def subscribe(self, request: SubscriptionRequested | None) -> None:
        if request is not None:
            for _ in range(1 + self.world.chance(self.world.options.duplicates)):
                self.outgoing.post(request)

    def blocked(self, ids: Sequence[bytes], is_over: Callable[[], bool]) -> Program:
        """Wait. A process that runs several calls at a time does not lend its CPU, and so need not know which waits."""
        scope, lends_cpu = self.scopes.running, self.blocking.lends_cpu
        if lends_cpu:
            self.blocking.waits(scope, ids)
        self.flush()
        try:
            yield Pause(0, is_over, ids)
        except CallInterruptedError:
            self.unblocked(scope, lends_cpu)
            raise
        self.unblocked(scope, lends_cpu)

    def unblocked(self, scope: RealScope, lends_cpu: bool) -> None:
        if lends_cpu:
            self.blocking.ends_wait(scope, self.scopes.running)
        if self.world.rng.random() < 0.5:
            self.flush()


def _in_zone(zone: str) -> tuple[Label, ...]:
    return (Label("zone", IN, (zone,)),) if zone else ()


def spec_of(function: Function) -> Spec:
    """The spec of a workload's function."""
    name = ("task", "Actor", "Actor.method")[function.kind]
    where = Where(function.spread, function.node, labels=_in_zone(function.zone))
    time = TimeSpec(function.time_limit_us, function.enforces_limit, function.expect_us)
    return Spec(
        function.number + 1, kind_of(function), f"{name}{function.number}", b"code", request_of(function),
        function.num_returns, function.max_retries,
        RetrySpec(timeouts=function.retries_timeouts) if function.retry_exceptions else None,
        dict(function.environment), None if where == Where() else where, function.priority,
        time=None if time == TimeSpec() else time,
        account=AccountSpec(function.account, function.weight, function.account_limit) if function.account else None,
        backpressure=function.backpressure, path_us=function.path_us, gather_us=function.gather_us,
    )  # fmt: skip


def request_of(function: Function) -> Request:
    """What a workload's function asks for."""
    return Request(function.cpu, function.gpu, function.memory, custom_of(dict(function.custom)), function.gpu_memory)


def kind_of(function: Function) -> TaskSpec | ActorSpec | MethodSpec:
    """The kind of a workload's function."""
    if function.kind == METHOD:
        return MethodSpec(function.group)
    if function.kind == ACTOR:
        many = dict(function.concurrency)
        return ActorSpec(function.held_cpu, function.max_restarts, many, function.is_async, function.out_of_order)
    return TaskSpec(alternatives=function.alternatives)


_decoder = msgspec.msgpack.Decoder(Content)

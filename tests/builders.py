"""A cluster for unit tests of the scheduler, so that a case fits into ten lines.

    with Cluster().node(cpus=1) as cluster:
        first, second = cluster.submit(count=2)
        executor = cluster.placed(first)
        cluster.done(executor, first)
        assert cluster.placed(second) == executor

Every event and every effect goes through the codec, and the invariants of the state are checked after each decision.
Effects are recorded until they are taken; what nobody has taken when the `with` ends is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.messages import ToExecutor
from mpi_runtime.gpu.device import DEVICE
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol import effects
from mpi_runtime.scheduler.protocol.amounts import Request, custom_of
from mpi_runtime.scheduler.protocol.effects import GPU, LATE, QUARANTINE, Note
from mpi_runtime.scheduler.protocol.events import (
    OF_DRIVER,
    ActorSpec,
    Blocked,
    BundleSpec,
    Call,
    Done,
    Faulted,
    GangSpec,
    GroupRemovalRequested,
    GroupRequested,
    Held,
    Label,
    MethodSpec,
    Put,
    Query,
    Released,
    Returned,
    Spec,
    Stored,
    SubscriptionRequested,
    TaskSpec,
    TimeSpec,
    Unblocked,
    Value,
)
from mpi_runtime.scheduler.protocol.questions import A, ClientQuestion, Explain, Explanation, Question, decoded
from mpi_runtime.scheduler.protocol.rank_events import (
    DriverJoined,
    DriverLeft,
    ExecutorDied,
    ExecutorStarted,
    HeadEvent,
    JobBegan,
    RankJoined,
    TakenBack,
)
from mpi_runtime.scheduler.records.state import State
from tests.checks import executors as invariants
from tests.checks.circles import Passing

UNIT = 10_000
LARGE = 2 << 20
DRIVER = 0

Effect = TypeVar("Effect")
Part = TypeVar("Part", bound=msgspec.Struct)


def _query(question: Question[object]) -> Query:
    assert isinstance(question, ClientQuestion)
    return Query(7, question)


class Cluster:
    """Nodes, a driver, and whatever executors the scheduler starts."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.now = 1_000_000
        self._passing = Passing()
        self.recorded: list[tuple[str, int, Any]] = []
        """Effects that nobody has taken: "rank" or "client", its number, the effect."""
        self.said: list[Note] = []
        """What the user was told."""
        self.ended_gangs: list[int] = []
        """Gangs on several nodes of which no member lives."""
        self._specs: dict[tuple[object, ...], Spec] = {}
        self._numbers = count(1)
        self._ranks = count()

    @property
    def notes(self) -> list[str]:
        """What the user was told of devices and of the end of the job's time."""
        return [note.text for note in self.said if note.event in (GPU, QUARANTINE, LATE)]

    @property
    def state(self) -> State:
        """What the scheduler knows."""
        return self.scheduler.state

    # The cluster

    def node(
        self,
        cpus: int = 1,
        gpus: int = 0,
        memory: int = 0,
        ranks: int = 1,
        labels: dict[str, str] | None = None,
        **custom: float,
    ) -> Cluster:
        """Add a host; its ranks share the processors."""
        host = next(self._ranks)
        name = f"host{host}"
        for index in range(ranks):
            rank = next(self._ranks) if index else host
            named = {f"node:{name}": 1.0, **custom} if not index else {}
            resources = {key: int(amount * UNIT) for key, amount in named.items()}
            own = (0, 0) if index else (gpus * UNIT, memory)
            self.join(
                RankJoined(rank, host, name, list(range(cpus)), -1, *own, resources, 1 << 30, labels=labels or {})
            )
        return self

    def head(self) -> Cluster:
        """Add rank 0 on a host that runs nothing."""
        return self.join(RankJoined(next(self._ranks), 0, "head", [], 0, 0, 0, {}, 1 << 30))

    def join(self, event: RankJoined) -> Cluster:
        """Add a rank."""
        self._rank_says(event)
        return self

    def begin(self, num_gpus: float | None = None, survives_losses: bool = False) -> str:
        """All ranks have joined; why the job is refused, or nothing."""
        self.scheduler.handle_rank(JobBegan(num_gpus, survives_losses=survives_losses), self.now)
        return self.decide().refusal

    # Events

    def client_says(self, client: int, *events: Any) -> None:
        """A client says these in one frame."""
        frame = codec.encode(events)
        self.scheduler.handle(client, codec.from_client.decode(frame), self.now)
        self.decide()

    def _rank_says(self, *events: Any) -> None:
        for event in codec.between_ranks.decode(codec.encode(events)):
            self.scheduler.handle_rank(event, self.now)  # type: ignore[arg-type]
        self.decide()

    def decide(self) -> effects.Effects:
        """Have a decision made, and record its effects."""
        decided = self.scheduler.decide(self.now)
        invariants.check(self.state)
        self._passing.look(self.state)
        self.said += decided.notes
        self.ended_gangs += decided.ended_gangs
        for rank, rank_effects in decided.ranks.items():
            for effect in codec.between_ranks.decode(codec.encode(rank_effects)):
                self.recorded.append(("rank", rank, effect))
        for client, messages in decided.clients.items():
            frame = codec.encode([ToExecutor(client, [], codec.encode(messages))])
            (relayed,) = codec.between_ranks.decode(frame)
            assert isinstance(relayed, ToExecutor)
            self.recorded.extend(("client", client, message) for message in codec.to_client.decode(relayed.frame))
        return decided

    def later(self, us: int) -> None:
        """Time passes; what wants to be looked at meanwhile is looked at when it wants."""
        end = self.now + us
        while (deadline := self.scheduler.deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.decide()
        self.now = end

    def id(self) -> bytes:
        """A new id, with room for several return values behind it."""
        return (next(self._numbers) * 1000).to_bytes(16, "big")

    def spec(self, name: str = "f", cpu: float = 1, gpu: float = 0, **fields: Any) -> Spec:
        """The spec with these properties; CPUs and GPUs as people count them."""
        key = (name, cpu, gpu, *sorted((key, str(value)) for key, value in fields.items()))
        if key not in self._specs:
            kind, number = fields.pop("kind", TaskSpec), len(self._specs) + 1
            self._specs[key] = spec_of(number, kind, name, b"", int(cpu * UNIT), gpu=int(gpu * UNIT), **fields)
        return self._specs[key]

    def call(
        self, spec: Spec, *arguments: bytes, holds: Sequence[bytes] = (), actor: bytes = b"", client: int = DRIVER
    ) -> bytes:
        """Submit a call of a spec; the id of its first return value."""
        id, spec = self.id(), self.own(spec, client)
        self.client_says(client, spec, Call(id, spec.id, b"", arguments, tuple(holds), actor))
        return id

    def own(self, spec: Spec, client: int) -> Spec:
        """The spec as the driver sends it to which a client belongs."""
        found = self.state.clients.get(client)
        if found is None or found.driver is None:
            return spec
        number = found.driver.number
        environment = {**spec.environment, OF_DRIVER: f"{number} /home/someone"}
        return msgspec.structs.replace(spec, id=spec.id + (number << 20), environment=environment)

    def submit(self, *arguments: bytes, holds: Sequence[bytes] = (), client: int = DRIVER, **fields: Any) -> bytes:
        """Submit a task."""
        return self.call(self.spec(**fields), *arguments, holds=holds, client=client)

    def submit_many(self, number: int, **fields: Any) -> list[bytes]:
        """Submit so many tasks in one frame."""
        spec = self.spec(**fields)
        ids = [self.id() for _ in range(number)]
        self.client_says(DRIVER, spec, *(Call(id, spec.id, b"") for id in ids))
        return ids

    def actor(self, *arguments: bytes, client: int = DRIVER, **fields: Any) -> bytes:
        """Submit the creation of an actor; its id."""
        return self.call(self.spec("Actor", kind=ActorSpec, **fields), *arguments, client=client)

    def method(self, actor: bytes, *arguments: bytes, client: int = DRIVER, **fields: Any) -> bytes:
        """Call an actor."""
        spec = self.spec("Actor.method", cpu=0, kind=MethodSpec, **fields)
        return self.call(spec, *arguments, actor=actor, client=client)

    def group(
        self,
        *bundles: dict[str, Any],
        strategy: str = "PACK",
        name: str = "",
        request: int = 0,
        client: int = DRIVER,
        detached: bool = False,
    ) -> bytes:
        """Ask for a placement group; its id. CPUs and GPUs as people count them."""
        specs = [bundle(**fields) for fields in bundles]
        id = self.id()
        self.client_says(client, GroupRequested(id, specs, strategy, b"a group", "", name, request, detached))
        return id

    def driver(self) -> int:
        """A further driver joins; its number."""
        number = self.scheduler.next_client()
        self.head_says(DriverJoined(number))
        return number

    def leave(self, driver: int, *extents: int, has_views: bool = False) -> None:
        """A driver leaves; all that ends by itself ends."""
        self.head_says(DriverLeft(driver, list(extents), has_views))
        self.later(1_000)

    def head_says(self, event: HeadEvent) -> None:
        """The head makes an event."""
        self.scheduler.handle_rank(event, self.now)
        self.decide()

    def remove_group(self, id: bytes) -> None:
        """Ask for its end."""
        self.client_says(DRIVER, GroupRemovalRequested(id))

    def nodes_of(self, id: bytes) -> list[int]:
        """The node of each bundle of a group that has been placed."""
        return [bundle.node.number for bundle in self.state.groups[id].bundles.values()]

    def put(
        self,
        client: int = DRIVER,
        size: int = 0,
        rank: int = 0,
        offset: int = 0,
        holds: Sequence[bytes] = (),
        made_by: str = "",
    ) -> bytes:
        """Put a value; with a size, one that lies in an arena."""
        id = self.id()
        stored = Stored(rank, offset, size) if size else None
        self.client_says(client, Put(id, Value(b"" if size else b"value", stored, list(holds), made_by=made_by)))
        return id

    def done(self, executor: int, *ids: bytes, data: bytes = b"value", us: int = 100) -> None:
        """Calls end with small values."""
        self.client_says(executor, *(Done(id, data, us) for id in ids))

    def returned(self, executor: int, id: bytes, *values: Value, raised: bool = False, us: int = 100) -> None:
        """A call ends with these values."""
        self.client_says(executor, Returned(id, list(values), us, raised))

    def raised(self, executor: int, id: bytes, error: bytes = b"error") -> None:
        """A call raises."""
        self.returned(executor, id, Value(error, is_error=True), raised=True)

    def blocked(self, executor: int, *ids: bytes) -> None:
        """The running call waits."""
        self.client_says(executor, Blocked(list(ids)))

    def unblocked(self, executor: int) -> None:
        """The running call goes on."""
        self.client_says(executor, Unblocked())

    def released(self, *ids: bytes, client: int = DRIVER) -> None:
        """A client's last references are gone."""
        self.client_says(client, Released(list(ids)))

    def held(self, client: int, *ids: bytes) -> None:
        """A client has found references."""
        self.client_says(client, Held(list(ids)))

    def subscribed(self, client: int, *ids: bytes, fetch: bool = True) -> None:
        """A client wants to be told."""
        self.client_says(client, SubscriptionRequested(list(ids), fetch))

    def started(self, *executors: int) -> None:
        """Executors have been forked."""
        self._rank_says(*(ExecutorStarted(executor, 4000 + executor) for executor in executors))

    def taken_back(self, executor: int, *ids: bytes) -> None:
        """An agent took calls back."""
        self._rank_says(TakenBack(executor, list(ids)))

    def died(self, executor: int, running: bytes = b"", cause: str = "was killed by signal 9", **fields: Any) -> None:
        """An executor's process is gone."""
        self._rank_says(ExecutorDied(executor, running, cause, **fields))

    def faulted(
        self,
        executor: int,
        running: bytes,
        name: str = "f",
        fault: str = "cudaErrorECCUncorrectable",
        blame: str = DEVICE,
        is_fresh: bool = True,
    ) -> None:
        """CUDA answers an executor with an error for good: it says so, and is gone."""
        self.client_says(executor, Faulted(name, fault, blame, is_fresh, "the traceback"))
        self.died(executor, running, "exited with code 1")

    def rank_says(self, *events: Any) -> None:
        """A rank says these."""
        self._rank_says(*events)

    # Effects

    def take(self, kind: type[Effect], number: int, to: int | None = None) -> list[Effect]:
        """Take all recorded effects of a kind, to one rank or client or to any; there must be so many."""
        found = [one for one in self.recorded if type(one[2]) is kind and to in (None, one[1])]
        assert len(found) == number, f"{number} {kind.__name__} expected, recorded is {self.recorded}"
        self.recorded = [one for one in self.recorded if one not in found]
        return [effect for _, _, effect in found]

    def one(self, kind: type[Effect], to: int | None = None) -> Effect:
        """Take the only effect of a kind."""
        return self.take(kind, 1, to)[0]

    def placed(self, id: bytes) -> int:
        """The executor to which a call was sent. Takes the call and what went before it: fork, spec, values."""
        found = [(to, effect) for _, to, effect in self.recorded if type(effect) is Call and effect.id == id]
        assert len(found) == 1, f"{id.hex()} was sent {len(found)} times; recorded is {self.recorded}"
        executor, call = found[0]
        values = (effects.Ready, effects.ReadyStored)
        self.recorded = [
            (who, to, effect)
            for who, to, effect in self.recorded
            if not (
                effect is call
                or (isinstance(effect, effects.StartExecutor) and effect.executor == executor)
                or (who == "client" and to == executor and isinstance(effect, Spec))
                or (who == "client" and to == executor and isinstance(effect, values) and effect.id in call.arguments)
            )
        ]
        return executor

    def running(self, *ids: bytes) -> list[int]:
        """The executors to which calls were sent."""
        return [self.placed(id) for id in ids]

    def told(self, id: bytes, to: int = DRIVER) -> Any:
        """Take the one message that tells a client about an object."""
        found = [
            one for one in self.recorded if one[:2] == ("client", to) and type(one[2]) in READY and one[2].id == id
        ]
        assert len(found) == 1, f"client {to} was told {len(found)} times of {id.hex()}; recorded is {self.recorded}"
        self.recorded.remove(found[0])
        return found[0][2]

    def nothing(self) -> None:
        """Nothing else was to be done."""
        assert not self.recorded, f"nobody expected {self.recorded}"

    def forget(self) -> None:
        """Drop all that is recorded: what led here is not what the test is about."""
        self.recorded.clear()

    def explain(self, id: bytes) -> Explanation:
        """Ask why a call has not ended."""
        return self.ask(Explain(id))

    def ask(self, question: Question[A]) -> A:
        """Ask about the state."""
        self.client_says(DRIVER, _query(question))
        answer = self.one(effects.Answer)
        assert answer.request == 7
        return decoded(question, answer.data)

    def is_clean(self) -> bool:
        """Whether nothing is held, used, or remembered."""
        state = self.state
        free = all(node.free == node.total for node in state.nodes.values())
        tables = (state.objects, state.actors, state.names, state.groups, state.group_names)
        return free and not any((*tables, state.extents, state.waiting, state.fetching, state.lineages))

    def __enter__(self) -> Cluster:
        self.nothing()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.nothing()
            assert not self._passing.circles(self.state)


def spec_of(
    number: int, kind: type[TaskSpec | ActorSpec | MethodSpec], name: str, function: bytes, cpu: int = 0, **fields: Any
) -> Spec:
    """A spec from fields side by side: each goes into the part that has it. `custom` is a dictionary."""
    fields |= {"cpu": cpu, "custom": custom_of(fields.get("custom", {}))}

    def part(of: type[Part]) -> Part | None:
        own = {name: fields.pop(name) for name in list(fields) if name in of.__struct_fields__}
        return of(**own) if own else None

    gang, time, asks = part(GangSpec), part(TimeSpec), part(Request)
    assert asks is not None
    return Spec(number, part(kind) or kind(), name, function, asks, gang=gang, time=time, **fields)


def bundle(cpu: float = 0, gpu: float = 0, labels: tuple[Label, ...] = (), **amounts: Any) -> BundleSpec:
    """A bundle; CPUs and GPUs as people count them. `custom` is a dictionary."""
    custom = custom_of(amounts.pop("custom", {}))
    return BundleSpec(Request(int(cpu * UNIT), int(gpu * UNIT), custom=custom, **amounts), labels)


READY = (effects.Ready, effects.ReadyStored, effects.ReadyError, effects.ReadyFailed, effects.ReadyElsewhere)

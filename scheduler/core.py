"""The scheduler: events in, effects out. Same events at the same times give the same effects."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.scheduler import (
    actors,
    calls,
    cancel,
    devices,
    explain,
    groups,
    health,
    names,
    objects,
    recovery,
    streams,
    walltime,
)
from mpi_runtime.scheduler.events import (
    Blocked,
    Call,
    Cancelled,
    ClientEvent,
    Consumed,
    Done,
    ExecutorDied,
    ExecutorStarted,
    Faulted,
    Fetched,
    GroupCreated,
    GroupRemoved,
    Held,
    Killed,
    Left,
    Named,
    Put,
    Query,
    RankEvent,
    RankJoined,
    Released,
    Returned,
    Spec,
    Subscribed,
    TakenBack,
    Titled,
    Unblocked,
    Yielded,
)
from mpi_runtime.scheduler.history import note_clock
from mpi_runtime.scheduler.limits import LONG_US, UNIT
from mpi_runtime.scheduler.nodes import RUNNING, STARTING, Bundle, Executor, Node, Rank
from mpi_runtime.scheduler.placement import look_for_stuck, serve, settle
from mpi_runtime.scheduler.queues import Queue, mark_dirty, purge
from mpi_runtime.scheduler.reservations import look_after_node, look_after_reservation
from mpi_runtime.scheduler.resources import Pool
from mpi_runtime.scheduler.state import DRIVER, Client, Effects, State
from mpi_runtime.scheduler.strategies import HOSTNAME, NODE_ID
from mpi_runtime.scheduler.tasks import Function


class Scheduler:
    """Everything that is decided in a job.

    The caller passes in what happened, with the time in microseconds, and after each batch asks once for a decision.
    It must then perform all effects: first those for ranks, then the messages for clients, in their order.
    """

    def __init__(self) -> None:
        self.state = State()
        self._handlers = {
            Spec: self._spec,
            Returned: self._returned,
            Put: self._put,
            Subscribed: self._subscribed,
            Held: self._held,
            Blocked: self._blocked,
            Unblocked: self._unblocked,
            Killed: self._killed,
            Left: self._left,
            Titled: self._titled,
            Faulted: self._faulted,
            Yielded: self._yielded,
            Consumed: self._consumed,
            Cancelled: self._cancelled,
            Named: self._named,
            Query: self._query,
            GroupCreated: self._group_created,
            GroupRemoved: self._group_removed,
        }

    def handle(self, client_number: int, events: Sequence[ClientEvent], now: int) -> None:
        """A client said these, in this order. What a client says after its death is known is dropped."""
        state = self.state
        client = state.clients.get(client_number)
        if client is None:
            return
        executor = client.executor
        ended: Done | Returned | None = None
        for event in events:
            kind = type(event)
            if kind is Call:
                calls.submit(state, client, event, now)  # type: ignore[arg-type]
            elif kind is Done:
                assert executor is not None
                calls.done(state, executor, event)  # type: ignore[arg-type]
                ended = event  # type: ignore[assignment]
            elif kind is Released:
                objects.on_released(state, client, event.ids)  # type: ignore[union-attr]
            else:
                if kind is Returned:
                    ended = event  # type: ignore[assignment]
                self._handlers[kind](client, event, now)  # type: ignore[operator]
        if ended is not None:
            assert executor is not None
            note_clock(executor.rank.node, ended.start_us + ended.duration_us, now)
            if ended.duration_us > LONG_US and state.end_us is not None:
                walltime.look_for_long(state)
            settle(state, executor, now)

    def handle_rank(self, event: RankEvent, now: int) -> None:
        """A rank said this."""
        state = self.state
        if isinstance(event, RankJoined):
            join(state, event)
        elif isinstance(event, TakenBack):
            recovery.taken_back(state, event, now)
        elif isinstance(event, ExecutorDied):
            recovery.executor_died(state, event, now)
        elif isinstance(event, ExecutorStarted):
            executor = state.executors.get(event.executor)
            if executor is not None:
                executor.process.pid = event.pid
                if executor.state == STARTING:
                    executor.state = RUNNING
        elif isinstance(event, Fetched):
            recovery.fetched(state, event, now)
        else:
            raise NotImplementedError(f"{event}: the loss of a rank ends the job")

    def decide(self, now: int) -> Effects:
        """Place what can be placed now, and return all effects since the last decision."""
        state = self.state
        for subject in state.alarms.due(now):
            if isinstance(subject, Queue):
                if subject.timed is not None:
                    mark_dirty(state, subject)
                look_for_stuck(state, subject, now)
            elif isinstance(subject, Node):
                look_after_node(state, subject, now)
            elif isinstance(subject, Bundle):
                look_after_reservation(state, subject, now)
            elif isinstance(subject, Function):
                walltime.look_at_actors(state)
        while True:
            if state.withdrawn:
                purge(state)
            elif state.woken:
                woken, state.woken = state.woken, []
                for task in woken:
                    calls.arguments_ready(state, task)
            elif state.unreferenced_actors:
                unreferenced, state.unreferenced_actors = state.unreferenced_actors, []
                for actor in unreferenced:
                    actors.unreferenced(state, actor)
            elif state.called:
                while state.called:
                    actors.pump(state, state.called.popitem()[0], now)
            elif state.dirty or (state.freed and (state.waiting or state.waiting_groups)):
                self._serve(now)
            else:
                return state.take_effects()

    def _serve(self, now: int) -> None:
        state = self.state
        queues, state.dirty = state.dirty, []
        if state.freed:
            state.freed = False
            if state.waiting_groups:
                groups.place_waiting(state, now)
            queues.extend(queue for queue in state.waiting if not queue.dirty)
        if len(queues) > 1:
            queues.sort(key=Queue.precedence)
        for queue in queues:
            if queue.ready and queue.ready[0].function.infeasible:  # as all are, or have been till now
                health.fail_all(state, queue)
            if queue.timed is None or not walltime.holds_back(state, queue, now):
                serve(state, queue, now)

    def deadline(self) -> int | None:
        """When `decide` wants to be called even if nothing has happened."""
        return self.state.alarms.next_us()

    def _spec(self, client: Client, event: Spec, now: int) -> None:
        calls.register(self.state, event)

    def _returned(self, client: Client, event: Returned, now: int) -> None:
        assert client.executor is not None
        calls.returned(self.state, client.executor, event)

    def _put(self, client: Client, event: Put, now: int) -> None:
        objects.on_put(self.state, client, event)

    def _subscribed(self, client: Client, event: Subscribed, now: int) -> None:
        objects.on_subscribed(self.state, client, event.ids, event.fetch)

    def _held(self, client: Client, event: Held, now: int) -> None:
        objects.on_held(self.state, client, event.ids)

    def _blocked(self, client: Client, event: Blocked, now: int) -> None:
        if client.executor is not None:
            client.executor.waits_for = event.ids
            recovery.blocked(self.state, client.executor)

    def _unblocked(self, client: Client, event: Unblocked, now: int) -> None:
        if client.executor is not None:
            client.executor.waits_for = []
            recovery.unblocked(self.state, client.executor, now)

    def _killed(self, client: Client, event: Killed, now: int) -> None:
        actor = self.state.actors.get(event.actor)
        if actor is not None:
            actors.kill(self.state, actor, event.no_restart)

    def _cancelled(self, client: Client, event: Cancelled, now: int) -> None:
        cancel.cancel(self.state, event, now)

    def _yielded(self, client: Client, event: Yielded, now: int) -> None:
        assert client.executor is not None
        client.executor.progress_us = now
        streams.yielded(self.state, client.executor, event)

    def _consumed(self, client: Client, event: Consumed, now: int) -> None:
        streams.consumed(self.state, event)

    def _left(self, client: Client, event: Left, now: int) -> None:
        actor = self.state.actors.get(event.actor)
        if actor is not None:
            actors.end(self.state, actor, "ended itself with exit_actor() or sys.exit()", force=False)

    def _titled(self, client: Client, event: Titled, now: int) -> None:
        assert client.executor is not None
        if client.executor.actor is not None:
            client.executor.actor.title = client.executor.process.name = event.title

    def _faulted(self, client: Client, event: Faulted, now: int) -> None:
        assert client.executor is not None
        client.executor.fault = event

    def _named(self, client: Client, event: Named, now: int) -> None:
        if (event.namespace, event.name) not in self.state.names:
            calls.submit(self.state, client, event.creation, now)
            names.give(self.state, event)
        names.answer(self.state, client, event)

    def _group_created(self, client: Client, event: GroupCreated, now: int) -> None:
        groups.create(self.state, client, event)

    def _group_removed(self, client: Client, event: GroupRemoved, now: int) -> None:
        groups.remove(self.state, event.id)

    def _query(self, client: Client, event: Query, now: int) -> None:
        self.state.to_client(client.id, explain.answer(self.state, event, now))


def join(state: State, event: RankJoined) -> None:
    """A rank is ready: its resources go into the pool of its node. The driver belongs to the node of rank 0."""
    node = state.nodes.get(event.host)
    if node is None:
        gpus = Inventory()
        total, free = Pool(0, 0, {}, [], [], gpus), Pool(0, 0, {}, [], [], gpus)
        node = Node(host=event.host, hostname=event.hostname, total=total, free=free)
        node.labels = {NODE_ID: node.id, HOSTNAME: event.hostname}
        state.nodes[event.host] = node
    node.labels.update(event.labels)
    rank = Rank(event.rank, node, bool(event.cpus or event.cpu > 0), cpus=event.cpus)
    state.ranks[event.rank] = rank
    node.ranks.append(rank)
    node.arena = max(node.arena, event.arena)
    before = node.total.cpu
    node.cpus = sorted({*node.cpus, *event.cpus})
    if event.cpu >= 0:
        node.explicit_cpu = max(node.explicit_cpu, 0) + event.cpu
    node.total.cpu = node.explicit_cpu if node.explicit_cpu >= 0 else len(node.cpus) * UNIT
    node.free.cpu += node.total.cpu - before
    for pool in (node.total, node.free):
        pool.memory += event.memory
        for name, units in event.custom.items():
            pool.custom[name] = pool.custom.get(name, 0) + units
    devices.join(state, node, rank, event)
    if node.hosts_executors:
        state.index.update(node)
    if event.rank == 0:
        state.wall_us = event.wall_us
        state.end_us = event.end_us or None
        state.add_client(DRIVER, node, None)
    for group in state.waiting_groups.values():
        groups.look_at_nodes(state, group)
    state.freed = True


__all__ = ["Client", "Executor", "Scheduler"]

"""The scheduler: events in, effects out. Same events at the same times give the same effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mpi_runtime.scheduler import (
    actor_calls,
    actor_lives,
    actor_names,
    backfill,
    backoff,
    blocked_executors,
    cancel,
    checkpoints,
    copies,
    deadline,
    deaths,
    dispatch,
    explain,
    glance,
    groups,
    health,
    items,
    journaling,
    losses,
    memory_pressure,
    notes,
    objects,
    overdue,
    refusals,
    spilling,
    tasks,
)
from mpi_runtime.scheduler.dispatch import first_waiting, serve, settle
from mpi_runtime.scheduler.effects import Effects
from mpi_runtime.scheduler.events import (
    Began,
    Blocked,
    BroadcastRequested,
    Call,
    CancelRequested,
    ClientEvent,
    Consumed,
    Done,
    EndAnnounced,
    ErrorRead,
    Faulted,
    Forgotten,
    GroupRemovalRequested,
    GroupRequested,
    Held,
    JournalFailed,
    KillRequested,
    Left,
    NamedActorRequested,
    Put,
    Query,
    RefusedError,
    Released,
    Returned,
    Saved,
    Spec,
    StateLost,
    SubscriptionRequested,
    Titled,
    Unblocked,
    Yielded,
)
from mpi_runtime.scheduler.history import note_clock
from mpi_runtime.scheduler.lifecycle import STARTED, advance
from mpi_runtime.scheduler.limits import LONG_US, UNIT
from mpi_runtime.scheduler.nodes import begin, join
from mpi_runtime.scheduler.queues import mark_dirty
from mpi_runtime.scheduler.rank_events import (
    Arriving,
    ExecutorDied,
    ExecutorStarted,
    Fetched,
    FrameRefused,
    HeadEvent,
    JobBegan,
    MemoryReported,
    RankEvent,
    RankJoined,
    RankLost,
    Recalled,
    RoomWanted,
    Spilled,
    TakenBack,
)
from mpi_runtime.scheduler.records import Bundle, Executor, Family, Function, Node, Queue, Task
from mpi_runtime.scheduler.reservations import look_after_node, look_after_reservation
from mpi_runtime.scheduler.state import Client, Fetching, State
from mpi_runtime.scheduler.stealing import look_for_stuck
from mpi_runtime.scheduler.turns import Turns


class Described(NamedTuple):
    """A description of an executor; by default of one that has ended."""

    pid: int = 0
    rank: int = -1
    hostname: str = ""
    title: str = ""
    """The title of its actor; empty: none."""


_OF_LIVING = Arriving | Fetched | MemoryReported | RankLost | RoomWanted | Spilled
"""What a rank says of itself, and does not count when it is gone."""


class Scheduler:
    """The scheduler of one job.

    The caller passes in what happened, with the time in microseconds, and after each batch asks once for a decision.
    It must then perform all effects: first those for ranks, then the messages for clients, in their order.
    """

    def __init__(self) -> None:
        self.state = State()
        self._handlers = {
            Spec: self._spec,
            Began: self._began,
            Returned: self._returned,
            Put: self._put,
            SubscriptionRequested: self._subscription_requested,
            Held: self._held,
            Forgotten: self._forgotten,
            Blocked: self._blocked,
            Unblocked: self._unblocked,
            KillRequested: self._kill_requested,
            Left: self._left,
            Titled: self._titled,
            ErrorRead: self._error_read,
            JournalFailed: self._journal_failed,
            Saved: self._saved,
            StateLost: self._state_lost,
            EndAnnounced: self._end_announced,
            Faulted: self._faulted,
            Yielded: self._yielded,
            Consumed: self._consumed,
            CancelRequested: self._cancel_requested,
            BroadcastRequested: self._broadcast_requested,
            NamedActorRequested: self._named_actor_requested,
            Query: self._query,
            GroupRequested: self._group_requested,
            GroupRemovalRequested: self._group_removal_requested,
        }

    def handle(
        self, client_number: int, events: Sequence[ClientEvent], now: int, ended_in_frame: int | None = None
    ) -> None:
        """Take events of a client, in order. Events of a client that is known to be dead are dropped.

        An executor that says what it may not is killed. `ended_in_frame` is how many calls end in these events by the
        books of its agent; None: nobody has counted.

        Raises:
            RefusedError: the driver says what it may not: what it says from then on cannot be believed.
        """
        state = self.state
        state.stories.now = now
        client = state.clients.get(client_number)
        if client is None:
            return
        executor = client.executor
        if executor is not None and executor.refusal:
            executor.refused_ends += ended_in_frame or 0
            return
        ended: Done | Returned | None = None
        ends = 0
        try:
            for event in events:
                kind = type(event)
                if kind is Call:
                    tasks.submit(state, client, event, now)  # type: ignore[arg-type]
                    if executor is not None and executor.watched:
                        cancel.submitted(state, executor, event.id, now)  # type: ignore[union-attr, arg-type]
                elif kind is Done:
                    tasks.done(state, executor, event)  # type: ignore[arg-type]
                    ended = event  # type: ignore[assignment]
                    ends += 1
                elif kind is Released:
                    objects.on_released(state, client, event.ids)  # type: ignore[union-attr]
                else:
                    refusals.check(state, client, event)
                    self._handlers[kind](client, event, now)  # type: ignore[operator]
                    if kind is Returned:
                        ended = event  # type: ignore[assignment]
                        ends += 1
            if ended_in_frame is not None and ends != ended_in_frame:
                raise RefusedError(f"{ends} call(s) end in it, and its header says {ended_in_frame}")
        except RefusedError as error:
            if executor is None:
                raise
            refusals.refuse(state, executor, str(error), max(0, (ended_in_frame or 0) - ends), now)
        if ended is not None:
            assert executor is not None
            if executor.forked_for is not None:
                backoff.note_begun(state, executor)
            note_clock(executor.rank.node, ended.start_us + ended.duration_us, now)
            if ended.duration_us > LONG_US:
                deadline.look_for_long(state)
            settle(state, executor, now)

    def handle_rank(self, event: RankEvent | HeadEvent, now: int) -> None:
        """Take an event of a rank, or that of the head that all ranks have joined.

        Raises:
            RefusedError: it cannot be, and nothing has come of it.
        """
        state = self.state
        if isinstance(event, _OF_LIVING) and event.rank in state.lost:
            return  # it was on its way when the rank was given up
        refusals.check_rank(state, event)
        state.stories.now = now
        if isinstance(event, RankJoined):
            join(state, event)
        elif isinstance(event, TakenBack):
            executor = state.executors.get(event.executor)
            if executor is not None and executor.actor is not None:
                actor_calls.taken_back(state, executor, event.ids)
            else:
                blocked_executors.taken_back(state, event, now)
                dispatch.taken_back(state, event, now)
        elif isinstance(event, ExecutorDied):
            deaths.executor_died(state, event, now)
        elif isinstance(event, ExecutorStarted):
            executor = state.executors.get(event.executor)
            if executor is not None:
                executor.process.pid = event.pid
                advance(state.stories, executor, STARTED)
        elif isinstance(event, Fetched):
            copies.fetched(state, event, now)
        elif isinstance(event, Arriving):
            copies.arriving(state, event)
        elif isinstance(event, RankLost):
            losses.rank_lost(state, event, now)
        elif isinstance(event, Recalled):
            tasks.recalled(state, event)
        elif isinstance(event, JobBegan):
            begin(state, event)
        elif isinstance(event, MemoryReported):
            memory_pressure.reported(state, event)
        elif isinstance(event, RoomWanted):
            spilling.wanted(state, event, now)
        elif isinstance(event, Spilled):
            spilling.spilled(state, event)
        elif isinstance(event, FrameRefused):
            refused = state.executors.get(event.executor)
            if refused is not None:
                refusals.refuse(state, refused, event.problem, event.ended, now)

    def decide(self, now: int) -> Effects:
        """Place what can be placed now, and return all effects since the last decision."""
        state = self.state
        state.stories.now = now
        for subject in state.alarms.due(now):
            if isinstance(subject, Queue):
                if subject.timed is not None or (subject.ready and not subject.family.reserved):
                    mark_dirty(state, subject)
                look_for_stuck(state, subject, now)
            elif isinstance(subject, Family):
                if not subject.reserved and (first := subject.first()) is not None:
                    mark_dirty(state, first)
            elif isinstance(subject, Node):
                look_after_node(state, subject, now)
            elif isinstance(subject, Bundle):
                look_after_reservation(state, subject, now)
            elif isinstance(subject, Task):
                backoff.queue(state, subject)
            elif isinstance(subject, Executor):
                overdue.look(state, subject, now)
            elif isinstance(subject, Function):
                deadline.look_at_actors(state)
            elif isinstance(subject, Fetching):
                copies.unreached(state, subject, now)
        while True:
            if state.woken:
                woken, state.woken = state.woken, []
                for task in woken:
                    tasks.arguments_ready(state, task)
            elif state.unreferenced_actors:
                unreferenced, state.unreferenced_actors = state.unreferenced_actors, []
                for actor in unreferenced:
                    actor_lives.unreferenced(state, actor)
            elif state.called:
                while state.called:
                    actor_calls.pump(state, state.called.popitem()[0], now)
            elif state.dirty or (state.freed and (state.waiting or state.waiting_groups)):
                self._serve(now)
            else:
                return state.take_effects()

    def _serve(self, now: int) -> None:
        state = self.state
        queues, state.dirty = state.dirty, []
        backfill.look_again(state, now)
        has_freed, state.freed = state.freed, False
        if has_freed and state.waiting_groups:
            groups.place_waiting(state, now)
        turns = Turns(queues)
        if has_freed:
            for family in state.waiting:
                turns.begin(family)
        while turns:
            queue = turns.pop()
            if state.freed and queue.ready and first_waiting(state, queue) is not None:
                for later in (queue, *turns):  # something came free just now, and others go before these
                    later.dirty = True
                    state.dirty.append(later)
                return
            if queue.ready and queue.ready[0].function.infeasible:  # then all its calls are
                health.fail_all(state, queue)
            if queue.timed is None or not deadline.holds_back(state, queue, now):
                has_grown = serve(state, queue, now)
                if has_grown and state.accounts:  # now it is another one's turn
                    turns.grown(queue)
                    continue
            turns.served(state, queue)

    def start_line(self) -> str:
        """Return the resources of the job in one line."""
        return notes.start(self.state)

    def totals_line(self, took_us: int) -> str:
        """Return the totals of the job, which took this time, in one line."""
        return notes.totals(self.state, took_us)

    def deadline(self) -> int | None:
        """Return when `decide` must be called even without events, in microseconds: 0: at once; None: not at all."""
        return 0 if self.state.dirty else self.state.alarms.next_us()

    # Answers: what the caller needs for performing effects. They change nothing.

    def rank_of(self, executor: int) -> int:
        """Return the rank of an executor; -1: it has ended."""
        found = self.state.executors.get(executor)
        return found.rank.number if found is not None else -1

    def describe_executor(self, executor: int) -> Described:
        """Return a description of an executor."""
        found = self.state.executors.get(executor)
        if found is None:
            return Described()
        title = found.actor.title if found.actor is not None else ""
        return Described(found.pid, found.rank.number, found.rank.node.hostname, title)

    def name_of(self, spec: int) -> str:
        """Return the name of the function with this spec."""
        return self.state.functions[spec].spec.name

    def glance(self, now: int) -> dict[str, Any]:
        """Return how the job is, for people: see `glance.py`."""
        return glance.glance(self.state, now)

    def has_free_cpu(self, rank: int) -> bool:
        """Whether a processor of the rank's node is free: no call uses it, or none ever will."""
        found = self.state.ranks.get(rank)
        return found is None or found.node.free.cpu >= UNIT or not found.node.hosts_executors

    def _spec(self, client: Client, event: Spec, now: int) -> None:
        tasks.register(self.state, event)

    def _began(self, client: Client, event: Began, now: int) -> None:
        assert client.executor is not None
        overdue.began(self.state, client.executor, event.id, now)

    def _returned(self, client: Client, event: Returned, now: int) -> None:
        tasks.returned(self.state, client.executor, event)

    def _put(self, client: Client, event: Put, now: int) -> None:
        objects.on_put(self.state, client, event)

    def _subscription_requested(self, client: Client, event: SubscriptionRequested, now: int) -> None:
        objects.on_subscribed(self.state, client, event.ids, event.fetch)

    def _held(self, client: Client, event: Held, now: int) -> None:
        objects.on_held(self.state, client, event.ids)

    def _forgotten(self, client: Client, event: Forgotten, now: int) -> None:
        spilling.forgotten(self.state, client, event)

    def _blocked(self, client: Client, event: Blocked, now: int) -> None:
        if client.executor is not None:
            blocked_executors.blocked(self.state, client.executor, event.ids)

    def _unblocked(self, client: Client, event: Unblocked, now: int) -> None:
        if client.executor is not None:
            client.executor.waits_for = []
            blocked_executors.unblocked(self.state, client.executor, now)

    def _kill_requested(self, client: Client, event: KillRequested, now: int) -> None:
        actor = self.state.actors.get(event.actor)
        if actor is not None:
            journaling.touches_actor(client.executor)
            actor_lives.kill(self.state, actor, event.no_restart)

    def _cancel_requested(self, client: Client, event: CancelRequested, now: int) -> None:
        cancel.cancel(self.state, event, now)

    def _broadcast_requested(self, client: Client, event: BroadcastRequested, now: int) -> None:
        objects.on_broadcast(self.state, event.ids)

    def _yielded(self, client: Client, event: Yielded, now: int) -> None:
        assert client.executor is not None
        client.executor.progress_us = now
        items.yielded(self.state, client.executor, event)

    def _consumed(self, client: Client, event: Consumed, now: int) -> None:
        items.consumed(self.state, event)

    def _left(self, client: Client, event: Left, now: int) -> None:
        actor = self.state.actors.get(event.actor)
        if actor is not None:
            actor_lives.end(self.state, actor, "ended itself with exit_actor() or sys.exit()", force=False)

    def _titled(self, client: Client, event: Titled, now: int) -> None:
        assert client.executor is not None
        if client.executor.actor is not None:
            client.executor.actor.title = client.executor.process.name = event.title

    def _error_read(self, client: Client, event: ErrorRead, now: int) -> None:
        objects.on_error_read(self.state, event.ids)

    def _journal_failed(self, client: Client, event: JournalFailed, now: int) -> None:
        self.state.effects.journal.append(event)

    def _saved(self, client: Client, event: Saved, now: int) -> None:
        assert client.executor is not None
        checkpoints.saved(self.state, client.executor, event)

    def _state_lost(self, client: Client, event: StateLost, now: int) -> None:
        assert client.executor is not None
        checkpoints.lost(self.state, client.executor, event)

    def _end_announced(self, client: Client, event: EndAnnounced, now: int) -> None:
        for actor in checkpoints.announce_end(self.state, now):
            actor_calls.take_back(self.state, actor)

    def _faulted(self, client: Client, event: Faulted, now: int) -> None:
        assert client.executor is not None
        client.executor.fault = event

    def _named_actor_requested(self, client: Client, event: NamedActorRequested, now: int) -> None:
        if (event.namespace, event.name) not in self.state.names:
            tasks.submit(self.state, client, event.creation, now)
            actor_names.give(self.state, event)
        actor_names.answer(self.state, client, event)

    def _group_requested(self, client: Client, event: GroupRequested, now: int) -> None:
        groups.create(self.state, client, event)

    def _group_removal_requested(self, client: Client, event: GroupRemovalRequested, now: int) -> None:
        groups.remove(self.state, event.id)

    def _query(self, client: Client, event: Query, now: int) -> None:
        self.state.to_client(client.id, explain.answer(self.state, event, now))

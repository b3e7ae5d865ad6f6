"""The scheduler: events in, effects out. Same events at the same times give the same effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.actors import lives as actor_lives
from mpi_runtime.scheduler.actors import names as actor_names
from mpi_runtime.scheduler.answers import explain, glance
from mpi_runtime.scheduler.calls import copies, refusals, tasks
from mpi_runtime.scheduler.dispatch import (
    backfill,
    backoff,
    deadline,
    dispatch,
    queues,
    reservations,
    stealing,
)
from mpi_runtime.scheduler.dispatch import (
    blocked as blocked_executors,
)
from mpi_runtime.scheduler.dispatch.dispatch import first_waiting, serve, settle
from mpi_runtime.scheduler.dispatch.turns import Turns
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.log.history import note_clock
from mpi_runtime.scheduler.losses import cancel, deaths, losses, overdue
from mpi_runtime.scheduler.nodes import groups, health, memory_pressure, nodes, spilling
from mpi_runtime.scheduler.protocol.effects import Effects
from mpi_runtime.scheduler.protocol.events import (
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
from mpi_runtime.scheduler.protocol.limits import LONG_US, UNIT
from mpi_runtime.scheduler.protocol.rank_events import (
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
from mpi_runtime.scheduler.records.records import Bundle, Executor, Family, Function, Node, Queue, Task
from mpi_runtime.scheduler.records.state import Client, Fetching, State
from mpi_runtime.scheduler.values import items, journaling, objects


class Described(NamedTuple):
    """A description of an executor; by default of one that has ended."""

    pid: int = 0
    rank: int = -1
    hostname: str = ""
    title: str = ""
    """The title of its actor; empty: none."""


def _taken_back(state: State, event: TakenBack, now: int) -> None:
    executor = state.executors.get(event.executor)
    if executor is None:
        return
    if executor.actor is not None:
        actor_calls.taken_back(state, executor, event.ids)
    else:
        blocked_executors.taken_back(state, executor, event.ids, now)


def _named_actor_requested(state: State, client: Client, event: NamedActorRequested, now: int) -> None:
    if (event.namespace, event.name) not in state.names:
        tasks.submit(state, client, event.creation, now)
        actor_names.give(state, event)
    actor_names.answer(state, client, event)


CLIENT_EVENTS: dict[type, Callable[[State, Client, Any, int], None]] = {
    Spec: tasks.register,
    Began: overdue.began,
    Returned: tasks.returned,
    Put: objects.on_put,
    SubscriptionRequested: objects.on_subscribed,
    Held: objects.on_held,
    Forgotten: spilling.forgotten,
    Blocked: blocked_executors.blocked,
    Unblocked: blocked_executors.unblocked,
    KillRequested: actor_lives.kill,
    Left: actor_lives.left,
    Titled: actor_lives.titled,
    ErrorRead: objects.on_error_read,
    JournalFailed: journaling.failed,
    Saved: checkpoints.saved,
    StateLost: checkpoints.lost,
    EndAnnounced: actor_calls.end_announced,
    Faulted: health.faulted,
    Yielded: items.yielded,
    Consumed: items.consumed,
    CancelRequested: cancel.cancel,
    BroadcastRequested: objects.on_broadcast,
    NamedActorRequested: _named_actor_requested,
    Query: explain.asked,
    GroupRequested: groups.create,
    GroupRemovalRequested: groups.removal_requested,
}
"""What handles each event of a client, but for `Call`, `Done` and `Released`: see `Scheduler.handle`."""
RANK_EVENTS: dict[type, Callable[[State, Any, int], None]] = {
    RankJoined: nodes.join,
    JobBegan: nodes.begin,
    RankLost: losses.rank_lost,
    ExecutorStarted: dispatch.executor_started,
    ExecutorDied: deaths.executor_died,
    TakenBack: _taken_back,
    FrameRefused: refusals.frame_refused,
    Fetched: copies.fetched,
    Arriving: copies.arriving,
    RoomWanted: spilling.wanted,
    Spilled: spilling.spilled,
    MemoryReported: memory_pressure.reported,
    Recalled: tasks.recalled,
}
"""What handles each event of a rank or of the head."""
ALARMS: dict[type, Callable[[State, Any, int], None]] = {
    Queue: stealing.look_after_queue,
    Family: queues.look_after_family,
    Node: reservations.look_after_node,
    Bundle: reservations.look_after_reservation,
    Task: backoff.queue,
    Executor: overdue.look,
    Function: lambda state, _, now: deadline.look_at_actors(state),
    Fetching: copies.unreached,
}
"""What looks at each subject of an alarm."""
_OF_LIVING = Arriving | Fetched | MemoryReported | RankLost | RoomWanted | Spilled
"""What a rank says of itself, and does not count when it is gone."""


class Scheduler:
    """The scheduler of one job.

    The caller passes in what happened, with the time in microseconds, and after each batch asks once for a decision.
    It must then perform all effects: first those for ranks, then the messages for clients, in their order.
    """

    def __init__(self) -> None:
        self.state = State()

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
                    CLIENT_EVENTS[kind](state, client, event, now)
                    if kind is Returned:
                        ended = event  # type: ignore[assignment]
                        ends += 1
            if ended_in_frame is not None and ends != ended_in_frame:
                raise RefusedError(f"{ends} call(s) end in it, and its header counts {ended_in_frame}")
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
        RANK_EVENTS[type(event)](state, event, now)

    def decide(self, now: int) -> Effects:
        """Place what can be placed now, and return all effects since the last decision."""
        state = self.state
        state.stories.now = now
        for subject in state.alarms.due(now):
            ALARMS[type(subject)](state, subject, now)
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
        dirty, state.dirty = state.dirty, []
        backfill.look_again(state, now)
        has_freed, state.freed = state.freed, False
        if has_freed and state.waiting_groups:
            groups.place_waiting(state, now)
        turns = Turns(dirty)
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

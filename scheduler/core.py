"""The scheduler: events in, effects out. Same events at the same times give the same effects.

The head passes in what has happened: `handle` takes what clients say, `handle_rank` what ranks say. Both change tables,
and note what has changed. `decide` then serves that, and returns the effects. Events and effects are in `protocol/`,
the tables in `records/`. `dispatch/dispatch.py` says how a call gets to an executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import checkpoints, lifetimes
from mpi_runtime.scheduler.answers import answering
from mpi_runtime.scheduler.calls import copies, refusals, tasks, unfilled
from mpi_runtime.scheduler.dispatch import (
    alternatives,
    backfill,
    backoff,
    deadline,
    dispatch,
    fair_shares,
    following,
    queues,
    reservations,
    stealing,
)
from mpi_runtime.scheduler.dispatch import blocked as blocked_executors
from mpi_runtime.scheduler.dispatch.dispatch import first_waiting, serve, settle
from mpi_runtime.scheduler.dispatch.queues import Turns
from mpi_runtime.scheduler.gangs import members, nested_calls, starting
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.losses import cancel, dead_executors, drivers, lost_ranks, time_limits
from mpi_runtime.scheduler.nodes import gpu_quarantine, groups, memory_pressure, nodes, spilling
from mpi_runtime.scheduler.protocol import events, rank_events
from mpi_runtime.scheduler.protocol.effects import Effects
from mpi_runtime.scheduler.protocol.events import Call, ClientEvent, Done, RefusedError, Released, Returned, Unfilled
from mpi_runtime.scheduler.protocol.limits import LONG_US, UNIT
from mpi_runtime.scheduler.protocol.questions import A, Question
from mpi_runtime.scheduler.protocol.rank_events import HeadEvent, RankEvent, TakenBack
from mpi_runtime.scheduler.records.lifecycle import STOPPING
from mpi_runtime.scheduler.records.records import Bundle, Driver, Executor, Family, Function, Gang, Node, Queue, Task
from mpi_runtime.scheduler.records.state import Client, Fetching, State
from mpi_runtime.scheduler.values import items, objects
from mpi_runtime.scheduler.values.message_checks import check_ids, require


class Described(NamedTuple):
    """A description of an executor; the default is for one that has ended."""

    pid: int = 0
    rank: int = -1
    hostname: str = ""
    title: str = ""
    """The title of its actor, if any."""


def _taken_back(state: State, event: TakenBack, now: int) -> None:
    executor = state.executors.get(event.executor)
    if executor is None:
        return
    executor.asked_back = False
    if executor.actor is not None:
        actor_calls.taken_back(state, executor, event.ids)
    else:
        blocked_executors.taken_back(state, executor, event.ids, now)


def _named_actor_requested(state: State, client: Client, event: events.NamedActorRequested, now: int) -> None:
    function = state.functions.get(event.creation.spec)
    require(function is not None and function.is_actor, "only an actor can have a name")
    check_ids(state, event.creation.id, 1)
    if (event.namespace, event.name) not in state.names:
        tasks.submit(state, client, event.creation, now)
        lifetimes.give_name(state, event)
    lifetimes.answer_name(state, client, event)


CLIENT_EVENTS: dict[type, Callable[[State, Client, Any, int], None]] = {
    events.Spec: tasks.register,
    events.Began: time_limits.began,
    Returned: tasks.returned,
    Unfilled: unfilled.unfilled,
    events.Put: objects.on_put,
    events.SubscriptionRequested: objects.on_subscribed,
    events.Held: objects.on_held,
    events.Forgotten: spilling.forgotten,
    events.Blocked: blocked_executors.blocked,
    events.Unblocked: blocked_executors.unblocked,
    events.KillRequested: lifetimes.kill,
    events.Left: lifetimes.left,
    events.Titled: lifetimes.titled,
    events.ErrorRead: objects.on_error_read,
    events.JournalFailed: lambda state, _, event, now: state.effects.journal.append(event),  # the head decides
    events.Saved: checkpoints.saved,
    events.StateLost: checkpoints.lost,
    events.EndAnnounced: actor_calls.end_announced,
    events.EndMoved: deadline.end_moved,
    events.Faulted: gpu_quarantine.faulted,
    events.Dying: dead_executors.dying,
    events.Yielded: items.yielded,
    events.Consumed: items.consumed,
    events.CancelRequested: cancel.cancel,
    events.BroadcastRequested: objects.on_broadcast,
    events.NamedActorRequested: _named_actor_requested,
    events.Query: lambda state, client, event, now: state.to_client(
        client.id, answering.answer_query(state, event, now)
    ),
    events.GroupRequested: groups.create,
    events.GroupRemovalRequested: lambda state, _, event, now: groups.remove(state, event.id),
}
"""The handlers of events of clients. `Scheduler.handle` has those of `Call`, `Done` and `Released`."""
RANK_EVENTS: dict[type, Callable[[State, Any, int], None]] = {
    rank_events.RankJoined: nodes.join,
    rank_events.JobBegan: nodes.begin,
    rank_events.DriverJoined: drivers.join,
    rank_events.DriverLeft: drivers.leave,
    rank_events.RankLost: lost_ranks.rank_lost,
    rank_events.ExecutorStarted: dispatch.executor_started,
    rank_events.ExecutorDied: dead_executors.executor_died,
    TakenBack: _taken_back,
    rank_events.FrameRefused: refusals.frame_refused,
    rank_events.Fetched: copies.fetched,
    rank_events.Arriving: copies.arriving,
    rank_events.RoomWanted: spilling.wanted,
    rank_events.Spilled: spilling.spilled,
    rank_events.MemoryReported: memory_pressure.reported,
    rank_events.Recalled: tasks.recalled,
}
"""The handlers of events of ranks and of the head."""
ALARMS: dict[type, Callable[[State, Any, int], None]] = {
    Queue: stealing.look_after_queue,
    Family: queues.look_after_family,
    Node: reservations.look_after_node,
    Bundle: reservations.look_after_reservation,
    Task: backoff.queue,
    Executor: time_limits.look,
    Function: lambda state, _, now: deadline.look_at_actors(state),
    Fetching: copies.unreached,
    Gang: members.look,
    Driver: drivers.clear_up,
}
"""The handlers of alarms, by subject."""
_OF_LIVING = rank_events.MemoryEvent | rank_events.RankLost
"""Events of a rank that are dropped when the rank is lost."""


class Scheduler:
    """The scheduler of one job.

    The caller passes in events, with the time in microseconds, and asks for a decision after each batch. It must then
    perform all effects: first those for ranks, then the messages for clients, in their order.
    """

    def __init__(self) -> None:
        self.state = State()

    def handle(
        self, client_number: int, events: Sequence[ClientEvent], now: int, ended_in_frame: int | None = None
    ) -> None:
        """Take events of a client, in order. Events of a dead client are dropped.

        An executor that breaks the protocol is killed. `ended_in_frame`: the number of calls that end in these events,
        as its agent counts; None: not counted.

        Raises:
            RefusedError: a driver breaks the protocol, so none of its later events can be trusted.
        """
        state = self.state
        state.stories.now = now
        client = state.clients.get(client_number)
        if client is None:
            return
        if client.is_silent:
            events = [event for event in events if type(event) in drivers.OF_VIEWS]
        executor = client.executor
        if executor is not None and executor.refusal is not None:
            executor.refusal.ends += ended_in_frame or 0
            return
        in_gang = executor is not None and executor.gang is not None
        ended: Done | Returned | None = None
        ends = 0
        try:
            for event in events:
                kind = type(event)
                if kind is Call:
                    tasks.submit(state, client, event, now)  # type: ignore[arg-type]
                    if executor is not None and executor.watched:
                        cancel.submitted(state, executor, event.id, now)  # type: ignore[union-attr, arg-type]
                    if in_gang:
                        nested_calls.submitted(state, executor, event.id)  # type: ignore[union-attr, arg-type]
                elif in_gang and (kind is Done or kind is Returned):
                    members.ended(state, executor, event, now)  # type: ignore[arg-type]
                    ended = event  # type: ignore[assignment]
                    ends += 1
                elif kind is Done:
                    tasks.done(state, executor, event)  # type: ignore[arg-type]
                    ended = event  # type: ignore[assignment]
                    ends += 1
                elif kind is Released:
                    objects.on_released(state, client, event.ids)  # type: ignore[union-attr]
                else:
                    CLIENT_EVENTS[kind](state, client, event, now)
                    if kind is Returned:
                        ended = event  # type: ignore[assignment]
                    ends += kind is Returned or kind is Unfilled
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
            node = executor.rank.node
            node.clock_ahead_us = min(node.clock_ahead_us, now - ended.start_us - ended.duration_us)
            if ended.duration_us > LONG_US:
                deadline.look_for_long(state)
            settle(state, executor, now)

    def handle_rank(self, event: RankEvent | HeadEvent, now: int) -> None:
        """Take an event of a rank or of the head.

        Raises:
            RefusedError: the event is impossible. It has changed nothing.
        """
        state = self.state
        if isinstance(event, _OF_LIVING) and event.rank in state.lost:
            return
        refusals.check_rank(state, event)
        state.stories.now = now
        RANK_EVENTS[type(event)](state, event, now)

    def decide(self, now: int) -> Effects:
        """Place calls and groups, and return all effects since the last decision."""
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
                    lifetimes.unreferenced(state, actor)
            elif state.called:
                while state.called:
                    actor = state.called.popitem()[0]
                    actor_calls.pump(state, actor, now)
                    if actor.executor is not None and actor.executor.gang is not None:
                        starting.follow(state, actor.executor)
            elif state.dirty or (state.freed and (state.waiting or state.waiting_groups)):
                self._serve(now)
            elif state.leads:
                following.look(state, now)
            else:
                return state.take_effects()

    def _serve(self, now: int) -> None:
        state = self.state
        dirty, state.dirty = state.dirty, []
        backfill.look_again(state, now)
        has_freed, state.freed = state.freed, False
        if has_freed and state.waiting_groups:
            groups.place_waiting(state, now)
        fair_shares.look(state, dirty)
        turns = Turns(dirty, state.is_divided)
        if has_freed:
            for family in state.waiting:
                turns.begin(family)
        while turns:
            queue = turns.pop()
            if state.freed and queue.ready and first_waiting(state, queue) is not None:
                for later in (queue, *turns):  # resources became free just now, and other queues go first
                    later.dirty = True
                    state.dirty.append(later)
                return
            if queue.is_shut():
                dispatch.shut(state, queue, now)
                turns.served(state, queue)
                continue
            if queue.ready and alternatives.has_none(queue.ready[0].function):  # nor have all its calls
                gpu_quarantine.fail_all(state, queue)
            if not queue.is_timed or not deadline.holds_back(state, queue, now):
                has_grown = (starting.serve if queue.function.spec.gang is not None else serve)(state, queue, now)
                if has_grown and state.by_turns:  # another queue goes next
                    turns.grown(queue)
                    continue
            turns.served(state, queue)

    def start_line(self) -> str:
        """Return the resources of the job, in one line."""
        return notes.start(self.state)

    def totals_line(self, took_us: int) -> str:
        """Return the totals of a job that took this time, in one line."""
        return notes.totals(self.state, took_us)

    def close(self) -> None:
        """Give back all memory. The scheduler cannot be used afterwards.

        Records that refer to each other, such as an executor and its rank, are taken apart: Python's collector does
        not see them (`gc=False`), and a process that serves one job after another would keep them.
        """
        state = self.state
        for node in state.nodes.values():
            for of_node in (node.ranks, node.idle, node.bundles):
                of_node.clear()
        for rank in state.ranks.values():
            rank.executors.clear()
        for executor in state.executors.values():
            executor.assigned.clear()
            executor.children.clear()
            executor.actor = executor.gang = executor.queue = executor.forked_for = None
        for actor in state.actors.values():
            actor.creation.actor = None
            actor.callers.clear()
        for claimant in (*state.groups.values(), *state.families.values()):
            claimant.reserved.clear()
        for group in state.groups.values():
            group.bundles.clear()
            group.functions.clear()
        for family in state.families.values():
            family.by_order.clear()
            family.by_length.clear()
        for queue in state.queues.values():
            for of_queue in (queue.ready, queue.executors, queue.hungry, queue.loaded, queue.awaited):
                of_queue.clear()
        for function in state.functions.values():
            function.queues.clear()
            function.choice = []
            function.driver = None
        for driver in state.drivers.values():
            calls, actors = (driver.tasks, driver.ending, driver.detached), (driver.actors, driver.detached_actors)
            for of_driver in (*calls, *actors, driver.executors, driver.functions, driver.queues, driver.families):
                of_driver.clear()

    def deadline(self) -> int | None:
        """Return when `decide` must be called even without events, in microseconds. 0: at once; None: never."""
        return 0 if self.state.dirty else self.state.alarms.next_us()

    # Answers for the caller. They change nothing.

    def next_client(self) -> int:
        """Return the number for a driver that joins now."""
        return self.state.next_executor

    def has_driver(self, number: int) -> bool:
        """Whether anything is left of a driver that has joined: itself, calls, executors, detached actors."""
        return number in self.state.drivers

    def is_ending(self, number: int) -> bool:
        """Whether processes of a driver that has left are still to end. Those of others run its last methods."""
        found = self.state.drivers.get(number)
        if found is None:
            return False
        ends = found.is_ending()
        return bool(found.tasks or found.actors) or any(
            ends or one.state == STOPPING for one in found.executors.values()
        )

    def driver_of(self, executor: int) -> int:
        """Return the driver to which an executor belongs; 0 also if it has ended."""
        found = self.state.executors.get(executor)
        return found.driver.number if found is not None and found.driver is not None else 0

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

    def executors_on(self, rank: int) -> list[int]:
        """Return the executors of a rank."""
        found = self.state.ranks.get(rank)
        return list(found.executors) if found is not None else []

    def name_of(self, spec: int) -> str:
        """Return the name of the function with this spec."""
        return self.state.functions[spec].spec.name

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of calls that were submitted, have returned, and have failed."""
        return self.state.submitted, self.state.finished, self.state.failed

    def answer(self, question: Question[A], now: int) -> A:
        """Return the answer to a question about the state.

        Raises:
            LookupError: there is nothing of this name.
        """
        return answering.answer(self.state, question, now)

    def has_free_cpu(self, rank: int) -> bool:
        """Whether a CPU of the rank's node is free, or never used."""
        found = self.state.ranks.get(rank)
        return found is None or found.node.free.cpu >= UNIT or not found.node.hosts_executors

"""Refuses events that break the protocol, and kills the executor that sent them.

User code can write to inherited descriptors, so an executor may send any frame. Each event is checked by its handler
before it changes anything. It is refused if it contradicts the state or could harm other clients. Events without a
meaning (about an object that is gone, or a call that was given up) are common and harmless.

A refused executor is killed. Its calls run again as after a crash. All calls that it may have run count as run: its
messages about them were dropped, or cannot be trusted.
"""

from __future__ import annotations

from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol import events, rank_events
from mpi_runtime.scheduler.protocol.amounts import is_in_order
from mpi_runtime.scheduler.protocol.effects import REFUSED, StopExecutor
from mpi_runtime.scheduler.protocol.events import DRIVER
from mpi_runtime.scheduler.protocol.limits import REFUSALS_LOG_US
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, FrameRefused, HeadEvent, RankEvent
from mpi_runtime.scheduler.records.lifecycle import STAGING, STOPPING
from mpi_runtime.scheduler.records.parts import Refusal
from mpi_runtime.scheduler.records.records import Executor
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values.message_checks import require


def check_rank(state: State, event: RankEvent | HeadEvent) -> None:
    """Check an event of a rank.

    Raises:
        RefusedError: it is impossible.
    """
    if isinstance(event, rank_events.RankJoined):
        require(event.rank not in state.ranks, f"rank {event.rank} joins twice")
        require(event.rank not in state.lost, f"rank {event.rank} joins, and is lost")
    elif isinstance(event, rank_events.DriverJoined):
        require(0 in state.ranks, f"driver {event.number} joins, and there is no rank 0")
        require(event.number == state.next_executor, f"driver {event.number} joins, and the next number is another")
    elif isinstance(event, rank_events.DriverLeft):
        client = state.clients.get(event.number)
        is_driver = event.number != DRIVER and client is not None and client.executor is None
        require(is_driver, f"driver {event.number} leaves, and has not joined")
    elif isinstance(event, rank_events.MemoryEvent | rank_events.RankLost):
        require(event.rank in state.ranks, f"there is no rank {event.rank}")
    if isinstance(event, rank_events.RankLost):
        require(event.rank, "rank 0 is reported lost, and without it there is no job")
    elif isinstance(event, rank_events.Fetched | rank_events.Arriving):
        number = state.ranks[event.rank].node.number
        is_known = number in state.fetching.get(event.id, {}) or 0 < event.order <= state.fetch_orders
        require(is_known, "a copy arrived that was not ordered")
        require((event.rank, event.offset) not in state.extents, "a copy lies in the place of another object")
    elif isinstance(event, rank_events.Spilled):
        room = state.spilling.rooms.get(state.ranks[event.rank].node.number)
        written = room.writing.get(event.id) if room is not None else None
        require(
            written is not None and written.place.rank == event.rank, "an object was written to disk without an order"
        )
        require((event.rank, event.offset) not in state.spilling.on_disk, "an object is on disk in a used place")


def check_spec(spec: events.Spec) -> None:
    """Check that a spec does not contradict itself."""
    others = spec.kind.alternatives if isinstance(spec.kind, events.TaskSpec) else ()
    is_free = spec.where is None and spec.gang is None
    require(not others or is_free, f"{spec.name} has alternatives, which only tasks without a place or ranks may have")
    in_order = all(is_in_order(one) for one in (spec.asks, *others))
    require(in_order, f"{spec.name} asks for custom resources that are not in order")


def check_scattered(call: events.Call, spec: events.Spec) -> None:
    """Check that a call with scattered arguments runs on a gang, and has an object for each rank."""
    fits = spec.ranks and call.scattered * spec.ranks <= len(call.arguments)
    require(fits, f"a call has {call.scattered} scattered arguments and too few objects for {spec.ranks} ranks")


def check_unknown_end(executor: Executor) -> None:
    """Check the reported end of a call that is not assigned to the executor. Its calls may have been taken away.

    Else the end would count for another call in the books of its agent, and that call would seem not to have run.
    """
    may_be = executor.state == STOPPING or executor.actor is not None
    require(may_be, "a call ends that it does not have")


def refuse(state: State, executor: Executor, problem: str, ended: int, now: int) -> None:
    """Kill an executor that has broken the protocol, or sent a frame that cannot be read.

    `ended`: the number of calls that end in dropped frames, as its agent counts.
    """
    if executor.refusal is not None:
        executor.refusal.ends += ended
        return
    executor.refusal = Refusal(f"sent a frame that cannot be read: {problem}", ended)
    state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))
    logs = state.logs
    logs.refused += 1
    if now < logs.refused_us + REFUSALS_LOG_US:
        return
    more = logs.refused - logs.refused_before - 1
    others = f" So did {more} other(s) since the last such line." if more else ""
    text = (
        f"{executor} {executor.refusal.why}. It is ended, and what it ran is treated as after a crash: user code has "
        f"written to a descriptor that is not its own.{others}"
    )
    notes.log(state, notes.ERROR, REFUSED, text, executor.rank)
    logs.refused_before, logs.refused_us = logs.refused, now


def frame_refused(state: State, event: FrameRefused, now: int) -> None:
    """Kill an executor that has sent a frame that cannot be read."""
    executor = state.executors.get(event.executor)
    if executor is not None:
        refuse(state, executor, event.problem, event.ended, now)


def as_after_a_crash(executor: Executor, refusal: Refusal, event: ExecutorDied) -> None:
    """Set the cause of a refused executor's death. If no call ran, the last with a dropped end counts as running."""
    event.cause = refusal.why
    sent = [task.id for task in executor.assigned.values() if task.state != STAGING]
    last = sent[: refusal.ends][-1:]
    if last and event.running not in sent:
        event.running = last[0]

"""Refuses events that break the protocol, and kills the executor that sent them.

User code can write to descriptors that it inherits, so any frame may come from an executor. Each event is looked at
before it changes anything. What is refused here would contradict the state, or would do harm to other clients; what
merely means nothing (an object that is gone, a call that was given up) does none, and is common. `Call`, `Done` and
`Returned`, of which there are many, are looked at where they are handled, and so is what only executors send.

A refused executor is killed. Its calls are run again as if it had crashed, but those that it may have run all count as
run: what it has told of them was dropped, or is not to be believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol.effects import REFUSED, StopExecutor
from mpi_runtime.scheduler.protocol.events import (
    ACTOR,
    STRATEGIES,
    STREAMING,
    Consumed,
    EndAnnounced,
    GroupRequested,
    NamedActorRequested,
    Put,
    RefusedError,
    Stored,
    Value,
    Yielded,
)
from mpi_runtime.scheduler.protocol.limits import REFUSALS_LOG_US
from mpi_runtime.scheduler.protocol.rank_events import (
    Arriving,
    ExecutorDied,
    Fetched,
    FrameRefused,
    MemoryReported,
    RankJoined,
    RankLost,
    RoomWanted,
    Spilled,
)
from mpi_runtime.scheduler.records.lifecycle import STAGING, STOPPING
from mpi_runtime.scheduler.records.records import Executor
from mpi_runtime.scheduler.records.state import Client, State


def check(state: State, client: Client, event: Any) -> None:
    """Check the events of a client.

    Raises:
        RefusedError: it may not.
    """
    look = _CLIENT_EVENTS.get(type(event))
    if look is not None:
        look(state, client, event)


def check_rank(state: State, event: Any) -> None:
    """Check an event of a rank.

    Raises:
        RefusedError: it cannot be.
    """
    if isinstance(event, RankJoined):
        require(event.rank not in state.ranks, f"rank {event.rank} joins twice")
        require(event.rank not in state.lost, f"rank {event.rank} joins, and is gone")
    elif isinstance(event, Fetched | Arriving):
        rank = state.ranks.get(event.rank)
        require(rank is not None, f"a copy came to rank {event.rank}, which does not exist")
        assert rank is not None
        is_known = rank.node.number in state.fetching.get(event.id, {}) or 0 < event.order <= state.fetch_orders
        require(is_known, "a copy came that nobody wanted")
        require((event.rank, event.offset) not in state.extents, "a copy lies where another object does")
    elif isinstance(event, Spilled):
        require(event.rank in state.ranks, f"there is no rank {event.rank}")
        room = state.spilling.rooms.get(state.ranks[event.rank].node.number)
        place = room.writing.get(event.id) if room is not None else None
        require(place is not None and place.rank == event.rank, "an object is on disk that was not to be")
        require((event.rank, event.offset) not in state.spilling.on_disk, "an object is on disk where another one is")
    elif isinstance(event, MemoryReported | RoomWanted):
        require(event.rank in state.ranks, f"there is no rank {event.rank}")
    elif isinstance(event, RankLost):
        require(event.rank, "rank 0 is reported lost, and without it there is no job")
        require(event.rank in state.ranks, f"rank {event.rank} is gone, and never was there")


def require(holds: object, problem: str) -> None:
    """Raise `RefusedError` unless the condition holds."""
    if not holds:
        raise RefusedError(problem)


def check_ids(state: State, first: bytes, count: int) -> None:
    """The values of a new call or object are to have ids that nobody else has."""
    if count <= 1:
        require(first not in state.objects, f"{first.hex()} exists already")
        return
    start = int.from_bytes(first, "big")
    require(start + count < 1 << 128, f"there are no {count} ids after {first.hex()}")
    known = any((start + index).to_bytes(16, "big") in state.objects for index in range(count))
    require(not known, f"one of {count} ids after {first.hex()} exists already")


def check_unknown_end(executor: Executor) -> None:
    """An executor says that a call has ended which it does not have. That may be if calls were taken from its hand.

    Else it has ended another one by the books of its agent, which would seem not to have run.
    """
    is_left_alone = executor.state != STOPPING and executor.actor is None
    require(not is_left_alone, "a call ends that it does not have")


def check_values(state: State, values: list[Value]) -> None:
    """Values lie in memory that exists and that no other object has."""
    places = [value.stored for value in values if value.stored is not None]
    for place in places:
        require(place.rank in state.ranks, f"there is no rank {place.rank}")
        require((place.rank, place.offset) not in state.extents, f"another object lies at {_words(place)}")
    require(len({(place.rank, place.offset) for place in places}) == len(places), "two values lie in one place")


def _words(place: Stored) -> str:
    return f"offset {place.offset} of rank {place.rank}"


def _put(state: State, client: Client, event: Put) -> None:
    check_ids(state, event.id, 1)
    check_values(state, [event.value])


def _yielded(state: State, client: Client, event: Yielded) -> None:
    task = client.as_executor().assigned.get(event.call)
    if task is not None:
        streams = task.function.spec.num_returns == STREAMING and task.state != STAGING
        require(streams, f"a call of {task.function.spec.name} yields, which it does not")
        require(event.index <= task.yielded, f"item {event.index} comes before item {task.yielded}")
        check_ids(state, event.id, 1)
    check_values(state, [event.value])


def _consumed(state: State, client: Client, event: Consumed) -> None:
    found = state.objects.get(event.call)
    task = None if found is None else found.task
    require(task is None or task.function.spec.num_returns == STREAMING, "items are taken of a call that yields none")


def _named(state: State, client: Client, event: NamedActorRequested) -> None:
    function = state.functions.get(event.creation.spec)
    require(function is not None and function.spec.kind == ACTOR, "only an actor can have a name")
    check_ids(state, event.creation.id, 1)


def _group_requested(state: State, client: Client, event: GroupRequested) -> None:
    require(event.strategy in STRATEGIES, f"{event.strategy!r} is not a strategy")
    bundles = [bundle for node in state.nodes.values() for bundle in node.bundles]
    require(all(bundle.group != event.id for bundle in bundles), "a placement group with this id is ending")
    check_ids(state, event.id, 1)


def _from_driver(state: State, client: Client, event: Any) -> None:
    require(client.executor is None, "an executor sent what only the driver may send")


_CLIENT_EVENTS: dict[type, Callable[[State, Client, Any], None]] = {
    Put: _put,
    Yielded: _yielded,
    Consumed: _consumed,
    NamedActorRequested: _named,
    GroupRequested: _group_requested,
    EndAnnounced: _from_driver,
}


# What becomes of the executor


def refuse(state: State, executor: Executor, problem: str, ended: int, now: int) -> None:
    """Kill an executor that has broken the protocol, or sent a frame that cannot be read.

    `ended` is how many calls end in what was dropped, by the books of its agent.
    """
    executor.refused_ends += ended
    if executor.refusal:
        return
    executor.refusal = f"sent a frame that cannot be read: {problem}"
    state.to_rank(executor.rank.number, StopExecutor(executor.id, force=True))
    state.refused.count += 1
    if now < state.refused.logged_us + REFUSALS_LOG_US:
        return
    more = state.refused.count - state.refused.logged - 1
    others = f" So did {more} other(s) since the last such line." if more else ""
    where = f"pid {executor.pid}, rank {executor.rank.number}, {executor.rank.node.hostname}"
    text = (
        f"executor {executor.id} ({where}) {executor.refusal}. It is ended, and what it ran is treated as after a "
        f"crash: user code has written to a descriptor that is not its own.{others}"
    )
    notes.log(state, notes.ERROR, REFUSED, text, executor.rank)
    state.refused.logged, state.refused.logged_us = state.refused.count, now


def frame_refused(state: State, event: FrameRefused, now: int) -> None:
    """Kill an executor that has sent a frame that nobody can read."""
    executor = state.executors.get(event.executor)
    if executor is not None:
        refuse(state, executor, event.problem, event.ended, now)


def as_after_a_crash(executor: Executor, event: ExecutorDied) -> None:
    """State why a refused executor has ended. If no call ran, the last one whose end was dropped counts as running."""
    event.cause = executor.refusal
    sent = [task.id for task in executor.assigned.values() if task.state != STAGING]
    last = sent[: executor.refused_ends][-1:]
    if last and event.running not in sent:
        event.running = last[0]

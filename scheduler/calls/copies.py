"""Copies that arrive, fail to arrive, or are no longer needed."""

from __future__ import annotations

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.calls import tasks
from mpi_runtime.scheduler.dispatch import deadline
from mpi_runtime.scheduler.dispatch.dependencies import are_lost, staged
from mpi_runtime.scheduler.dispatch.dispatch import settle
from mpi_runtime.scheduler.log import value_moves
from mpi_runtime.scheduler.protocol.effects import ReadyFailed, StopFetch
from mpi_runtime.scheduler.protocol.events import OnDisk, Stored
from mpi_runtime.scheduler.protocol.limits import UNREACHED_US
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched
from mpi_runtime.scheduler.records.lifecycle import FIND, GONE, LOSE_VALUE, STAGING, advance, so_far
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Fetching, Object, State, Waiter
from mpi_runtime.scheduler.values import objects, spreading


def fetched(state: State, event: Fetched, now: int) -> None:
    """Handle a fetched copy, or a failed fetch."""
    fetching = find(state, event)
    if event.offset >= 0:
        if fetching is None:  # it is fetched from elsewhere by now, or rebuilt, or not needed any more
            objects.free_extent(state, Stored(event.rank, event.offset, 1))
        else:
            arrived(state, fetching, event, now)
    elif fetching is None or event.order not in (-1, fetching.order):
        return
    elif event.is_lost:
        look_elsewhere(state, fetching, event, now)
    else:
        fail(state, fetching, event.reason, is_lost=False, now=now)


def find(state: State, event: Fetched | Arriving) -> Fetching | None:
    """The fetch of a rank's event, if it is still under way."""
    fetching = state.fetching.get(event.id, {}).get(state.ranks[event.rank].node.number)
    if fetching is None or fetching.source is None or fetching.rank != event.rank:
        return None
    return None if 0 <= event.order < fetching.since else fetching


def arriving(state: State, event: Arriving, now: int) -> None:
    """Pass on the parts of a copy that have arrived."""
    fetching = find(state, event)
    if fetching is not None and isinstance(fetching.source, Stored):
        fetching.offset = event.offset
        spreading.serve(state, state.objects[event.id])


def arrived(state: State, fetching: Fetching, event: Fetched, now: int) -> None:
    """Handle a whole copy."""
    found, number = state.objects[event.id], fetching.node
    assert found.copies is not None
    if event.order not in (-1, fetching.order):
        state.to_rank(event.rank, StopFetch(event.id))  # there is a later order
    value_moves.arrived(state, found, fetching)
    spreading.remove(state, fetching)
    found.copies[number] = place = Stored(event.rank, event.offset, fetching.size)
    state.extents[event.rank, event.offset] = found.id
    value_moves.used(state, place, 1)
    if found.state == GONE:
        advance(state.stories, found, FIND, f"rank {event.rank} has got a copy")
    spreading.serve(state, found)
    done = 1 + spreading.give_up_unneeded(state, found)
    inform(state, found, fetching.waiting, None, now)
    release(state, found, done)


def look_elsewhere(state: State, fetching: Fetching, event: Fetched, now: int) -> None:
    """Take another source after a failed fetch, or wait until it is clear whether the source is dead."""
    found, source = state.objects[event.id], fetching.source
    assert found.copies is not None
    assert source is not None
    fetching.tried.append(source.rank)
    is_elsewhere = any(place.rank not in fetching.tried for place in found.copies.values())
    if is_elsewhere or (isinstance(source, Stored) and spreading.can_read(state, found)):
        spreading.unassign(state, fetching)
        spreading.serve(state, found)
        return
    fetching.reason = event.reason
    state.alarms.set(fetching, now + UNREACHED_US)


def unreached(state: State, fetching: Fetching, now: int) -> None:
    """Handle an alarm: a fetch has failed, and the rank with the copy lives."""
    is_there = state.fetching.get(fetching.id, {}).get(fetching.node) is fetching
    if is_there and fetching.reason:
        fail(state, fetching, fetching.reason, is_lost=True, now=now)


def fail(state: State, fetching: Fetching, reason: str, is_lost: bool, now: int) -> None:
    """Fail a fetch, with an error for its waiters. If it reads from disk, fail those that wait for that too."""
    found, reads = state.objects[fetching.id], isinstance(fetching.source, OnDisk)
    fetches = state.fetching[found.id]
    if is_lost:
        spreading.give_up(state, fetching)
    else:
        spreading.remove(state, fetching)  # there was no memory for it
    failed = [fetching]
    if reads and not found.copies:
        failed += [one for one in fetches.values() if one.source is None]
        for one in failed[1:]:
            spreading.give_up(state, one)
    if is_lost:
        advance(state.stories, found, LOSE_VALUE, reason)
        story = so_far(state.stories.of(found.id, "object", besides=reason))
        error = ReadyFailed(found.id, "ObjectLostError", f"{found} cannot be had: {reason}.{story}")
    else:
        error = ReadyFailed(found.id, "ObjectStoreFullError", reason)
    spreading.serve(state, found)
    done = len(failed) + spreading.give_up_unneeded(state, found)
    for one in failed:
        inform(state, found, one.waiting, error, now)
    release(state, found, done)


def inform(state: State, found: Object, waiting: list[Waiter], error: ReadyFailed | None, now: int) -> None:
    """Inform waiting clients. Send calls that have all arguments on their host; with an error, fail them."""
    for waiter in waiting:
        if isinstance(waiter, int) and waiter in state.clients:
            if error is not None:
                state.to_client(waiter, error)
            else:
                objects.deliver(state, found, state.clients[waiter], fetch=False)
    for waiter in waiting:
        if not isinstance(waiter, int):
            inform_call(state, *waiter, error, now)


def inform_call(state: State, task: Task, executor: Executor, error: ReadyFailed | None, now: int) -> None:
    """Handle an argument of a call that has arrived on the host of its executor, or cannot arrive."""
    if task.executor is not executor or task.state != STAGING or are_lost(state, task):
        return  # it was given up, or needs another executor
    gang = executor.gang
    is_in_gang = gang is not None and gang.task is (task.leader or task)
    if error is not None and is_in_gang:  # its death ends the gang, and retries the call
        executor.killed_for = f"could not get an argument: {error.message}"
        state.stop(executor, "could not get an argument", force=True)
    elif error is not None:
        executor.drop(task.id)
        tasks.fail(state, task, error.code, error.message)
        settle(state, executor, now)
    elif task.actor is not None and task.function.is_method:
        if actor_calls.is_timed(task.actor, task.function) and deadline.is_late(state, task.function, now):
            executor.drop(task.id)
            actor_calls.give_again(state, task.actor, task, "it cannot end before the job does")
            state.called[task.actor] = None
        elif staged(state, task):
            actor_calls.go_past(state, task.actor, task)
    else:
        staged(state, task)


def unwanted(state: State, task: Task, executor: Executor) -> None:
    """Stop fetches that only this call needs: it is cancelled."""
    number = executor.rank.node.number
    for id in dict.fromkeys(task.call.arguments):
        fetching = state.fetching.get(id, {}).get(number)
        if fetching is None or (task, executor) not in fetching.waiting:
            continue
        fetching.waiting = [one for one in fetching.waiting if one != (task, executor)]
        found = state.objects[id]
        release(state, found, spreading.give_up_unneeded(state, found))


def release(state: State, found: Object, count: int) -> None:
    """Release an object for this many fetches."""
    for _ in range(count):
        objects.release(state, found.id)

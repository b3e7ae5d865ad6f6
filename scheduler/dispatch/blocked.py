"""Executors that wait for objects lend their CPU, and calls behind the running one move on."""

from __future__ import annotations

from mpi_runtime.scheduler.dispatch import dispatch
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest
from mpi_runtime.scheduler.protocol.events import BLOCKED_IDS_MAX, Blocked, Unblocked
from mpi_runtime.scheduler.protocol.limits import GANG_WAIT_US, STUCK_US
from mpi_runtime.scheduler.records.lifecycle import BLOCK, BLOCKED, GONE, UNBLOCK, UNSEALED, advance
from mpi_runtime.scheduler.records.records import Executor
from mpi_runtime.scheduler.records.state import Client, State


def blocked(state: State, client: Client, event: Blocked, now: int) -> None:
    """Lend the CPU of an executor whose call waits for objects, and steal the calls behind it."""
    executor = client.executor
    running = executor.running() if executor is not None else None
    if executor is None or executor.blocked or not (running or executor.actor):
        return  # or the waiting thread belongs to a call that has ended
    if are_here(state, executor, event.ids):
        return
    executor.waits_for = event.ids
    executor.lend_cpu()
    if executor.grant is not None:
        state.index.update(executor.rank.node)
        state.freed = True
    if executor.gang is not None:
        state.alarms.set(executor.gang, now + GANG_WAIT_US)
    if executor.actor is not None:
        return
    assert running is not None
    advance(state.stories, running, BLOCK, "it waits for objects")
    ask_for_the_rest(state, executor)
    if executor.queue is not None:
        executor.queue.forget(executor)


def are_here(state: State, executor: Executor, ids: list[bytes]) -> bool:
    """Whether all awaited objects of a call are on their way: it continues before others could use its CPU."""
    if not 0 < len(ids) < BLOCKED_IDS_MAX:
        return False  # it may wait for more
    node = executor.rank.node.number
    for id in ids:
        found = state.objects.get(id)
        if found is None or found.state in UNSEALED or found.state == GONE:
            return False
        if found.copies is not None and node not in found.copies:
            return False
    return True


def unblocked(state: State, client: Client, event: Unblocked, now: int) -> None:
    """Handle the end of a wait."""
    if client.executor is not None:
        client.executor.waits_for = []
        let_continue(state, client.executor, now)


def let_continue(state: State, executor: Executor, now: int) -> None:
    """Let the call continue. Its source may be overdrawn for a moment: nothing starts there until it is not."""
    if not executor.blocked:
        return
    executor.reclaim_cpu()
    if executor.grant is not None:
        state.index.update(executor.rank.node)
    if executor.actor is not None:
        return
    running = executor.running()
    if running is not None and running.state == BLOCKED:
        advance(state.stories, running, UNBLOCK)
    queue = executor.queue
    if queue is None:
        return
    if executor.stuck:
        queue.note_load(executor)
    else:
        queue.executors[executor.id] = executor
        dispatch.offer(state, executor, now)
    if queue.loaded:  # calls that were being taken back are behind it again
        state.alarms.set(queue, now + STUCK_US)


def taken_back(state: State, executor: Executor, ids: list[bytes], now: int) -> None:
    """Handle stolen calls. If one of them seemed to block, a thread of an earlier call blocks."""
    running = executor.running()
    if executor.blocked and running is not None and running.id in ids:
        let_continue(state, executor, now)
    dispatch.taken_back(state, executor, ids, now)

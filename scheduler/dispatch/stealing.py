"""Steals calls that were sent ahead and have not started, for executors that have room."""

from __future__ import annotations

from itertools import islice, takewhile

from mpi_runtime.scheduler.dispatch.dependencies import come_back
from mpi_runtime.scheduler.dispatch.queues import mark_dirty, requeue
from mpi_runtime.scheduler.places.constraints import find_source
from mpi_runtime.scheduler.protocol.effects import TakeBack
from mpi_runtime.scheduler.protocol.limits import STEAL_WORTH_US, STUCK_US, VICTIMS_MAX
from mpi_runtime.scheduler.records.lifecycle import READY, SENT, STAGING, TAKE_BACK, advance
from mpi_runtime.scheduler.records.records import Executor, Node, Queue, Task
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values import call_ends


def rebalance(state: State, queue: Queue, now: int) -> None:
    """Steal calls from a loaded executor, since another has room and no call is ready; or set an alarm."""
    if queue.ready or not queue.loaded:
        return
    victim = max(islice(queue.loaded.values(), VICTIMS_MAX), key=stealable_us)
    if stealable_us(victim) >= STEAL_WORTH_US and not victim.asked_back:
        ask_back(state, victim, len(victim.assigned) // 2)
    state.alarms.set(queue, now + STUCK_US)


def stealable_us(executor: Executor) -> int:
    """The load of an executor that others could take over: not the calls that wait for values of calls before them."""
    load_us = executor.load_us
    return load_us - sum(task.estimate_us for task in executor.followers.values()) if executor.followers else load_us


def look_after_queue(state: State, queue: Queue, now: int) -> None:
    """Handle the alarm of a queue: steal the calls behind one that takes longer than estimated, if there is room."""
    if queue.is_timed or (queue.ready and not queue.family.reserved):
        mark_dirty(state, queue)
    if (queue.loaded or queue.ready) and find_source(state, queue) is not None:
        silent = takewhile(lambda executor: now - executor.progress_us >= STUCK_US, queue.loaded.values())
        for executor in list(silent):
            if not executor.asked_back and executor.running() is not None:  # otherwise its calls wait for copies
                executor.stuck = True
                ask_for_the_rest(state, executor)
                queue.forget(executor)
        if queue.ready:
            mark_dirty(state, queue)
    if queue.loaded:
        state.alarms.set(queue, now + STUCK_US)


def ask_back(state: State, executor: Executor, count: int) -> None:
    """Ask for calls that the executor has not started."""
    if count > 0 and not executor.asked_back:
        executor.asked_back = True
        state.to_rank(executor.rank.number, TakeBack(executor.id, count))


def ask_for_the_rest(state: State, executor: Executor) -> None:
    """Ask for all calls behind the running one. Calls that were not sent yet are taken back at once."""
    staging = [task for task in executor.assigned.values() if task.state == STAGING]
    for task in staging:
        executor.drop(task.id)
        advance(state.stories, task, TAKE_BACK, "it stood behind another call")
        task.executor = None
    if staging and executor.queue is not None and executor.id in executor.queue.loaded:
        executor.queue.note_load(executor)
    requeue(state, staging)
    ask_back(state, executor, len(executor.assigned) - 1)


def ask_all_for_the_rest(state: State, node: Node) -> None:
    """Ask for all calls of tasks on a node that do not run."""
    for executor in node.executors():
        if executor.actor is None and len(executor.assigned) > 1 and executor.running() is not None:
            ask_for_the_rest(state, executor)


def give_elsewhere(state: State, tasks: list[Task], cause: str) -> None:
    """Put stolen calls back at the front of their queues, except cancelled ones."""
    for task in tasks:
        if task.is_cancelled:
            call_ends.cancelled(state, task)
        elif task.has_followed and task.state == SENT:
            come_back(state, task, cause)
        else:
            advance(state.stories, task, TAKE_BACK, cause)
        task.executor = None
    requeue(state, [task for task in tasks if task.state == READY])

"""Followers: calls that are sent behind the calls that make their arguments, to the executor that has these.

So a chain of short calls does not wait for the head at each link. The head guesses where a value will be, never the
value: the executor fills the arguments in from its last results, by their ids. If one is not there, because its call
has raised, was stolen or has returned a large value, the follower comes back and waits as others do. A call follows
once at most. Nothing in an executor waits.

A task follows if the delay that it risks is small: it and the calls before it are short, and stand closely behind each
other. A call of an actor follows calls of that actor, as the first of its line (`actors/calls.py`). See
docs/decisions/0306.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.dispatch.dispatch import estimate_us, first_waiting, must_yield
from mpi_runtime.scheduler.dispatch.executors import ahead_us
from mpi_runtime.scheduler.dispatch.queues import queue_at
from mpi_runtime.scheduler.protocol.effects import Ready
from mpi_runtime.scheduler.protocol.events import Call, MethodSpec, TaskSpec
from mpi_runtime.scheduler.protocol.limits import (
    DEPTH_MAX,
    FOLLOW_US_MAX,
    FOLLOWERS_MAX,
    HIRE_WORTH_US,
    LOCAL_QUEUE_CALLS_MAX,
    STUCK_US,
    WANTED_MAX,
)
from mpi_runtime.scheduler.records.lifecycle import FOLLOW, INLINE, PENDING, SENT, STOPPING, WAITING, advance
from mpi_runtime.scheduler.records.records import ANYWHERE, Executor, Function, Queue, Task
from mpi_runtime.scheduler.records.state import State


def look(state: State, now: int) -> None:
    """Send the calls that may follow, now that queues have been served."""
    leads, state.leads = state.leads, []
    for lead in leads:  # which grow, since calls follow followers
        for task in candidates(state, lead):
            executor = leader_of(state, task)
            if executor is None:
                continue
            if task.actor is not None:
                if executor.actor is task.actor:  # it goes when it is the first of its line
                    state.called[task.actor] = None
            elif has_room(state, executor, task, now):
                follow(state, executor, task, now)
                leads.append(task)


def candidates(state: State, lead: Task) -> Sequence[Task]:
    """The calls that wait for a call that was sent; or the call itself, if it waits."""
    if lead.state != SENT:
        return (lead,)
    executor = lead.executor
    if not lead.call.wanted or executor is None or executor.queue is None or executor.queue.ready:
        return ()
    found = state.objects.get(lead.id)
    waiters = found.waiters if found is not None else None
    return waiters if waiters is not None and len(waiters) <= WANTED_MAX else ()


def leader_of(state: State, task: Task) -> Executor | None:
    """The executor whose calls make all missing arguments of a call, if the call is of those that may follow."""
    if task.state != WAITING or task.has_followed:
        return None
    executor = None
    for id in task.call.arguments:
        found = state.objects[id]
        if found.state == INLINE:
            continue
        maker = found.task
        if found.state != PENDING or maker is None or maker.state != SENT or not may_lead(maker):
            return None
        if found.waiters is None or len(found.waiters) > WANTED_MAX or executor not in (None, maker.executor):
            return None
        executor = maker.executor
    return executor if may_follow(task.function, task.call) else None


def may_follow(function: Function, call: Call) -> bool:
    """Whether a call is short, and nothing but its arguments decides when and where it runs."""
    spec = function.spec
    return (
        0 <= function.duration_us <= FOLLOW_US_MAX
        and len(call.arguments) <= WANTED_MAX
        and (type(spec.kind) is MethodSpec or (type(spec.kind) is TaskSpec and spec.max_retries != 0))
        and spec.num_returns >= 0
        and spec.gang is None
        and function.where is ANYWHERE
        and not (function.choice or function.is_timed or call.digest or call.attempt)
    )


def may_lead(maker: Task) -> bool:
    """Whether a call will probably end soon, with one small value."""
    function = maker.function
    return (
        function.is_plain
        and 0 <= function.duration_us <= FOLLOW_US_MAX
        and function.spec.num_returns == 1
        and not maker.is_cancelled
    )


def has_room(state: State, executor: Executor, task: Task, now: int) -> bool:
    """Whether an executor may get a call behind its last ones, without a delay for this call or for others."""
    queue, function = executor.queue, task.function
    if queue is None or executor.blocked or executor.stuck or executor.asked_back or queue.ready:
        return False
    if len(executor.followers) >= FOLLOWERS_MAX or len(executor.assigned) >= LOCAL_QUEUE_CALLS_MAX:
        return False
    if executor.load_us + estimate_us(function) > ahead_us(function) or not is_close_behind(executor, task):
        return False
    is_ending = executor.state == STOPPING or executor.refusal is not None or executor.killed_for
    if is_ending or executor.fault is not None or executor.gang is not None or executor.rank.node.is_full:
        return False
    if queue_at(state, function, min(task.depth, DEPTH_MAX)) is not queue or queue.is_shut():
        return False
    queue.ready.append(task)  # other queues go first, or not, because of this call
    yields = must_yield(state, executor, queue, first_waiting(state, queue), now)
    queue.ready.pop()
    return not yields


def is_close_behind(executor: Executor, task: Task) -> bool:
    """Whether little work stands between a call and the last of those that make its arguments."""
    between_us, makers = 0, task.call.arguments
    for id, before in reversed(executor.assigned.items()):
        if id in makers:
            return True
        between_us += before.estimate_us
        if between_us > HIRE_WORTH_US:
            break
    return False


def follow(state: State, executor: Executor, task: Task, now: int) -> None:
    """Send a task behind those that make its arguments."""
    queue = executor.queue
    assert queue is not None
    task.queue = queue
    send_behind(state, executor, task, estimate_us(task.function))
    note_load(state, queue, executor, now)


def send_behind(state: State, executor: Executor, task: Task, estimate_us: int = 0) -> None:
    """Send a call with those of its arguments that exist, behind the calls that make the others."""
    call, messages = task.call, state.effects.clients[executor.id]
    if call.spec not in executor.known:
        executor.known.add(call.spec)
        messages.append(task.function.spec)
    for id in call.arguments:
        found = state.objects[id]
        if found.state == INLINE:
            messages.append(Ready(id, found.data))
        elif found.waiters is not None:
            found.waiters = [waiter for waiter in found.waiters if waiter is not task] or None
            if found.waiters is None and found.task is not None:
                found.task.call.wanted = False  # nobody else waits for its end
    task.missing, task.has_followed = 0, True
    executor.take(task, estimate_us)
    executor.followers[task.id] = task
    advance(state.stories, task, FOLLOW)
    messages.append(call)


def note_load(state: State, queue: Queue, executor: Executor, now: int) -> None:
    """Have the executor looked at if it makes no progress."""
    queue.note_load(executor)
    if queue not in state.alarms:
        state.alarms.set(queue, now + STUCK_US)

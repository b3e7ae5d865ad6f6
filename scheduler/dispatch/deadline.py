"""The end of the job's time: calls that cannot finish before it are not started.

A call may take its `time_limit`, or the measured mean of its function, if that is long; with `expect_us` the mean, and
before it is known what was expected. If any of these is known, the tasks
of the function have queues of their own, so one check of a queue covers all its calls, and other calls do not wait
behind them. `actor_calls.pump` checks calls of such a method one by one: later calls of the same caller wait with a
late one. If the job's end is not known, no function is timed.
"""

from __future__ import annotations

from mpi_runtime.scheduler.dispatch.dispatch import give_up
from mpi_runtime.scheduler.dispatch.queues import clear, enqueue, mark_dirty, stop_waiting
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest
from mpi_runtime.scheduler.log import notes
from mpi_runtime.scheduler.protocol.effects import LATE
from mpi_runtime.scheduler.protocol.events import DRIVER, ActorSpec, EndMoved
from mpi_runtime.scheduler.protocol.limits import LONG_US, STUCK_US
from mpi_runtime.scheduler.records.grant_sources import NOTHING
from mpi_runtime.scheduler.records.records import Function, Queue, Task
from mpi_runtime.scheduler.records.state import Client, State
from mpi_runtime.scheduler.values.message_checks import require


def look_for_long(state: State) -> None:
    """Give functions with long calls queues of their own."""
    for function in state.functions.values():
        if function.is_timed or isinstance(function.spec.kind, ActorSpec) or function.duration_us <= LONG_US:
            continue
        if function.is_method and state.end_us is None:
            continue
        function.is_timed = True
        if function.is_method:
            continue
        function.queues.clear()
        tasks: list[Task] = []
        for queue in state.queues.values():
            if any(task.function is function for task in queue.ready):
                for task in clear(queue):
                    (tasks if task.function is function else queue.ready).append(task)
                mark_dirty(state, queue)
        for task in sorted(tasks, key=lambda task: task.order):
            enqueue(state, task)


def holds_back(state: State, queue: Queue, now: int) -> bool:
    """Whether the calls of a queue cannot finish in time. Then its reservations end."""
    last_us = last_start_us(state, queue.function)
    if now <= last_us:
        queue.is_late = False
        if last_us < NOTHING and (queue.ready or queue.executors):  # the assigned calls may not have begun
            state.alarms.set(queue, last_us + 1)
        return False
    if queue.ready:
        log(state, queue.function, now)
    queue.dirty = False
    stop_waiting(state, queue)
    executors = list(queue.executors.values())
    if not queue.is_late:
        queue.is_late = True
        for executor in executors:
            ask_for_the_rest(state, executor)
            queue.note_load(executor)
    for executor in executors:
        if not executor.assigned:
            give_up(state, executor, now)
    if queue.loaded:
        state.alarms.set(queue, now + STUCK_US)
    return True


def is_late(state: State, function: Function, now: int) -> bool:
    """Whether a call of a method that could begin now cannot finish in time."""
    last_us = last_start_us(state, function)
    if now <= last_us:
        state.alarms.set(function, last_us + 1)  # it may have to wait for its turn
        return False
    log(state, function, now)
    return True


def note_duration(state: State, function: Function) -> None:
    """Note the end of a call of a timed method: the expected duration of the others has changed."""
    if function.has_fixed_length:
        return
    function.is_timed = function.duration_us > LONG_US
    if not function.is_timed or function.spec.name in state.logs.once:
        look_at_actors(state)
    elif state.end_us is not None:
        state.alarms.set(function, last_start_us(state, function) + 1)  # sooner than an alarm for a lower mean


def end_early(state: State, now: int) -> None:
    """Note that the job ends now, and check again which waiting calls are too late."""
    _set_end(state, now if state.end_us is None else min(now, state.end_us))


def end_moved(state: State, client: Client, event: EndMoved, now: int) -> None:
    """Note another end of the job's time. A job that saves its state to end early does end then."""
    require(client.id == DRIVER, "a client sent an event that only the program of rank 0 may send")
    if state.is_ending:
        return
    if state.end_us is not None:
        change_s, left_s = (event.end_us - state.end_us) / 1e6, max(0, event.end_us - now) / 1e6
        when = f"{abs(change_s):.0f} s {'later' if change_s > 0 else 'earlier'} than was known"
        notes.log(state, notes.WARNING, LATE, f"the job's time ends in {left_s:.0f} s, {when}")
    for function in state.functions.values():
        state.logs.once.discard(function.spec.name)  # calls of it may be too late for the new end as well
    _set_end(state, event.end_us)


def _set_end(state: State, end_us: int) -> None:
    if state.end_us is None:
        for function in state.functions.values():
            if function.is_method:
                function.is_timed = function.has_fixed_length or function.may_take_us > LONG_US
    state.end_us = end_us
    for queue in state.queues.values():
        if queue.is_timed:
            mark_dirty(state, queue)
    look_at_actors(state)


def look_at_actors(state: State) -> None:
    """Check again which waiting calls are too late."""
    state.called.update((actor, None) for actor in state.actors.values() if actor.callers)


def last_start_us(state: State, function: Function) -> int:
    """Return the latest start at which a call can finish in time, with the quickest of its alternatives."""
    return NOTHING if state.end_us is None else state.end_us - function.quickest_us


def why_not(state: State, function: Function, now: int) -> str:
    """Why a ready call of the function is too late to start; empty: it is not."""
    if not function.is_timed or now <= last_start_us(state, function):
        return ""
    takes, ends = in_words(state, function, now)
    return f"It is not started: it {takes}, and {ends}"


def in_words(state: State, function: Function, now: int) -> tuple[str, str]:
    """The duration of a call, and the rest of the job's time with advice, in words."""
    assert state.end_us is not None
    is_limit = 0 < function.limit_us == function.quickest_us
    known_from = "its time_limit" if is_limit else "as earlier calls did"
    known_from = "as expected" if not is_limit and function.is_expected and function.duration_us < 0 else known_from
    takes_s, left_s = function.quickest_us / 1e6, max(0, state.end_us - now) / 1e6
    return (
        f"may take {round(takes_s, 1):g} s ({known_from})" if takes_s >= 0 else "takes a time that is not known yet",
        f"the job's time ends in {left_s:.0f} s. Have the job requeued, or start one with more time.",
    )


def log(state: State, function: Function, now: int) -> None:
    """Log, once for each name, that calls of a function cannot finish in time."""
    name = function.spec.name
    if name not in state.logs.once:
        state.logs.once.add(name)
        takes, ends = in_words(state, function, now)
        text = f"calls of {name}, each of which {takes}, are not started any more: {ends}"
        notes.log(state, notes.WARNING, LATE, text)

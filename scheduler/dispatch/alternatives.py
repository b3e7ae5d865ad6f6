"""Alternatives: calls that run with one of several requests, such as four CPUs or one GPU.

Each alternative is a function of its own: it has a spec, a queue, and the measured duration of its calls. A call waits
in one queue, first in that of the first alternative that a node can ever serve. When the queue is served, its first
call takes the first alternative with room, and moves to the queue of that one. Alternatives of unknown duration go
first, in the stated order, then the fastest. A slower one is not taken while faster ones, with the executors that they
have, are likely to finish all waiting calls sooner (as in list scheduling by earliest finish time: Topcuoglu and
others, IEEE TPDS 2002).
"""

from __future__ import annotations

import msgspec

from mpi_runtime.scheduler.dispatch.fair_shares import account_of
from mpi_runtime.scheduler.dispatch.queues import change_function, clear, mark_dirty, queue_at, requeue
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import TaskSpec
from mpi_runtime.scheduler.protocol.ids import alternative_id
from mpi_runtime.scheduler.records.records import Function, Queue
from mpi_runtime.scheduler.records.state import State


def register(state: State, function: Function, kind: TaskSpec) -> None:
    """Register the alternatives of a new function, of this kind."""
    spec = function.spec
    function.is_timed = True
    function.choice = [function]
    alone = msgspec.structs.replace(kind, alternatives=())
    for index, one in enumerate(kind.alternatives, 1):
        own = msgspec.structs.replace(spec, id=alternative_id(spec.id, index), kind=alone, asks=one)
        other = Function(own, [], account=account_of(state, own, function.driver), driver=function.driver)
        other.is_timed, other.choice = True, function.choice
        function.choice.append(other)
        state.functions[own.id] = other
        if function.driver is not None:
            function.driver.functions[own.id] = other


def first(function: Function) -> Function:
    """The first alternative that a node can serve; if none can, the first of all."""
    return next((one for one in function.choice if not one.infeasible), function.choice[0])


def has_none(function: Function) -> bool:
    """Whether no node can ever serve a call, with any alternative."""
    return bool(function.infeasible) and (not function.choice or all(one.infeasible for one in function.choice))


def requests(queue: Queue) -> list[Request]:
    """The requests with which calls of a queue may run."""
    choice = queue.function.choice
    return [one.spec.asks for one in choice if not one.infeasible] if choice else [queue.request]


def is_usable(state: State, function: Function, now: int) -> bool:
    """Whether an alternative may be taken now: a node can serve it, and it ends before the job's time."""
    is_late = state.end_us is not None and now > state.end_us - function.may_take_us
    return not function.infeasible and not is_late


def in_order(state: State, queue: Queue, now: int) -> list[Function]:
    """The alternatives that the first call of a queue may take now, the best one first."""
    usable = [one for one in queue.function.choice if is_usable(state, one, now)]
    usable.sort(key=lambda one: one.duration_us)  # -1, not known, comes first; else the order stays
    found: list[Function] = []
    for one in usable:
        if not any(_is_sooner(state, faster, one, queue, now) for faster in found):
            found.append(one)
    return found


def _is_sooner(state: State, faster: Function, slower: Function, queue: Queue, now: int) -> bool:
    """Whether all calls of a queue will likely end by one alternative before the first would by the other.

    Executors whose calls take more than twice the mean do not count.
    """
    patience_us = 2 * faster.duration_us
    executors = queue_at(state, faster, queue.depth).executors.values()
    silent_us = [now - one.progress_us for one in executors if now - one.progress_us <= patience_us]
    if not silent_us:
        return False
    rounds = len(queue.ready) // len(silent_us) + 1
    is_sooner = rounds * faster.duration_us < slower.duration_us
    if is_sooner:
        state.alarms.set(queue, now + patience_us - max(silent_us) + 1)
    return is_sooner


def may_take(state: State, queue: Queue, now: int) -> bool:
    """Whether calls of a queue may take the alternative of this queue. It is so without alternatives."""
    function = queue.function
    return not function.choice or any(one is function for one in in_order(state, queue, now))


def prepare(state: State, queue: Queue, now: int) -> None:
    """Before a queue is served: move its calls if its alternative cannot be used any more."""
    function = queue.function
    others = [one for one in function.choice if one is not function]
    if not queue.ready:  # its alarm may be meant for calls that wait in another queue
        for waiting in (queue_at(state, one, queue.depth) for one in others):
            if waiting.ready:
                mark_dirty(state, waiting)
        return
    is_own = is_usable(state, function, now)
    if is_own and state.end_us is not None:
        state.alarms.set(queue, state.end_us - function.may_take_us + 1)
    elif not is_own and (better := next((one for one in others if is_usable(state, one, now)), None)) is not None:
        tasks = list(clear(queue))
        for task in tasks:
            change_function(task, better)
        requeue(state, tasks)
    queue.is_deferring = False


def move_first(queue: Queue, other: Queue) -> None:
    """Move the first call of a queue to the front of that of another alternative."""
    task = queue.ready.popleft()
    if queue.withdrawn:
        queue.tidy()
    change_function(task, other.function)
    task.queue = other
    other.ready.appendleft(task)

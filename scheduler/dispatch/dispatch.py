"""Which executor runs which call: hire, fill, steal, give up.

A job may have a million calls that wait, and an empty call should cost some microseconds. To find a node and count its
resources costs as much as that, so it cannot be done for each call. The idea: resources are given to an executor for a
*queue* of like calls, and it keeps them while the queue has calls.

    ready calls -> queue -- hire --> executor with a grant -- give --> its process, a few calls ahead
                     ^                      |
                     +------- steal --------+-- give up: the grant returns, and the executor idles

- *Hire* (`executors.py`): give an idle executor a grant for the queue, or have one forked, if the backlog is worth it.
- *Give*: send a call. The executor's `load_us` is the estimated work that it was sent.
- *Fill*: send some milliseconds of work ahead, so that the executor need not wait for an answer between short calls.
  How many calls that is follows from the measured mean of the function. Of a function without one, none is sent ahead.
- *Follow* (`following.py`): send a short call behind the calls that make its arguments, before these have values.
- *Steal* (`stealing.py`): take back calls that were sent ahead: when their executor blocks, when another one idles, or
  when the call before them takes longer than estimated and there is room elsewhere.
- *Give up*: take the grant back when there are no calls, or when another queue goes first (`must_yield`).

A queue that the last events have changed is *dirty*. `Scheduler.decide` serves the dirty queues by precedence: `serve`
gives one call to each of its executors without calls, hires, and fills. If calls are left, the queue waits in its
family, and a node may be reserved for it (`reservations.py`).

What always holds: an executor has a grant exactly while it has calls or is an actor. Calls are taken from the front of
their queue. A call that needs arguments from elsewhere counts as assigned while they travel (`dependencies.py`).

Not obvious: a call that was sent may not have started, and only its executor knows. So to steal is to ask; the agent
answers with the calls that it got back (`taken_back`). With accounts or several drivers one executor is hired at a
time, so that the shares are compared again before the next one (`by_turns`).
"""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.dispatch import alternatives
from mpi_runtime.scheduler.dispatch.backfill import note_length
from mpi_runtime.scheduler.dispatch.dependencies import elsewhere, stage
from mpi_runtime.scheduler.dispatch.executors import acquire, acquire_any, acquire_without_cpu, ahead_us
from mpi_runtime.scheduler.dispatch.fair_shares import is_before
from mpi_runtime.scheduler.dispatch.queues import await_room, mark_dirty, stop_waiting
from mpi_runtime.scheduler.dispatch.reservations import end_reservation, reserve, reserve_for_fractions, stop_idle
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest, give_elsewhere, rebalance
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import allows
from mpi_runtime.scheduler.protocol import limits
from mpi_runtime.scheduler.protocol.limits import STUCK_US, UNIT
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted
from mpi_runtime.scheduler.protocol.resources import Pool, copy_of, fits, give_back
from mpi_runtime.scheduler.records.lifecycle import SEND, STARTED, advance
from mpi_runtime.scheduler.records.records import Executor, Function, Queue, Task
from mpi_runtime.scheduler.records.state import State


def serve(state: State, queue: Queue, now: int) -> bool:
    """Assign the queue's calls: to executors without calls, then to new ones, then ahead of time to busy ones.

    With accounts or several drivers only one executor is hired at a time. Returns whether one was hired.
    """
    queue.dirty = False
    note_length(queue)
    has_choice, for_actors = bool(queue.function.choice), queue.function.is_actor
    if has_choice:
        alternatives.prepare(state, queue, now)
    may_grow = reuse(state, queue, now)
    has_grown = False
    while may_grow and queue.ready and not (has_grown and state.by_turns):
        new = acquire(state, queue, now) if not has_choice else acquire_any(state, queue, now)
        if new is None and for_actors:
            new = acquire_without_cpu(state, queue, now)
        if new is None:
            break
        has_grown = True
        give(state, new, 1, now)
        if for_actors:
            dedicate(new)
        elif new.queue is not None:
            new.queue.note_room(new)
    queue.is_deferring = has_choice and not alternatives.may_take(state, queue, now)
    if not for_actors and not queue.is_deferring:
        fill(state, queue, now)
    if queue.ready:
        await_room(state, queue)
        reserve(state, queue, now)
    else:
        queue.near_from_us = -1
        if queue.waits_at >= 0 or queue.family.reserved:
            stop_waiting(state, queue)
    if queue.loaded:
        state.alarms.set(queue, now + STUCK_US)
    return has_grown


def shut(state: State, queue: Queue, now: int) -> None:
    """Start no call of a queue whose driver has left. They end one after the other."""
    queue.dirty, queue.is_deferring = False, True
    while queue.hungry and not (executor := next(iter(queue.hungry.values()))).assigned:
        give_up(state, executor, now)
    if queue.family.reserved:
        end_reservation(state, queue.family)
    if queue.ready:
        await_room(state, queue)
    else:
        stop_waiting(state, queue)


def reuse(state: State, queue: Queue, now: int) -> bool:
    """Give a call to each of the queue's executors without calls, or take its grant back.

    Returns whether the queue may take more resources: not if it has just given some up for other queues.
    """
    hungry = queue.hungry
    better = first_waiting(state, queue) if hungry and queue.ready else None
    may_grow = True
    while hungry:
        executor = next(iter(hungry.values()))
        if executor.assigned:
            break
        if not queue.ready or not alternatives.may_take(state, queue, now):
            give_up(state, executor, now)
        elif must_yield(state, executor, queue, better, now):
            give_up(state, executor, now)
            may_grow = False
            if state.by_turns:
                better = first_waiting(state, queue)
        else:
            give(state, executor, 1, now)
            hungry.move_to_end(executor.id)
    return may_grow


def give(state: State, executor: Executor, count: int, now: int) -> None:
    """Send the next calls of its queue to an executor."""
    queue = executor.queue
    assert queue is not None
    assigned = executor.assigned
    if not assigned:
        executor.progress_us = now
    ready = queue.ready
    messages = state.effects.clients[executor.id]
    known = executor.known
    stories = state.stories
    before, estimate = None, 0
    for _ in range(count):
        if not ready:
            break
        task = ready.popleft()
        if queue.withdrawn:
            queue.tidy()
        call = task.call
        function = task.function
        if function is not before:
            before, estimate = function, estimate_us(function)
        executor.take(task, estimate)
        if call.arguments and not stage(state, executor, task):
            continue
        advance(stories, task, SEND)
        if call.spec not in known:
            known.add(call.spec)
            messages.append(function.spec)
        messages.append(call)
        if call.wanted:
            state.leads.append(task)
    queue.note_load(executor)


def estimate_us(function: Function) -> int:
    """The part of an executor's load for one call of the function, including its handling."""
    return function.duration_us + 3 if function.duration_us >= 0 else limits.LOCAL_QUEUE_US


def dedicate(executor: Executor) -> None:
    """Turn an executor into an actor: it serves no queue any more."""
    queue = executor.queue
    assert queue is not None
    del queue.executors[executor.id]
    queue.loaded.pop(executor.id, None)
    executor.queue = None
    appoint(executor)


def appoint(executor: Executor) -> None:
    """Make an executor the process of the actor whose creation it was given."""
    task = next(iter(executor.assigned.values()))
    assert task.actor is not None
    executor.actor = task.actor
    executor.left_behind = frozenset(executor.children)
    executor.process.actor, executor.process.name = task.id, task.function.spec.name
    task.actor.executor = executor
    task.actor.process = executor.process


def room_for(state: State, executor: Executor, task: Task) -> int:
    """The number of calls like this one that may be sent to an executor behind those that it has."""
    function, assigned = task.function, len(executor.assigned)
    if function.duration_us < 0:
        return 0
    ahead = (ahead_us(function) - executor.load_us) // estimate_us(function)
    if assigned == 1 and ahead < 1:
        is_short = function.duration_us <= limits.PREFETCH_US_MAX
        ahead = 1 if is_short or (task.call.arguments and is_brought_ahead(state, executor, task)) else ahead
    return min(ahead, limits.LOCAL_QUEUE_CALLS_MAX - assigned)


def is_brought_ahead(state: State, executor: Executor, task: Task) -> bool:
    """Whether to move a call's arguments to an executor's node while that runs a call of the same duration."""
    missing = elsewhere(state, task, executor.rank.node.number)
    size = sum(place.size for id in missing for place in state.objects[id].places()[:1])
    return size // limits.MOVED_BYTES_PER_US * limits.PREFETCH_WORTH >= task.function.duration_us


def fill(state: State, queue: Queue, now: int) -> None:
    """Send calls ahead of time to executors with room, in equal parts while there are few calls."""
    ready, hungry = queue.ready, queue.hungry
    better = first_waiting(state, queue) if hungry and ready else None
    while ready and hungry:
        executor = hungry.popitem(last=False)[1]
        is_full = executor.rank.node.is_full  # calls that wait keep their arguments in memory
        if is_full or executor.asked_back or must_yield(state, executor, queue, better, now):
            continue
        room = room_for(state, executor, ready[0])
        if room > 0:
            give(state, executor, min(room, max(1, len(ready) // (len(hungry) + 1)), len(ready)), now)


def first_waiting(state: State, queue: Queue) -> Queue | None:
    """The waiting queue that goes before this one, if any, outside of placement groups or in the same group."""
    if not state.waiting:
        return None
    firsts = [family.first() for family in state.waiting if family.where.group == queue.where.group]
    rivals = [other for other in firsts if other is not None and other.may_begin()]
    if state.is_divided and rivals:
        best = min(rivals, key=Queue.turn)
        if best.use is not queue.use and best.may_overtake(queue):
            return best
        rivals = [other for other in rivals if other.use is queue.use]
    best = min(rivals, key=Queue.precedence, default=queue)
    return best if best is not queue and best.precedence() < queue.precedence(with_one_more=False) else None


def must_yield(state: State, executor: Executor, queue: Queue, better: Queue | None, now: int) -> bool:
    """Whether the executor gets no more calls: its source or account is overdrawn, or other queues go first."""
    source = executor.source
    if better is not None and executor.grant is not None and 0 < executor.grant.cpu < better.request.cpu:
        reserve_for_fractions(state, better, source, now)
    if (source.free.cpu < 0 and queue.request.cpu) or executor.rank.node.pressure:
        return True
    if executor.key.gpu_ids and gpu_pool.is_out(source, executor.key.gpu_ids):
        return True
    if queue.function.account is not None and queue.function.account.is_overdrawn():
        return True
    kept_for = source.reserved_for
    if (
        kept_for is not None
        and kept_for is not queue.family
        and kept_for.priority >= queue.family.priority
        and is_before(state, kept_for, queue)
        and not source.is_open_to(queue.request, queue, with_grant(source.free, executor))
    ):
        return True
    return better is not None and could_serve(executor, better)


def could_serve(executor: Executor, queue: Queue) -> bool:
    """Whether the executor's grant would help the queue."""
    source, family = executor.source, queue.family
    if source.reserved_for is family or family.ranks:  # a gang needs more than this grant, and reserves it all
        return source.reserved_for is family
    free = with_grant(source.free, executor)
    return allows(queue.where, source) and any(
        source.is_open_to(request, queue, free) and fits(request, free) for request in alternatives.requests(queue)
    )


def with_grant(free: Pool, executor: Executor) -> Pool:
    """The free resources without the executor's grant."""
    pool = copy_of(free)
    assert executor.grant is not None
    give_back(executor.grant, pool)
    return pool


def settle(state: State, executor: Executor, now: int) -> None:
    """Refill an executor that has reported ends of calls, or take its grant back."""
    executor.progress_us = now
    queue = executor.queue
    if queue is None or executor.blocked:
        return
    queue.progress_us = now
    if executor.stuck:
        executor.stuck = False
        queue.executors[executor.id] = executor
    if executor.followers:  # there is room for more close behind the last ones
        behind_us = 0
        for task in islice(reversed(executor.assigned.values()), limits.WANTED_MAX):
            state.leads.append(task)
            behind_us += task.estimate_us
            if behind_us > limits.HIRE_WORTH_US:
                break
    offer(state, executor, now)


def offer(state: State, executor: Executor, now: int) -> None:
    """Serve the queue of an executor with room, or take its grant back if there are no calls."""
    queue = executor.queue
    assert queue is not None
    queue.note_load(executor)
    if queue.ready:
        queue.note_room(executor)
        mark_dirty(state, queue)
    elif executor.assigned:
        queue.note_room(executor)
    else:
        give_up(state, executor, now)
        rebalance(state, queue, now)


def give_up(state: State, executor: Executor, now: int) -> None:
    """Take the grant of an executor without calls. It idles, ready for any queue with its key."""
    queue, node = executor.queue, executor.rank.node
    assert queue is not None
    assert not executor.assigned
    state.return_grant(executor)
    executor.source = node
    executor.queue = None
    queue.forget(executor)
    idle = node.add_idle(executor)
    executor.idle_since_us = now
    if executor.key.gpu_ids:
        if gpu_pool.is_out(node, executor.key.gpu_ids):
            stop_idle(state, executor)
            return
        gpu_pool.clear(node, executor.key.gpu_ids)
    if len(node.idle) > 1 or len(idle) * UNIT > node.total.cpu:
        state.alarms.set(node, now + limits.IDLE_US_MAX)
    if len(node.idle) > max(limits.IDLE_KEYS_MAX, node.total.cpu // UNIT):
        for one in list(next(iter(node.idle.values())).values()):
            stop_idle(state, one)


def executor_started(state: State, event: ExecutorStarted, now: int) -> None:
    """Note the process of an executor."""
    executor = state.executors.get(event.executor)
    if executor is not None:
        executor.process.pid = event.pid
        advance(state.stories, executor, STARTED)


def taken_back(state: State, executor: Executor, ids: list[bytes], now: int) -> None:
    """Put stolen calls back into their queues."""
    tasks = [task for id in ids if (task := executor.drop(id)) is not None]
    give_elsewhere(state, tasks, "it stood behind another call")
    queue = executor.queue
    if queue is None:
        return
    if executor.blocked or (executor.stuck and executor.assigned):
        queue.note_load(executor)
        wants_rest = bool(tasks) or executor.blocked
    else:
        executor.stuck = False
        queue.executors[executor.id] = executor
        offer(state, executor, now)
        behind = islice(executor.assigned.values(), 1, None)
        wants_rest = bool(tasks) and (queue.is_late or any(task.is_cancelled for task in behind))
    if wants_rest:  # more calls were on their way, or became useful elsewhere meanwhile
        ask_for_the_rest(state, executor)

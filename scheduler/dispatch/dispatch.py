"""Which executor runs which call: hire, fill, steal, give up.

An executor has a grant for one queue as long as it has calls of that queue. So a node is found once for many short
calls. Some milliseconds of work are sent ahead, by the measured duration of the functions. Calls that were sent ahead
are stolen when the executor blocks, or when they are behind a call that takes longer than estimated while there is room
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from mpi_runtime.scheduler.dispatch import alternatives, backoff
from mpi_runtime.scheduler.dispatch.backfill import note_length
from mpi_runtime.scheduler.dispatch.dependencies import elsewhere, stage
from mpi_runtime.scheduler.dispatch.locality import waits_for_near
from mpi_runtime.scheduler.dispatch.queues import await_room, mark_dirty, queue_at, stop_waiting
from mpi_runtime.scheduler.dispatch.reservations import end_reservation, reserve, reserve_for_fractions, stop_idle
from mpi_runtime.scheduler.dispatch.stealing import ask_for_the_rest, give_elsewhere, rebalance
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import allows, find_source
from mpi_runtime.scheduler.protocol import limits
from mpi_runtime.scheduler.protocol.effects import Membership, StartExecutor
from mpi_runtime.scheduler.protocol.limits import STUCK_US, UNIT
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, copy_of, fits, give_back, take, take_gpus
from mpi_runtime.scheduler.records.lifecycle import SEND, STARTED, STOPPING, advance
from mpi_runtime.scheduler.records.records import Executor, Function, Key, Node, Process, Queue, Rank, Task, node_of
from mpi_runtime.scheduler.records.sources import Source
from mpi_runtime.scheduler.records.state import State


def serve(state: State, queue: Queue, now: int) -> bool:
    """Assign the queue's calls: to executors without calls, then to new ones, then ahead of time to busy ones.

    With accounts only one executor is hired at a time. Returns whether one was hired.
    """
    queue.dirty = False
    note_length(queue)
    has_choice = queue.timed is not None and bool(queue.timed.choice)
    if has_choice:
        alternatives.prepare(state, queue, now)
    may_grow = reuse(state, queue, now)
    has_grown = False
    while may_grow and queue.ready and not (has_grown and state.accounts):
        new = acquire(state, queue, now) if not has_choice else acquire_any(state, queue, now)
        if new is None:
            break
        has_grown = True
        give(state, new, 1, now)
        if queue.for_actors:
            dedicate(new)
        elif new.queue is not None:
            new.queue.note_room(new)
    queue.is_deferring = has_choice and not alternatives.may_take(state, queue, now)
    if not queue.for_actors and not queue.is_deferring:
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
            if state.accounts:
                better = first_waiting(state, queue)
        else:
            give(state, executor, 1, now)
            hungry.move_to_end(executor.id)
    return may_grow


def acquire(state: State, queue: Queue, now: int) -> Executor | None:
    """Hire one more executor for the queue; None if there is no room or it is not worth it.

    The present executors get the last calls, if one of them has just ended a call. Otherwise durations are not known.
    """
    is_spread = queue.where is not None and queue.where.spread  # then it is always worth it
    while queue.may_begin() and (source := find_source(state, queue)) is not None:
        if queue.near >= 0 and waits_for_near(state, queue, source, now):
            return None
        work_us = backlog_us(queue)
        can_wait = queue.executors and now < queue.progress_us + STUCK_US and not is_spread
        if can_wait and work_us < limits.HIRE_WORTH_US and any_is_free_soon(queue):
            state.alarms.set(queue, queue.progress_us + STUCK_US)
            return None
        node = node_of(source)
        chosen = gpu_pool.pick(node, queue, source.free) if queue.request.needs_gpu else None
        grant = take_gpus(queue.request, source.free, chosen) if chosen else take(queue.request, source.free)
        key = Key(queue.environment, queue.threads, tuple(id for id, _, _ in grant.gpus))
        idle = node.idle.get(key)
        others = gpu_pool.in_the_way(node, key, grant, idle)
        if idle and not others:
            executor = next(reversed(idle.values()))
            node.remove_idle(executor)
        elif can_wait and work_us < limits.FORK_WORTH_US and note_denied(queue) < limits.FORK_WORTH_US:
            give_back(grant, source.free)
            state.alarms.set(queue, queue.progress_us + STUCK_US)
            return None
        elif now < queue.forks_from_us:
            give_back(grant, source.free)
            state.alarms.set(queue, queue.forks_from_us)
            return None
        elif others:
            give_back(grant, source.free)
            if len(gpu_pool.still_awaited(state, queue)) >= len(queue.ready):
                return None
            queue.awaited.append(others)
            if not make_way(state, source, others):
                return None
            continue
        else:
            executor = start_executor(state, node, key, queue.ready[0].function.spec.imports)
            executor.forked_for = queue
            queue.denied_us = 0
            backoff.note_fork(queue, now)
        hire(state, queue, executor, source, grant, now)
        return executor
    return None


def acquire_any(state: State, queue: Queue, now: int) -> Executor | None:
    """Hire an executor for the first call of the queue, with the best alternative that has room.

    The call moves to the queue of that alternative.
    """
    for function in alternatives.in_order(state, queue, now):
        other = queue_at(state, function, queue.depth)
        if other is not queue:
            alternatives.move_first(queue, other)
            note_length(other)
        new = acquire(state, other, now)
        if new is not None:
            return new
        if other is not queue:
            alternatives.move_first(other, queue)
    return None


def any_is_free_soon(queue: Queue) -> bool:
    """Whether one of its executors has no more work than is sent ahead. Others may have calls that turned out long."""
    most_us = ahead_us(queue.ready[0].function)
    return any(one.load_us <= most_us for one in islice(queue.executors.values(), limits.VICTIMS_MAX))


def hire(state: State, queue: Queue, executor: Executor, source: Source, grant: Grant, now: int) -> None:
    """Let the executor serve the queue with this grant."""
    node = node_of(source)
    state.index.update(node)
    family = queue.family
    has_claimed = family.reserved or family.patience_us > limits.RESERVATION_US
    if has_claimed and (source.reserved_for is family or family.first() in (None, queue)):  # not by backfilling
        if family.reserved:
            end_reservation(state, family)
        family.patience_us = limits.RESERVATION_US
    if queue.where is not None and queue.where.spread:
        state.last_spread = node.number
    executor.grant = grant
    if queue.account is not None:
        executor.account, executor.charged = queue.account, queue.request
        queue.account.note(queue.request, 1)
    executor.source = source
    executor.queue = queue
    executor.progress_us = queue.progress_us = now
    queue.executors[executor.id] = executor


def make_way(state: State, source: Source, others: list[Executor]) -> bool:
    """End idle executors so that another gets their devices. They keep these until they are gone.

    Returns whether any devices become free. Executors that already end for another source return theirs to that source.
    """
    mine = [executor for executor in others if executor.grant is None or executor.source is source]
    for executor in mine:
        if executor.state != STOPPING:
            stop_idle(state, executor)
        executor.source = source
        executor.grant = gpu_pool.take_rest(executor, source.free)
    state.index.update(node_of(source))
    return bool(mine)


def backlog_us(queue: Queue) -> int:
    """The estimated work in the queue for each executor, with one more. Unknown durations count as worth a fork."""
    duration = queue.ready[0].function.duration_us
    if duration < 0:
        return limits.FORK_WORTH_US
    return len(queue.ready) * duration // (len(queue.executors) + 1)


def note_denied(queue: Queue) -> int:
    """Add the backlog of new calls for which no executor is forked. Returns the sum since the last fork.

    A backlog may be too small for a fork, and yet come back a thousand times. When the sum has reached the price of a
    fork, it is made: so the waits and the fork together cost at most twice as much as the better of the two would have
    (the ski rental problem). Calls that are not even worth a message do not count.
    """
    duration = queue.ready[0].function.duration_us
    new = sum(1 for _ in takewhile(lambda task: task.order > queue.denied_order, reversed(queue.ready)))
    if new:
        queue.denied_order = queue.ready[-1].order
        queue.denied_us += new * duration // (len(queue.executors) + 1) if duration >= limits.HIRE_WORTH_US else 0
    return queue.denied_us


def start_executor(
    state: State, node: Node, key: Key, imports: list[str], member: Membership | None = None
) -> Executor:
    """Fork an executor on the rank that is nearest to its devices, and among those has fewest executors.

    With `member`, fork a member of a gang on the rank that has the others.
    """
    rank = nearest_rank(node, key.gpu_ids) if member is None else state.ranks[member.agents[member.hosts[member.rank]]]
    process = Process(state.next_executor, rank.number, node, gpu_ids=key.gpu_ids)
    executor = Executor(state.next_executor, rank, key, node, process)
    state.next_executor += 1
    rank.executors[executor.id] = executor
    state.executors[executor.id] = executor
    state.add_client(executor.id, node, executor)
    effect = StartExecutor(
        executor.id, dict(key.environment), list(key.gpu_ids), key.threads, node.cpus,
        uuids=gpu_pool.uuids(node, key.gpu_ids), imports=imports, member=member,
    )  # fmt: skip
    state.to_rank(rank.number, effect)
    return executor


def nearest_rank(node: Node, gpu_ids: Sequence[int]) -> Rank:
    """The rank of a node that is nearest to these devices, and among those has fewest executors."""
    near = gpu_pool.nearest(node, gpu_ids)
    ranks = gpu_pool.ranks_for(node, gpu_ids)
    return min(ranks, key=lambda rank: (-near.get(rank.number, 0), len(rank.executors), rank.number))


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


def ahead_us(function: Function) -> int:
    """The work that is sent ahead to one executor. It must last until held-back ends of calls are reported."""
    return limits.LOCAL_QUEUE_US + 2 * function.spec.gather_us


def room_for(state: State, executor: Executor, task: Task) -> int:
    """The number of calls like this one that may be sent to the executor."""
    function = task.function
    assigned = len(executor.assigned)
    if executor.rank.node.is_full:  # waiting calls keep their arguments in memory
        return 0 if assigned else 1
    if not assigned:
        if function.duration_us < 0:
            return 1
        return max(1, min(limits.LOCAL_QUEUE_CALLS_MAX, ahead_us(function) // estimate_us(function)))
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
        if executor.asked_back or must_yield(state, executor, queue, better, now):
            continue
        room = room_for(state, executor, ready[0])
        if room > 0:
            give(state, executor, min(room, max(1, len(ready) // (len(hungry) + 1)), len(ready)), now)


def first_waiting(state: State, queue: Queue) -> Queue | None:
    """The waiting queue that goes before this one, if any, outside of placement groups or in the same group."""
    if not state.waiting:
        return None
    firsts = [family.first() for family in state.waiting if family.group == queue.group]
    rivals = [other for other in firsts if other is not None and other.may_begin()]
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
    if queue.account is not None and queue.account.is_overdrawn():
        return True
    kept_for = source.reserved_for
    if (
        kept_for is not None
        and kept_for is not queue.family
        and kept_for.priority >= queue.priority
        and kept_for.position() < queue.ready[0].order
        and not source.is_open_to(queue.request, queue, with_grant(source.free, executor))
    ):
        return True
    return better is not None and could_serve(executor, better)


def could_serve(executor: Executor, queue: Queue) -> bool:
    """Whether the executor's grant would help the queue."""
    source = executor.source
    if source.reserved_for is queue.family or queue.ranks:  # a gang needs more than this grant, and reserves it all
        return source.reserved_for is queue.family
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
    queue, grant = executor.queue, executor.grant
    assert queue is not None
    assert grant is not None
    assert not executor.assigned
    node = executor.rank.node
    give_back(grant, executor.source.free)
    state.index.update(node)
    state.freed = True
    executor.grant = None
    executor.discharge()
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


def executor_started(state: State, event: ExecutorStarted, now: int) -> None:
    """Note the process of an executor."""
    executor = state.executors.get(event.executor)
    if executor is not None:
        executor.process.pid = event.pid
        advance(state.stories, executor, STARTED)


def taken_back(state: State, executor: Executor, ids: list[bytes], now: int) -> None:
    """Put stolen calls back into their queues."""
    executor.asked_back = False
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

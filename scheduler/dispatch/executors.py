"""Which executor a queue gets: an idle one, a new one, or none, if one more is not worth it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from mpi_runtime.scheduler.dispatch import alternatives, backoff
from mpi_runtime.scheduler.dispatch.backfill import note_length
from mpi_runtime.scheduler.dispatch.fair_shares import use_of
from mpi_runtime.scheduler.dispatch.locality import waits_for_near
from mpi_runtime.scheduler.dispatch.queues import mark_dirty, queue_at
from mpi_runtime.scheduler.dispatch.reservations import end_reservation, stop_idle
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import find_source, sources
from mpi_runtime.scheduler.protocol import limits
from mpi_runtime.scheduler.protocol.effects import Membership, StartExecutor
from mpi_runtime.scheduler.protocol.events import ActorSpec
from mpi_runtime.scheduler.protocol.limits import ACTOR_PATIENCE_US, EXECUTORS_IN_A_ROW, STUCK_US
from mpi_runtime.scheduler.protocol.resources import Grant, give_back, take, take_gpus
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.lifecycle import STOPPING
from mpi_runtime.scheduler.records.parts import Key
from mpi_runtime.scheduler.records.records import Executor, Function, Node, Process, Queue, Rank, node_of
from mpi_runtime.scheduler.records.state import Client, State


def acquire(state: State, queue: Queue, now: int) -> Executor | None:
    """Hire one more executor for the queue; None if there is no room or it is not worth it.

    The present executors get the last calls, if one of them has just ended a call. Otherwise durations are not known.
    """
    while queue.may_begin() and (source := find_source(state, queue)) is not None:
        if queue.near >= 0 and waits_for_near(state, queue, source, now):
            return None
        work_us = backlog_us(queue)
        can_wait = queue.executors and now < queue.progress_us + STUCK_US and not queue.where.spread
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
            executor = start_executor(state, node, key, queue.ready[0].function)
            executor.forked_for = queue
            queue.denied_us = 0
            backoff.note_fork(queue, now)
        hire(state, queue, executor, source, grant, now)
        return executor
    return None


def acquire_without_cpu(state: State, queue: Queue, now: int) -> Executor | None:
    """Hire an executor for an actor that will hold no CPU, once it has waited for a free one; None: not now.

    The host or bundle must have the CPU, but not free.
    """
    task, stated = queue.ready[0], queue.request
    kind = task.function.spec.kind
    if not isinstance(kind, ActorSpec) or kind.held_cpu or not stated.cpu or queue.family.ranks:
        return None
    patient_until = max(queue.progress_us, task.submitted_us) + ACTOR_PATIENCE_US
    if now < patient_until:
        state.alarms.set(queue, patient_until)
        return None
    if any(source.total.cpu < stated.cpu for source in sources(state, queue.where)):
        return None
    queue.request = msgspec.structs.replace(stated, cpu=0)
    try:
        return acquire(state, queue, now)
    finally:
        queue.request = stated


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
            if other is not queue:
                mark_dirty(state, other)  # so that its alarm for late calls is set
            return new
        if other is not queue:
            alternatives.move_first(other, queue)
    return None


def any_is_free_soon(queue: Queue) -> bool:
    """Whether one of its executors has no more work than is sent ahead. Others may have calls that turned out long."""
    most_us = ahead_us(queue.ready[0].function)
    some = islice(queue.executors.values(), limits.VICTIMS_MAX)
    return any(one.load_us <= (limits.HIRE_WORTH_US if one.followers else most_us) for one in some)


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
    if queue.where.spread:
        state.last_spread = node.number
    executor.grant = grant
    executor.charge_to(queue.function.account, queue.request, use_of(state, queue.function))
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
    state: State, node: Node, key: Key, function: Function, member: Membership | None = None
) -> Executor:
    """Fork an executor for a function on the rank that is nearest to its devices, and among those has few executors.

    With `member`, fork a member of a gang on the rank that has the others.
    """
    driver = function.driver
    if member is None:
        rank = nearest_rank(state, node, key.gpu_ids)
    else:
        rank = state.ranks[member.agents[member.hosts[member.rank]]]
    process = Process(state.next_executor, rank.number, node, gpu_ids=key.gpu_ids)
    executor = Executor(state.next_executor, rank, key, node, process, driver=driver)
    state.next_executor += 1
    if driver is not None:
        driver.executors[executor.id] = executor
    rank.executors[executor.id] = executor
    state.executors[executor.id] = executor
    state.clients[executor.id] = Client(executor.id, node, executor, driver=driver)
    effect = StartExecutor(
        executor.id, dict(key.environment), list(key.gpu_ids), key.threads, node.cpus,
        uuids=gpu_pool.uuids(node, key.gpu_ids), imports=function.spec.imports, member=member,
    )  # fmt: skip
    state.to_rank(rank.number, effect)
    return executor


def nearest_rank(state: State, node: Node, gpu_ids: Sequence[int]) -> Rank:
    """The rank of a node that is nearest to these devices, and among those has few executors."""
    near = gpu_pool.nearest(node, gpu_ids)
    ranks = gpu_pool.ranks_for(node, gpu_ids)
    in_a_row = 1 if state.survives_losses else EXECUTORS_IN_A_ROW
    return min(ranks, key=lambda rank: (-near.get(rank.number, 0), len(rank.executors) // in_a_row, rank.number))


def ahead_us(function: Function) -> int:
    """The work that is sent ahead to one executor. It must last until held-back ends of calls are reported."""
    return limits.LOCAL_QUEUE_US + 2 * function.spec.gather_us

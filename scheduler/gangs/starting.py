"""Starts calls on gangs: takes an idle gang, or finds room for all members at once and forks them.

Nothing is held while a call waits, so gangs cannot block each other. A gang that does not fit reserves all the nodes
that it needs, for a time, as a placement group does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpi_runtime.scheduler.dispatch.backfill import note_length
from mpi_runtime.scheduler.dispatch.dependencies import assign
from mpi_runtime.scheduler.dispatch.dispatch import appoint
from mpi_runtime.scheduler.dispatch.executors import make_way, nearest_rank, start_executor
from mpi_runtime.scheduler.dispatch.fair_shares import use_of
from mpi_runtime.scheduler.dispatch.queues import await_room, stop_waiting
from mpi_runtime.scheduler.dispatch.reservations import claim, end_reservation, lapse
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import allows, reachable, sources, with_room
from mpi_runtime.scheduler.places.gang_places import in_order, spots
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import Membership
from mpi_runtime.scheduler.protocol.events import Call, cut
from mpi_runtime.scheduler.protocol.ids import ID_BYTES, PREFIX_BYTES, digest
from mpi_runtime.scheduler.protocol.limits import RESERVABLE_MAX, RESERVATION_US
from mpi_runtime.scheduler.protocol.resources import Grant, fits, give_back, take, take_gpus, times
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Source
from mpi_runtime.scheduler.records.lifecycle import READY
from mpi_runtime.scheduler.records.parts import Key
from mpi_runtime.scheduler.records.records import Executor, Gang, Queue, Task, node_of
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.values import objects


def serve(state: State, queue: Queue, now: int) -> bool:
    """Start the queue's calls while there are idle gangs or room. Returns whether one was started.

    With accounts or several drivers only one is started at a time.
    """
    queue.dirty = False
    note_length(queue)
    has_grown = False
    while queue.may_begin() and not (has_grown and state.by_turns):
        gang = take_idle(state, queue) or form(state, queue)
        if gang is None:
            break
        has_grown = True
        task = queue.ready.popleft()
        if queue.withdrawn:
            queue.tidy()
        begin(state, gang, queue, task, now)
    if queue.ready:
        await_room(state, queue)
        reserve(state, queue, now)
    elif queue.waits_at >= 0 or queue.family.reserved:
        stop_waiting(state, queue)
    return has_grown


def key_of(queue: Queue) -> tuple[object, ...]:
    """The fixed properties of the gangs that can run the queue's calls."""
    gang = queue.function.spec.gang
    assert gang is not None
    return (queue.request, queue.environment, queue.threads, queue.where, gang.shape)


# Idle gangs


def take_idle(state: State, queue: Queue) -> Gang | None:
    """Take the gang that became idle last and still fits; None: there is none."""
    for gang in reversed(list(state.idle_gangs.get(key_of(queue), {}).values())):
        if takes_again(state, gang, queue):
            state.forget_idle(gang)
            return gang
    return None


def takes_again(state: State, gang: Gang, queue: Queue) -> bool:
    """Have the members of an idle gang take their grants again, all or none. Returns whether they did."""
    taken = 0
    for source, grant in zip(gang.sources, gang.grants, strict=True):
        rest = Request(grant.cpu, 0, grant.memory, grant.custom)
        is_open = not source.is_closed() and source.is_open_to(queue.request, queue, source.free)
        free = source.free
        has_gpus = all(free.gpu_units[id] >= units for id, units, _ in grant.gpus)
        has_gpus = has_gpus and all(free.gpu_memory[id] >= memory for id, _, memory in grant.gpus if memory)
        if not (is_open and has_gpus and fits(rest, free)):
            break
        take_gpus(rest, free, grant.gpus)
        taken += 1
    else:
        for executor in gang.members:
            node = executor.rank.node
            node.remove_idle(executor)
            state.index.update(node)
        return True
    for source, grant in list(zip(gang.sources, gang.grants, strict=True))[:taken]:
        give_back(grant, source.free)
    return False


# New gangs


def room(state: State, queue: Queue) -> list[Source] | None:
    """The source of each member, if there is room for all of them now."""
    function, where, least = queue.ready[0].function, queue.where, queue.request
    gang = function.spec.gang
    assert gang is not None
    if not where.group and state.index.room(least, gang.ranks, gang.ranks_per_node or gang.ranks) < gang.ranks:
        return None  # the frequent case, and a cheap check
    if gang.ranks_per_node:
        least = times(least, gang.ranks % gang.ranks_per_node or gang.ranks_per_node)
    able = [one for one in with_room(state, least, where) if one.may_take(queue.request, queue) and allows(where, one)]
    there = in_order(able, where.spread)
    return spots(state, function, there, [one.free for one in there])


def form(state: State, queue: Queue) -> Gang | None:
    """Fork a gang for the queue's first call; None: there is no room now."""
    chosen = room(state, queue)
    if chosen is None:
        return None
    grants = [take(queue.request, source.free) for source in chosen]
    nodes = list(dict.fromkeys(map(node_of, chosen)))
    devices: dict[int, list[int]] = {node.number: [] for node in nodes}
    for source, grant in zip(chosen, grants, strict=True):
        own = devices[node_of(source).number]
        own += [id for id, _, _ in grant.gpus if id not in own]
    keys = {
        number: Key(queue.environment, queue.threads, tuple(sorted(ids)), state.next_gang)
        for number, ids in devices.items()
    }
    if ends_others(state, keys, chosen, grants):
        return None
    number, state.next_gang = state.next_gang, state.next_gang + 1
    places = {node.number: index for index, node in enumerate(nodes)}
    function = queue.ready[0].function
    spec = function.spec
    assert spec.gang is not None
    shape = Membership(
        gang=number,
        rank=0,
        hosts=[places[node_of(source).number] for source in chosen],
        names=[node.hostname for node in nodes],
        agents=[nearest_rank(state, node, keys[node.number].gpu_ids).number for node in nodes],
        starts_mpi=spec.gang.starts_mpi,
        processors=queue.threads if spec.gang.pins else 0,
    )
    gang = Gang(number, key_of(queue), [], chosen, grants, living=len(chosen), nodes=len(nodes))
    for rank, source in enumerate(chosen):
        node = node_of(source)
        member = msgspec.structs.replace(shape, rank=rank)
        executor = start_executor(state, node, keys[node.number], function, member)
        executor.gang, executor.gang_rank = gang, rank
        gang.members.append(executor)
        state.index.update(node)
    return gang


def ends_others(state: State, keys: dict[int, Key], chosen: Sequence[Source], grants: Sequence[Grant]) -> bool:
    """End idle executors that have devices of a new gang. If there are any, return the grants: the gang waits."""
    in_the_way: list[tuple[Source, list[Executor]]] = []
    for source, grant in zip(chosen, grants, strict=True):
        node = node_of(source)
        if any(node_of(other) is node for other, _ in in_the_way):
            continue
        others = gpu_pool.in_the_way(node, keys[node.number], grant, None)
        if others:
            in_the_way.append((source, others))
    if not in_the_way:
        return False
    for source, grant in zip(chosen, grants, strict=True):
        give_back(grant, source.free)
    for source, others in in_the_way:
        make_way(state, source, others)
    return True


def reserve(state: State, queue: Queue, now: int) -> None:
    """Reserve all nodes that the queue's first call needs, for a time."""
    family = queue.family
    if family.reserved or family.first() is not queue or not queue.may_begin() or now < family.no_reservation_until_us:
        return
    function, where = queue.ready[0].function, queue.where
    possible = sources(state, where)
    able = [one for one in possible if one.reserved_for is None or one.reserved_for.priority < family.priority]
    some = able[: max(RESERVABLE_MAX, 2 * function.spec.ranks)]  # of thousands of nodes a gang needs few
    for there in (some, able) if len(some) < len(able) else (able,):
        ordered = in_order(there, where.spread)
        chosen = spots(state, function, ordered, [reachable(one) for one in ordered])
        if chosen is not None:
            break
    else:
        return
    distinct = list(dict.fromkeys(chosen))
    for source in distinct:
        if source.reserved_for is not None:
            lapse(state, source.reserved_for, now)
    claim(state, family, distinct, now)


# Calls


def begin(state: State, gang: Gang, queue: Queue, task: Task, now: int) -> None:
    """Assign a call to all members of a gang that has its grants."""
    family = queue.family
    if family.reserved:
        end_reservation(state, family)
    family.patience_us = RESERVATION_US
    queue.progress_us = now
    gang.task, gang.due_us = task, NOTHING
    leader = gang.members[0]
    request, count = queue.request, len(gang.members)
    whole = msgspec.structs.replace(request, cpu=request.cpu * count, gpu=request.gpu * count)
    leader.charge_to(queue.function.account, whole, use_of(state, queue.function))
    gang.for_actor = queue.function.is_actor
    parts = [task, *(part(state, task, rank) for rank in range(1, len(gang.members)))]
    for executor, source, grant, one in zip(gang.members, gang.sources, gang.grants, parts, strict=True):
        executor.source, executor.grant = source, grant
        executor.progress_us = now
        assign(state, executor, one)
    if gang.for_actor:
        appoint(leader)


def follow(state: State, leader: Executor) -> None:
    """Send the parts of a method call that the leader of an actor's gang has been sent. There is one call at a time."""
    gang, task = leader.gang, leader.running()
    if gang is None or gang.task is not None or task is None or gang.cause:
        return
    gang.task, gang.due_us = task, NOTHING
    for rank, executor in enumerate(gang.members[1:], 1):
        one = part(state, task, rank)
        assign(state, executor, one)


def part(state: State, task: Task, rank: int) -> Task:
    """The part of a call that a member runs. It holds the arguments as the call does."""
    call, spec = task.call, task.function.spec
    arguments = cut(call, spec.ranks, rank)
    digest = call.digest if spec.by_rank else b""
    own = Call(part_id(call.id, rank), call.spec, call.payload, arguments, attempt=call.attempt, digest=digest)
    for id in arguments:
        objects.hold(state, id)
    return Task(own, task.function, task.client, task.depth, task.order, 0, task.submitted_us, READY, leader=task)


def part_id(id: bytes, rank: int) -> bytes:
    """The id of the part of a call that a rank runs. It is the id of no object."""
    derived = bytearray(digest(id + rank.to_bytes(4, "big"), ID_BYTES))
    derived[PREFIX_BYTES] &= 0x7F  # it is not one of several values: see `ids.py`
    return bytes(derived)

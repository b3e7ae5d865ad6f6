"""Assertions that hold between decisions: the comments on fields of the state, as code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mpi_runtime.scheduler.actors.calls import begins_at_once, being_brought, is_timed, line_of, out_of_order, room_for
from mpi_runtime.scheduler.actors.checkpoints import holds_back
from mpi_runtime.scheduler.gangs.starting import room
from mpi_runtime.scheduler.nodes.groups import find_spots
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.places.constraints import allows, sources
from mpi_runtime.scheduler.protocol.events import STRICT_PACK, STRICT_SPREAD
from mpi_runtime.scheduler.protocol.limits import DEPTH_MAX
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, pool_of
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.grant_sources import NOTHING, Source
from mpi_runtime.scheduler.records.lifecycle import READY, STOPPING
from mpi_runtime.scheduler.records.records import Bundle, Executor, Family, Node, Queue, Task, granted, node_of
from mpi_runtime.scheduler.records.state import State
from tests.checks import drivers, objects


def check(state: State) -> None:
    """Check the whole state, right after a decision.

    Raises:
        AssertionError: an assertion does not hold.
    """
    forgotten = state.woken or state.unreferenced_actors or state.called
    assert not forgotten, "a call or an actor was forgotten"
    assert not state.dirty, "a queue is dirty after a decision"
    assert not state.leads, "calls that may follow others were forgotten"
    assert not (state.freed and (state.waiting or state.waiting_groups)), "resources became free, without a decision"
    live = objects.tasks_under_way(state)
    queued = Counter([task.id for queue in state.queues.values() if queue.ready for task in ready_in(queue)])
    checks: tuple[tuple[dict[Any, Any], Callable[[State, Any], None]], ...] = (
        (state.nodes, check_node),
        (state.executors, check_executor),
        (state.queues, check_queue),
        (state.objects, objects.check_object),
    )
    for table, look in checks:
        for entry in table.values():
            look(state, entry)
    check_families(state)
    for task in live.values():
        objects.check_task(state, task)
        assert task.state != lifecycle.LOST or task in state.alarms, (
            f"call {task.id.hex()} is lost, and nobody runs it again"
        )
        in_queues = int(task.state == READY and not task.function.is_method)
        assert queued[task.id] == in_queues, f"call {task.id.hex()} is queued {queued[task.id]} times"
    assert queued.keys() <= live.keys(), "a call that has ended is queued"
    objects.check_references(state, live)
    objects.check_extents(state)
    objects.check_counts(state)
    objects.check_ended(state)
    check_names(state)
    check_groups(state)
    check_actors(state, live)
    objects.check_fetches(state)
    objects.check_spilling(state)
    objects.check_lineages(state)
    check_ranks(state)
    check_accounts(state)
    check_gangs(state)
    drivers.check(state, live)


def check_followers(executor: Executor) -> None:
    """Calls that were sent without arguments stand behind those that make them, or these have ended, or are here again.

    In the last case the calls that followed them are about to come back.
    """
    order = list(executor.assigned)
    for id, task in executor.followers.items():
        assert executor.assigned.get(id) is task, f"{id.hex()} follows, and is not assigned"
        assert task.has_followed, f"{id.hex()} follows, and does not know"
        for one in task.call.arguments:
            maker = executor.assigned.get(one)
            if maker is not None and not (maker.has_followed or maker.call.attempt):
                assert order.index(one) < order.index(id), f"{id.hex()} stands before what makes its argument"


def check_ranks(state: State) -> None:
    """Ranks, their nodes and their executors know each other; nothing is left of lost ranks."""
    known = [rank for node in state.nodes.values() for rank in node.ranks]
    assert sorted(rank.number for rank in known) == sorted(state.ranks), "ranks and those of nodes differ"
    assert not state.lost.keys() & state.ranks.keys(), "a rank is gone and there"
    for node in state.nodes.values():
        assert node.ranks, f"node {node.number} has no ranks"
        in_index = node.number in state.index._places
        assert in_index == node.hosts_executors, f"node {node.number} is found for calls, or is not, and should not"
    for executor in state.executors.values():
        is_known = state.ranks.get(executor.rank.number) is executor.rank
        assert is_known, f"executor {executor.id} is of a rank that is gone"
    for number, _ in state.extents:
        assert number in state.ranks, f"an object lies with rank {number}, which is gone"


def check_gangs(state: State) -> None:
    """A gang has all its members or ends; its members have a part of one call, all of them, and idle together."""
    gangs = {one.gang.number: one.gang for one in state.executors.values() if one.gang is not None}
    idle = {number: gang for same in state.idle_gangs.values() for number, gang in same.items()}
    assert idle.keys() <= gangs.keys(), "a gang idles without members"
    for number, gang in gangs.items():
        name = f"gang {number}"
        here = [executor for executor in gang.members if executor.id in state.executors]
        assert gang.living == len(here), f"{name} counts {gang.living} members, and has {len(here)}"
        if gang.cause:
            assert all(one.state == STOPPING for one in here), f"{name} ends, and not all its members do"
            assert number not in idle, f"{name} ends and idles"
            continue
        assert len(here) == len(gang.members), f"{name} has lost a member, and does not end"
        has_use = gang.task is not None or gang.for_actor
        assert has_use != (number in idle), f"{name} has no call and does not idle, or the reverse"
        for rank, executor in enumerate(gang.members):
            parts = list(executor.assigned.values())
            assert executor.gang_rank == rank, f"{name} has its members in another order than that of their ranks"
            is_brought = gang.for_actor and gang.task is None and not rank  # arguments of the next call
            assert is_brought or len(parts) == (gang.task is not None), f"{name}: rank {rank} has {len(parts)} calls"
            is_of_call = is_brought or all((part.leader or part) is gang.task for part in parts)
            assert is_of_call, f"{name}: rank {rank} has a part of another call"
            assert (executor.grant is not None) == has_use, f"{name}: rank {rank} has a grant while idle"


def check_accounts(state: State) -> None:
    """Accounts count the grants of their executors."""
    accounts = [account for one in state.drivers.values() for account in (one.use, *one.accounts.values())]
    for account in (*state.accounts.values(), state.use, *accounts):
        own = [
            (one, charge.request)
            for one in state.executors.values()
            for charge in (one.charge, one.share)
            if charge is not None and charge.account is account
        ]
        assert all(executor.grant is not None for executor, _ in own), f"account {account.name} pays for nothing"
        charged = [request for _, request in own]
        running = sum(not executor.blocked for executor, _ in own)
        sums = (running, sum(one.cpu for one in charged), sum(one.gpu for one in charged))
        counted = (account.running, account.cpu, account.gpu)
        assert sums == counted, f"account {account.name} counts {counted}, and it is {sums}"


def check_names(state: State) -> None:
    """Each name belongs to one actor, which takes calls."""
    for key, name in state.names.items():
        actor = state.actors[name.actor]
        assert actor.name == key, f"the name {key} is that of an actor which has another"
        assert actor.state in lifecycle.LIVING, f"the name {key} is that of an actor which has ended"
    for actor in state.actors.values():
        if actor.name is not None and actor.state in lifecycle.LIVING:
            known = state.names.get(actor.name)
            assert known is not None and known.actor == actor.id, f"actor {actor.id.hex()} has a name of another"


def check_node(state: State, node: Node) -> None:
    """Its grants and bundles add up, and other tables agree with it."""
    name = f"node {node.number}"
    bundles = [(bundle.grant, 0) for bundle in node.bundles]
    check_source(node, name, bundles + grants_of(node, node))
    for bundle in node.bundles:
        check_bundle(state, bundle)
    lost = node.pressure.keys() - {rank.number for rank in node.ranks}
    assert not lost, f"{name} is kept closed for its memory by ranks that are gone: {lost}"
    for key, group in node.idle.items():
        assert group, f"{name} remembers a kind of executors of which none idles"
        for executor in group.values():
            assert executor.key == key and executor.rank.node is node, f"executor {executor.id} idles elsewhere"
            is_out = gpu_pool.is_out(node, key.gpu_ids)
            assert not is_out, f"executor {executor.id} idles with a GPU that is quarantined"
            assert executor.grant is None, f"executor {executor.id} idles with a grant"
    free = node.free
    places = state.index._places.get(node.number)
    if places is not None:
        expected = {"CPU": free.cpu, **free.custom, **({"GPU": sum(free.gpu_units)} if free.gpu_units else {})}
        levels = {resource: level for resource, (level, _) in places.items()}
        assert levels == expected, f"{name}: the index says {levels}, free is {expected}"


def check_bundle(state: State, bundle: Bundle) -> None:
    """A bundle belongs to a group, or waits for the end of its last executor; its grants add up."""
    name = f"bundle {bundle.index} of group {bundle.group.hex()}"
    grants = grants_of(bundle, bundle.node)
    check_source(bundle, name, grants)
    granted = pool_of(bundle.grant, bundle.node.total)
    assert bundle.total == granted, f"{name} has {bundle.total}, and was granted {bundle.grant}"
    group = state.groups.get(bundle.group)
    assert (group is None) == bundle.removed, f"{name} was removed and its group was not, or the reverse"
    if group is None:
        assert grants, f"{name} was removed, nobody uses it, and the node has not got it back"
    else:
        assert group.bundles.get(bundle.index) is bundle, f"{name} is another for its group"
        assert group.specs[bundle.index].asks == group.requests[bundle.index], f"{name} is not what was asked for"


def grants_of(source: Source, node: Node) -> list[tuple[Grant, int]]:
    """The grants of a source, each with the lent CPU. The CPU that actors hold is right, too."""
    executors = granted(source)
    actor_cpu = sum(one.grant.cpu for one in executors if one.grant is not None and one.is_reduced)
    assert source.actor_cpu == actor_cpu, f"actors hold {actor_cpu} CPU units of {node.number}, not {source.actor_cpu}"
    return [(one.grant, one.lendable_cpu() * one.blocked) for one in executors if one.grant is not None]


def check_source(source: Source, name: str, grants: list[tuple[Grant, int]]) -> None:
    """Free and granted add up to the total, for every resource; blocked calls have lent their CPU."""
    free, total = source.free, source.total
    granted = Pool(0, 0, dict.fromkeys(total.custom, 0), [0] * len(total.gpu_units), [0] * len(total.gpu_units))
    for grant, lent in grants:
        granted.cpu += grant.cpu - lent
        granted.memory += grant.memory
        for resource, units in grant.custom:
            granted.custom[resource] += units
        for id, units, memory in grant.gpus:
            granted.gpu_units[id] += units
            granted.gpu_memory[id] += memory
    assert free.cpu + granted.cpu == total.cpu, f"{name}: CPU {free.cpu} free, {granted.cpu} granted of {total.cpu}"
    assert free.memory + granted.memory == total.memory and free.memory >= 0, f"{name}: memory does not add up"
    for id, units in enumerate(total.gpu_units):
        assert free.gpu_units[id] + granted.gpu_units[id] == units, f"{name}: GPU {id} does not add up"
        assert free.gpu_units[id] >= 0, f"{name}: GPU {id} is oversold"
    for id, memory in enumerate(total.gpu_memory):
        adds_up = free.gpu_memory[id] + granted.gpu_memory[id] == memory
        assert adds_up and free.gpu_memory[id] >= 0, f"{name}: memory of GPU {id} does not add up"
    for resource, units in total.custom.items():
        assert free.custom[resource] + granted.custom[resource] == units, f"{name}: {resource} does not add up"
        assert free.custom[resource] >= 0, f"{name}: {resource} is oversold"
    claimant = source.reserved_for
    if claimant is not None:
        assert any(one is source for one in claimant.reserved), f"{name} is kept for somebody who does not know"
        assert claimant.position() != NOTHING, f"{name} is kept for somebody who waits for nothing"


def check_groups(state: State) -> None:
    """A group waits, or all its bundles are on nodes by its strategy; nothing is left of removed groups."""
    for id, group in state.groups.items():
        name = f"group {id.hex()}"
        found = state.objects.get(id)
        assert found is not None and found.task is None, f"{name} has no object"
        assert found is not None
        is_placed = found.state != lifecycle.PENDING
        assert group.is_placed == (id not in state.waiting_groups), f"{name} is placed, but waits or the reverse"
        was_placed = is_placed and bool(state.lost)
        assert group.is_placed or was_placed or not group.bundles, f"{name}: some bundles are placed"
        assert is_placed or not group.bundles, f"{name} is placed, and its waiters do not know"
        for bundle in group.bundles.values():
            assert any(one is bundle for one in bundle.node.bundles), f"{name}: a bundle lies on no node"
        numbers = {bundle.node.number for bundle in group.bundles.values()}
        assert group.strategy != STRICT_PACK or len(numbers) <= 1, f"{name} lies on nodes {numbers}"
        assert group.strategy != STRICT_SPREAD or len(numbers) == len(group.bundles), f"{name} lies on nodes {numbers}"
        assert all(one.reserved_for is group for one in group.reserved), f"{name} has a reservation that no node knows"
        waits = not group.is_placed and find_spots(state, group) is not None
        assert not waits, f"{name} waits although there is room"
        assert group.name is None or state.group_names.get(group.name) == id, f"{name} has a name of another"
    assert state.waiting_groups.keys() <= state.groups.keys(), "a group waits that was removed"
    named = {group.id for group in state.groups.values() if group.name is not None}
    assert set(state.group_names.values()) == named, "a group that was removed has a name"


def check_executor(state: State, executor: Executor) -> None:
    """It is in exactly one place: idle, with a queue, an actor, or stopping; its calls refer to it."""
    name = f"executor {executor.id}"
    node = executor.rank.node
    check_followers(executor)
    assert executor.rank.executors.get(executor.id) is executor, f"{name} is unknown to its rank"
    assert executor.id in state.clients, f"{name} is not a client"
    idle = executor.id in node.idle.get(executor.key, {})
    gang = executor.gang
    works = gang is not None and executor.actor is None and (gang.task is not None or gang.for_actor)
    places = [idle, executor.queue is not None, executor.actor is not None, works]
    if executor.state == STOPPING and gang is not None:
        assert not any(places[:2]) and gang.cause, f"{name} stops, but its gang does not"
    elif executor.state == STOPPING and executor.actor is None:
        assert not any(places) and not executor.assigned, f"{name} stops, but is used"
    else:
        assert sum(places) == 1, f"{name} is in {sum(places)} places"
    is_killed = isinstance(executor.source, Bundle) and executor.source.removed
    is_killed = is_killed or (executor.state == STOPPING and gang is not None and executor.grant is not None)
    has_left = executor.driver is not None and executor.driver.has_left
    is_killed = is_killed or (executor.state == STOPPING and has_left and executor.grant is not None)
    has_use = works or executor.actor is not None or bool(executor.assigned) or is_killed
    keeps_devices = executor.state == STOPPING and bool(executor.key.gpu_ids)  # others wait for them
    has_grant = executor.grant is not None
    assert has_grant == has_use or keeps_devices, f"{name} has a grant and nothing to do, or the reverse"
    assert executor.grant is not None or executor.source is node, f"{name} has no grant, but a source"
    assert node_of(executor.source) is node, f"{name} has a grant of another node"
    assert executor.queue is None or allows(executor.queue.where, executor.source), f"{name} is not where it may be"
    for id, task in executor.assigned.items():
        assert task.id == id and task.executor is executor, f"{name}: call {id.hex()} belongs to another"
        assert task.state in lifecycle.ASSIGNED, f"{name}: assigned call {id.hex()} is in state {task.state}"
    if executor.actor is None:
        load_us = sum(task.estimate_us for task in executor.assigned.values())
        assert executor.load_us == load_us, f"{name}: load {executor.load_us}, and its calls are {load_us}"
        running = executor.running()
        for task in executor.assigned.values():
            is_blocked = executor.blocked and task is running
            assert (task.state == lifecycle.BLOCKED) == is_blocked, f"{name}: the wrong call is blocked"
    queue = executor.queue
    if queue is None:
        return
    usable = not executor.blocked and not executor.stuck
    assert (executor.id in queue.executors) == usable, f"{name}: usable {usable}, but its queue thinks otherwise"
    loaded = len(executor.assigned) > 1 and not executor.blocked
    assert (executor.id in queue.loaded) == loaded, f"{name}: loaded {loaded}, but its queue thinks otherwise"
    assert usable or executor.id not in queue.hungry, f"{name} is not usable, but its queue thinks it has room"


def ready_in(queue: Queue) -> list[Task]:
    """Its calls, without those that have ended."""
    return [task for task in queue.ready if task.state not in lifecycle.ENDED]


def check_queue(state: State, queue: Queue) -> None:
    """Its calls are ready and in the right queue; none waits that could be served."""
    assert not queue.dirty, "a queue is dirty after a decision"
    assert not queue.where.group or queue.where.group in state.groups, "a queue is left of a group that was removed"
    if queue.ready:
        check_ready(queue)
    else:
        assert not queue.withdrawn, f"no call in a queue has ended, and it counts {queue.withdrawn}"
    assert (queue.waits_at >= 0) == (bool(queue.ready) and not queue.is_late), (
        "a queue with calls is not waiting, or the reverse"
    )
    waits_at = queue.ready[0].order if queue.ready and not queue.is_late else -1
    assert queue.waits_at == waits_at, "a queue waits at the place of another call than its first"
    for executor in (*queue.executors.values(), *queue.hungry.values(), *queue.loaded.values()):
        assert executor.queue is queue, f"executor {executor.id} serves another queue"
    if queue.loaded:
        assert queue in state.alarms, "nobody will look for stuck executors of a queue"
    if queue.is_shut():
        return
    if queue.is_timed:
        own = all(task.function is queue.function for task in queue.ready)
        assert own, "a queue of one function has calls of others"
        is_seen = state.end_us is None or queue in state.alarms or queue.is_late or not queue.ready
        assert is_seen, "nobody will see that calls cannot finish in time any more"
    if queue.ready and not queue.is_late and state.stories.now < queue.forks_from_us:
        assert queue in state.alarms or not has_any_room(state, queue), "nobody will fork for a queue that waits for it"
    elif queue.ready and queue.family.ranks:
        awaited = any(executor.state == STOPPING and executor.key.gpu_ids for executor in state.executors.values())
        assert awaited or room(state, queue) is None, f"a gang for {queue.request} waits although it has room"
    elif queue.ready and not queue.is_late and not queue.executors and not gpu_pool.still_awaited(state, queue):
        is_patient = queue.near_from_us >= 0 and queue in state.alarms  # for the node with its arguments
        waits = not is_patient and has_any_room(state, queue)
        assert not waits, f"{len(queue.ready)} call(s) wait for {queue.request} although a node or bundle has room"


def check_ready(queue: Queue) -> None:
    """The calls of a queue have not been given to anybody, and could not be in another queue."""
    assert queue.ready[0].state == READY, "a queue begins with a call that has ended"
    ended = sum(task.state != READY for task in queue.ready)
    assert ended == queue.withdrawn, f"{ended} calls in a queue have ended, and it counts {queue.withdrawn}"
    known = all(task.state in (READY, *lifecycle.ENDED) for task in queue.ready)
    assert known, "a queue has calls that are neither ready nor ended"
    for task in ready_in(queue):
        assert task.queue is queue, f"call {task.id.hex()} is queued, and thinks that it is elsewhere"
        assert task.executor is None, f"call {task.id.hex()} is queued and given to an executor"
        assert task.function.spec.asks == queue.request, f"call {task.id.hex()} is in a queue for other requests"
        assert min(task.depth, DEPTH_MAX) == queue.depth, f"call {task.id.hex()} is in a queue of another depth"


def check_families(state: State) -> None:
    """Each family knows its waiting queues, in order."""
    waiting: dict[Family, list[Queue]] = {}
    for queue in state.queues.values():
        if queue.waits_at >= 0:
            waiting.setdefault(queue.family, []).append(queue)
    for family in state.families.values():
        check_family(state, family, waiting.get(family, []))


def check_family(state: State, family: Family, mine: list[Queue]) -> None:
    """A family knows its waiting queues, which are these, in order."""
    by_order = sorted(mine, key=lambda queue: queue.waits_at)
    assert family.by_order == by_order, "a family has other queues that wait, or in another order"
    by_length = sorted(mine, key=lambda queue: (queue.takes_us, queue.waits_at)) if family.has_limits else []
    assert family.by_length == by_length, "a family has its queues in another order of length"
    assert (family in state.waiting) == bool(mine), "a family waits without queues that do, or the reverse"
    assert all(one.reserved_for is family for one in family.reserved), "a reservation is not known to the node"
    assert bool(mine) or not family.reserved, "something is kept for calls that are not started any more"


def has_any_room(state: State, queue: Queue) -> bool:
    """Whether a call of the queue could be placed."""
    places = sources(state, queue.where)
    return queue.may_begin() and any(source.may_take(queue.request, queue) for source in places)


def check_actors(state: State, live: dict[bytes, Task]) -> None:
    """An actor is known as long as it runs or has handles; its calls wait in order."""
    for id, actor in state.actors.items():
        name = f"actor {id.hex()}"
        handle = state.objects.get(id)
        assert handle is not None or actor.state != lifecycle.DEAD, f"{name} is dead, without handles, and remembered"
        assert handle is None or handle.actor is actor, f"{name} has a handle of another"
        assert not actor.kept or actor.state != lifecycle.DEAD, f"{name} is dead and keeps arguments"
        if actor.state == lifecycle.ALIVE:
            executor = actor.executor
            assert executor is not None and executor.id in state.executors, f"{name} lives nowhere"
            assert executor is not None and executor.is_reduced, f"{name} was not made smaller after its creation"
        if actor.state in (lifecycle.RESTARTING, lifecycle.ENDING) and actor.executor is not None:
            assert actor.executor.state == STOPPING, f"{name} is to end or to restart, and its process is not"
        if actor.state == lifecycle.CREATING:
            assert actor.creation.id in live, f"{name} is being created by nobody"
        for (client, group, function), queue in actor.callers.items():
            assert queue, f"{name} has an empty queue of calls"
            ended = [task for task in queue if task.state in lifecycle.ENDED]
            assert len(ended) <= queue.ended, f"{name} has {len(ended)} calls that have ended, and counts fewer"
            assert queue[0].state not in lifecycle.ENDED, f"{name}: the first call of a line has ended"
            for task in queue:
                assert task.client == client and task.actor is actor, f"{name} has a call of another"
                assert task.function.spec.group == group, f"{name} has a call of another group"
                assert function in (0, task.function.spec.id), f"{name} has a call of another function"
                assert task.state in (lifecycle.WAITING, READY, lifecycle.STAGING, *lifecycle.ENDED), (
                    f"{name}: a call in state {task.state} is queued"
                )
            orders = [task.order for task in queue]
            assert out_of_order(actor) or orders == sorted(orders), f"{name}: calls of client {client} are out of order"
        is_asked = any(task.is_asked for queue in actor.callers.values() for task in queue)
        if (
            actor.state == lifecycle.ALIVE
            and actor.executor is not None
            and not is_asked
            and not actor.executor.asked_back
            and not holds_back(state, actor)
        ):
            waited_for = being_brought(actor, actor.executor) | {
                group
                for (_, group, _), queue in actor.callers.items()
                if is_timed(actor, queue[0].function) and not begins_at_once(actor, actor.executor, group)
            }
            behind = {line_of(actor, task) for task in actor.executor.followers.values()}
            for key, queue in actor.callers.items():
                group = key[1]
                may_send = queue[0].state == READY and room_for(actor, actor.executor, group) > 0 and key not in behind
                first = queue[0].function
                is_late = is_timed(actor, first) and first.spec.name in state.logs.once
                assert not may_send or is_late or group in waited_for, f"{name}: a call that could be sent is not"

"""Placement groups: bundles of resources that are reserved on nodes all at once or not at all.

A group waits until there is room for all its bundles. Waiting groups are tried in order of creation whenever resources
become free. The nodes that a group needs are reserved for it for a time, as for a large request. A placed bundle is a
source of grants like a node. The id of a group is the id of an object, which gets its value when the group is placed.
So calls and clients wait for a group as for any object.

The steps of removing a group:
1. The group is forgotten: its name is free, and its waiters get an error.
2. Calls that wait for the group, for arguments or in queues fail. Its queues are removed.
3. Executors that work in it are killed. Their calls fail and do not run again.
4. The resources of a bundle return to its node when its last executor is known to be gone.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from mpi_runtime.scheduler.actors import lifetimes
from mpi_runtime.scheduler.calls import tasks
from mpi_runtime.scheduler.dispatch.queues import clear, stop_waiting
from mpi_runtime.scheduler.dispatch.reservations import claim, end_reservation
from mpi_runtime.scheduler.log import descriptions, notes
from mpi_runtime.scheduler.places import packing
from mpi_runtime.scheduler.places.constraints import able, reachable, why_removed
from mpi_runtime.scheduler.protocol.amounts import is_in_order
from mpi_runtime.scheduler.protocol.effects import RANK_LOST, Answer
from mpi_runtime.scheduler.protocol.events import STRATEGIES, STRICT_SPREAD, GroupRequested, Label, Value
from mpi_runtime.scheduler.protocol.resources import Pool, copy_of, give_back, pool_of, take
from mpi_runtime.scheduler.records.grant_sources import Contender
from mpi_runtime.scheduler.records.lifecycle import ENDED, UNSEALED
from mpi_runtime.scheduler.records.records import Bundle, Executor, Node, granted
from mpi_runtime.scheduler.records.state import Client, Group, Object, State
from mpi_runtime.scheduler.values import call_ends, objects
from mpi_runtime.scheduler.values.message_checks import check_ids, require

REMOVED = "PlacementGroupRemovedError"
CAUSE = "ended because its placement group was removed"


def create(state: State, client: Client, event: GroupRequested, now: int) -> None:
    """Create a group for a client. Both the client and the group hold the object."""
    require(event.strategy in STRATEGIES, f"{event.strategy!r} is not a strategy")
    requests = [bundle.asks for bundle in event.bundles]
    require(all(map(is_in_order, requests)), "a bundle asks for custom resources that are not in order")
    require(not any(one.gpu_memory for one in requests), "a bundle asks for memory of GPUs, and has that of its GPUs")
    bundles = [bundle for node in state.nodes.values() for bundle in node.bundles]
    require(all(bundle.group != event.id for bundle in bundles), "a placement group with this id is ending")
    check_ids(state, event.id, 1)
    name = (event.namespace, event.name) if event.name else None
    if name is not None:
        taken = name in state.group_names
        state.to_client(client.id, Answer(event.request, msgspec.msgpack.encode(not taken)))
        if taken:
            return
        state.group_names[name] = event.id
    group = Group(
        id=event.id,
        requests=requests,
        strategy=event.strategy,
        data=event.data,
        order=state.submitted,
        name=name,
        specs=event.bundles,
    )
    driver = client.driver
    if driver is not None and not event.detached:
        group.driver = client.id if client.executor is None else driver.owner(client.executor)
        if group.driver:
            driver.groups[group.id] = None
            if driver.has_left:
                state.alarms.set(driver, now)
    look_at_nodes(state, group)
    state.groups[event.id] = state.waiting_groups[event.id] = group
    state.objects[event.id] = Object(event.id, client.id, 2)
    client.held[event.id] = None
    state.freed = True  # it is tried with the next decision


# Placing


def place_waiting(state: State, now: int) -> None:
    """Place the groups for which there is room now, and reserve nodes for the others."""
    for group in list(state.waiting_groups.values()):
        spots = find_spots(state, group)
        if spots is not None:
            place(state, group, spots)
        elif group.is_feasible:
            reserve(state, group, now)


def find_spots(state: State, group: Group) -> packing.Spots | None:
    """Where the missing bundles of a group can be placed now; None: not yet."""
    missing = [group.requests[index] for index in group.missing()]
    asks = Contender(group)
    most = 1 if group.strategy == STRICT_SPREAD else len(missing)
    if not group.is_feasible or any(
        state.index.room(request, count, most) < count or state.index.find(request, asks) is None
        for request, count in Counter(missing).items()
    ):
        return None  # the frequent case, and a cheap check
    return arrange(state, group, {node.number: node.free for node in able(state) if node.reserved_for in (None, group)})


def arrange(state: State, group: Group, pools: dict[int, Pool]) -> packing.Spots | None:
    """Where the missing bundles of a group would fit in these pools. After the loss of a node only some are missing."""
    missing = group.missing()
    if group.strategy == STRICT_SPREAD:
        taken = {bundle.node.number for bundle in group.bundles.values()}
        pools = {number: pool for number, pool in pools.items() if number not in taken}
    asked = [packing.Asked(group.requests[index], _allowed(state, group.specs[index].labels)) for index in missing]
    spots = packing.arrange(asked, group.strategy, pools)
    return None if spots is None else [(missing[position], number) for position, number in spots]


def _allowed(state: State, labels: tuple[Label, ...]) -> set[int] | None:
    """The nodes that match the labels of a bundle; None: it has none."""
    return {node.number for node in able(state, labels)} if labels else None


def look_at_nodes(state: State, group: Group) -> None:
    """Find out whether the present nodes could ever hold the group."""
    group.is_feasible = arrange(state, group, {node.number: node.total for node in able(state)}) is not None


def reserve(state: State, group: Group, now: int) -> None:
    """Reserve all nodes that the group needs, for a time. Otherwise small calls could take all that becomes free."""
    if group.reserved or now < group.no_reservation_until_us:
        return
    pools = {node.number: reachable(node) for node in able(state) if node.reserved_for is None}
    spots = arrange(state, group, pools)
    if spots is not None:
        claim(state, group, [state.nodes[number] for number in dict.fromkeys(number for _, number in spots)], now)


def place(state: State, group: Group, spots: packing.Spots) -> None:
    """Take the resources of all bundles, and inform waiters."""
    del state.waiting_groups[group.id]
    end_reservation(state, group)
    for index, number in spots:
        node = state.nodes[number]
        grant = take(group.requests[index], node.free)
        total = pool_of(grant, node.total)
        bundle = Bundle(total=total, free=copy_of(total), group=group.id, index=index, node=node, grant=grant)
        group.bundles[index] = bundle
        node.bundles.append(bundle)
        state.index.update(node)
    found = state.objects[group.id]
    if found.state in UNSEALED:
        objects.set_value(state, found, Value(group.data))


def lose_node(state: State, node: Node) -> None:
    """Have the bundles of a lost node placed again. Bundles of other nodes stay."""
    for bundle in node.bundles:
        give_back(bundle.grant, node.free)
        group = state.groups[bundle.group]
        del group.bundles[bundle.index]
        state.waiting_groups[group.id] = group
    node.bundles.clear()


def look_again(state: State, cause: str) -> None:
    """Remove groups that can never be placed, since nodes are lost: their calls would wait for ever."""
    for group in list(state.waiting_groups.values()):
        was_feasible = group.is_feasible or bool(group.bundles)
        look_at_nodes(state, group)
        if was_feasible and not group.is_feasible:
            why = f"{cause}, and what remains has no room for it"
            notes.log(state, notes.WARNING, RANK_LOST, f"placement group {group.id.hex()} is removed: {why}.")
            remove(state, group.id, why)


# Removing


def remove(state: State, id: bytes, cause: str = "") -> None:
    """Remove a group and all that runs in it. The steps are at the head of this file."""
    group = state.groups.pop(id, None)
    if group is None:
        return
    entry = descriptions.group_entry(group, "REMOVED", "REMOVED", cause or "It was removed.")
    state.logs.removed_groups.append(entry)
    state.waiting_groups.pop(id, None)
    end_reservation(state, group)
    if group.name is not None:
        del state.group_names[group.name]
    if group.driver:
        state.drivers[group.driver].groups.pop(id, None)
    found = state.objects[id]
    if found.state in UNSEALED:
        why = f": {cause}" if cause else ""
        why = f"Placement group {id.hex()} was removed before it was placed{why}."
        objects.fail(state, found, REMOVED, why.encode())
    objects.release(state, id)
    fail_all(state, group)
    end_actors(state, id)
    for bundle in group.bundles.values():
        bundle.removed = True
        if bundle.reserved_for is not None:
            end_reservation(state, bundle.reserved_for)
        for executor in granted(bundle):
            if executor.actor is None:
                stop(state, bundle, executor)
        drained(state, bundle)


def fail_all(state: State, group: Group) -> None:
    """Do step 2."""
    id = group.id
    for key, queue in list(state.queues.items()):
        if queue.where.group == id:
            clear(queue)
            stop_waiting(state, queue)
            del state.queues[key]
    for key in [key for key, family in state.families.items() if family.where.group == id]:
        del state.families[key]
    for function in group.functions:
        function.queues.clear()
    if all(one.submitted == one.done + one.failed for one in group.functions):
        return  # no call of them is open
    tasks_of_all = [found.task for found in state.objects.values() if found.task is not None]
    for task in [one for one in tasks_of_all if one.function.where.group == id]:
        if task.state not in ENDED and task.executor is None:
            tasks.fail(state, task, REMOVED, why_removed(state, task.function))


def end_actors(state: State, id: bytes) -> None:
    """Do step 3 for actors, also without a process."""
    for actor in list(state.actors.values()):
        if actor.creation.function.where.group == id:
            lifetimes.end(state, actor, CAUSE, force=True)


def stop(state: State, bundle: Bundle, executor: Executor) -> None:
    """Do step 3 for an executor of tasks."""
    tasks = executor.drop_all()
    if executor.queue is not None:
        executor.queue.forget(executor)
        executor.queue = None
    state.stop(executor, CAUSE, force=True)
    for task in tasks:
        executor.kept += [id for id in (*task.call.arguments, *task.call.holds) if objects.hold(state, id)]
        name, id = task.function.spec.name, bundle.group.hex()
        why = f"{name} was stopped: placement group {id}, in which it ran or was about to, has been removed."
        call_ends.fail(state, task, REMOVED, why)


def drained(state: State, bundle: Bundle) -> None:
    """Do step 4, if no executor is left in a bundle that was removed."""
    if not bundle.removed or granted(bundle):
        return
    node = bundle.node
    node.bundles.remove(bundle)
    give_back(bundle.grant, node.free)
    state.index.update(node)
    state.freed = True

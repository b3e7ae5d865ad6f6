"""What the job has: resources, nodes, names of actors and placement groups, and counts of everything."""

from __future__ import annotations

from itertools import islice

from mpi_runtime.scheduler.answers import listing
from mpi_runtime.scheduler.answers.why_waiting import why_group
from mpi_runtime.scheduler.log.descriptions import group_entry
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.entries import Amounts, Counts, GroupEntry, NodeEntry
from mpi_runtime.scheduler.protocol.events import RefusedError
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.questions import ActorName, NamedActorFound
from mpi_runtime.scheduler.protocol.resources import Pool
from mpi_runtime.scheduler.records.state import Group, State


def statistics(state: State) -> Counts:
    """Counts of everything, for tests, leaks and displays. Calls that raised count as failed."""
    return Counts(
        submitted=state.submitted,
        finished=state.finished,
        failed=state.failed,
        retried=state.retried,
        restarted=state.restarted,
        abandoned=state.totals.abandoned,
        objects=len(state.objects),
        actors=len(state.actors),
        placement_groups=len(state.groups),
        executors=len(state.executors),
        ready=sum(len(queue.ready) - queue.withdrawn for queue in state.queues.values()),
        stored_extents=len(state.extents),
    )


def _resources(pools: list[Pool]) -> Amounts:
    total: Amounts = {}
    for pool in pools:
        named = {"CPU": pool.cpu, "GPU": gpu_pool.in_use(pool, pool.gpu_units), **pool.custom}
        for name, units in named.items():
            total[name] = total.get(name, 0) + units
        for name, units in gpu_pool.types_out(pool).items():
            total[name] -= units
        gpu_memory = gpu_pool.in_use(pool, pool.gpu_memory)
        for name, amount_of in (("memory", pool.memory), ("gpu_memory", gpu_memory)):
            total[name] = total.get(name, 0) + amount_of * UNIT
    return {name: units / UNIT for name, units in total.items() if units > 0}


def cluster_resources(state: State) -> Amounts:
    """The resources of all nodes together."""
    resources = _resources([node.total for node in state.nodes.values()])
    resources["object_store_memory"] = float(sum(node.arena for node in state.nodes.values()))
    return resources


def available_resources(state: State) -> Amounts:
    """The free resources of all nodes together, without those of which nothing is free."""
    resources = _resources([node.free for node in state.nodes.values()])
    free = sum(node.arena for node in state.nodes.values()) - _stored_bytes(state)
    return {**resources, "object_store_memory": float(free)} if free > 0 else resources


def _stored_bytes(state: State) -> int:
    """The size of all copies of large values, without the overhead of the arena."""
    ids = dict.fromkeys(state.extents.values())
    found = [known for id in ids if (known := state.objects.get(id)) is not None]
    return sum(place.size for known in found if known.copies is not None for place in known.copies.values())


def nodes(state: State, id: bytes) -> list[NodeEntry]:
    """One entry for each node, or for the one with this id."""
    return [
        NodeEntry(
            id=node.id,
            is_alive=True,
            name=node.hostname,
            manager=node.hostname,
            address=node.address or node.hostname,
            resources=_resources([node.total]),
            available=_resources([node.free]),
            labels=node.labels,
            ranks=[rank.number for rank in node.ranks],
            cpus=node.cpus,
            cpu_limit=node.cpu_limit,
            gpus=gpu_pool.table(node),
            gpu_problems=node.gpu_problems,
            executors=len(node.executors()),
        )
        for node in listing.chosen(state.nodes, listing.number(id))
    ]


def node_of_rank(state: State, number: int) -> str:
    """The id of the node of a rank."""
    if number not in state.ranks:
        raise RefusedError(f"there is no rank {number}")
    return state.ranks[number].node.id


def named_actor(state: State, namespace: str, name: str) -> NamedActorFound | None:
    """The actor with this name, if there is one."""
    found = state.names.get((namespace, name))
    return None if found is None else NamedActorFound(found.actor, found.handle)


def named_actors(state: State) -> list[ActorName]:
    """The names of all actors that have one."""
    return [ActorName(namespace, name) for namespace, name in state.names]


def group(state: State, id: bytes | None) -> bytes | None:
    """The value of the object of a placement group, if it has not been removed."""
    found = state.groups.get(id) if id is not None else None
    return None if found is None else found.data


def groups(state: State, id: bytes, removed: int = 0) -> list[GroupEntry]:
    """One entry for each placement group, then the last removed ones, as many as wanted; or the one with this id."""
    found = [_group_entry(state, group) for group in listing.chosen(state.groups, id)]
    wanted = id.hex()
    others = (one for one in reversed(state.logs.removed_groups) if not id or one.placement_group_id == wanted)
    return found + list(islice(others, max(removed, 0)))


def _group_entry(state: State, group: Group) -> GroupEntry:
    now = "CREATED" if group.is_placed else "RESCHEDULING" if group.bundles else "PENDING"
    waiting = "NO_RESOURCES" if group.is_feasible else "INFEASIBLE"
    return group_entry(group, now, "FINISHED" if group.is_placed else waiting, why_group(state, group))

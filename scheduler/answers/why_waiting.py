"""Answers to questions about the state: nodes, free resources, and why a call does not run yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.answers import store_summary
from mpi_runtime.scheduler.dispatch import backoff, deadline, fair_shares, locality
from mpi_runtime.scheduler.log import history, listing, notes
from mpi_runtime.scheduler.places import constraints, gpu_pool
from mpi_runtime.scheduler.protocol.amounts import amount
from mpi_runtime.scheduler.protocol.effects import Answer
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER, Label, Query, RefusedError, Where
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX, UNIT
from mpi_runtime.scheduler.protocol.resources import Pool
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.grant_sources import Source
from mpi_runtime.scheduler.records.lifecycle import UNSEALED
from mpi_runtime.scheduler.records.records import ANYWHERE, Bundle, Executor, Task, node_of
from mpi_runtime.scheduler.records.state import Group, Object, State

READ_ONLY = (
    "Arrays of it that get() returns, or that are arguments, are read-only: all who read a large value read the same "
    "memory. get(ref, copy=True) gives arrays that may be written into; in a call, copy the argument."
)


def answer(state: State, query: Query, now: int) -> Answer:
    """The answer to a query, as msgpack, or the problem with the query."""
    function = QUERIES.get(query.what)
    value: Any
    try:
        if query.what == "explain":
            value = explain(state, query.id, now)
        elif query.what == "running":
            value = listing.running(state, now)
        elif function is not None:
            value = function(state, query.id)
        else:
            return Answer(query.request, b"", f"there is no question {query.what!r}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # the argument of some questions is msgpack too
        return Answer(query.request, b"", f"the argument of {query.what!r} cannot be read: {error}")
    return Answer(query.request, msgspec.msgpack.encode(value))


def _resources(pools: list[Pool]) -> dict[str, float]:
    total: dict[str, float] = {}
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


def cluster_resources(state: State, _: bytes) -> dict[str, float]:
    """The resources of all nodes together."""
    resources = _resources([node.total for node in state.nodes.values()])
    resources["object_store_memory"] = float(sum(node.arena for node in state.nodes.values()))
    return resources


def available_resources(state: State, _: bytes) -> dict[str, float]:
    """The free resources of all nodes together, without those of which nothing is free."""
    resources = _resources([node.free for node in state.nodes.values()])
    free = sum(node.arena for node in state.nodes.values()) - _stored_bytes(state)
    return {**resources, "object_store_memory": float(free)} if free > 0 else resources


def _stored_bytes(state: State) -> int:
    """The size of all copies of large values, without the overhead of the arena."""
    ids = dict.fromkeys(state.extents.values())
    found = [known for id in ids if (known := state.objects.get(id)) is not None]
    return sum(place.size for known in found if known.copies is not None for place in known.copies.values())


def nodes(state: State, id: bytes) -> list[dict[str, Any]]:
    """One entry for each node, or for the one with this id."""
    return [
        {
            "NodeID": node.id,
            "Alive": True,
            "NodeName": node.hostname,
            "NodeManagerHostname": node.hostname,
            "Resources": _resources([node.total]),
            "Available": _resources([node.free]),
            "Labels": node.labels,
            "ranks": [rank.number for rank in node.ranks],
            "cpus": node.cpus,
            "cpu_limit": node.cpu_limit,
            "gpus": gpu_pool.table(node),
            "gpu_problems": node.gpu_problems,
            "executors": len(node.executors()),
        }
        for node in listing.chosen(state.nodes, listing.number(id))
    ]


def node_of_rank(state: State, id: bytes) -> str:
    """The id of the node of the rank with this number."""
    number = int.from_bytes(id, "big")
    if number not in state.ranks:
        raise RefusedError(f"there is no rank {number}")
    return state.ranks[number].node.id


def named_actor(state: State, key: bytes) -> list[bytes] | None:
    """Id and handle of the actor with this namespace and name, if there is one."""
    namespace, name = msgspec.msgpack.decode(key, type=tuple[str, str])
    found = state.names.get((namespace, name))
    return None if found is None else [found.actor, found.handle]


def named_actors(state: State, _: bytes) -> list[tuple[str, str]]:
    """Namespace and name of every actor that has them."""
    return list(state.names)


def progress(state: State, _: bytes) -> tuple[int, int]:
    """The number of actors that have yet to save their state, and of records in the journal."""
    return checkpoints.unsaved(state), state.totals.recorded


def named_group(state: State, key: bytes) -> bytes | None:
    """The value of the object of the placement group with this namespace and name, if there is one."""
    namespace, name = msgspec.msgpack.decode(key, type=tuple[str, str])
    id = state.group_names.get((namespace, name))
    return None if id is None else state.groups[id].data


def group(state: State, id: bytes) -> bytes | None:
    """The value of the object of the placement group with this id, if it has not been removed."""
    found = state.groups.get(id)
    return None if found is None else found.data


def group_table(state: State, id: bytes) -> list[dict[str, Any]]:
    """One entry for each placement group, or for the one with this id."""
    return [_group_entry(state, group) for group in listing.chosen(state.groups, id)]


def _group_entry(state: State, group: Group) -> dict[str, Any]:
    waiting = "NO_RESOURCES" if group.is_feasible else "INFEASIBLE"
    return {
        "placement_group_id": group.id.hex(),
        "name": group.name[1] if group.name is not None else "",
        "bundles": [listing.required(request) for request in group.requests],
        "nodes": [group.bundles[i].node.id if i in group.bundles else "" for i in range(len(group.requests))],
        "strategy": group.strategy,
        "state": "CREATED" if group.is_placed else "RESCHEDULING" if group.bundles else "PENDING",
        "scheduling": "FINISHED" if group.is_placed else waiting,
        "why": _why_group(state, group),
    }


def _why_group(state: State, group: Group) -> str:
    described = [f"{request}{_on(spec.labels)}" for request, spec in zip(group.requests, group.specs, strict=True)]
    bundles = "; ".join(described[:EXPLAINED_MAX])
    if group.is_placed:
        hosts = [bundle.node.hostname for bundle in group.bundles.values()]
        return f"Its bundles are reserved on {', '.join(hosts[:EXPLAINED_MAX])}."
    asks = f"It asks for {len(group.requests)} bundle(s) ({bundles}) with strategy {group.strategy}."
    if group.is_feasible:
        return f"{asks} Free now: {_free(state)}."
    labels = f" Labels of nodes: {constraints.labels_of_nodes(state)}." if any(x.labels for x in group.specs) else ""
    return (
        f"{asks} It is infeasible: no arrangement was found even if nothing else ran.{labels} Remove it, and ask for "
        "less or start the job with more."
    )


def _on(labels: tuple[Label, ...]) -> str:
    return f" on a node with {constraints.in_words(labels)}" if labels else ""


def statistics(state: State, _: bytes) -> dict[str, int]:
    """Counts of everything, for tests, leaks and displays. Calls that raised count as failed."""
    return {
        "submitted": state.submitted,
        "finished": state.finished,
        "failed": state.failed,
        "retried": state.retried,
        "restarted": state.restarted,
        "abandoned": state.totals.abandoned,
        "objects": len(state.objects),
        "actors": len(state.actors),
        "placement_groups": len(state.groups),
        "executors": len(state.executors),
        "ready": sum(len(queue.ready) - queue.withdrawn for queue in state.queues.values()),
        "stored_extents": len(state.extents),
    }


def explain(state: State, id: bytes, now: int) -> dict[str, str]:
    """Why the call that makes this object has not ended, and the story of both."""
    story = state.stories.of(id)
    return {**_explain(state, id, now), **({"story": story} if story else {})}


def _explain(state: State, id: bytes, now: int) -> dict[str, str]:
    found = state.objects.get(id)
    if found is None:
        return {"state": "unknown", "why": "No such object: it was freed, or never existed."}
    task = found.task
    if id in state.waiting_groups:
        name = f"placement group {id.hex()}"
        return {"state": "pending", "name": name, "why": _why_group(state, state.waiting_groups[id])}
    if task is None:
        return {"state": lifecycle.OBJECT_STATE_NAMES[found.state], "why": _where_it_is(state, found)}
    return {
        "state": lifecycle.TASK_STATE_NAMES[task.state],
        "name": task.function.spec.name,
        "why": _why(state, task, now),
    }


def _where_it_is(state: State, found: Object) -> str:
    """The places of a value, and why its arrays are read-only."""
    if found.is_error or found.state in (lifecycle.ERROR, lifecycle.RUNTIME_ERROR):
        return "The value is there: an error, which get() raises."
    if found.state == lifecycle.INLINE:
        return f"The value is there. {READ_ONLY}"
    if found.state in UNSEALED:
        return "It has no value yet, and no call of this job is known to make it."
    if found.state == lifecycle.GONE:
        return "The process with its value could not be reached at the last attempt."
    copies = found.copies or {}
    hosts = [state.nodes[number].hostname for number in copies][:EXPLAINED_MAX]
    places = [f"in the shared memory of {', '.join(hosts)}"] if hosts else []
    if found.disk is not None:
        places.append(f"on a disk of {state.ranks[found.disk.rank].node.hostname}")
    size = next((notes.gib(place.size) for place in found.places()), "")
    return f"The value is there: {size}, {' and '.join(places)}. {READ_ONLY}"


def _why(state: State, task: Task, now: int) -> str:
    executor = task.executor
    if task.state == lifecycle.WAITING:
        missing = [id.hex() for id in task.call.arguments if state.objects[id].state in UNSEALED]
        group = state.waiting_groups.get(task.function.where.group)
        if group is not None:
            return f"It waits for placement group {group.id.hex()}: {_why_group(state, group)}"
        if task.is_asked and not missing:
            return "The journal is asked whether an earlier run has made its values."
        return f"It waits for {len(missing)} argument(s): {notes.listed(missing, EXPLAINED_MAX)}."
    if executor is not None:
        rank = executor.rank
        where = f"executor {executor.id} ({executor.stage}) on rank {rank.number} of {rank.node.hostname}"
        if executor.gang is not None:
            nodes = list(dict.fromkeys(one.rank.node.hostname for one in executor.gang.members))
            where = f"a gang of {len(executor.gang.members)} on {notes.listed(nodes, EXPLAINED_MAX)}: rank 0 is {where}"
        if task.state == lifecycle.BLOCKED:
            return f"It runs in {where} and waits for {_awaited(state, executor, now)}"
        if task.state == lifecycle.STAGING:
            return f"{task.missing} argument(s) are on their way to {where}: {_coming(state, task, rank.node.number)}."
        running = executor.running()
        if running is task and executor.waits_for:  # of an actor, which keeps its resources meanwhile
            return f"It runs in {where}, which waits for {_awaited(state, executor, now)}"
        if running is task:
            own = f" Its own scheduler has its calls: `mpi-runtime top {executor.pid}` on that host."
            return f"It runs in {where}.{own if task.function.spec.environment.get(OWN_SCHEDULER) == BRINGS else ''}"
        return f"It is with {where}, behind {running.function.spec.name if running else 'others'}."
    if task.function.is_method:
        assert task.actor is not None
        if task.actor.executor is None:
            creation = task.actor.creation
            later = _why(state, creation, now) if creation.executor is None else ""
            return f"Its actor is being created.{later and ' '}{later}"
        first = task.actor.callers[actor_calls.line_of(task.actor, task)][0]
        is_timed = first.state == lifecycle.READY and actor_calls.is_timed(task.actor, first.function)
        late = deadline.why_not(state, first.function, now) if is_timed else ""
        if late and first is not task:
            return f"It comes after a call of {first.function.spec.name} by the same caller. Of that: {late}"
        return late or "Its actor is busy with earlier calls."
    late = backoff.why(state, task, now) or deadline.why_not(state, task.function, now)
    if late:
        return late
    full = fair_shares.why_not(task.function.account)
    ranks = task.function.spec.ranks
    each = f" for each, at once, of all {ranks} members of a gang" if ranks else ""
    needs = (
        f"It needs {task.function.requests()}{each}{_place(task.function.where)}. {_free(state, task.function.where)}."
    )
    if ranks:
        return f"{full}{needs}"
    source = constraints.find_source(state, task.queue) if task.queue is not None else None
    near = locality.why(state, task, source, now)
    return f"{full}{needs}{near and ' '}{near}"


def _awaited(state: State, executor: Executor, now: int) -> str:
    """The values that the call of an executor waits for, and why the first of the missing ones is not there."""
    values = f"{notes.listed([id.hex() for id in executor.waits_for], EXPLAINED_MAX)}."
    missing = [known for id in executor.waits_for if (known := state.objects.get(id)) and known.state in UNSEALED]
    task = missing[0].task if missing else None
    if task is None or (task.executor is not None and task.executor.waits_for):  # one step, since waits may be deep
        return values
    return f"{values} Of {task.function.spec.name}: {_why(state, task, now)}"


def _coming(state: State, task: Task, number: int) -> str:
    """The sizes and sources of the copies that a call waits for."""
    coming = [(id, state.fetching.get(id, {}).get(number)) for id in dict.fromkeys(task.call.arguments)]
    words = []
    for id, fetching in coming:
        if fetching is None:
            continue
        size = notes.gib(next((place.size for place in state.objects[id].places()), 0))
        source = state.nodes.get(fetching.source_node)
        where = f"from {source.hostname}" if source is not None else "from disk"
        words.append(f"{size} {where if fetching.source is not None else 'that wait for a source'}")
    return notes.listed(words, EXPLAINED_MAX) or "they are about to be fetched"


def _place(where: Where) -> str:
    if where.group:
        which = "any bundle" if where.bundle < 0 else f"bundle {where.bundle}"
        return f" in {which} of placement group {where.group.hex()}"
    return _on(where.labels)


def _free(state: State, where: Where = ANYWHERE) -> str:
    """The free resources of the nodes or bundles that count."""
    found = list(constraints.sources(state, where)) if where is not ANYWHERE else list(state.nodes.values())
    free = [
        f"{_source_name(source)}: {amount(source.free.cpu)} CPU, {_free_gpus(source)}"
        + (" (kept for a larger request)" if source.reserved_for is not None else "")
        for source in found[:EXPLAINED_MAX]
    ]
    more = f" and {len(found) - EXPLAINED_MAX} more" if len(found) > EXPLAINED_MAX else ""
    return f"{'; '.join(free)}{more}"


def _free_gpus(source: Source) -> str:
    out = len(node_of(source).inventory.out)
    units = gpu_pool.in_use(source.free, source.free.gpu_units)
    return f"{amount(units)} GPU free" + f" ({out} quarantined)" * bool(out)


def _source_name(source: Source) -> str:
    hostname = node_of(source).hostname
    return f"bundle {source.index} on {hostname}" if isinstance(source, Bundle) else hostname


QUERIES: dict[str, Callable[[State, bytes], Any]] = {
    query.__name__: query
    for query in (
        cluster_resources, available_resources, nodes, node_of_rank, named_actor, named_actors, progress, group,
        named_group, group_table, statistics, listing.tasks, listing.actors, listing.objects, listing.workers,
        listing.late, history.history, history.report, store_summary.store,
    )
}  # fmt: skip
"""The questions, by the names of the functions that answer them."""

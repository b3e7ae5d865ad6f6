"""Answers to questions about the state: what there is, what is free, and why a call does not run yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mpi_runtime.scheduler import names, objects, tasks
from mpi_runtime.scheduler.effects import Answer
from mpi_runtime.scheduler.events import Query
from mpi_runtime.scheduler.limits import EXPLAINED_MAX, UNIT
from mpi_runtime.scheduler.resources import Pool, amount
from mpi_runtime.scheduler.state import State
from mpi_runtime.scheduler.tasks import Task


def answer(state: State, query: Query) -> Answer:
    """The answer to a query, as msgpack."""
    function = QUERIES.get(query.what)
    value = function(state, query.id) if function else {"error": f"unknown query {query.what!r}"}
    return Answer(query.request, msgspec.msgpack.encode(value))


def _resources(pools: list[Pool]) -> dict[str, float]:
    total: dict[str, float] = {}
    for pool in pools:
        named = {"CPU": pool.cpu, "GPU": sum(pool.devices), **pool.custom}
        for name, units in named.items():
            total[name] = total.get(name, 0) + units
        total["memory"] = total.get("memory", 0) + pool.memory * UNIT
    return {name: units / UNIT for name, units in total.items() if units > 0}


def cluster_resources(state: State, _: bytes) -> dict[str, float]:
    """What all nodes own together."""
    resources = _resources([node.total for node in state.nodes.values()])
    resources["object_store_memory"] = float(sum(node.arena for node in state.nodes.values()))
    return resources


def available_resources(state: State, _: bytes) -> dict[str, float]:
    """What is free on all nodes together. A name vanishes when nothing of it is free."""
    return _resources([node.free for node in state.nodes.values()])


def nodes(state: State, _: bytes) -> list[dict[str, Any]]:
    """One entry for each node."""
    return [
        {
            "NodeID": f"{node.host:032x}",
            "Alive": True,
            "NodeName": node.hostname,
            "NodeManagerHostname": node.hostname,
            "Resources": _resources([node.total]),
            "Available": _resources([node.free]),
            "ranks": [rank.number for rank in node.ranks],
            "cpus": node.cpus,
            "executors": sum(len(rank.executors) for rank in node.ranks),
        }
        for node in state.nodes.values()
    ]


def named_actor(state: State, key: bytes) -> list[bytes] | None:
    """Id and handle of the actor with this namespace and name, if there is one."""
    namespace, name = msgspec.msgpack.decode(key, type=tuple[str, str])
    found = names.look_up(state, (namespace, name))
    return None if found is None else [found.actor, found.handle]


def named_actors(state: State, _: bytes) -> list[tuple[str, str]]:
    """Namespace and name of every actor that has them."""
    return [key for key in list(state.names) if names.look_up(state, key) is not None]


def statistics(state: State, _: bytes) -> dict[str, int]:
    """Counts of everything, for tests, leaks and displays."""
    return {
        "submitted": state.submitted,
        "finished": state.finished,
        "failed": state.failed,
        "retried": state.retried,
        "objects": len(state.objects),
        "actors": len(state.actors),
        "executors": len(state.executors),
        "ready": sum(len(queue.ready) for queue in state.queues.values()),
        "stored_extents": len(state.extents),
    }


def explain(state: State, id: bytes) -> dict[str, str]:
    """Why the call that makes this object has not ended."""
    found = state.objects.get(id)
    if found is None:
        return {"state": "unknown", "why": "No such object: it was freed, or never existed."}
    task = found.task
    if task is None:
        return {"state": objects.STATE_NAMES[found.state], "why": "The value is there."}
    return {"state": tasks.STATE_NAMES[task.state], "name": task.function.spec.name, "why": _why(state, task)}


def _why(state: State, task: Task) -> str:
    executor = task.executor
    if task.state == tasks.WAITING:
        missing = [id.hex() for id in task.call.arguments if state.objects[id].state == objects.PENDING]
        more = f" and {len(missing) - EXPLAINED_MAX} more" if len(missing) > EXPLAINED_MAX else ""
        return f"It waits for {len(missing)} argument(s): {', '.join(missing[:EXPLAINED_MAX])}{more}."
    if executor is not None:
        rank = executor.rank
        where = f"executor {executor.id} (pid {executor.pid}) on rank {rank.number} of {rank.node.hostname}"
        if task.state == tasks.BLOCKED:
            return f"It runs in {where} and waits for {', '.join(id.hex() for id in executor.waits_for)}."
        if task.state == tasks.STAGING:
            return f"{task.missing} argument(s) are on their way to {where}."
        running = executor.running()
        if running is task:
            return f"It runs in {where}."
        return f"It is with {where}, behind {running.function.spec.name if running else 'others'}."
    if task.function.is_method:
        assert task.actor is not None
        return "Its actor is being created." if task.actor.executor is None else "Its actor is busy with earlier calls."
    free = [
        f"{node.hostname}: {amount(node.free.cpu)} CPU, {amount(sum(node.free.devices))} GPU free"
        + (" (kept for a larger request)" if node.reserved_for is not None else "")
        for node in state.nodes.values()
    ]
    more = f" and {len(free) - EXPLAINED_MAX} more nodes" if len(free) > EXPLAINED_MAX else ""
    return f"It needs {task.function.request}. {'; '.join(free[:EXPLAINED_MAX])}{more}."


QUERIES: dict[str, Callable[[State, bytes], Any]] = {
    "cluster_resources": cluster_resources,
    "available_resources": available_resources,
    "nodes": nodes,
    "named_actor": named_actor,
    "named_actors": named_actors,
    "statistics": statistics,
    "explain": explain,
}

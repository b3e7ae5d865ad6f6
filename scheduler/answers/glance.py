"""A summary of the running job, computed on request."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mpi_runtime.scheduler.answers.explain import available_resources, cluster_resources, statistics
from mpi_runtime.scheduler.log.listing import KINDS, busy_executors
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.records.lifecycle import BLOCKED
from mpi_runtime.scheduler.records.records import Executor, Node
from mpi_runtime.scheduler.records.state import State

RUNNING_MAX = 200
"""The most calls that are described: those that run longest."""
NODES_MAX = 64
FUNCTIONS_MAX = 50


def glance(state: State, now: int) -> dict[str, Any]:
    """Resources, running calls, and the load of nodes. The size is bounded."""
    busy = busy_executors(state)
    names = Counter(task.function.spec.name for executor in busy if (task := executor.running()) is not None)
    oldest = sorted(busy, key=lambda executor: (executor.progress_us, executor.id))
    counts = statistics(state, b"")
    open_calls = counts["submitted"] - counts["finished"] - counts["failed"]
    return {
        "job_us": now + state.wall_us,
        "counts": {**counts, "running": len(busy), "waiting": max(0, open_calls - len(busy))},
        "total": cluster_resources(state, b""),
        "free": available_resources(state, b""),
        "functions": sorted(names.items(), key=lambda one: (-one[1], one[0]))[:FUNCTIONS_MAX],
        "running": [_call(executor, now) for executor in oldest[:RUNNING_MAX]],
        "nodes": [_node(node) for node in list(state.nodes.values())[:NODES_MAX]],
        "nodes_in_all": len(state.nodes),
    }


def _call(executor: Executor, now: int) -> tuple[Any, ...]:
    task = executor.running()
    assert task is not None
    ranks = f" ({len(executor.gang.members)} ranks)" if executor.gang is not None else ""
    return (
        f"{task.function.spec.name}{ranks}",
        KINDS[task.function.spec.kind],
        task.state == BLOCKED,
        executor.rank.node.hostname,
        executor.rank.number,
        executor.pid,
        now - executor.progress_us,
    )


def _node(node: Node) -> tuple[str, float, float, int]:
    """Its name, its CPUs, the granted CPUs, and the number of its processes."""
    cpu = node.total.cpu
    used = max(0, cpu - node.free.cpu)
    return node.hostname, cpu / UNIT, used / UNIT, len(node.executors())

"""A summary of the running job, computed on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import nsmallest
from itertools import accumulate, islice, takewhile
from typing import TypeVar

import msgspec

from mpi_runtime.scheduler.answers.cluster import available_resources, cluster_resources, statistics
from mpi_runtime.scheduler.answers.listing import busy_executors, drivers
from mpi_runtime.scheduler.log import errors
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.entries import TASK_TYPES, Amounts
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.window_questions import BusyProcess, FunctionEntry, JobCounts, JobState, NodeLoad
from mpi_runtime.scheduler.records.lifecycle import BLOCKED
from mpi_runtime.scheduler.records.records import Executor, Node
from mpi_runtime.scheduler.records.state import State

RUNNING_MAX = 200
"""The most calls that are described: those that run longest."""
NODES_MAX = 256
DRIVERS_MAX = 50
FUNCTIONS_MAX = 50
SPECS_MAX = 5000
"""The most specs that are counted: a program may make one for each call."""
ERRORS_MAX = 30
BYTES_MAX = 45_000
"""The most bytes of each of the four lists."""
T = TypeVar("T")


def glance(state: State, now: int) -> JobState:
    """Resources, functions, running calls, kinds of errors, and the load of nodes. The size is bounded."""
    busy = busy_executors(state)
    names = Counter(task.function.spec.name for executor in busy if (task := executor.running()) is not None)
    oldest = sorted(busy, key=lambda executor: (executor.progress_us, executor.id))
    counts = statistics(state)
    open_calls = counts.submitted - counts.finished - counts.failed
    known = functions(state, names)
    return JobState(
        job_us=now + state.wall_us,
        end_us=0 if state.end_us is None else state.end_us + state.wall_us,
        counts=JobCounts(
            **{**msgspec.structs.asdict(counts), "failed": counts.failed - state.cancelled},
            cancelled=state.cancelled,
            running=len(busy),
            waiting=max(0, open_calls - len(busy)),
            ran=state.ran,
        ),
        total=_shared(cluster_resources(state)),
        free=_shared(available_resources(state)),
        functions=fitting(chosen(known), BYTES_MAX),
        functions_in_all=len(known),
        running=fitting((_busy(executor, now) for executor in oldest[:RUNNING_MAX]), BYTES_MAX),
        errors=fitting(errors.errors(state)[:ERRORS_MAX], BYTES_MAX),
        nodes=fitting((_node(node) for node in islice(state.nodes.values(), NODES_MAX)), BYTES_MAX),
        nodes_in_all=len(state.nodes),
        drivers=fitting(drivers(state, DRIVERS_MAX), BYTES_MAX // 3),
        drivers_in_all=len(state.drivers),
    )


def fitting(entries: Iterable[T], bytes_max: int) -> list[T]:
    """The first entries, as many as fit together: an answer has to fit the buffer of a Unix socket (about 200 kB)."""
    found = list(entries)
    sizes = accumulate(len(msgspec.msgpack.encode(one)) for one in found)
    return [one for one, _ in zip(found, takewhile(lambda size: size <= bytes_max, sizes), strict=False)]


def functions(state: State, running: Counter[str]) -> list[FunctionEntry]:
    """Counts for each name of a function: its specs together."""
    found: dict[str, FunctionEntry] = {}
    for function in islice(state.functions.values(), SPECS_MAX):
        name = function.spec.name
        one = found.get(name)
        if one is None:
            needs = "its actor" if function.is_method else str(function.spec.asks)
            kind = TASK_TYPES[function.spec.kind.number]
            found[name] = one = FunctionEntry(name=name, kind=kind, needs=needs, running=running[name])
        one.submitted += function.submitted
        one.done += function.done
        one.failed += function.failed - function.cancelled
        one.cancelled += function.cancelled
        one.mean_us = max(one.mean_us, function.duration_us)
    for one in found.values():
        one.waiting = max(0, one.submitted - one.ended - one.running)
    return list(found.values())


def chosen(functions: list[FunctionEntry]) -> list[FunctionEntry]:
    """The functions to show, those with most calls first: rather those that run, wait or have failed."""

    def is_quiet(one: FunctionEntry) -> bool:
        return not (one.running or one.waiting or one.failed)

    shown = nsmallest(FUNCTIONS_MAX, functions, key=lambda one: (is_quiet(one), -one.submitted, one.name))
    return sorted(shown, key=lambda one: (-one.submitted, one.name))


def _shared(amounts: Amounts) -> Amounts:
    """Without the resource that each node has by its own address: there may be thousands."""
    return {name: amount for name, amount in amounts.items() if not name.startswith("node:")}


def _busy(executor: Executor, now: int) -> BusyProcess:
    task = executor.running()
    assert task is not None
    ranks = f" ({len(executor.gang.members)} ranks)" if executor.gang is not None else ""
    own = " (own scheduler)" if task.function.spec.environment.get(OWN_SCHEDULER) == BRINGS else ""
    return BusyProcess(
        name=f"{task.function.spec.name}{ranks}{own}",
        kind=TASK_TYPES[task.function.spec.kind.number],
        is_blocked=task.state == BLOCKED,
        host=executor.rank.node.hostname,
        rank=executor.rank.number,
        pid=executor.pid,
        for_us=now - executor.progress_us,
        id=task.id.hex(),
        actor=executor.process.name,
        driver=task.driver,
    )


def _node(node: Node) -> NodeLoad:
    total, free = node.total, node.free
    gpus = gpu_pool.in_use(total, total.gpu_units)
    return NodeLoad(
        name=node.hostname,
        cpus=total.cpu / UNIT,
        cpus_used=max(0, total.cpu - free.cpu) / UNIT,
        gpus=gpus / UNIT,
        gpus_used=(gpus - gpu_pool.in_use(free, free.gpu_units)) / UNIT,
        memory=total.memory,
        memory_used=max(0, total.memory - free.memory),
        arena=node.arena,
        executors=len(node.executors()),
        is_closed=node.is_closed(),
        problems=node.gpu_problems[:4],
    )

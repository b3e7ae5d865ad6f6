"""Answers to programs of the same user that look at the running job through its window.

Each is bounded, whatever the job's size, and fits the buffer of a Unix socket (about 200 kB).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nlargest
from itertools import islice
from typing import TypeVar

import msgspec

from mpi_runtime.scheduler.answers import cluster, listing, store_summary, why_waiting
from mpi_runtime.scheduler.answers.summary import fitting
from mpi_runtime.scheduler.log import history, notes, value_moves
from mpi_runtime.scheduler.protocol.entries import DriverEntry, NodeEntry, NodeStore, TaskEntry
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX
from mpi_runtime.scheduler.protocol.past import PastMoves, PastRuns, Runs
from mpi_runtime.scheduler.protocol.window_questions import ErrorEntry, LargeValue, Listed, OldestCall, StoreState
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import Run

E = TypeVar("E")
ROWS_MAX = 200
"""The most entries of a list."""
RUNS_MAX = 400
"""The most ended calls of one answer: the last."""
BYTES_MAX = 150_000
"""The most bytes of one list in an answer."""


def runs(state: State, since: int) -> Runs:
    """The calls that have ended after the first `since` ones, at most `RUNS_MAX` of them, for a timeline."""
    count = min(state.ran - since, RUNS_MAX, len(state.history))
    found: list[Run] = list(islice(reversed(state.history), max(0, count)))
    last = fitting((history.short(run, state.wall_us) for run in found), BYTES_MAX)
    return Runs(state.ran, last[::-1])


def first(state: State, table: Mapping[bytes, object], entries: Callable[[State, bytes], list[E]]) -> Listed[E]:
    """The first entries of a list, and their number in all."""
    found = (entry for id in islice(table, ROWS_MAX) for entry in entries(state, id))
    return Listed(len(table), fitting(found, BYTES_MAX))


def first_nodes(state: State) -> Listed[NodeEntry]:
    """The first nodes."""
    found = (
        entry for number in islice(state.nodes, ROWS_MAX) for entry in cluster.nodes(state, number.to_bytes(16, "big"))
    )
    return Listed(len(state.nodes), fitting(found, BYTES_MAX))


def first_tasks(state: State) -> Listed[TaskEntry]:
    """Calls that have not ended: those that run, then the first of each queue."""
    ids = [task.id for executor in listing.busy_executors(state)[:ROWS_MAX] if (task := executor.running()) is not None]
    for queue in islice(state.queues.values(), ROWS_MAX):
        ids += [task.id for task in islice(queue.ready, 20)]
    open_calls = state.submitted - state.finished - state.failed
    chosen = list(dict.fromkeys(ids))[:ROWS_MAX]
    found = (entry for id in chosen for entry in listing.tasks(state, id))
    return Listed(open_calls, fitting(found, BYTES_MAX))


def first_drivers(state: State) -> Listed[DriverEntry]:
    """The first drivers of a session."""
    return Listed(len(state.drivers), fitting(listing.drivers(state, ROWS_MAX), BYTES_MAX))


def oldest(state: State, name: str, now: int) -> OldestCall:
    """Why the oldest waiting call of a function waits.

    Raises:
        LookupError: none of its calls is known to wait.
    """
    queues = [queue for queue in islice(state.queues.values(), 1000) if queue.ready]
    firsts = [task for queue in queues for task in islice(queue.ready, 50) if task.function.spec.name == name]
    waiting = [
        one for actor in islice(state.actors.values(), 1000) for line in actor.callers.values() for one in [*line][:1]
    ]
    firsts += [task for task in waiting if task.function.spec.name == name]
    if not firsts:
        firsts = [
            found.task
            for found in islice(state.objects.values(), 5000)
            if found.task is not None and found.task.executor is None and found.task.function.spec.name == name
        ]
    if not firsts:
        raise LookupError(f"no call of {name} waits")
    first = min(firsts, key=lambda task: task.order)
    found = why_waiting.explain(state, first.id, now)
    return OldestCall(id=first.id.hex(), state=found.state, name=found.name, why=found.why, story=found.story)


def store(state: State) -> StoreState:
    """The object store by node, the largest values, and what made them."""
    entries = store_summary.store(state)
    largest = [
        LargeValue(
            object_id=one.object_id,
            size=one.size,
            in_memory=one.in_memory,
            on_disk=one.on_disk,
            made_by=one.made_by,
            held_by=notes.listed(one.held_by, EXPLAINED_MAX),
            hostname=node.hostname,
        )
        for node in entries
        for one in node.largest
    ]
    by_function: dict[str, int] = {}
    for one in largest:
        name = one.made_by.partition(" (")[0] or "put"
        by_function[name] = by_function.get(name, 0) + one.size
    nodes = [NodeStore(*(getattr(one, name) for name in NodeStore.__struct_fields__)) for one in entries]
    return StoreState(
        count=len(state.objects),
        nodes=nlargest(ROWS_MAX, nodes, key=lambda node: node.used),
        used=sum(node.used for node in nodes),
        on_disk=sum(node.on_disk for node in nodes),
        capacity=sum(node.capacity for node in nodes),
        by_function=by_function,
        largest=nlargest(20, largest, key=lambda one: one.size),
    )


def traced(found: list[ErrorEntry]) -> list[ErrorEntry]:
    """Kinds of errors, with the tracebacks of the first ones, as many as fit together."""
    bare = [msgspec.structs.replace(one, trace="") for one in found]
    kept = len(fitting(found, BYTES_MAX - sum(len(msgspec.msgpack.encode(one)) for one in bare)))
    return [*found[:kept], *bare[kept:]]


def runs_from(state: State, number: int) -> PastRuns:
    """A part of the history, shortened until it fits: the next question begins where it ends."""
    found = history.part(state, number, RUNS_MAX)
    return msgspec.structs.replace(found, runs=fitting(found.runs, BYTES_MAX))


def moves_from(state: State, number: int) -> PastMoves:
    """A part of the moves, likewise."""
    found = value_moves.part(state, number, RUNS_MAX)
    return msgspec.structs.replace(found, moves=fitting(found.moves, BYTES_MAX))

"""Questions of programs of the same user that look at the running job through its window.

Each answer is bounded, whatever the job's size, and fits the buffer of a Unix socket (about 200 kB).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from itertools import islice
from typing import Any

import msgspec

from mpi_runtime.scheduler.answers import store_summary, summary, why_waiting
from mpi_runtime.scheduler.answers.summary import fitting
from mpi_runtime.scheduler.log import errors, history, listing, notes, value_moves
from mpi_runtime.scheduler.protocol.limits import EXPLAINED_MAX
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.scheduler.records.statistics import Run

ROWS_MAX = 200
"""The most entries of a list."""
RUNS_MAX = 400
"""The most ended calls of one answer: the last."""
BYTES_MAX = 150_000
"""The most bytes of one list in an answer."""


def runs(state: State, since: int, _: int) -> dict[str, Any]:
    """The calls that have ended after the first `since` ones, at most `RUNS_MAX` of them, for a timeline."""
    count = min(state.ran - since, RUNS_MAX, len(state.history))
    found: list[Run] = list(islice(reversed(state.history), max(0, count)))
    last = fitting((history.short(run, state.wall_us) for run in found), BYTES_MAX)
    return {"ran": state.ran, "runs": last[::-1]}


def rows(state: State, what: str, _: int) -> dict[str, Any]:
    """The first entries of a list, and their number in all."""
    table, entries = _LISTS[what]
    whole = table(state)
    ids = list(islice(whole, ROWS_MAX))
    return {"count": len(whole), "rows": fitting((entry for id in ids for entry in entries(state, id)), BYTES_MAX)}


def tasks(state: State, _: Any, now: int) -> dict[str, Any]:
    """Calls that have not ended: those that run, then the first of each queue."""
    ids = [task.id for executor in listing.busy_executors(state)[:ROWS_MAX] if (task := executor.running()) is not None]
    for queue in islice(state.queues.values(), ROWS_MAX):
        ids += [task.id for task in islice(queue.ready, 20)]
    open_calls = state.submitted - state.finished - state.failed
    chosen = list(dict.fromkeys(ids))[:ROWS_MAX]
    found = (entry for id in chosen for entry in listing.tasks(state, id))
    return {"count": open_calls, "rows": fitting(found, BYTES_MAX)}


def oldest(state: State, name: str, now: int) -> dict[str, str]:
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
    return {**why_waiting.explain(state, first.id, now), "id": first.id.hex()}


def store(state: State, _: Any, now: int) -> dict[str, Any]:
    """The object store by node, the largest values, and what made them."""
    nodes = store_summary.store(state, b"")
    largest = [
        {**one, "hostname": node["hostname"], "held_by": notes.listed(one["held_by"], EXPLAINED_MAX)}
        for node in nodes
        for one in node.pop("largest")
    ]
    by_function: dict[str, int] = {}
    for one in largest:
        name = one["made_by"].partition(" (")[0] or "put"
        by_function[name] = by_function.get(name, 0) + one["size"]
    return {
        "count": len(state.objects),
        "nodes": nlargest(ROWS_MAX, nodes, key=lambda node: node["used"]),
        "used": sum(node["used"] for node in nodes),
        "on_disk": sum(node["on_disk"] for node in nodes),
        "capacity": sum(node["capacity"] for node in nodes),
        "by_function": by_function,
        "largest": nlargest(20, largest, key=lambda one: one["size"]),
    }


def _traced(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kinds of errors, with the tracebacks of the first ones, as many as fit together."""
    bare = [{**one, "trace": ""} for one in found]
    kept = len(fitting(found, BYTES_MAX - sum(len(msgspec.msgpack.encode(one)) for one in bare)))
    return [*found[:kept], *bare[kept:]]


def _part(found: dict[str, Any], entries: str) -> dict[str, Any]:
    """A part of a history, shortened until it fits: the next question begins where it ends."""
    return {**found, entries: fitting(found[entries], BYTES_MAX)}


_LISTS: dict[str, tuple[Callable[[State], Any], Callable[[State, Any], list[dict[str, Any]]]]] = {
    "actors": (lambda state: state.actors, listing.actors),
    "objects": (lambda state: state.objects, listing.objects),
    "nodes": (lambda state: state.nodes, lambda state, number: why_waiting.nodes(state, number.to_bytes(16, "big"))),
    "groups": (lambda state: state.groups, why_waiting.group_table),
}
QUESTIONS: dict[str, Callable[[State, Any, int], Any]] = {
    "glance": lambda state, _, now: summary.glance(state, now),
    "runs": runs,
    "history": lambda state, first, _: _part(history.part(state, first, RUNS_MAX), "runs"),
    "moves": lambda state, first, _: _part(value_moves.part(state, first, RUNS_MAX), "moves"),
    "errors": lambda state, name, _: _traced(errors.errors(state, name)),
    "list": lambda state, what, now: tasks(state, what, now) if what == "tasks" else rows(state, what, now),
    "oldest": oldest,
    "store": store,
    "explain": lambda state, id, now: why_waiting.explain(state, bytes.fromhex(id), now),
}

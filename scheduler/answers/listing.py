"""Lists of calls, actors, objects, executors and placement groups.

With an id each gives that one entry, at the cost of one entry; with the empty id all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Literal, TypeVar

from mpi_runtime.scheduler.log.descriptions import actor_entry, required, worker_entry
from mpi_runtime.scheduler.protocol.entries import (
    TASK_TYPES,
    ActorEntry,
    DriverEntry,
    EnvironmentEntry,
    Holder,
    ObjectEntry,
    TaskEntry,
    WorkerEntry,
)
from mpi_runtime.scheduler.protocol.events import ActorSpec, MethodSpec, Spec
from mpi_runtime.scheduler.protocol.questions import LateCalls, LateFunction, RunningCall
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import BLOCKED, LOST, READY, SENT, STAGING, WAITING
from mpi_runtime.scheduler.records.records import Executor, Task
from mpi_runtime.scheduler.records.state import Client, Object, State

K = TypeVar("K")
T = TypeVar("T")
RUNNING_MAX = 1000
"""The most calls in the answer of `running`."""
WAITS = {
    WAITING: "PENDING_ARGS_AVAIL", READY: "PENDING_NODE_ASSIGNMENT", LOST: "PENDING_NODE_ASSIGNMENT",
    STAGING: "PENDING_ARGS_FETCH",
}  # fmt: skip
"""Ray's words for the states of calls that do not run."""


def chosen(table: Mapping[K, T], key: K | Literal[b""]) -> Iterable[T]:
    """The entry of a table with this key, if any; for an empty key all entries."""
    if key == b"":
        return table.values()
    return (table[key],) if key in table else ()


def number(id: bytes) -> int | Literal[b""]:
    """The number of an executor or a node, from its id."""
    return int.from_bytes(id, "big") if id else b""


def tasks(state: State, id: bytes) -> list[TaskEntry]:
    """Every call that has not ended, or the one with this id."""
    live = {found.task.id: found.task for found in chosen(state.objects, id) if found.task is not None}
    chosen_tasks = sorted(chosen(live, id), key=lambda task: task.order)  # the id may be that of a second value
    return [_task(state, task) for task in chosen_tasks]


def titles(spec: Spec, title: str) -> tuple[str, str]:
    """The name of a call, with the title of its actor, and that of its function, class or method, as in Ray."""
    if isinstance(spec.kind, ActorSpec):
        return f"{spec.name}.__init__", f"{spec.name}.__init__"
    if title and isinstance(spec.kind, MethodSpec) and not spec.code_name:
        return f"{title}.{spec.name.rpartition('.')[2]}", spec.name
    return spec.name, spec.code_name or spec.name


def _task(state: State, task: Task) -> TaskEntry:
    spec, executor = task.function.spec, task.executor
    name, code_name = titles(spec, task.actor.title if task.actor is not None else "")
    return TaskEntry(
        task_id=task.id.hex(),
        name=name,
        func_or_class_name=code_name,
        type=TASK_TYPES[spec.kind.number],
        state=_state(task),
        attempt_number=task.call.attempt,
        actor_id=task.actor.id.hex() if task.actor is not None else None,
        node_id=executor.rank.node.id if executor is not None else None,
        worker_id=f"{executor.id:032x}" if executor is not None else None,
        worker_pid=(executor.pid or None) if executor is not None else None,
        required_resources=required(task.function.spec.asks),
        parent_task_id=task.parent.hex() or None,
        error_type=None,
        error_message=None,
        creation_time_ms=(task.submitted_us + state.wall_us) // 1000,
        start_time_ms=None,
        end_time_ms=None,
        num_ranks=spec.ranks,
        driver=task.driver,
    )


def _state(task: Task) -> str:
    if task.state == BLOCKED:
        return "RUNNING_IN_RAY_GET"
    if task.state == SENT:
        assert task.executor is not None
        return "RUNNING" if _runs(task, task.executor) else "SUBMITTED_TO_WORKER"
    if task.function.is_method and task.state == READY:
        return "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
    return WAITS[task.state]


def _runs(task: Task, executor: Executor) -> bool:
    """Whether a sent call has begun: executors begin calls in the order of sending, in actors those of each group."""
    limits = executor.actor.spec.concurrency if executor.actor is not None else {}
    if not limits:
        return executor.running() is task
    group = task.function.spec.group
    limit = limits.get(group, 1)
    if len(executor.assigned) <= limit:
        return True
    same = (one for one in executor.assigned.values() if one.state != STAGING and one.function.spec.group == group)
    return any(one is task for one in islice(same, limit))


def actors(state: State, id: bytes, ended: int = 0) -> list[ActorEntry]:
    """Every actor that lives or has handles, then the last others, as many as wanted; or the one with this id."""
    found = [actor_entry(actor) for actor in chosen(state.actors, id)]
    wanted = id.hex()
    others = (one for one in reversed(state.logs.ended_actors) if not id or one.actor_id == wanted)
    return found + list(islice(others, max(ended, 0)))


def objects(state: State, id: bytes) -> list[ObjectEntry]:
    """Every object of the store, or the one with this id."""
    holders: dict[bytes, list[Holder]] = {}
    for client in state.clients.values():
        held = client.held if not id else (id,) if id in client.held else ()
        for one in held:
            holders.setdefault(one, []).append(_holder(client))
    return [
        ObjectEntry(
            object_id=found.id.hex(),
            state=lifecycle.OBJECT_STATE_NAMES[found.state],
            object_size=next((place.size for place in found.places()), len(found.data)),
            node_ids=_node_ids(state, found),
            is_spilled=found.disk is not None,
            reference_count=found.references,
            held_by=holders.get(found.id, []),
        )
        for found in chosen(state.objects, id)
        if found.actor is None
    ]


def _node_ids(state: State, found: Object) -> list[str]:
    """The nodes that have an object in an arena, and the node that has it on its disk."""
    ids = [state.nodes[number].id for number in found.copies or ()]
    if found.disk is not None and (own := state.ranks[found.disk.rank].node.id) not in ids:
        ids.append(own)
    return ids


def _holder(client: Client) -> Holder:
    if client.executor is not None:
        return Holder("WORKER", client.executor.pid, client.node.id)
    return Holder("DRIVER", client.driver.pid if client.driver is not None else 0, client.node.id)


def workers(state: State, id: bytes, ended: int = 0) -> list[WorkerEntry]:
    """Every executor, then the last ones that have ended, as many as wanted; or the one with this number."""
    found = [worker_entry(executor) for executor in chosen(state.executors, number(id))]
    wanted = id.hex()
    others = (one for one in reversed(state.logs.ended_workers) if not id or one.worker_id == wanted)
    return found + list(islice(others, max(ended, 0)))


def environments(state: State) -> list[EnvironmentEntry]:
    """The environments of the executors of each node."""
    counts = Counter((one.key.environment, one.rank.node.id) for one in state.executors.values())
    return [EnvironmentEntry(dict(pairs), node, count) for (pairs, node), count in counts.items()]


def busy_executors(state: State) -> list[Executor]:
    """The executors with a running call; of a gang only that of rank 0, which has the call."""
    return [one for one in state.executors.values() if one.running() is not None and not one.gang_rank]


def drivers(state: State, most: int | None = None) -> list[DriverEntry]:
    """The drivers of a session, the first ones."""
    running = Counter(task.driver for one in busy_executors(state) if (task := one.running()) is not None)
    return [
        DriverEntry(
            driver=one.number,
            program=one.program,
            pid=one.pid,
            state="LEFT" if one.has_left else "CONNECTED",
            joined_ms=(one.joined_us + state.wall_us) // 1000,
            open_calls=len(one.tasks),
            running_calls=running[one.number],
            actors=len(one.actors),
            detached_actors=len(one.detached_actors),
            groups=len(one.groups),
            executors=len(one.executors),
        )
        for one in islice(state.drivers.values(), most)
    ]


def running(state: State, now: int) -> list[RunningCall]:
    """The newest running calls."""
    found = []
    for executor in sorted(busy_executors(state), key=lambda one: (-one.progress_us, one.id))[:RUNNING_MAX]:
        task = executor.running()
        assert task is not None
        found.append(RunningCall(task.id, executor.rank.node.hostname, now - executor.progress_us))
    return found


def late(state: State) -> LateCalls:
    """The ready tasks that are too late to start: see `deadline.py`."""
    held = [(queue.function, queue.ready) for queue in state.queues.values() if queue.is_late]
    functions = [
        LateFunction(function.spec.name, len(ready), function.quickest_us) for function, ready in held if ready
    ]
    return LateCalls(functions, 0 if state.end_us is None else state.end_us + state.wall_us)

"""The present state of the job: lists of calls, actors, objects, processes, nodes and placement groups.

The names are those of Ray's state API. The last 10 000 attempts of calls that have ended are listed too.
A notebook shows the lists as tables.

    from mpi_runtime.util.state import list_tasks

    for task in list_tasks(filters=[("state", "=", "RUNNING")]):
        print(task.name, task.worker_pid)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from mpi_runtime.extend import ask, job_id
from mpi_runtime.scheduler.protocol.entries import (
    ActorEntry,
    GroupEntry,
    NodeEntry,
    NodeStoreEntry,
    ObjectEntry,
    TaskEntry,
    WorkerEntry,
    dictionaries,
)
from mpi_runtime.scheduler.protocol.limits import ENDED_MAX
from mpi_runtime.scheduler.protocol.questions import (
    Actors,
    Groups,
    Nodes,
    Objects,
    Question,
    Statistics,
    Store,
    Tasks,
    Workers,
)
from mpi_runtime.show.filters import Filter, filtered
from mpi_runtime.show.tables import Table

LIMIT = 100
_ID = re.compile("[0-9a-f]{32}")


class Entry(dict[str, Any]):
    """One entry of a list. A dictionary whose items are attributes too: `entry["name"]` or `entry.name`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r}; there are: {', '.join(self)}") from None

    def asdict(self) -> dict[str, object]:
        """Return a plain dictionary."""
        return dict(self)


def list_tasks(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List calls: those that have not ended, in the order of submission, then attempts that have, newest first.

    Keys: `task_id`, `name`, `func_or_class_name`, `type`, `state`, `attempt_number`, `actor_id`, `node_id`,
    `worker_id`, `worker_pid`, `required_resources`, `parent_task_id` (None: the driver), `job_id`, in sessions
    `driver`; of ended attempts also `error_type` and `error_message`, the times `creation_time_ms`, `start_time_ms`
    and `end_time_ms`; of calls on
    gangs also `num_ranks`, and the other keys are those of rank 0.

    Args:
        filters: conditions `(key, "=", value)` or `(key, "!=", value)`; all must hold. As in Ray, keys and strings are
            compared without case, and a string with what `str` makes of a value.
        limit: the largest number of entries, up to 10 000.

    Raises:
        ValueError: a filter is malformed, its key does not exist, or `limit` is too large.
    """
    _check_limit(limit)
    return _list(Tasks(ended=ENDED_MAX if filters else limit), TaskEntry, filters, limit)


def list_actors(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List actors that are alive or have a handle, then the last 1 000 others. For the arguments see `list_tasks`.

    Keys: `actor_id`, `class_name`, `state`, `name`, `repr_name`, `ray_namespace`, `node_id`, `pid`, `num_restarts`,
    `death_cause`, `pending_calls`, `required_resources`, `placement_group_id`, `is_detached`, `job_id`, `driver`. An
    actor that has died keeps its `name`, `pid` and `node_id`.
    """
    _check_limit(limit)
    return _list(Actors(ended=ENDED_MAX if filters else limit), ActorEntry, filters, limit)


def list_objects(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List values in the object store. For the arguments see `list_tasks`.

    Keys: `object_id`, `state`, `object_size` in bytes, `node_ids` (with a copy in shared memory or on disk),
    `is_spilled`, `reference_count`, and `held_by`, the processes with references to it: `worker_type`, `pid` (0: the
    program of rank 0), `node_id`.
    """
    return _list(Objects(), ObjectEntry, filters, limit)


def list_workers(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List executors: processes that run calls; then the last 1 000 that have ended. For arguments see `list_tasks`.

    Keys: `worker_id`, `pid`, `state`, `rank`, `node_id`, `actor_id`, `task_id`, `gpu_ids`, `assigned_resources`,
    `is_alive`, `worker_type`, and of those that have ended `exit_type`, `exit_detail` and `end_time_ms`.
    """
    _check_limit(limit)
    return _list(Workers(ended=ENDED_MAX if filters else limit), WorkerEntry, filters, limit)


def list_placement_groups(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List placement groups, then the last 1 000 that were removed. For the arguments see `list_tasks`.

    Keys: `placement_group_id`, `name`, `bundles`, `nodes`, `strategy`, `state`, `scheduling`, `why`.
    """
    _check_limit(limit)
    return _list(Groups(removed=ENDED_MAX if filters else limit), GroupEntry, filters, limit)


def list_nodes(filters: Sequence[Filter] = (), limit: int = LIMIT) -> Table[Entry]:
    """List the nodes of the job. For the arguments see `list_tasks`.

    Keys: `node_id`, `node_name`, `node_ip`, `is_head_node`, `state`, `resources_total`, `labels`.
    """
    _check_limit(limit)
    return Table(filtered([_node(one) for one in ask(Nodes())], _NODE_KEYS, filters, limit))


def get_task(id: str) -> Entry | None:
    """Find a call by its id; None if it is unknown. One that has ended is found among the last 10 000 attempts.

    Args:
        id: a `task_id`, or `ref.hex()` of the call's first return value.

    Raises:
        ValueError: `id` is not an id.
    """
    return _first(_entries(ask(Tasks(_bytes(id))), TaskEntry))


def get_actor(id: str) -> Entry | None:
    """Find an actor by its `actor_id`, as `get_task` does; None if it is unknown."""
    return _first(_entries(ask(Actors(_bytes(id), ended=1)), ActorEntry))


def get_node(id: str) -> Entry | None:
    """Find a node by its `node_id`, as `get_task` does; None if it is unknown."""
    return _first([_node(one) for one in ask(Nodes(_bytes(id)))])


def summarize_tasks() -> dict[str, Any]:
    """Count calls that have not ended by name and state, and calls that have ended since the job began."""
    totals = ask(Statistics())
    ended = {name: getattr(totals, name) for name in ("submitted", "finished", "failed", "retried")}
    return {"summary": _states((one.name, one.state) for one in ask(Tasks())), **ended}


def summarize_actors() -> dict[str, dict[str, int]]:
    """Count actors by class and state."""
    return _states((one.class_name, one.state) for one in ask(Actors()))


def _states(found: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for name, state in found:
        counts.setdefault(name, Counter())[state] += 1
    return {name: dict(states) for name, states in counts.items()}


def summarize_objects() -> dict[str, int]:
    """Count the values in the object store, and their bytes."""
    sizes = [found.object_size for found in ask(Objects())]
    return {"total_objects": len(sizes), "total_size_bytes": sum(sizes)}


def _node(node: NodeEntry) -> Entry:
    return Entry(
        node_id=node.id,
        node_name=node.name,
        node_ip=node.address,
        is_head_node=0 in node.ranks,
        state="ALIVE" if node.is_alive else "DEAD",
        resources_total=node.resources,
        labels=node.labels,
    )


_ADDED: dict[type[Struct], dict[str, Any]] = {
    TaskEntry: {"job_id": ""},
    ActorEntry: {"job_id": ""},
    WorkerEntry: {"worker_type": "WORKER"},
}
"""Further keys of Ray's. `job_id` is that of the driver."""
_NODE_KEYS = ("node_id", "node_name", "node_ip", "is_head_node", "state", "resources_total", "labels")


def _entries(found: Sequence[Struct], kind: type[Struct]) -> list[Entry]:
    added = _ADDED.get(kind, {})
    entries = [Entry(one, **added) for one in dictionaries(found)]
    for one in entries if "job_id" in added else ():
        one["job_id"] = job_id(one.get("driver", 0)).hex()
    return entries


def _list(
    question: Question[Sequence[Struct]], kind: type[Struct], filters: Sequence[Filter], limit: int
) -> Table[Entry]:
    _check_limit(limit)
    keys = (*kind.__struct_fields__, *_ADDED.get(kind, ()))
    return Table(filtered(_entries(ask(question), kind), keys, filters, limit))


def _check_limit(limit: object) -> None:
    if type(limit) is not int or not 0 <= limit <= ENDED_MAX:
        raise ValueError(f"limit must be a whole number from 0 to {ENDED_MAX}, not {limit!r}")


def _bytes(id: str) -> bytes:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ValueError(f"an id is a string of 32 hexadecimal digits, as the lists have it, not {id!r}")
    return bytes.fromhex(id)


def _first(entries: list[Entry]) -> Entry | None:
    return entries[0] if entries else None


def memory_summary() -> Table[Entry]:
    """List the content of the object store of each node. A notebook shows the list as a table.

    Keys, sizes in bytes: `node_id`, `hostname`; `capacity`, `used` and `objects` of shared memory; `on_disk` and
    `objects_on_disk`; `in_flight`, on the way into shared memory, from other nodes or from disk; `being_written` to
    disk; `wanted`, for which processes wait. `largest` lists the 20 largest values with `object_id`, `size`,
    `in_memory`, `on_disk`, `made_by` and `held_by`: processes with references, and calls with it as an argument.
    `made_by` is the line that has put it, such as "app.py:12 in main", or the function that has returned it, with its
    first line, "load (app.py:5)"; empty if not known.
    """
    return Table(_entries(ask(Store()), NodeStoreEntry))

"""`ray.util.state`: the lists of `mpi_runtime.util.state`, by functions with the arguments of Ray's, in their order.

`timeout`, `detail`, `raise_on_missing_output` and `_explain` have no effect: the answer arrives at once, and is always
complete. Summaries have the form of Ray's, in which all nodes are under "cluster".
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from mpi_runtime import ObjectRef, get_runtime_context
from mpi_runtime.extend import ask, job, scratch
from mpi_runtime.scheduler.protocol.entries import ObjectEntry, WorkerEntry
from mpi_runtime.scheduler.protocol.limits import ENDED_MAX
from mpi_runtime.scheduler.protocol.questions import Environments
from mpi_runtime.show.filters import Filter, filtered
from mpi_runtime.show.tables import Table
from mpi_runtime.util import state
from mpi_runtime.util.state import LIMIT, Entry


class RayStateApiException(ValueError):
    """The question is refused: a key, a limit or an id is wrong."""


class ServerUnavailable(RayStateApiException):
    """Ray's server of lists is away. Never raised here: the job answers."""


class DataSourceUnavailable(Exception):
    """A part of Ray's cluster is away. Never raised here."""


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RayStateApiException(str(error)) from None


P = ParamSpec("P")
T = TypeVar("T")


def check_address(address: str | None) -> None:
    """Refuse the address of a cluster."""
    if address not in (None, "local", "auto"):
        raise ValueError(f"address={address!r}: an MPI job has no address. Omit it: the lists are of this job.")


def _called(function: Callable[P, T], like: Callable[..., T]) -> Callable[P, T]:
    """Give the function the name and the docstring of another; not its signature."""
    function.__name__ = function.__qualname__ = like.__name__
    function.__doc__ = like.__doc__
    return function


_WHETHER = ("is_alive", "is_head_node")
"""Keys whose values are true or false."""


def _check_values(filters: Sequence[Filter]) -> None:
    """Refuse a value that no entry can have, as Ray does."""
    for key, _, value in filters:
        if key in _WHETHER and str(value).lower() not in ("0", "1", "false", "true"):
            raise ValueError(f"{key!r} is True or False, not {value!r}")
        if key == "attempt_number" and not str(value).isdecimal():
            raise ValueError(f"{key!r} is a whole number, not {value!r}")
        if key == "state" and not isinstance(value, str):
            raise ValueError(f"{key!r} is a word, not {value!r}")


def _listing(entries: Callable[[Sequence[Filter], int], T]) -> Callable[..., T]:
    def listing(
        address: str | None = None,
        filters: Iterable[Filter] | None = None,
        limit: int = LIMIT,
        timeout: float | None = None,
        detail: bool = True,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> T:
        check_address(address)
        chosen = [tuple(one) for one in filters or ()]
        if any(len(one) != 3 or one[1] not in ("=", "!=") for one in chosen):
            raise ValueError(f"filters must be (key, '=' or '!=', value), not {filters!r}")
        with _refusing():
            _check_values(chosen)
            return entries(chosen, limit)

    return _called(listing, entries)


_OF_RAY = re.compile("(?![0-9a-f]{32}$)([0-9a-f]{2}){14,}")
"""Ids that only Ray has: longer or shorter than those of this runtime."""


def _finding(find: Callable[[str], T]) -> Callable[..., T | None]:
    def finding(
        id: str | ObjectRef[object], address: str | None = None, timeout: float | None = None, _explain: bool = False
    ) -> T | None:
        check_address(address)
        wanted = id.task_id().hex() if isinstance(id, ObjectRef) else id
        if isinstance(wanted, str) and _OF_RAY.fullmatch(wanted):
            return None
        with _refusing():
            return find(wanted)

    return _called(finding, find)


def _counts(found: Iterable[dict[str, Any]], by: str, facts: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Count entries by a name of theirs and by state."""
    counts: dict[str, dict[str, Any]] = {}
    for one in found:
        states = counts.setdefault(one[by], {**facts(one), "state_counts": {}})["state_counts"]
        states[one["state"]] = states.get(one["state"], 0) + 1
    return counts


def summarize_tasks(
    address: str | None = None,
    timeout: float | None = None,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Count calls by name and state: those that have not ended, and the last 10 000 attempts that have."""
    found = list_tasks(address, limit=ENDED_MAX)
    kinds = Counter(one.type for one in found)
    return _whole(
        _counts(found, "name", lambda one: {"func_or_class_name": one["name"], "type": one["type"]}),
        total_tasks=kinds["NORMAL_TASK"],
        total_actor_tasks=kinds["ACTOR_TASK"],
        total_actor_scheduled=kinds["ACTOR_CREATION_TASK"],
        summary_by="func_name",
    )


def summarize_actors(
    address: str | None = None,
    timeout: float | None = None,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Count actors by class and state."""
    found = list_actors(address, limit=ENDED_MAX)
    counts = _counts(found, "class_name", lambda one: {"class_name": one["class_name"]})
    return _whole(counts, total_actors=len(found), summary_by="class")


def summarize_objects(
    address: str | None = None,
    timeout: float | None = None,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Count the entries of `list_objects`, and their size. By which calls they were made is not counted."""
    found = list_objects(address, limit=ENDED_MAX)
    total = {
        "total_objects": len(found),
        "total_size_mb": sum(one.object_size for one in found) / 1024**2,
    }
    facts = {
        **total,
        "total_num_workers": len({one.pid for one in found}),
        "total_num_nodes": len({one.ip for one in found}),
        "task_state_counts": {},
        "task_attempt_number_counts": {},
        "ref_type_counts": dict(Counter(one.reference_type for one in found)),
    }
    counts = {"disabled": facts} if found else {}
    return _whole(counts, **total, callsite_enabled=False, summary_by="callsite")


def _whole(summary: dict[str, Any], **facts: object) -> dict[str, Any]:
    return {"cluster": {"summary": summary, **facts}}


@_listing
def list_placement_groups(filters: Sequence[Filter], limit: int) -> Table[Entry]:
    """List placement groups, also those that were removed, with the ids and nodes of their bundles."""
    found = state.list_placement_groups(filters, limit)
    for one in found:
        amounts = zip(one.bundles, one.nodes, strict=True)
        one["bundles"] = [
            {
                "bundle_id": {"placement_group_id": one.placement_group_id, "bundle_index": index},
                "unit_resources": resources,
                "node_id": node,
            }
            for index, (resources, node) in enumerate(amounts)
        ]
    return found


def _addresses() -> dict[str, str]:
    """The addresses of the nodes, by their ids."""
    return {one.node_id: one.node_ip for one in state.list_nodes(limit=ENDED_MAX)}


def _drivers_pid() -> int | None:
    """The process of the driver; None: another process asks."""
    return os.getpid() if job().executor is None else None


_OF_REFERENCES = ("pid", "ip", "type", "reference_type", "call_site")


@_listing
def list_objects(filters: Sequence[Filter], limit: int) -> Table[Entry]:
    """List the values in the object store: an entry for each process with a reference, as in Ray."""
    places, found = _addresses(), []
    for one in state.list_objects(limit=ENDED_MAX):
        for held in one.held_by:
            own = (held["pid"] or _drivers_pid(), places.get(held["node_id"]), held["worker_type"], "LOCAL_REFERENCE")
            found.append(Entry(one, **dict(zip(_OF_REFERENCES, (*own, "disabled"), strict=True))))
        if not one.held_by:  # calls and other values hold it
            own = (None, None, None, "USED_BY_PENDING_TASK")
            found.append(Entry(one, **dict(zip(_OF_REFERENCES, (*own, "disabled"), strict=True))))
    return Table(filtered(found, (*ObjectEntry.__struct_fields__, *_OF_REFERENCES), filters, limit))


@_listing
def list_workers(filters: Sequence[Filter], limit: int) -> Table[Entry]:
    """List the driver and the executors."""
    places, head = _addresses(), next(one for one in state.list_nodes(limit=ENDED_MAX) if one.is_head_node)
    keys = (*WorkerEntry.__struct_fields__, "worker_type")
    is_driver = job().executor is None
    driver = Entry(
        dict.fromkeys(keys),
        worker_id=get_runtime_context().get_worker_id() if is_driver else f"{0:032x}",
        pid=_drivers_pid(), state="RUNNING", node_id=head.node_id, is_alive=True, end_time_ms=0,
        worker_type="DRIVER",
    )  # fmt: skip
    found = [driver, *state.list_workers(limit=ENDED_MAX)]
    rows = [Entry(one, ip=places.get(one.node_id)) for one in found]
    return Table(filtered(rows, (*keys, "ip"), filters, limit))


@_listing
def list_jobs(filters: Sequence[Filter], limit: int) -> Table[Entry]:
    """List the one job there is: this one."""
    one = Entry(
        job_id=get_runtime_context().get_job_id(),
        submission_id=None,
        type="DRIVER",
        status="RUNNING",
        entrypoint=shlex.join(sys.orig_argv) if job().executor is None else None,
        driver_info={"id": get_runtime_context().get_job_id(), "pid": _drivers_pid()},
    )
    return Table(filtered([one], tuple(one), filters, limit))


def get_job(id: str, address: str | None = None, timeout: float | None = None) -> Entry | None:
    """Find a job by its `job_id`: this one, or None."""
    return next(iter(list_jobs(address, [("job_id", "=", id)])), None)


@_listing
def list_runtime_envs(filters: Sequence[Filter], limit: int) -> Table[Entry]:
    """List the environments of living executors by node: `ref_cnt` executors have each. Empty ones are left out."""
    found = [
        Entry(
            runtime_env=environment,
            success=True,
            creation_time_ms=None,
            node_id=one.node_id,
            ref_cnt=one.executors,
            error=None,
        )
        for one in ask(Environments())
        if (environment := scratch.described_environment(one.environment))
    ]
    keys = ("runtime_env", "success", "creation_time_ms", "node_id", "ref_cnt", "error")
    return Table(filtered(found, keys, filters, limit))


def get_objects(id: str, address: str | None = None, timeout: float | None = None) -> Table[Entry] | None:
    """List the value with this `object_id`; None if it is unknown."""
    return list_objects(address, [("object_id", "=", id)]) or None


def get_placement_group(id: str, address: str | None = None, timeout: float | None = None) -> Entry | None:
    """Find a placement group by its `placement_group_id`; None if it is unknown."""
    return next(iter(list_placement_groups(address, [("placement_group_id", "=", id)])), None)


def get_worker(id: str, address: str | None = None, timeout: float | None = None) -> Entry | None:
    """Find an executor by its `worker_id`; None if it is unknown."""
    return next(iter(list_workers(address, [("worker_id", "=", id)])), None)


@_finding
def get_task(id: str) -> Entry | list[Entry] | None:
    """Find a call by its id; None if it is unknown. Of one that has run several times all attempts are listed."""
    one = state.get_task(id)
    found = [] if one is None else list(state.list_tasks([("task_id", "=", one.task_id)]))
    return found if len(found) > 1 else one


list_actors = _listing(state.list_actors)
list_nodes = _listing(state.list_nodes)
list_tasks = _listing(state.list_tasks)
get_actor = _finding(state.get_actor)
get_node = _finding(state.get_node)
memory_summary = state.memory_summary

__all__ = [
    *("DataSourceUnavailable", "RayStateApiException", "ServerUnavailable"),
    *("get_actor", "get_job", "get_node", "get_objects", "get_placement_group", "get_task", "get_worker"),
    *("list_actors", "list_jobs", "list_nodes", "list_objects", "list_placement_groups", "list_runtime_envs"),
    *("list_tasks", "list_workers"),
    *("memory_summary", "summarize_actors", "summarize_objects", "summarize_tasks"),
]

"""`ray.util.state`: the lists of `mpi_runtime.util.state`, by functions with the arguments of Ray's, in their order.

`timeout`, `detail` and `raise_on_missing_output` have no effect: the answer comes at once, and is always complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from mpi_runtime.show.tables import Table
from mpi_runtime.util import state
from mpi_runtime.util.state import LIMIT, Entry, Filter

P = ParamSpec("P")
T = TypeVar("T")


def _check(address: str | None) -> None:
    if address not in (None, "local", "auto"):
        raise ValueError(f"address={address!r}: an MPI job has no address. Omit it: the lists are of this job.")


def _called(function: Callable[P, T], like: Callable[..., T]) -> Callable[P, T]:
    """Give the function the name and the docstring of another; not its signature."""
    function.__name__ = function.__qualname__ = like.__name__
    function.__doc__ = like.__doc__
    return function


def _listing(entries: Callable[[Sequence[Filter], int], T]) -> Callable[..., T]:
    def listing(
        address: str | None = None,
        filters: Iterable[Filter] | None = None,
        limit: int = LIMIT,
        timeout: float | None = None,
        detail: bool = True,
        raise_on_missing_output: bool = True,
    ) -> T:
        _check(address)
        return entries([tuple(one) for one in filters or ()], limit)

    return _called(listing, entries)


def _finding(find: Callable[[str], T]) -> Callable[..., T]:
    def finding(id: str, address: str | None = None, timeout: float | None = None) -> T:
        _check(address)
        return find(id)

    return _called(finding, find)


def _counting(summary: Callable[[], T]) -> Callable[..., T]:
    def counting(address: str | None = None, timeout: float | None = None, raise_on_missing_output: bool = True) -> T:
        _check(address)
        return summary()

    return _called(counting, summary)


def get_objects(id: str, address: str | None = None, timeout: float | None = None) -> Table[Entry]:
    """List the value with this `object_id`; empty if it is unknown."""
    return list_objects(address, [("object_id", "=", id)])


def get_placement_group(id: str, address: str | None = None, timeout: float | None = None) -> Entry | None:
    """Find a placement group by its `placement_group_id`; None if it is unknown."""
    return next(iter(list_placement_groups(address, [("placement_group_id", "=", id)])), None)


def get_worker(id: str, address: str | None = None, timeout: float | None = None) -> Entry | None:
    """Find an executor by its `worker_id`; None if it is unknown."""
    return next(iter(list_workers(address, [("worker_id", "=", id)])), None)


list_actors = _listing(state.list_actors)
list_nodes = _listing(state.list_nodes)
list_objects = _listing(state.list_objects)
list_placement_groups = _listing(state.list_placement_groups)
list_tasks = _listing(state.list_tasks)
list_workers = _listing(state.list_workers)
get_actor = _finding(state.get_actor)
get_node = _finding(state.get_node)
get_task = _finding(state.get_task)
summarize_actors = _counting(state.summarize_actors)
summarize_objects = _counting(state.summarize_objects)
summarize_tasks = _counting(state.summarize_tasks)
memory_summary = state.memory_summary

__all__ = [
    *("get_actor", "get_node", "get_objects", "get_placement_group", "get_task", "get_worker"),
    *("list_actors", "list_nodes", "list_objects", "list_placement_groups", "list_tasks", "list_workers"),
    *("memory_summary", "summarize_actors", "summarize_objects", "summarize_tasks"),
]

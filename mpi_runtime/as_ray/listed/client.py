"""`StateApiClient`: the functions of `ray.util.state`, chosen by the kind of thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi_runtime.as_ray.listed import lists
from mpi_runtime.as_ray.listed.columns import (
    GetApiOptions,
    ListApiOptions,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)

_LISTS: dict[StateResource, Callable[..., Any]] = {
    StateResource.ACTORS: lists.list_actors,
    StateResource.JOBS: lists.list_jobs,
    StateResource.NODES: lists.list_nodes,
    StateResource.OBJECTS: lists.list_objects,
    StateResource.PLACEMENT_GROUPS: lists.list_placement_groups,
    StateResource.RUNTIME_ENVS: lists.list_runtime_envs,
    StateResource.TASKS: lists.list_tasks,
    StateResource.WORKERS: lists.list_workers,
}
_ENTRIES: dict[StateResource, Callable[..., Any]] = {
    StateResource.ACTORS: lists.get_actor,
    StateResource.JOBS: lists.get_job,
    StateResource.NODES: lists.get_node,
    StateResource.OBJECTS: lists.get_objects,
    StateResource.PLACEMENT_GROUPS: lists.get_placement_group,
    StateResource.TASKS: lists.get_task,
    StateResource.WORKERS: lists.get_worker,
}
_SUMMARIES: dict[SummaryResource, Callable[..., Any]] = {
    SummaryResource.ACTORS: lists.summarize_actors,
    SummaryResource.OBJECTS: lists.summarize_objects,
    SummaryResource.TASKS: lists.summarize_tasks,
}


class StateApiClient:
    """Asks the running job. There is no server: `cookies` and `headers` have no effect."""

    def __init__(
        self, address: str | None = None, cookies: dict[str, Any] | None = None, headers: dict[str, Any] | None = None
    ) -> None:
        """Make a client of this job; a ValueError if an address is stated."""
        lists.check_address(address)

    def get(
        self, resource: StateResource, id: str, options: GetApiOptions | None = None, _explain: bool = False
    ) -> Any:
        """Find a thing by its id; None if it is unknown."""
        if resource not in _ENTRIES:
            raise ValueError(f"{resource} have no ids")
        return _ENTRIES[resource](id)

    def list(
        self,
        resource: StateResource,
        options: ListApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> Any:
        """List things of a kind."""
        if resource not in _LISTS:
            raise NotImplementedError(f"{resource} are not listed here: `mpi-runtime logs` shows what happened")
        chosen = options or ListApiOptions()
        return _LISTS[resource](filters=chosen.filters, limit=chosen.limit, detail=chosen.detail)

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> Any:
        """Count things of a kind, as `summarize_tasks` does."""
        return _SUMMARIES[resource]()


__all__ = ["StateApiClient"]

"""`ray._private.state`: the few of its names that libraries read to place their workers, and constants beside it."""

from __future__ import annotations

from typing import Any

import mpi_runtime
from mpi_runtime import available_resources_per_node, nodes
from mpi_runtime.util.placement_group import placement_group_table
from mpi_runtime.util.state import list_actors

MIN_RESOURCE_GRANULARITY = 0.0001
"""The smallest amount of a resource that can be requested."""
RAY_JOB_CONFIG_JSON_ENV_VAR = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable with the settings of a submitted job. Nothing here sets it."""


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """The resources of each node, by node id: amounts by name."""
    return {one["NodeID"]: one["Resources"] for one in nodes()}


def node_ids() -> list[str]:
    """The ids of all nodes."""
    return [one["NodeID"] for one in nodes()]


def current_node_id() -> str:
    """The id of the node of this process."""
    return mpi_runtime.get_runtime_context().get_node_id()


def actors(actor_id: str | None = None, job_id: object = None, actor_state_name: str | None = None) -> dict[str, Any]:
    """The actors of this job by id, or the facts of one: empty if it is not known."""
    found = {
        one["actor_id"]: {
            "ActorID": one["actor_id"],
            "ActorClassName": one["class_name"],
            "Name": one["name"],
            "State": one["state"],
            "Pid": one["pid"],
            "JobID": one["job_id"],
            "NumRestarts": one["num_restarts"],
            "DeathCause": one["death_cause"],
            "IsDetached": one["is_detached"],
            "Address": {"NodeID": one["node_id"]},
        }
        for one in list_actors(limit=10_000)
        if actor_state_name in (None, one["state"])
    }
    return found if actor_id is None else found.get(actor_id, {})


class _State:
    """`ray._private.state.state`."""

    def placement_group_table(self, placement_group_id: bytes | None = None) -> dict[str, Any]:
        """The facts of all placement groups by their ids, or of one; empty if it was removed."""
        table: dict[str, Any] = placement_group_table()
        if placement_group_id is None:
            return table
        found: dict[str, Any] = table.get(placement_group_id.hex(), {})
        return found

    def available_resources_per_node(self) -> dict[str, dict[str, float]]:
        """What each node has free, by node id: amounts by name."""
        return available_resources_per_node()

    def total_resources_per_node(self) -> dict[str, dict[str, float]]:
        """The resources of each node, by node id: amounts by name."""
        return total_resources_per_node()

    _available_resources_per_node, _total_resources_per_node = available_resources_per_node, total_resources_per_node


state = _State()

__all__ = [
    *("MIN_RESOURCE_GRANULARITY", "RAY_JOB_CONFIG_JSON_ENV_VAR"),
    *("actors", "available_resources", "available_resources_per_node", "cluster_resources", "current_node_id"),
    *("node_ids", "nodes", "state", "timeline", "total_resources_per_node"),
]

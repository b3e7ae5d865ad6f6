"""`ray.util.state.common`: limits and options of lists, kinds of things, and the keys of their entries.

Entries are dictionaries here. The classes of entries only tell their keys, which are those that this runtime has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, make_dataclass
from enum import Enum, unique
from typing import Any

from mpi_runtime.scheduler.protocol.limits import ENDED_MAX
from mpi_runtime.show.filters import Filter
from mpi_runtime.util.state import LIMIT

DEFAULT_LIMIT = LIMIT
DEFAULT_RPC_TIMEOUT = 30
"""Seconds. Without effect here, as is `timeout` everywhere."""
RAY_MAX_LIMIT_FROM_API_SERVER = RAY_MAX_LIMIT_FROM_DATA_SOURCE = ENDED_MAX
SupportedFilterType = str | bool | int | float
PredicateType = str


@unique
class StateResource(Enum):
    """What can be listed."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


@unique
class SummaryResource(Enum):
    """What can be counted."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


@dataclass
class GetApiOptions:
    """Options of a question about one thing. `timeout` has no effect."""

    timeout: int = DEFAULT_RPC_TIMEOUT
    server_timeout_multiplier: float = 0.8


@dataclass
class SummaryApiOptions(GetApiOptions):
    """Options of a count."""

    filters: list[Filter] | None = field(default_factory=list)
    summary_by: str | None = None


@dataclass
class ListApiOptions:
    """Options of a list."""

    limit: int = DEFAULT_LIMIT
    timeout: int = DEFAULT_RPC_TIMEOUT
    detail: bool = False
    filters: list[Filter] | None = field(default_factory=list)
    exclude_driver: bool = True
    server_timeout_multiplier: float = 0.8

    def __post_init__(self) -> None:
        self.filters = list(self.filters or ())
        if wrong := [one for one in self.filters if len(one) != 3 or one[1] not in ("=", "!=")]:
            raise ValueError(f"a filter must be (key, '=' or '!=', value), not {wrong[0]!r}")


def state_column(*, filterable: bool, detail: bool = False, **keywords: Any) -> Any:
    """A field of a `StateSchema`: whether filters may name it, and whether only details have it."""
    if detail:
        keywords.setdefault("default", None)
    facts = {"filterable": filterable, "detail": detail, "format_fn": keywords.pop("format_fn", None)}
    return field(metadata={**keywords.pop("metadata", {}), **facts}, **keywords)


class StateSchema:
    """The keys of a kind of entries. Subclasses are dataclasses whose fields are the keys."""

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """The keys in their order, with or without those that only details have."""
        return [one.name for one in fields(cls) if detail or not one.metadata.get("detail")]  # type: ignore[arg-type]

    @classmethod
    def columns(cls) -> set[str]:
        """All keys."""
        return set(cls.list_columns())

    detail_columns = columns

    @classmethod
    def base_columns(cls) -> set[str]:
        """The keys that Ray's entries have without `detail`."""
        return set(cls.list_columns(detail=False))

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """The keys that filters may name in Ray; here they may name all."""
        return {one.name for one in fields(cls) if one.metadata.get("filterable")}  # type: ignore[arg-type]

    def asdict(self) -> dict[str, Any]:
        """Return it as a plain dictionary."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # subclasses are dataclasses

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)


def _schema(name: str, plain: str, detailed: str = "", unfiltered: str = "") -> type[StateSchema]:
    """Make a class of entries. `unfiltered`: the keys among them that no filter of Ray's may name."""
    without = unfiltered.split()
    made = [
        (key, Any, state_column(filterable=key not in without, detail=detail))
        for keys, detail in ((plain, False), (detailed, True))
        for key in keys.split()
    ]
    return make_dataclass(name, made, bases=(StateSchema,), namespace={"__module__": __name__})


ActorState = _schema(
    "ActorState",
    "actor_id class_name state job_id name node_id pid ray_namespace",
    "required_resources death_cause is_detached placement_group_id repr_name num_restarts",
    unfiltered="required_resources death_cause is_detached num_restarts",
)
JobState = _schema("JobState", "job_id submission_id entrypoint type status driver_info")
NodeState = _schema(
    "NodeState",
    "node_id node_ip is_head_node state node_name resources_total labels",
    unfiltered="resources_total labels",
)
ObjectState = _schema("ObjectState", "object_id object_size reference_type call_site type pid ip")
PlacementGroupState = _schema("PlacementGroupState", "placement_group_id name state", "bundles", unfiltered="bundles")
RuntimeEnvState = _schema(
    "RuntimeEnvState", "runtime_env success creation_time_ms node_id", "ref_cnt error", unfiltered="ref_cnt"
)
TaskState = _schema(
    "TaskState",
    "task_id attempt_number name state job_id actor_id type func_or_class_name parent_task_id node_id worker_id "
    "worker_pid error_type",
    "required_resources creation_time_ms start_time_ms end_time_ms error_message",
    unfiltered="required_resources creation_time_ms start_time_ms end_time_ms error_message",
)
WorkerState = _schema(
    "WorkerState",
    "worker_id is_alive worker_type exit_type node_id ip pid",
    "exit_detail end_time_ms",
    unfiltered="exit_detail end_time_ms",
)

__all__ = [
    *("DEFAULT_LIMIT", "DEFAULT_RPC_TIMEOUT", "RAY_MAX_LIMIT_FROM_API_SERVER", "RAY_MAX_LIMIT_FROM_DATA_SOURCE"),
    *("ActorState", "JobState", "NodeState", "ObjectState", "PlacementGroupState", "RuntimeEnvState", "TaskState"),
    *("GetApiOptions", "ListApiOptions", "PredicateType", "StateResource", "StateSchema", "SummaryApiOptions"),
    *("SummaryResource", "SupportedFilterType", "WorkerState", "state_column"),
]

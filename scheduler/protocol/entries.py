"""Answers that are entries of lists: nodes, calls, actors, objects, executors, groups, stores, hosts; and counts.

The names on the wire are the keys that users see, in their order: see `dictionaries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mpi_runtime.gpu.device import Measures

Amounts = dict[str, float]
"""Amounts by name, memory in bytes: `{"CPU": 2.0}`."""
TASK_TYPES = ("NORMAL_TASK", "ACTOR_CREATION_TASK", "ACTOR_TASK")
"""Ray's words for TASK, ACTOR and METHOD."""


def dictionaries(entries: Sequence[Struct]) -> list[dict[str, Any]]:
    """Entries as users get them."""
    found: list[dict[str, Any]] = msgspec.to_builtins(entries)
    return found


class GpuUser(Struct):
    """An executor that holds a part of a GPU."""

    name: str
    """The function that it runs, or the class of its actor; empty: it is idle."""
    pid: int
    share: float
    memory: int


class GpuEntry(Struct):
    """A GPU of a node: its properties, its free part, and its users."""

    id: int
    uuid: str
    name: str
    types: list[str]
    memory: int
    bus: str
    numa: int
    exclusive: bool
    ranks: list[int]
    """The ranks that see it and have executors."""
    home: int
    linked: list[int]
    """The GPUs with a direct link to it."""
    free: float
    memory_free: int
    quarantined: str
    """Why it is quarantined; empty: it is not."""
    used_by: list[GpuUser]


NODE_KEYS = {
    "id": "NodeID",
    "is_alive": "Alive",
    "name": "NodeName",
    "manager": "NodeManagerHostname",
    "address": "NodeManagerAddress",
    "resources": "Resources",
    "available": "Available",
    "labels": "Labels",
}
"""Ray's names of what `nodes()` gives."""


class NodeEntry(Struct, rename=NODE_KEYS):
    """A node of the job."""

    id: str
    is_alive: bool
    name: str
    """Its host."""
    manager: str
    address: str
    resources: Amounts
    available: Amounts
    labels: dict[str, str]
    ranks: list[int]
    cpus: list[int]
    """The numbers of its processors."""
    cpu_limit: str
    """Why it has fewer CPUs than its host; empty: it has all."""
    gpus: list[GpuEntry]
    gpu_problems: list[str]
    executors: int


class TaskEntry(Struct, kw_only=True, omit_defaults=True):
    """A call, or an attempt of a call that has ended. `state` and `error_type` are words of Ray's."""

    task_id: str
    name: str
    func_or_class_name: str
    type: str
    state: str
    attempt_number: int
    actor_id: str | None
    node_id: str | None
    worker_id: str | None
    worker_pid: int | None
    required_resources: Amounts
    parent_task_id: str | None
    """The call that submitted it; None: the driver."""
    error_type: str | None
    error_message: str | None
    creation_time_ms: int
    """When it was submitted, since 1970."""
    start_time_ms: int | None
    end_time_ms: int | None
    num_ranks: int = 0
    """The size of its gang; 0: it has none."""
    driver: int = 0
    """The driver of a session that it belongs to; 0: the program of rank 0, or nobody any more (detached actors)."""


class ActorEntry(Struct):
    """An actor that lives or has handles, or had. `state` is a word of Ray's."""

    actor_id: str
    class_name: str
    """With what surrounds it: `main.<locals>.Counter`."""
    state: str
    name: str
    repr_name: str
    ray_namespace: str
    node_id: str | None
    pid: int | None
    num_restarts: int
    death_cause: str | None
    pending_calls: int
    driver: int = 0
    """As of calls."""
    is_detached: bool = False
    required_resources: Amounts = {}
    placement_group_id: str | None = None

    @property
    def title(self) -> str:
        """The name that it has been given, or has given itself; empty: neither."""
        return self.name or self.repr_name

    @property
    def short_class(self) -> str:
        """The name of its class alone."""
        return self.class_name.rpartition(".")[2]


class DriverEntry(Struct, kw_only=True):
    """A driver that has connected to a session, as long as anything of it is left."""

    driver: int
    """Its number, which no other driver of the session gets."""
    program: str
    pid: int
    state: str
    """"CONNECTED"; "AWAY": its line is broken; "LEFT": what belongs to it ends, or something detached of it is left."""
    joined_ms: int
    """When it connected, since 1970."""
    away_ms: int = 0
    """When its line broke, since 1970; 0: its state is not "AWAY"."""
    open_calls: int
    running_calls: int
    actors: int
    """Without those of its detached actors."""
    detached_actors: int
    groups: int
    executors: int


class Holder(Struct):
    """A process with a reference to an object."""

    worker_type: str
    """DRIVER or WORKER."""
    pid: int
    """0: the program of rank 0."""
    node_id: str


class ObjectEntry(Struct):
    """An object of the store."""

    object_id: str
    state: str
    object_size: int
    node_ids: list[str]
    is_spilled: bool
    reference_count: int
    held_by: list[Holder]


class EnvironmentEntry(Struct):
    """An environment of calls on a node, and the number of executors that have it."""

    environment: dict[str, str]
    node_id: str
    executors: int


class WorkerEntry(Struct):
    """An executor, or one that has ended."""

    worker_id: str
    pid: int | None
    state: str
    rank: int
    node_id: str
    actor_id: str | None
    task_id: str | None
    gpu_ids: list[int]
    assigned_resources: Amounts
    is_alive: bool = True
    exit_type: str | None = None
    """SYSTEM_ERROR, NODE_OUT_OF_MEMORY, INTENDED_SYSTEM_EXIT (by the runtime) or INTENDED_USER_EXIT (by itself)."""
    exit_detail: str | None = None
    """Why it ended."""
    end_time_ms: int = 0
    """When it ended, since 1970; 0: it lives."""


class GroupEntry(Struct):
    """A placement group."""

    placement_group_id: str
    name: str
    bundles: list[Amounts]
    nodes: list[str]
    """For each bundle the id of its node; empty: it has none yet."""
    strategy: str
    state: str
    scheduling: str
    """FINISHED, NO_RESOURCES (for now) or INFEASIBLE."""
    why: str


class StoredValue(Struct):
    """A large value on a node."""

    object_id: str
    size: int
    in_memory: bool
    on_disk: bool
    made_by: str
    held_by: list[str]


class NodeStore(Struct):
    """The object store of a node, in bytes and numbers of objects."""

    node_id: str
    hostname: str
    capacity: int
    used: int
    objects: int
    on_disk: int
    objects_on_disk: int
    in_flight: int
    being_written: int
    wanted: int


class NodeStoreEntry(NodeStore):
    """The same with its largest values."""

    largest: list[StoredValue]


class HostUse(Struct, array_like=True, gc=False):
    """What is used of a host, by all programs."""

    cpu: float
    """The busy share of all its processors since the last measurement; -1: this is the first."""
    memory_used: int
    memory: int
    """The limit of memory that is used most, in bytes: that of the host or of a control group."""
    gpus: list[Measures] = []


class Counts(Struct):
    """Counts of everything. Calls that raised count as failed."""

    submitted: int
    finished: int
    failed: int
    retried: int
    restarted: int
    abandoned: int
    objects: int
    actors: int
    placement_groups: int
    executors: int
    ready: int
    stored_extents: int

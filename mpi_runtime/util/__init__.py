"""Tools for user programs, on top of the public names.

This package has `ActorPool`, placement groups, `as_completed`, `map_unordered`, `list_named_actors`,
`broadcast`, `memory_summary`, `get_node_ip_address`, `register_serializer` and `inspect_serializability`. The modules
`queue`, `multiprocessing`, `futures`, `collective`, `scheduling_strategies` and `state` are loaded on first use. So
are `joblib`, `dask` and `tqdm`, which need the libraries of these names.
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face
from mpi_runtime.calls.actor_handle import list_named_actors
from mpi_runtime.util.placement_group import (  # now: a function has the name of this module
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

if TYPE_CHECKING:
    from mpi_runtime.util.actor_pool import ActorPool
    from mpi_runtime.util.addresses import get_node_ip_address
    from mpi_runtime.util.broadcasting import broadcast
    from mpi_runtime.util.check_serialize import Failure, inspect_serializability
    from mpi_runtime.util.helpers import as_completed, map_unordered
    from mpi_runtime.util.serialization import deregister_serializer, register_serializer
    from mpi_runtime.util.summaries import memory_summary

_HOMES: dict[str, tuple[str, ...]] = {
    "actor_pool": ("ActorPool",),
    "addresses": ("get_node_ip_address",),
    "broadcasting": ("broadcast",),
    "check_serialize": ("Failure", "inspect_serializability"),
    "helpers": ("as_completed", "map_unordered"),
    "serialization": ("deregister_serializer", "register_serializer"),
    "summaries": ("memory_summary",),
    "accelerators": (),
    "collective": (),
    "dask": (),
    "futures": (),
    "joblib": (),
    "multiprocessing": (),
    "optuna": (),
    "queue": (),
    "scheduling_strategies": (),
    "state": (),
    "streams": (),
    "tqdm": (),
}
"""The names of each module, which is loaded when one of them is used."""

__all__ = [
    "ActorPool",
    "Failure",
    "as_completed",
    "broadcast",
    "deregister_serializer",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "map_unordered",
    "memory_summary",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]

if not TYPE_CHECKING:  # or a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

"""Tools for user programs, on top of the public names.

Here are `ActorPool`, placement groups, `list_named_actors` and `inspect_serializability`. Others are in modules of
their own, so that they cost nothing where they are not used: `queue`, `multiprocessing`, `futures` and `collective`,
`scheduling_strategies`, `state`, and `joblib`, `dask` and `tqdm`, for which these libraries have to be installed.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

from mpi_runtime.actors import list_named_actors
from mpi_runtime.util.actor_pool import ActorPool
from mpi_runtime.util.check_serialize import Failure, inspect_serializability
from mpi_runtime.util.placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "ActorPool",
    "Failure",
    "get_current_placement_group",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


if not TYPE_CHECKING:  # or a checker would take every name for one of ours

    def __getattr__(name: str) -> ModuleType:
        """Modules of this package, loaded on first use: `mpi_runtime.util.queue` needs no import of its own."""
        if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")

"""Tools for user programs, on top of the public names.

Names and modules are loaded on first use; `joblib`, `dask` and `tqdm` need the libraries of these names.

- `actor_pool.py`: a pool of actors that share work
- `queue.py`: a queue that tasks, actors and the driver share
- `streams.py`: `emit`: items of a stream from within a plain function
- `helpers.py`: results in the order in which they become ready
- `broadcasting.py`: copies values to all nodes before they are needed
- `collective.py`: collective operations on arrays: `allreduce`, `barrier` and others
- `collective_group.py`: the coordinator of a collective group, and each process's part
- `state.py`: lists of calls, actors, objects and nodes; `memory_summary`
- `locations.py`: where values are; the address of this node
- `metrics.py`: counters, gauges and histograms of the program
- `tqdm.py`: progress bars in tasks and actors
- `serialization.py`: serialisers for classes that cannot be pickled
- `check_serialize.py`: finds the part of a value that cannot be serialised
- `futures.py`: a backend for `concurrent.futures`
- `multiprocessing.py`: a backend for `multiprocessing`: its `Pool`
- `pool_process.py`: the actor behind each process of a `Pool`
- `pool_results.py`: results and iterators of a `Pool`
- `background_calls.py`: a bounded number of calls in the background, for `futures` and `Pool`
- `joblib.py`: a backend for joblib, and so for scikit-learn
- `dask.py`: a scheduler for dask
- `optuna.py`: an Optuna study over all ranks
- `placement_group.py`: placement groups, where programs written for Ray import them
- `scheduling_strategies.py`: strategies, where programs written for Ray import them
- `accelerators.py`: names of accelerators for `accelerator_type`
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face
from mpi_runtime.core.calls.actor_handle import list_named_actors
from mpi_runtime.util.placement_group import (  # now: a function has the name of this module
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

_HOMES = {
    "": (
        "accelerators collective dask futures joblib locations metrics multiprocessing optuna queue "
        "scheduling_strategies streams tqdm"
    ),
    "actor_pool": "ActorPool",
    "broadcasting": "broadcast",
    "check_serialize": "Failure inspect_serializability",
    "locations": "get_node_ip_address",
    "helpers": "as_completed map_unordered",
    "serialization": "deregister_serializer register_serializer",
    "state": "memory_summary",
}
"""The names of each module, which is loaded when one of them is used."""

__all__ = [
    "ActorPool", "Failure", "as_completed", "broadcast", "deregister_serializer", "get_current_placement_group",
    "get_node_ip_address", "get_placement_group", "inspect_serializability", "list_named_actors", "map_unordered",
    "memory_summary", "placement_group", "placement_group_table", "register_serializer", "remove_placement_group",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.util.actor_pool import ActorPool
    from mpi_runtime.util.broadcasting import broadcast
    from mpi_runtime.util.check_serialize import Failure, inspect_serializability
    from mpi_runtime.util.helpers import as_completed, map_unordered
    from mpi_runtime.util.locations import get_node_ip_address
    from mpi_runtime.util.serialization import deregister_serializer, register_serializer
    from mpi_runtime.util.state import memory_summary
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

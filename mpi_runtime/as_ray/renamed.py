"""Functions with `ray` in their name that need code of their own, and those that have nothing to do here."""

from collections.abc import Sequence
from typing import Any

from mpi_runtime import ActorHandle
from mpi_runtime.util import collective


def register_ray() -> None:
    """Register the backend "ray" with joblib: see `mpi_runtime.util.joblib`."""
    from joblib.parallel import register_parallel_backend

    from mpi_runtime.util.joblib import Backend

    register_parallel_backend("ray", Backend)


def disable_dask_on_ray() -> None:
    """Let dask choose its scheduler again."""
    import dask

    dask.config.set(scheduler=None)


def free(object_refs: object | Sequence[object], local_only: bool = False) -> None:
    """Do nothing: a value is freed with its last reference."""


def init_collective_group(
    world_size: int, rank: int, backend: str | None = None, group_name: str = "default", gloo_timeout: int = 30000
) -> None:
    """Join a group. Ray's `gloo_timeout` has no effect: nobody waits for others before the first operation."""
    collective.init_collective_group(world_size, rank, backend, group_name)


def create_collective_group(
    actors: Sequence[ActorHandle],
    world_size: int,
    ranks: Sequence[int],
    backend: str | None = None,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Make a group of actors from outside. Ray's `gloo_timeout` has no effect, as above."""
    collective.create_collective_group(actors, world_size, ranks, backend, group_name)


def gloo_available() -> bool:
    """Whether collective operations work with the backend "gloo", which is a name here: always."""
    return True


def nccl_available() -> bool:
    """Whether arrays go from GPU to GPU: never, they go through the memory of the hosts."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether collective operations use such a backend, as far as a name can be one."""
    return backend.upper() == "GLOO"


class SearchGenerator:
    """Stands around a searcher in Ray. Here an experiment takes the searcher itself."""

    def __new__(cls, searcher: Any) -> Any:
        """Return the searcher."""
        return searcher


def get_preemption_info() -> None:
    """Return None: a node is lost without a warning. RuntimeError: this is not a training."""
    from mpi_runtime.train import get_context

    get_context()

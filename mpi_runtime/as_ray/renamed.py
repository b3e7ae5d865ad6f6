"""Functions with `ray` in their name that need code of their own, and those that have nothing to do here."""

from collections.abc import Sequence


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


def gloo_available() -> bool:
    """Whether collective operations work with the backend "gloo", which is a name here: always."""
    return True


def nccl_available() -> bool:
    """Whether arrays go from GPU to GPU: never, they go through the memory of the hosts."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether collective operations use such a backend, as far as a name can be one."""
    return backend.upper() == "GLOO"


def get_preemption_info() -> None:
    """Return None: a node is lost without a warning. RuntimeError: this is not a training."""
    from mpi_runtime.tune import get_context

    get_context()

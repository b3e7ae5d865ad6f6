"""Functions with `ray` in their name that need code of their own."""


def register_ray() -> None:
    """Register the backend "ray" with joblib: see `mpi_runtime.util.joblib`."""
    from joblib.parallel import register_parallel_backend

    from mpi_runtime.util.joblib import Backend

    register_parallel_backend("ray", Backend)


def disable_dask_on_ray() -> None:
    """Let dask choose its scheduler again."""
    import dask

    dask.config.set(scheduler=None)

"""Functions of Ray that have its name in theirs, and something to do of their own."""


def register_ray() -> None:
    """Make the backend "ray" known to joblib: see `mpi_runtime.util.joblib`."""
    from joblib.parallel import register_parallel_backend

    from mpi_runtime.util.joblib import Backend

    register_parallel_backend("ray", Backend)


def disable_dask_on_ray() -> None:
    """Let dask choose its scheduler again."""
    import dask

    dask.config.set(scheduler=None)

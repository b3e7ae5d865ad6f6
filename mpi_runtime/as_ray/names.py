"""Tables: which of Ray's modules and names exist here, and which of our modules are behind them."""

MODULES: dict[str, tuple[str, ...]] = {
    # Module of Ray: our modules in which its names are looked up, in this order.
    "ray": ("mpi_runtime.as_ray.top", "mpi_runtime"),
    "ray._private": (),
    "ray._private.services": ("mpi_runtime.util.addresses",),
    "ray._private.worker": ("mpi_runtime.as_ray.top", "mpi_runtime"),
    "ray._raylet": ("mpi_runtime.as_ray.top", "mpi_runtime"),
    "ray.actor": ("mpi_runtime.actor",),
    "ray.cloudpickle": ("mpi_runtime.cloudpickle",),
    "ray.data": (),
    "ray.exceptions": ("mpi_runtime.exceptions",),
    "ray.experimental": ("mpi_runtime.api.locations",),
    "ray.experimental.tqdm_ray": ("mpi_runtime.util.tqdm",),
    "ray.remote_function": ("mpi_runtime.calls.remote_function",),
    "ray.runtime_context": ("mpi_runtime.runtime_context",),
    "ray.runtime_env": ("mpi_runtime.runtime_env",),
    "ray.tune": ("mpi_runtime.tune",),
    "ray.tune.callback": ("mpi_runtime.tune",),
    "ray.tune.experiment": ("mpi_runtime.tune.trial",),
    "ray.tune.logger": ("mpi_runtime.tune",),
    "ray.tune.progress_reporter": ("mpi_runtime.tune",),
    "ray.tune.registry": ("mpi_runtime.tune",),
    "ray.tune.result_grid": ("mpi_runtime.tune",),
    **dict.fromkeys(
        (
            "ray.tune.schedulers",
            *(f"ray.tune.schedulers.{name}" for name in ("async_hyperband", "hb_bohb", "hyperband", "pb2", "pbt")),
            *(f"ray.tune.schedulers.{name}" for name in ("median_stopping_rule", "trial_scheduler")),
        ),
        ("mpi_runtime.tune.schedulers",),
    ),
    **dict.fromkeys(
        (
            "ray.tune.search",
            *(f"ray.tune.search.{name}" for name in ("basic_variant", "bayesopt", "bohb", "concurrency_limiter")),
            *(f"ray.tune.search.{name}" for name in ("hyperopt", "nevergrad", "optuna", "repeater", "searcher")),
        ),
        ("mpi_runtime.tune.search",),
    ),
    "ray.tune.search.sample": ("mpi_runtime.tune.space.domains",),
    "ray.tune.stopper": ("mpi_runtime.tune",),
    "ray.tune.trainable": ("mpi_runtime.tune",),
    "ray.tune.tune_config": ("mpi_runtime.tune",),
    "ray.tune.tuner": ("mpi_runtime.tune",),
    "ray.types": ("mpi_runtime.client.refs",),
    "ray.util": ("mpi_runtime.util",),
    "ray.util.accelerators": ("mpi_runtime.util.accelerators",),
    "ray.util.actor_pool": ("mpi_runtime.util.actor_pool",),
    "ray.util.annotations": ("mpi_runtime.as_ray.annotations",),
    "ray.util.check_serialize": ("mpi_runtime.util.check_serialize",),
    "ray.util.client": ("mpi_runtime.as_ray.ray_client",),
    "ray.util.collective": ("mpi_runtime.util.collective",),
    "ray.util.dask": ("mpi_runtime.util.dask",),
    "ray.util.debug": ("mpi_runtime.as_ray.debug",),
    "ray.util.helpers": ("mpi_runtime.util.helpers",),
    "ray.util.joblib": ("mpi_runtime.util.joblib",),
    "ray.util.multiprocessing": ("mpi_runtime.util.multiprocessing",),
    "ray.util.multiprocessing.pool": ("mpi_runtime.util.multiprocessing",),
    "ray.util.placement_group": ("mpi_runtime.util.placement_group",),
    "ray.util.queue": ("mpi_runtime.util.queue",),
    "ray.util.scheduling_strategies": ("mpi_runtime.util.scheduling_strategies",),
    "ray.util.serialization": ("mpi_runtime.util.serialization",),
    "ray.util.state": ("mpi_runtime.util.state",),
}
RENAMED: dict[str, str] = {
    # Names that contain Ray's name.
    "ray.util.dask.disable_dask_on_ray": "mpi_runtime.as_ray.renamed.disable_dask_on_ray",
    "ray.util.dask.enable_dask_on_ray": "mpi_runtime.util.dask.enable_dask_on_mpi_runtime",
    "ray.util.dask.ray_dask_get": "mpi_runtime.util.dask.mpi_runtime_dask_get",
    "ray.util.dask.ray_dask_get_sync": "mpi_runtime.util.dask.mpi_runtime_dask_get",
    "ray.util.joblib.register_ray": "mpi_runtime.as_ray.renamed.register_ray",
    "ray.util.disable_log_once_globally": "mpi_runtime.as_ray.debug.disable_log_once_globally",
    "ray.util.log_once": "mpi_runtime.as_ray.debug.log_once",
}
_CLUSTER = "an MPI job is joined by its launcher, and has no address."
_LANGUAGE = "functions and classes are Python's."
ABSENT: dict[str, str] = {
    # Names that programs import and may never use; for a module, all of its names. They raise when they are called.
    "ray.ClientBuilder": _CLUSTER,
    "ray.client": _CLUSTER,
    "ray.data": "this runtime has only the core of Ray.",  # imported by libraries that can do without it
    "ray.util.connect": _CLUSTER,
    "ray.util.disconnect": _CLUSTER,
    "ray.cpp_function": _LANGUAGE,
    "ray.java_actor_class": _LANGUAGE,
    "ray.java_function": _LANGUAGE,
}
LIBRARIES = frozenset(
    f"ray.{name}"
    for name in (
        *("air", "autoscaler", "autoscaler.sdk", "dag", "dashboard", "job_submission", "llm", "rllib", "serve"),
        *("train", "workflow", "experimental.channel", "experimental.state", "util.metrics", "util.rpdb"),
        *("util.spark", "util.iter", "util.tracing", "util.client_connect"),
    )
)
"""Modules of Ray that are not here: their import says so."""

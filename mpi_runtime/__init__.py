"""Tasks and actors with Ray's API on plain MPI.

    import mpi_runtime

    mpi_runtime.init()

    @mpi_runtime.remote
    def square(x):
        return x * x

    print(mpi_runtime.get([square.remote(x) for x in range(4)]))

Start it with `mpirun -n 8 python app.py`, `srun python app.py` or plain `python app.py`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ActorClass": "calls.actor_class",
    "ActorHandle": "calls.actor_handle",
    "DynamicObjectRefGenerator": "client.generators",
    "ObjectRef": "client.refs",
    "ObjectRefGenerator": "client.generators",
    "RemoteFunction": "calls.remote_function",
    "RuntimeContext": "context",
    "available_resources": "context",
    "available_resources_per_node": "context",
    "cancel": "api",
    "checkpoint": "calls.actor_handle",
    "cluster_resources": "context",
    "explain": "api",
    "get": "api",
    "get_actor": "calls.actor_handle",
    "get_gpu_ids": "context",
    "get_gpus": "context",
    "get_runtime_context": "context",
    "init": "api",
    "install_as_ray": "as_ray",
    "is_initialized": "api",
    "kill": "api",
    "method": "calls.actor_class",
    "nodes": "context",
    "put": "api",
    "remote": "api",
    "shutdown": "api",
    "timeline": "tracing",
    "wait": "api",
}
"""Where each public name lives: loaded on first use, so that `import mpi_runtime` costs next to nothing."""
_TYPED_IDS = ("ActorID", "FunctionID", "JobID", "NodeID", "PlacementGroupID", "TaskID", "UniqueID", "WorkerID")
"""Ids with a type, for programs written for Ray: nobody needs to make one."""
_HOMES.update(dict.fromkeys(_TYPED_IDS, "client.typed_ids"))
_MODULES = {
    "actor": "actor",
    "batch": "batch",
    "cloudpickle": "cloudpickle",
    "errors": "errors",
    "exceptions": "exceptions",
    "runtime_context": "runtime_context",
    "runtime_env": "runtime_env",
    "slurm": "slurm",
    "tune": "tune",
    "util": "util",
}
"""Modules that are public names: `actor` has `exit_actor`."""

__all__ = [
    "ActorClass",
    "ActorHandle",
    "DynamicObjectRefGenerator",
    "ObjectRef",
    "ObjectRefGenerator",
    "RemoteFunction",
    "RuntimeContext",
    "actor",
    "available_resources",
    "available_resources_per_node",
    "batch",
    "cancel",
    "checkpoint",
    "cloudpickle",
    "cluster_resources",
    "errors",
    "exceptions",
    "explain",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_gpus",
    "get_runtime_context",
    "init",
    "install_as_ray",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "runtime_context",
    "runtime_env",
    "shutdown",
    "slurm",
    "timeline",
    "tune",
    "util",
    "wait",
]

if TYPE_CHECKING:
    from mpi_runtime import (
        actor,
        batch,
        cloudpickle,
        errors,
        exceptions,
        runtime_context,
        runtime_env,
        slurm,
        tune,
        util,
    )
    from mpi_runtime.api import cancel, explain, get, init, is_initialized, kill, put, remote, shutdown, wait
    from mpi_runtime.as_ray import install_as_ray
    from mpi_runtime.calls.actor_class import ActorClass, method
    from mpi_runtime.calls.actor_handle import ActorHandle, checkpoint, get_actor
    from mpi_runtime.calls.remote_function import RemoteFunction
    from mpi_runtime.client.generators import DynamicObjectRefGenerator, ObjectRefGenerator
    from mpi_runtime.client.refs import ObjectRef
    from mpi_runtime.context import (
        RuntimeContext,
        available_resources,
        available_resources_per_node,
        cluster_resources,
        get_gpu_ids,
        get_gpus,
        get_runtime_context,
        nodes,
    )
    from mpi_runtime.tracing import timeline


if not TYPE_CHECKING:  # or a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        home = _MODULES.get(name) or _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'mpi_runtime' has no attribute {name!r}")
        import importlib

        value: Any = importlib.import_module(f"mpi_runtime.{home}")
        if name not in _MODULES:
            value = getattr(value, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

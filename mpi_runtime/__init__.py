"""Tasks and actors with Ray's API on plain MPI.

    import mpi_runtime

    mpi_runtime.init()

    @mpi_runtime.remote
    def square(x):
        return x * x

    print(mpi_runtime.get([square.remote(x) for x in range(4)]))

Start it with `mpirun -n 8 python app.py`, `srun python app.py` or plain `python app.py`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


def _face(package: str, homes: Mapping[str, tuple[str, ...]], public: Sequence[str]) -> tuple[Callable[..., Any], ...]:
    """Make `__getattr__` and `__dir__` of a package that loads a module when it or one of its names is first used.

    `homes` has the names of each module.
    """
    home_of = {name: home for home, names in homes.items() for name in (home, *names)}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        try:
            module = importlib.import_module(f"{package}.{home}")
        except ImportError as error:
            if name != home:
                raise
            raise AttributeError(str(error), name=name) from error  # a library is missing: `hasattr` is false
        value = module if name == home else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(public)


_HOMES: dict[str, tuple[str, ...]] = {
    "api": ("cancel", "explain", "get", "init", "is_initialized", "kill", "put", "remote", "shutdown", "wait"),
    "as_ray": ("install_as_ray",),
    "calls.actor_class": ("ActorClass", "method"),
    "calls.actor_handle": ("ActorHandle", "checkpoint", "get_actor"),
    "calls.remote_function": ("RemoteFunction",),
    "client.generators": ("DynamicObjectRefGenerator", "ObjectRefGenerator"),
    "client.refs": ("ObjectRef",),
    "client.typed_ids": (
        "ActorID",
        "FunctionID",
        "JobID",
        "NodeID",
        "PlacementGroupID",
        "TaskID",
        "UniqueID",
        "WorkerID",
    ),
    "context": (
        "RuntimeContext",
        "available_resources",
        "available_resources_per_node",
        "cluster_resources",
        "get_gpu_ids",
        "get_gpus",
        "get_runtime_context",
        "nodes",
    ),
    "tracing": ("timeline",),
    "actor": (),
    "batch": (),
    "cloudpickle": (),
    "errors": (),
    "exceptions": (),
    "runtime_context": (),
    "runtime_env": (),
    "slurm": (),
    "tune": (),
    "util": (),
}
"""The names of each module. Ids with a type are for programs written for Ray: nobody needs to make one."""

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
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

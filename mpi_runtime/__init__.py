"""Tasks and actors with Ray's API on plain MPI.

    import mpi_runtime

    mpi_runtime.init()

    @mpi_runtime.remote
    def square(x):
        return x * x

    print(mpi_runtime.get([square.remote(x) for x in range(4)]))

Start it with `mpirun -n 8 python app.py`, `srun python app.py` or plain `python app.py`. ARCHITECTURE.md shows the
processes and the floors; each room lists its modules in its docstring. From top to bottom:

- `__main__.py`: `python -m mpi_runtime app.py`: the program on rank 0, workers on all other ranks
- `cli/`: the command `mpi-runtime` and its verbs
- `as_ray/`: `import ray` gives this package
- `train/`: training of one model by several processes
- `tune/`: search for hyper-parameters
- `rl/`: reinforcement learning
- `data/`: streams of rows over all nodes
- `whatif/`: how long a finished batch or job would take on other nodes
- `util/`: pools, queues, collectives, state; backends for other libraries
- `batch/`: shell commands as tasks
- `mpi.py`: the communicator of a call with `num_ranks`, and arguments that are cut for its ranks
- `actor.py`: names about actors where programs written for Ray import them
- `runtime_context.py`: `get_runtime_context` where programs written for Ray import it
- `runtime_env.py`: `RuntimeEnv` where programs written for Ray import it
- `extend.py`: what libraries use of the core beside public names
- `core/`: what a job is: its processes, calls and values
- `files/`: files that outlive a job
- `cloudpickle.py`: the cloudpickle in use, where programs written for Ray import it
- `show/`: log lines, tables and pages that people look at
- `config.py`: the arguments of `init()`; the only reader of the environment
- `exceptions.py`: the exceptions where programs written for Ray import them
- `errors/`: every exception, and how those of user code cross processes
- `scheduler/`: takes events, returns effects: every decision of a job
- `gpu/`: GPUs: finding them, choosing some, arrays on them
- `slurm/`: batch systems: the allocation, submission, the end of a job's time
- `listings.py`: finds our own modules with few questions to the file system
"""

from mpi_runtime import listings  # first: it finds all others

# isort: split
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


def _face(package: str, homes: Mapping[str, str], public: Sequence[str]) -> tuple[Callable[..., Any], ...]:
    """Make `__getattr__` and `__dir__` of a package that loads a module when it or one of its names is first used.

    `homes` has the names of each module, `".other"` of one beside the package, and as `""` modules without such names.
    A module in a room without such names, as `".core.room.module": ""`, is a name itself.
    """
    home_of = {name: home or name for home, names in homes.items() for name in names.split()}
    modules = {home.rpartition(".")[2]: home for home, names in homes.items() if home and not ("." in home and names)}
    modules |= {name: name for name in homes.get("", "").split()}

    def load(name: str) -> Any:
        home = modules.get(name) or home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        try:
            with listings.for_all:
                from mpi_runtime.core.client.interrupts import Interrupts

                with Interrupts():  # an import may lose Ctrl-C, see its module
                    module = importlib.import_module(f".{home}", package)
        except ImportError as error:
            if name not in modules:
                raise
            raise AttributeError(str(error), name=name) from error  # a library is missing: `hasattr` is false
        value = module if name in modules else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(public)


_HOMES = {
    "": "actor batch cloudpickle data errors exceptions mpi rl runtime_context runtime_env slurm train tune util",
    "core.api.calls": "cancel explain kill remote",
    "core.api.job": "Context init is_initialized shutdown",
    "core.api.values": "get put wait",
    "as_ray": "install_as_ray",
    "core.calls.actor_class": "ActorClass method",
    "core.calls.actor_handle": "ActorHandle ActorMethod checkpoint get_actor handle_of_pickle",
    "core.calls.chunks": "Pickled load_chunk",
    "core.calls.mapping": "Results",
    "core.calls.own_scheduler": "Inside",
    "core.calls.remote_function": "RemoteFunction",
    "core.client.generators": "DynamicObjectRefGenerator ObjectRefGenerator",
    "core.client.object_ref": "ActorRef ObjectRef adopt weak_actor",
    "core.objects.device_arrays": "device_array",
    "core.objects.serialize": "Slot",
    "core.client.typed_ids": ("ActorClassID ActorID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID WorkerID"),
    "core.api.cluster": "available_resources available_resources_per_node cluster_resources nodes",
    "core.api.context": "RuntimeContext get_gpu_ids get_gpus get_runtime_context",
    "core.api.timeline": "timeline",
}
"""The names of each module. Typed ids are for programs written for Ray. Those that `__all__` lacks are for pickles."""

__all__ = [
    "ActorClass", "ActorHandle", "Context", "DynamicObjectRefGenerator", "ObjectRef", "ObjectRefGenerator",
    "RemoteFunction", "Results", "RuntimeContext", "actor", "available_resources", "available_resources_per_node",
    "batch", "cancel", "checkpoint", "cloudpickle", "cluster_resources", "data", "errors", "exceptions", "explain",
    "get", "get_actor", "get_gpu_ids", "get_gpus", "get_runtime_context", "init", "install_as_ray", "is_initialized",
    "kill", "method", "mpi", "nodes", "put", "remote", "rl", "runtime_context", "runtime_env", "shutdown", "slurm",
    "timeline", "train", "tune", "util", "wait",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime import (
        actor,
        batch,
        cloudpickle,
        data,
        errors,
        exceptions,
        mpi,
        rl,
        runtime_context,
        runtime_env,
        slurm,
        train,
        tune,
        util,
    )
    from mpi_runtime.as_ray import install_as_ray
    from mpi_runtime.core.api.calls import cancel, explain, kill, remote
    from mpi_runtime.core.api.cluster import available_resources, available_resources_per_node, cluster_resources, nodes
    from mpi_runtime.core.api.context import RuntimeContext, get_gpu_ids, get_gpus, get_runtime_context
    from mpi_runtime.core.api.job import Context, init, is_initialized, shutdown
    from mpi_runtime.core.api.timeline import timeline
    from mpi_runtime.core.api.values import get, put, wait
    from mpi_runtime.core.calls.actor_class import ActorClass, method
    from mpi_runtime.core.calls.actor_handle import ActorHandle, checkpoint, get_actor
    from mpi_runtime.core.calls.mapping import Results
    from mpi_runtime.core.calls.remote_function import RemoteFunction
    from mpi_runtime.core.client.generators import DynamicObjectRefGenerator, ObjectRefGenerator
    from mpi_runtime.core.client.object_ref import ObjectRef
else:  # a checker would accept every name
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

listings.for_all.__exit__()

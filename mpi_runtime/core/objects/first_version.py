"""Where the first version had what faces offer now: its pickles, and hashes in its journals, name these modules."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable

_MODULES = """
mpi_runtime.api.calls mpi_runtime cancel explain kill remote
mpi_runtime.api.context mpi_runtime RuntimeContext available_resources available_resources_per_node cluster_resources
mpi_runtime.api.context mpi_runtime get_gpu_ids get_gpus get_runtime_context nodes
mpi_runtime.api.job mpi_runtime init is_initialized shutdown
mpi_runtime.api.timeline mpi_runtime timeline
mpi_runtime.api.values mpi_runtime get put wait
mpi_runtime.batch.memory.results mpi_runtime.batch CommandError CommandResult
mpi_runtime.calls.actor_class mpi_runtime ActorClass method
mpi_runtime.calls.actor_class mpi_runtime.actor exit_actor
mpi_runtime.calls.actor_handle mpi_runtime ActorHandle ActorMethod checkpoint get_actor
mpi_runtime.calls.actor_handle mpi_runtime.util list_named_actors
mpi_runtime.calls.chunks mpi_runtime Pickled
mpi_runtime.calls.placement_groups mpi_runtime.util.placement_group PlacementGroup get_current_placement_group
mpi_runtime.calls.placement_groups mpi_runtime.util.placement_group get_placement_group placement_group
mpi_runtime.calls.placement_groups mpi_runtime.util.placement_group placement_group_table remove_placement_group
mpi_runtime.calls.remote_function mpi_runtime RemoteFunction
mpi_runtime.calls.runtime_env mpi_runtime.runtime_env RuntimeEnv
mpi_runtime.calls.strategies mpi_runtime.util.scheduling_strategies DoesNotExist Exists In NotIn
mpi_runtime.calls.strategies mpi_runtime.util.scheduling_strategies NodeAffinitySchedulingStrategy
mpi_runtime.calls.strategies mpi_runtime.util.scheduling_strategies NodeLabelSchedulingStrategy
mpi_runtime.calls.strategies mpi_runtime.util.scheduling_strategies PlacementGroupSchedulingStrategy
mpi_runtime.client.generators mpi_runtime DynamicObjectRefGenerator ObjectRefGenerator
mpi_runtime.client.refs mpi_runtime ActorRef ObjectRef adopt weak_actor
mpi_runtime.client.typed_ids mpi_runtime ActorID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID WorkerID
"""
"""Module, face, names."""
MODULES = {
    (face, name): module for module, face, *names in map(str.split, _MODULES.strip().splitlines()) for name in names
}
"""The module of each name by face and name."""
FACES = {(module, name): face for (face, name), module in MODULES.items()}


_SLOT = b"\x8c\x0bmpi_runtime\x94\x8c\x04Slot\x94\x93"
_FIRST_SLOT = b"\x8c\x1dmpi_runtime.objects.serialize\x94\x8c\x04Slot\x94\x93"
_FRAME = slice(3, 11)
"""Where a pickle has the length of its first frame."""


def as_first_pickled(arguments: bytes) -> bytes:
    """Return pickled arguments with slots as the first version pickled them: journals have hashes of these bytes."""
    if _SLOT not in arguments:
        return arguments
    length = int.from_bytes(arguments[_FRAME], "little") + len(_FIRST_SLOT) - len(_SLOT)
    first = arguments[: _FRAME.start] + length.to_bytes(8, "little") + arguments[_FRAME.stop :]
    return first.replace(_SLOT, _FIRST_SLOT, 1)  # the next slots refer to it


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return super().find_class(FACES.get((module, name), module), name)


def loads(data: bytes | bytearray | memoryview, buffers: Iterable[object] = ()) -> object:
    """Do as `pickle.loads` with a pickle of the first version."""
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


def is_missed(error: Exception) -> bool:
    """Whether a pickle could not be loaded because it names a module of the first version."""
    missed = error.name if isinstance(error, ModuleNotFoundError) else None
    return any(module == missed or module.startswith(f"{missed}.") for module, _ in FACES)

"""Where the first version had what faces offer now: its pickles, and hashes in its journals, name these modules.

An entry stays for ever, also when its module has moved or is gone.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any

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
mpi_runtime.rl.wrappers mpi_runtime.rl atari
mpi_runtime.train.in_trial mpi_runtime.train TuneReportCallback
mpi_runtime.train.reported mpi_runtime.train ReportedCheckpoint get_all_reported_checkpoints
mpi_runtime.train.scaling mpi_runtime.train ScalingConfig
mpi_runtime.train.shards mpi_runtime.train Shard
mpi_runtime.train.trainer mpi_runtime.train DataParallelTrainer TrainingFailedError
mpi_runtime.train.worker mpi_runtime.train Loop get_dataset_shard
mpi_runtime.tune.experiment.by_name mpi_runtime.tune create_scheduler create_searcher
mpi_runtime.tune.experiment.old_names mpi_runtime.tune Experiment ExperimentAnalysis run run_experiments
mpi_runtime.tune.experiment.results mpi_runtime.tune Result ResultGrid
mpi_runtime.tune.experiment.timeout mpi_runtime.tune TimeoutStopper
mpi_runtime.tune.experiment.tuner mpi_runtime.tune Made Tuner
mpi_runtime.tune.schedulers.asha mpi_runtime.tune.schedulers AsyncHyperBandScheduler _Cut _Rung
mpi_runtime.tune.schedulers.base mpi_runtime.tune.schedulers FIFOScheduler TrialScheduler
mpi_runtime.tune.schedulers.hyperband mpi_runtime.tune.schedulers HyperBandForBOHB HyperBandScheduler
mpi_runtime.tune.schedulers.median_stopping mpi_runtime.tune.schedulers MedianStoppingRule
mpi_runtime.tune.schedulers.pb2 mpi_runtime.tune.schedulers PB2
mpi_runtime.tune.schedulers.pbt mpi_runtime.tune.schedulers PopulationBasedTraining PopulationBasedTrainingReplay
mpi_runtime.tune.search.base mpi_runtime.tune.search BasicVariantGenerator Searcher
mpi_runtime.tune.search.bayesopt mpi_runtime.tune.search BayesOptSearch
mpi_runtime.tune.search.bohb mpi_runtime.tune.search TuneBOHB
mpi_runtime.tune.search.hyperopt mpi_runtime.tune.search HyperOptSearch
mpi_runtime.tune.search.limiters mpi_runtime.tune.search ConcurrencyLimiter Repeater
mpi_runtime.tune.search.nevergrad mpi_runtime.tune.search NevergradSearch
mpi_runtime.tune.search.optuna mpi_runtime.tune.search OptunaSearch
mpi_runtime.tune.show.loggers mpi_runtime.tune CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback
mpi_runtime.tune.show.progress mpi_runtime.tune CLIReporter JupyterNotebookReporter ProgressReporter
mpi_runtime.tune.space.domains mpi_runtime.tune Categorical Domain Float Function Integer Normal choice grid_search
mpi_runtime.tune.space.domains mpi_runtime.tune lograndint loguniform qlograndint qloguniform qrandint qrandn quniform
mpi_runtime.tune.space.domains mpi_runtime.tune randint randn sample_from uniform
mpi_runtime.tune.study.callback mpi_runtime.tune Callback
mpi_runtime.tune.study.settings mpi_runtime.tune CheckpointConfig FailureConfig RunConfig TuneConfig
mpi_runtime.tune.study.stoppers mpi_runtime.tune CombinedStopper ExperimentPlateauStopper FunctionStopper
mpi_runtime.tune.study.stoppers mpi_runtime.tune MaximumIterationStopper NoopStopper Stopper TimeLimit
mpi_runtime.tune.study.stoppers mpi_runtime.tune TrialPlateauStopper
mpi_runtime.tune.study.virtual_time mpi_runtime.tune Simulated simulate
mpi_runtime.tune.trial mpi_runtime.tune ReportError Trial TuneError
mpi_runtime.tune.trials.bundles mpi_runtime.tune GangRequest PlacementGroupFactory
mpi_runtime.tune.trials.checkpoint mpi_runtime.tune Checkpoint
mpi_runtime.tune.trials.reporting mpi_runtime.tune Context get_checkpoint get_context report
mpi_runtime.tune.trials.trainable mpi_runtime.tune NotTrainableError Prepared Trainable register_env register_trainable
mpi_runtime.tune.trials.trainable mpi_runtime.tune with_parameters with_resources
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


def loads(data: bytes | bytearray | memoryview, buffers: Iterable[object] = ()) -> Any:
    """Do as `pickle.loads` with a pickle of the first version."""
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


def is_missed(error: Exception) -> bool:
    """Whether a pickle could not be loaded because it names a module of the first version."""
    missed = error.name if isinstance(error, ModuleNotFoundError) else None
    return any(module == missed or module.startswith(f"{missed}.") for module, _ in FACES)

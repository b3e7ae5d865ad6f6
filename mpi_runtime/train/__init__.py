"""Training on several processes: a function that runs on a gang, with reports and checkpoints of `mpi_runtime.tune`.

    from mpi_runtime import train
    from mpi_runtime.train.torch import TorchTrainer

A training is an experiment with one trial, and the trial is one call on a gang: `tune` has its journal, its checkpoints
and its failures. torch is imported when a worker of `TorchTrainer` starts, or a function of `train.torch` is called.

- `trainer.py`: `DataParallelTrainer`: defines, runs and continues a training
- `torch.py`: `TorchTrainer`, and what a function needs to train a model of torch with others
- `xgboost.py`: `XGBoostTrainer`
- `lightgbm.py`: `LightGBMTrainer`, and what a function needs to find the other workers
- `lightning.py`: PyTorch Lightning in the function of a trainer
- `transformers.py`: transformers in the function of a trainer
- `scaling.py`: `ScalingConfig`: the number of workers, and what each of them has
- `backend.py`: the group of a library, made by a class of the program
- `callbacks.py`: callbacks that receive the reports of all workers
- `validation.py`: a function of the program judges checkpoints
- `failures.py`: the errors of trainings
- `worker.py`: one worker: runs the function, and reports with the others
- `collective.py`: a barrier, and values of rank 0 for all
- `in_trial.py`: reports of a training that runs inside a trial
- `reported.py`: the checkpoints of a running training
- `reporting.py`: `report`, and how it saves the files of checkpoints
- `local.py`: a training without workers, in the process of the program
- `shards.py`: cuts data sets into a part for each worker
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    ".tune": "Checkpoint CheckpointConfig Context FailureConfig Result RunConfig",
    "backend": "Backend BackendConfig",
    "callbacks": "Informing TrainRunContext UserCallback",
    "collective": "",
    "failures": "ControllerError TrainingFailedError WorkerGroupError",
    "in_trial": "TuneReportCallback",
    "lightgbm": "",
    "lightning": "",
    "local": "",
    "reported": "CheckpointConsistencyMode ReportedCheckpoint ReportedCheckpointStatus get_all_reported_checkpoints",
    "reporting": "CheckpointUploadMode get_checkpoint get_context report",
    "scaling": "ScalingConfig Workers",
    "shards": "DataConfig Shard",
    "torch": "TorchTrainer",
    "transformers": "",
    "trainer": "DataParallelTrainer",
    "validation": "Validating ValidationConfig ValidationTaskConfig",
    "xgboost": "",
    "worker": "Loop TrainContext get_dataset_shard",
}
"""The names of each module. `Loop`, `Informing`, `Validating` and `Workers` are written to disk (`published`)."""

__all__ = [
    "Backend", "BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointConsistencyMode", "CheckpointUploadMode",
    "Context", "ControllerError", "DataConfig", "DataParallelTrainer", "FailureConfig", "ReportedCheckpoint",
    "ReportedCheckpointStatus", "Result", "RunConfig", "ScalingConfig", "Shard", "TorchTrainer", "TrainContext",
    "TrainRunContext", "TrainingFailedError", "TuneReportCallback", "UserCallback", "ValidationConfig",
    "ValidationTaskConfig", "WorkerGroupError", "collective", "get_all_reported_checkpoints",
    "get_checkpoint", "get_context", "get_dataset_shard", "report", "torch",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.train import collective, torch
    from mpi_runtime.train.backend import Backend, BackendConfig
    from mpi_runtime.train.callbacks import TrainRunContext, UserCallback
    from mpi_runtime.train.failures import ControllerError, TrainingFailedError, WorkerGroupError
    from mpi_runtime.train.in_trial import TuneReportCallback
    from mpi_runtime.train.reported import (
        CheckpointConsistencyMode,
        ReportedCheckpoint,
        ReportedCheckpointStatus,
        get_all_reported_checkpoints,
    )
    from mpi_runtime.train.reporting import CheckpointUploadMode, get_checkpoint, get_context, report
    from mpi_runtime.train.scaling import ScalingConfig
    from mpi_runtime.train.shards import DataConfig, Shard
    from mpi_runtime.train.torch import TorchTrainer
    from mpi_runtime.train.trainer import DataParallelTrainer
    from mpi_runtime.train.validation import ValidationConfig, ValidationTaskConfig
    from mpi_runtime.train.worker import TrainContext, get_dataset_shard
    from mpi_runtime.tune import (
        Checkpoint,
        CheckpointConfig,
        Context,
        FailureConfig,
        Result,
        RunConfig,
    )
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

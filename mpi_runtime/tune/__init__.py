"""Hyper-parameter search: spaces, searchers, schedulers and stoppers with the names of Ray Tune.

    from mpi_runtime import tune

`Tuner` runs trials as tasks, `tune.simulate` runs an experiment in virtual time.
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "bundles": ("PlacementGroupFactory",),
    "callback": ("Callback",),
    "checkpoint": ("Checkpoint",),
    "loggers": ("CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"),
    "old_names": ("ExperimentAnalysis", "run", "run_experiments"),
    "progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "reporting": ("Context", "TuneContext", "get_checkpoint", "get_context", "report"),
    "result_grid": ("Result", "ResultGrid", "TuneError"),
    "schedulers": (),
    "search": (),
    "settings": ("CheckpointConfig", "FailureConfig", "RunConfig", "TuneConfig"),
    "space": (
        "choice",
        "grid_search",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    ),
    "stoppers": (
        "CombinedStopper",
        "ExperimentPlateauStopper",
        "FunctionStopper",
        "MaximumIterationStopper",
        "Stopper",
        "TimeoutStopper",
        "TrialPlateauStopper",
    ),
    "trainable": ("Trainable", "register_env", "register_trainable", "with_parameters", "with_resources"),
    "tuner": ("Tuner",),
    "virtual_time": ("Simulated", "simulate"),
}
"""The names of each module, which is loaded when one of them is used: a process that runs trials needs few of them."""

__all__ = [
    "CLIReporter",
    "CSVLoggerCallback",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "CombinedStopper",
    "Context",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FailureConfig",
    "FunctionStopper",
    "JsonLoggerCallback",
    "JupyterNotebookReporter",
    "LoggerCallback",
    "MaximumIterationStopper",
    "PlacementGroupFactory",
    "ProgressReporter",
    "Result",
    "ResultGrid",
    "RunConfig",
    "Simulated",
    "Stopper",
    "TBXLoggerCallback",
    "TimeoutStopper",
    "Trainable",
    "TrialPlateauStopper",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "choice",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "schedulers",
    "search",
    "simulate",
    "uniform",
    "with_parameters",
    "with_resources",
]

if TYPE_CHECKING:
    from mpi_runtime.tune import schedulers, search
    from mpi_runtime.tune.bundles import PlacementGroupFactory
    from mpi_runtime.tune.callback import Callback
    from mpi_runtime.tune.checkpoint import Checkpoint
    from mpi_runtime.tune.loggers import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
    from mpi_runtime.tune.old_names import ExperimentAnalysis, run, run_experiments
    from mpi_runtime.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from mpi_runtime.tune.reporting import Context, TuneContext, get_checkpoint, get_context, report
    from mpi_runtime.tune.result_grid import Result, ResultGrid, TuneError
    from mpi_runtime.tune.settings import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
    from mpi_runtime.tune.space import (
        choice,
        grid_search,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )
    from mpi_runtime.tune.stoppers import (
        CombinedStopper,
        ExperimentPlateauStopper,
        FunctionStopper,
        MaximumIterationStopper,
        Stopper,
        TimeoutStopper,
        TrialPlateauStopper,
    )
    from mpi_runtime.tune.trainable import (
        Trainable,
        register_env,
        register_trainable,
        with_parameters,
        with_resources,
    )
    from mpi_runtime.tune.tuner import Tuner
    from mpi_runtime.tune.virtual_time import Simulated, simulate


if not TYPE_CHECKING:  # or a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

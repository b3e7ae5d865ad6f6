"""Hyper-parameter search: spaces, searchers, schedulers and stoppers with the names of Ray Tune.

    from mpi_runtime import tune

`Tuner` runs trials as tasks, `tune.simulate` runs an experiment in virtual time. Three rooms share the work:

- `study/` decides, and does nothing itself. It is a state machine without a clock: events in, orders out.
- `experiment/` is the program that called `fit`. It sends events to a study, performs its orders, and writes files.
- `trials/` is what runs a single trial, in the process of its task, and what the two sides send each other.

All three know a trial by the record in `trial.py`. The modules:

- `cli.py`: the verb `tune`: lists, shows and resumes experiments
- `extend.py`: what `train` uses, beside the public names
- `experiment/`: runs experiments: `Tuner`, the driver, the journal, kept checkpoints, results
- `integration/`: callbacks for other libraries: XGBoost, LightGBM, Lightning, MLflow, Weights & Biases
- `show/`: progress, files of trials, plots, the page of an experiment
- `trials/`: one trial in its process: the trainable, its resources, `report`, checkpoints
- `study/`: the decisions of an experiment: its settings, stoppers, events and orders
- `schedulers/`: schedulers of trials: ASHA, HyperBand, PBT and others
- `search/`: searchers: grids and random numbers, BOHB, other libraries
- `space/`: spaces of parameters
- `trial.py`: the record of one trial: its state, and the moves that are allowed; reading reports
- `counting.py`: the values that each report has beside those of the trial
- `local_paths.py`: paths of results, also inside a file system of pyarrow
- `state_files.py`: files that a program writes and reads by itself: states of searchers, and schedules
- `unsupported.py`: arguments of Ray that are not here, each with what to do instead
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "": "integration schedulers search",
    "trials.bundles": "GangRequest PlacementGroupFactory",
    "study.callback": "Callback",
    "trials.checkpoint": "Checkpoint",
    "show.loggers": "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback",
    "experiment.by_name": "create_scheduler create_searcher",
    "experiment.old_names": "Experiment ExperimentAnalysis run run_experiments",
    "show.progress": "CLIReporter JupyterNotebookReporter ProgressReporter",
    "trials.reporting": "Context TuneContext get_checkpoint get_context report",
    "experiment.results": "Result ResultGrid",
    "study.settings": "CheckpointConfig FailureConfig ResumeConfig RunConfig TuneConfig",
    "space.domains": (
        "Categorical Domain Float Function Integer Normal choice grid_search lograndint loguniform qlograndint "
        "qloguniform qrandint qrandn quniform randint randn sample_from uniform"
    ),
    "study.stoppers": (
        "CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper NoopStopper Stopper "
        "TimeLimit TrialPlateauStopper"
    ),
    "experiment.timeout": "TimeoutStopper",
    "trials.trainable": (
        "NotTrainableError Prepared Trainable register_env register_trainable with_parameters with_resources"
    ),
    "trial": "ReportError Trial TuneError",
    "experiment.tuner": "Made Tuner",
    "study.virtual_time": "Simulated simulate",
}
"""The names of each module, which is loaded when one of them is used: a process that runs trials needs few of them.

Those that `__all__` lacks are for what is written to disk (`published`).
"""

__all__ = [
    "CLIReporter", "CSVLoggerCallback", "Callback", "Checkpoint", "CheckpointConfig", "CombinedStopper", "Context",
    "Experiment", "ExperimentAnalysis", "ExperimentPlateauStopper", "FailureConfig", "FunctionStopper",
    "JsonLoggerCallback", "JupyterNotebookReporter", "LoggerCallback", "MaximumIterationStopper", "NoopStopper",
    "PlacementGroupFactory", "ProgressReporter", "Result", "ResultGrid", "ResumeConfig", "RunConfig", "Simulated",
    "Stopper", "TBXLoggerCallback", "TimeoutStopper", "Trainable", "TrialPlateauStopper", "TuneConfig",
    "TuneContext", "TuneError", "Tuner", "choice", "create_scheduler", "create_searcher", "get_checkpoint",
    "get_context", "grid_search", "integration", "lograndint", "loguniform", "qlograndint", "qloguniform",
    "qrandint", "qrandn", "quniform", "randint", "randn", "register_env", "register_trainable", "report", "run",
    "run_experiments", "sample_from", "schedulers", "search", "simulate", "uniform", "with_parameters",
    "with_resources",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.tune import integration, schedulers, search
    from mpi_runtime.tune.experiment.by_name import create_scheduler, create_searcher
    from mpi_runtime.tune.experiment.old_names import Experiment, ExperimentAnalysis, run, run_experiments
    from mpi_runtime.tune.experiment.results import Result, ResultGrid
    from mpi_runtime.tune.experiment.timeout import TimeoutStopper
    from mpi_runtime.tune.experiment.tuner import Tuner
    from mpi_runtime.tune.show.loggers import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
    from mpi_runtime.tune.show.progress import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from mpi_runtime.tune.space.domains import (
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
    from mpi_runtime.tune.study.callback import Callback
    from mpi_runtime.tune.study.settings import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig
    from mpi_runtime.tune.study.stoppers import (
        CombinedStopper,
        ExperimentPlateauStopper,
        FunctionStopper,
        MaximumIterationStopper,
        NoopStopper,
        Stopper,
        TrialPlateauStopper,
    )
    from mpi_runtime.tune.study.virtual_time import Simulated, simulate
    from mpi_runtime.tune.trial import TuneError
    from mpi_runtime.tune.trials.bundles import PlacementGroupFactory
    from mpi_runtime.tune.trials.checkpoint import Checkpoint
    from mpi_runtime.tune.trials.reporting import Context, TuneContext, get_checkpoint, get_context, report
    from mpi_runtime.tune.trials.trainable import (
        Trainable,
        register_env,
        register_trainable,
        with_parameters,
        with_resources,
    )
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

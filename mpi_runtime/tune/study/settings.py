"""The settings of an experiment."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.tune.schedulers.base import TrialScheduler
from mpi_runtime.tune.search.base import Searcher
from mpi_runtime.tune.study.stoppers import Stop
from mpi_runtime.tune.trial import Trial
from mpi_runtime.tune.unsupported import WrongKindError, advised

Names = bool | str | Sequence[str] | None
"""`RunConfig(log_to_file=...)`: whether, the name of one file, or the names of two."""


@published("mpi_runtime.tune")
@advised
@dataclass
class TuneConfig:
    """The metric, the searcher, the scheduler, and how many trials there are."""

    metric: str | None = None
    """The reported value to optimise; None: trials are not compared."""
    mode: str | None = None
    """"min" or "max": which value of the metric is best."""
    search_alg: Searcher | str | None = None
    """Suggests configurations; None: grids and random values. `Tuner` takes the names of `create_searcher` too."""
    scheduler: TrialScheduler | str | None = None
    """Decides which trials continue; None: all of them. `Tuner` takes the names of `create_scheduler` too."""
    num_samples: int = 1
    """The number of trials, or of trials for each combination of the grids; -1: until a limit of time."""
    max_concurrent_trials: int | None = None
    """The most that run at a time; None: as many as fit."""
    time_budget_s: float | datetime.timedelta | None = None
    """Seconds after which the experiment ends."""
    reuse_actors: bool | None = None
    """True: an object of a class serves one trial after another, if its `reset_config` agrees. None: each trial has an
    object of its own, in a process that other trials have used. False: in a process of its own."""
    trial_name_creator: Callable[[Trial], str] | None = None
    """Makes the name of a trial from the trial; None: its id."""
    trial_dirname_creator: Callable[[Trial], str] | None = None
    """Makes the name of the directory of a trial from the trial; None: its id. A name that is taken gets the id too."""
    seed: int = 0
    """Of all random numbers. Those of a trial depend on the seed and its number alone."""

    def __post_init__(self) -> None:
        """Take the mode as the first argument too, where Ray has it."""
        modes = ("min", "max")
        if self.metric in modes and self.mode is not None and self.mode not in modes:
            metric, mode = self.mode, self.metric
            object.__setattr__(self, "metric", metric)
            object.__setattr__(self, "mode", mode)


@published("mpi_runtime.tune")
@advised
@dataclass
class FailureConfig:
    """What happens to trials that fail."""

    max_failures: int = 0
    """How often a trial that raised an error runs again, from its last checkpoint; -1: without limit."""
    fail_fast: bool | str = False
    """Whether the first trial that fails ends the experiment. With "raise" `fit` raises its error too."""
    max_crashes: int = 3
    """How often a trial runs again after the death of its process; -1: without limit. Exhausted memory and failed GPUs
    are not the fault of the trial, so they count separately."""

    def __post_init__(self) -> None:
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f'fail_fast must be True, False or "raise", not {self.fail_fast!r}')
        if self.fail_fast and self.max_failures:
            raise ValueError(
                f"fail_fast={self.fail_fast!r} ends the experiment at the first failure, and max_failures="
                f"{self.max_failures} would have trials run again: choose one"
            )


@published("mpi_runtime.tune")
@dataclass(frozen=True)
class ResumeConfig:
    """What happens to the trials of an experiment that is resumed, by their state."""

    class ResumeType(enum.Enum):
        """What may happen to a trial."""

        RESUME = "resume"
        """It continues from its last checkpoint."""
        RESTART = "restart"
        """It starts from scratch."""
        SKIP = "skip"
        """It does not run: it ends, if it has not ended or failed."""

    finished: ResumeType = ResumeType.SKIP
    """Trials that have ended without an error."""
    unfinished: ResumeType = ResumeType.RESUME
    """Trials that ran or waited, also those of a grid or of random values that were still to come."""
    errored: ResumeType = ResumeType.SKIP
    """Trials that have failed for good."""


@published("mpi_runtime.tune")
@dataclass
class CheckpointConfig:
    """Which checkpoints are kept."""

    num_to_keep: int | None = None
    """How many of each trial are kept, the best ones, and besides the last one; None: all on disk."""
    checkpoint_score_attribute: str | None = None
    """The reported value that ranks them, also `a/b` of a nested dictionary; None: the newest are the best."""
    checkpoint_score_order: str = "max"
    """"max" or "min": which value of it is best."""
    checkpoint_frequency: int = 0
    """The number of steps between checkpoints of a class; 0: none, unless the scheduler needs them."""
    checkpoint_at_end: bool | None = None
    """Whether classes make one at their end; None: if they have a `save_checkpoint`."""
    persist_s: float = 30.0
    """The least time between two checkpoints of a trial, made of dictionaries, that are written to disk. Others are in
    shared memory only, until the trial ends. With a `checkpoint_score_attribute` each is written."""

    def __post_init__(self) -> None:
        if self.checkpoint_score_order not in ("min", "max"):
            raise ValueError(f'checkpoint_score_order={self.checkpoint_score_order!r}: it must be "min" or "max"')
        if self.checkpoint_frequency < 0:
            raise ValueError(f"checkpoint_frequency={self.checkpoint_frequency}: at least 1 step, or 0 for none")
        if self.num_to_keep is not None and self.num_to_keep < 1:
            raise ValueError(f"num_to_keep={self.num_to_keep}: at least 1, or None for all")

    def check_function(self) -> None:
        """Refuse settings for classes, if the trainable is a function."""
        for name in ("checkpoint_frequency", "checkpoint_at_end"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is for subclasses of Trainable. A function reports its checkpoints: "
                    "tune.report(metrics, checkpoint=...)"
                )


@published("mpi_runtime.tune")
@advised
@dataclass
class RunConfig:
    """How an experiment runs."""

    name: str | None = None
    """The name of the experiment and its directory; None: that of the trainable with date and time. If there is
    such an experiment, a number is added; a trainer continues it instead."""
    storage_path: Any = None
    """The parent directory, on a file system that all hosts share; None: `~/tune_results`."""
    storage_filesystem: object = None
    """An object of pyarrow in which `storage_path` is looked up: the local file system, or a directory of it; None: the
    path is one of this host."""
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    """What happens to trials that fail."""
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Which checkpoints are kept."""
    verbose: int = 1
    """0: shows nothing."""
    stop: Stop = None
    """Ends trials: a dictionary of reported values (reaching one of them suffices), a function of trial id and report,
    a `Stopper`, or a list of them."""
    callbacks: Sequence[object] = ()
    """Receive events, for example loggers."""
    progress_reporter: object = None
    """Shows the progress; None: a table in a terminal or a notebook, lines elsewhere."""
    log_to_file: Names = False
    """Files in the directory of a trial that get a copy of what its Python code prints: True for `stdout` and `stderr`,
    one name for both, or two names. The output of the job has it too."""
    files: Sequence[str] = ()
    """Files of each trial: "json" (`result.json`, `params.json`), "csv" (`progress.csv`), "tensorboard". More in
    `callbacks`."""
    worker_runtime_env: Mapping[str, object] | None = None
    """The environment of the workers of a trainer, as `runtime_env` of a call has it."""
    on_walltime: str | None = None
    """"requeue": before the time of a Slurm job ends, the job is requeued, and continues the experiment. None: the
    experiment ends in time, and can be resumed."""

    def __post_init__(self) -> None:
        """Check the values. None, as Ray has it, is the default."""
        if not isinstance(self.name, str | None):
            raise TypeError(f"name must be text, not {self.name!r}: pass other settings by name, such as stop=...")
        defaults = (("failure_config", FailureConfig), ("checkpoint_config", CheckpointConfig), ("callbacks", tuple))
        for name, kind in defaults:
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())
        for name, kind in defaults[:2]:
            if not isinstance(getattr(self, name), kind):
                raise WrongKindError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        if isinstance(self.files, str) or not {*self.files} <= {"csv", "json", "tensorboard"}:
            raise ValueError(f'files must be a list of "json", "csv" and "tensorboard", not {self.files!r}')
        names_of(self.log_to_file)
        if self.on_walltime not in (None, "requeue"):
            raise ValueError(f'on_walltime must be "requeue" or None, not {self.on_walltime!r}')
        if self.on_walltime and not self.name:
            raise ValueError('on_walltime="requeue" needs a name, by which the requeued job finds its experiment')
        if hasattr(self.storage_path, "__fspath__"):  # as text, as in Ray
            object.__setattr__(self, "storage_path", self.storage_path.__fspath__())
        if "://" in str(self.storage_path).removeprefix("file://"):
            raise ValueError(
                f"storage_path={self.storage_path!r} is an address, and must be the path of a directory on a file "
                "system that all hosts share"
            )


def names_of(chosen: Names) -> tuple[str, str] | None:
    """The files of both streams; None: there are none.

    Raises:
        ValueError: it is something else.
    """
    if not chosen:
        return None
    if chosen is True:
        return "stdout", "stderr"
    if isinstance(chosen, str):
        return chosen, chosen
    names = chosen if isinstance(chosen, Sequence) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"log_to_file must be True, the name of a file, or the names of two, not {chosen!r}")
    return names[0], names[1]

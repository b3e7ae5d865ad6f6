"""Ray Tune's earlier ways to run experiments: `run`, `run_experiments`, `Experiment`, `ExperimentAnalysis`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.tune.experiment.results import Result, ResultGrid, best_of
from mpi_runtime.tune.experiment.several import Several
from mpi_runtime.tune.experiment.tuner import Tuner, checked_space
from mpi_runtime.tune.study.settings import CheckpointConfig, FailureConfig, Names, ResumeConfig, RunConfig, TuneConfig
from mpi_runtime.tune.study.stoppers import Stop, as_stopper
from mpi_runtime.tune.trial import Config, Report, Trial, TuneError, Values, flat, sign_of
from mpi_runtime.tune.trials.bundles import Resources
from mpi_runtime.tune.trials.checkpoint import Checkpoint
from mpi_runtime.tune.trials.trainable import prepared, with_resources_of_run
from mpi_runtime.tune.unsupported import AbsentArgumentError, advised

if TYPE_CHECKING:
    from pandas import DataFrame

    from mpi_runtime.tune.schedulers import TrialScheduler
    from mpi_runtime.tune.search import Searcher


@published("mpi_runtime.tune")
@advised
class ExperimentAnalysis:
    """The results of an experiment, by Ray Tune's earlier names."""

    def __init__(
        self,
        experiment: ResultGrid | str | os.PathLike[str],
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        """Read results, or the directory of an experiment.

        Raises:
            ValueError: there is no such experiment, or the mode is not "min" or "max".
        """
        if default_mode is not None:
            sign_of(default_mode)
        if not isinstance(experiment, ResultGrid) and not Tuner.can_restore(experiment):
            raise ValueError(f"{experiment} has no experiment: pass ResultGrid.experiment_path, or the ResultGrid")
        grid = experiment if isinstance(experiment, ResultGrid) else Tuner.restore(experiment).get_results()
        self._grid = grid
        self.default_metric = default_metric or grid.metric
        self.default_mode = default_mode or grid.mode

    @property
    def results_grid(self) -> ResultGrid:
        """The same as a `ResultGrid`."""
        return self._grid

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""
        return self._grid.experiment_path

    @property
    def trials(self) -> list[Trial]:
        """All trials."""
        return self._grid.trials

    def _place(self, trial_id: str) -> int:
        """The place of a trial: its number, unless there are several experiments."""
        return [trial.trial_id for trial in self.trials].index(trial_id)

    def _best(self) -> Result:
        return self._grid.get_best_result(self.default_metric, self.default_mode)

    def _compared(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self.default_metric, mode or self.default_mode
        if metric is None or mode is None:
            raise ValueError("metric and mode are needed: pass them")
        return metric, mode

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """The trial with the best value; None if no trial has reported it. The arguments are those of `ResultGrid`."""
        found = best_of(self._grid, *self._compared(metric, mode), scope, filter_nan_and_inf)
        return None if found is None else self.trials[self._place(found.trial_id)]

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> Config | None:
        """The configuration of the best trial; None if no trial has reported the metric."""
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.config

    @property
    def best_trial(self) -> Trial:
        """The trial whose last report is the best."""
        return self.trials[self._place(self._best().trial_id)]

    @property
    def best_config(self) -> Config:
        """Its configuration."""
        return self.best_trial.config

    @property
    def best_result(self) -> Report:
        """Its last report."""
        return self.best_trial.last_result

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """Its last checkpoint."""
        return self._best().checkpoint

    @property
    def best_dataframe(self) -> DataFrame:
        """Its reports as a data frame."""
        return self._best().metrics_dataframe

    @property
    def best_result_df(self) -> DataFrame:
        """Its last report as a data frame with one row."""
        return self.results_df.loc[[self.best_trial.trial_id]]

    @property
    def results(self) -> dict[str, Report]:
        """The last report of each trial, by its id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> DataFrame:
        """The last report of each trial as a data frame."""
        return self._grid.get_dataframe().set_index("trial_id")

    @property
    def trial_dataframes(self) -> Config:
        """A data frame of its reports for each trial."""
        return {result.trial_id: result.metrics_dataframe for result in self._grid}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> DataFrame:
        """A row for each trial: its last report, or with a metric its best one."""
        return self._grid.get_dataframe(metric, mode)

    def get_all_configs(self, prefix: bool = False) -> dict[str, Config]:
        """The configuration of each trial. `prefix`: flat, as columns of data frames, such as `config/lr`."""
        return {trial.trial_id: flat(trial.config, "config/") if prefix else trial.config for trial in self.trials}

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """The last checkpoint of a trial, by default of the best one by this metric: of the longest."""
        trial = trial or self.get_best_trial(metric, mode)
        return None if trial is None else self._grid[self._place(trial.trial_id)].checkpoint

    def get_best_checkpoint(
        self, trial: Trial | None = None, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """The kept checkpoint of a trial with the best value of a metric."""
        result = self._grid[self._place((trial or self.best_trial).trial_id)]
        return result.get_best_checkpoint(*self._compared(metric, mode))


OLD_KEYS = {"resources": "resources_per_trial", "trial_resources": "resources_per_trial", "repeat": "num_samples"}
"""Older names of arguments in dictionaries."""


@published("mpi_runtime.tune")
@advised
class Experiment:
    """The arguments of an experiment, for `run` and `run_experiments`."""

    def __init__(
        self,
        name: str,
        run: object,
        *,
        stop: Stop = None,
        time_budget_s: float | timedelta | None = None,
        config: Mapping[str, object] | None = None,
        resources_per_trial: Resources | None = None,
        num_samples: int = 1,
        storage_path: str | os.PathLike[str] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        trial_name_creator: Callable[[Trial], str] | None = None,
        trial_dirname_creator: Callable[[Trial], str] | None = None,
        max_failures: int = 0,
        local_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Name an experiment. The arguments are those of `run`.

        Raises:
            TuneError: `run` is not a trainable.
            TypeError, ValueError: as `Tuner`.
        """
        given = {**locals(), "storage_path": storage_path or local_dir}
        self.name = name
        self.run = prepared(run)
        checked_space(config, "config")
        as_stopper(stop)
        if checkpoint_config is not None and self.run.as_class is None:
            checkpoint_config.check_function()
        self.arguments = {key: one for key, one in given.items() if key not in ("self", "name", "run", "local_dir")}

    @classmethod
    def from_json(cls, name: str, spec: Values) -> Experiment:
        """An experiment from a dictionary of its arguments.

        Raises:
            TuneError: it has no `run`, or an unknown key.
        """
        if "run" not in spec:
            raise TuneError(f"experiment {name!r} needs 'run': a function, a class, or the name of a registered one")
        arguments = {OLD_KEYS.get(key, key): value for key, value in spec.items()}
        if "env" in arguments:  # of a reinforcement learner: a part of its configuration
            arguments["config"] = {**arguments.get("config", {}), "env": arguments.pop("env")}
        try:
            return cls(name, **arguments)
        except TypeError as error:
            raise TuneError(f"experiment {name!r}: {error}") from error


@published("mpi_runtime.tune")
@advised
def run(
    run_or_experiment: object,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Stop = None,
    time_budget_s: float | timedelta | None = None,
    config: Mapping[str, object] | None = None,
    resources_per_trial: Resources | None = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    search_alg: Searcher | str | None = None,
    scheduler: TrialScheduler | str | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int = 1,
    progress_reporter: object = None,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = False,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[object] = (),
    max_concurrent_trials: int | None = None,
    seed: int = 0,
    local_dir: str | os.PathLike[str] | None = None,
    log_to_file: Names = False,
) -> ExperimentAnalysis:
    """Run an experiment as `Tuner` does, with all settings as arguments: see `RunConfig` and `TuneConfig`.

    Args:
        run_or_experiment: the function, the class, the name of a registered one, or an `Experiment` with arguments of
            its own. A list of these runs one after another, and its analysis has the trials of all.
        resources_per_trial: as in `with_resources`.
        resume: True or "AUTO": continue the experiment of this name. Without one a new experiment starts.
            "AUTO+ERRORED": failed trials too; "AUTO+RESTART_ERRORED": these from scratch; with `_ONLY`: no others.
        resume_config: the same for trials of each state.
        local_dir: an older name of `storage_path`.
        restore: must be None: trials start from `get_checkpoint()`.

    Raises:
        TuneError: a trial has failed.
        TypeError, ValueError: as `Tuner`.
    """
    arguments = dict(locals())
    if isinstance(run_or_experiment, Experiment):
        own = run_or_experiment
        return run(**{**arguments, "run_or_experiment": own.run, "name": own.name, **own.arguments})
    if isinstance(run_or_experiment, list | tuple):
        return _several(run_or_experiment, arguments)
    if restore is not None:
        raise ValueError("run(restore=...) is not here: pass the checkpoint in config, and open it in the function")
    trainable = prepared(run_or_experiment)
    if resources_per_trial is not None:
        trainable = with_resources_of_run(trainable, resources_per_trial)
    settings = RunConfig(
        name, storage_path or local_dir, None, FailureConfig(max_failures, fail_fast),
        checkpoint_config or CheckpointConfig(), verbose, stop, callbacks, progress_reporter, log_to_file,
    )  # fmt: skip
    tuning = TuneConfig(
        metric, mode, search_alg, scheduler, num_samples, max_concurrent_trials, time_budget_s, reuse_actors,
        trial_name_creator, trial_dirname_creator, seed,
    )  # fmt: skip
    tuner = Tuner(trainable, param_space=config, tune_config=tuning, run_config=settings)
    grid = _resumed(tuner, name, trainable, resume_config or _how_to_resume(resume)).fit()
    return _analysis(grid, metric, mode, raise_on_failed_trial)


def _several(experiments: Sequence[object], arguments: dict[str, Any]) -> ExperimentAnalysis:
    """Run several experiments with these arguments."""
    for one in experiments:  # before the first one runs
        _ = one if isinstance(one, Experiment) else prepared(one)
    each = {**arguments, "raise_on_failed_trial": False}
    grid = Several([run(**{**each, "run_or_experiment": one}).results_grid for one in experiments])
    return _analysis(grid, arguments["metric"], arguments["mode"], arguments["raise_on_failed_trial"])


def _analysis(grid: ResultGrid, metric: str | None, mode: str | None, raises: bool) -> ExperimentAnalysis:
    """The results, or the first error in them if it is to be raised."""
    if raises and grid.num_errors:
        raise TuneError(f"{grid.num_errors} of {len(grid)} trials have failed. The first: {grid.errors[0]}")
    return ExperimentAnalysis(grid, metric, mode)


_KIND = ResumeConfig.ResumeType
RESUME = {
    "AUTO": ResumeConfig(),
    "AUTO+ERRORED": ResumeConfig(errored=_KIND.RESUME),
    "AUTO+RESTART_ERRORED": ResumeConfig(errored=_KIND.RESTART),
    "AUTO+ERRORED_ONLY": ResumeConfig(unfinished=_KIND.SKIP, errored=_KIND.RESUME),
    "AUTO+RESTART_ERRORED_ONLY": ResumeConfig(unfinished=_KIND.SKIP, errored=_KIND.RESTART),
}
"""Words of `run(resume=...)`."""
OLD_RESUME = ("LOCAL", "REMOTE", "PROMPT", "ERRORED_ONLY")
"""Words that Ray has dropped: there they raise DeprecationWarning."""


def _how_to_resume(resume: bool | str | None) -> ResumeConfig | None:
    if not resume:
        return None
    word = "AUTO" if resume is True else str(resume)
    if word not in RESUME:
        kind = AbsentArgumentError if word.partition("+")[0] in OLD_RESUME else ValueError
        raise kind(f"run(resume={resume!r}): resume must be True, False or one of {[*RESUME]}")
    return RESUME[word]


def _resumed(tuner: Tuner, name: str | None, trainable: object, how: ResumeConfig | None) -> Tuner:
    """The experiment of this name; without one, the tuner as it is."""
    if how is None:
        return tuner
    if name is None:
        raise ValueError("run(resume=...): which experiment? Pass name=")
    found = tuner._folder() / name
    if not Tuner.can_restore(found):
        return tuner
    again = Tuner.restore(found, trainable)
    again._how = how
    return again


@published("mpi_runtime.tune")
@advised
def run_experiments(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Mapping[str, object]],
    *,
    scheduler: TrialScheduler | str | None = None,
    verbose: int = 1,
    progress_reporter: object = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[object] = (),
    reuse_actors: bool | None = None,
    concurrent: bool = True,
    resume: bool | str | None = False,
    resume_config: ResumeConfig | None = None,
) -> list[Trial]:
    """Run experiments, one after another. The other arguments are as in `run`.

    Args:
        concurrent: has no effect: the trials of an experiment run at the same time, and experiments do not.
        experiments: one or several of `Experiment`, or a dictionary of the arguments of each by name: `run`, and as
            needed those of `Experiment`.

    Returns:
        The trials of all of them.

    Raises:
        TuneError: a trial has failed, or a dictionary has no `run` or an unknown key.
    """
    if not mpi_runtime.is_initialized():
        mpi_runtime.init()
    if isinstance(experiments, Mapping):
        experiments = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    trials: list[Trial] = []
    for experiment in [experiments] if isinstance(experiments, Experiment) else experiments:
        trials += run(
            experiment,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
            reuse_actors=reuse_actors,
            resume=resume,
            resume_config=resume_config,
        ).trials
    return trials

"""The results of an experiment: `ResultGrid`, with a `Result` for each trial."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

import cloudpickle

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.errors.remote import from_bytes
from mpi_runtime.files import private
from mpi_runtime.tune.counting import OF_EACH_REPORT
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.journal_view import History, Watched
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints, ranked
from mpi_runtime.tune.local_paths import local_path
from mpi_runtime.tune.show import plots
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import (
    Config,
    Report,
    Trial,
    TuneError,
    flat,
    has_value,
    number_in,
    score_in,
    sign_of,
)
from mpi_runtime.tune.trials.checkpoint import RETURN_VALUE, Checkpoint, Saved
from mpi_runtime.tune.unsupported import advised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

ERROR_FILE = "error.pkl"
"""The last error of a trial, in its directory."""


class Analysis(Protocol):
    """What `run` returns: an `ExperimentAnalysis`."""

    @property
    def results_grid(self) -> ResultGrid:
        """Its results."""
        ...


def error_of(place: Path, text: str) -> Exception:
    """The last error of the trial with this directory. `text`: what the journal has, for a file that is damaged."""
    try:
        return from_bytes((place / ERROR_FILE).read_bytes())
    except Exception:  # it is not there, or damaged
        return TuneError(text)


def opened(directory: Path, saved: object) -> Checkpoint | None:
    """A checkpoint of the experiment in this directory, if its files are still there."""
    if not isinstance(saved, Saved) or not saved.path or not (directory / saved.path).is_dir():
        return None
    return Checkpoint(os.path.join(directory, saved.path))


@published("mpi_runtime.tune")
@advised
@dataclass(repr=False)
class Result:
    """The result of one trial."""

    metrics: Report
    """Its last report. That of a training has what was reported, and nothing more."""
    checkpoint: Checkpoint | None
    """Its last checkpoint."""
    error: Exception | None
    """Its error, an instance of the class that was raised; None: it has not failed."""
    path: str = ""
    """The directory of its files."""
    best_checkpoints: list[tuple[Checkpoint, Config]] = field(default_factory=list)
    """The checkpoints that were kept, each with its report."""
    trial_id: str = ""
    """Five characters of the experiment and its number, such as `b6eb5_00003`."""
    config: Config = field(default_factory=dict)
    """Its configuration; after population based training the last one."""
    best: Config = field(default_factory=dict)
    """Its best report; empty if trials are not compared."""
    status: str = ""
    """TERMINATED, ERROR, or its state when the experiment was interrupted."""
    _history: History | None = None
    is_halted: bool = field(default=False, repr=False)
    """Whether the experiment has ended it, and not its own code."""

    def __repr__(self) -> str:
        own = {name: value for name, value in self.metrics.items() if name not in OF_EACH_REPORT}
        return f"Result(metrics={own}, checkpoint={self.checkpoint}, error={self.error!r}, path={self.path!r})"

    @property
    def return_value(self) -> Any:
        """What the function of a trainer returned on rank 0; None: nothing, or the training has not ended well."""
        file = Path(self.path, RETURN_VALUE)
        return pickle.loads(private.read_file(file)) if self.status == Trial.TERMINATED and file.exists() else None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: object = None) -> Result:
        """Read the result of a trial, or of a training, from its directory: `Result.path`. No job is needed.

        Args:
            path: the directory; the directory above it is that of the experiment. Of an experiment with one trial, such
                as a training, that of the experiment will do. `00003` is short for `b6eb5_00003`.
            storage_filesystem: see `RunConfig`; None: `path` is a path of this host.

        Raises:
            RuntimeError: there is no such directory, or neither it nor the directory above it has an experiment.
            ValueError: the experiment has no such trial, or has several.
        """
        place = local_path(path, storage_filesystem).resolve()
        is_whole = journal.exists(place)
        if not is_whole and not journal.exists(place.parent):
            advice = f"Pass Result.path, or ResultGrid.experiment_path, not {path}"
            if not place.is_dir():
                raise RuntimeError(f"Experiment folder {place} doesn't exist! {advice}")
            raise RuntimeError(
                f"Failed to restore the Result object: a journal doesn't exist in the folder {place}. {advice}"
            )
        seen = Watched(place if is_whole else place.parent)
        known = ", ".join(trial.trial_id for trial in seen)
        if is_whole and len(seen) != 1:
            raise ValueError(
                f"{place} is an experiment with the trials {known}: pass the directory of one of them, or see "
                "Tuner.restore(path).get_results()"
            )
        names = {
            name: one
            for one in seen
            for name in (one.trial_id, one.trial_id.rpartition("_")[2], os.path.basename(one.path))
        }
        trial = seen[0] if is_whole else names.get(place.name)
        if trial is None:
            raise ValueError(f"{place.parent} has no trial {place.name!r}: it has {known or 'none'}")
        told = trial.reported if seen.is_training else trial.history
        best = best_report(told, seen.metric, seen.mode) if seen.metric and seen.mode else {}
        by_path = {one.path: index for index, one in trial.kept.values()}  # a later one may have the same name
        kept = [
            (at, told[index])
            for index, one in trial.kept.values()
            if by_path[one.path] == index and (at := opened(seen.directory, one))
        ]
        last, checkpoint = told[-1] if told else {}, kept[-1][0] if kept else None
        if seen.is_training:
            kept = ranked(kept, *seen.ranking)
        error = error_of(Path(trial.path), str(trial.error)) if trial.status == Trial.ERROR else None
        history, status = History(seen.directory), trial.status
        return cls(last, checkpoint, error, trial.path, kept, trial.trial_id, trial.config, best, status, history)

    @property
    def filesystem(self) -> Any:
        """The file system of `path` as an object of pyarrow: the local one."""
        return load("a file system", "pyarrow.fs", "pyarrow").LocalFileSystem()

    @property
    def history(self) -> list[Report]:
        """All its reports, in order."""
        return [] if self._history is None else self._history.of(self.trial_id)

    @property
    def metrics_dataframe(self) -> DataFrame:
        """All its reports as a data frame. Needs pandas."""
        return load("a data frame", "pandas").DataFrame([flat(one) for one in self.history])

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The kept checkpoint with the best value of a metric. CheckpointConfig says which are kept.

        Args:
            metric: a reported value, also `a/b` of a nested dictionary.
            mode: "min" or "max": which value is best.

        Raises:
            RuntimeError: there is no checkpoint, or none was reported with this metric.
            ValueError: `mode` is something else.
        """
        sign_of(mode)
        if not self.best_checkpoints:
            raise RuntimeError(f"No checkpoint exists in {self.path}: report one by report(metrics, checkpoint=...)")
        kept = [(one, report) for one, report in self.best_checkpoints if has_value(report, metric)]
        if not kept:
            known = sorted({name for _, report in self.best_checkpoints for name in flat(report)})
            raise RuntimeError(f"Invalid metric name {metric!r}: the reports with checkpoints have {known}")
        return max(kept, key=lambda pair: score_in(pair[1], metric, mode))[0]


@published("mpi_runtime.tune")
@advised
class ResultGrid(Sequence[Result]):
    """The results of all trials, in the order of their creation."""

    _study: Study
    _directory: Path
    _kept: KeptCheckpoints | None
    _history: History
    _made: dict[int, Result]

    def __init__(self, experiment_analysis: Analysis) -> None:
        """The results of an experiment that `run` has returned."""
        if not hasattr(experiment_analysis, "results_grid"):
            raise TypeError(
                f"ResultGrid() takes the ExperimentAnalysis that run() returns, not {experiment_analysis!r}"
            )
        self.__dict__.update(experiment_analysis.results_grid.__dict__)

    @classmethod
    def of(cls, study: Study, directory: Path, kept: KeptCheckpoints | None = None) -> ResultGrid:
        """The results of a study. Not public: `fit` and `get_results` return it."""
        made = cls.__new__(cls)
        made._study, made._directory, made._kept = study, directory, kept
        made._history, made._made = History(directory), {}
        for trial in study.created:
            trial.told = made._history
        return made

    def __getstate__(self) -> bytes:
        """The space may have functions that only cloudpickle takes."""
        state: bytes = cloudpickle.dumps(self.__dict__)
        return state

    def __setstate__(self, state: bytes | Config) -> None:
        """Those of an earlier version are dictionaries."""
        self.__dict__.update(cloudpickle.loads(state) if isinstance(state, bytes) else state)

    @property
    def experiment_path(self) -> str:
        """The directory of the experiment."""
        return os.fspath(self._directory)

    @property
    def filesystem(self) -> object:
        """The file system of its paths as an object of pyarrow: the local one."""
        return load("a file system", "pyarrow.fs", "pyarrow").LocalFileSystem()

    @property
    def metric(self) -> str | None:
        """The metric by which trials were compared."""
        return self._study.metric

    @property
    def mode(self) -> str | None:
        """Whether "min" or "max" of it is best."""
        return self._study.mode

    @property
    def trials(self) -> list[Trial]:
        """All trials."""
        return list(self._study.trials.values())

    @property
    def errors(self) -> list[Exception]:
        """The errors of the trials that have failed: instances of `RayTaskError` and of the class that was raised."""
        return [self._error(trial) for trial in self._study.trials.values() if trial.status == Trial.ERROR]

    @property
    def num_errors(self) -> int:
        """The number of trials that have failed."""
        return sum(trial.status == Trial.ERROR for trial in self._study.trials.values())

    @property
    def num_terminated(self) -> int:
        """The number of trials that have ended without an error."""
        return sum(trial.status == Trial.TERMINATED for trial in self._study.trials.values())

    def __len__(self) -> int:
        return len(self._study.trials)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    def _at(self, place: int) -> Result:
        if place not in self._made:
            self._made[place] = self._result(self._study.created[place])
        return self._made[place]

    def _result(self, trial: Trial) -> Result:
        id, path = trial.trial_id, self._place(trial)
        checkpoint = opened(self._directory, trial.point)
        error = self._error(trial) if trial.status == Trial.ERROR else None
        entries = [] if self._kept is None else self._kept.of(id)
        kept = [(one, entry.metrics) for entry in entries if (one := opened(self._directory, entry.saved)) is not None]
        last = trial.last_result
        if self._study.is_training:
            last, kept = trial.reported, self._kept.ranked(kept) if self._kept else []
        return Result(
            last, checkpoint, error, os.fspath(path), kept, id, trial.config, trial.best_result, trial.status,
            self._history, trial.is_halted,
        )  # fmt: skip

    def _place(self, trial: Trial) -> Path:
        return self._directory / trial.folder

    def _error(self, trial: Trial) -> Exception:
        return error_of(self._place(trial), str(trial.error))

    def policy(self, trial_id: str) -> list[tuple[int, Config]]:
        """The schedule of parameters of a trial in population based training, to be replayed.

        Raises:
            ValueError: the scheduler was another one, or there is no such trial.
        """
        policies: Config = getattr(self._study.scheduler.own, "policies", {})
        if trial_id not in policies:
            raise ValueError(f"there is no schedule of trial {trial_id!r}: known are {sorted(policies)}")
        return list(policies[trial_id])

    def get_best_result(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> Result:
        """The best trial. An only trial is the best.

        Args:
            metric: the reported value to compare; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            scope: "last" compares last reports, "all" the best report of each trial, "avg" means of all reports,
                "last-5-avg" and "last-10-avg" those of the last five and ten.
            filter_nan_and_inf: whether values that are not finite do not count.

        Raises:
            RuntimeError: no trial has reported the metric.
            ValueError: no metric or mode is known.
        """
        metric, mode = metric or self.metric, mode or self.mode
        if len(self) == 1:
            return self[0]
        if metric is None or mode is None:
            raise ValueError("get_best_result() needs metric and mode: pass them, or set them in TuneConfig")
        found = best_of(self, metric, mode, scope, filter_nan_and_inf)
        if found is None:
            keys = sorted({key for result in self for key in result.metrics})
            raise RuntimeError(
                f"No best trial found: no trial has reported {metric!r} as a finite number. Reported were: {keys}"
            )
        return found

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> DataFrame:
        """A data frame with a row for each trial: its last report, or with a metric its best one, and its config.

        Raises:
            ImportError: pandas is not installed.
            ValueError: a mode without a metric.
        """
        if filter_mode and not filter_metric:
            raise ValueError("get_dataframe() needs a metric with a mode")
        rows = []
        for result in self:
            report = result.metrics
            if filter_metric is not None:
                report = best_report(result.history, filter_metric, filter_mode or self.mode or "max") or report
            told = {name: value for name, value in report.items() if name != "experiment_tag"}
            rows.append({**flat(told), **flat(result.config, "config/"), "logdir": result.path})
        return load("a data frame", "pandas").DataFrame(rows)

    def plot_history(self, metric: str | None = None, ax: Axes | None = None) -> Axes:
        """Curves of a metric, one for each trial, as matplotlib axes. Needs matplotlib."""
        return plots.history(self, metric, ax)

    def plot_parallel(self, metric: str | None = None, ax: Axes | None = None) -> Axes:
        """Parallel coordinates: a line through its parameters and its metric for each trial. Needs matplotlib."""
        return plots.parallel(self, metric, ax)

    def plot_importance(self, metric: str | None = None, ax: Axes | None = None) -> Axes:
        """The share of the metric's variance that each parameter explains. Needs matplotlib."""
        return plots.importance(self, metric, ax)

    def write_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write one page with table and curves, by default `report.html`, and return its path. It needs no network."""
        from mpi_runtime.show import page  # not at the top: few programs write one
        from mpi_runtime.tune.show.page import document

        target = Path(path) if path is not None else self._directory / "report.html"
        page.write(os.fspath(target), document(self))
        return os.fspath(target)

    def __repr__(self) -> str:
        return f"<ResultGrid of {len(self)} trials, {self.num_errors} failed, in {self.experiment_path}>"


SCOPES = {"last": 1, "all": 0, "avg": 0, "last-5-avg": 5, "last-10-avg": 10}
"""How many of the last reports of a trial are compared; 0: all."""


def best_of(results: ResultGrid, metric: str, mode: str, scope: str, finite: bool = True) -> Result | None:
    """The best result; None if there is no number to compare."""
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(SCOPES)}, not {scope!r}")
    sign, best, found = sign_of(mode), -math.inf, None
    for result in results:
        value = _value(result, metric, scope, sign)
        if value is None or (finite and math.isinf(value)):
            continue
        if found is None or sign * value > best:
            best, found = sign * value, result
    return found


def _value(result: Result, metric: str, scope: str, sign: float) -> float | None:
    if scope == "last":
        return number_in(result.metrics, metric)
    reports = result.history or ([result.best] if scope == "all" else [])
    known = [value for one in reports if (value := number_in(one, metric)) is not None][-SCOPES[scope] :]
    if not known:
        return None
    return math.fsum(known) / len(known) if scope != "all" else max(known, key=lambda one: sign * one)


def best_report(reports: Sequence[Report], metric: str, mode: str) -> Report:
    """The report with the best number of this name; empty if none has one."""
    rated = [(sign_of(mode) * value, one) for one in reports if (value := number_in(one, metric)) is not None]
    return max(rated, key=lambda pair: pair[0])[1] if rated else {}

"""Shows the progress of an experiment: a table in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mpi_runtime.core import published
from mpi_runtime.errors.frames import in_utf8
from mpi_runtime.show.live_picture import PAUSE_S, live_picture
from mpi_runtime.show.numbers import plural, seconds
from mpi_runtime.show.tables import html_table, in_html
from mpi_runtime.tune.counting import OF_EACH_REPORT
from mpi_runtime.tune.show.remaining import remaining_of
from mpi_runtime.tune.show.shown import EARLY, first_line, state_word, stopped_early
from mpi_runtime.tune.study.callback import Callback
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Report, Trial, check_goal, flat, has_value, sign_of, text
from mpi_runtime.tune.unsupported import advised

if TYPE_CHECKING:
    from rich.console import RenderableType

LINE_S = 10.0
ROWS = 20
"""The most rows of a table."""
METRICS_MAX = 4
LENGTH = 20
"""The most characters of a value in a table."""
STATES = (Trial.RUNNING, Trial.PENDING, Trial.PAUSED, Trial.TERMINATED, EARLY, Trial.ERROR)


@runtime_checkable
class Running(Protocol):
    """What runs an experiment."""

    study: Study
    where: dict[str, tuple[str, int, str]]
    """The host and process of trials."""

    def now(self) -> float:
        """The seconds that the experiment has run."""


@published("mpi_runtime.tune")
class ProgressReporter(Callback):
    """Shows the state of an experiment now and then. Subclasses define `report`, and perhaps `should_report`."""

    every_s = LINE_S
    _shown_s = 0.0
    _rows, _length, _limit = ROWS, LENGTH, METRICS_MAX  # of those that an earlier version has written
    _goal: tuple[str | None, str | None] = (None, None)

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        max_report_frequency: float | None = None,
        max_progress_rows: int = ROWS,
        max_column_length: int = LENGTH,
        infer_limit: int = METRICS_MAX,
        metric: str | None = None,
        mode: str | None = None,
        total_samples: int | None = None,
        max_error_rows: int | None = None,
        print_intermediate_tables: bool | None = None,
        sort_by_metric: bool | None = None,
    ) -> None:
        """Choose the columns.

        Args:
            metric_columns: reported values, or their headings by name; by default the metric, or without one the first
                numbers.
            parameter_columns: parameters, or their headings by name; by default the first three.
            max_report_frequency: the least number of seconds between two updates.
            max_progress_rows: the most rows of the table.
            max_column_length: the most characters of a value.
            infer_limit: the most metrics where none are chosen.
            metric: the reported value by which a trial is the best; None: that of the experiment.
            mode: whether it is to be "min" or "max"; None: that of the experiment.
            total_samples: has no effect, as the rest: the experiment knows its trials.
            max_error_rows: the line shows the first failure.
            print_intermediate_tables: a terminal has the table all the time, a file has lines.
            sort_by_metric: the best trial comes first in any case.
        """
        check_goal(metric, mode)
        self._metrics, self._parameters = _headings(metric_columns or ()), _headings(parameter_columns or ())
        self._every_s = self.every_s if max_report_frequency is None else max_report_frequency
        self._rows, self._length, self._limit = max_progress_rows, max_column_length, infer_limit
        self._goal = metric, mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show another reported value, under this heading. ValueError: it is shown already."""
        _add(self._metrics, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show another parameter, under this heading. ValueError: it is shown already."""
        _add(self._parameters, parameter, representation)

    @property
    def _live(self) -> dict[str, Trial]:
        """Trials that have started and not ended. A subclass may have no `super().__init__()`."""
        live: dict[str, Trial] = self.__dict__.setdefault("_started", {})
        return live

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        """An experiment begins. `info` has `start_time`, `total_samples`, `metric` and `mode`."""
        driver = info.get("driver")
        if isinstance(driver, Running):
            self._driver = driver
        self._path = path
        self._shown_s = time.monotonic()

    def on_trial_start(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self._live[trial.trial_id] = trial

    def on_trial_complete(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        self._live.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        if self.should_report(trials, done=False):
            self._shown_s = time.monotonic()
            self.report(trials, False)

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        if self.should_report(trials, done=True):
            self.report(trials, True)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether to show the state now: when it was not shown for a while, and at the end."""
        every_s: float = self.__dict__.get("_every_s", self.every_s)
        return done or time.monotonic() - self._shown_s >= every_s

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show the state. `done`: the experiment has ended."""
        self.show(done)

    def show(self, is_end: bool) -> None:
        """Show the state, as `report` does."""
        raise NotImplementedError

    def summary(self) -> str:
        """The state in a line."""
        study = self._driver.study
        counts = Counter(self._states().values())  # those of earlier runs too
        words = ", ".join(f"{counts[state]} {state_word(state)}" for state in STATES if counts[state])
        best, known = self._best(), len(study.trials)
        has_more = study.most is not None and study.most > known
        of = f"{known} of {study.most} trials" if has_more else plural(known, "trial")
        text = f"{of} after {seconds(self._driver.now())}: {words or 'none'}"
        if best is not None:
            metric = self._goal[0] or str(study.metric)
            text += f"; best {metric} {_short(best.last_result.get(metric))} in trial {best.trial_id}"
        failed = next((trial for trial in study.trials.values() if trial.status == Trial.ERROR), None)
        if failed is not None:
            text += f"; trial {failed.trial_id} failed: {first_line(failed.error)[:200]}"
        if (left := remaining_of(study, self._driver.now())) is not None:
            text += f"; {left}, {left.basis}" if left.how == "at most" else f"; {left}"
        return text

    def _states(self) -> dict[str, str]:
        """The state of each trial: those that are stopped early have one of their own."""
        trials = self._driver.study.trials.values()
        early = stopped_early((one.trial_id, one.status, one.is_halted, one.iteration) for one in trials)
        return {one.trial_id: EARLY if one.trial_id in early else one.status for one in trials}

    def _best(self) -> Trial | None:
        study = self._driver.study
        metric, mode = self._goal[0] or study.metric, self._goal[1] or study.mode
        if metric is None or mode is None:
            return None
        known = {one: value for one in study.trials.values() if (value := _number(one, metric)) is not None}
        return max(known, key=lambda one: sign_of(mode) * known[one], default=None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows: the best trial, those that run, the newest others."""
        study = self._driver.study
        trials = list(study.trials.values())
        metrics = self._metrics or _headings([study.metric] if study.metric else _reported(trials)[: self._limit])
        parameters = self._parameters or _headings(list(trials[0].config)[:3] if trials else [])
        best = self._best()
        chosen = [trial for trial in self._live.values() if trial is not best][: self._rows - 1]
        rest = [trial for trial in reversed(trials) if trial.trial_id not in self._live and trial is not best]
        chosen = [*([best] if best else []), *chosen, *rest[: max(0, self._rows - 1 - len(chosen))]]
        states = self._states()
        head = ["trial", "status", "runs on", "reports", "seconds", *parameters.values(), *metrics.values()]
        rows = []
        for trial in chosen:
            host, pid, _ = self._driver.where.get(trial.trial_id, ("", 0, ""))
            where = f"{host}:{pid}" if host and trial.status == Trial.RUNNING else ""
            row = [
                f"{trial.trial_id}{' *' if trial is best else ''}",
                state_word(states[trial.trial_id]),
                where,
                str(trial.iteration),
            ]
            row += [f"{trial.time_total_s:.1f}", *(_short(trial.config.get(name), self._length) for name in parameters)]
            rows.append([*row, *(_short(trial.last_result.get(name), self._length) for name in metrics)])
        return head, rows


def _headings(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def _add(columns: dict[str, str], name: str, heading: str | None) -> None:
    if name in columns:
        raise ValueError(f"there is a column {name!r} already: {list(columns)}")
    columns[name] = heading or name


def _reported(trials: Sequence[Trial]) -> list[str]:
    """The first numbers that the trials report, without those that every report has."""
    names = dict.fromkeys(
        name
        for trial in trials
        for name, value in trial.last_result.items()
        if name not in OF_EACH_REPORT and isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    return list(names)


@published("mpi_runtime.tune")
@advised
class CLIReporter(ProgressReporter):
    """Lines, or in a terminal with rich installed a table that is redrawn."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._live_table = live_picture(sys.stdout)
        if self._live_table is not None:
            self._every_s = more.get("max_report_frequency") or PAUSE_S

    def show(self, is_end: bool) -> None:
        """Draw the table, or print a line. At the end the directory of the experiment is printed too."""
        if self._live_table is None:
            print(self.summary(), flush=True)
        else:
            self._live_table.show(self._picture, 0)
            if is_end:
                self._live_table.close()
        if is_end:
            print(f"results: {self._path}", flush=True)

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        head, rows = self.table()
        table = Table(*map(escape, map(str, head)))
        for row in rows:
            table.add_row(*map(escape, row))
        return Group(table, escape(self.summary()))


@published("mpi_runtime.tune")
@advised
class JupyterNotebookReporter(ProgressReporter):
    """A table below the cell, which is replaced."""

    every_s = PAUSE_S

    def __init__(self, overwrite: bool = True, **more: Any) -> None:
        """Show a table. `overwrite` has no effect: it is always replaced."""
        super().__init__(**more)
        self._handle: Any = None

    def show(self, is_end: bool) -> None:
        ipython = importlib.import_module("IPython.display")
        head, rows = self.table()
        page = ipython.HTML(f"<p>{in_html(self.summary())}</p>{html_table(head, rows)}")
        if self._handle is None:
            self._handle = ipython.display(page, display_id=True)
        else:
            self._handle.update(page)


class StopKeyWarning(Callback):
    """Warns if the first report lacks a key of `RunConfig(stop={...})`: the condition may never be met."""

    def __init__(self, stop: Mapping[str, object]) -> None:
        self._keys = list(flat(stop))

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        keys, self._keys = self._keys, []
        if missing := [key for key in keys if not has_value(result, key)]:
            warnings.warn(
                f"stop has {missing}, and the first report, of trial {trial.trial_id}, has {sorted(result)}. If it "
                "is never reported, it ends no trial.",
                stacklevel=2,
            )


def shown_by(reporter: object, verbose: int) -> list[Callback]:
    """The reporters of an experiment."""
    if reporter is not None:
        if not isinstance(reporter, Callback):
            raise TypeError(f"progress_reporter must be a ProgressReporter, not {reporter!r}")
        return [reporter]
    if not verbose:
        return []
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return [JupyterNotebookReporter() if shell is not None and hasattr(shell, "kernel") else CLIReporter()]


def _number(trial: Trial, metric: str) -> float | None:
    """The metric in the last report of a trial, which `get_best_result` compares too; None: it is not finite."""
    value = trial.last_result.get(metric)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _short(value: object, length: int = LENGTH) -> str:
    try:
        return f"{value:.5g}" if isinstance(value, float) else "" if value is None else in_utf8(str(value)[:length])
    except Exception:  # code of its class
        return text(value)[:length]

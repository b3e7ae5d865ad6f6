"""Stoppers: conditions that end a trial, or the whole experiment."""

from __future__ import annotations

import functools
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.tune.trial import (
    Config,
    Report,
    ReportError,
    as_number,
    flat,
    has_value,
    required,
    sign_of,
    text,
    value_in,
)
from mpi_runtime.tune.unsupported import WrongKindError

Result = Mapping[str, object]


@published("mpi_runtime.tune")
class Stopper:
    """Ends trials. Subclass it for conditions of your own."""

    def __call__(self, trial_id: str, result: Report) -> bool:
        """Whether the trial that has reported this ends."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Whether all trials end, and no more begin."""
        return False


@published("mpi_runtime.tune")
class FunctionStopper(Stopper):
    """Ends a trial when a function of its id and its report returns True."""

    def __init__(self, function: Callable[[str, Config], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: Report) -> bool:
        return bool(self._function(trial_id, result))

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Whether this is a function, and no stopper."""
        return callable(fn) and not isinstance(fn, Stopper)


@published("mpi_runtime.tune")
class MaximumIterationStopper(Stopper):
    """Ends a trial after a number of reports."""

    def __init__(self, max_iter: int) -> None:
        """End each trial at its report `max_iter`."""
        self._max = max_iter
        self._counts: dict[str, int] = {}

    def __call__(self, trial_id: str, result: Report) -> bool:
        if (count := result.get("training_iteration")) is None:  # a report by hand
            count = self._counts[trial_id] = self._counts.get(trial_id, 0) + 1
        return bool(count >= self._max)


@published("mpi_runtime.tune")
class TrialPlateauStopper(Stopper):
    """Ends a trial when its metric no longer changes."""

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        """Compare the last values of a trial.

        Args:
            metric: the reported value.
            std: the standard deviation of the last values at which a trial ends.
            num_results: the number of these values.
            grace_period: the number of reports before which no trial ends.
            metric_threshold: end only trials with a value at least this good.
            mode: "min" or "max"; needed with a threshold.

        Raises:
            ValueError: an argument has no meaning, or there is a threshold and no mode.
        """
        _check(std, num_results=(num_results, 1), grace_period=(grace_period, 0))
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f'metric_threshold={metric_threshold} needs mode="min" or mode="max", not {mode!r}')
        self._metric, self._std, self._grace = metric, std, max(grace_period, num_results)
        self._length, self._threshold, self._mode = num_results, metric_threshold, mode
        self._values: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, trial_id: str, result: Report) -> bool:
        value = _value(self._metric, trial_id, result)
        values = self._values.setdefault(trial_id, deque(maxlen=self._length))
        values.append(value)
        self._counts[trial_id] = self._counts.get(trial_id, 0) + 1
        if self._counts[trial_id] < self._grace:
            return False
        if self._threshold is not None and (
            value < self._threshold if self._mode == "max" else value > self._threshold
        ):
            return False
        return _spread(values) <= self._std


@published("mpi_runtime.tune")
class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the best values of all trials no longer improve."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        """Compare the best values.

        Args:
            metric: the reported value.
            std: the standard deviation of the best values at which the experiment ends; above 0.
            top: the number of these values.
            mode: whether small or large values are good: "min" or "max".
            patience: the number of reports in a row, including the first, that must find a plateau.
        """
        sign_of(mode)
        _check(std, top=(top, 2), patience=(patience, 0))
        if not std > 0:
            raise ValueError(f"std={std} would hardly ever end an experiment: it must be above 0")
        self._metric, self._std, self._top, self._mode, self._patience = metric, std, top, mode, patience
        self._best: list[float] = []
        self._waited = 0

    def __call__(self, trial_id: str, result: Report) -> bool:
        """Note a value. A plateau ends all trials."""
        value = _value(self._metric, trial_id, result)
        if not math.isnan(value):
            self._best = sorted([*self._best, value], reverse=self._mode == "max")[: self._top]
        self._waited = self._waited + 1 if self._is_plateau() else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        """Whether the plateau is long enough."""
        return self._is_plateau() and self._waited >= self._patience

    def _is_plateau(self) -> bool:
        return len(self._best) == self._top and _spread(self._best) <= self._std


@published("mpi_runtime.tune")
class TimeLimit(Stopper):
    """Ends the experiment after a time, counted from its first trial: `time_limit` informs the study."""

    def __init__(self, timeout: float | timedelta) -> None:
        """End the experiment after `timeout` seconds."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if isinstance(seconds, str | bytes) or not seconds >= 0:
            raise ValueError(f"timeout must be a number of seconds, 0 or more, or a timedelta, not {timeout!r}")
        self.timeout_s = float(seconds)

    def __call__(self, trial_id: str, result: Report) -> bool:
        return False


@published("mpi_runtime.tune")
class CombinedStopper(Stopper):
    """Ends a trial, or the experiment, when one of several stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        self.stoppers = stoppers

    def __call__(self, trial_id: str, result: Report) -> bool:
        return any(
            [stopper(trial_id, result) for stopper in self.stoppers]
        )  # a list: each of them receives each report

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self.stoppers)


@published("mpi_runtime.tune")
class NoopStopper(CombinedStopper):
    """Ends nothing."""


Stop = Stopper | Sequence[Stopper] | Mapping[str, object] | Callable[[str, Report], bool] | None
"""What ends trials, as its user states it."""


def as_stopper(
    stop: Stop,
) -> Stopper:
    """`stop` of a `RunConfig` as a stopper."""
    if stop is None:
        return CombinedStopper()
    if isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        return FunctionStopper(functools.partial(_reaches_one, flat(stop)))
    if isinstance(stop, list) and all(isinstance(one, Stopper) for one in stop):
        return CombinedStopper(*stop)
    if callable(stop):
        return FunctionStopper(stop)
    raise WrongKindError(
        f"stop must be a dictionary, a function (trial_id, result), a Stopper or a list of them, not {stop!r}"
    )


def time_limit(stopper: Stopper) -> float:
    """The seconds after which a stopper ends the experiment; infinity without one."""
    if isinstance(stopper, TimeLimit):
        return stopper.timeout_s
    if isinstance(stopper, CombinedStopper):
        return min(map(time_limit, stopper.stoppers), default=math.inf)
    return math.inf


def ends_all(stopper: Stopper) -> bool:
    """Whether a stopper ends the experiment now, without time limits."""
    if isinstance(stopper, CombinedStopper):
        return any(map(ends_all, stopper.stoppers))
    return not isinstance(stopper, TimeLimit) and stopper.stop_all()


def _check(std: object, **counts: tuple[object, int]) -> None:
    """Raise ValueError unless the deviation is a number, 0 or more, and each count a whole one, at least its second."""
    for name, (value, least) in counts.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    if not isinstance(std, int | float) or not std >= 0:
        raise ValueError(f"std must be a number, 0 or more, not {std!r}")


def _value(metric: str, trial_id: str, result: Result) -> float:
    what = f"metric {metric!r} of a stopper"
    value = required(result, metric, what, f"the report of trial {trial_id}")
    try:
        return as_number(value)
    except Exception:  # code of its class
        raise ReportError(
            f"The {what} is {text(value):.100} in the report of trial {trial_id}, which is not a number. Report one."
        ) from None


def _reaches_one(limits: Config, trial_id: str, result: Result) -> bool:
    """Whether a report reaches one of the limits. Not a function within another: results can be pickled."""
    return any(_reaches(result, key, end) for key, end in limits.items())


def _reaches(result: Result, key: str, end: Any) -> bool:
    """Whether a value of a report reaches its limit. One that is missing, or None, does not."""
    value = value_in(result, key) if has_value(result, key) else None
    try:
        return value is not None and bool(value >= end)
    except Exception:  # code of its class
        raise ReportError(
            f"`stop` ends trials at {key}={end!r}, and a report has {text(value):.100}, which cannot be compared with "
            "it. Report a number."
        ) from None


def _spread(values: Iterable[float]) -> float:
    """The standard deviation; infinite if a value is not finite, which is not a plateau."""
    known = list(values)
    return statistics.pstdev(known) if all(map(math.isfinite, known)) else math.inf

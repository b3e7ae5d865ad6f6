"""The median stopping rule.

Source: Golovin, Solnik, Moitra, Kochanski, Karro, Sculley, "Google Vizier: A Service for Black-Box Optimization", KDD
2017, section 3.2.2. As in Ray Tune, paused and running trials count too, not only those that are complete.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field

from mpi_runtime.core import published
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE, STOP, TrialScheduler, Verdicts, either
from mpi_runtime.tune.trial import Trial
from mpi_runtime.tune.unsupported import advised


@dataclass
class _History:
    times: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    """Of the scores from the grace period to each of these times."""
    best: float = float("-inf")

    def mean(self, time: float) -> float | None:
        """The mean of its scores up to `time`."""
        count = bisect.bisect_right(self.times, time)
        return self.sums[count - 1] / count if count else None


@published("mpi_runtime.tune.schedulers")
@advised
class MedianStoppingRule(TrialScheduler):
    """Stops a trial whose best score is below the median of the others' means up to the same time."""

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        hard_stop: bool = True,
    ) -> None:
        """Compare trials by `metric` at each report.

        Args:
            time_attr: the reported value that measures the progress of a trial; it must not decrease.
            metric: the reported value to compare; None: that of `TuneConfig`.
            mode: whether it is to be "min" or "max"; None: that of `TuneConfig`.
            grace_period: younger trials are not stopped, and their reports do not count.
            min_samples_required: the number of other trials that must have got as far.
            hard_stop: False pauses trials, until nothing else runs. Reports then need checkpoints.
        """
        super().__init__(time_attr, metric, mode)
        if min_samples_required < 1:
            raise ValueError(f"min_samples_required={min_samples_required}: a median needs at least 1")
        self._grace = grace_period
        self._required = min_samples_required
        self.needs_checkpoints = not hard_stop
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._histories: dict[str, _History] = {}
        self._last: list[float] = []
        """The last time of each trial, ascending."""
        self._means: dict[float, list[float]] = {}
        """For each integer time the means up to it of the trials that reported then, ascending."""
        self._paused: list[str] = []
        self._spared: set[str] = set()

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Compare it with the trials that got as far."""
        own = self._histories.setdefault(trial.trial_id, _History())
        own.best = max(own.best, score)
        if time < self._grace:
            return {}
        others = self._others(trial.trial_id, own, time)
        is_worse = len(others) >= self._required and own.best < _median(others)
        if not own.times or time > own.times[-1]:  # not again after a restart
            self._note(own, time, score)
        if not is_worse or trial.trial_id in self._spared:
            return {trial.trial_id: CONTINUE}
        if not self.needs_checkpoints:
            return {trial.trial_id: STOP}
        self._spared.add(trial.trial_id)
        self._paused.append(trial.trial_id)
        return {trial.trial_id: PAUSE}

    def _note(self, own: _History, time: float, score: float) -> None:
        """Add the latest report of a trial."""
        total = score + (own.sums[-1] if own.sums else 0.0)
        own.sums.append(-math.inf if math.isnan(total) else total)  # of infinities of both signs
        if own.times:
            del self._last[bisect.bisect_left(self._last, own.times[-1])]
        own.times.append(time)
        bisect.insort(self._last, time)
        if float(time).is_integer():
            bisect.insort(self._means.setdefault(time, []), own.sums[-1] / len(own.sums))

    def _others(self, trial_id: str, own: _History, time: float) -> list[float]:
        """The means up to this time of the other trials that got as far, ascending."""
        is_new = not own.times or time > own.times[-1]
        known = self._means.get(time, [])
        if is_new and len(known) == len(self._last) - bisect.bisect_left(self._last, time):
            return known  # all of them reported at exactly this time
        others = [
            mean
            for other_id, history in self._histories.items()
            if other_id != trial_id and history.times and history.times[-1] >= time
            for mean in [history.mean(time)]
            if mean is not None
        ]
        return sorted(others)

    def on_idle(self) -> Verdicts:
        """Paused trials continue, and are not judged again."""
        return dict.fromkeys(self._paused, CONTINUE)


def _median(ascending: list[float]) -> float:
    low, high = ascending[(len(ascending) - 1) // 2], ascending[len(ascending) // 2]
    return low if low == high or math.isinf(low) else low + (high - low) * 0.5

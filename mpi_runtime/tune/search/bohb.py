"""The searcher of BOHB: a model of good configurations, for HyperBand.

Source: Falkner, Klein, Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", ICML 2018
(arXiv:1807.01774), algorithm 2, with the paper's constants. Kernels: Gaussian for numbers, Aitchison and Aitken's for
choices. Bandwidths by Scott's rule. The model is ours: numpy suffices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.tune.search.learning import LearningSearcher
from mpi_runtime.tune.space.domains import Rng
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.space.variants import rng_of
from mpi_runtime.tune.trial import Config, Report, ReportError, count_in, required, text
from mpi_runtime.tune.unsupported import advised

MODEL = 4
"""The stream of random numbers for suggestions."""
NARROWEST = 1e-3
SETTINGS: Config = {
    "min_points_in_model": None, "top_n_percent": 15, "num_samples": 64, "random_fraction": 1 / 3,
    "bandwidth_factor": 3.0, "min_bandwidth": NARROWEST,
}  # fmt: skip
"""The defaults of `bohb_config`."""
LEAST_LOG_DENSITY = math.log(1e-32)
"""A floor: far from all points the ratio of densities means nothing."""


@published("mpi_runtime.tune.search")
@advised
class TuneBOHB(LearningSearcher):
    """Draws configurations where good ones are dense and bad ones are rare, at the highest time with enough results."""

    def __init__(
        self,
        space: Mapping[str, object] | None = None,
        bohb_config: Mapping[str, object] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        seed: int | None = None,
        time_attr: str = "training_iteration",
    ) -> None:
        """Search a space.

        Args:
            space: domains by name; None: that of the experiment.
            bohb_config: `min_points_in_model`, `top_n_percent`, `num_samples`, `random_fraction`, `bandwidth_factor`
                and `min_bandwidth`, as in hpbandster.
            metric: the reported value to optimise; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            seed: of random numbers; None: that of the experiment.
            time_attr: the reported value that measures the progress of a trial.
        """
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        if not isinstance(bohb_config, Mapping | None):
            raise TypeError(f"bohb_config must be a dictionary of settings by name, not {bohb_config!r}")
        settings = {**SETTINGS, **(bohb_config or {})}
        if unknown := settings.keys() - SETTINGS:
            raise ValueError(f"bohb_config has {sorted(unknown)}, which is unknown")
        self._least, percent, self._samples, self._random, self._wider, self._narrowest = settings.values()
        self._share = percent / 100
        self._time_attr = time_attr

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._cube = UnitCube(self.domains)
        self._points: dict[str, np.ndarray] = {}
        self._losses: dict[float, dict[str, float]] = {}
        """By time: the losses of trials."""

    def on_trial_result(self, trial_id: str, result: Report) -> None:
        loss, time = self.loss_of(result), count_in(result, self._time_attr)
        if trial_id not in self._points:
            return
        if time is None:
            what = f"time_attr {self._time_attr!r} of TuneBOHB"
            value = required(result, self._time_attr, what, f"the report of trial {trial_id}")
            raise ReportError(f"The {what} is {text(value):.100} in the report of trial {trial_id}. Report a number.")
        self._losses.setdefault(time, {})[trial_id] = math.inf if loss is None else loss

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        if result is not None and count_in(result, self._time_attr) is not None:
            self.on_trial_result(trial_id, result)

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        """Values from the model, or at random."""
        number = trial_id.rpartition("_")[2]
        rng = rng_of(self._seed, int(number) if number.isdecimal() else len(self._points), MODEL)
        point = self._cube.random(rng)
        model = self._model()
        if model is not None and rng.random() >= self._random:
            point = self._drawn(*model, rng)
        values = self._cube.values(point)
        if first:
            values.update(first)
            point = self._cube.point(values)
        self._points[trial_id] = point
        return values

    def _model(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The good and the bad points, at the highest time with enough of them."""
        least = self._least or len(self.domains) + 1
        for time in sorted(self._losses, reverse=True):
            losses = self._losses[time]
            if len(losses) < least + 2:
                continue
            ranking = sorted(losses, key=lambda trial_id: (losses[trial_id], trial_id))
            good = max(least, int(self._share * len(ranking)))
            bad = max(least, len(ranking) - good)
            points = np.array([self._points[trial_id] for trial_id in ranking])
            return points[:good], points[-bad:]
        return None

    def _drawn(self, good: np.ndarray, bad: np.ndarray, rng: Rng) -> np.ndarray:
        """The best of some points near good ones, by the ratio of densities."""
        wide_good, wide_bad = self._bandwidths(good), self._bandwidths(bad)
        candidates = np.array(
            [self._near(good[int(rng.integers(len(good)))], wide_good, rng) for _ in range(self._samples)]
        )
        ratio = self._log_density(candidates, good, wide_good) - self._log_density(candidates, bad, wide_bad)
        chosen: np.ndarray = candidates[int(np.argmax(ratio))]
        return chosen

    def _near(self, point: np.ndarray, widths: np.ndarray, rng: Rng) -> np.ndarray:
        found = np.empty(len(point))
        for place, count in enumerate(self._cube.counts):
            if count:
                other = rng.random() < widths[place]
                found[place] = (int(rng.integers(count)) + 0.5) / count if other else point[place]
                continue
            while True:
                value = rng.normal(point[place], self._wider * widths[place])
                if 0 <= value <= 1:
                    break
            found[place] = value
        return found

    def _bandwidths(self, points: np.ndarray) -> np.ndarray:
        scale = len(points) ** (-1 / (4 + points.shape[1]))
        widths: np.ndarray = np.clip(1.06 * points.std(axis=0) * scale, max(self._narrowest, NARROWEST), 0.95)
        return widths

    def _log_density(self, at: np.ndarray, points: np.ndarray, widths: np.ndarray) -> np.ndarray:
        logs = np.zeros((len(at), len(points)))
        for place, count in enumerate(self._cube.counts):
            away = at[:, place, None] - points[None, :, place]
            if count:
                same = np.log1p(-widths[place])
                logs += np.where(np.abs(away) < 1e-9, same, math.log(widths[place] / max(1, count - 1)))
            else:
                logs += -0.5 * (away / widths[place]) ** 2 - math.log(widths[place])
        top = logs.max(axis=1, keepdims=True)
        density = top[:, 0] + np.log(np.exp(logs - top).mean(axis=1))
        floored: np.ndarray = np.maximum(density, LEAST_LOG_DENSITY)
        return floored

"""Population based bandits: population based training with new parameters from a model.

Source: Parker-Holder, Nguyen, Roberts, "Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits", NeurIPS 2020 (arXiv:2002.02518): a Gaussian process of the gain in an interval over time and parameters, with
a kernel that forgets, and the parameters with the highest upper confidence bound. The process is ours: numpy suffices.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.tune.schedulers.base import Verdicts, either
from mpi_runtime.tune.schedulers.pbt import PopulationBasedTraining
from mpi_runtime.tune.space.domains import Rng, uniform
from mpi_runtime.tune.trial import Config, Trial
from mpi_runtime.tune.unsupported import advised

CANDIDATES = 1000
POINTS_MAX = 500
"""The model has the last POINTS_MAX gains."""
FORGETTING = 0.1
LENGTH = 0.3
NOISE = 0.05


@published("mpi_runtime.tune.schedulers")
@advised
class PB2(PopulationBasedTraining):
    """Lets the worst trials continue from checkpoints of the best, with parameters that a model finds promising."""

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Sequence[float]] | None = None,
        quantile_fraction: float = 0.25,
        custom_explore_fn: Callable[[Config], Config] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        """Compare trials as `PopulationBasedTraining` does, which has the other arguments.

        Args:
            hyperparam_bounds: for each parameter that may change its lowest and highest value. A parameter that the
                space does not have gets its first value between them.
        """
        if not hyperparam_bounds:
            raise ValueError("PB2 needs hyperparam_bounds: what may change, with its lowest and highest value")
        if not isinstance(hyperparam_bounds, Mapping) or not all(
            isinstance(pair, list | tuple) and len(pair) == 2 for pair in hyperparam_bounds.values()
        ):
            raise TypeError(f"hyperparam_bounds must be a dictionary of pairs by name, not {hyperparam_bounds!r}")
        self._bounds = {name: (float(low), float(high)) for name, (low, high) in hyperparam_bounds.items()}
        for name, (low, high) in self._bounds.items():
            if not low < high:
                raise ValueError(f"hyperparam_bounds[{name!r}] is {low:g} to {high:g}: the first must be the lower one")
        super().__init__(
            time_attr, metric, mode, perturbation_interval, 0.0,
            {name: uniform(low, high) for name, (low, high) in self._bounds.items()},
            quantile_fraction, 0.0, custom_explore_fn=custom_explore_fn, log_config=log_config,
            require_attrs=require_attrs, synch=synch,
        )  # fmt: skip

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self._last: dict[str, tuple[float, float]] = {}
        self._gains: list[tuple[float, list[float], float]] = []
        """Time, parameters between 0 and 1, gain of the score per unit of time."""
        self._now = 0.0

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Learn the gain of the last interval, then compare."""
        before = self._last.get(trial.trial_id)
        self._now = max(self._now, time)
        if before is not None and time > before[0] and math.isfinite(score) and math.isfinite(before[1]):
            self._gains.append((time, self._unit(trial.config), (score - before[1]) / (time - before[0])))
        self._last[trial.trial_id] = time, score
        verdicts = super().on_trial_result(trial, time, score)
        if not isinstance(verdicts.get(trial.trial_id, ""), str):
            del self._last[trial.trial_id]  # it continues from another checkpoint
        return verdicts

    def _unit(self, config: Config) -> list[float]:
        return [(float(config[name]) - low) / (high - low) for name, (low, high) in self._bounds.items()]

    def _explored(self, config: Config, rng: Rng) -> Config:
        changed: Config = copy.deepcopy(config)
        for (name, (low, high)), x in zip(self._bounds.items(), self._promising(rng), strict=True):
            value = low + float(x) * (high - low)
            changed[name] = round(value) if isinstance(config.get(name), int) else value
        return self._agreed(changed)

    def _promising(self, rng: Rng) -> np.ndarray:
        """The candidate with the highest upper confidence bound."""
        candidates = rng.random((CANDIDATES, len(self._bounds)))
        data = self._gains[-POINTS_MAX:]
        if len(data) < 2:
            first: np.ndarray = candidates[0]
            return first
        times = np.array([time for time, _, _ in data]) / self._interval
        points = np.array([point for _, point, _ in data])
        gains = np.array([gain for _, _, gain in data])
        gains = (gains - gains.mean()) / (gains.std() or 1.0)
        now = np.full(len(candidates), self._now / self._interval)
        own = _kernel(points, times, points, times) + NOISE * np.eye(len(data))
        across = _kernel(candidates, now, points, times)
        solved = np.linalg.solve(own, across.T)
        mean = solved.T @ gains
        variance = np.clip(1 - (across * solved.T).sum(axis=1), 1e-9, None)
        beta = 0.2 * len(self._bounds) * math.log(2 * (len(data) + 1))
        chosen: np.ndarray = candidates[int(np.argmax(mean + math.sqrt(beta) * np.sqrt(variance)))]
        return chosen


def _kernel(a: np.ndarray, at: np.ndarray, b: np.ndarray, bt: np.ndarray) -> np.ndarray:
    away = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    found: np.ndarray = np.exp(-away / (2 * LENGTH**2)) * (1 - FORGETTING) ** (np.abs(at[:, None] - bt[None, :]) / 2)
    return found

"""The library bayesian-optimization as a searcher."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.tune.search.learning import LearningSearcher
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.trial import Config
from mpi_runtime.tune.unsupported import advised


@published("mpi_runtime.tune.search")
@advised
class BayesOptSearch(LearningSearcher):
    """Asks a Gaussian process for configurations: numbers only. It sees the space as the unit cube."""

    def __init__(
        self,
        space: Mapping[str, object] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        random_state: int | None = None,
        random_search_steps: int = 10,
        seed: int | None = None,
    ) -> None:
        """Search a space.

        Args:
            space: domains by name; None: that of the experiment.
            metric: the reported value to optimise; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            random_state: another name of `seed`.
            random_search_steps: the number of random trials before the model is asked.
            seed: of random numbers; None: that of the experiment.

        Raises:
            ImportError: bayesian-optimization is not installed.
        """
        load("BayesOptSearch", "bayes_opt", "bayesian-optimization")
        super().__init__(space, metric, mode, points_to_evaluate, random_state if seed is None else seed)
        self._steps = random_search_steps

    def begin(self, seed: int) -> None:
        """Create an empty model.

        Raises:
            ValueError: the space has choices.
        """
        from bayes_opt import BayesianOptimization

        self._cube = UnitCube(self.domains)
        if any(self._cube.counts):
            raise ValueError("BayesOptSearch searches numbers only, and the space has choice(): use OptunaSearch")
        bounds = dict.fromkeys(self.domains, (0.0, 1.0))
        self._model = BayesianOptimization(None, bounds, random_state=seed, verbose=0, allow_duplicate_points=True)
        self._asked: dict[str, dict[str, float]] = {}
        self._random = np.random.default_rng(seed)

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        if len(self._asked) < self._steps or not len(self._model.space):
            point = self._cube.random(self._random)
        else:
            suggested = self._suggested()
            point = np.array([float(suggested[name]) for name in self.domains])
        values = {**self._cube.values(point), **(first or {})}
        point = self._cube.point(values)
        self._asked[trial_id] = dict(zip(self.domains, map(float, point), strict=True))
        return values

    def _suggested(self) -> Any:
        import bayes_opt

        if not hasattr(bayes_opt, "UtilityFunction"):
            return self._model.suggest()
        return self._model.suggest(bayes_opt.UtilityFunction(kind="ucb", kappa=2.576))  # before version 2

    def tell(self, trial_id: str, loss: float | None) -> None:
        """A trial has ended. Only finite losses go into the model: a Gaussian process cannot use infinity."""
        if loss is not None and math.isfinite(loss):
            self._model.register(params=self._asked[trial_id], target=-loss)

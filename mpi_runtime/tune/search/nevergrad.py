"""Nevergrad's optimizers as a searcher."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.tune.search.learning import LearningSearcher
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.trial import Config


@published("mpi_runtime.tune.search")
class NevergradSearch(LearningSearcher):
    """Asks an optimizer of nevergrad for configurations. It sees numbers between 0 and 1, and choices by number."""

    def __init__(
        self,
        optimizer: str | Callable[..., Any] = "NGOpt",
        optimizer_kwargs: Mapping[str, object] | None = None,
        space: Mapping[str, object] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        seed: int | None = None,
    ) -> None:
        """Search a space.

        Args:
            optimizer: a class of `nevergrad.optimizers`, or the name of one.
            optimizer_kwargs: its arguments, such as `budget`.
            space: domains by name; None: that of the experiment.
            metric: the reported value to optimise; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            points_to_evaluate: values of the first trials.
            seed: of random numbers; None: that of the experiment.

        Raises:
            ImportError: nevergrad is not installed.
        """
        load("NevergradSearch", "nevergrad")
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._optimizer, self._arguments = optimizer, dict(optimizer_kwargs or {})

    def begin(self, seed: int) -> None:
        import nevergrad

        self._cube = UnitCube(self.domains)
        space: Config = {}
        for name, count in zip(self.domains, self._cube.counts, strict=True):
            number = nevergrad.p.Scalar(lower=0.0, upper=1.0)
            space[name] = nevergrad.p.Choice(list(range(count))) if count else number
        parametrization = nevergrad.p.Dict(**space)
        parametrization.random_state = np.random.RandomState(seed)
        kind = nevergrad.optimizers.registry[self._optimizer] if isinstance(self._optimizer, str) else self._optimizer
        self._model = kind(parametrization=parametrization, **{"budget": 1000, **self._arguments})
        self._asked: Config = {}
        self._worst = -math.inf

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        if first:
            rest = self._cube.values(self._cube.random(np.random.default_rng(0)))
            self._model.suggest(self._cube.numbers(self._cube.point({**rest, **first})))
        self._asked[trial_id] = found = self._model.ask()
        return {**self._cube.values(self._cube.from_numbers(found.value)), **(first or {})}

    def tell(self, trial_id: str, loss: float | None) -> None:
        """A trial has ended. Without a number it gets the worst loss so far, since nevergrad takes no infinity."""
        found = self._asked.pop(trial_id)
        if loss is not None:
            self._worst = max(self._worst, loss)
        if math.isfinite(self._worst):
            self._model.tell(found, self._worst if loss is None else loss)

"""The common part of searchers around other libraries: first points, names, and losses."""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from mpi_runtime.tune.search.base import Searcher
from mpi_runtime.tune.space.flat import domains, named, nested
from mpi_runtime.tune.trial import value_in


class LearningSearcher(Searcher):
    """Asks a model for values, and reports losses to it: lower is better. Subclasses hold the model."""

    library = ""
    """The module that it needs."""

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        if self.library:
            try:
                importlib.import_module(self.library)
            except ImportError as error:
                package = {"bayes_opt": "bayesian-optimization"}.get(self.library, self.library)
                raise ImportError(f"{type(self).__name__} needs {package}: pip install {package}") from error
        super().__init__(metric, mode)
        self.space = space
        self.seed = seed
        self.points = [dict(point) for point in points_to_evaluate or ()]
        self.domains: dict[str, Any] = {}
        self._first: deque[dict[str, Any]] = deque()

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Begin an experiment with this metric and space.

        Raises:
            ValueError: there is no metric, or nothing to search.
        """
        super().set_search_properties(metric, mode, config, **spec)
        if self.metric is None or self.mode is None:
            raise ValueError(
                f"{type(self).__name__} learns from results: set metric and mode, in TuneConfig for example"
            )
        self.domains = domains(self.space if self.space is not None else config)
        if not self.domains:
            raise ValueError(f"{type(self).__name__} has nothing to search: the space has no domain such as uniform()")
        self._first = deque(self.points)
        self.begin(spec.get("seed", 0) if self.seed is None else self.seed)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration of a new trial."""
        first = named(self._first.popleft(), self.domains) if self._first else None
        return nested(self.ask(trial_id, first))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Report the loss of a trial to the model."""
        self.tell(trial_id, self.loss_of(result))

    def loss_of(self, result: Mapping[str, Any] | None) -> float | None:
        """The loss in a report; None: there is no number."""
        try:
            value = float(value_in(result or {}, str(self.metric)))
        except (KeyError, TypeError, ValueError):
            return None
        if math.isnan(value):
            return None
        return value if self.mode == "min" else -value

    def begin(self, seed: int) -> None:
        """Create an empty model of `self.domains`."""
        raise NotImplementedError

    def ask(self, trial_id: str, first: Mapping[str, Any] | None) -> dict[str, Any]:
        """Values for a new trial, by name; `first` has those that are fixed."""
        raise NotImplementedError

    def tell(self, trial_id: str, loss: float | None) -> None:
        """A trial has ended; None: without a number."""
        raise NotImplementedError

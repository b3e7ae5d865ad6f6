"""The common part of searchers around other libraries: first points, names, and losses."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from mpi_runtime.tune import state_files
from mpi_runtime.tune.search.base import Searcher, points_of
from mpi_runtime.tune.space.flat import Known, domains, named, unflatten_dict
from mpi_runtime.tune.trial import Config, Report, as_number, check_goal, value_in


class LearningSearcher(Searcher):
    """Asks a model for values, and reports losses to it: lower is better. Subclasses hold the model."""

    takes_functions = False
    """Whether the space may be a function."""
    takes_several = False
    """Whether there may be several metrics."""
    _is_restored = False
    """Whether it has the state of another searcher."""

    def __init__(
        self,
        space: Mapping[str, object] | Callable[..., Mapping[str, object] | None] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, object]] | None = None,
        seed: int | None = None,
    ) -> None:
        if not self.takes_several:
            check_goal(metric, mode)
        super().__init__(metric, mode)
        if not isinstance(space, Mapping | None) and not (self.takes_functions and callable(space)):
            raise TypeError(f"space must be a dictionary of domains by name, not {space!r}")
        self._space = space
        self.seed = seed
        self.points = points_of(points_to_evaluate)
        self.domains: dict[str, Known] = {}
        self._has_begun = False
        self._first: deque[Config] = deque()

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config, **spec: int) -> bool:
        """Begin an experiment with this metric and space. It needs a metric, a mode, and something to search."""
        if self._is_restored:
            return True  # it continues with what it knows
        super().set_search_properties(metric, mode, config, **spec)
        if self.metric is None or self.mode is None:
            raise ValueError(
                f"{type(self).__name__} learns from results: set metric and mode, in TuneConfig for example"
            )
        self.domains = {} if callable(self._space) else domains(config if self._space is None else self._space)
        if not self.domains and not callable(self._space):
            raise ValueError(f"{type(self).__name__} has nothing to search: the space has no domain such as uniform()")
        self._first = deque(self.points)
        self._has_begun = True
        self.begin(spec.get("seed", 0) if self.seed is None else self.seed)
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        """The configuration of a new trial. Outside of an experiment the space is that of the searcher."""
        if not self._has_begun:
            self.set_search_properties(None, None, {})
        first = self._first.popleft() if self._first else None
        if first is not None and self.domains:
            first = named(first, self.domains)
        return unflatten_dict(self.ask(trial_id, first))

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        """Report the loss of a trial to the model."""
        self.tell(trial_id, self.loss_of(result))

    def loss_of(self, result: Mapping[str, object] | None) -> float | None:
        """The loss in a report; None: there is no number. The study refuses reports without the metric."""
        return loss_in(result, str(self.metric), self.mode)

    def get_state(self) -> Config:
        """Its model and its settings, by name."""
        return dict(vars(self))

    def set_state(self, state: Config) -> None:
        """Continue with the model of another searcher, also in the next experiment."""
        vars(self).update(state)
        self._is_restored = self._has_begun

    def save(self, checkpoint_path: str) -> None:
        """Write its state to a file."""
        state_files.write(checkpoint_path, self.get_state())

    def restore(self, checkpoint_path: str) -> None:
        """Continue with the state in a file. Reading it may run code, as with `pickle`."""
        self.set_state(state_files.read(checkpoint_path))

    def begin(self, seed: int) -> None:
        """Create an empty model of `self.domains`."""
        raise NotImplementedError

    def ask(self, trial_id: str, first: Mapping[str, object] | None) -> Config:
        """Values for a new trial, by name; `first` has those that are fixed."""
        raise NotImplementedError

    def tell(self, trial_id: str, loss: float | None) -> None:
        """A trial has ended; None: without a number."""
        raise NotImplementedError


def loss_in(result: Mapping[str, object] | None, metric: str, mode: str | None) -> float | None:
    """A reported value, lower is better; None: there is no number."""
    try:
        value = as_number(value_in(result or {}, metric))
    except Exception:  # code of its class
        return None
    if math.isnan(value):
        return None
    return value if mode == "min" else -value

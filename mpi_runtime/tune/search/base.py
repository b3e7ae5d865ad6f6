"""The interface of searchers, and the searcher for grids and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpi_runtime.core import published
from mpi_runtime.tune import state_files
from mpi_runtime.tune.space.samplers import generator_of
from mpi_runtime.tune.space.variants import grid_points, merged, resolve, rng_of
from mpi_runtime.tune.trial import Config, Report, Trial, check_goal
from mpi_runtime.tune.unsupported import BadSettingError, advised

DRAWS = 0
"""The stream of random numbers for values of parameters."""


@published("mpi_runtime.tune.search")
class Searcher:
    """Suggests configurations. Subclass it for an algorithm of your own.

    A searcher serves one experiment at a time.
    """

    FINISHED = "FINISHED"
    """Returned by `suggest` when there are no more configurations."""
    STATE_FILE = "searcher-state-{}.pkl"
    """The file of `save_to_dir`."""

    takes_grids = False
    """Whether it accepts spaces with grids."""

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        """Optimise `metric`; None: that of `TuneConfig`. A searcher that can may have lists of metrics and modes.

        Raises:
            TypeError: `metric` is not a name.
            ValueError: `mode` is neither "min" nor "max".
        """
        several = isinstance(metric, list | tuple) and isinstance(mode, list | tuple)
        if several and len(mode or ()) != len(metric or ()):
            raise BadSettingError(f"metric has {len(metric or ())} names, so mode must be a list as long, not {mode!r}")
        for one, direction in zip(metric or (), mode or (), strict=True) if several else [(metric, mode)]:
            check_goal(one, direction)
        self._metric = metric  # searchers made for Ray read and set these names
        self._mode = mode

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Searchers of an earlier version have their goal in `metric` and `mode` themselves."""
        self.__dict__.update({f"_{name}" if name in ("metric", "mode") else name: state[name] for name in state})

    @property
    def metric(self) -> str | None:
        """The reported value to optimise; None: not known yet."""
        return self._metric

    @metric.setter
    def metric(self, metric: str | None) -> None:
        self._metric = metric

    @property
    def mode(self) -> str | None:
        """Either "min" or "max"; None: not known yet."""
        return self._mode

    @mode.setter
    def mode(self, mode: str | None) -> None:
        self._mode = mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config, **spec: int) -> bool:
        """Begin an experiment with this metric and space.

        Args:
            metric: the reported value to optimise; None: trials are not compared.
            mode: "min" or "max".
            config: the space.
            spec: `seed` and `num_samples` of the experiment.

        Returns:
            Whether the searcher uses them.
        """
        self.metric, self.mode = self.metric or metric, self.mode or mode
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        """A configuration for a new trial, None to be asked again later, or `FINISHED`.

        Values that the configuration leaves open are drawn from the space.
        """
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: Report) -> None:
        """A trial has reported and continues. Nested values have names like `a/b`."""

    def on_trial_complete(self, trial_id: str, result: Report | None = None, error: bool = False) -> None:
        """A trial has ended. `result` is its last report; None if it failed or never reported."""

    def trials(self, num_samples: int) -> int | None:
        """The number of trials for `num_samples`; None: unlimited."""
        return None if num_samples == -1 else num_samples

    # For a later experiment that begins with what this searcher knows. A resume needs none of it.

    def save(self, checkpoint_path: str) -> None:
        """Write its state to a file. Searchers of a program's own override it."""
        raise NotImplementedError

    def restore(self, checkpoint_path: str) -> None:
        """Take the state from a file that `save` has written."""
        raise NotImplementedError

    def get_state(self) -> Config:
        """Its state, by name."""
        raise NotImplementedError

    def set_state(self, state: Config) -> None:
        """Take a state of `get_state`."""
        raise NotImplementedError

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """`save` to a file in this directory. Each experiment does so at its end, if the searcher can be saved."""
        try:
            state_files.save_as(checkpoint_dir, self.STATE_FILE.format(session_str), self.save)
        except NotImplementedError:  # there is nothing to save
            return

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """`restore` from the directory of an experiment.

        Raises:
            RuntimeError: it has no state of a searcher.
        """
        self.restore(state_files.newest(checkpoint_dir, self.STATE_FILE.format("*")))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Hear the limit of a `ConcurrencyLimiter`. Returns whether the searcher sees to it itself."""
        return False

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn the value of a configuration that was tried elsewhere. Few searchers can."""
        raise NotImplementedError

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learn from trials of an earlier experiment: one, a list of them, or its analysis."""
        found = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in [found] if isinstance(found, Trial) else found:
            if metric in trial.last_result:
                is_failed = trial.status == Trial.ERROR
                self.add_evaluated_point(trial.config, trial.last_result[metric], error=is_failed)


def points_of(points: object) -> list[Config]:
    """Copies of the points in `points_to_evaluate`, checked."""
    if not isinstance(points, list | tuple | None) or not all(isinstance(point, Mapping) for point in points or ()):
        raise TypeError(f"points_to_evaluate must be a list of dictionaries by name, not {points!r}")
    return [dict(point) for point in points or ()]


@published("mpi_runtime.tune.search")
@advised
class BasicVariantGenerator(Searcher):
    """All combinations of grids, with values drawn at random for the rest.

    The random values of trial n depend on the seed and n alone.
    """

    takes_grids = True

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, object]] = (),
        constant_grid_search: bool = False,
        random_state: object = None,
        max_concurrent: int = 0,
    ) -> None:
        """Draw values at random.

        Args:
            points_to_evaluate: values of the first trials, which count as samples. Other values are drawn.
            constant_grid_search: whether all combinations of a sample have the same random values.
            random_state: a seed, or a generator of numpy that gives one; None: that of the experiment.
            max_concurrent: the most trials that run at a time; 0: as many as fit.
        """
        super().__init__()
        self._first = points_of(points_to_evaluate)
        self._is_constant = constant_grid_search
        self._seed = (
            random_state if isinstance(random_state, int | None) else int(generator_of(random_state).integers(2**31))
        )
        self.max_concurrent = max_concurrent
        self._next = 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config, **spec: int) -> bool:
        """Begin at the first trial of a space."""
        self._used_seed = spec.get("seed", 0) if self._seed is None else self._seed
        spaces = [merged(config, chosen) for chosen in self._first]
        self._points = [(space, grid_points(space)) for space in spaces]
        self._count = sum(len(points) for _, points in self._points)
        self._space, self._grid = config, grid_points(config)
        self._next = 0
        return True

    def suggest(self, trial_id: str) -> Config:
        """The configuration of the next trial."""
        number = self._next
        self._next += 1
        place = number
        for space, points in self._points:
            if place < len(points):
                return resolve(space, points[place], rng_of(self._used_seed, number, DRAWS))
            place -= len(points)
        sample, place = divmod(place, len(self._grid))
        stream = self._count + sample if self._is_constant else number
        return resolve(self._space, self._grid[place], rng_of(self._used_seed, stream, DRAWS))

    def trials(self, num_samples: int) -> int | None:
        """The trials of the points to evaluate, then a trial for each combination of the grids and further sample."""
        if num_samples == -1:
            return None
        return self._count + max(0, num_samples - len(self._first)) * len(self._grid)

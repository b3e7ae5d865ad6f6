"""The interface of searchers, and the searcher for grids and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpi_runtime.tune.space.variants import grid_points, merged, resolve, rng_of

DRAWS = 0
"""Marks the numbers that are drawn for values of parameters."""


class Searcher:
    """Suggests configurations. Subclass it for an algorithm of your own.

    A searcher serves one experiment at a time.
    """

    FINISHED = "FINISHED"
    """What `suggest` returns when there will be no more."""

    takes_grids = False
    """Whether the space may have grids."""

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        """Search for the best `metric`; None: that of `TuneConfig`."""
        self.metric = metric
        self.mode = mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Take what the experiment searches for, and in which space.

        Args:
            metric: the reported value to be best; None if there is none.
            mode: "min" or "max".
            config: the space.
            spec: `seed` and `num_samples` of the experiment.

        Returns:
            Whether the searcher uses them.
        """
        self.metric, self.mode = self.metric or metric, self.mode or mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """A configuration for a new trial, None if there is none now, or `FINISHED`.

        Values that the configuration leaves open are drawn from the space.
        """
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has reported and continues."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial has ended. `result` is its last report; None if it failed or never reported."""

    def trials(self, num_samples: int) -> int | None:
        """How many trials `num_samples` means; None: without an end."""
        return None if num_samples == -1 else num_samples


class BasicVariantGenerator(Searcher):
    """All combinations of grids, with values drawn at random for the rest.

    What is drawn for trial n depends on the seed and n alone.
    """

    takes_grids = True

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] = (),
        constant_grid_search: bool = False,
        random_state: int | None = None,
    ) -> None:
        """Choose how values are drawn.

        Args:
            points_to_evaluate: values of the first trials. They count as samples. The rest of these trials is drawn.
            constant_grid_search: whether all combinations of a sample have the same random values.
            random_state: a seed; None: that of the experiment.
        """
        super().__init__()
        self._first = [dict(point) for point in points_to_evaluate]
        self._is_constant = constant_grid_search
        self._seed = random_state
        self._next = 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Begin at the first trial of a space."""
        self._used_seed = spec.get("seed", 0) if self._seed is None else self._seed
        self._points = [
            (merged(config, chosen), point) for chosen in self._first for point in grid_points(merged(config, chosen))
        ]
        self._space, self._grid = config, grid_points(config)
        self._next = 0
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """The configuration of the next trial. There is always one."""
        number = self._next
        self._next += 1
        if number < len(self._points):
            space, point = self._points[number]
            return resolve(space, point, rng_of(self._used_seed, number, DRAWS))
        sample, place = divmod(number - len(self._points), len(self._grid))
        stream = len(self._points) + sample if self._is_constant else number
        return resolve(self._space, self._grid[place], rng_of(self._used_seed, stream, DRAWS))

    def trials(self, num_samples: int) -> int | None:
        """As many as the points to evaluate have, and each combination of the grids for each further sample."""
        if num_samples == -1:
            return None
        return len(self._points) + max(0, num_samples - len(self._first)) * len(self._grid)

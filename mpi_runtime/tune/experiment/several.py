"""The results of several experiments, which `run` has run one after another."""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.core import published
from mpi_runtime.tune.experiment.results import Result, ResultGrid
from mpi_runtime.tune.trial import Config, Trial


@published("mpi_runtime.tune")
class Several(ResultGrid):
    """The trials of all experiments, in their order. Its directory, metric and mode are those of the first."""

    def __init__(self, grids: Sequence[ResultGrid]) -> None:
        """Join the results of these experiments.

        Raises:
            ValueError: there are none.
        """
        if not grids:
            raise ValueError("run([]) has no experiment to run: pass at least one")
        self.__dict__.update(grids[0].__dict__)
        self._grids = grids

    @property
    def trials(self) -> list[Trial]:
        """The trials of all."""
        return [trial for grid in self._grids for trial in grid.trials]

    @property
    def errors(self) -> list[Exception]:
        """The errors of all."""
        return [error for grid in self._grids for error in grid.errors]

    @property
    def num_errors(self) -> int:
        """The number of trials that have failed."""
        return sum(grid.num_errors for grid in self._grids)

    @property
    def num_terminated(self) -> int:
        """The number of trials that have ended without an error."""
        return sum(grid.num_terminated for grid in self._grids)

    def __len__(self) -> int:
        return sum(map(len, self._grids))

    def _at(self, place: int) -> Result:
        for grid in self._grids:
            if place < len(grid):
                return grid[place]
            place -= len(grid)
        raise IndexError(place)

    def policy(self, trial_id: str) -> list[tuple[int, Config]]:
        """The schedule of a trial of one of them."""
        for grid in self._grids:
            if trial_id in {trial.trial_id for trial in grid.trials}:
                return grid.policy(trial_id)
        return super().policy(trial_id)

"""Reports the evaluations of LightGBM."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.integration.boosting import Metrics, Reports
from mpi_runtime.tune.trials.checkpoint import Checkpoint

FILE = "model.txt"


class TuneReportCheckpointCallback:
    """`lightgbm.train(..., callbacks=[this])` reports after each round, for example `valid-binary_logloss`."""

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = FILE,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """Report evaluations.

        Args:
            metrics: a name or names of values, such as "valid-binary_logloss"; or a dictionary with other names for
                them; None: all.
            filename: the name of the model's file in a checkpoint.
            frequency: the number of rounds between checkpoints; 0: none.
            checkpoint_at_end: whether the last round has a checkpoint.
            results_postprocessing_fn: changes what is reported.
        """
        self._reports = Reports(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)

    def __call__(self, env: Any) -> None:
        """Report the values of a round. Those of folds (`lightgbm.cv`) are means and deviations."""
        found: dict[str, dict[str, Any]] = {}
        for data, name, value, _, *deviation in env.evaluation_result_list or ():
            own = found.setdefault(data, {})
            own[f"{name}-mean" if deviation else name] = value
            if deviation:
                own[f"{name}-stdv"] = deviation[0]
        is_last = env.iteration == env.end_iteration - 1
        saves = self._reports.is_due(env.iteration) or (is_last and self._reports.saves_at_end)
        self._reports.send(found, env.model if saves else None)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = FILE) -> Any:
        """Read the model in a checkpoint.

        Raises:
            ImportError: lightgbm is not installed.
        """
        with checkpoint.as_directory() as folder:
            return load(cls.__name__, "lightgbm").Booster(model_file=os.path.join(folder, filename))

"""Reports the evaluations of LightGBM."""

from __future__ import annotations

import os
from typing import Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.integration.boosting import Reports
from mpi_runtime.tune.trial import Config
from mpi_runtime.tune.trials.checkpoint import Checkpoint


class TuneReportCheckpointCallback(Reports):
    """`lightgbm.train(..., callbacks=[this])` reports after each round, for example `valid-binary_logloss`."""

    CHECKPOINT_NAME = "model.txt"

    def __call__(self, env: Any) -> None:
        """Report the values of a round. Those of folds (`lightgbm.cv`) are means and deviations."""
        found: dict[str, Config] = {}
        for data, name, value, _, *deviation in env.evaluation_result_list or ():
            own = found.setdefault(data, {})
            own[f"{name}-mean" if deviation else name] = value
            if deviation:
                own[f"{name}-stdv"] = deviation[0]
        is_last = env.iteration == env.end_iteration - 1
        saves = self._is_due(env.iteration) or (is_last and self._saves_at_end)
        self._send(found, env.model if saves else None)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Read the model in a checkpoint.

        Raises:
            ImportError: lightgbm is not installed.
        """
        with checkpoint.as_directory() as folder:
            return load(cls.__name__, "lightgbm").Booster(model_file=os.path.join(folder, filename))

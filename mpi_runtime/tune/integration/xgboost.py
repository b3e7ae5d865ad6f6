"""Reports the evaluations of XGBoost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.integration.boosting import Metrics, Reports
from mpi_runtime.tune.trials.checkpoint import Checkpoint

if TYPE_CHECKING:
    Base = object
else:
    try:
        from xgboost.callback import TrainingCallback as Base
    except ImportError:
        Base = object  # the constructor raises
FILE = "model.ubj"


class TuneReportCheckpointCallback(Base):
    """`xgboost.train(..., callbacks=[this])` reports after each round, for example `validation-logloss`."""

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
            metrics: a name or names of values, such as "validation-logloss"; or a dictionary with other names for them;
                None: all.
            filename: the name of the model's file in a checkpoint. Its ending is the format.
            frequency: the number of rounds between checkpoints; 0: none.
            checkpoint_at_end: whether the last model is a checkpoint, with a further report of the last values.
            results_postprocessing_fn: changes what is reported.

        Raises:
            ImportError: xgboost is not installed.
        """
        load("TuneReportCheckpointCallback", "xgboost")
        super().__init__()
        self._reports = Reports(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._saved = -1

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Sequence[Any]]]) -> bool:
        """Report the values of a round. Returns False: XGBoost continues."""
        self._last = {data: {name: values[-1] for name, values in own.items()} for data, own in evals_log.items()}
        if self._reports.is_due(epoch):
            self._saved = epoch
        self._reports.send(self._last, model if self._saved == epoch else None)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the last model, unless it has been reported."""
        if self._reports.saves_at_end and self._saved != model.num_boosted_rounds() - 1:
            self._reports.send(self._last, model)
        return model

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = FILE) -> Any:
        """Read the model in a checkpoint."""
        booster = load(cls.__name__, "xgboost").Booster()
        with checkpoint.as_directory() as folder:
            booster.load_model(os.path.join(folder, filename))
        return booster

"""Reports the evaluations of XGBoost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.integration.boosting import Reports
from mpi_runtime.tune.trials.checkpoint import Checkpoint

if TYPE_CHECKING:
    Base = object
else:
    try:
        from xgboost.callback import TrainingCallback as Base
    except ImportError:
        Base = object  # the constructor raises


class TuneReportCheckpointCallback(Reports, Base):
    """`xgboost.train(..., callbacks=[this])` reports after each round, for example `validation-logloss`."""

    CHECKPOINT_NAME = "model.ubj"
    library = "xgboost"
    _saved = -1

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Sequence[Any]]]) -> bool:
        """Report the values of a round. Returns False: XGBoost continues."""
        self._last = {data: {name: values[-1] for name, values in own.items()} for data, own in evals_log.items()}
        if self._is_due(epoch):
            self._saved = epoch
        self._send(self._last, model if self._saved == epoch else None)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the last model, unless it has been reported."""
        if self._saves_at_end and self._saved != model.num_boosted_rounds() - 1:
            self._send(self._last, model)
        return model

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Read the model in a checkpoint."""
        booster = load(cls.__name__, "xgboost").Booster()
        with checkpoint.as_directory() as folder:
            booster.load_model(os.path.join(folder, filename))
        return booster

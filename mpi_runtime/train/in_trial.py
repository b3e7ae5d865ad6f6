"""A training inside a trial: a function of a `Tuner` that makes a trainer, and calls `fit`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mpi_runtime.core import published
from mpi_runtime.train.callbacks import newly_saved
from mpi_runtime.tune import Callback, report
from mpi_runtime.tune.extend import OF_EACH_REPORT, Report, Trial, trial_run

CHECKPOINT_PATH_KEY = "checkpoint_path"
"""The name of the reported value with the directory of the last checkpoint."""


@published("mpi_runtime.train")
class TuneReportCallback(Callback):
    """Passes the reports of a training on to the trial in which it runs: `RunConfig(callbacks=[TuneReportCallback()])`.

    A report with a checkpoint gets its directory as `checkpoint_path`. If the trial ends at a report, the training ends
    too. Where a trial does nothing but to train, pass the trainer to `Tuner`: that needs no process beside the workers.
    """

    def __init__(self) -> None:
        """Find the trial.

        Raises:
            RuntimeError: this is not a trial.
        """
        trial_run()
        self._directory = ""

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        """The training begins."""
        self._directory = path

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        """The workers have reported."""
        values = {name: value for name, value in result.items() if name not in OF_EACH_REPORT}
        saved = newly_saved(trial)
        if saved is not None and saved.path:
            values[CHECKPOINT_PATH_KEY] = os.path.join(self._directory, saved.path)
        report(values)

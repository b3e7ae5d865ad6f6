"""Logs trials to Weights & Biases."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.show.loggers import LoggerCallback, numbers_in
from mpi_runtime.tune.trial import Config, Report, Trial


class WandbLoggerCallback(LoggerCallback):
    """A run of Weights & Biases for each trial: its parameters, and the numbers that it reports."""

    replays = False

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        excludes: Sequence[str] = (),
        log_config: bool = False,
        **kwargs: object,
    ) -> None:
        """Log to Weights & Biases. Log in before by `wandb login` or the variable WANDB_API_KEY.

        Args:
            project: of the runs; None: that of the variable WANDB_PROJECT.
            group: of the runs; None: the name of the experiment.
            excludes: names of parameters and values that are not logged.
            log_config: whether the configuration is logged with each report: some schedulers change it.
            kwargs: further arguments of `wandb.init`. With `mode="offline"` nothing leaves the host: `wandb sync`
                sends the runs later.

        Raises:
            ImportError: wandb is not installed.
        """
        load("WandbLoggerCallback", "wandb")
        self._arguments = {"project": project, **kwargs}
        self._group = group
        self._excludes = {*excludes, *(() if log_config else ("config",))}

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        super().setup(*args, path=path, **info)
        self._name = os.path.basename(path)
        self._runs: Config = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Begin a run, or continue the one of an earlier part of this experiment: it has the same id."""
        arguments = {
            "id": hashlib.sha256(trial.local_path.encode()).hexdigest()[:16],
            "name": f"{self._name} {trial}",
            "group": self._group or self._name,
            "config": {name: value for name, value in trial.config.items() if name not in self._excludes},
            "dir": trial.local_path,
            "resume": "allow",
            "reinit": "create_new",
            **self._arguments,
        }
        self._runs[trial.trial_id] = load("WandbLoggerCallback", "wandb").init(**arguments)

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        values = {
            name: value
            for name, value in numbers_in(result, with_config=True).items()
            if name not in self._excludes and name.partition("/")[0] not in self._excludes
        }
        self._runs[trial.trial_id].log(values, step=result["training_iteration"])

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            run.finish(exit_code=int(failed))

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        """End the runs of trials that have not ended."""
        for run in self._runs.values():
            run.finish()
        self._runs.clear()

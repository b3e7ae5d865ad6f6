"""Logs trials to MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.show.loggers import LoggerCallback, numbers_in, step_of
from mpi_runtime.tune.trial import Report, Trial, flat
from mpi_runtime.tune.trials.json_values import written

TAG = "mpi_runtime.trial"
"""The tag of a run with the directory of its trial, by which a resumed experiment finds the run."""


class MLflowLoggerCallback(LoggerCallback):
    """A run of MLflow for each trial: its parameters, the numbers that it reports, and perhaps its files."""

    replays = False

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        """Log to MLflow.

        Args:
            tracking_uri: of the server, or a folder; None: that of MLflow's settings.
            registry_uri: of MLflow's registry; None: the same.
            experiment_name: of the experiment in MLflow, which is created if necessary; None: the name here.
            tags: of all runs.
            save_artifact: whether the files in the directory of a trial are stored when it ends.
            log_params_on_trial_end: whether parameters are logged at the end of a trial instead of its start.

        Raises:
            ImportError: mlflow is not installed.
        """
        load("MLflowLoggerCallback", "mlflow")
        self._uris = tracking_uri, registry_uri
        self._name = experiment_name
        self._tags = dict(tags or {})
        self._saves, self._params_last = save_artifact, log_params_on_trial_end

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        """Find or create the experiment."""
        super().setup(*args, path=path, **info)
        self._client = load("MLflowLoggerCallback", "mlflow").MlflowClient(*self._uris)
        name = self._name or os.path.basename(path)
        found = self._client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else self._client.create_experiment(name)
        self._runs: dict[str, str] = {}
        """The id of the run of each trial."""

    def log_trial_start(self, trial: Trial) -> None:
        """Begin a run, or continue the one of an earlier part of this experiment."""
        path = trial.local_path.replace("'", "")
        known = self._client.search_runs([self._experiment], f"tags.`{TAG}` = '{path}'", max_results=1)
        tags = {**self._tags, "trial_name": str(trial), TAG: path}
        run = known[0] if known else self._client.create_run(self._experiment, tags=tags, run_name=str(trial))
        self._runs[trial.trial_id] = run.info.run_id
        if not known and not self._params_last:
            self._log_parameters(trial)

    def _log_parameters(self, trial: Trial) -> None:
        for name, value in flat(written(trial.config)).items():
            self._client.log_param(self._runs[trial.trial_id], name, value)

    def log_trial_result(self, iteration: int, trial: Trial, result: Report) -> None:
        entities = load("MLflowLoggerCallback", "mlflow.entities", "mlflow")
        now_ms = int(time.time() * 1000)
        values = [entities.Metric(name, value, now_ms, step_of(result)) for name, value in numbers_in(result).items()]
        self._client.log_batch(self._runs[trial.trial_id], values)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        run = self._runs[trial.trial_id]
        if self._params_last:
            self._log_parameters(trial)
        if self._saves:
            self._client.log_artifacts(run, trial.local_path)
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

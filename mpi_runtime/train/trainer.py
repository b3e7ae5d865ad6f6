"""Trainers: a function that several workers run together, as an experiment of `mpi_runtime.tune` with one trial."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.show import log
from mpi_runtime.train import shards
from mpi_runtime.train.scaling import ScalingConfig
from mpi_runtime.train.worker import RANK, Backend, Loop, takes_config
from mpi_runtime.tune import Result, RunConfig, TuneError, Tuner
from mpi_runtime.tune.extend import DEFAULT_FOLDER, PREPARED, Prepared, Trial, advised


@published("mpi_runtime.train")
class TrainingFailedError(TuneError):
    """A training has failed, and `FailureConfig` allows no other attempt. Its cause is the error of the worker."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result
        """What the training has reported until then."""


@published("mpi_runtime.train")
class WorkerGroupError(TrainingFailedError):
    """A training has failed because workers have."""

    def __init__(
        self, error_message: str, worker_failures: Mapping[int, Exception], result: Result | None = None
    ) -> None:
        if not isinstance(worker_failures, Mapping):
            raise TypeError(f"worker_failures must be errors by rank, such as {{0: error}}, not {worker_failures!r}")
        super().__init__(error_message, result)
        self.error_message = error_message
        """The same text as that of this error."""
        self.worker_failures = dict(worker_failures)
        """The error of the worker with which the failure began, by its rank."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.error_message, self.worker_failures, self.result)


class _Training(Tuner):
    """The experiment of a trainer. Its user does not see it."""

    _is_training = True

    def _again(self) -> str:
        return (
            f"run the program again with RunConfig(name={self._home.name!r}, storage_path={str(self._home.parent)!r}): "
            "the training continues from its last checkpoint"
        )


@published("mpi_runtime.train")
@advised
class DataParallelTrainer:
    """Runs a function on several workers at the same time, and keeps what it reports.

    def train_loop(config):
        for epoch in range(config["epochs"]):
            train.report({"epoch": epoch})

    result = DataParallelTrainer(
        train_loop, train_loop_config={"epochs": 3}, scaling_config=train.ScalingConfig(num_workers=2)
    ).fit()
    """

    _backend: Backend | None = None

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, object] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
    ) -> None:
        """Define a training. With `datasets` it starts a job unless one runs.

        Args:
            train_loop_per_worker: the function that each worker runs; it takes `train_loop_config`, or nothing.
            train_loop_config: values for it, by name.
            scaling_config: the number of workers and their resources; None: one worker with a CPU.
            run_config: name, directory, failures and output, as of an experiment of `mpi_runtime.tune`. A name that
                exists already continues that training.
            datasets: by name what is cut into a part for each worker: a list of references, an array, a data set of
                torch or anything else with a length and items by number; or a data set of `mpi_runtime.data`, whose
                stream the workers share. `get_dataset_shard` returns the part.

        Raises:
            TypeError: an argument has a wrong type.
        """
        if not callable(train_loop_per_worker):
            raise TypeError(f"train_loop_per_worker must be a function, not {train_loop_per_worker!r}")
        takes_config(train_loop_per_worker)
        if not isinstance(train_loop_config, Mapping | None):
            raise TypeError(f"train_loop_config must be a dictionary, not {train_loop_config!r}")
        if not isinstance(scaling_config, ScalingConfig | None):
            raise TypeError(f"scaling_config must be a ScalingConfig, not {scaling_config!r}")
        if not isinstance(run_config, RunConfig | None):
            raise TypeError(f"run_config must be a RunConfig, not {run_config!r}")
        if not isinstance(datasets, Mapping | None):
            raise TypeError(f"datasets must be a dictionary of data by name, not {datasets!r}")
        for name, items in (datasets or {}).items():
            shards.check(name, items)
        self.run_config = run_config or RunConfig()
        """How it runs."""
        self.scaling_config = scaling_config or ScalingConfig()
        """Its workers."""
        loop = Loop(train_loop_per_worker, dict(train_loop_config or {}), self._backend)
        size = self.scaling_config.num_workers
        parts = {name: shards.shared(items, size) for name, items in (datasets or {}).items()}
        references = {name: mpi_runtime.put(items) for name, items in parts.items()}
        prepared = Prepared(loop, references, self.scaling_config.request, type(self).__name__)
        setattr(self, PREPARED, prepared)  # so `Tuner` takes a trainer

    def fit(self) -> Result:
        """Run the training, or continue that of the same name and directory, and return its result.

        Starts a job unless one runs. If there is such a training, a line is logged, and the function runs with its last
        checkpoint, also if it had ended: more epochs continue it, and where none are left the result stays.

        Raises:
            WorkerGroupError: it has failed more often than `FailureConfig` allows.
            InfeasibleResourceError: the nodes can never hold all workers.
        """
        run = self.run_config
        folder = Path(run.storage_path or DEFAULT_FOLDER).expanduser() / (run.name or "")
        if run.name and Tuner.can_restore(folder):
            tuner = _Training.restore(folder, self)
            tuner._revived = (Trial.ERROR, Trial.TERMINATED)
            text = (
                f"There is a training in {folder} already: it continues from its last checkpoint, if it has one. For a "
                "new training choose another RunConfig(name=...), or remove the directory."
            )
            log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
        else:
            tuner = _Training(self, run_config=run)
        [result] = tuner.fit()
        return _checked(result)

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether a directory has a training or an experiment. `fit` with its name continues it."""
        return Tuner.can_restore(path)


def _checked(result: Result) -> Result:
    if result.error is not None:
        raise WorkerGroupError(
            f"The training in {result.path} has failed: {result.error}\nTo continue it from its last "
            "checkpoint, run the program again with the same RunConfig(name=..., storage_path=...).",
            {_rank_of(result.error): result.error},
            result,
        ) from result.error
    return result


def _rank_of(error: Exception) -> int:
    """The rank of the worker that has raised an error, or has died."""
    rank = getattr(getattr(error, "cause", error), RANK, None)
    if rank is None:
        found = re.search(r"rank (\d+) of its gang", str(error))
        rank = int(found[1]) if found else 0
    return int(rank)

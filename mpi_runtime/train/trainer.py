"""Trainers: a function that several workers run together, as an experiment of `mpi_runtime.tune` with one trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import NoReturn

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.show import log
from mpi_runtime.train import shards
from mpi_runtime.train.backend import BackendConfig
from mpi_runtime.train.callbacks import Informing, TrainRunContext, callbacks_of, rank_of
from mpi_runtime.train.failures import WorkerGroupError
from mpi_runtime.train.local import new_name, run_here
from mpi_runtime.train.scaling import ScalingConfig, Workers
from mpi_runtime.train.shards import DataConfig
from mpi_runtime.train.validation import Validating, ValidationConfig
from mpi_runtime.train.worker import Loop, takes_config
from mpi_runtime.tune import Callback, Result, ResumeConfig, RunConfig, Tuner
from mpi_runtime.tune.extend import PREPARED, AbsentArgumentError, Prepared, WrongKindError, advised, folder


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

    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, object] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        backend_config: BackendConfig | None = None,
        validation_config: ValidationConfig | None = None,
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
            dataset_config: how they share data sets of `mpi_runtime.data`; None: each has an equal part of each.
            backend_config: makes the group of a library of the workers.
            validation_config: how checkpoints are validated; None: `report` cannot ask for it.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: a callback is something else, or `run_config` has `log_to_file`.
        """
        if not callable(train_loop_per_worker):
            raise TypeError(f"train_loop_per_worker must be a function, not {train_loop_per_worker!r}")
        takes_config(train_loop_per_worker)
        if not isinstance(train_loop_config, Mapping | None):
            raise TypeError(f"train_loop_config must be a dictionary, not {train_loop_config!r}")
        if not isinstance(scaling_config, ScalingConfig | None):
            raise WrongKindError(f"scaling_config must be a ScalingConfig, not {scaling_config!r}")
        _check_run_config(run_config)
        if not isinstance(datasets, Mapping | None):
            raise TypeError(f"datasets must be a dictionary of data by name, not {datasets!r}")
        if not isinstance(dataset_config, DataConfig | None):
            raise TypeError(f"dataset_config must be a DataConfig, not {dataset_config!r}")
        if not isinstance(backend_config, BackendConfig | None):
            raise TypeError(f"backend_config must be a BackendConfig, not {backend_config!r}")
        if not isinstance(validation_config, ValidationConfig | None):
            raise TypeError(f"validation_config must be a ValidationConfig, not {validation_config!r}")
        for name, items in (datasets or {}).items():
            shards.check(name, items)
        self.run_config = run_config or RunConfig()
        """How it runs."""
        self.scaling_config = scaling_config or ScalingConfig()
        """Its workers."""
        settings = self.scaling_config, backend_config or BackendConfig(), dataset_config or DataConfig()
        context = TrainRunContext(self.run_config, train_loop_config, *settings)
        self._callbacks = callbacks_of(context)
        if validation_config is not None:
            self._callbacks.append(Validating(validation_config))
        loop = Loop(
            train_loop_per_worker, dict(train_loop_config or {}), backend_config,
            any(isinstance(one, Informing) for one in self._callbacks), validation_config is not None,
        )  # fmt: skip
        self._here, parts = None, self._shared(datasets or {}, dataset_config or DataConfig())
        if self.scaling_config.num_workers == 0:
            self._here, parts = partial(run_here, loop, parts), {}
        given = {name: mpi_runtime.put(items) for name, items in parts.items()}
        asks = Workers(self.scaling_config, self.run_config.worker_runtime_env)
        resources = asks if self.scaling_config.elasticity_enabled else asks({})
        setattr(self, PREPARED, Prepared(loop, given, resources, type(self).__name__))  # so `Tuner` takes a trainer

    def _shared(self, datasets: Mapping[str, object], config: DataConfig) -> dict[str, object]:
        """Prepare data sets of `mpi_runtime.data` for their workers; others as they are."""
        size = self.scaling_config.num_workers
        if isinstance(size, tuple):
            if streams := [name for name, items in datasets.items() if shards.is_stream(items)]:
                raise ValueError(
                    f"datasets[{streams[0]!r}] is a stream, which is shared by a fixed number of workers: state "
                    f"num_workers={size[1]} instead of {size}"
                )
            return dict(datasets)
        return shards.shared(datasets, config, max(1, size))

    def fit(self) -> Result:
        """Run the training, or continue that of the same name and directory, and return its result.

        Starts a job unless one runs. If there is such a training, a line is logged, and the function runs with its last
        checkpoint, also if it had ended: more epochs continue it, and where none are left the result stays.

        Raises:
            WorkerGroupError: it has failed more often than `FailureConfig` allows.
            ControllerError: a callback has raised.
            InfeasibleResourceError: the nodes can never hold all workers.
        """
        run = _plain(self.run_config, self._callbacks)
        if self._here is not None:
            return self._here(replace(run, name=run.name or new_name(type(self).__name__)))
        place = folder(run.storage_path, run.storage_filesystem) / (run.name or "")
        if run.name and Tuner.can_restore(place):
            tuner = _Training.restore(place, self)
            again = ResumeConfig.ResumeType.RESUME
            tuner._how = ResumeConfig(finished=again, errored=again)
            tuner._run, tuner._callbacks = run, self._callbacks  # those of this program, not of the earlier one
            text = (
                f"There is a training in {place} already: it continues from its last checkpoint, if it has one. For a "
                "new training choose another RunConfig(name=...), or remove the directory."
            )
            log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
        else:
            tuner = _Training(self, run_config=run)
        [result] = tuner.fit()
        return _checked(result)

    @classmethod
    def can_restore(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise DeprecationWarning, as in Ray: `fit` with the name of an earlier training continues it."""
        raise AbsentArgumentError(
            "restore() and can_restore() of trainers are not here: fit() continues the training that has the same "
            "RunConfig(name=..., storage_path=...), if there is one"
        )

    restore = can_restore


def _plain(run: RunConfig, callbacks: list[Callback]) -> RunConfig:
    """The settings of a run, as they are written: with all callbacks, and nothing that only Ray has."""
    own = {field.name: getattr(run, field.name) for field in fields(RunConfig)}
    return RunConfig(**{**own, "callbacks": callbacks})


def _checked(result: Result) -> Result:
    if result.error is not None:
        raise WorkerGroupError(
            f"The training in {result.path} has failed: {result.error}\nTo continue it from its last "
            "checkpoint, run the program again with the same RunConfig(name=..., storage_path=...).",
            {rank_of(result.error): result.error},
            result,
        ) from result.error
    return result


def _check_run_config(run_config: object) -> None:
    if not isinstance(run_config, RunConfig | None):
        raise WrongKindError(f"run_config must be a RunConfig, not {run_config!r}")
    if run_config is not None and run_config.log_to_file:
        raise ValueError("log_to_file is for trials of a Tuner: the output of the job has what workers print")

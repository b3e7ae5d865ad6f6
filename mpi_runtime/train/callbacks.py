"""Callbacks of a training: they run in the driver, and receive the reports of all workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.train.backend import BackendConfig
from mpi_runtime.train.failures import ControllerError
from mpi_runtime.train.scaling import ScalingConfig
from mpi_runtime.train.shards import DataConfig
from mpi_runtime.train.worker import RANK, Beside
from mpi_runtime.tune import Callback, Checkpoint, RunConfig
from mpi_runtime.tune.extend import Report, Saved, Trial, error_of


@published("mpi_runtime.train")
@dataclass(frozen=True)
class TrainRunContext:
    """What a callback gets about its training."""

    run_config: RunConfig
    """How it runs."""
    train_loop_config: Mapping[str, object] | None
    """The configuration of its function."""
    scaling_config: ScalingConfig
    """Its workers."""
    backend_config: BackendConfig | None = None
    """The group of its workers."""
    dataset_config: DataConfig = field(default_factory=DataConfig)
    """How the workers share data sets."""
    run_id: str = field(default_factory=lambda: uuid4().hex)
    """Names this training, also beside others of the same name."""

    def get_run_config(self) -> RunConfig:
        """How it runs."""
        return self.run_config


@published("mpi_runtime.train")
class UserCallback:
    """Base class of callbacks of a training, for `RunConfig(callbacks=[...])`. Override what you need."""

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """All workers have reported. `metrics`: what each has, by rank. `checkpoint`: the saved one, of all of them."""

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """A worker has failed. `worker_exceptions`: its error, by its rank."""


@published("mpi_runtime.train")
class Informing(Callback):
    """Calls the callbacks of a training for the events of its trial."""

    def __init__(self, callbacks: Sequence[UserCallback], context: TrainRunContext) -> None:
        """Call these."""
        self._callbacks, self._context = callbacks, context
        self._directory = ""

    def setup(self, *args: object, path: str = "", **info: object) -> None:
        """The training begins."""
        self._directory = path

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        """The workers have reported."""
        if isinstance(trial.beside, Beside):
            metrics, checkpoint = list(trial.beside.metrics), new_checkpoint(self._directory, trial)
            self._call("after_report", metrics=metrics, checkpoint=checkpoint)

    def on_trial_recover(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A worker has failed, and all run again."""
        error = error_of(Path(self._directory), str(trial.error))
        self._call("after_exception", worker_exceptions={rank_of(error): error})

    def on_trial_error(self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: object) -> None:
        """A worker has failed for good."""
        self.on_trial_recover(iteration, trials, trial)

    def _call(self, name: str, **arguments: object) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, name)(run_context=self._context, **arguments)
            except Exception as error:  # noqa: PERF203
                raise ControllerError(error) from error


def callbacks_of(context: TrainRunContext) -> list[Callback]:
    """The callbacks of a training as the driver of its trial calls them. ValueError: one is something else."""
    given = context.run_config.callbacks
    own = [one for one in given if isinstance(one, Callback)]
    users = [one for one in given if isinstance(one, UserCallback)]
    if len(own) + len(users) < len(given):
        raise ValueError(f"callbacks must be instances of UserCallback, or of Callback of tune: {[*given]!r}")
    return [*own, Informing(users, context)] if users else own


def newly_saved(trial: Trial) -> Saved | None:
    """The record of the checkpoint that came with the last report of a training; None: it had none."""
    return trial.point if trial.checkpoint_at.iteration == trial.iteration else None


def new_checkpoint(directory: str, trial: Trial) -> Checkpoint | None:
    """The checkpoint that came with the last report of a training; None: it had none, or it is lost with its worker."""
    saved = newly_saved(trial)
    try:
        return None if saved is None else opened(saved, directory)
    except mpi_runtime.errors.MpiRuntimeError:
        return None


def opened(saved: Saved, directory: str) -> Checkpoint:
    """A checkpoint of a training, with its path if it has one. ObjectLostError: it was in memory alone, and is lost."""
    return Checkpoint(os.path.join(directory, saved.path)) if saved.path else saved.opened(directory)


def rank_of(error: Exception) -> int:
    """The rank of the worker that has raised an error, or has died."""
    rank = getattr(getattr(error, "cause", error), RANK, None)
    if rank is None:
        found = re.search(r"rank (\d+) of its gang", str(error))
        rank = int(found[1]) if found else 0
    return int(rank)

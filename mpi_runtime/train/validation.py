"""Validation: a function of the program judges checkpoints, as a task beside the training; its metrics join them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.show import log
from mpi_runtime.train.callbacks import opened
from mpi_runtime.train.reported import ReportedCheckpointStatus
from mpi_runtime.train.worker import Beside
from mpi_runtime.tune import Callback
from mpi_runtime.tune.extend import Judged, Report, Saved, Trial


@published("mpi_runtime.train")
@dataclass(frozen=True)
class ValidationTaskConfig:
    """How one checkpoint is validated: for `report(validation=...)`."""

    fn_kwargs: Mapping[str, Any] | None = field(default_factory=dict)
    """Arguments of the function, by name, besides the checkpoint."""
    timeout_s: float | None = None
    """Seconds after which it is cancelled; None: without limit."""

    def __post_init__(self) -> None:
        if self.fn_kwargs is None:
            object.__setattr__(self, "fn_kwargs", {})
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be more than 0, or None, not {self.timeout_s!r}")


@published("mpi_runtime.train")
@dataclass(frozen=True)
class ValidationConfig:
    """How checkpoints are validated: for `TorchTrainer(validation_config=...)`."""

    fn: Callable[..., Mapping[str, object]]
    """Takes a checkpoint, and returns metrics. They join those of the report, and count for `CheckpointConfig`."""
    task_config: ValidationTaskConfig | None = field(default_factory=ValidationTaskConfig)
    """What a report with `validation=True` asks for; one with a `ValidationTaskConfig` adds to its arguments."""
    ray_remote_kwargs: Mapping[str, Any] | None = None
    """Options of the task that runs it, such as `{"num_gpus": 1}`."""

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"fn must be a function of a checkpoint, not {self.fn!r}")

    def of(self, asked: object) -> ValidationTaskConfig:
        """The settings for one checkpoint: those of its report, and for the rest the own ones."""
        own = self.task_config or ValidationTaskConfig()
        if not isinstance(asked, ValidationTaskConfig):
            return own
        timeout_s = own.timeout_s if asked.timeout_s is None else asked.timeout_s
        return ValidationTaskConfig({**(own.fn_kwargs or {}), **(asked.fn_kwargs or {})}, timeout_s)


@dataclass
class _Task:
    """The validation of one checkpoint."""

    trial_id: str
    saved: Saved
    """If it is in memory alone, this keeps it there."""
    config: ValidationTaskConfig
    ref: mpi_runtime.ObjectRef[Any] | None = None
    """None: it has not begun."""
    began_s: float = 0.0


@published("mpi_runtime.train")
class Validating(Callback):
    """Validates checkpoints, one after the other, while their training continues."""

    def __init__(self, config: ValidationConfig) -> None:
        self._config = config
        self._tasks: deque[_Task] = deque()
        self._directory = ""
        self._driver: Any = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_tasks": deque(), "_driver": None}

    def setup(self, *args: object, path: str = "", driver: object = None, **info: object) -> None:
        """The training begins."""
        self._directory, self._driver = path, driver

    def on_trial_result(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, result: Report, **info: object
    ) -> None:
        """The workers have reported."""
        beside, saved = trial.beside, trial.point
        if isinstance(beside, Beside) and beside.validation is not None and saved is not None:
            self._tasks.append(_Task(trial.trial_id, saved, self._config.of(beside.validation)))

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        """Begin the next one, and note the end of the first."""
        self._turn(0)

    def on_experiment_end(self, trials: Sequence[Trial], **info: object) -> None:
        """Wait for the rest if the training has ended well, and cancel it otherwise."""
        while self._tasks and all(trial.status == Trial.TERMINATED for trial in trials):
            self._turn(0.5)
        for task in self._tasks:
            if task.ref is not None:
                mpi_runtime.cancel(task.ref, force=True)

    def _turn(self, seconds: float) -> None:
        if not self._tasks:
            return
        task = self._tasks[0]
        status, metrics = ReportedCheckpointStatus.VALIDATED, {}
        limit_s = task.config.timeout_s
        ref = task.ref = task.ref or self._begun(task)
        if ref is None:
            status = ReportedCheckpointStatus.VALIDATION_FAILED
        elif mpi_runtime.wait([ref], timeout=seconds)[0]:
            try:
                metrics = _checked(mpi_runtime.get(ref))
            except Exception as error:
                self._say(task, f"has failed: {error}")
                status = ReportedCheckpointStatus.VALIDATION_FAILED
        elif limit_s is not None and time.monotonic() - task.began_s > limit_s:
            mpi_runtime.cancel(ref, force=True)
            self._say(task, f"has not ended after {limit_s} s, and was cancelled")
            status = ReportedCheckpointStatus.VALIDATION_TIMEOUT
        else:
            return
        self._tasks.popleft()
        self._driver.judged(Judged(task.trial_id, task.saved.number, metrics, status.value))

    def _begun(self, task: _Task) -> mpi_runtime.ObjectRef[Any] | None:
        """Begin a validation. None: its checkpoint was in memory alone, and is lost."""
        function: Any = mpi_runtime.remote(self._config.fn).options(**(self._config.ray_remote_kwargs or {}))
        try:
            checkpoint = opened(task.saved, self._directory)
        except mpi_runtime.errors.MpiRuntimeError as error:
            self._say(task, f"has failed: {error}")
            return None
        task.began_s = time.monotonic()
        ref: mpi_runtime.ObjectRef[Any] = function.remote(checkpoint, **(task.config.fn_kwargs or {}))
        return ref

    def _say(self, task: _Task, what: str) -> None:
        saved = task.saved
        which = os.path.join(self._directory, saved.path) if saved.path else f"{saved.number} of {task.trial_id}"
        text = f"The validation of the checkpoint {which} {what}. Its metrics stay those of its report."
        log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)


def _checked(found: object) -> dict[str, object]:
    if not isinstance(found, Mapping):
        raise TypeError(f"the function must return metrics by name, not {found!r}")
    return dict(found)

"""The settings of Ray Train: those of `mpi_runtime.train`, without what Ray has dropped there and kept in Ray Tune.

`ray.air` and `ray.tune` have the classes without these limits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mpi_runtime import train
from mpi_runtime.tune.extend import advised, folder

_OF_TUNE = (
    "`{}` is not an argument of ray.train.{}, as in Ray: it is one of ray.tune.{}, for a Tuner. A training that needs "
    "it can run as its only trial: Tuner(trainer, run_config=ray.tune.RunConfig(...))"
)


def _dropped(settings: object, *names: str) -> None:
    """Raise DeprecationWarning if one of these was chosen, not left as it is."""
    kind = type(settings).__name__
    for name in names:
        if getattr(settings, name) != getattr(type(settings), name):
            raise DeprecationWarning(_OF_TUNE.format(name, kind, kind))


@dataclass
class LoggingConfig:
    """The level of what Ray Train logs. It has no effect here: a job logs a few lines about a training."""

    log_level: str = "INFO"
    """The name of a level of `logging`."""

    def __post_init__(self) -> None:
        if not isinstance(self.log_level, str) or not isinstance(logging.getLevelName(self.log_level.upper()), int):
            raise ValueError(f"log_level must be the name of a level of logging, such as INFO, not {self.log_level!r}")
        object.__setattr__(self, "log_level", self.log_level.upper())


@advised
@dataclass
class FailureConfig(train.FailureConfig):
    """What happens when workers fail."""

    controller_failure_limit: int = -1
    """Accepted, without effect: what Ray calls the controller is the program itself."""
    max_preemption_failures: int = -1
    """Accepted, without effect, as are the next two: no node says that it will go. Lost ones count in `max_crashes`."""
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _dropped(self, "fail_fast")


@advised
@dataclass
class CheckpointConfig(train.CheckpointConfig):
    """Which checkpoints are kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _dropped(self, "checkpoint_frequency", "checkpoint_at_end")


@advised
@dataclass
class RunConfig(train.RunConfig):
    """How a training runs. It has a name and a path as soon as it is made, so the same one continues a training."""

    failure_config: train.FailureConfig = field(default_factory=FailureConfig)
    """What happens when workers fail."""
    checkpoint_config: train.CheckpointConfig = field(default_factory=CheckpointConfig)
    """Which checkpoints are kept."""
    callbacks: Sequence[object] = field(default_factory=list)
    """Instances of `UserCallback`, or of `TuneReportCallback` of `ray.tune.integration.ray_train`."""
    logging_config: LoggingConfig = field(default_factory=LoggingConfig)
    """Accepted, without effect."""

    def __post_init__(self) -> None:
        _dropped(self, "verbose", "stop", "progress_reporter", "log_to_file")
        own = {
            "name": self.name or f"ray_train_run-{datetime.now():%Y-%m-%d_%H-%M-%S.%f}",
            "storage_path": os.fspath(folder(None)) if self.storage_path is None else self.storage_path,
            "failure_config": self.failure_config or FailureConfig(),
            "checkpoint_config": self.checkpoint_config or CheckpointConfig(),
            "callbacks": list(self.callbacks or ()),
            "worker_runtime_env": self.worker_runtime_env or {},
            "logging_config": self.logging_config or LoggingConfig(),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)
        super().__post_init__()
        if not all(isinstance(one, train.UserCallback | train.TuneReportCallback) for one in self.callbacks):
            raise ValueError(
                f"All callbacks must be instances of `ray.train.UserCallback`, not {self.callbacks!r}. Those of Ray "
                "Tune belong into ray.tune.RunConfig"
            )

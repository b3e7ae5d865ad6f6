"""The checkpoints that a running training has reported, for its workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mpi_runtime.core import published
from mpi_runtime.train.local import LocalRun
from mpi_runtime.train.worker import worker_run
from mpi_runtime.tune import Checkpoint, Result
from mpi_runtime.tune.extend import Report, Watched, advised

POLL_S = 0.05


@published("mpi_runtime.train")
class CheckpointConsistencyMode(Enum):
    """What `get_all_reported_checkpoints` waits for."""

    COMMITTED = "COMMITTED"
    """The last checkpoint is saved."""
    VALIDATED = "VALIDATED"
    """All checkpoints are saved, and those that are to be validated are."""


@published("mpi_runtime.train")
class ReportedCheckpointStatus(Enum):
    """What has happened to a checkpoint. Each is saved."""

    COMMITTED = "COMMITTED"
    """No validation was requested."""
    PENDING_VALIDATION = "PENDING_VALIDATION"
    """It is not validated yet."""
    VALIDATED = "VALIDATED"
    """The metrics of its validation have joined those of its report."""
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    """Its validation has taken too long."""
    VALIDATION_FAILED = "VALIDATION_FAILED"
    """Its validation has raised an error."""


@published("mpi_runtime.train")
@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint with its report."""

    checkpoint: Checkpoint
    """The files."""
    metrics: Report
    """What rank 0 has reported with them, and what a validation has found."""
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED
    """Whether it is validated."""


@published("mpi_runtime.train")
@advised
def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED, timeout_s: float | None = None
) -> list[ReportedCheckpoint]:
    """Return the checkpoints of this training that are on disk, oldest first, those of earlier attempts included.

    Any worker may call this. It reads the journal of the training, and waits until the last report is in it.

    Args:
        consistency_mode: whether it waits for validations too.
        timeout_s: the longest that it waits, in seconds; then the last ones may be missing. None: without limit.

    Raises:
        RuntimeError: this is not a worker of a trainer.
    """
    run = worker_run("get_all_reported_checkpoints()")
    if isinstance(run, LocalRun):
        return [ReportedCheckpoint(*one) for one in run.kept]
    directory, trial_id = Path(run.start.experiment), run.start.trial_id
    until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        seen = Watched(directory).of(trial_id)
        is_validated = consistency_mode is not CheckpointConsistencyMode.VALIDATED or all(seen.judged.values())
        if max(seen.kept, default=-1) + 1 >= run.next_number and is_validated:
            break
        time.sleep(POLL_S)  # reports do not wait for the driver, and a file system shows lines to other hosts later
    seen = Watched(directory).of(trial_id)
    statuses = {directory / saved.path: seen.judged.get(number) for number, (_, saved) in seen.kept.items()}
    found = Result.from_path(run.start.directory).best_checkpoints
    return [
        ReportedCheckpoint(checkpoint, metrics, _status(statuses.get(Path(checkpoint.path))))
        for checkpoint, metrics in found
    ]


def _status(judged: str | None) -> ReportedCheckpointStatus:
    """What has happened, from the words in the journal; None: no validation was requested."""
    if judged is None:
        return ReportedCheckpointStatus.COMMITTED
    return ReportedCheckpointStatus(judged) if judged else ReportedCheckpointStatus.PENDING_VALIDATION

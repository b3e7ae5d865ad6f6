"""The checkpoints that a running training has reported, for its workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mpi_runtime.core import published
from mpi_runtime.train.worker import worker_run
from mpi_runtime.tune import Checkpoint, Result
from mpi_runtime.tune.extend import Report, Watched, advised

POLL_S = 0.05


@published("mpi_runtime.train")
@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint with its report."""

    checkpoint: Checkpoint
    """The files."""
    metrics: Report
    """What rank 0 has reported with them."""


@published("mpi_runtime.train")
@advised
def get_all_reported_checkpoints(timeout_s: float | None = None) -> list[ReportedCheckpoint]:
    """Return the checkpoints of this training that are on disk, oldest first, those of earlier attempts included.

    Any worker may call this. It reads the journal of the training, and waits until the last report is in it.

    Args:
        timeout_s: the longest that it waits, in seconds; then the last ones may be missing. None: without limit.

    Raises:
        RuntimeError: this is not a worker of a trainer.
    """
    run = worker_run("get_all_reported_checkpoints()")
    directory, trial_id = Path(run.start.experiment), run.start.trial_id
    until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        numbers = Watched(directory).of(trial_id).kept
        if max(numbers, default=-1) + 1 >= run.next_number:
            break
        time.sleep(POLL_S)  # reports do not wait for the driver, and a file system shows lines to other hosts later
    found = Result.from_path(run.start.directory).best_checkpoints
    return [ReportedCheckpoint(checkpoint, metrics) for checkpoint, metrics in found]

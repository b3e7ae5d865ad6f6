"""The jobs that were submitted for a batch, each a file in its journal that lists those submitted together.

`batch wait` waits for them, also before they start and between their lives. When nothing is left of the batch, those
that still wait in the queue are cancelled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.batch.history.batch_history import FOLDER
from mpi_runtime.files import private
from mpi_runtime.files.writing import beside
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.jobs import Status, cancel_waiting, status

JOB = "job-"


def note(directory: str, jobs: Sequence[str]) -> None:
    """Note that jobs were submitted for the batch with this output directory.

    Raises:
        OSError: its journal cannot be written.
    """
    folder = Path(directory, FOLDER)
    private.make_directory(folder)
    for job in jobs:
        with (
            beside(folder / f"{JOB}{job}") as spare,  # in the place of an old one: numbers begin again some day
            open(private.create_file(spare), "w") as file,
        ):
            file.write("\n".join(jobs))


def noted(directory: str) -> list[str]:
    """The jobs that were submitted for a batch and are not forgotten."""
    return sorted(path.name.removeprefix(JOB) for path in Path(directory, FOLDER).glob(f"{JOB}*"))


def together(directory: str, job: str) -> list[str]:
    """The jobs that were submitted for a batch in one line with this one; none if it was not submitted for it."""
    with contextlib.suppress(OSError):
        return Path(directory, FOLDER, f"{JOB}{job}").read_text().split() if job else []
    return []


def forget(directory: str, job: str) -> None:
    """Forget a job that has ended.

    Raises:
        OSError: its file cannot be removed.
    """
    Path(directory, FOLDER, f"{JOB}{job}").unlink(missing_ok=True)


def awaited(directory: str) -> Status | None:
    """Return the status of a job of a batch that has not ended; None: all have ended, or Slurm does not answer.

    One whose processes end now (COMPLETING) is the last choice: only a requeue lets it start again.
    """
    ending = None
    for job in noted(directory):
        with contextlib.suppress(SlurmError):
            found = status(job)
            if found.state == "COMPLETING":
                ending = found
            elif not found.has_ended:
                return found
    return ending


def cancel(directory: str) -> None:
    """Cancel the jobs of a batch that have not started, and forget all of its jobs.

    Raises:
        OSError: the files cannot be removed.
        SlurmError: Slurm does not answer.
    """
    found = noted(directory)
    cancel_waiting(found)
    for job in found:
        forget(directory, job)

"""Futures of calls whose directory cannot be read end: nothing else would end them."""

import shutil
from pathlib import Path

import pytest

from mpi_runtime.slurm import DelayedSubmission, Executor, JobError, calls


def test_a_directory_that_is_gone_ends_its_futures(tmp_path: Path) -> None:
    place = tmp_path / "one"
    calls.write(place, [DelayedSubmission(print, 1)] * 2, calls_per_job=1, max_requeues=0, checkpoint_s=1.0)
    calls.write_job(place, calls.BatchJob("1", "slurm", True))
    futures = Executor(tmp_path).jobs()
    shutil.rmtree(place)
    for future in futures:
        with pytest.raises(JobError, match="cannot be read"):
            future.result(30)


def test_results_on_disk_name_public_modules_only(tmp_path: Path) -> None:
    for outcome in (calls.Outcome(1), calls.failed(JobError("lost")), calls.Outcome(DelayedSubmission(print))):
        calls.write_outcome(tmp_path, 0, outcome)
        assert b"slurm.calls" not in calls.result(tmp_path, 0).read_bytes()
        found = calls.read_outcome(tmp_path, 0)
        assert (type(found.value), type(found.error)) == (type(outcome.value), type(outcome.error))

"""The Slurm jobs of a batch: noted when they are submitted, cancelled while they wait when nothing is left."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.batch.cli.control import perform
from mpi_runtime.batch.cli.options import batch_parser
from mpi_runtime.batch.cli.part import Part
from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.records import Status
from mpi_runtime.batch.history import submitted
from mpi_runtime.errors import LaunchError
from mpi_runtime.files import claim
from mpi_runtime.slurm import jobs
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.systems import slurm as system
from tests.helpers import wait_until


def test_jobs_that_wait_are_cancelled_when_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Sequence[str]] = []
    monkeypatch.setattr(system, "_call", called.append)
    folder = str(tmp_path / "batch-jobs")
    submitted.note(folder, ["7", "8"])
    submitted.note(folder, ["8", "9"])
    submitted.cancel(folder)
    (words,) = called
    assert words[:2] == ["scancel", "--state=PENDING"], "those that run are left alone"
    assert sorted(words[2:]) == ["7", "8", "9"]
    submitted.cancel(folder)
    assert len(called) == 1, "they are forgotten"

    def refuse(words: Sequence[str]) -> None:
        raise SlurmError(problem)

    monkeypatch.setattr(system, "_call", refuse)
    submitted.note(folder, ["7"])
    problem = "scancel says: Unable to contact slurm controller"
    with pytest.raises(SlurmError, match="Unable to contact"):
        submitted.cancel(folder)
    problem = "scancel says: Kill job error on job id 7: Invalid job id specified"
    submitted.cancel(folder)  # it has ended


def test_a_wait_is_for_submitted_jobs_too_and_status_shows_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"7": "COMPLETED", "8": "PENDING"}

    def answer(job: str) -> Any:
        if job not in states:
            raise SlurmError("Invalid job id specified")
        return jobs.Status(job, states[job], "", 0, "", "batch-jobs", "", "", "", "", None, None)

    folder = str(tmp_path / "batch-jobs")
    assert submitted.awaited(folder) is None
    submitted.note(folder, ["6", "7", "8"])
    monkeypatch.setattr(submitted, "status", answer)
    found = submitted.awaited(folder)
    assert found is not None
    assert str(found) == "job 8 batch-jobs: PENDING"
    assert perform(["status", folder]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  job 8 batch-jobs: PENDING"
    states["7"] = "COMPLETING"
    assert submitted.awaited(folder) == found, "the other only ends"
    states["8"] = "FAILED"
    assert "COMPLETING" in str(submitted.awaited(folder))
    assert perform(["resume", folder, "a"]) == 0
    assert "when the same line continues it" in capsys.readouterr().out
    states["7"] = "COMPLETED"
    assert submitted.awaited(folder) is None


@pytest.mark.parametrize(("state", "is_gone"), [("RUNNING", False), ("PENDING", True), ("NODE_FAIL", True)])
def test_slurm_says_whether_a_silent_job_has_ended(
    state: str, is_gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(job: str) -> Any:
        asked.append(job)
        if job == "unknown":
            raise SlurmError("it does not answer")
        return jobs.Status(job, state, "", None, "", "", "", "", "", "", None, None)

    monkeypatch.setattr(jobs, "status", answer)
    files = JobFiles(tmp_path, "1" * 16, lambda bodies: [])
    files.make(Status("1" * 16, 1, "a job", "here", 1, "", "", 1, 0, ()))
    silent = [
        Status(f"{number}" * 16, 1, "a job", "elsewhere", 1, "", job, 1, 0, ())
        for number, job in ((2, "12"), (3, "unknown"), (4, ""))
    ]
    for status in [*silent, *silent]:
        files.ask(status)
    wait_until(lambda: len(asked) == 2, 10)
    if is_gone:
        wait_until(lambda: files.is_gone(silent[0]), 10)
    assert [files.is_gone(status) for status in silent] == [is_gone, False, False]
    files.close()


def test_a_job_with_fresh_begins_where_the_one_before_was_killed_on_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "batch-jobs/journal"
    folder.mkdir(parents=True)
    with monkeypatch.context() as there:
        there.setattr(claim, "here", lambda: "elsewhere")
        first = claim.Claim(folder, "the first")
    options = batch_parser().parse_args(["jobs.txt", "--fresh"])
    part = Part(options, [], {}, str(folder.parent), False, None)
    with pytest.raises(LaunchError, match="in use by the first, and a job can join it only without --fresh"):
        part._joined()
    os.utime(folder / "owner-1", (1, 1))
    monkeypatch.setattr(claim, "LOOKS", 2)
    assert part._joined() is None
    first.release()

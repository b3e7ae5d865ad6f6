"""The verbs that show and control a batch, where its journal or an output cannot be read."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history.batch_history import FOLDER, Planning, read_history
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.history.results import CommandResult
from mpi_runtime.cli.main import main
from mpi_runtime.files import segments

SHOWN = ("status jobs", "status jobs --json", "report jobs", "log jobs a", "wait jobs", "list")
CONTROLS = ("cancel jobs a", "pause jobs a", "resume jobs a", "priority jobs a --to 1", "add jobs more.txt")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of a batch of two commands that have ended, `a` without an output."""
    monkeypatch.chdir(tmp_path)
    Path("more.txt").write_text("true\n")
    with contextlib.closing(BatchJournal("batch-jobs")) as made:
        commands = [Command(text="true", name=name) for name in "ab"]
        made.plan(Planning([Group(one.name, (one,)) for one in commands]))
        for number, one in enumerate(commands, 1):
            is_started = one.name == "b"
            result = CommandResult(
                name=one.name, command="true", exit_code=0 if is_started else None, is_success=is_started, start=1.0,
                end=2.0, host="here", problem="" if is_started else "it could not be started: Is a directory (a.out)",
                stdout=os.path.abspath("batch-jobs/b.out") if is_started else "",
            )  # fmt: skip
            made.ended(one, b"k", result, number)
    for name in "ab":
        Path(f"batch-jobs/{name}.out").write_text("old\n")
    return Path("batch-jobs", FOLDER)


def said(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    code = main(["batch", *line.split()])
    seen = capsys.readouterr()
    return code, seen.out + seen.err


def cut(segment: Path) -> None:
    os.truncate(segment, segments.HEADER_BYTES + 150)


def zero_the_header(segment: Path) -> None:
    segment.write_bytes(bytes(20) + segment.read_bytes()[20:])


def empty(segment: Path) -> None:
    os.truncate(segment, 0)


@pytest.mark.parametrize("damage", [cut, zero_the_header, empty])
def test_a_journal_without_its_commands_is_not_a_batch_that_has_not_started(
    journal: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    (segment,) = segments.paths(journal)
    size = segment.stat().st_size
    damage(segment)
    lost = read_history("batch-jobs").damaged_bytes
    assert (lost == size) is (damage is zero_the_header)
    for line in SHOWN[:-1]:
        code, text = said(capsys, line)
        assert code == 2, line
        assert "the journal batch-jobs/journal has no commands of a batch" in text
        assert "The line that started the batch records its commands again" in text
    code, text = said(capsys, "list")
    assert (code, text.startswith(f"jobs: {lost} bytes of the journal")) == ((2, True) if lost else (0, False))
    for line in CONTROLS:
        code, text = said(capsys, line)
        assert code == 2
        assert "no job runs the batch jobs" in text


def test_damage_behind_the_commands_is_shown_until_a_run_has_read_it(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = segments.paths(journal)
    os.truncate(segment, segment.stat().st_size - 5)
    assert "bytes of the journal batch-jobs/journal cannot be read, as after a crash" in said(capsys, "status jobs")[1]
    with contextlib.closing(BatchJournal("batch-jobs")) as made:
        assert made.history.damaged_bytes > 0, "the run shows it"
        made.plan(Planning([Group("a", (Command(text="true", name="a"),))]))
    assert "cannot be read" not in said(capsys, "status jobs")[1]


def test_a_journal_that_cannot_be_read_has_its_reason_and_a_cure(
    journal: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in segments.paths(journal):
        path.unlink()
        path.mkdir()
    for line in (*SHOWN, *CONTROLS):
        code, text = said(capsys, line)
        assert code == 2
        assert "the batch in batch-jobs cannot be read: Is a directory (batch-jobs/journal/000001.journal)" in text
        assert "[Errno" not in text

    def refused(path: object) -> object:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for place, name in ((segments.os, "listdir"), (Path, "is_dir")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, refused)
            code, text = said(capsys, "status batch-jobs")
        assert code == 2
        assert "cannot be read: Permission denied (batch-jobs/journal). Only the user who has started a batch" in text


def test_one_batch_that_cannot_be_read_hides_no_other(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("batch-a", FOLDER, "000001.journal").mkdir(parents=True)
    code, text = said(capsys, "list")
    assert code == 2
    assert "jobs: 1 of 2 done, 1 failed; not running" in text
    assert "the batch in batch-a cannot be read" in text


def test_a_batch_that_no_job_has_started_is_not_done(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("batch-submitted", FOLDER).mkdir(parents=True)
    assert said(capsys, "wait submitted") == (1, "submitted: no job has started it yet\n")
    assert said(capsys, "status submitted")[1].startswith("submitted: no job has started it yet")


def test_an_old_file_is_not_the_output_of_a_command_that_did_not_start(
    journal: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for words in (["a"], ["a", "--follow"]):
        assert main(["batch", "log", "jobs", *words]) == 2
        seen = capsysbinary.readouterr()
        assert seen.out == b""
        assert b"there is no output of 'a': it could not be started: Is a directory (a.out)" in seen.err
    assert main(["batch", "log", "jobs", "b"]) == 0
    assert capsysbinary.readouterr().out == b"old\n"
    Path("batch-jobs/b.out").unlink()
    assert main(["batch", "log", "jobs", "b"]) == 2
    assert b"the output of 'b' cannot be read: No such file or directory" in capsysbinary.readouterr().err


def test_an_old_file_is_not_the_output_of_a_command_that_waits(
    journal: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with contextlib.closing(BatchJournal("batch-jobs")) as made:
        made.plan(Planning([Group("a", (Command(text="true", name="a"),))]))
        made.began("a", 7)
        made.turn()
        os.utime("batch-jobs/a.out", (1.0, 1.0))
        assert main(["batch", "log", "jobs", "a"]) == 0
        seen = capsysbinary.readouterr()
        assert (seen.out, seen.err) == (b"", b"a has written nothing yet, or writes to a file of its own\n")
        Path("batch-jobs/a.out").write_text("new\n")
        assert main(["batch", "log", "jobs", "a"]) == 0
        assert capsysbinary.readouterr().out == b"new\n"

"""The file of a recording, and the verb that replays it."""

import os
from pathlib import Path

import pytest

from mpi_runtime import config
from mpi_runtime.cli.main import main
from mpi_runtime.core.head.recorder import BUFFER_BYTES, Recorder
from mpi_runtime.scheduler.protocol.rank_events import JobBegan, RankJoined
from mpi_runtime.scheduler.recording import MAGIC


def record(path: Path) -> None:
    recorder = Recorder(str(path))
    recorder.scheduler.handle_rank(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30), 10)
    recorder.scheduler.handle_rank(JobBegan(), 20)
    recorder.scheduler.decide(30)
    recorder.close()


def test_a_recording_is_for_its_owner_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "job"
    for _ in range(3):
        record(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["job", "job.2", "job.3"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_flushed_is_there_while_the_job_runs(tmp_path: Path) -> None:
    path = tmp_path / "job"
    recorder = Recorder(str(path))
    recorder.scheduler.handle_rank(JobBegan(), 20)
    assert path.read_bytes() == b""
    recorder.flush()
    assert path.read_bytes().startswith(MAGIC)
    recorder.close()


@pytest.mark.parametrize("where", ["a large entry", "flush", "close"])
def test_on_a_full_disk_the_recording_ends_and_the_job_does_not(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job"
    recorder = Recorder(str(path))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, recorder._file.fileno())
    os.close(full)
    labels = {"a": "b" * BUFFER_BYTES} if where == "a large entry" else {}
    recorder.scheduler.handle_rank(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30, labels=labels), 10)
    if where == "flush":
        recorder.flush()
    recorder.scheduler.handle_rank(JobBegan(), 20)
    recorder.scheduler.decide(30)
    recorder.close()
    text = f"mpi_runtime: the recording {path} cannot be written any more: No space left on device. The job continues"
    assert capsys.readouterr().err == f"{text} without it\n"


def test_the_verb_says_whether_all_was_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job"
    record(path)
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 2 events, 1 decisions: identical\n"
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["replay", str(path)]) == 0
    assert "bytes of an entry that was cut off" in capsys.readouterr().out


def test_the_verb_fails_when_something_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job"
    record(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the hash of the only decision
    path.write_bytes(data)
    assert main(["replay", str(path)]) == 1
    assert "decision 1, at 30 us, has other effects than the recording" in capsys.readouterr().out


def test_the_verb_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job"
    path.write_text("notes")
    assert main(["replay", str(path)]) == 2
    assert "no recording of a job" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


def test_the_variable_names_a_file_in_a_directory_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.record_file({}) == ""
    monkeypatch.setenv(config.RECORD, str(tmp_path / "job"))
    assert config.record_file() == str(tmp_path / "job")
    config.from_init()
    monkeypatch.setenv(config.RECORD, str(tmp_path / "nowhere" / "job"))
    with pytest.raises(ValueError, match=r"MPI_RUNTIME_RECORD is .*the directory .*nowhere does not exist"):
        config.from_init()

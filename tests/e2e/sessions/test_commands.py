"""`mpi-runtime session`: two starts of one name, old files, sessions that do not start, and mistakes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting
from tests.e2e.sessions.started import command, content, driver, said, session
from tests.helpers import HANG_S, start_command, wait_until


def test_a_second_start_of_the_name_is_refused(tmp_path: Path) -> None:
    with session(tmp_path, "--num-cpus", "1") as started:
        refused = said(tmp_path, "start", "--name", "s").expect(2)
        assert "the session 's' exists: on " in refused.stderr
        (line,) = [line for line in said(tmp_path, "list").stdout.splitlines() if line.startswith("s ")]
        assert line.endswith("running")
        said(tmp_path, "stop", "s").expect(0)
        assert started.processes() == []
    assert "no sessions" in said(tmp_path, "list").stdout
    assert "there is no session 's'" in said(tmp_path, "stop", "s").expect(2).stderr


def test_of_two_starts_at_once_one_wins(tmp_path: Path) -> None:
    with command(tmp_path, "start", "--name", "s") as first, command(tmp_path, "start", "--name", "s") as second:
        codes = sorted([first.process.wait(60), second.process.wait(60)])
        assert codes == [0, 2]
        said(tmp_path, "stop", "s").expect(0)


def test_the_file_of_a_killed_session_is_replaced(tmp_path: Path) -> None:
    with session(tmp_path, "--num-cpus", "1") as started:
        found = content(tmp_path)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        wait_until(lambda: not started.processes(), what="all processes of the session to end")
        assert said(tmp_path, "list").stdout.splitlines()[1].endswith("killed")
        with driver(tmp_path, "") as program:
            assert "the session was killed" in program.finish().expect(1).stderr
        with session(tmp_path, "--num-cpus", "1"), driver(tmp_path, "print(ray.get(ray.put(3)))") as program:
            assert program.finish().expect(0).stdout == "3\n"


def test_a_session_that_does_not_start_shows_why(tmp_path: Path) -> None:
    refused = said(tmp_path, "start", "--name", "s", "--num-cpus=-1").expect(2)
    assert "has not started. Its output:" in refused.stderr
    assert "num_cpus" in refused.stderr
    assert content(tmp_path) is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["start", "-N", "4"], "Slurm is not set up on this host"),
        (["start", "--time=1:00:00", "-n", "2"], "--ranks is not for batch jobs"),
        (["start", "--idle", "soon"], "must be a duration"),
        (["run", "s", "-c", "pass"], "there is no session 's'"),
        (["run", "s"], "name a program to run"),
        (["logs", "s"], "there is no session 's'"),
        (["start", "--name", "../s"], "is not a name for a session"),
        (["status", "s"], "there is no session 's'"),
    ],
    ids=str,
)
def test_mistakes_are_refused_in_words(tmp_path: Path, words: list[str], text: str) -> None:
    assert text in said(tmp_path, *words).expect(2).stderr


def test_a_session_stays_though_nobody_reads_what_start_prints(tmp_path: Path) -> None:
    words = [sys.executable, "-u", "-m", "mpi_runtime", "session", "start", "--name", "s", "--num-cpus", "1"]
    with start_command(["sh", "-c", '"$@" | true', "sh", *words], env={"XDG_STATE_HOME": str(tmp_path)}) as program:
        program.process.wait(HANG_S)
        assert content(tmp_path) is not None
        assert said(tmp_path, "stop", "s").returncode == 0


def test_a_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI_RUNTIME_JOURNAL", str(tmp_path / "journal"))
    assert "a session has no journal" in said(tmp_path, "start", "--name", "s").expect(2).stderr
    assert content(tmp_path) is None


def test_the_live_page_shows_the_programs_that_use_it(tmp_path: Path) -> None:
    with (
        session(tmp_path, "--num-cpus", "1") as started,
        driver(tmp_path, "print('up', flush=True); input()") as program,
    ):
        program.wait_for_line("up")
        (pid,) = [one for one in inspecting.jobs() if one in started.processes()]
        job = Watching(pid)
        assert job.sample()
        (block,) = [one for one in job.document()["blocks"] if one.get("id") == "drivers"]
        (row,) = block["rows"]
        named = dict(zip([one["t"] for one in block["columns"]], row[1:], strict=True))
        assert (named["program"], named["state"], named["pid"]) == ("app.py", "CONNECTED", program.pid)
        program.write("\n")
        program.finish().expect(0)
        wait_until(lambda: job.sample() and not job.facts.glance.drivers, what="its end")
        assert "drivers" not in [one.get("id") for one in job.document()["blocks"]]
        said(tmp_path, "stop", "s").expect(0)
        wait_until(lambda: not job.sample(), what="the end of the job")

"""How sessions end, and what their programs see of it; programs that live on when the line to them breaks."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.sessions.started import command, content, driver, drivers_left, log, said, session
from tests.helpers import wait_until

WAITS = """
import time
from mpi_runtime.exceptions import SessionEndedError

@ray.remote
def forever():
    time.sleep(1000)

ref = forever.remote()
print("up", flush=True)
try:
    ray.get(ref)
except SessionEndedError as error:
    print(type(error).__name__, error)
try:
    forever.remote()
    ray.get(ray.put(1))
except SessionEndedError as error:
    print("again", error)
"""


def _stop(state: Path) -> None:
    said(state, "stop", "s").expect(0)


def _kill_keeper(state: Path) -> None:
    found = content(state)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)


def _terminate_keeper(state: Path) -> None:
    found = content(state)
    assert found is not None
    os.kill(found.pid, signal.SIGTERM)


def _kill_head(state: Path) -> None:
    found = content(state)
    assert found is not None
    for name in Path(f"/proc/{found.pid}/task/{found.pid}/children").read_text().split():
        if Path(f"/proc/{name}/comm").read_text().strip() == "mpi-rt-head":
            os.kill(int(name), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (_stop, "it was stopped (`mpi-runtime session stop`)"),
        (_terminate_keeper, "it got SIGTERM"),
        (_kill_keeper, "its keeper, or its host, was killed"),
        (_kill_head, "its head (scheduler) was killed, or has failed"),
    ],
)
def test_programs_see_why_a_session_has_ended(tmp_path: Path, end: object, why: str) -> None:
    with session(tmp_path, "--num-cpus", "1") as started, driver(tmp_path, WAITS) as program:
        program.wait_for_line("up")
        assert callable(end)
        end(tmp_path)
        lines = program.finish().expect(0).stdout.splitlines()
        assert lines[1].startswith(f"SessionEndedError The session 's' has ended: {why}. Its output is in ")
        assert lines[2].startswith("again The session 's' has ended: ")
        wait_until(lambda: not started.processes(), what="the end of all its processes")


def test_a_session_that_nobody_uses_ends(tmp_path: Path) -> None:
    """A running call counts as use, after its driver has left too; a detached actor alone does not."""
    source = """
import time

@ray.remote
class Holder:
    def works(self):
        time.sleep(6)

holder = Holder.options(name="h", lifetime="detached").remote()
holder.works.remote()
ray.get(ray.put(1))
time.sleep(1)
"""
    with session(tmp_path, "--num-cpus", "1", "--idle", "4s") as started:  # the program has this long to connect
        begin_s = time.monotonic()
        with driver(tmp_path, source) as program:
            program.finish().expect(0)
        left_s = time.monotonic()
        wait_until(lambda: content(tmp_path) is None, what="the end of the session")
        assert time.monotonic() - begin_s > 6, "the running method counts"
        assert time.monotonic() - left_s > 4
        wait_until(lambda: not started.processes(), what="the end of all its processes")
    assert "ends: nobody has used it for 4 s (--idle)" in log(tmp_path)


RUN = """
import sys, time
import mpi_runtime as ray

ray.init(quiet=True)
print("address", ray.init(ignore_reinit_error=True)["address"], sys.argv[1:], flush=True)

@ray.remote
def f(x):
    return x + 1

print(ray.get(f.remote(1)), flush=True)
while len(sys.argv) > 2 and not __import__("os").path.exists(sys.argv[2]):
    time.sleep(0.1)
print("last", flush=True)
sys.exit(int(sys.argv[1]))
"""


def test_a_program_runs_in_a_session_and_survives_its_line(tmp_path: Path) -> None:
    app, gate = tmp_path / "app.py", tmp_path / "gate"
    app.write_text(RUN)
    with session(tmp_path, "--num-cpus", "1") as started:
        done = said(tmp_path, "run", "s", str(app), "3").expect(3)
        assert done.stdout.splitlines() == ["address session:s ['3']", "2", "last"]
        outputs: list[Path] = []
        for seen in ("address session", "also in"):  # in the second case it may end before the actor has begun
            with command(tmp_path, "run", "s", str(app), "5", str(gate)) as line:
                line.wait_for_line(seen)
                outputs += map(Path, re.findall(r"also in (\S+)", line.stderr))
                line.signal(signal.SIGKILL)
                line.finish().expect(-signal.SIGKILL)
        time.sleep(1.0)
        gate.touch()
        wait_until(lambda: _have_ended(outputs), what="the end of the programs")
        assert all("last\n" in output.read_text() for output in outputs)
        wait_until(lambda: "; 0 actors, " in said(tmp_path, "status", "s").stdout, what="the end of its actor")
        with command(tmp_path, "run", "s", "-c", "import time; print('started', flush=True); time.sleep(100)") as line:
            line.wait_for_line("started")
            line.signal(signal.SIGINT)
            assert "KeyboardInterrupt" in line.finish().expect(128 + signal.SIGINT).stdout
        with command(tmp_path, "run", "s", "-c", "import time; print('started', flush=True); time.sleep(100)") as line:
            line.wait_for_line("started")
            _stop(tmp_path)
            assert "it was stopped" in line.finish().expect(1).stderr
        wait_until(lambda: not started.processes(), what="the end of all its processes")


def _have_ended(outputs: list[Path]) -> bool:
    return len(outputs) == 2 and all("has ended with 5" in output.read_text() for output in outputs)


def test_logs_shows_the_output_of_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI_RUNTIME_QUIET", "0")
    with session(tmp_path, "--num-cpus", "1"), driver(tmp_path, "") as program:
        program.finish().expect(0)
        drivers_left(tmp_path, 1)
        lines = said(tmp_path, "logs", "s", "-n", "1").stdout.splitlines()
        assert len(lines) == 1
        with command(tmp_path, "logs", "s", "-f") as following:
            following.wait_for_line(lines[0])
            _stop(tmp_path)
            assert "ends: it was stopped" in following.finish().expect(0).stdout

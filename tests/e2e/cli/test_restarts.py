"""`run --restarts`: a program that is killed is started again until it is at its end; one that ends is not."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.cli import restarts
from mpi_runtime.cli.run import run
from mpi_runtime.errors import LaunchError
from tests.helpers import Completed, mpi_python, start_command

WAYS: Any = [
    pytest.param([], id="plain"),
    pytest.param(["-n", "2", "--mpi", "openmpi"], marks=pytest.mark.mpi, id="openmpi"),
    pytest.param(["-n", "2", "--mpi", "mpich"], marks=pytest.mark.mpi, id="mpich"),
    pytest.param(["-n", "2", "--fault-tolerant"], marks=pytest.mark.mpi, id="ulfm"),
]
KILLED = """
import os, signal, sys
import mpi_runtime as ray

ray.init(num_cpus=2, journal_sync_s=0)
marks = sys.argv[1]

@ray.remote
def f(x):
    with open(os.path.join(marks, f"ran{x}"), "a") as file:
        file.write("x")
    return x

print(sum(ray.get([f.remote(x) for x in range(10)])), flush=True)
ray.shutdown()
starts = len([name for name in os.listdir(marks) if name.startswith("start")])
open(os.path.join(marks, f"start{starts}"), "w").close()
if starts < int(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(sys.argv[3]))
"""


def restarted(way: list[str], folder: Path, *args: str, source: str = KILLED) -> tuple[Completed, Path]:
    marks, app = folder / "marks", folder / "app.py"
    marks.mkdir()
    app.write_text(source)
    python = mpi_python("mpich" if "mpich" in way else "openmpi")
    words = ["run", *way, "--journal", str(folder / "journal"), "--restarts", "2", str(app), str(marks), *args]
    with start_command([python, "-m", "mpi_runtime", *words]) as program:
        return program.finish(), marks


@pytest.mark.dies("journal")
@pytest.mark.parametrize(
    ("code", "way"),
    [
        pytest.param(0, [], id="0-plain"),
        *(pytest.param(3, *way.values, marks=way.marks, id=f"3-{way.id}") for way in WAYS),
    ],
)
def test_a_killed_program_is_started_again_until_it_ends(way: list[str], code: int, tmp_path: Path) -> None:
    done, marks = restarted(way, tmp_path, "2", str(code))
    assert done.returncode == code, done.output()
    assert done.stdout.splitlines().count("45") == 3
    assert "restart 2 of 2" in done.stderr
    assert {mark.read_text() for mark in marks.glob("ran*")} == {"x"}, "each call was made once"
    assert sorted(path.name for path in (tmp_path / "journal").iterdir() if "exit" in path.name) == []


HEADLESS = """
import os, signal, sys, time
import mpi_runtime as ray
from mpi_runtime.core.host.process_tree import children

ray.init(num_cpus=2, journal_sync_s=0)
first = os.path.join(sys.argv[1], "first")
if not os.path.exists(first):
    open(first, "w").close()
    (head,) = [pid for pid in children() if open(f"/proc/{pid}/comm").read() == "mpi-rt-head\\n"]
    os.kill(head, signal.SIGKILL)
    time.sleep(60)
print("second", flush=True)
"""


@pytest.mark.dies("head", "journal")
@pytest.mark.parametrize("way", WAYS)
def test_a_program_whose_head_was_killed_is_started_again(way: list[str], tmp_path: Path) -> None:
    done, _ = restarted(way, tmp_path, source=HEADLESS)
    assert done.returncode == 0, done.output()
    assert done.stdout.endswith("second\n")  # MPICH's launcher writes there too
    assert "restart 1 of 2" in done.stderr


LEAVES_A_DAEMON = """
import os, signal, subprocess, sys

first = os.path.join(sys.argv[1], "first")
if not os.path.exists(first):
    open(first, "w").close()
    for name in ("prted", "of the user"):
        subprocess.Popen([name, "600"], executable="/bin/sleep", start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)
for pid in open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split():
    name = open(f"/proc/{pid}/cmdline").read().split(chr(0))[0]
    if name in ("prted", "of the user"):
        print(name, flush=True)
        os.kill(int(pid), signal.SIGKILL)
"""


def test_daemons_of_a_launcher_that_died_end_before_the_next_start(tmp_path: Path) -> None:
    """A host that is cut off then hears nothing: its daemon would wait for ever. Others' processes stay."""
    done, _ = restarted([], tmp_path, source=LEAVES_A_DAEMON)
    assert done.returncode == 0, done.output()
    assert done.stdout == "of the user\n"


def test_there_is_an_end_to_it(tmp_path: Path) -> None:
    done, _ = restarted([], tmp_path, "9", "0")
    assert done.returncode == 1
    assert "the program did not end in 3 starts" in done.stderr


def test_a_program_that_fails_by_itself_is_not_started_again(tmp_path: Path) -> None:
    done, marks = restarted([], tmp_path, source="import sys; open(sys.argv[1] + '/ran', 'a').write('x'); 1 / 0")
    assert done.returncode == 1
    assert (marks / "ran").read_text() == "x"
    assert "restart" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_told_to_end_is_not_started_again(number: int, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("import time; print('up', flush=True); time.sleep(600)")
    words = ["run", "--journal", str(tmp_path / "journal"), "--restarts", "2", str(app)]
    with start_command([mpi_python("openmpi"), "-m", "mpi_runtime", *words]) as program:
        program.wait_for_line("up")
        os.kill(program.pid, number)
        done = program.finish()
    assert done.returncode == 128 + number
    assert "restart" not in done.stderr


def test_hosts_that_do_not_answer_are_left_out(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\n[ $1 != gone ]\n")
    agent.chmod(0o755)
    env = {"PRTE_MCA_plm_ssh_agent": str(agent)}
    assert restarts._alive("here:2,gone:2, there", env) == "here:2,there"
    assert restarts._alive("gone", env) == ""
    assert restarts._alive(None, env) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--restarts", "2", "-c", "1"], "--restarts needs --journal DIR"),
        (["--restarts", "-1", "-c", "1"], "must be 0 or more"),
        (["--journal", "{}/j", "--restarts", "1", "-"], "cannot be started again"),
        (["--journal", "/dev/null/j", "--restarts", "1", "-c", "1"], "cannot be used: Not a directory"),
    ],
)
def test_what_cannot_be(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=said):
        run([word.format(tmp_path) for word in words])


def test_a_journal_must_be_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--journal", " ", "-c", "1"])
    assert "argument --journal: ' ' is not a path; is a variable of the shell empty?" in capsys.readouterr().err

"""Progress bars in tasks, seen where the program was started."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, run_program

BARS = """
import time
import mpi_runtime
from mpi_runtime.util.tqdm import safe_print, tqdm

mpi_runtime.init(num_cpus=3)


@mpi_runtime.remote
def work(number):
    total = 0
    for step in tqdm(range(200), desc=f"part {number}", unit="step"):
        total += step
    print("ordinary", number)
    return total


@mpi_runtime.remote
class Worker:
    def work(self):
        with tqdm(total=10, desc="actor") as bar:
            bar.update(4)
            bar.set_description("changed")
            bar.refresh()
            bar.update(6)


@mpi_runtime.remote
def fail():
    for step in tqdm(range(7), desc="failing"):
        if step == 3:
            raise KeyError


@mpi_runtime.remote
def forget():
    bar = tqdm(desc="no end")
    bar.update(5)
    safe_print("safe", flush=True)


assert mpi_runtime.get([work.remote(number) for number in range(3)]) == [19900] * 3
worker = Worker.remote()
mpi_runtime.get([worker.work.remote(), forget.remote()])
try:
    mpi_runtime.get(fail.remote())
except KeyError:
    print("failed")
bar = tqdm([1, 2], desc="here")
for number in bar:
    safe_print("driver", number)
"""


def check(stdout: str, stderr: str) -> None:
    bars = [line for line in stderr.splitlines() if line.startswith("(")]
    for number in range(3):
        (bar,) = [line for line in bars if f"part {number}: 100%" in line]
        assert bar.startswith("(work pid=")
        assert "200/200" in bar
        assert "step/s]" in bar
    assert any("changed: 100%" in line and "10/10" in line for line in bars)
    assert any("failing:  43%" in line and "3/7" in line for line in bars)
    assert any("no end: 5it" in line for line in bars)
    assert len(bars) == 6
    assert "\x1e" not in stdout + stderr
    assert "here: 100%" in stderr
    assert sum("ordinary" in line for line in stdout.splitlines()) == 3
    assert {"failed", "driver 1", "driver 2"} <= set(stdout.splitlines())
    assert any(line.endswith(") safe") for line in stdout.splitlines())


def test_bars() -> None:
    completed = run_program(BARS).expect(0)
    check(completed.stdout, completed.stderr)


@pytest.mark.mpi
def test_on_ranks() -> None:
    completed = run_program(BARS, ranks=3).expect(0)
    check(completed.stdout, completed.stderr)


KILLED = """
import os
import mpi_runtime
from mpi_runtime.util.tqdm import tqdm

mpi_runtime.init(num_cpus=1)


@mpi_runtime.remote(max_retries=0)
def killed():
    bar = tqdm(total=10, desc="killed")
    bar.update(3)
    open("go").read()
    os._exit(1)


try:
    mpi_runtime.get(killed.remote())
except mpi_runtime.errors.WorkerCrashedError:
    print("caught", flush=True)


@mpi_runtime.remote
def lives():
    bar = tqdm(total=10, desc="lives")
    bar.update(3)
    open("go").read()


mpi_runtime.get(lives.remote())
print("end", flush=True)
"""


def test_the_bar_of_a_process_that_was_killed_leaves_the_terminal(tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
    os.mkfifo(tmp_path / "go")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    child = pexpect.spawn(sys.executable, ["-c", KILLED], dimensions=(30, 120), timeout=60, cwd=str(tmp_path), env=env)
    try:
        child.expect("killed: ")
        (tmp_path / "go").write_text("")
        child.expect("caught")
        child.expect("lives: ")
        assert b"killed: " not in child.before.rpartition(b"\x1b7")[2], "drawn together"
        (tmp_path / "go").write_text("")
        child.expect("end")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 0


def test_without_output_of_tasks_there_are_no_bars() -> None:
    completed = run_program(BARS.replace("num_cpus=3", "num_cpus=3, log_to_driver=False")).expect(0)
    assert "part" not in completed.stderr
    assert "here: 100%" in completed.stderr


def test_without_tqdm_the_import_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.std", None)
    monkeypatch.delitem(sys.modules, "mpi_runtime.util.tqdm", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install tqdm"):
        importlib.import_module("mpi_runtime.util.tqdm")


SHARED = """
import mpi_runtime
from mpi_runtime.util import tqdm

mpi_runtime.init(num_cpus=2)


@mpi_runtime.remote
def work(bar):
    for _ in range(3):
        mpi_runtime.get(bar.update.remote(1))


bar = mpi_runtime.remote(tqdm.tqdm).remote(total=6, desc="shared", flush_interval_s=1.0)
mpi_runtime.get([work.remote(bar) for _ in range(2)])
mpi_runtime.get(bar.set_description.remote("all"))
mpi_runtime.get(bar.close.remote())
print(isinstance(tqdm.tqdm([1], disable=True), tqdm.tqdm))
"""


def test_a_bar_that_is_an_actor() -> None:
    """As Ray's documentation shows it. It was a task that returned a bar, and handles had no `update`."""
    completed = run_program(SHARED).expect(0)
    assert completed.stdout == "True\n"
    assert "all: 100%" in completed.stderr
    assert "6/6" in completed.stderr

"""`run --journal --restarts` on several hosts: what is killed or cut off does not change the answer."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import Completed, Program, run_program, wait_until
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(240)]
STEPS, STRUCK = 12, 5
WIDTH = 4

APP = f"""
import os, sys, time
import mpi_runtime as ray

marks = sys.argv[1]
ray.init(num_cpus=2, heartbeat_timeout_s=3, journal_sync_s=0)

def note(text):
    with open(os.path.join(marks, "ran"), "a") as file:
        file.write(text + "\\n")

@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")
def multiply(x, y):
    time.sleep(0.05)
    note(f"multiply {{x}} {{y}}")
    return x * y % 1_000_003

@ray.remote(checkpoint_calls=1, num_cpus=0.5)
class Account:
    def __init__(self):
        self.sums = [7]
    def add(self, values):
        note(f"add {{len(self.sums)}}")
        self.sums.append((3 * self.sums[-1] + sum(values)) % 1_000_003)
        return self.sums[-1]
    def all(self):
        return self.sums
    def save_state(self):
        return self.sums
    def load_state(self, sums):
        self.sums = sums

account, value = Account.remote(), 7
for step in range({STEPS}):
    values = ray.get([multiply.remote(value + place, step + 2) for place in range({WIDTH})])
    value = ray.get(account.add.remote(values))
    if step == {STRUCK}:
        open(os.path.join(marks, f"driver{{os.getpid()}}"), "w").close()
        print("half", flush=True)
        if len([name for name in os.listdir(marks) if name.startswith("driver")]) == 1:
            ray.get([multiply.remote(value, 1000 + place) for place in range(40)])
            time.sleep(60)
print("answer", value, ray.get(account.all.remote()), flush=True)
"""


def started(lab: Lab, folder: Path, mpi: str) -> Program:
    """The program with two ranks on each host, to be started again if it does not come to its end."""
    return lab.restarted(APP, folder, str(folder), ranks=dict.fromkeys(lab.hosts, 2), mpi=mpi, restarts=3)


def victim(program: Program, what: str, folder: Path) -> int:
    """The process that is to be killed."""
    if what == "driver":
        [mark] = folder.glob("driver*")
        return int(mark.name.removeprefix("driver"))
    for pid in program.processes():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if what == "head" and name == "mpi-rt-head":
                return pid
            if what == "launcher" and Path(os.fsdecode(words[0])).name in ("mpiexec", "mpirun", "prterun"):
                return pid
    raise AssertionError(f"there is no {what} in {program.processes()}")


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of one run in one process tree, without a journal; it is not to wait for a strike."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "driver0").touch()
    return run_program(APP, str(folder)).expect(0).stdout.splitlines()[-1]


def check(done: Completed, folder: Path, answer: str) -> None:
    """The answer is right, and what the journal had was not made again."""
    assert done.returncode == 0, done.output()
    assert done.stdout.splitlines()[-1] == answer
    assert "restart 1 of 3" in done.stderr
    ran = Counter((folder / "ran").read_text().splitlines())
    again = [name for name, times in ran.items() if times > 1 and name.startswith("multiply") and " 10" not in name]
    assert not again, "calls that had finished, and whose results the program had, were made again"
    assert ran["add 1"] == 1


@pytest.mark.dies("journal")
@pytest.mark.parametrize(
    ("what", "mpi"),
    [("head", "openmpi"), ("launcher", "openmpi"), ("launcher", "mpich"), ("driver", "mpich")],
)
def test_a_process_of_the_job_is_killed(mpi: str, what: str, two_hosts: Lab, answer: str) -> None:
    folder = two_hosts.place / f"{mpi}-{what}"
    with started(two_hosts, folder, mpi) as program:
        program.wait_for_line("half", timeout=60)
        os.kill(victim(program, what, folder), signal.SIGKILL)
        done = program.finish(timeout=120)
    check(done, folder, answer)


@pytest.mark.dies("journal")
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_one_of_four_hosts_is_cut_off(mpi: str, four_hosts: Lab, answer: str) -> None:
    """The others take its ranks. Open MPI refuses more ranks than the hosts have places."""
    folder = four_hosts.place / f"{mpi}-four"
    with started(four_hosts, folder, mpi) as program:
        program.wait_for_line("half", timeout=60)
        with four_hosts.cut("host4"):
            wait_until(lambda: "answer" in program.stdout, 120, "the answer of those that are left")
        done = program.finish(timeout=60)
    check(done, folder, answer)
    assert "restart 1 of 3 on host1:3,host2:3,host3:2" in done.stderr

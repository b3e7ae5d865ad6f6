"""However a program ends, it ends soon, with the right exit code, and nothing of it is left.

Each program has an executor that runs a call, one that is idle, and programs that tasks have started: one in the
task's own process group, and one that has left it. The seconds that are printed run from the cause to the moment when
the last process is gone; the limit is generous, because the machine may be busy.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.helpers import Program, describe, start_program, wait_until

WAYS = ["plain", "openmpi", "mpich"]
"""Without a launcher, and with each MPI on three ranks."""
LIMIT_S = 20.0
"""Two seconds are promised; a machine that is busy with other things takes longer."""

BUSY_PROGRAM = """
import os, signal, subprocess, sys, time
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote
def start_programs():
    subprocess.Popen(["sleep", "1001"])
    subprocess.Popen(["sleep", "1002"], start_new_session=True)

@ray.remote
def work():
    time.sleep(1000)

@ray.remote
def idle():
    pass

ray.get(start_programs.remote())
large = ray.put(bytes(1_000_000))
running = work.remote()
ray.get(idle.remote())
time.sleep(0.1)
print("ready", os.getpid(), flush=True)
"""


def start(way: str, ending: str) -> Program:
    return start_program(BUSY_PROGRAM + ending, ranks=None if way == "plain" else 3, mpi=None if way == "plain" else way)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Cast:
    """The processes of a program by what they are."""

    def __init__(self, program: Program) -> None:
        self.driver = int(program.wait_for_line("ready").split()[-1])
        pids = program.processes()
        self.heads = [pid for pid in pids if "processes.head" in command(pid)]
        servers = [pid for pid in pids if "processes.forkserver" in command(pid)]
        self.executors = [pid for pid in servers if parent(pid) in servers]
        self.forkservers = [pid for pid in servers if pid not in self.executors]
        self.workers = [pid for pid in pids if "app.py" in command(pid) and pid not in (self.driver, program.pid)]
        self.workers = [pid for pid in self.workers if "mpirun" not in command(pid) and "hydra" not in command(pid)]
        self.workers = [pid for pid in self.workers if "prterun" not in command(pid) and "mpiexec" not in command(pid)]
        assert len(self.heads) == 1, [describe(pid) for pid in pids]
        assert self.executors, [describe(pid) for pid in pids]


def expect_gone(program: Program, since: float, what: str, codes: set[int]) -> None:
    """The program ends with one of these codes, and soon none of its processes is left."""
    wait_until(lambda: program.process.poll() is not None, LIMIT_S, f"the end of the program: {what}")
    wait_until(lambda: not program.processes(), LIMIT_S, f"the end of all its processes: {what}")
    print(f"{what}: {time.monotonic() - since:.2f} s")
    completed = program.finish()
    assert completed.returncode in codes, completed.output()


ENDINGS = {
    "falls off the end": ("", 0),
    "shutdown": ("ray.shutdown()", 0),
    "sys.exit(3)": ("sys.exit(3)", 3),
    "exception": ("raise ValueError('as planned')", 1),
    "os._exit(5)": ("os._exit(5)", 5),
    "os._exit(0)": ("os._exit(0)", 0),
    "exit in thread": ("import threading; threading.Thread(target=ray.get, args=(running,), daemon=True).start()", 0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_by_itself(way: str, ending: str) -> None:
    source, code = ENDINGS[ending]
    with start(way, source) as program:
        program.wait_for_line("ready")
        expect_gone(program, time.monotonic(), f"{way}, {ending}", {code})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_driver_is_killed(way: str, number: int) -> None:
    with start(way, "time.sleep(1000)") as program:
        cast = Cast(program)
        since = time.monotonic()
        os.kill(cast.driver, number)
        codes = {-number, 128 + number} if way == "plain" or number != signal.SIGINT else {1, 128 + number, -number}
        expect_gone(program, since, f"{way}, driver killed by {number}", codes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("waiting", ["time.sleep(1000)", "ray.get(running)", "while True: pass"])
def test_the_head_is_killed(way: str, waiting: str) -> None:
    with start(way, waiting) as program:
        cast = Cast(program)
        since = time.monotonic()
        os.kill(cast.heads[0], signal.SIGKILL)
        expect_gone(program, since, f"{way}, head killed during {waiting}", {*range(1, 256), -signal.SIGINT})

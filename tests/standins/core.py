"""The queue: jobs are files in a directory, and one process starts, signals and ends them.

    python -m tests.standins.core DIRECTORY

There are two nodes of four CPUs. The first is this host, and all processes run on it. Commands change the files
under a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

PLACE, MARK = "STANDIN", "STANDIN_JOB"
"""Variables with the directory of the queue, and with a job: all processes that have the latter belong to it."""
NODES = (socket.gethostname(), "ghost")
CPUS, GPUS = 4, 2
"""Of each node."""
QUEUES = {"work": 86400, "short": 60}
"""The longest time of each, in seconds."""
TURN_S = 0.1
WAITS, HELD, RUNS, ENDED = "waits", "held", "runs", "ended"
END, OVERTIME = "cancelled", "overtime"
"""Why a job is signalled."""
KILL_S = 4.0
"""Seconds from the first signal to SIGKILL."""


@dataclass
class Job:
    """A job, or a task of an array."""

    number: int
    text: str
    cwd: str
    env: dict[str, str]
    name: str = "STDIN"
    index: int | None = None
    queue: str = "work"
    nodes: int = 1
    cpus: int = 1
    tasks: int = 1
    gpus: int = 0
    limit_s: float | None = None
    after: list[int] = field(default_factory=list)
    at_a_time: int | None = None
    again: list[int] = field(default_factory=list)
    """Exit codes with which it is queued again."""
    arguments: str = ""
    state: str = WAITS
    why: str = ""
    code: int | None = None
    """Below 0: a signal."""
    wanted: str = ""
    """Why it shall end: one of `END` and `OVERTIME`."""
    ended_by: str = ""
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None
    lives: int = 0

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.number}" if self.index is None else f"{self.number}_{self.index}"


def place() -> Path:
    """The directory of the queue."""
    return Path(os.environ[PLACE])


@contextmanager
def locked(folder: Path) -> Generator[dict[str, Job]]:
    """All jobs by key. What is changed in the context is written at its end."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = {}
        for path in sorted(folder.glob("*.job")):
            job = Job(**json.loads(path.read_text()))
            known[job.key] = job
        before = {key: asdict(job) for key, job in known.items()}
        yield known
        for key, job in known.items():
            if before.get(key) != asdict(job):
                (folder / "new").write_text(json.dumps(asdict(job)))
                os.replace(folder / "new", folder / f"{key}.job")


def submit(job: Job, indices: range | list[int] | None = None) -> int:
    """Add a job, or the tasks of an array, and return its number."""
    with locked(place()) as known:
        job.number = 1 + max((one.number for one in known.values()), default=100)
        job.submitted = time.time()
        for index in [None] if indices is None else indices:
            one = Job(**{**asdict(job), "index": index})
            known[one.key] = one
    return job.number


def of(number: int, index: int | None = None) -> list[Job]:
    """Return the job, or all tasks of an array, or one of them; empty: there is none."""
    with locked(place()) as known:
        return [one for one in known.values() if one.number == number and index in (None, one.index)]


def change(job: Job, **fields: str) -> None:
    """Change fields of a job."""
    with locked(place()) as known:
        for name, value in fields.items():
            setattr(known[job.key], name, value)


def cancel(job: Job) -> None:
    """End a job."""
    if job.state in (WAITS, HELD):
        change(job, state=ENDED, ended_by=END)
    else:
        change(job, wanted=END)


def refuse(text: str, code: int) -> NoReturn:
    """End a command as the real one does."""
    print(text, file=sys.stderr)
    sys.exit(code)


class Queue:
    """The process that runs the jobs of a directory."""

    def __init__(self, folder: Path, variables: str) -> None:
        """`variables`: the module of the system."""
        from importlib import import_module

        self._folder = folder
        self._system = import_module(f"tests.standins.{variables}")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._signalled: dict[str, tuple[float, int]] = {}

    def work(self) -> None:
        """Start and end jobs until this process is ended."""
        while True:
            with locked(self._folder) as known:
                for job in known.values():
                    if job.state == RUNS:
                        self._look(job)
                    elif job.state == WAITS:
                        job.why = self._why(job, known)
                        if not job.why:
                            self._start(job)
            time.sleep(TURN_S)

    def _why(self, job: Job, known: Mapping[str, Job]) -> str:
        if any(one.number in job.after and one.state != ENDED for one in known.values()):
            return "dependency"
        if job.nodes > len(NODES) or job.cpus > CPUS or job.gpus > GPUS:
            return "never"
        running = [one for one in known.values() if one.state == RUNS]
        if job.at_a_time and sum(one.number == job.number for one in running) >= job.at_a_time:
            return "array"
        taken = [sum(one.cpus for one in running if one.nodes > node) for node in range(job.nodes)]
        gpus = [sum(one.gpus for one in running if one.nodes > node) for node in range(job.nodes)]
        is_free = max(taken) + job.cpus <= CPUS and max(gpus) + job.gpus <= GPUS
        return "" if is_free else "full"

    def _start(self, job: Job) -> None:
        script = self._folder / f"{job.key}.sh"
        script.write_text(job.text)
        env, cwd = self._system.around(job, self._folder)
        with open(self._folder / f"{job.key}.own", "ab") as out:
            self._running[job.key] = subprocess.Popen(
                ["/bin/bash", str(script)], env={**env, MARK: job.key}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
        job.state, job.started, job.lives = RUNS, time.time(), job.lives + 1

    def _look(self, job: Job) -> None:
        process = self._running[job.key]
        now = time.time()
        if (code := process.poll()) is not None:
            _signal(job, signal.SIGKILL)
            del self._running[job.key]
            self._signalled.pop(job.key, None)
            if code in job.again and not job.wanted:
                job.state, job.started = WAITS, None
            else:
                job.state, job.ended, job.code, job.ended_by = ENDED, now, code, job.wanted
            return
        if not job.wanted and job.limit_s is not None and job.started is not None and now > job.started + job.limit_s:
            job.wanted = OVERTIME
        if job.wanted:
            numbers = [*self._system.SIGNALS[job.wanted], signal.SIGKILL]
            first_s, sent = self._signalled.get(job.key, (now, 0))
            while sent < len(numbers) and now >= first_s + KILL_S * sent:
                _signal(job, numbers[sent])
                sent += 1
            self._signalled[job.key] = first_s, sent


def _signal(job: Job, number: int) -> None:
    """Send a signal to all processes of a job of this queue."""
    marks = [f"\0{MARK}={job.key}\0".encode(), f"\0{PLACE}={place()}\0".encode()]
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ProcessLookupError):
            text = b"\0" + (path / "environ").read_bytes() + b"\0"
            if all(mark in text for mark in marks):
                os.kill(int(path.name), number)


if __name__ == "__main__":
    Queue(Path(sys.argv[1]), sys.argv[2]).work()

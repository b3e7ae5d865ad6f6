"""The keeper of a session: the program of rank 0. It runs no code of users, and ends the job when it is time.

A session ends by a signal, shortly before the end of the time of its batch job, or because nobody uses it. The keeper
leaves the reason beside the session file, for programs that are connected.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from mpi_runtime import config as configuration
from mpi_runtime.core.host import signals
from mpi_runtime.core.host.launch import detect
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.files import session_files
from mpi_runtime.files.session_files import Session
from mpi_runtime.scheduler.protocol.questions import Drivers, RunningCalls
from mpi_runtime.show.numbers import seconds

SUBMITTED_LIMIT_S = 120.0
"""Seconds until the session file must have the batch job: file systems that are shared may show it late."""
LOOK_S = 5.0
"""Seconds between two looks at whether anybody uses the session; less if its `--idle` is short."""
LEAST_S = 0.05
ASK_S = 60.0
"""Seconds between questions for the end of the time: somebody may have changed it."""
BEFORE_END_S = 10.0
"""How long before the end of its time a session ends, at most half of what is left at its start."""
_REASONS = {
    signal.SIGHUP: "it was stopped (`mpi-runtime session stop`)",
    signal.SIGINT: "it was stopped (Ctrl-C)",
    signal.SIGTERM: "it got SIGTERM",
}


def check_journal() -> None:
    """Raise LaunchError if a variable names a journal."""
    name = configuration.JOURNAL
    if configuration.environment().get(name):
        raise LaunchError(f"a session has no journal, and the variable {name} names one: unset it")


def keep(options: argparse.Namespace) -> int:
    """Be the program of rank 0; on other ranks, a worker."""
    if detect(configuration.environment()).rank:
        be_worker()
    path: Path = options.file
    made = session_files.read(path)
    until_s = time.monotonic() + SUBMITTED_LIMIT_S
    while made.system and not made.job:
        if time.monotonic() > until_s:
            raise LaunchError(f"{path} does not name this batch job: the program that submitted it was killed")
        time.sleep(LOOK_S / 10)
        made = session_files.read(path)
    return Keeper(path, made, options).run()


def be_worker() -> None:
    """Become a worker, and never return."""
    from mpi_runtime.core.driver.session import work  # not at the top: other verbs start no job

    work(set(sys.modules))


class Keeper:
    """The program of rank 0 of a session."""

    def __init__(self, path: Path, made: Session, options: argparse.Namespace) -> None:
        self._path, self._made, self._options = path, made, options
        self._ending = threading.Event()
        self._why = ""
        self._used_s = time.monotonic()
        """When somebody was last seen to use the session."""
        self._end_s: float | None = None
        """The end of its time, since 1970; None: not known."""
        self._lead_s = BEFORE_END_S
        self._ask_s = 0.0

    def run(self) -> int:
        """Run the job until it is time to end it. Return the exit code."""
        from mpi_runtime.core.driver import session as driver  # not at the top: other verbs start no job

        signals.ignore()  # Slurm announces the end of the time, which we ask for
        for number in _REASONS:
            signal.signal(number, self._on_signal)
        path, made = self._path, self._made
        try:
            check_journal()
            self._start()
            if self._is_forgotten():
                raise LaunchError("the session was stopped while it started")
            session_files.opened(path, made)
            self._begin_watch()
            while not self._ending.wait(self._pause_s()):
                self._look()
            # Before its file goes: until then `session logs -f` reads.
            print(f"mpi-runtime session: the session {made.name!r} ends: {self._why}", file=sys.stderr, flush=True)
        except (TypeError, ValueError) as error:
            self._why = str(error)
            raise LaunchError(str(error)) from error
        except HeadDiedError as error:
            if not self._ending.is_set():
                self._why = "its head (scheduler) was killed, or has failed"
            print(f"mpi-runtime session: {error}", file=sys.stderr, flush=True)
            return 1
        finally:
            session_files.note_end(path, made, self._why or "it has failed, see its output")
            session_files.forget(path, made)
            driver.stop()
        return 0

    def _start(self) -> None:
        from mpi_runtime.core.driver import session as driver  # not at the top, as above

        for name in configuration.with_addresses():
            configuration.own_environment().pop(name, None)
        memory = self._options.object_store_memory
        config = configuration.from_init(
            num_cpus=self._options.num_cpus, num_gpus=self._options.num_gpus,
            object_store_memory=int(memory) if memory is not None else None,
        )  # fmt: skip
        with driver.changing:
            self._questions = driver.start_job(config, self._made.secret).client.questions

    def _is_forgotten(self) -> bool:
        try:
            return session_files.read(self._path).secret != self._made.secret
        except FileNotFoundError:
            return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._end(_REASONS[signal.Signals(number)])

    def _end(self, why: str) -> None:
        if self._ending.is_set():
            return
        if self._made.job and why == _REASONS[signal.SIGTERM]:
            is_time = self._end_s is not None and time.time() > self._end_s - self._lead_s
            why = self._time_is_over() if is_time else f"its batch job {self._made.job} was cancelled, or preempted"
        self._why = why
        self._ending.set()

    def _time_is_over(self) -> str:
        return f"the time of its batch job{f' {self._made.job}' if self._made.job else ''} is over"

    # What it looks at

    def _begin_watch(self) -> None:
        if not configuration.is_batch_job():
            self._ask_s = float("inf")
            return
        from mpi_runtime.slurm.walltime import end_time_at_start, lead_s  # not at the top: other jobs need none of it

        self._end_s = end_time_at_start()
        self._lead_s = lead_s(BEFORE_END_S, self._end_s)
        self._ask_s = time.monotonic() + ASK_S

    def _pause_s(self) -> float:
        pause_s = LOOK_S
        for limit_s in (self._options.idle, self._options.first):
            pause_s = min(pause_s, limit_s / 4 if limit_s else LOOK_S)
        if self._end_s is not None:
            pause_s = min(pause_s, self._end_s - self._lead_s - time.time())
        return max(pause_s, LEAST_S)

    def _look(self) -> None:
        """End the session if its time is over, or nobody uses it."""
        if time.monotonic() > self._ask_s:
            from mpi_runtime.slurm.walltime import end_time  # not at the top, as above

            self._ask_s = time.monotonic() + ASK_S
            self._end_s = end_time() or self._end_s
        if self._end_s is not None and time.time() >= self._end_s - self._lead_s:
            self._end(self._time_is_over())
            return
        idle_s, first_s = self._options.idle, self._options.first
        if idle_s is None and first_s is None:
            return
        now_s = time.monotonic()
        found = self._questions.ask(Drivers())
        if any(one.state == "CONNECTED" for one in found.drivers):
            self._used_s = now_s
        elif first_s is not None:  # it belongs to one program
            if found.joined:
                self._end("its program has ended")
            elif now_s - self._used_s > first_s:
                self._end(f"no program has connected in {seconds(first_s)}")
        elif self._questions.ask(RunningCalls()):
            self._used_s = now_s
        elif idle_s is not None and now_s - self._used_s > idle_s:
            self._end(f"nobody has used it for {seconds(idle_s)} (--idle)")

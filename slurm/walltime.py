"""The end of a job's time: callbacks before it, and requeueing the job.

Slurm announces the end by SIGUSR1 if the job was submitted with `--signal=B:USR1@SECONDS`. It announces its own kill,
and a scancel, by SIGTERM, KillWait seconds (30 by default) before SIGKILL. A known end of the time needs no signal.

Callbacks run in a thread of their own. A callback in a signal handler could interrupt the runtime in the middle of a
message, and would then wait for itself. The handlers only wake that thread, through a queue that handlers may use.
After SIGTERM, once the callbacks have returned, the process ends as if no callback had been registered.
"""

import contextlib
import math
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from mpi_runtime.slurm import end_of_time, exit_file, systems
from mpi_runtime.slurm.allocation import Allocation, from_environment
from mpi_runtime.slurm.commands import LIMIT_S, SlurmError, call
from mpi_runtime.slurm.environment import environment
from mpi_runtime.slurm.script import WARN_S

_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
EARLY_S = 65.0
"""How many seconds too early Slurm may announce the end: it checks every 30 s."""
ASK_S = 60.0
"""Seconds between questions for the end while a callback waits for it: somebody may have changed it. Near the end they
are a quarter of what is left, at least `ASK_MIN_S`."""
ASK_MIN_S = 5.0
_START_LIMIT_S = 10.0
"""Seconds to wait for an answer at the start of a program. Without an answer the end is not known."""


def allocation() -> Allocation:
    """Return what the batch system has granted to the job that this process belongs to."""
    return from_environment(environment())


def can_requeue() -> bool:
    """Whether this is a job of a batch system that can queue it again."""
    return systems.can_requeue(allocation().system)


def counts_restarts() -> bool:
    """Whether the batch system of this job counts its restarts. Grid Engine and LSF have 1 for each of them."""
    return allocation().system not in ("sge", "lsf")


def end_time() -> float | None:
    """Return the end of this job's time, in seconds since 1970; None if it is not known.

    Asks the batch system, because the time may have been changed. Without an answer the end that
    was known at the start counts.
    """
    own = allocation()
    return _asked(own, LIMIT_S, own.end_s)


def end_time_at_start() -> float | None:
    """Return the end of this job's time at the start of a program. Thousands may start together, and must not wait.

    The batch system is asked only if the environment does not state the end, or states a past one: it was extended
    then.
    """
    own = allocation()
    return own.end_s if own.end_s is not None and own.end_s > time.time() else _asked(own, _START_LIMIT_S, own.end_s)


def asked_again(known_s: float | None) -> float | None:
    """Ask again for the end of this job's time, which may have been changed; without an answer it is the known one."""
    return _asked(allocation(), LIMIT_S, known_s)


def lead_s(wanted_s: float, end_s: float | None) -> float:
    """Return how many seconds before its end to end a job: those wanted, but at most half of what is left now."""
    return wanted_s if end_s is None else min(wanted_s, max(0.0, end_s - time.time()) / 2)


def _asked(own: Allocation, limit_s: float, known_s: float | None) -> float | None:
    """Ask for the end; without an answer it is the known one."""
    if (asked := end_of_time.question(own)) is None:
        return known_s
    command, read = asked
    try:
        found = read(call(command, limit_s=limit_s), time.time())
    except SlurmError:
        found = None
    return known_s if found is None else found


def before_walltime(seconds: float, callback: Callable[[], object]) -> None:
    """Call a function once before the end of the job's time, for example to save results and to call `requeue`.

    It is called at the first of these: `seconds` before the known end, SIGUSR1, SIGTERM. If the program has no handler
    for SIGUSR2, that calls it too. It runs in a thread of its own while the program continues, and may use the runtime
    (`get`, `remote`). What it raises is printed. Outside of a batch job only the signals call it. Slurm sends SIGUSR1
    up to a minute early: if the end is known, the callback waits until `seconds`, or the `warn_s` that was requested,
    before it.

    Args:
        seconds: how many seconds before the end.
        callback: a function without arguments.

    Raises:
        ValueError: `seconds` is negative or not finite.
        RuntimeError: this is not the main thread. Only the main thread can set signal handlers.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds must be a finite number, 0 or more, not {seconds!r}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("before_walltime() must be called in the main thread: it sets signal handlers")
    _watch.add(seconds, callback)


def requeue() -> None:
    """Start this job again, from its beginning and under the same id, as soon as there is room.

    The running program ends: save first. A program that `submit` started is interrupted as by Ctrl-C, ends in order,
    and is then requeued. Slurm ends other programs by SIGTERM and SIGKILL. `allocation().restarts` counts the restarts.
    A job that a preemption has already requeued is left as it is. PBS and Flux do not requeue jobs of users: there a
    program of `submit` submits its job once more, and the id of the first one stays the id of them all.

    Raises:
        SlurmError: this is not a batch job, it was cancelled, or the batch system refuses (interactive jobs cannot be
            requeued).
    """
    own = allocation()
    if not systems.can_requeue(own.system):
        raise SlurmError("this is not a batch job, so it cannot be requeued")
    queue = systems.queue(own.system)
    if not queue.allow_requeue(own):
        return  # at a preemption Slurm queues the job again before it ends the processes
    if exit_file.current is not None:
        exit_file.current.requeue()  # returns if the program does not end
    queue.requeue(own)


class _Watch:
    """The thread that calls the callbacks."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[float, Callable[[], object]]] = []
        """Callbacks that were not called yet: seconds before the end, and the function."""
        self._news: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of signals, 0 for a new callback. The only kind of queue that handlers may use."""
        self._thread: threading.Thread | None = None
        self._previous: dict[int, Any] = {}
        """The signal handlers before ours."""
        self._announced_s = 0.0
        """How many seconds before the end SIGUSR1 was requested, if it arrived too early."""
        self._end_s: float | None = None
        """The end of the job's time, as of the last question; None: not known."""
        self._ask_s = 0.0
        """When it is asked for again, by the monotonic clock."""

    def add(self, seconds: float, callback: Callable[[], object]) -> None:
        self._callbacks.append((seconds, callback))
        for number in _SIGNALS:
            if signal.getsignal(number) != self._on_signal:
                self._previous[number] = signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR2, self._on_usr2)
        if exit_file.current is not None and exit_file.current.was_told:
            exit_file.current.was_told = False
            self._news.put(signal.SIGUSR1)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="mpi_runtime walltime", daemon=True)
            self._thread.start()
        self._news.put(0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if number == signal.SIGTERM and not self._callbacks:
            # All callbacks are done: end as if none had been registered.
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
            signal.raise_signal(number)
            return
        self._news.put(number)
        if number == signal.SIGUSR1 and callable(previous) and exit_file.current is None:
            previous(number, frame)

    def _on_usr2(self, number: int, frame: FrameType | None) -> None:
        """Take it for SIGUSR1: `#SBATCH --signal` may name either. A handler of the program's own stays."""
        self._news.put(signal.SIGUSR1)

    def _work(self) -> None:
        self._ask_s = 0.0
        while True:
            if self._callbacks and time.monotonic() >= self._ask_s:
                self._ask()
            number = 0
            with contextlib.suppress(queue.Empty):
                number = self._news.get(timeout=self._pause())
            if signal.getsignal(signal.SIGUSR1) != self._on_signal:
                return  # the process has become a worker
            if number == signal.SIGUSR1:
                self._ask()  # a preemption makes it earlier
                self._announce()
            elif number:
                self._call(self._callbacks)
            elif self._due_in_s() == 0:
                self._ask()  # it may have been extended
                left_s = self._end_s - time.time() if self._end_s is not None else -1.0
                self._call([one for one in self._callbacks if self._lead_s(one) >= left_s])
            if number == signal.SIGTERM:
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def _ask(self) -> None:
        self._end_s = asked_again(self._end_s if self._end_s is not None else allocation().end_s)
        quarter_s = (self._end_s - time.time()) / 4 if self._end_s is not None else ASK_S
        self._ask_s = time.monotonic() + min(ASK_S, max(ASK_MIN_S, quarter_s))

    def _lead_s(self, callback: tuple[float, Callable[[], object]]) -> float:
        """How many seconds before the end the callback is due."""
        return max(callback[0], self._announced_s)

    def _announce(self) -> None:
        """Handle SIGUSR1: call the callbacks that need not wait for the known end."""
        asked = environment().get(WARN_S, "")
        self._announced_s = float(asked) if asked.isdecimal() else 0.0
        left_s = self._end_s - time.time() if self._end_s is not None else 0.0
        self._call([one for one in self._callbacks if not 0 < self._lead_s(one) < left_s < self._lead_s(one) + EARLY_S])

    def _due_in_s(self) -> float:
        """Seconds until the next callback is due, as far as is known."""
        if self._end_s is None or not self._callbacks:
            return math.inf
        return max(0.0, self._end_s - max(map(self._lead_s, self._callbacks)) - time.time())

    def _pause(self) -> float | None:
        """Seconds until there is something to do; None: until something happens."""
        asks = bool(self._callbacks) and end_of_time.question(allocation()) is not None
        pause_s = min(self._due_in_s(), max(0.0, self._ask_s - time.monotonic()) if asks else math.inf)
        return None if pause_s == math.inf else min(pause_s, threading.TIMEOUT_MAX)

    def _call(self, due: list[tuple[float, Callable[[], object]]]) -> None:
        """Call these callbacks, the earliest first."""
        for one in sorted(due, key=lambda one: -one[0]):
            try:
                one[1]()
            except BaseException:
                print("mpi_runtime: a callback of before_walltime failed:", file=sys.stderr)
                traceback.print_exc()
            self._callbacks.remove(one)


_watch = _Watch()

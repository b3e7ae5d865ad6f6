"""Cancelled calls of an executor, and the interruption of those that run.

The agent writes the id and attempt of a cancelled call into a pipe, and the forkserver sends a signal, which interrupts
user code even while it waits. A task gets a `KeyboardInterrupt`. Coroutines are cancelled. Other running methods of
actors are not interrupted, because the actor should survive.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from mpi_runtime.core.client.interrupts import ALARMS, CANCEL_SIGNAL, DESTRUCTORS, IGNORED_PAUSE_S, Interrupts
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.ids import ATTEMPT_BYTES, ID_BYTES, attempt_of

READ_BYTES = ATTEMPT_BYTES << 12
ATTEMPTS_MAX = 20_000
"""The most cancelled attempts that are remembered, some 4 MB: far more than calls are assigned to an executor."""


class Cancels(Interrupts):
    """The cancelled attempts of one executor. While its main thread is inside this context, interrupts wait.

    So do alarms for which user code has a handler: its `TimeoutError` in the middle of a message would lose it.
    See `client/interrupts.py`. The handler of cancels stays in place and checks whether it has to wait. No other code
    has a handler for their signal.
    """

    def __init__(self, pipe: int) -> None:
        """Interrupt nothing yet. `pipe`: the descriptor with ids of cancelled attempts, which does not block."""
        super().__init__(ALARMS)
        self._pipe = pipe
        self._pid = os.getpid()
        self._is_put_off = False
        self.attempts: dict[bytes, bytes] = {}
        """By call, attempts that must not start, or must not continue. A cancel may arrive after the end of its call,
        and stay."""
        self.interruptible: Call | None = None
        """The call whose user code runs in the main thread, if it may be interrupted."""
        self.on_interrupt: Callable[[], None] = lambda: None
        """Called before the interruptible call is interrupted."""
        self.on_cancelled: Callable[[list[bytes]], None] | None = None
        """Called with cancelled attempts, if calls run in other threads than the main thread."""

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()  # raises what the handler of an alarm raises
        finally:
            if self._is_put_off and not self._depth and threading.get_ident() == self._main:
                self._on_interrupt(CANCEL_SIGNAL, sys._getframe())

    def has(self, call: Call | None) -> bool:
        """Whether this attempt of a call is cancelled."""
        if not self.attempts or call is None:
            return False
        return self.attempts.get(call.id) == attempt_of(call.id, call.attempt)

    def forget(self, id: bytes) -> None:
        """Forget a call that has ended."""
        self.attempts.pop(id, None)

    def listen(self) -> None:
        """Interrupt calls from now on. Call it in the main thread."""
        signal.signal(CANCEL_SIGNAL, self._on_interrupt)
        sys.unraisablehook = self._on_ignored
        self._on_interrupt(CANCEL_SIGNAL, None)  # an earlier signal was ignored

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal: read ids and interrupt. Several signals may become one."""
        self._is_put_off = self._depth > 0
        if self._is_put_off or os.getpid() != self._pid:
            return
        attempts = self._read()
        self.attempts.update((attempt[:ID_BYTES], attempt) for attempt in attempts)
        if len(self.attempts) > ATTEMPTS_MAX:
            for late in list(self.attempts)[: ATTEMPTS_MAX // 2]:
                self.forget(late)
        if self.on_cancelled is not None:
            self.on_cancelled(attempts)
        if not self.has(self.interruptible):
            return
        if _is_deaf(frame):
            _thread.start_new_thread(_interrupt_again, ())
            return
        self.on_interrupt()
        raise KeyboardInterrupt

    def _on_ignored(self, ignored: sys.UnraisableHookArgs) -> None:
        """Repeat an interrupt later that was raised in a destructor or callback, where Python ignores exceptions."""
        if isinstance(ignored.exc_value, KeyboardInterrupt) and self.has(self.interruptible):
            _thread.start_new_thread(_interrupt_again, ())
        else:
            sys.__unraisablehook__(ignored)

    def _read(self) -> list[bytes]:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return []
        return [data[at : at + ATTEMPT_BYTES] for at in range(0, len(data), ATTEMPT_BYTES)]


def _is_deaf(frame: FrameType | None) -> bool:
    """Whether Python would ignore what is raised here, and a reference or a view of ours would count for ever."""
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        is_ours = code.co_name in DESTRUCTORS and module.startswith("mpi_runtime.")
        if is_ours or code is Cancels._on_ignored.__code__:
            return True
        frame = frame.f_back
    return False


def _interrupt_again() -> None:
    time.sleep(IGNORED_PAUSE_S)
    signal.pthread_kill(threading.main_thread().ident or 0, CANCEL_SIGNAL)

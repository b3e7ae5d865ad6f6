"""Ctrl-C and alarms in the middle of a message, or while the client is loaded, are delayed until that is complete.

Python runs signal handlers between any two instructions of the main thread. A `KeyboardInterrupt` after half a frame
was sent, or between reading and noting what was read, would leave a client that waits without end for the lost part. A
program may continue after Ctrl-C: a notebook does. Handlers of alarms raise too: programs limit the time of a piece of
code so, most often with a `TimeoutError`.

While modules are imported an exception may be lost. Python ignores those of callbacks of weak references, which
`importlib` has for its locks. msgspec ignores those of `__hash__` as it makes a decoder. Ctrl-C would have no effect.
Python also ignores what is raised in a destructor: a loop of `put` loses a Ctrl-C in fifty so. Nothing can delay a
signal there at less cost than the destructor itself has, so a Ctrl-C that Python has ignored is repeated.

Executors delay alarms, and cancels too, at less cost: only this package has a handler for cancels
(`executor/cancels.py`).
"""

from __future__ import annotations

import _thread
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, FunctionType

from mpi_runtime.errors import frames as tracebacks

_signal = importlib.import_module("_signal")
"""The C part of `signal`. The Python part also looks up a name for each handler, which takes much longer."""
ALARMS = (int(signal.SIGALRM), int(signal.SIGVTALRM), int(signal.SIGPROF))
"""The signals of `setitimer`: after a time, after CPU time of the program, and after that of the system for it too."""
_OF_DRIVERS = (int(signal.SIGINT), *ALARMS)
CANCEL_SIGNAL = signal.SIGURG
"""Has an executor read the ids of cancelled calls. Programs do not use this signal, and by default it is ignored."""

DESTRUCTORS = ("__del__", "released")
"""Names of functions of ours. `released` is called when a view of the arena is gone."""
IGNORED_PAUSE_S = 0.01
"""Seconds until an interrupt is repeated that Python had to ignore."""


class Interrupts:
    """A context in which Ctrl-C and alarms wait in the main thread. A second one does not wait, in case of a hang.

    Outside, the program's own handler is in place: asyncio, trio and notebooks inspect and replace it.
    """

    def __init__(self, numbers: tuple[int, ...] = _OF_DRIVERS) -> None:
        """`numbers`: the signals that wait."""
        self._numbers = numbers
        self._main = threading.main_thread().ident
        self._ours = self._handle
        self._handlers: dict[int, object] = {}
        """The program's handlers while ours is in place, by signal. Handlers that C code set, and no handler, stay."""
        self._depth = 0
        self._put_off: set[int] = set()

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            if not self._depth:
                for number in self._numbers:
                    if callable(handler := _signal.getsignal(number)) and handler is not self._ours:
                        self._handlers[number] = handler
                        _signal.signal(number, self._ours)
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth and threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth:
                for number in tuple(self._handlers):  # a handler that is in place again may raise, or use the client
                    if _signal.getsignal(number) is self._ours:
                        _signal.signal(number, self._handlers[number])
                while self._put_off:
                    _call_handler(self._put_off.pop())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Outside, ours stays in place if the handler of another signal has raised while they were replaced.
        if self._depth and number not in self._put_off:
            self._put_off.add(number)
            return
        self._put_off.discard(number)
        handler = self._handlers.get(number)
        if callable(handler):
            handler(number, frame)


def _call_handler(number: int) -> None:
    """Call the handler of a signal that was put off.

    The signal is not raised again: its first arrival woke the event loop of asyncio, whose handler would run twice.
    """
    handler = _signal.getsignal(number)
    if callable(handler):
        handler(number, sys._getframe())
    else:
        signal.raise_signal(number)  # the program has removed its handler meanwhile


def is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this error, such as the `TimeoutError` of an alarm, not the code that it stopped.

    A handler has its caller, the interrupted frame, as an argument.
    """
    trace = tracebacks.of(error)
    while trace is not None and trace.tb_next is not None:
        caller, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            if value is caller or (type(value) is tuple and any(one is caller for one in value)):  # *arguments
                return True
    return False


def repeat_ignored() -> None:
    """Have each Ctrl-C repeated that Python ignores from now on. What ran then, if it is ours, is completed."""
    if not isinstance(sys.unraisablehook, _Repeats):
        sys.unraisablehook = _Repeats(sys.unraisablehook)


class _Repeats:
    """Called with exceptions that Python ignores.

    A handler of the program itself has done its work even if what it raised is lost, so it is not called again.
    """

    def __init__(self, others: Callable[[sys.UnraisableHookArgs], object]) -> None:
        """`others`: called with all other exceptions."""
        self._others = others

    def __call__(self, ignored: sys.UnraisableHookArgs) -> None:
        is_ours = isinstance(ignored.exc_value, KeyboardInterrupt) and threading.get_ident() == _main()
        if not is_ours or _signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            self._others(ignored)
            return
        with Interrupts():
            _complete(ignored)
        _thread.start_new_thread(_interrupt_again, ())


def _complete(ignored: sys.UnraisableHookArgs) -> None:
    """Run a destructor of ours again, each of which does its work once, or what it refers to stays for ever."""
    trace, function = ignored.exc_traceback, ignored.object
    if trace is None or not isinstance(function, FunctionType):
        return
    code, is_ours = trace.tb_frame.f_code, str(function.__module__).startswith("mpi_runtime.")
    if is_ours and code.co_name in DESTRUCTORS and code is function.__code__:
        function(*(trace.tb_frame.f_locals[name] for name in code.co_varnames[: code.co_argcount]))


def _interrupt_again() -> None:
    time.sleep(IGNORED_PAUSE_S)
    if not sys.is_finalizing():
        signal.pthread_kill(_main(), signal.SIGINT)


def _main() -> int:
    return threading.main_thread().ident or 0

"""Ctrl-C in the middle of a message is delayed until the message is complete.

Python runs signal handlers between any two instructions of the main thread. A `KeyboardInterrupt` after half a frame
was sent, or between reading and noting what was read, would leave a client that waits without end for the lost part. A
program may continue after Ctrl-C: a notebook does.

Cancels of tasks are delayed too, at less cost: only this package has a handler for them (`executor/cancels.py`).
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType
from typing import Any

_signal = importlib.import_module("_signal")
"""The C part of `signal`. The Python part also looks up a name for each handler, which takes much longer."""
_NUMBER = int(signal.SIGINT)
CANCEL_SIGNAL = signal.SIGURG
"""Has an executor read the ids of cancelled calls. Programs do not use this signal, and by default it is ignored."""


class Interrupts:
    """A context in which Ctrl-C waits in the main thread. A second one does not wait, in case of a hang.

    Outside, the program's own handler is in place: asyncio, trio and notebooks inspect and replace it.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._handler: Any = None
        """The program's handler while ours is in place. None also if C code set the handler, which then stays."""
        self._depth = 0
        self._put_off = False

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            if not self._depth and (handler := _signal.getsignal(_NUMBER)) is not None:
                self._handler = handler
                _signal.signal(_NUMBER, self._handle)
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth and threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth and self._handler is not None:
                handler, self._handler = self._handler, None
                _signal.signal(_NUMBER, handler)
                if self._put_off:
                    self._put_off = False
                    signal.raise_signal(_NUMBER)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        second = self._put_off
        self._put_off = not second
        if second and callable(self._handler):
            self._handler(number, frame)

"""Signals in the middle of a message are delayed until the message is complete: Ctrl-C, and the cancels of tasks.

Python runs signal handlers between any two instructions of the main thread. A `KeyboardInterrupt` after half a frame
was sent, or between reading and noting what was read, would leave a client that waits without end for the lost part. A
program may continue after Ctrl-C: a notebook does.
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType
from typing import Any

_signal = importlib.import_module("_signal")
"""The C part of `signal`. The Python part also looks up a name of each handler, which takes much longer."""
CANCEL_SIGNAL = signal.SIGURG
"""Tells an executor to read which calls are cancelled. No program uses it, and its default is to be ignored."""


class Interrupts:
    """While the main thread has entered it, a signal waits.

    Outside, the program's own handler is in place: asyncio, trio and notebooks inspect it and set theirs.
    """

    def __init__(self, number: int = signal.SIGINT, second_at_once: bool = True) -> None:
        """Delay this signal.

        Args:
            number: the signal.
            second_at_once: whether a second one does not wait: a user who presses Ctrl-C again sees a hang.
        """
        self._number = int(number)
        self._second_at_once = second_at_once
        self._main = threading.main_thread().ident
        self._handler: Any = None
        """The program's handler, while ours is in place. None also if C code has set it; then it stays."""
        self._depth = 0
        self._put_off = False

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            if not self._depth and (handler := _signal.getsignal(self._number)) is not None:
                self._handler = handler
                _signal.signal(self._number, self._handle)
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth and threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth and self._handler is not None:
                handler, self._handler = self._handler, None
                _signal.signal(self._number, handler)
                if self._put_off:
                    self._put_off = False
                    signal.raise_signal(self._number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        second = self._put_off and self._second_at_once
        self._put_off = not second
        if second and callable(self._handler):
            self._handler(number, frame)

"""Ctrl-C in the middle of a message is put off until the message is whole.

Python runs signal handlers between any two instructions of the main thread. A `KeyboardInterrupt` after half a frame
was sent, or between reading and noting what was read, would leave a client that waits for ever for what was lost, and a
program may go on after Ctrl-C: a notebook does.
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType
from typing import Any

_signal = importlib.import_module("_signal")
"""What `signal` wraps. That also looks for a name of each handler, which takes much longer."""
_SIGINT = int(signal.SIGINT)


class Interrupts:
    """While entered by the main thread its SIGINT waits. A second one does not: something hangs.

    Outside, the program's own handler is in place: asyncio, trio and notebooks look at it and set theirs.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._handler: Any = None
        """The program's, while ours is in place. None too if C code has set it: then it stays."""
        self._depth = 0
        self._put_off = False

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            if not self._depth and (handler := _signal.getsignal(_SIGINT)) is not None:
                self._handler = handler
                _signal.signal(_SIGINT, self._handle)
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth and threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth and self._handler is not None:
                handler, self._handler = self._handler, None
                _signal.signal(_SIGINT, handler)
                if self._put_off:
                    self._put_off = False
                    signal.raise_signal(signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        second, self._put_off = self._put_off, not self._put_off
        if second and callable(self._handler):
            self._handler(number, frame)

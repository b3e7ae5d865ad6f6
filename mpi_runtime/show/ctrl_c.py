"""The first Ctrl-C ends a program gently, the second one at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def at_first_ctrl_c(act: Callable[[], object]) -> Iterator[None]:
    """Have the first Ctrl-C in the block call this; the second one does what Ctrl-C did before. In the main thread.

    `act` runs in a signal handler: it must not print, because the program may be in a print.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        act()

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

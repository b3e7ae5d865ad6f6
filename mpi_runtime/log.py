"""What this package has to say while a job runs: lines for the logger `mpi_runtime`, in the program's own process.

The program that calls `init()` decides by what it has done to `logging` before:

1. It has a handler on that logger, or on the root: each line is a record there, with `rank`, `host` and `event` as
   attributes. Lines of the head come through a socket of their own, read by a thread: they need not wait until the
   program waits for something.
2. It has none: whoever has a line writes it to standard error. The head does so itself, so there is no thread.

`logging` itself is loaded only if the program has loaded it: what is not loaded has no handlers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

import msgspec

NAME = "mpi_runtime"
INFO, WARNING, ERROR, CRITICAL = 20, 30, 40, 50
"""As in `logging`."""
START, UNUSED, TOTALS, WAITING, END = "start", "unused", "totals", "waiting", "end"
JOURNAL = "journal"
"""What a line is about, besides what the scheduler has to tell (`scheduler/notes.py`)."""
TEXT_CHARACTERS_MAX = 10_000
"""A line has to fit a datagram."""


class Line(msgspec.Struct, array_like=True):
    """One line."""

    level: int
    event: str
    text: str
    rank: int
    host: str
    time_s: float
    """When it was said, since 1970."""

    def words(self) -> str:
        """The line as it stands on standard error."""
        return f"{time.strftime('%H:%M:%S', time.localtime(self.time_s))} {NAME}: {self.text}\n"


def line(level: int, event: str, text: str, rank: int = 0, host: str = "") -> Line:
    """A line that is said now."""
    text = text.replace("\n", " ")
    if len(text) > TEXT_CHARACTERS_MAX:
        text = f"{text[: TEXT_CHARACTERS_MAX - 3]}..."
    return Line(level, event, text, rank, host, time.time())


def has_handler() -> bool:
    """Whether the program has said where lines go."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger(NAME).hasHandlers()


def level(quiet: bool) -> int:
    """The least level of lines that are wanted: INFO, unless the program has said something else."""
    found = INFO
    logging = sys.modules.get("logging")
    if logging is not None:
        logger = logging.getLogger(NAME)
        found = logger.getEffectiveLevel() if logger.hasHandlers() else logger.level or INFO
        found = max(found, logging.root.manager.disable + 1, (CRITICAL + 1) * logger.disabled)
    return max(found, WARNING) if quiet else found


def say(line: Line, quiet: bool) -> None:
    """In the program's process: have a line go where the program wants it."""
    if line.level < level(quiet):
        return
    line.host = line.host or socket.gethostname()
    if has_handler():
        _hand_on(line)
    elif sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # it is closed
            sys.stderr.write(line.words())
            sys.stderr.flush()


def _hand_on(line: Line) -> None:
    import logging

    logger = logging.getLogger(NAME)
    if not logger.isEnabledFor(line.level):
        return
    extra = {"rank": line.rank, "host": line.host, "event": line.event}
    record = logger.makeRecord(NAME, line.level, "", 0, line.text, (), None, None, extra)
    record.relativeCreated -= (record.created - line.time_s) * 1000
    record.created = line.time_s
    record.msecs = line.time_s % 1 * 1000
    logger.handle(record)


class Listener:
    """Reads the lines of a job from its head, for a program that has a handler for them."""

    def __init__(self) -> None:
        """Be ready: `theirs` is for the head."""
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._listen, name="mpi_runtime log", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(8 * TEXT_CHARACTERS_MAX):
                _hand_on(msgspec.msgpack.decode(data, type=Line))

    def close(self, limit_s: float) -> None:
        """Wait, for as long as the limit, until the head has said all, and listen no more."""
        self.theirs.close()
        self._thread.join(limit_s)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join(limit_s)
        self._socket.close()

    def forget(self) -> None:
        """In a forked child, which has no thread: what the parent listens to is none of its business."""
        self._socket.close()
        self.theirs.close()


def write(line: Line, descriptor: int) -> None:
    """In the head: have a line written by the program, by way of its `Listener`."""
    with contextlib.suppress(OSError):  # it is gone
        os.write(descriptor, msgspec.msgpack.encode(line))

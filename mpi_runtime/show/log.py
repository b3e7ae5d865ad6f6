"""Log lines about a job, for the logger `mpi_runtime` in the program's own process.

Where they go depends on how the program has set up `logging` before `init()`:

1. There is a handler on that logger or on the root logger: each line becomes a record, with `rank`, `host` and `event`
   as attributes. Lines of the head arrive over a socket of their own, and a thread reads them, so that they are shown
   even while the program computes.
2. There is no handler: each process writes its lines to standard error. The head does so too, and no thread is
   started.

This module does not load `logging`: unless the program has loaded it, no handler can exist.
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
"""Levels as in `logging`."""
START, UNUSED, TOTALS, WAITING, END = "start", "unused", "totals", "waiting", "end"
JOURNAL, REPORT, EXPERIMENT, SESSION, DATA = "journal", "report", "experiment", "session", "data"
"""Events of lines, beside those of the scheduler (`scheduler/log/notes.py`)."""
TEXT_CHARACTERS_MAX = 10_000
"""A line has to fit a datagram."""


class Line(msgspec.Struct, array_like=True):
    """A log line."""

    level: int
    event: str
    text: str
    rank: int
    host: str
    time_s: float
    """When it was made, in seconds since 1970."""

    def words(self) -> str:
        """Return the line as it is written to standard error."""
        return f"{time.strftime('%H:%M:%S', time.localtime(self.time_s))} {NAME}: {self.text}\n"


def line(level: int, event: str, text: str, rank: int = 0, host: str = "") -> Line:
    """Return a log line with the present time. A long text is cut."""
    text = text.replace("\n", " ")
    if len(text) > TEXT_CHARACTERS_MAX:
        text = f"{text[: TEXT_CHARACTERS_MAX - 3]}..."
    return Line(level, event, text, rank, host, time.time())


def has_handler() -> bool:
    """Whether the program has a handler for our lines."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger(NAME).hasHandlers()


def level(quiet: bool) -> int:
    """Return the lowest level of lines to show: INFO, unless the program has set another level or is `quiet`."""
    found = INFO
    logging = sys.modules.get("logging")
    if logging is not None:
        logger = logging.getLogger(NAME)
        found = logger.getEffectiveLevel() if logger.hasHandlers() else logger.level or INFO
        found = max(found, logging.root.manager.disable + 1, (CRITICAL + 1) * logger.disabled)
    return max(int(found), WARNING) if quiet else int(found)  # `logging` takes True and integers of numpy, too


def say(line: Line, quiet: bool) -> None:
    """Show a line where the program wants it. For the program's own process."""
    if line.level < level(quiet):
        return
    line.host = line.host or socket.gethostname()
    if has_handler():
        _hand_to_logging(line)
    elif sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # it is closed
            sys.stderr.write(line.words())
            sys.stderr.flush()


def _hand_to_logging(line: Line) -> None:
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
    """Receives the head's log lines, in a program that has a handler for them."""

    def __init__(self) -> None:
        """Start to listen. `theirs` is the end of the socket for the head."""
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._listen, name="mpi_runtime log", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(8 * TEXT_CHARACTERS_MAX):
                _hand_to_logging(msgspec.msgpack.decode(data, type=Line))

    def close(self, limit_s: float) -> None:
        """Wait at most this many seconds until the head has closed its end, and stop listening."""
        self.theirs.close()
        self._thread.join(limit_s)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(limit_s)
        self._socket.close()

    def forget(self) -> None:
        """Close the sockets in a forked child. The parent listens, and the child has no thread for it."""
        self._socket.close()
        self.theirs.close()


def write(line: Line, descriptor: int) -> None:
    """Send a line to the program's `Listener`. For the head."""
    with contextlib.suppress(OSError):  # the program is gone
        os.write(descriptor, msgspec.msgpack.encode(line))

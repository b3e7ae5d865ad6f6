"""Prints the output of executors, each line with its origin, without ever blocking the head.

A terminal or a pipe may be slow, so a thread writes. If it falls too far behind, agents stop reading the pipes of
executors. So executors that write too much have to wait, and no other process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from mpi_runtime.core.head import status
from mpi_runtime.scheduler.protocol.window_questions import Piece, Pieces
from mpi_runtime.show.log import Line, write

PROGRESS = b"progress of the job"
"""The owner of the line that shows the progress of the job."""
LAG_BYTES_MAX = 4 << 20
LAG_BYTES_RESUME = 1 << 20
WRITE_BYTES = select.PIPE_BUF
"""Bytes that a pipe takes in one piece. The driver writes to the same pipe, and lines must not be mixed."""
_FOR_NOW = {errno.EAGAIN, errno.ENOSPC, errno.EDQUOT}
RETRY_S = 0.02
STALL_S = 5.0
"""Seconds without progress, at the end of a job, after which the remaining output is dropped."""
PIECES_MAX = 500
PIECE_BYTES_MAX = 4000
"""Of more output at once, only the end is kept. All together takes at most 2 MB."""
ANSWER_BYTES_MAX = 100_000


class Printer:
    """Writes lines to the standard output and error of this process."""

    def __init__(
        self,
        pause: Callable[[bool], None],
        log: int = -1,
        streams: tuple[int, ...] = (1, 2),
        recent: Recent | None = None,
    ) -> None:
        """Create a printer. Its thread starts with the first line.

        `pause` is called with True when too much output waits to be written, and with False when that is over.
        `log`: the descriptor to which log lines about the job are sent; -1: they are written like other lines.
        `streams`: the descriptors of standard output and error. `recent`: gets the lines too; None: its own.
        """
        self._log = log
        self._streams = streams
        self.recent = recent or Recent()
        self._pause = pause
        self._paused = False
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._status = status.Status(lambda data: sum(self._parts(2, data)), status.terminal(streams[1]))
        self._with_status: set[int] = set()
        """Processes that have sent a status."""
        self._put_bytes = 0
        self._written_bytes = 0
        self._thread: threading.Thread | None = None

    def say(self, line: Line) -> None:
        """Write a log line about the job."""
        self.recent.log(line)
        if self._log >= 0:
            self._start()
            self._queue.put(partial(write, line, self._log))
        else:
            self._print(2, b"", line.words().encode(errors="replace"))

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._write_all, name="mpi_runtime printer", daemon=True)
            with contextlib.suppress(RuntimeError):  # the system refuses a thread for now: the lines wait
                thread.start()
                self._thread = thread

    def print(self, stream: int, prefix: bytes, lines: bytes, process: int = 0, is_plain: bool = False) -> None:
        """Write whole lines of a process, each with the prefix, unless they are plain."""
        if status.MARK in lines:
            lines, notes = status.split(lines)
            self._start()
            self._with_status.add(process)
            for note in notes:
                self._queue.put(partial(self._status.take, prefix, note, process))
            if not lines:
                return
        self.recent.output(stream, prefix, lines)
        self._print(stream, b"" if is_plain else prefix, lines)

    def ended(self, process: int) -> None:
        """Show no status of a process any more: it has ended."""
        if process in self._with_status:
            self._with_status.discard(process)
            self._queue.put(partial(self._status.ended, process))

    def _print(self, stream: int, prefix: bytes, lines: bytes) -> None:
        self._start()
        data = prefix + lines.rstrip(b"\n").replace(b"\n", b"\n" + prefix) + b"\n"
        self._put_bytes += len(data)
        self._queue.put(partial(self._write_lines, stream, data))
        if not self._paused and self._put_bytes - self._written_bytes > LAG_BYTES_MAX:
            self._paused = True
            self._pause(True)

    def progress(self, text: str) -> None:
        """Show a status of the job itself; an empty text removes it."""
        self._start()
        self._queue.put(partial(self._status.take, b"", (PROGRESS, text.encode(), not text)))

    def turn(self) -> float | None:
        """Resume if enough was written. Return the seconds until the next check; None: none is needed."""
        if not self._paused:
            return None
        self._start()
        if self._put_bytes - self._written_bytes < LAG_BYTES_RESUME:
            self._paused = False
            self._pause(False)
            return None
        return 0.01

    def _write_all(self) -> None:
        while True:
            try:
                act = self._queue.get(timeout=self._status.wait_s())
            except queue.Empty:
                self._status.draw()
                continue
            if act is None:
                self._status.hide()
                return
            act()

    def _write_lines(self, stream: int, data: bytes) -> None:
        self._status.hide()
        for written in self._parts(stream, data):
            self._written_bytes += written

    def _parts(self, stream: int, data: bytes) -> Iterator[int]:
        """Write data, and yield the number of bytes of each part."""
        return _write(self._streams[stream - 1], data)

    def close(self, wait: Callable[[], bool]) -> None:
        """Write the remaining output while it is read, and report how much had to be dropped.

        `wait` is called about once a second meanwhile. If it returns False, the rest is dropped at once.
        """
        self._write_rest(wait)
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _write_rest(self, wait: Callable[[], bool]) -> None:
        has_lines = not self._queue.empty()
        self._queue.put(None)
        if self._thread is None:
            if has_lines:
                self._write_all()
            return
        before, since_s = self._written_bytes, time.monotonic()
        while self._thread.is_alive() and time.monotonic() - since_s < STALL_S and wait():
            self._thread.join(1.0)
            if before != self._written_bytes:
                before, since_s = self._written_bytes, time.monotonic()
        if self._thread.is_alive():
            lost = self._put_bytes - self._written_bytes
            text = f"mpi_runtime: {lost} bytes of output of tasks are lost: none could be written for {STALL_S:g} s.\n"
            if lost and select.select([], [2], [], 0)[1]:
                os.write(2, text.encode())


def _write(stream: int, data: bytes) -> Iterator[int]:
    """Write all of the data, in parts that end with a line if possible. Yield the number of bytes of each part.

    A stream that takes nothing for now (a full disk, a pipe that another process has made non-blocking) is asked again.
    """
    at = 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + WRITE_BYTES) + 1 or at + WRITE_BYTES
        try:
            written = os.write(stream, data[at:end])
        except OSError as error:
            if error.errno in _FOR_NOW:
                time.sleep(RETRY_S)
                continue
            written = len(data) - at  # the reader is gone
        at += written
        yield written


class Recent:
    """Pieces of output in their order. Nothing is decoded before somebody asks."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, float, int, bytes, bytes]] = deque(maxlen=PIECES_MAX)
        """Number, time in seconds since 1970, level, writer, lines."""
        self.count = 0

    def output(self, stream: int, prefix: bytes, lines: bytes) -> None:
        """Keep output of a process: stream 1 or 2."""
        self.count += 1
        self._pieces.append((self.count, time.time(), stream, prefix, lines[-PIECE_BYTES_MAX:]))

    def log(self, line: Line) -> None:
        """Keep a log line about the job. Its level is one of `logging`."""
        self.count += 1
        place = f"mpi_runtime, rank {line.rank}, {line.host}".encode()
        self._pieces.append((self.count, line.time_s, line.level, place, line.text.encode(errors="replace")))

    def since(self, number: int) -> Pieces:
        """The pieces after a number, the last ones if they are too many."""
        found: list[Piece] = []
        size = 0
        for one in reversed(self._pieces):
            if one[0] <= number:
                break
            texts = [part.decode(errors="replace") for part in one[3:]]
            size += sum(len(text.encode()) for text in texts)  # what replaces a byte may have three
            if size > ANSWER_BYTES_MAX:
                break
            found.append(Piece(*one[:3], *texts))
        return Pieces(self.count, found[::-1])

"""Reads the output of executors from their pipes, and forwards it in whole lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mpi_runtime.core.executor.fork_messages import MARK
from mpi_runtime.core.transport.messages import Log
from mpi_runtime.core.transport.poller import Poller

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
"""A line longer than this is forwarded in pieces."""


class Lines:
    """One standard stream of one executor."""

    def __init__(
        self, descriptor: int, executor: int, stream: int, report: Callable[[Log], None], poller: Poller
    ) -> None:
        self._descriptor = descriptor
        self._executor = executor
        self._stream = stream
        self._report = report
        self._poller = poller
        self._rest = self._writer = b""
        self.last = b""
        """The bytes that were read last."""
        poller.add(descriptor, self._read)

    def _read(self) -> None:
        if self._read_once() == 0:
            self.close()

    def _read_once(self) -> int:
        """Read once, up to a limit. Return the number of bytes; 0: end of the stream; -1: nothing for now."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return -1
        self.last = unmarked(data) or self.last
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            whole, newline, rest = whole + newline + rest, b"\n", b""
        self._rest = rest
        if newline:
            self.forward(whole + newline)
        return len(data)

    def forward(self, lines: bytes) -> None:
        """Forward whole lines, also some that do not come from the pipe."""
        for part, writer in split(lines, self._writer):
            self._writer = writer
            if part:
                self._report(Log(self._executor, self._stream, part, writer))

    def pause(self, paused: bool) -> None:
        """Pause reading, so that the writer has to wait, or resume it."""
        if self._descriptor >= 0:
            (self._poller.pause if paused else self._poller.resume)(self._descriptor)

    def drain(self) -> None:
        """Forward what is still in the pipe after the executor has died, and close the pipe.

        A program that the executor started may hold the other end open, so the pipe may never end by itself.
        """
        while self._descriptor >= 0 and self._read_once() > 0:
            pass
        self.close()

    def close(self) -> None:
        """Stop reading for good. A last line without a newline is forwarded."""
        if self._descriptor < 0:
            return
        self._poller.remove(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if self._rest:
            self.forward(self._rest + b"\n")
            self._rest = b""


def split(lines: bytes, writer: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield parts of whole lines, each with its writer. The first is of `writer`; the last may be empty."""
    while (at := lines.find(MARK)) >= 0:
        before, (after, _, lines) = lines[:at], lines[at + len(MARK) :].partition(b"\n")
        if before:
            yield (before if before.endswith(b"\n") else before + b"\n"), writer
        writer = after
    yield lines, writer


def unmarked(data: bytes) -> bytes:
    """Return output without its marks."""
    return b"".join(part for part, _ in split(data, b"")) if MARK in data else data

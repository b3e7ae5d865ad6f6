"""The memory for values of a session's host, as a driver on another host uses it: in parts, through its line.

A value is kept in its place while its parts are read, because the view of it is counted before and dropped afterwards.
So no release can overtake them. Some parts are on their way at a time. Each is short, so messages for other threads do
not wait long, and Ctrl-C ends the transfer.

If the line is slow, and both hosts see the directory of the session file, parts of large values are files in it, and
only requests and answers take the line. What files cannot move takes the line.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mpi_runtime import errors
from mpi_runtime.core.client.questions import Questions
from mpi_runtime.core.objects import passed_files
from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.core.transport.messages import Part, ReadPart, WritePart

PART_BYTES = 256 << 10
WINDOW = 16
"""The most parts that are on their way."""
FILE_BYTES = 4 << 20
FILE_WINDOW = 4
"""The same for files: what a program has on the disk at most."""


class FarValue:
    """A value that is kept in its place until it was read, or is not wanted any more."""

    def __init__(
        self, arena: FarArena, file: str, region: int, offset: int, size: int, on_release: Callable[[], None]
    ) -> None:
        self._arena = arena
        self._place = file, region, offset, size
        self._on_release: Callable[[], None] | None = on_release

    def read(self) -> memoryview:
        """Return a copy of its bytes.

        Raises:
            ObjectLostError: they cannot be read.
        """
        try:
            return self._arena.fetch(*self._place)
        finally:
            self.release()

    def release(self) -> None:
        """Let its place be used for others."""
        release, self._on_release = self._on_release, None
        if release is not None:
            release()

    __del__ = release


Piece = tuple[int, memoryview]
"""A piece of a value, with its position in the value."""
Ask = Callable[[int, int, memoryview], ReadPart | WritePart]
"""Makes the request with this number for a piece at this position."""
Took = Callable[[Part, memoryview], None]
"""Handles the answer for a piece."""


def _pieces(position: int, buffer: memoryview, length: int) -> Iterator[Piece]:
    for at in range(0, len(buffer), length):
        yield position + at, buffer[at : at + length]


class FarArena:
    """Reads and writes values of another host."""

    def __init__(self, capacity: int, files: str = "") -> None:
        """`capacity`: the bytes of memory for values on the host of rank 0. `files`: see `Welcome`."""
        self.capacity = capacity
        self._questions: Questions | None = None
        self._files = files
        self._uses_files = bool(files)
        self._turns = threading.Lock()
        """Held for a window of files, so that messages on the line wait for no more than that."""
        self._strays: list[int] = []
        """The requests of interrupted transfers. Their files may appear later."""

    def attach(self, questions: Questions) -> None:
        """Ask through these, from now on."""
        self._questions = questions

    def read(self, region: int, offset: int, size: int, on_release: Callable[[], None]) -> FarValue:
        """Return a value, to be read later. For the place see `ClientArena.read`."""
        return FarValue(self, "", region, offset, size, on_release)

    def read_file(self, file: str, offset: int, size: int, on_release: Callable[[], None]) -> FarValue:
        """Return a value that lies in a spill file of the host."""
        return FarValue(self, file, 0, offset, size, on_release)

    def fetch(self, file: str, region: int, offset: int, size: int) -> memoryview:
        """Read the bytes of a place."""
        view = memoryview(bytearray(size))

        def ask(number: int, at: int, piece: memoryview) -> ReadPart:
            return ReadPart(number, region, offset + at, len(piece), file)

        def took(part: Part, piece: memoryview) -> None:
            piece[:] = part.data

        def ask_for_file(number: int, at: int, piece: memoryview) -> ReadPart:
            return ReadPart(number, region, offset + at, len(piece), file, is_passed=True)

        def took_file(part: Part, piece: memoryview) -> None:
            passed_files.take(self._files, part.request, piece)

        if not self._by_files(0, view, ask_for_file, took_file):
            self._transfer(_pieces(0, view, PART_BYTES), WINDOW, ask, took)
        return view.toreadonly()

    def write(self, region: int, offset: int, size: int, parts: Iterable[tuple[int, Buffer]]) -> None:
        """Copy buffers into an extent, as `ClientArena.write` does."""

        def ask(number: int, at: int, piece: memoryview) -> WritePart:
            return WritePart(number, region, offset + at, bytes(piece))

        def took(part: Part, piece: memoryview) -> None:
            pass

        def pass_file(number: int, at: int, piece: memoryview) -> WritePart:
            passed_files.leave(self._files, number, piece)
            return WritePart(number, region, offset + at, b"", passed=len(piece))

        def pieces() -> Iterator[Piece]:
            for position, part in parts:
                if not memoryview(part).nbytes:
                    continue  # Python cannot cast an empty view
                buffer = memoryview(part).cast("B")
                if not 0 <= position <= size - len(buffer):
                    raise ValueError(f"{len(buffer)} bytes at {position} do not lie in an extent of {size} bytes")
                if not self._by_files(position, buffer, pass_file, took):
                    yield from _pieces(position, buffer, PART_BYTES)

        self._transfer(pieces(), WINDOW, ask, took)

    def _by_files(self, position: int, buffer: memoryview, ask: Ask, took: Took) -> bool:
        """Move a large buffer by files, if the hosts share a directory. Return whether it has moved."""
        if not self._uses_files or len(buffer) <= PART_BYTES:
            return False
        strays = len(self._strays)
        try:
            for at, window in _pieces(position, buffer, FILE_BYTES * FILE_WINDOW):
                with self._turns:
                    self._transfer(_pieces(at, window, FILE_BYTES), FILE_WINDOW, ask, took)
        except (OSError, errors.ObjectLostError):  # it is full, or not shared after all
            self._uses_files = False
            return False
        # Requests are answered in order: all files of earlier ones have appeared.
        for number in self._strays[:strays]:
            passed_files.drop(self._files, number)
        del self._strays[:strays]
        return True

    def _transfer(self, pieces: Iterable[Piece], window: int, ask: Ask, took: Took) -> None:
        """Send a request for each piece, at most `window` ahead of the answers, which arrive in order."""
        assert self._questions is not None
        questions, waiting, number = self._questions, deque[tuple[int, memoryview]](), 0

        def take() -> None:
            nonlocal number
            number, piece = waiting.popleft()
            part = questions.part(number)
            if part.problem:
                raise errors.ObjectLostError(
                    f"A part of the value could not be moved between the hosts: {part.problem}."
                )
            took(part, piece)

        try:
            for at, piece in pieces:
                if len(waiting) >= window:
                    take()
                number = questions.number()
                message = ask(number, at, piece)
                waiting.append((number, piece))
                questions.ask_for_part(message)
            while waiting:
                take()
        except BaseException:  # Ctrl-C, or the line is lost
            for one, _ in waiting:
                questions.forget(one)
            if self._files:
                self._strays += [number, *(one for one, _ in waiting)]
            raise

    @contextmanager
    def pinned(self, region: int, offset: int, size: int) -> Iterator[None]:
        """No memory of another host is pinned here."""
        yield None

    def close(self) -> None:
        """Nothing is open."""

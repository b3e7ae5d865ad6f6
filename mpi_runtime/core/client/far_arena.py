"""The memory for values of a session's host, as a driver on another host uses it: in parts, through its line.

A value is kept in its place while its parts are read, because the view of it is counted before and dropped afterwards.
So no release can overtake them. Some parts are on their way at a time. Each is short, so messages for other threads do
not wait long, and Ctrl-C ends the transfer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mpi_runtime import errors
from mpi_runtime.core.client.questions import Questions
from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.core.transport.messages import ReadPart, WritePart

PART_BYTES = 256 << 10
WINDOW = 16
"""The most parts that are on their way."""


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


class FarArena:
    """Reads and writes values of another host."""

    def __init__(self, capacity: int) -> None:
        """`capacity`: the bytes of memory for values on the host of rank 0."""
        self.capacity = capacity
        self._questions: Questions | None = None

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
        data = bytearray(size)
        view = memoryview(data)

        def asked() -> Iterator[Callable[[int], ReadPart]]:
            for at in range(0, size, PART_BYTES):
                length = min(PART_BYTES, size - at)
                yield lambda number, at=at, length=length: ReadPart(number, region, offset + at, length, file)  # type: ignore[misc]

        def arrived(index: int, part: bytes) -> None:
            at = index * PART_BYTES
            view[at : at + len(part)] = part

        self._transfer(asked(), arrived)
        return view.toreadonly()

    def write(self, region: int, offset: int, size: int, parts: Iterable[tuple[int, Buffer]]) -> None:
        """Copy buffers into an extent, as `ClientArena.write` does."""

        def asked() -> Iterator[Callable[[int], WritePart]]:
            for position, part in parts:
                if not memoryview(part).nbytes:
                    continue  # Python cannot cast an empty view
                buffer = memoryview(part).cast("B")
                if not 0 <= position <= size - len(buffer):
                    raise ValueError(f"{len(buffer)} bytes at {position} do not lie in an extent of {size} bytes")
                for at in range(0, len(buffer), PART_BYTES):
                    data, place = bytes(buffer[at : at + PART_BYTES]), offset + position + at
                    yield lambda number, data=data, place=place: WritePart(number, region, place, data)  # type: ignore[misc]

        self._transfer(asked(), lambda index, data: None)

    def _transfer(
        self, asked: Iterable[Callable[[int], ReadPart | WritePart]], arrived: Callable[[int, bytes], None]
    ) -> None:
        """Send requests, some at a time, and take their answers in order."""
        assert self._questions is not None
        questions, waiting, index = self._questions, deque[int](), 0

        def take() -> None:
            nonlocal index
            part = questions.part(waiting.popleft())
            if part.problem:
                raise errors.ObjectLostError(
                    f"A part of the value could not be moved between the hosts: {part.problem}."
                )
            arrived(index, part.data)
            index += 1

        try:
            for request in asked:
                if len(waiting) >= WINDOW:
                    take()
                number = questions.number()
                waiting.append(number)
                questions.ask_for_part(request(number))
            while waiting:
                take()
        except BaseException:  # Ctrl-C, or the line is lost
            for number in waiting:
                questions.forget(number)
            raise

    @contextmanager
    def pinned(self, region: int, offset: int, size: int) -> Iterator[None]:
        """No memory of another host is pinned here."""
        yield None

    def close(self) -> None:
        """Nothing is open."""

"""Parts of large values, for a driver on another host: read from and written into the memory of the session's host.

The driver counts a view of a value while it reads the parts, as a driver on this host does while it has an array.
"""

from __future__ import annotations

import contextlib
import os

from mpi_runtime.core.objects import passed_files
from mpi_runtime.core.objects.arena import Layout
from mpi_runtime.core.transport.messages import Part, ReadPart, WritePart


class Parts:
    """The memory for values of this host."""

    def __init__(self, arena: int, files: str = "") -> None:
        """Use the arena of this descriptor, which stays the caller's. `files`: the directory for `passed_files`."""
        self._arena = arena
        self._files = files
        self.layout = Layout.of(arena)
        self._file = ""
        self._descriptor = -1
        """The spill file that was read last."""

    def answer(self, asked: ReadPart | WritePart) -> Part:
        """Read or write a part."""
        try:
            if type(asked) is WritePart:
                self._write(asked)
                return Part(asked.request)
            assert type(asked) is ReadPart
            data = os.pread(*self._place(asked))
            if len(data) < asked.size:
                return Part(asked.request, problem=f"of {asked.size} bytes only {len(data)} are there")
            if asked.is_passed:
                passed_files.leave(self._files, asked.request, data)
                data = b""
        except (OSError, ValueError) as error:
            return Part(asked.request, problem=str(error))
        return Part(asked.request, data)

    def _place(self, asked: ReadPart) -> tuple[int, int, int]:
        """Return the descriptor, the size and the offset."""
        if not asked.file:
            return self._arena, asked.size, self._inside(asked.region, asked.offset, asked.size)
        if asked.file != self._file:
            self.close()
            self._descriptor = os.open(asked.file, os.O_RDONLY | os.O_CLOEXEC)
            self._file = asked.file
        return self._descriptor, asked.size, asked.offset

    def _write(self, asked: WritePart) -> None:
        data = memoryview(bytearray(asked.passed) if asked.passed else asked.data)
        at = self._inside(asked.region, asked.offset, len(data))
        if asked.passed:
            passed_files.take(self._files, asked.request, data)
        while data:
            written = os.pwrite(self._arena, data, at)
            at, data = at + written, data[written:]

    def _inside(self, region: int, offset: int, size: int) -> int:
        """Return the offset in the memory file."""
        if not 0 <= offset <= self.layout.length - size:
            raise ValueError(f"{size} bytes at {offset} do not lie in a region")
        return self.layout.start(region) + offset

    def close(self) -> None:
        """Close the spill file."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._file, self._descriptor = "", -1

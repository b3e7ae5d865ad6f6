"""The pages behind a range of this process's memory, held as a driver holds what it has pinned: by the pages.

They lie in pipes (`vmsplice`). When the file behind the mapping gets other pages there, these stay as they were: a
device that reads here gets old bytes, and what it writes here nobody sees.
"""

import ctypes
import fcntl
import mmap
import os
from contextlib import closing
from typing import Any

PAGE = mmap.PAGESIZE
PIPE_PAGES = 256
"""In one pipe, as many as the system's default limit allows."""
_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Pipe:
    def __init__(self, pages: int) -> None:
        self.ends = os.pipe()
        fcntl.fcntl(self.ends[1], fcntl.F_SETPIPE_SZ, pages * PAGE)

    def close(self) -> None:
        for end in self.ends:
            os.close(end)


def _checked(moved: int, wanted: int) -> None:
    if moved != wanted:
        raise OSError(ctypes.get_errno(), f"{moved} of {wanted} bytes: {os.strerror(ctypes.get_errno())}")


class Held:
    """Whole pages from an address on."""

    def __init__(self, address: int, size: int) -> None:
        assert address % PAGE == size % PAGE == 0
        self.address, self.size = address, size
        self._pipes: list[Pipe] = []
        for at in range(0, size, PIPE_PAGES * PAGE):
            length = min(PIPE_PAGES * PAGE, size - at)
            pipe = Pipe(length // PAGE)
            self._pipes.append(pipe)
            vector = _Vector(address + at, length)
            _checked(_libc.vmsplice(pipe.ends[1], ctypes.byref(vector), 1, 0), length)

    def read(self, at: int, size: int) -> bytes:
        """What is in the pages."""
        first, last = at // (PIPE_PAGES * PAGE), (at + size - 1) // (PIPE_PAGES * PAGE)
        found = b"".join(self._all(pipe) for pipe in self._pipes[first : last + 1])
        begin = at - first * PIPE_PAGES * PAGE
        return found[begin : begin + size]

    def _all(self, pipe: Pipe) -> bytes:
        length = min(PIPE_PAGES * PAGE, self.size - self._pipes.index(pipe) * PIPE_PAGES * PAGE)
        with closing(Pipe(PIPE_PAGES)) as copy:
            _checked(_libc.tee(pipe.ends[0], copy.ends[1], length, 0), length)
            parts = []
            while length:
                parts.append(os.read(copy.ends[0], length))
                length -= len(parts[-1])
            return b"".join(parts)

    def write(self, at: int, data: Any) -> None:
        """Into the pages: into the memory at the address, where that still has the same pages."""
        data = memoryview(data).cast("B")
        before = bytes(self._mapped(at, len(data)))
        changed = before.translate(_OTHER)
        self._mapped(at, len(data))[:] = changed
        seen = self.read(at, len(data))
        for page in range(at // PAGE, -(-(at + len(data)) // PAGE)):
            low, high = max(0, page * PAGE - at), min(len(data), (page + 1) * PAGE - at)
            is_same = seen[low:high] == changed[low:high]
            self._mapped(at + low, high - low)[:] = data[low:high] if is_same else before[low:high]

    def _mapped(self, at: int, size: int) -> Any:
        return memoryview((ctypes.c_ubyte * size).from_address(self.address + at)).cast("B")

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


_OTHER = bytes(255 - number for number in range(256))

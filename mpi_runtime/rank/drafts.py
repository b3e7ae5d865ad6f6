"""The drafts of an agent's executors: one memory file without a name, with room for one after the other.

One file for all of them, so that an executor costs its agent no further descriptor. The format is in
`transport/draft.py`.
"""

from __future__ import annotations

import os
from fcntl import F_ADD_SEALS, F_SEAL_SHRINK, fcntl

from mpi_runtime.transport.draft import SIZE, WORD, left


class Drafts:
    """The file of one agent."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("mpi_runtime drafts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # An executor that shortened the file by mistake would kill others, which write beyond the new end.
        fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_SHRINK)
        self._count = 0
        self._free: list[int] = []

    def take(self) -> int:
        """An empty draft, for an executor that will be forked.

        Raises:
            OSError: the file cannot grow.
        """
        if not self._free:
            os.ftruncate(self.descriptor, (self._count + 1) * SIZE)
            self._free.append(self._count)
            self._count += 1
        os.pwrite(self.descriptor, bytes(WORD), self._free[-1] * SIZE)
        return self._free.pop()

    def left(self, draft: int, arrived: int) -> tuple[int, bytes] | None:
        """Return what a dead executor had sealed and not sent: see `transport/draft.py`."""
        return left(os.pread(self.descriptor, SIZE, draft * SIZE), arrived)

    def give_back(self, draft: int) -> None:
        """The executor's process is gone."""
        self._free.append(draft)

    def close(self) -> None:
        """No executor is left."""
        os.close(self.descriptor)

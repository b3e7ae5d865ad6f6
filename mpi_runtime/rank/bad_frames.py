"""Frames between ranks that cannot be read. They are counted, reported and dropped.

Only ranks send them, so such a frame is a bug of ours or of MPI. Its messages are missing, and the job may wait for
them for ever. The report says why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

TELL_S = 1.0
"""The least number of seconds between two lines."""


class BadFrames:
    """The frames that one rank could not read."""

    def __init__(self, rank: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """`rank`: of this process; `now_s`: the clock."""
        self._rank = rank
        self._now_s = now_s
        self.counts: Counter[int] = Counter()
        """Number of frames, by the rank that sent them."""
        self._untold = 0
        self._told_s = -TELL_S

    def dropped(self, source: int, error: Exception) -> None:
        """Count a dropped frame from this rank, and report it, at most once in `TELL_S`."""
        self.counts[source] += 1
        now = self._now_s()
        if now < self._told_s + TELL_S:
            self._untold += 1
            return
        others = f"; so were {self._untold} other(s) since the last such line" if self._untold else ""
        print(
            f"mpi_runtime: rank {self._rank}: a message from rank {source} cannot be read and is dropped{others}:",
            error,
            file=sys.stderr,
            flush=True,
        )
        self._told_s, self._untold = now, 0

"""Frames between ranks that cannot be read: counted, told about, and dropped.

Only ranks send them, so such a frame is a bug of ours or of MPI. What it was to bring is missing: the job may wait for
ever then, and these lines say why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

TELL_S = 1.0
"""How often a line is written."""


class BadFrames:
    """What one rank has heard that it could not read."""

    def __init__(self, rank: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """Of this rank, by this clock."""
        self._rank = rank
        self._now_s = now_s
        self.counts: Counter[int] = Counter()
        """By the rank that sent them."""
        self._untold = 0
        self._told_s = -TELL_S

    def dropped(self, source: int, error: Exception) -> None:
        """A frame from this rank was dropped: say so, unless that was said a moment ago."""
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

"""Counts, reports and drops frames between ranks that cannot be read.

Only ranks send them, so such a frame is a bug of ours or of MPI. The job may wait for its messages for ever, and the
report tells the user why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

REPORT_S = 1.0
"""The least number of seconds between two reports."""


class BadFrames:
    """The frames that one rank could not read."""

    def __init__(self, rank: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """`rank`: of this process; `now_s`: the clock."""
        self._rank = rank
        self._now_s = now_s
        self.counts: Counter[int] = Counter()
        """Number of frames, by the rank that sent them."""
        self._unreported = 0
        self._reported_s = -REPORT_S

    def dropped(self, source: int, error: Exception) -> None:
        """Count a dropped frame from this rank, and report it, at most once in `REPORT_S`."""
        self.counts[source] += 1
        now = self._now_s()
        if now < self._reported_s + REPORT_S:
            self._unreported += 1
            return
        others = f"; so were {self._unreported} other(s) since the last report" if self._unreported else ""
        print(
            f"mpi_runtime: rank {self._rank}: a message from rank {source} cannot be read and is dropped{others}:",
            error,
            file=sys.stderr,
            flush=True,
        )
        self._reported_s, self._unreported = now, 0

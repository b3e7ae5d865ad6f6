"""`TimeoutStopper`: the stopper with a clock."""

from __future__ import annotations

import time

from mpi_runtime.core import published
from mpi_runtime.tune.study.stoppers import TimeLimit


@published("mpi_runtime.tune")
class TimeoutStopper(TimeLimit):
    """Ends the experiment after a time, counted from its first trial."""

    _started_s: float | None = None

    def stop_all(self) -> bool:
        """Whether the time since the first call is over: for programs that ask outside of an experiment."""
        now = time.monotonic()
        if self._started_s is None:
            self._started_s = now
        return now - self._started_s >= self.timeout_s

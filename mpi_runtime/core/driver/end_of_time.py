"""The end of the job's time, asked for again while the job runs: somebody may have extended or shortened it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from mpi_runtime.core.rank.joining import end_us
from mpi_runtime.errors import HeadDiedError
from mpi_runtime.scheduler.protocol.events import EndMoved
from mpi_runtime.slurm import end_of_time
from mpi_runtime.slurm.walltime import allocation, asked_again

ASK_S, ASK_MAX_S = 60.0, 600.0
"""Seconds between questions: a quarter of what is left, within these bounds. Many jobs ask one server."""
CHANGE_S = 2.0
"""Ends that differ by less are the same: what is left is stated in whole seconds."""


class EndWatch:
    """Asks the batch system for the end of the job's time, in a thread, and has the scheduler know it."""

    def __init__(self, post: Callable[[EndMoved], None], spare_s: float) -> None:
        """Begin; `post` sends an event, `spare_s` is how long before its time the job ends."""
        self._post, self._spare_s = post, spare_s
        self._over = threading.Event()
        if end_of_time.question(allocation()) is not None:
            threading.Thread(target=self._work, name="mpi_runtime end of time", daemon=True).start()

    def end(self) -> None:
        """Ask no more. A question that waits for its answer ends by itself."""
        self._over.set()

    def _work(self) -> None:
        known_s = allocation().end_s
        while not self._over.wait(_pause_s(known_s)):
            found_s = asked_again(known_s)
            if found_s is None or (known_s is not None and abs(found_s - known_s) < CHANGE_S):
                continue
            known_s = found_s
            with contextlib.suppress(HeadDiedError, OSError):  # the job has ended meanwhile
                self._post(EndMoved(end_us(found_s, self._spare_s)))


def _pause_s(end_s: float | None) -> float:
    left_s = end_s - time.time() if end_s is not None else 0.0
    return min(ASK_MAX_S, max(ASK_S, left_s / 4))

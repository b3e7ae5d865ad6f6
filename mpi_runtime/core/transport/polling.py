"""Whether to poll for a moment before going to sleep. That is faster if the last wait was short.

Waking a process takes 5 to 250 us, more if its CPU is in a deeper sleep state, and a call that somebody waits for wakes
four processes. The rule is that of Linux's haltpoll governor: after a short wait the next wait starts with polling,
after a long one it does not. Only head and driver poll, while a CPU is idle, and polling must pay for itself: see
docs/decisions/0304. On two cores, one call at a time: 500 calls/s without polling, 1 200 with it.
"""

import os
import time

from mpi_runtime.core.host.machine import cpus_allowed

LOOK_S = 300e-6
SHORT_S = 1.5e-3
FOUND_S = 100e-6
"""What a poll that finds something saves: about one wake-up."""
SLEPT_S = 10e-6
"""Credit for a short wait without polling: after a poll in vain, polling is tried again thirty such waits later."""
SAVED_MAX_S = 3 * LOOK_S


class Patience:
    """The state of one place that waits: whether its next wait starts with polling."""

    __slots__ = ("_began_s", "_looks", "_of_use", "_saved_s", "_until_s", "_was_short", "is_granted")

    def __init__(self) -> None:
        self.is_granted = False
        """Whether a CPU is idle."""
        self._of_use = len(cpus_allowed()) > 1
        """Whether the awaited process could run on another CPU meanwhile."""
        self._was_short = False
        self._saved_s = 0.0
        """What polling has saved, less what it has cost, in seconds."""
        self._looks = False
        self._began_s = 0.0
        self._until_s = 0.0

    def begin(self, timeout_s: float | None) -> bool:
        """Start a wait of at most this many seconds (None: no limit). Return whether to poll before sleeping."""
        self._looks = self.is_granted and self._of_use and self._was_short and self._saved_s >= 0
        if self.is_granted:
            self._began_s = time.monotonic()
            self._until_s = self._began_s + (LOOK_S if timeout_s is None or timeout_s > LOOK_S else timeout_s)
        return self._looks

    def look_again(self) -> bool:
        """Return whether to poll again after nothing was found. Yields the CPU to other processes first."""
        os.sched_yield()
        return time.monotonic() < self._until_s

    def end(self) -> None:
        """End the wait, and settle whether the next one starts with polling."""
        if not self.is_granted:
            return
        now_s = time.monotonic()
        self._was_short = now_s - self._began_s < SHORT_S
        if not self._looks:
            income_s = SLEPT_S if self._was_short else 0.0
        else:
            income_s = FOUND_S if now_s < self._until_s else -LOOK_S
        self._saved_s = min(self._saved_s + income_s, SAVED_MAX_S)

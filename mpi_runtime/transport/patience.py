"""Whether to poll for a moment before going to sleep. That is faster if the last wait was short.

Waking a process takes 5 to 250 us, more if its CPU is in a deeper sleep state, and a call that somebody waits for wakes
four processes. The rule is that of Linux's haltpoll governor: after a short wait the next wait starts with polling,
after a long one it does not. Polling is limited to idle CPUs: the head polls while its node has a free CPU, the driver
while it waits for the call that it submitted last. On two cores, one call at a time: 500 calls/s without polling, 1 200
with it.
"""

import os
import time

from mpi_runtime.host.machine import cpus_allowed

LOOK_S = 300e-6
SHORT_S = 1.5e-3


class Patience:
    """The state of one place that waits: whether its next wait starts with polling."""

    __slots__ = ("_began_s", "_look_s", "_of_use", "_until_s", "is_granted")

    def __init__(self) -> None:
        self.is_granted = False
        """Whether a CPU is idle."""
        self._of_use = len(cpus_allowed()) > 1
        """Whether the awaited process could run on another CPU meanwhile."""
        self._look_s = 0.0
        self._began_s = 0.0
        self._until_s = 0.0

    def begin(self, timeout_s: float | None) -> bool:
        """Start a wait of at most this many seconds (None: no limit). Return whether to poll before sleeping."""
        if not (self.is_granted and self._of_use):
            return False
        self._began_s = time.monotonic()
        look_s = self._look_s
        self._until_s = self._began_s + (look_s if timeout_s is None or timeout_s > look_s else timeout_s)
        return look_s > 0

    def look_again(self) -> bool:
        """Return whether to poll again after nothing was found. Yields the CPU to other processes first."""
        os.sched_yield()
        return time.monotonic() < self._until_s

    def end(self) -> None:
        """End the wait, and decide whether the next one starts with polling."""
        if self.is_granted:
            self._look_s = LOOK_S if time.monotonic() - self._began_s < SHORT_S else 0.0

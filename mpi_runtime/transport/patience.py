"""Whether to look again and again for a moment before sleeping: where the last wait was short, that is quicker.

Waking a process costs 5 to 250 us, the more the deeper its processor sleeps, and a call that is waited for wakes four.
The rule is that of Linux's haltpoll governor: after a short wait the next one begins with looking, after a long
one it does not. Only where a processor is idle anyway: the head looks while its node has a CPU to spare, the driver
while it waits for the call that it has submitted last. Two cores, one call at a time: 500 calls/s asleep, 1 200 so.
"""

import os
import time

from mpi_runtime.host.machine import cpus_allowed

LOOK_S = 300e-6
SHORT_S = 1.5e-3


class Patience:
    """What one waiting place has learnt."""

    __slots__ = ("_began_s", "_look_s", "_of_use", "_until_s", "is_granted")

    def __init__(self) -> None:
        self.is_granted = False
        """Whether a processor is idle anyway."""
        self._of_use = len(cpus_allowed()) > 1
        """Whether what is waited for could run meanwhile."""
        self._look_s = 0.0
        self._began_s = 0.0
        self._until_s = 0.0

    def begin(self, timeout_s: float | None) -> bool:
        """A wait of at most this time begins; whether to look before sleeping."""
        if not (self.is_granted and self._of_use):
            return False
        self._began_s = time.monotonic()
        look_s = self._look_s
        self._until_s = self._began_s + (look_s if timeout_s is None or timeout_s > look_s else timeout_s)
        return look_s > 0

    def look_again(self) -> bool:
        """Nothing was there; whether to look again. Lets others run in between."""
        os.sched_yield()
        return time.monotonic() < self._until_s

    def end(self) -> None:
        """The wait is over."""
        if self.is_granted:
            self._look_s = LOOK_S if time.monotonic() - self._began_s < SHORT_S else 0.0

"""Whether to look again and again for a moment before sleeping: where the last wait was short, that is quicker.

Waking a process costs 5 to 250 us, the more the deeper its processor sleeps, and a call that is waited for wakes four.
The rule is that of Linux's haltpoll governor: after a short wait the next one begins with looking, after a long
one it does not. Only where a processor is idle anyway: the head looks while its node has a CPU to spare, the driver
while it waits for the call that it has submitted last. Two cores, one call at a time: 500 calls/s asleep, 1 200 so.

Looking has to pay for itself: what is found is income, a look in vain an expense, and who has nothing left sleeps. So
it ends where others have work for the processor, and where values are copied meanwhile, whatever the scheduler thinks.
"""

import os
import time

from mpi_runtime.host.machine import cpus_allowed

LOOK_S = 300e-6
SHORT_S = 1.5e-3
FOUND_S = 100e-6
"""What a look is worth that was not in vain: about one waking."""
SLEPT_S = 10e-6
"""What a short wait brings in that was slept through: after a look in vain one tries again thirty waits later."""
SAVED_MAX_S = 3 * LOOK_S


class Patience:
    """What one waiting place has learnt."""

    __slots__ = ("_began_s", "_looks", "_of_use", "_saved_s", "_until_s", "_was_short", "is_granted")

    def __init__(self) -> None:
        self.is_granted = False
        """Whether a processor is idle anyway."""
        self._of_use = len(cpus_allowed()) > 1
        """Whether what is waited for could run meanwhile."""
        self._was_short = False
        self._saved_s = 0.0
        """What looking has brought in, less what it has cost."""
        self._looks = False
        self._began_s = 0.0
        self._until_s = 0.0

    def begin(self, timeout_s: float | None) -> bool:
        """A wait of at most this time begins; whether to look before sleeping."""
        self._looks = self.is_granted and self._of_use and self._was_short and self._saved_s >= 0
        if self.is_granted:
            self._began_s = time.monotonic()
            self._until_s = self._began_s + (LOOK_S if timeout_s is None or timeout_s > LOOK_S else timeout_s)
        return self._looks

    def look_again(self) -> bool:
        """Nothing was there; whether to look again. Lets others run in between."""
        os.sched_yield()
        return time.monotonic() < self._until_s

    def end(self) -> None:
        """The wait is over."""
        if not self.is_granted:
            return
        now_s = time.monotonic()
        self._was_short = now_s - self._began_s < SHORT_S
        if not self._looks:
            income_s = SLEPT_S if self._was_short else 0.0
        else:
            income_s = FOUND_S if now_s < self._until_s else -LOOK_S
        self._saved_s = min(self._saved_s + income_s, SAVED_MAX_S)

"""Whether another job still writes: measured in looks that succeeded quickly, not in seconds.

If the file system or the observer stalls, every job seems to stand still. So a failed or slow look starts the count
from zero, and clocks of hosts are not compared.
"""

from __future__ import annotations

QUICK_S = 5.0
"""A look later than this after the one before does not count."""
LOOKS = 10
"""How many looks in a row must find a job unchanged."""


class Watch:
    """One job as another sees it."""

    def __init__(self, looks: int = 0) -> None:
        self.looks_max = looks or LOOKS
        self.unchanged = 0
        """How many looks in a row found it unchanged."""
        self._beat: object = None
        self._looked_s: float | None = None

    def look(self, beat: object, now_s: float) -> bool:
        """Note the beat that was read, and return whether the job counts as lost; `now_s`: after the look."""
        is_quick = self._looked_s is not None and now_s - self._looked_s <= QUICK_S
        self._looked_s = now_s
        if beat != self._beat or not is_quick:
            self._beat = beat
            self.unchanged = 0
        else:
            self.unchanged += 1
        return self.unchanged >= self.looks_max

    def failed(self) -> None:
        """A look has failed, or the observer itself stood still."""
        self._looked_s = None
        self.unchanged = 0

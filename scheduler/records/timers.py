"""Alarms: when to look at a subject again. One for each subject; the earliest is found in constant time."""

from __future__ import annotations

from heapq import heappop, heappush


class Alarms:
    """Subjects with the times of their alarms."""

    def __init__(self) -> None:
        self._at: dict[object, int] = {}
        self._heap: list[tuple[int, int, object]] = []
        self._count = 0

    def set(self, subject: object, at_us: int) -> None:
        """Set the alarm of a subject, unless it has an earlier one."""
        known = self._at.get(subject)
        if known is not None and known <= at_us:
            return
        self._at[subject] = at_us
        self._count += 1
        heappush(self._heap, (at_us, self._count, subject))

    def at(self, subject: object) -> int | None:
        """The time of the subject's alarm; None: it has none."""
        return self._at.get(subject)

    def __contains__(self, subject: object) -> bool:
        return subject in self._at

    def due(self, now: int) -> list[object]:
        """Remove and return the subjects whose alarms are due, earliest first."""
        subjects = []
        while self._heap and self._heap[0][0] <= now:
            at_us, _, subject = heappop(self._heap)
            if self._at.get(subject) == at_us:
                del self._at[subject]
                subjects.append(subject)
        return subjects

    def next_us(self) -> int | None:
        """The time of the earliest alarm."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

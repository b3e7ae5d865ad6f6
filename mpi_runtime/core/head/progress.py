"""The progress line of `init(progress=True)`: ended calls, rate and the rest, below the output on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mpi_runtime.show.estimates import estimate
from mpi_runtime.show.numbers import bar, count, seconds, three

PAUSE_S = 0.5
AFTER_S = 2.0
"""Work that is done sooner has no line."""
SPAN_S = 60.0
"""The time over which the rate is measured."""
WIDTH = 24

Counts = tuple[int, int, int]
"""Calls that were submitted, have returned, and have failed."""


class Progress:
    """Watches the counts, and shows a line while calls are open."""

    def __init__(self, counts: Callable[[], Counts], show: Callable[[str], None]) -> None:
        """`show` replaces the line; an empty text removes it."""
        self._counts = counts
        self._show = show
        self._samples: deque[tuple[float, float]] = deque()
        """Times and ended calls, since calls are open."""
        self._base: Counts = (0, 0, 0)
        """The counts when the present work began."""
        self._next_s = 0.0
        self._is_shown = False

    def turn(self, now_s: float) -> float:
        """Update the line if it is time. Return the seconds until the next update."""
        if now_s < self._next_s:
            return self._next_s - now_s
        self._next_s = now_s + PAUSE_S
        submitted, done, failed = counts = self._counts()
        ended = done + failed
        if ended >= submitted:
            self._samples.clear()
            self._base = counts
            if self._is_shown:
                self._is_shown = False
                self._show("")
            return PAUSE_S
        self._samples.append((now_s, float(ended)))
        while self._samples[0][0] < now_s - SPAN_S:
            self._samples.popleft()
        if self._is_shown or now_s - self._samples[0][0] >= AFTER_S:
            self._is_shown = True
            self._show(self._text(counts))
        return PAUSE_S

    def _text(self, counts: Counts) -> str:
        submitted, done, failed = (now - before for now, before in zip(counts, self._base, strict=True))
        parts = [f"[{bar(done, failed, 0, submitted, WIDTH)}] {count(done + failed)} of {count(submitted)} calls ended"]
        parts += [f"{count(failed)} failed"] if failed else []
        found = estimate(self._samples, submitted - done - failed)
        if found is not None:
            left_s = found.end_s - self._samples[-1][0]
            parts += [f"{three(found.rate)} a second", f"about {seconds(left_s)} left"]
        return ", ".join(parts)

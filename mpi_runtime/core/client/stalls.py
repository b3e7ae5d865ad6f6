"""Log lines of a driver that waits without progress: after a minute, and then after twice as long each time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from mpi_runtime.core.client.connection import Line
from mpi_runtime.core.client.incoming import Arrivals
from mpi_runtime.core.client.questions import Questions
from mpi_runtime.scheduler.protocol.questions import Explain, Statistics
from mpi_runtime.show import bars, log

NAME_LIMIT_S = 0.2
"""The most seconds that an error about a timeout waits for the name of a function."""


class Stalls:
    """Waits of one client, with log lines."""

    def __init__(self, line: Line, arrivals: Arrivals, questions: Questions, log_after_s: float) -> None:
        """`log_after_s`: seconds without progress until a line is logged; 0: none is, as in an executor."""
        self._line = line
        self._arrivals = arrivals
        self._questions = questions
        self._log_after_s = log_after_s
        self.bar: bars.Bar | None = None
        """Shown meanwhile in a notebook."""

    def wait(
        self,
        complete: Callable[[], bool],
        timeout_s: float | None,
        ids: list[bytes],
        missing: Callable[[], list[bytes]],
    ) -> bool:
        """Wait like `Line.wait_until`. In a driver, log the `missing` objects when no message has arrived for long."""
        after_s, arrivals = self._log_after_s, self._arrivals
        if not after_s:
            return self._until(complete, timeout_s, ids)
        began_s = progress_s = time.monotonic()
        deadline_s = math.inf if timeout_s is None else began_s + timeout_s
        pause_s, taken = after_s, arrivals.taken
        while True:
            next_s = min(deadline_s, progress_s + pause_s)
            if self._until(complete, max(0.0, next_s - time.monotonic()), ids):
                return True
            now_s = time.monotonic()
            if now_s >= deadline_s:
                return False
            if arrivals.taken != taken:
                progress_s, pause_s = now_s, after_s
            elif now_s >= next_s:
                text = self._in_words(now_s - began_s, missing())
                if complete():  # the value arrived together with the answer
                    return True
                log.say(log.line(log.INFO, log.WAITING, text), quiet=False)
                progress_s, pause_s = now_s, 2 * pause_s
            taken = arrivals.taken

    def _until(self, complete: Callable[[], bool], timeout_s: float | None, ids: list[bytes]) -> bool:
        """Wait like `Line.wait_until`, and keep the bar up to date."""
        if self.bar is None:
            return self._line.wait_until(complete, timeout_s, ids)
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._line.wait_until(complete, min(bars.PAUSE_S, max(0.0, end_s - time.monotonic())), ids):
            self.bar.turn()
            if time.monotonic() >= end_s:
                return False
        self.bar.turn()
        return True

    def name(self, missing: bytes) -> str:
        """Return the function that makes an object, or its id: there may be no such function, or no time to ask."""
        found = self._questions.ask_for(Explain(missing), NAME_LIMIT_S)
        return (found.name if found is not None else "") or f"object {missing.hex()}"

    def _in_words(self, waited_s: float, missing: list[bytes]) -> str:
        found = self._questions.ask(Explain(missing[0]))
        counts = self._questions.ask(Statistics())
        name = found.name or f"object {missing[0].hex()}"
        calls = f"{counts.finished + counts.failed} calls"
        more = f" and {len(missing) - 1} other values" if len(missing) > 1 else ""
        about = f" {name}:" if more else ""
        return f"waiting for {name}{more} for {waited_s:.0f} s.{about} {found.why} Ended so far: {calls}."

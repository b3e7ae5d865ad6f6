"""Log lines of a driver that waits without progress: after a minute, and then after twice as long each time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from mpi_runtime.client.arrivals import Arrivals
from mpi_runtime.client.line import Line
from mpi_runtime.client.questions import Questions
from mpi_runtime.show import log


class Says(NamedTuple):
    """When the driver logs what it waits for."""

    after_s: float
    """Seconds without progress; 0: never."""
    quiet: bool


class Stalls:
    """Waits of one client, with log lines."""

    def __init__(self, line: Line, arrivals: Arrivals, questions: Questions, says: Says | None) -> None:
        """`says`: None in an executor, which logs nothing."""
        self._line = line
        self._arrivals = arrivals
        self._questions = questions
        self._says = says

    def wait(
        self,
        complete: Callable[[], bool],
        timeout_s: float | None,
        ids: list[bytes],
        missing: Callable[[], list[bytes]],
    ) -> bool:
        """Wait like `Line.wait_until`. In a driver, log what is `missing` when no message has arrived for long."""
        says, line, arrivals = self._says, self._line, self._arrivals
        if says is None or not says.after_s or says.quiet:
            return line.wait_until(complete, timeout_s, ids)
        began_s = heard_s = time.monotonic()
        deadline_s = math.inf if timeout_s is None else began_s + timeout_s
        pause_s, taken = says.after_s, arrivals.taken
        while True:
            next_s = min(deadline_s, heard_s + pause_s)
            if line.wait_until(complete, max(0.0, next_s - time.monotonic()), ids):
                return True
            now_s = time.monotonic()
            if now_s >= deadline_s:
                return False
            if arrivals.taken != taken:
                heard_s, pause_s = now_s, says.after_s
            elif now_s >= next_s:
                text = self._in_words(now_s - began_s, missing())
                if complete():  # the value arrived together with the answer
                    return True
                log.say(log.line(log.INFO, log.WAITING, text), says.quiet)
                heard_s, pause_s = now_s, 2 * pause_s
            taken = arrivals.taken

    def _in_words(self, waited_s: float, missing: list[bytes]) -> str:
        found: dict[str, str] = self._questions.query("explain", missing[0])
        counts: dict[str, int] = self._questions.query("statistics")
        name = found.get("name", f"object {missing[0].hex()}")
        calls = f"{counts['finished'] + counts['failed']} calls"
        more = f" and {len(missing) - 1} other values" if len(missing) > 1 else ""
        whose = f" Of {name}:" if more else ""
        return f"waiting for {name}{more} for {waited_s:.0f} s.{whose} {found['why']} Ended so far: {calls}."

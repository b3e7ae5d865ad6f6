"""Stacks of executors on all hosts, for those who look at the job through its window.

A question has the agent of the executor run py-spy. The head does not wait: who asks gets an empty answer, asks again,
and gets the stacks once they have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mpi_runtime.core.transport.messages import StackRead, StackWanted

KEPT = 64
FRESH_S = 5.0
"""An older answer is read again."""
AGAIN_S = 30.0
"""An agent that has not answered is asked again after this time: its helper ends before."""


class Stacks:
    """The stacks that were asked for."""

    def __init__(self, hostnames: Sequence[str], send: Callable[[int, StackWanted], None]) -> None:
        """Ask ranks by `send`. `hostnames`: for each rank."""
        self._hostnames = hostnames
        self._send = send
        self._found: dict[tuple[str, int], tuple[float, str]] = {}
        """By host and process id: the time at which it was asked for or has arrived, and the stacks."""

    def take(self, answer: StackRead) -> None:
        """Keep stacks until the visitor asks again."""
        self._found[self._hostnames[answer.rank], answer.pid] = time.monotonic(), answer.text

    def answer(self, host: str, pid: int, ranks: Sequence[int]) -> str:
        """Return the stacks of a process on a host; empty: not yet. `ranks`: those that live.

        Raises:
            LookupError: the job has no rank there.
        """
        there = [rank for rank in ranks if self._hostnames[rank] == host]
        if not there:
            raise LookupError(f"no rank of the job runs on {host!r}")
        now_s = time.monotonic()
        when_s, text = self._found.pop((host, pid), (-AGAIN_S, ""))
        if now_s - when_s < (FRESH_S if text else AGAIN_S):
            self._found[host, pid] = when_s, text
            return text
        while len(self._found) >= KEPT:
            del self._found[next(iter(self._found))]
        self._found[host, pid] = now_s, ""
        for rank in there:
            self._send(rank, StackWanted(pid))
        return ""

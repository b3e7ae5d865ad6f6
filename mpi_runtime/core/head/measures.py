"""What is used on each host, for those who look at the job through its window.

Nothing is measured while nobody looks. A question of a visitor has the ranks measure, at most every `PERIOD_S` and at
most `ANSWERS_PER_S` of them in a second, and gets what they have answered before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from mpi_runtime.core.transport.messages import Measure, Measured
from mpi_runtime.scheduler.protocol.entries import HostUse
from mpi_runtime.scheduler.protocol.window_questions import HostsUse, ProcessSize

PERIOD_S = 3.0
ANSWERS_PER_S = 200
"""Each takes the head some 20 microseconds."""
NODES_MAX = 256
SIZES_MAX = 2000
NODES_BYTES_MAX, SIZES_BYTES_MAX = 140_000, 50_000
"""An answer has to fit the buffer of a Unix socket."""
T = TypeVar("T")


class Measures:
    """The last answers of the ranks of a job."""

    def __init__(self, hosts: Sequence[int], hostnames: Sequence[str], send: Callable[[int, Measure], None]) -> None:
        """Ask ranks by `send`. `hosts`: for each rank the number of its host."""
        self._hosts, self._hostnames = hosts, hostnames
        self._send = send
        self._period_s = max(PERIOD_S, len(hosts) / ANSWERS_PER_S)
        self._next_s = 0.0
        self._answers: dict[int, tuple[float, Measured]] = {}
        """By rank."""

    def take(self, answer: Measured) -> None:
        """Keep what a rank has measured, in place of its last answer."""
        self._answers[answer.rank] = time.monotonic(), answer

    def answer(self, ranks: Sequence[int]) -> HostsUse:
        """Return the last measures of these ranks, which live, and have them measure again if it is time."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + self._period_s
            last = {self._hosts[rank]: rank for rank in ranks}  # rank 0 has no GPUs if others share its host
            for rank in ranks:
                self._send(rank, Measure(last[self._hosts[rank]] == rank))
        nodes: dict[str, HostUse] = {}
        sizes: list[ProcessSize] = []
        for rank in ranks:
            when_s, found = self._answers.get(rank, (0.0, None))
            if found is None or now_s - when_s > 3 * self._period_s:
                continue
            name = self._hostnames[rank]
            if found.host is not None and len(nodes) < NODES_MAX:
                nodes[name] = found.host
            sizes += [ProcessSize(name, pid, size) for pid, size in found.sizes][: SIZES_MAX - len(sizes)]
        shown = dict(first_that_fit(list(nodes.items()), NODES_BYTES_MAX))
        return HostsUse(self._period_s, shown, first_that_fit(sizes, SIZES_BYTES_MAX))


def first_that_fit(entries: list[T], bytes_max: int) -> list[T]:
    """Return the first entries: all, or half of them, and so on, until they fit."""
    while len(msgspec.msgpack.encode(entries)) > bytes_max:
        entries = entries[: len(entries) // 2]
    return entries

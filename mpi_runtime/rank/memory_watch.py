"""Watches the memory of a rank's host while calls run: says when it is nearly used up, and who was killed for that."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from mpi_runtime.host.memory_usage import Memory
from mpi_runtime.rank.custody import Custody
from mpi_runtime.scheduler.rank_events import MemoryReported

PERIOD_S = 0.25
"""How often it is looked: a process that fills a gigabyte each second takes a quarter of one meanwhile."""


class Watched(Protocol):
    """An executor as its agent has it."""

    number: int
    pid: int
    custody: Custody


class MemoryWatch:
    """The memory of this rank's host."""

    def __init__(
        self,
        rank: int,
        memory: Memory,
        threshold: float,
        now_s: Callable[[], float],
        report: Callable[[MemoryReported], None],
    ) -> None:
        """Report to the head from this share of the memory on; 0: never."""
        self._rank = rank
        self._memory = memory
        self._threshold = threshold
        self._now_s = now_s
        self._report = report
        self._next_s = 0.0
        self._is_tight = False
        self._kills = self._kills_before = memory.kills()
        """How many processes the kernel had killed at the last look and the one before."""

    def turn(self, executors: Collection[Watched]) -> float | None:
        """Look if it is time and calls run; how soon to look again, in seconds."""
        now = self._now_s()
        if now < self._next_s:
            return self._next_s - now
        if not self._is_tight and not any(executor.custody.ids for executor in executors):
            return None
        self._next_s = now + PERIOD_S
        self._kills_before, self._kills = self._kills, self._memory.kills()
        if self._threshold:
            self._look(executors)
        return PERIOD_S

    def _look(self, executors: Collection[Watched]) -> None:
        memory = self._memory
        use = memory.fullest(executor.pid for executor in executors if executor.pid)
        was_tight, self._is_tight = self._is_tight, use.share >= self._threshold
        if self._is_tight:
            sizes = [(one.number, memory.private_of(one.pid)) for one in executors if one.pid]
            self._report(MemoryReported(self._rank, True, *use, self._threshold, sizes, list(memory.largest())))
        elif was_tight:
            self._report(MemoryReported(self._rank, False, *use))

    def has_killed(self) -> str:
        """Whether the kernel has just killed a process for memory: says of which limit; else nothing."""
        if self._memory.kills() <= self._kills_before:
            return ""
        use = self._memory.least()
        return f"by the kernel, since the memory was used up: the limit is {use.limit >> 20} MiB ({use.where})"

"""Watches the memory of a rank's host while calls run: reports a nearly full host, and kernel kills."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mpi_runtime.core.agent.executors import LocalExecutor
from mpi_runtime.core.host.memory_usage import Memory
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported

PERIOD_S = 0.25
"""Seconds between two looks. A process that takes a gigabyte per second takes a quarter of one in this time."""


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
        """Watch the memory of this host. `threshold`: the share of it from which on reports are sent; 0: never."""
        self._rank = rank
        self._memory = memory
        self._threshold = threshold
        self._now_s = now_s
        self._report = report
        self._next_s = 0.0
        self._is_tight = False
        self._kills = self._kills_before = memory.kills()
        """Number of processes that the kernel had killed at the last look, and at the one before."""

    def turn(self, executors: Collection[LocalExecutor]) -> float | None:
        """Look at the memory, if it is time. Return the seconds until the next look; None: no call runs."""
        now = self._now_s()
        if now < self._next_s:
            return self._next_s - now
        if not self._is_tight and not any(executor.may_run_calls for executor in executors):
            return None
        self._next_s = now + PERIOD_S
        self._kills_before, self._kills = self._kills, self._memory.kills()
        if self._threshold:
            self._look(executors)
        return PERIOD_S

    def _look(self, executors: Collection[LocalExecutor]) -> None:
        memory = self._memory
        pids = [executor.pid for executor in executors if executor.pid]
        use = memory.fullest(pids)
        was_tight, self._is_tight = self._is_tight, use.share >= self._threshold
        if self._is_tight:
            sizes = [(one.number, memory.private_of_tree(one.pid)) for one in executors if one.pid]
            largest = list(memory.largest(use, pids))
            self._report(MemoryReported(self._rank, True, *use, self._threshold, sizes, largest))
        elif was_tight:
            self._report(MemoryReported(self._rank, False, *use))

    def has_killed(self) -> str:
        """Return the cause of a death and the limit, if the kernel has just killed a process for memory; else empty."""
        if self._memory.kills() <= self._kills_before:
            return ""
        use = self._memory.least()
        return f"by the kernel, since the memory was used up: the limit is {use.limit >> 20} MiB ({use.where})"

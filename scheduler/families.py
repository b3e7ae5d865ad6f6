"""Families: queues that differ only in how long their calls may take.

Calls with different time limits are in different queues, and there may be thousands of those. Where one call finds no
room, no longer call of the same request finds any: a reservation only lets shorter calls past. So a decision tries the
first queue of each family, and then only those whose calls are short enough for what is left.
A family claims what one queue would: one source is kept for its first call, not one for each time limit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from msgspec import field

from mpi_runtime.scheduler.resources import Pool, Request, fits, without_devices
from mpi_runtime.scheduler.sources import NOTHING, Claimant

if TYPE_CHECKING:
    from mpi_runtime.scheduler.events import Where
    from mpi_runtime.scheduler.records import Queue


class Family(Claimant, kw_only=True, eq=False, gc=False):
    """Queues of one request, place, depth, priority and account. Those that wait are listed here."""

    request: Request
    where: Where | None
    group: bytes
    """The placement group of its calls; empty: none."""
    has_limits: bool
    """Whether its queues are of functions with a time limit. Else it is a family of one queue."""
    by_order: list[Queue] = field(default_factory=list)
    """The waiting queues, in order of their first calls."""
    by_length: list[Queue] = field(default_factory=list)
    """With limits: the waiting queues, those with the shortest calls first."""

    def add(self, queue: Queue) -> None:
        """The queue waits, or begins with another call than before."""
        order = queue.ready[0].order
        if queue.waits_at == order:
            return
        if self.has_limits:
            self.remove(queue)
            queue.waits_at = order
            insort(self.by_order, queue, key=_order)
            insort(self.by_length, queue, key=_length)
        else:
            self.by_order[:] = [queue]
            queue.waits_at = order

    def remove(self, queue: Queue) -> None:
        """The queue does not wait."""
        if queue.waits_at < 0:
            return
        if not self.has_limits:
            self.by_order.clear()
        else:
            del self.by_order[_place(self.by_order, queue, bisect_left(self.by_order, queue.waits_at, key=_order))]
            del self.by_length[_place(self.by_length, queue, bisect_left(self.by_length, _length(queue), key=_length))]
        queue.waits_at = -1

    def first(self) -> Queue | None:
        """The waiting queue with the first call."""
        if self.by_order and self.by_order[0].ready:  # most often so
            return self.by_order[0]
        return next((queue for queue in self.by_order if queue.ready), None)

    def position(self) -> int:
        """The position of its first waiting call."""
        first = self.first()
        return first.ready[0].order if first is not None else NOTHING

    def spares(self, request: Request, free: Pool) -> bool:
        """Whether others may take this: the family waits for GPUs, and there is enough of the rest for both."""
        return (
            self.request.needs_device
            and not request.needs_device
            and fits(without_devices(self.request, request), free)
        )

    def after(self, order: int, longest_us: int) -> Queue | None:
        """The first waiting queue behind a position whose calls take at most this long; of families with limits."""
        short = bisect_right(self.by_length, (longest_us, NOTHING), key=_length)
        if short * short <= len(self.by_length):  # else one of them is met sooner in the order of calls
            behind = (queue for queue in self.by_length[:short] if queue.waits_at > order)
            return min(behind, key=_order, default=None)
        for place in range(bisect_right(self.by_order, order, key=_order), len(self.by_order)):
            queue = self.by_order[place]
            if queue.takes_us <= longest_us:
                return queue
        return None


def _order(queue: Queue) -> int:
    return queue.waits_at


def _length(queue: Queue) -> tuple[int, int]:
    return queue.takes_us, queue.waits_at


def _place(queues: list[Queue], queue: Queue, place: int) -> int:
    while queues[place] is not queue:
        place += 1
    return place

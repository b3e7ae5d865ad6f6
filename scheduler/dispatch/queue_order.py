"""The order in which one decision serves queues."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from mpi_runtime.scheduler.places.constraints import longest_us
from mpi_runtime.scheduler.records.records import Family, Queue
from mpi_runtime.scheduler.records.state import State


class Turns:
    """The queues that one decision serves, by precedence."""

    def __init__(self, queues: list[Queue]) -> None:
        self._heap = [(queue.precedence(), number, queue) for number, queue in enumerate(queues)]
        heapify(self._heap)
        self._count = len(queues)
        self._here = set(queues)
        self._tried: dict[Family, tuple[Queue, int]] = {}
        """For each family that is tried in order: the queue that is tried now, and its position then."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __iter__(self) -> Iterator[Queue]:
        return (queue for _, _, queue in self._heap)

    def pop(self) -> Queue:
        """Take out the queue that goes first."""
        queue = heappop(self._heap)[2]
        self._here.discard(queue)
        return queue

    def push(self, queue: Queue) -> None:
        """Let one more queue be served."""
        if queue not in self._here:
            self._here.add(queue)
            self._count += 1
            heappush(self._heap, (queue.precedence(), self._count, queue))

    def grown(self, queue: Queue) -> None:
        """Sort the queues again, with this one: it got an executor, which changes the share of its account."""
        self.push(queue)
        self._try(queue.family, queue.family.first())
        self._heap = [(queue.precedence(), number, queue) for _, number, queue in self._heap]
        heapify(self._heap)

    def begin(self, family: Family) -> None:
        """Try the waiting queues of a family, from the first on."""
        self._try(family, family.first())

    def served(self, state: State, queue: Queue) -> None:
        """Note that a queue has been served. If it was tried in the order of its family, the next one is tried."""
        family = queue.family
        if not family.has_limits:
            return
        head, order = self._tried.get(family, (None, -1))
        if head is not queue:
            return
        first = family.first()
        if first is None or (first is not queue and first.waits_at > order):
            self._try(family, first)  # in any case: a source may be reserved for it
        elif family.by_order[-1].waits_at > order:
            self._try(family, family.after(order, longest_us(state, queue)))

    def _try(self, family: Family, queue: Queue | None) -> None:
        if queue is None:
            self._tried.pop(family, None)
        else:
            self._tried[family] = (queue, queue.waits_at)
            self.push(queue)

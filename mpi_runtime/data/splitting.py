"""One stream for several readers: an actor runs it, and gives each block, or a part of one, to a reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.data.context import DataContext
from mpi_runtime.data.iterating import DataIterator, Tables
from mpi_runtime.data.plan import Operator
from mpi_runtime.data.streams.lost_blocks import fetched, replaced
from mpi_runtime.data.streams.records import Block
from mpi_runtime.data.streams.running import Running
from mpi_runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

if TYPE_CHECKING:
    import pyarrow

    from mpi_runtime import ActorHandle

Rows = tuple[Block, int, int]
"""Rows of a block: the block, the first row, the number of rows."""
Part = tuple[object, int, int]
"""The same for the reader, in another process: the block's reference."""
THREADS = 4
"""Threads of the actor beside those of the readers, so that calls of a dead reader leave room."""
ONE_READER = "Let one reader at a time iterate a part; streaming_split(n) has a part for each of n readers."
_STARTING = threading.Lock()


class Shares:
    """A data set that several readers share."""

    def __init__(self, operator: Operator, size: int, equal: bool, settings: DataContext) -> None:
        """Start nothing yet."""
        self.size = size
        self.settings = settings
        self.actor: ActorHandle | None = None
        """Runs the stream; None: it has not been started."""
        self._operator = operator
        self._equal = equal

    def start(self, name: str | None = None) -> ActorHandle:
        """Start an actor, perhaps one with a name, in place of an earlier one.

        It is on this host, since the readers' rows are lost with it, and so that a loss of another host spares it.
        """
        here = NodeAffinitySchedulingStrategy(mpi_runtime.get_runtime_context().get_node_id(), soft=True)
        options = {"num_cpus": 0, "max_concurrency": 2 * self.size + THREADS, "name": name, "scheduling_strategy": here}
        sharing = mpi_runtime.remote(Sharing).options(**options)
        self.actor = sharing.remote(self._operator, self._equal, self.settings)
        return self.actor

    def started(self) -> ActorHandle:
        """The actor of all readers, which may be threads of this process."""
        with _STARTING:
            return self.start() if self.actor is None else self.actor


class Sharing:
    """The actor. Each iteration of all readers is a run of the stream."""

    def __init__(self, operator: Operator, equal: bool, settings: DataContext) -> None:
        settings.enter()
        self._operator = operator
        self._equal = equal
        self._state = threading.Condition()
        self._waiting: dict[int, int] = {}
        """The readers that wait for the next run, and which of all questions is theirs."""
        self._number = 0
        self._run: Run | None = None
        self._asks = 0

    def begin(self, rank: int, size: int) -> int:
        """Wait until all readers have begun, and return the number of the run.

        Raises:
            ValueError: another reader has begun the same part meanwhile.
        """
        with self._state:
            self._asks += 1
            mine = self._asks
            waiting = self._waiting
            if rank in waiting:
                self._state.notify_all()  # its earlier question ends
            waiting[rank] = mine
            if len(waiting) == size:
                if self._run is not None:
                    self._run.close()
                self._number += 1
                self._run = Run(self._operator, size, self._equal)
                self._waiting = {}
                self._state.notify_all()
                return self._number
            before = self._number
            self._state.wait_for(lambda: waiting is not self._waiting or waiting.get(rank) != mine)
            if self._number > before and waiting.get(rank) == mine:
                return before + 1
            raise ValueError(f"part {rank} is read twice at a time: another reader has begun it. {ONE_READER}")

    def next(self, number: int, rank: int) -> Part | None:
        """The next rows of a reader; None: there are no more.

        Raises:
            ValueError: all have begun another run, so the rest of these rows is gone.
        """
        return self._run_of(number, rank).next(rank)

    def rebuild(self, number: int, rank: int, is_lost: bool) -> object | None:
        """The reference of the block that a reader has, if it is lost a new one; None: it cannot be rebuilt.

        `is_lost`: else it has not come for a while.

        Raises:
            ValueError: as of `next`.
        """
        return self._run_of(number, rank).rebuild(rank, is_lost)

    def _run_of(self, number: int, rank: int) -> Run:
        run = self._run
        if run is None or number != self._number:
            raise ValueError(
                f"part {rank} was not read to its end, and all parts have been begun again meanwhile. {ONE_READER}"
            )
        return run


class Run:
    """A run of the stream, which advances while a reader asks."""

    def __init__(self, operator: Operator, size: int, equal: bool) -> None:
        self._running = Running(operator, ordered=False)
        self._lock = threading.Lock()
        self._rebuilding = threading.Lock()
        """Rebuilds follow each other, so that what several of them need is rebuilt once."""
        self._equal = equal
        self._queues: list[deque[Rows]] = [deque() for _ in range(size)]
        self._given = [0] * size
        """The rows that each reader has, or has in its queue."""
        self._kept: deque[Rows] = deque()
        """Rows with which all get the same number at the end."""
        self._held: dict[int, Block] = {}
        """The block of which each reader has rows: it may have to be rebuilt until the reader asks again."""
        self._is_done = False

    def next(self, rank: int) -> Part | None:
        """The next rows of a reader; None: there are no more."""
        with self._lock:
            if (held := self._held.pop(rank, None)) is not None and not self._equal:
                self._running.release(held)
            while not self._queues[rank] and not self._is_done:
                block = self._running.next()
                if block is None:
                    self._is_done = True
                    self._level()
                elif self._equal:
                    # Such blocks no longer count: a reader that is ahead must not wait for one that is behind.
                    self._share((block, 0, block.rows))
                    self._running.stream.released(block)
                else:
                    self._queues[rank].append((block, 0, block.rows))
            if not self._queues[rank]:
                return None
            self._held[rank], start, rows = self._queues[rank].popleft()
            return self._held[rank].value, start, rows

    def rebuild(self, rank: int, is_lost: bool) -> object | None:
        """The reference of the block that a reader has, if it is lost a new one; None: it cannot be rebuilt."""
        block = self._held.get(rank)
        if block is None:
            return None
        with self._rebuilding:
            return replaced(block, self._makes_way, is_lost)

    def _makes_way(self) -> bool:
        """As `Running.makes_way`, unless another reader waits for a block: then the stream looks for itself."""
        if not self._lock.acquire(blocking=False):
            return self._running.has_lost_cpus()
        try:
            return self._running.makes_way()
        finally:
            self._lock.release()

    def _share(self, part: Rows) -> None:
        """Give rows to the reader with the fewest, as long as what is kept then makes all equal."""
        self._kept.append(part)
        while True:
            rank = min(range(len(self._given)), key=self._given.__getitem__)
            first = self._kept[0]
            rest = sum(rows for _, _, rows in self._kept) - first[2]
            given = [count + first[2] * (other == rank) for other, count in enumerate(self._given)]
            if sum(max(given) - count for count in given) > rest:
                return
            self._kept.popleft()
            self._give(rank, first)
            if not self._kept:
                return

    def _level(self) -> None:
        """All rows are there: fill up those with fewer."""
        if not self._equal:
            return
        total = sum(self._given) + sum(rows for _, _, rows in self._kept)
        target = total // len(self._given)
        for rank, count in enumerate(self._given):
            missing = target - count
            while missing > 0:
                block, start, rows = self._kept.popleft()
                self._give(rank, (block, start, min(rows, missing)))
                if rows > missing:
                    self._kept.appendleft((block, start + missing, rows - missing))
                missing -= min(rows, missing)
        self._kept.clear()

    def _give(self, rank: int, part: Rows) -> None:
        self._queues[rank].append(part)
        self._given[rank] += part[2]

    def close(self) -> None:
        """End it, though not all was read."""
        self._running.stop()
        with self._lock:
            self._is_done = True
            self._running.close()
            self._held.clear()


@published("mpi_runtime.data")
class StreamSplitDataIterator(DataIterator):
    """The part of one reader: see `Dataset.streaming_split`."""

    def __init__(self, shares: Shares, rank: int) -> None:
        """Reader `rank` of a shared data set."""
        self.shares = shares
        self.rank = rank

    def __getstate__(self) -> dict[str, object]:
        self.shares.started()  # before it is in other processes, so all readers have the same actor
        return self.__dict__

    def world_size(self) -> int:
        """The number of readers."""
        return self.shares.size

    def get_context(self) -> DataContext:
        """Its settings."""
        return self.shares.settings

    def _tables(self, ordered: bool) -> Tables:
        del ordered
        stops = threading.Event()
        return Tables(self._blocks(stops), stops.set)

    def _blocks(self, stops: threading.Event) -> Iterator[pyarrow.Table]:
        sharing = self.shares.started()
        number = mpi_runtime.get(sharing.begin.remote(self.rank, self.shares.size))

        def again(is_lost: bool) -> object | None:
            ref: object | None = mpi_runtime.get(sharing.rebuild.remote(number, self.rank, is_lost))
            return ref

        while not stops.is_set():
            try:
                part = mpi_runtime.get(sharing.next.remote(number, self.rank))
                table = None if part is None else fetched(part[0], again).slice(*part[1:])
            except ValueError:
                if stops.is_set():  # nobody waits for more: the parts may have been begun again
                    return
                raise
            if table is None:
                return
            yield table
            del table

    def __repr__(self) -> str:
        return f"<part {self.rank} of {self.shares.size} of a data set>"

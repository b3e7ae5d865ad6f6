"""The arena: one memory file per host that holds the large objects of all its ranks.

An array of a GB that ten processes of a host read should lie in memory once, and nobody should copy it. So the bytes
are in a file without a name (`memfd_create`), which each process maps. The agent of the host's lowest rank makes the
file, and hands its descriptor to the other agents and to every client. Nothing of it outlives its processes, however
they die.

    capacity | regions | used[regions] | spare[regions] | wanted[regions] | ... | region 0 | region 1 | ...
    `- header -------------------------------------------------------------'     `- extents of rank 0

Words: an *extent* is a piece of memory for one object. Agents allocate and free them; clients only write into those
that they were given, and read. A *region* is where the agent of one rank allocates, so agents need not ask each other.
Memory that was written before is *warm*. The first touch of *cold* memory costs 5 to 40 times as much as a copy into
warm memory (`allocator.py`). *Spare* memory is free and still warm.

Every region is four times as long as the capacity of the whole host, and sparse: memory exists only where something was
written. So an object that fits the capacity finds a place in one piece even between scattered small objects. The
capacity is counted for the host: `used[r]` (allocated bytes) and `spare[r]` are written by the agent of rank r only.

What always holds: no allocation brings the sum of `used` above the capacity. An object's extent is freed only when no
reference and no view of it is left; the scheduler counts these, not this module. The file is sealed: a client that
shortened it by mistake would kill every process that reads beyond the new end.

Not obvious: spare memory is kept and preferred, because it is warm. The price is that spare memory of one rank takes
room from objects of another. If an allocation brings used + spare of all regions above the capacity, its agent first
gives its own spare memory back to the system. Then it sets `wanted[r]` of the others that have some, and they do the
same in their next turn (`AgentArena.settle`). An agent writes `used` before it reads the words of others: two that ask
for the last bytes at the same time may both be refused, but are never both served.
"""

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
from typing import TYPE_CHECKING, NamedTuple

from mpi_runtime import config as configuration
from mpi_runtime.core.objects import range_locks
from mpi_runtime.core.objects.allocator import LARGE, PAGE, Allocator, round_down, round_up
from mpi_runtime.core.objects.region import HUGE, Window, copy, map_part
from mpi_runtime.core.transport.base import Buffer
from mpi_runtime.scheduler.protocol.amounts import gib

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from mpi_runtime.core.objects.pinned_extents import PinnedExtents

TRIM_STEP = 32 << 20
"""Bytes that an agent gives back in one turn. Slow machines take 2 ms for a MiB, and the agent must stay responsive."""
DEFAULT_SHARE_PERCENT = 30
AHEAD_SHARE = 64
"""One client may get this part of the capacity ahead of use: 1 / 64."""
SPREAD = 4
"""Length of a region, in capacities. With k extents in it, the largest hole has at least (SPREAD - 1) / (k + 1) of the
capacity."""


# The memory file.


class Layout(NamedTuple):
    """The layout of the memory file."""

    capacity: int
    """The largest total of all objects of the host, in bytes."""
    regions: int
    """Number of ranks of the host."""

    @property
    def header(self) -> int:
        """Length of the header in bytes. Regions start at the beginning of a large page; what is between is a hole."""
        return round_up(8 * (2 + 3 * self.regions), HUGE)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self.header + self.regions * self.length

    @property
    def length(self) -> int:
        """Length of each region in bytes."""
        return round_up(self.capacity * SPREAD, HUGE)

    def start(self, region: int) -> int:
        """Return the offset of a region in the file."""
        if not 0 <= region < self.regions:
            raise ValueError(f"the arena has regions 0 to {self.regions - 1}, not {region}")
        return self.header + region * self.length

    @classmethod
    def of(cls, descriptor: int) -> "Layout":
        """Read the layout from the header of an arena."""
        words = os.pread(descriptor, 16, 0)
        return cls(int.from_bytes(words[:8], sys.byteorder), int.from_bytes(words[8:], sys.byteorder))


def create(capacity: int, regions: int) -> int:
    """Make the memory file of a host and return its descriptor, which the caller owns.

    Args:
        capacity: bytes for all objects of the host; rounded down to whole pages.
        regions: number of ranks on the host.

    Raises:
        ValueError: the capacity is less than a page, or there is no region.
        OSError: the system refuses, for instance because of a limit on file sizes (`ulimit -f`).
    """
    layout = Layout(round_down(capacity, PAGE), regions)
    if layout.capacity < PAGE or regions < 1:
        raise ValueError(f"an arena needs a page ({PAGE} bytes) and a region; it was to have {capacity} and {regions}")
    descriptor = os.memfd_create("mpi_runtime", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, layout.size)
        os.pwrite(descriptor, b"".join(word.to_bytes(8, sys.byteorder) for word in (layout.capacity, regions)), 0)
        # A client that shortened the file by mistake would kill every process that reads beyond the new end.
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def default_capacity(memory_limit: int) -> int:
    """Return the default capacity of an arena in bytes: a fixed share of the memory that the job may use."""
    return round_down(memory_limit * DEFAULT_SHARE_PERCENT // 100, PAGE)


class AgentArena:
    """The arena for an agent, which allocates, reads and writes in its own region."""

    def __init__(self, descriptor: int, region: int) -> None:
        """Use the arena behind a descriptor, which stays the caller's and must stay open until `close`.

        `region`: the index of this rank among the ranks of its host, ascending.
        """
        self.descriptor = descriptor
        self.layout = Layout.of(descriptor)
        self.region = region
        self.allocator = Allocator(self.layout.length)
        self._window = Window(
            descriptor, self.layout.start(region), self.layout.length, mmap.ACCESS_WRITE, is_plain=True
        )
        words = memoryview(map_part(descriptor, 0, self.layout.header, mmap.ACCESS_WRITE)).cast("Q")
        regions = self.layout.regions
        self._used, self._spare, self._wanted = (words[2 + n * regions : 2 + (n + 1) * regions] for n in range(3))
        self.busy = False
        """Whether spare memory must be given back: call `settle` before waiting."""
        self._grew = False

    def allocate(self, size: int) -> int | None:
        """Return the offset of a new extent in the own region; None: there is no room, and `refusal` says why.

        If two agents ask for the last bytes of the host at the same time, both may be refused, but never both served.
        """
        self._used[self.region] += Allocator.rounded(size)  # written before the words of others are read
        offset = self.allocator.allocate(size) if sum(self._used) <= self.layout.capacity else None
        self._publish()
        if offset is not None and self._excess() > 0:
            self.busy = self._grew = True
        return offset

    def plentiful(self, size: int) -> int:
        """The number of extents of this size that are a small part of the host's memory and leave half of it free."""
        capacity = self.layout.capacity
        return max(0, min(capacity // AHEAD_SHARE, capacity // 2 - sum(self._used))) // Allocator.rounded(size)

    def lacking(self, sizes: Sequence[int]) -> int:
        """Return how many bytes must be freed to allocate extents of these sizes; in many pieces it may be more."""
        needed = [Allocator.rounded(size) for size in sizes]
        return max(sum(needed) - self.layout.capacity + sum(self._used), max(needed, default=0)) if needed else 0

    def refusal(self, size: int) -> str:
        """Return a message for the user: why an allocation of `size` bytes was refused."""
        used, capacity = sum(self._used), self.layout.capacity
        if Allocator.rounded(size) > capacity:
            return (
                f"The object store of this host has no room for an object of {gib(size)}: it has {gib(capacity)} in "
                "all. Start with a larger one, init(object_store_memory=...), or make several objects of it."
            )
        if used + Allocator.rounded(size) > capacity:
            problem = f"{gib(used)} of its {gib(capacity)} are in use"
        else:
            problem = f"of {gib(capacity - used)} that are free only {gib(self.allocator.largest)} are in one piece"
        return (
            f"The object store of this host has no room for an object of {gib(size)}: {problem}. "
            "Drop references to large objects, or start with a larger object store."
        )

    def free(self, offset: int) -> int:
        """Free an extent, and return how many bytes it occupied.

        Raises:
            ValueError: no extent is allocated there.
        """
        size = self.allocator.free(offset)
        self._publish()
        return size

    def size(self, offset: int) -> int:
        """Return how many bytes the extent at an offset occupies; 0: none starts there."""
        return self.allocator.size(offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Return the writable bytes of an allocated extent of the own region.

        Raises:
            ValueError: no extent of this size is allocated at the offset.
        """
        if self.size(offset) < size:
            raise ValueError(f"no extent of {size} bytes is allocated at offset {offset} of region {self.region}")
        return self._window.view(offset, size)

    def trim(self, size: int) -> int:
        """Give at least `size` bytes of spare memory back to the system, or as much as there is; returns how much.

        What a client has pinned stays.
        """
        trimmed = self.allocator.trim(size, self._give_back, self._not_pinned)
        self._publish()
        return trimmed

    def settle(self) -> list[int]:
        """Take one step to keep the memory of the host within its capacity. To be called in each turn of the agent.

        If there is nothing to do, it only reads the header. While `busy`, the agent should call it again soon.

        Returns:
            Regions from which spare memory is needed, as noted in the header. The caller must wake their agents, for
            instance with an empty frame.
        """
        if self._wanted[self.region]:
            self._wanted[self.region] = 0
            self.busy = True
        if not self.busy:
            return []
        excess = self._excess()
        if excess > 0 and self.trim(min(excess, TRIM_STEP)):
            return []
        grew, self.busy, self._grew = self._grew, False, False
        # An agent that was asked does not ask others, or two agents would wake each other for ever.
        if excess <= 0 or not grew:
            return []
        others = [region for region, spare in enumerate(self._spare) if spare and region != self.region]
        for region in others:
            self._wanted[region] = 1
        return others

    def close(self) -> None:
        """Stop using the arena; no other method may be called afterwards. Views stay valid."""
        del self._window, self._used, self._spare, self._wanted

    def _give_back(self, offset: int, size: int) -> bool:
        mapping, at = self._window.locate(offset, size)
        start = self.layout.start(self.region) + offset
        if not range_locks.take(self.descriptor, start, size):
            return False
        try:
            mapping.madvise(mmap.MADV_REMOVE, at, size)
        except OSError:  # this system cannot
            return False
        finally:
            range_locks.drop(self.descriptor, start, size)
        return True

    def _not_pinned(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range of which no client has pinned a page, the last first."""
        base = self.layout.start(self.region)
        parts = [(low, high)]
        while parts:
            low, high = parts.pop()
            pinned = range_locks.shared_part(self.descriptor, base + low, high - low)
            if pinned is None:
                yield low, high
                continue
            first, last = pinned[0] - base, pinned[1] - base
            parts += [(start, end) for start, end in ((low, first), (last, high)) if start < end]

    def _publish(self) -> None:
        self._used[self.region] = self.allocator.used
        self._spare[self.region] = self.allocator.spare

    def _excess(self) -> int:
        return sum(self._used) + sum(self._spare) - self.layout.capacity


_client_arenas: "weakref.WeakSet[ClientArena]" = weakref.WeakSet()


class ClientArena:
    """The arena for a client, which writes extents that its agent gave it, and reads objects. It is thread-safe."""

    def __init__(self, descriptor: int) -> None:
        """Use the arena of a descriptor, which the caller keeps, and keeps open until `close`."""
        self.layout = Layout.of(descriptor)
        self._descriptor = descriptor
        self._readers: dict[int, Window] = {}
        self._writers: dict[int, Window] = {}
        self._views: dict[int, weakref.ref[object]] = {}
        self._pinned: PinnedExtents | None = None
        _client_arenas.add(self)

    @property
    def capacity(self) -> int:
        """The largest total of all objects of the host, in bytes."""
        return self.layout.capacity

    def write(self, region: int, offset: int, size: int, parts: Iterable[tuple[int, Buffer]]) -> None:
        """Copy buffers into an extent.

        Args:
            region: index of the rank that allocated it among the ranks of the host.
            offset: where the extent starts in the region, in bytes.
            size: its length in bytes.
            parts: contiguous buffers, each with its position in the extent in bytes. Each is copied before the next is
                taken from the iterator.

        Raises:
            ValueError: a part is not inside the extent, or the extent not inside the region.
        """
        window = self._window(self._writers, region, mmap.ACCESS_WRITE)
        mapping, start = window.locate(offset, size)
        for position, part in parts:
            if not memoryview(part).nbytes:
                continue  # Python cannot cast an empty view
            buffer = memoryview(part).cast("B")
            if not 0 <= position <= size - len(buffer):
                raise ValueError(f"{len(buffer)} bytes at {position} do not lie in an extent of {size} bytes")
            copy(mapping, start + position, buffer, window.touched, window.large)

    def read(self, region: int, offset: int, size: int, on_release: Callable[[], None]) -> memoryview:
        """Return a read-only view of an object, without a copy.

        The place is as in `write`. `on_release` is called exactly once, when neither the view nor anything made from it
        (slices, arrays) is left. The garbage collector may call it in any thread, in the middle of any instruction. So
        it must take no lock and raise nothing; appending to a `deque` is fine. It is not called after `close`, in a
        forked child, or while the interpreter ends.

        Raises:
            ValueError: the bytes are not inside the region.
        """
        import numpy  # not at the top: a program without large objects starts without it

        # An array can be weakly referenced, which most objects with a buffer cannot.
        window = self._window(self._readers, region, mmap.ACCESS_READ)
        return self.lend(numpy.frombuffer(window.view(offset, size), numpy.uint8), on_release)

    def lend(self, lender: "NDArray[numpy.uint8]", on_release: Callable[[], None]) -> memoryview:
        """Return a view of an array, and call `on_release` as `read` does."""
        views, key, finalizing = self._views, id(lender), sys.is_finalizing

        def released(_: object) -> None:
            if views.pop(key, None) is not None and not finalizing():
                on_release()

        views[key] = weakref.ref(lender, released)
        return lender.data

    @contextmanager
    def pinned(self, region: int, offset: int, size: int) -> "Iterator[NDArray[numpy.uint8] | None]":
        """The bytes of an extent in pinned memory, to be copied by a GPU while the block runs; None: it is not pinned.

        It never is without `MPI_RUNTIME_GPU_PIN_MB`. See `pinned_extents.py`.
        """
        found = None
        if size >= LARGE and offset % PAGE == 0 and (bytes_max := configuration.gpu_pin()):
            found = self._window(self._writers, region, mmap.ACCESS_WRITE).whole()
        if found is None:
            yield None
            return
        if self._pinned is None:
            from mpi_runtime.core.objects.pinned_extents import (
                PinnedExtents,  # not at the top: most processes pin nothing
            )

            self._pinned = PinnedExtents(self._descriptor, bytes_max)
        start, address = self.layout.start(region) + offset, found.ctypes.data + offset
        with self._pinned.pinned(start, Allocator.rounded(size), address, found) as is_pinned:
            yield found[offset : offset + size] if is_pinned else None

    def close(self) -> None:
        """Stop using the arena. Views stay readable, but their release is no longer reported."""
        if self._pinned is not None:
            self._pinned.close()
        self._views.clear()
        self._readers.clear()
        self._writers.clear()

    def _window(self, windows: dict[int, Window], region: int, access: int) -> Window:
        window = windows.get(region)
        if window is None:
            window = windows.setdefault(
                region, Window(self._descriptor, self.layout.start(region), self.layout.length, access)
            )
        return window


@contextmanager
def pinned_twin(data: memoryview) -> "Iterator[NDArray[numpy.uint8] | None]":
    """The same bytes as those of a part of a view from `ClientArena.read`, as by `pinned` of that arena."""
    import numpy

    owner = data.obj
    if len(data) >= LARGE and isinstance(owner, numpy.ndarray) and configuration.gpu_pin():
        address, inside = owner.ctypes.data, numpy.frombuffer(data, numpy.uint8).ctypes.data - owner.ctypes.data
        windows = [(arena, *one) for arena in list(_client_arenas) for one in list(arena._readers.items())]
        for arena, region, window in windows:
            whole = window.whole()
            if whole is not None and 0 <= address - whole.ctypes.data < len(whole):
                with arena.pinned(region, address - whole.ctypes.data, owner.nbytes) as found:
                    yield None if found is None else found[inside : inside + len(data)]
                return
    yield None


def _after_fork_in_child() -> None:
    for arena in _client_arenas:
        arena._views.clear()
        if arena._pinned is not None:
            arena._pinned.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)

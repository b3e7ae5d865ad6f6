"""What every `Transport` promises: run by each of its ranks, in a thread or under mpirun (as a program: over MPI)."""

from __future__ import annotations

import mmap
import os
import select
import struct
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable

from mpi_runtime.core.transport.base import Transfer, Transport

HANG_S = 40.0
MEGABYTE = 1 << 20
BLOCK = bytes((31 * i + (i >> 8)) & 0xFF for i in range(65521))


class Loop:
    """The loop of a rank process around a transport. Frames start with a byte that says which check they belong to."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.inbox: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._descriptors = [] if transport.fileno() < 0 else [transport.fileno()]

    def send(self, check: int, rank: int, data: bytes) -> None:
        self.transport.send(rank, bytes([check]) + data)

    def run_until(self, reached: Callable[[], bool]) -> None:
        started = active = time.monotonic()
        while not reached():
            frames = self.transport.receive()
            for source, frame in frames:
                self.inbox[frame[0]].append((source, bytes(frame[1:])))
            now = time.monotonic()
            assert now < started + HANG_S, f"rank {self.transport.rank} hangs; it has {dict(self.inbox)!r:.500}"
            if frames:
                active = now
                continue
            limit = self.transport.prepare_sleep(now - active)
            select.select(self._descriptors, [], [], 1.0 if limit is None else limit)
            self.transport.wake()

    def expect(self, check: int, count: int) -> list[tuple[int, bytes]]:
        self.run_until(lambda: len(self.inbox[check]) >= count)
        frames = self.inbox.pop(check)
        assert len(frames) == count
        return frames

    def meet(self, check: int) -> None:
        """Wait until all ranks are here."""
        for rank in range(self.transport.size):
            self.send(check, rank, b"")
        self.expect(check, self.transport.size)


def pattern(seed: int, size: int) -> bytes:
    """Some bytes that differ from place to place, quickly made."""
    return (BLOCK[seed % 251 :] + BLOCK * (size // len(BLOCK) + 1))[:size]


def check_places(loop: Loop) -> None:
    """Every rank knows its place, and all agree."""
    transport = loop.transport
    assert 0 <= transport.rank < transport.size == len(transport.hosts) == len(transport.hostnames)
    for rank, host in enumerate(transport.hosts):
        assert host <= rank
        assert transport.hosts[host] == host
        assert transport.hostnames[host] == transport.hostnames[rank]
    assert transport.hostnames[transport.rank]


def check_order(loop: Loop) -> None:
    """Frames of mixed sizes reach each rank, itself included, whole and in order."""
    size = loop.transport.size
    sizes = (0, 10, 3000, 5000, 0, 100_000, 1, 300_000, 20)
    rounds = 20
    for number in range(rounds * len(sizes)):
        for rank in range(size):
            data = pattern(number + loop.transport.rank, sizes[number % len(sizes)])
            loop.send(1, rank, struct.pack("<I", number) + data)
    seen = [0] * size
    for source, frame in loop.expect(1, size * rounds * len(sizes)):
        number = struct.unpack_from("<I", frame)[0]
        assert number == seen[source], f"frame {number} of rank {source} came as its {seen[source]}th"
        assert frame[4:] == pattern(number + source, sizes[number % len(sizes)])
        seen[source] += 1


def check_many_small(loop: Loop) -> None:
    """A burst from everybody to everybody."""
    size, count = loop.transport.size, 1000
    for number in range(count):
        for rank in range(size):
            loop.send(2, rank, struct.pack("<II", number, loop.transport.rank))
    seen = [0] * size
    for source, frame in loop.expect(2, size * count):
        assert struct.unpack("<II", frame) == (seen[source], source)
        seen[source] += 1


def check_big_frame(loop: Loop) -> None:
    """A frame of 30 MB, all around the ring at once, with a small one at its heels."""
    rank, size = loop.transport.rank, loop.transport.size
    loop.send(3, (rank + 1) % size, pattern(rank, 30 * MEGABYTE))
    loop.send(3, (rank + 1) % size, b"small")
    big, small = loop.expect(3, 2)
    assert big[0] == small[0] == (rank - 1) % size
    assert big[1] == pattern(big[0], 30 * MEGABYTE)
    assert small[1] == b"small"


def check_bulk(loop: Loop, largest: int) -> None:
    """Transfers of many sizes at once around the ring, from and into memory files, while frames go on."""
    transport = loop.transport
    left, right = (transport.rank - 1) % transport.size, (transport.rank + 1) % transport.size
    transfers: list[Transfer] = []
    pairs: list[tuple[memoryview, memoryview]] = []
    for tag, size in enumerate((0, 1, 64 * 1024 + 1, 4 * MEGABYTE, 16 * MEGABYTE + 7, largest)):
        # The same on all ranks, but for the first byte.
        source = memoryview(mmap.mmap(-1, max(size, 1)))[:size]
        source[:] = pattern(tag, size)
        source[:1] = bytes([transport.rank])[:size]
        target = memoryview(mmap.mmap(-1, max(size, 1)))[:size]
        pairs.append((source, target))
        transfers.append(transport.receive_bulk(left, tag * 1000, target))
        transfers.append(transport.send_bulk(right, tag * 1000, source.toreadonly()))
    assert transport.busy
    for number in range(100):
        loop.send(4, right, bytes([number]))
    # Not `all`: each of them must be driven.
    loop.run_until(lambda: not sum(not transfer.done() for transfer in transfers))
    for source, target in pairs:
        assert bytes(target[:1]) == bytes([left])[: len(target)]
        assert zlib.crc32(target[1:]) == zlib.crc32(source[1:]), f"{len(target)} bytes arrived wrong"
    assert [frame[0] for _, frame in loop.expect(4, 100)] == list(range(100))
    loop.run_until(lambda: not transport.busy)


def check_sleep(loop: Loop) -> None:
    """A token goes round; all but its holder sleep."""
    rank, size = loop.transport.rank, loop.transport.size
    loop.meet(5)
    for turn in range(20):
        if rank == 0:
            loop.send(6, 1 % size, bytes([turn]))
        ((_, token),) = loop.expect(6, 1)
        assert token == bytes([turn])
        if rank != 0:
            loop.send(6, (rank + 1) % size, token)


def check_collectives(loop: Loop) -> None:
    """A descriptor goes to all ranks of a host, bytes go from rank 0 to all."""
    transport = loop.transport
    lowest = transport.hosts[transport.rank]
    made = None
    if lowest == transport.rank:
        made = os.memfd_create("mpi_runtime-test")
        os.truncate(made, 4096 + transport.size)
        os.pwrite(made, b"of rank %d" % lowest, 0)
    descriptor = transport.share_descriptor(made, b"a file")
    assert descriptor is not None
    assert not os.get_inheritable(descriptor)
    with mmap.mmap(descriptor, 4096 + transport.size) as shared:
        assert shared[:16].rstrip(b"\0") == b"of rank %d" % lowest
        shared[4096 + transport.rank] = 7
        loop.meet(7)
        here = [host == lowest for host in transport.hosts]
        assert list(shared[4096:]) == [7 if is_here else 0 for is_here in here]
        loop.meet(8)
    os.close(descriptor)


def check_all(transport: Transport, largest: int = 20 * MEGABYTE) -> None:
    """Every promise, with bulk data of up to so many bytes; leaves the transport open and quiet."""
    loop = Loop(transport)
    check_places(loop)
    check_collectives(loop)
    check_order(loop)
    check_many_small(loop)
    check_big_frame(loop)
    check_bulk(loop, largest)
    check_sleep(loop)
    loop.meet(9)


def main() -> None:
    """Check MPI; each rank says so when all was well."""
    from mpi_runtime.core.transport.mpi import MpiTransport

    transport = MpiTransport(expected_size=int(sys.argv[1]))
    check_all(transport, int(sys.argv[2]) * MEGABYTE)
    # Nobody receives these any more; closing must not wait for that.
    transport.send((transport.rank + 1) % transport.size, bytes(MEGABYTE))
    transport.close(clean=True)
    print(f"rank {transport.rank} is content", flush=True)


if __name__ == "__main__":
    main()

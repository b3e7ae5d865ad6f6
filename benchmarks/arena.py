"""How far is a large `put` from a plain copy, and what does a large `get` cost?

Runs the arena alone, without any process around it: `python -m benchmarks.arena`. The copy and the write of the same
bytes take turns, so that a busy machine slows both; ratios are of medians. Bookkeeping is measured in CPU time.
"""

import os
import random
import time
from collections.abc import Callable
from statistics import median

import numpy

from mpi_runtime.core.objects.allocator import Allocator
from mpi_runtime.core.objects.arena import AgentArena, ClientArena, create

SIZE = 100_000_000
ROUNDS = 15
CALLS = 20_000


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(work: Callable[[], object]) -> float:
    """How much CPU time it takes once."""
    start = time.process_time()
    work()
    return time.process_time() - start


def report(what: str, value: str, goal: str = "") -> None:
    """One line of the result."""
    print(f"{what:52} {value:>10}   {goal and 'goal: ' + goal}".rstrip(), flush=True)


def large_values(descriptor: int) -> None:
    """`put` and `get` of 100 MB."""
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    source = memoryview(bytearray(os.urandom(1 << 16)) * (SIZE // (1 << 16) + 1))[:SIZE]
    copy = memoryview(bytearray(SIZE))

    def plain() -> None:
        copy[:] = source

    def put() -> None:
        offset = agent.allocate(SIZE)
        assert offset is not None
        client.write(0, offset, SIZE, [(0, source)])
        agent.free(offset)

    report("put of 100 MB into untouched memory", f"{SIZE / seconds(put) / 1e9:.2f} GB/s")
    other, client = client, ClientArena(descriptor)
    report("put into warm memory, the first by a process", f"{SIZE / seconds(put) / 1e9:.2f} GB/s")
    client = other
    pairs = [(seconds(plain), seconds(put)) for _ in range(ROUNDS)]
    plain_s, put_s = (median(column) for column in zip(*pairs, strict=True))
    report("plain copy, warm", f"{SIZE / plain_s / 1e9:.2f} GB/s")
    report("put, warm", f"{SIZE / put_s / 1e9:.2f} GB/s")
    report("put against plain copy", f"{100 * plain_s / put_s:.0f} %", "at least 80 %")

    offset = agent.allocate(SIZE)
    assert offset is not None
    client.write(0, offset, SIZE, [(0, source)])
    released: list[int] = []

    def get() -> None:
        numpy.frombuffer(client.read(0, offset, SIZE, lambda: released.append(1)), numpy.uint8)

    report("get of 100 MB, the first by a process", f"{1e6 * seconds(get):.0f} us", "under 200 us")
    report("get of 100 MB", f"{1e6 * median(seconds(get) for _ in range(1000)):.1f} us", "under 200 us")
    assert len(released) == 1001


def bookkeeping(extents: int) -> None:
    """Allocations and frees beside a number of live extents."""
    rng = random.Random(1)
    allocator = Allocator(1 << 40)
    live = [allocator.allocate(rng.randrange(1 << 16, 1 << 20)) or 0 for _ in range(extents)]
    for _ in range(extents // 2):  # holes of all sizes
        allocator.free(live.pop(rng.randrange(len(live))))
    sizes = [rng.randrange(1 << 16, 1 << 20) for _ in range(CALLS)]

    def work() -> None:
        offsets = [allocator.allocate(size) or 0 for size in sizes]
        for offset in offsets:
            allocator.free(offset)

    report(f"allocate and free beside {len(live)} extents", f"{CALLS / cpu_seconds(work) / 1e3:.0f} k/s")


def main() -> None:
    """Run all."""
    descriptor = create(4 * SIZE, 1)
    large_values(descriptor)
    agent = AgentArena(descriptor, 0)

    def pairs() -> None:
        for _ in range(CALLS):
            agent.free(agent.allocate(1 << 20) or 0)

    report("allocate and free by an agent, one extent", f"{CALLS / cpu_seconds(pairs) / 1e3:.0f} k/s")
    for extents in (100, 10_000, 100_000):
        bookkeeping(extents)
    os.close(descriptor)


if __name__ == "__main__":
    main()

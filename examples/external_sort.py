"""Sort more numbers than the object store has room for: blocks wait on disk until they are needed.

Each block is drawn and cut by value into parts; each part of the result is merged from one piece of every block. The
runtime writes to disk what shared memory has no room for, and reads it back; the program says nothing of it.

    python examples/external_sort.py
    mpi-runtime run -n 4 examples/external_sort.py --megabytes 4000 --store 500
"""

import argparse
import itertools
import time

import numpy as np
import numpy.typing as npt

import mpi_runtime

Numbers = npt.NDArray[np.uint64]
BLOCK_MB = 8

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int, default=192, help="of numbers, in all")
parser.add_argument("--store", type=int, default=64, help="megabytes of shared memory on each host")
parser.add_argument("--directory", help="where values wait on disk")
options = parser.parse_args()

mpi_runtime.init(object_store_memory=options.store * 1_000_000, object_spilling_directory=options.directory)
BLOCKS = PARTS = max(2, options.megabytes // BLOCK_MB)


def draw(seed: int) -> Numbers:
    """A block of the input. Whoever needs it again draws the same."""
    return np.random.default_rng(seed).integers(0, 1 << 63, BLOCK_MB * 1_000_000 // 8, dtype=np.uint64)


@mpi_runtime.remote
def cut(seed: int) -> tuple[Numbers, ...]:
    """The numbers of a block, sorted, in parts by value."""
    block = np.sort(draw(seed))
    edges = np.searchsorted(block, np.array([(part << 63) // PARTS for part in range(1, PARTS)], np.uint64))
    return tuple(np.split(block, edges))


@mpi_runtime.remote
def merge(*pieces: Numbers) -> Numbers:
    """A part of the result."""
    return np.sort(np.concatenate(pieces), kind="stable")  # of runs that are sorted


@mpi_runtime.remote
def look(part: Numbers) -> tuple[int, int, int, int]:
    """The first and the last number of a part, how many there are, and their sum modulo 2**64."""
    assert bool((part[:-1] <= part[1:]).all())
    return int(part[0]), int(part[-1]), len(part), int(part.sum())


@mpi_runtime.remote
def sum_of(seed: int) -> int:
    """The sum of a block of the input modulo 2**64."""
    return int(draw(seed).sum())


started = time.perf_counter()
rows = [cut.options(num_returns=PARTS).remote(seed) for seed in range(BLOCKS)]
merged = [merge.remote(*(row[part] for row in rows)) for part in range(PARTS)]
del rows  # each piece is gone as soon as it was merged
mpi_runtime.wait(merged, num_returns=PARTS, fetch_local=False)
took_s = time.perf_counter() - started

nodes = mpi_runtime.util.memory_summary()
store = sum(node["capacity"] for node in nodes)
on_disk = sum(node["on_disk"] for node in nodes)
size = BLOCKS * BLOCK_MB / 1000
print(f"{size:.2f} GB sorted with {store / 1e9:.2f} GB of shared memory; {on_disk / 1e9:.2f} GB of the result on disk")
print(f"took {took_s:.2f} s, {size / took_s:.3f} GB/s")

seen = mpi_runtime.get([look.remote(part) for part in merged])
assert all(before[1] <= after[0] for before, after in itertools.pairwise(seen))
assert sum(count for _, _, count, _ in seen) == BLOCKS * BLOCK_MB * 1_000_000 // 8
expected = sum(mpi_runtime.get([sum_of.remote(seed) for seed in range(BLOCKS)]))
assert (sum(total for *_, total in seen) - expected) % (1 << 64) == 0
print("in order, and none is missing")

"""Values that leave a full store, beside the disk itself: `python -m benchmarks.spilling`.

    python -m benchmarks.spilling [--store 256] [--times 4] [--megabytes 8] [--rounds 5] [--directory DIR]

The driver puts `--times` as much as the store has room for, in values of `--megabytes`, and then gets all of it in the
same order, which is the worst one: what was put first left first. So each value is written once and read once. In the
same directory as many bytes are written to a file and read from it in pieces of 8 MiB, past the page cache (O_DIRECT)
and through it. The three take turns, so that a busy machine slows all of them; ratios are of medians.

Bytes are those that the head's process has read and written (/proc/PID/io). What the page cache holds is read at the
speed of memory, by us too: compare with the line of the same kind.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import mpi_runtime as ray
from benchmarks.processes import roles

PIECE = 8 << 20


class Speeds(NamedTuple):
    """In bytes per second."""

    write: float
    read: float


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def alone(directory: str, size: int, flags: int) -> Speeds:
    """A file without a name, written and read in pieces, from memory that is aligned as O_DIRECT demands."""
    pieces = max(1, size // PIECE)
    buffer = mmap.mmap(-1, PIECE)
    buffer[:] = os.urandom(1 << 20) * (PIECE >> 20)
    descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
    try:
        write_s = seconds(lambda: [os.pwrite(descriptor, buffer, n * PIECE) for n in range(pieces)])
        read_s = seconds(lambda: [os.preadv(descriptor, [buffer], n * PIECE) for n in range(pieces)])
    finally:
        os.close(descriptor)
        buffer.close()
    return Speeds(pieces * PIECE / write_s, pieces * PIECE / read_s)


def moved(pid: int) -> tuple[int, int]:
    """Bytes that a process has written to files so far, and read from them."""
    with open(f"/proc/{pid}/io") as lines:
        found = {name: int(value) for name, value in (line.split(":") for line in lines)}
    return found["wchar"], found["rchar"]


def ours(directory: str, store: int, size: int, block: int) -> Speeds:
    """Values are put and got. The store was written before: the first touch of its memory is no part of it."""
    source = np.frombuffer(os.urandom(1 << 20) * (block >> 20), np.uint8)
    with ray.init(num_cpus=1, object_store_memory=store, object_spilling_directory=directory, log_to_driver=False):
        (head,) = roles(under_mpi=False)["head"]
        warm = [ray.put(source) for _ in range(store * 7 // 8 // block)]
        del warm
        refs: list[ray.ObjectRef[object]] = []
        start = moved(head)
        put_s = seconds(lambda: refs.extend(ray.put(source) for _ in range(size // block)))
        middle = moved(head)
        get_s = seconds(lambda: [ray.get(ref)[-1] for ref in refs])  # type: ignore[index]
        end = moved(head)
        refs.clear()
    return Speeds((middle[0] - start[0]) / put_s, (end[1] - middle[1]) / get_s)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=int, default=256, help="MiB of shared memory (default 256)")
    parser.add_argument("--times", type=int, default=4, help="so many times as much is put (default 4)")
    parser.add_argument("--megabytes", type=int, default=8, help="MiB of each value (default 8)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", default="/tmp", help="on the disk that is to be used (default /tmp)")
    arguments = parser.parse_args()
    store, block = arguments.store << 20, arguments.megabytes << 20
    size, directory = arguments.times * store, arguments.directory
    ways: dict[str, Callable[[], Speeds]] = {
        "disk alone, past the page cache": lambda: alone(directory, size, os.O_DIRECT),
        "disk alone, through the page cache": lambda: alone(directory, size, 0),
        "put and get": lambda: ours(directory, store, size, block),
    }
    found: dict[str, list[Speeds]] = {name: [] for name in ways}
    for number in range(arguments.rounds):
        for name, way in ways.items():
            found[name].append(way())
            print(f"{number + 1}. {name:36} {said(found[name][-1])}", flush=True)
    medians = {name: Speeds(*map(statistics.median, zip(*each, strict=True))) for name, each in found.items()}
    mine = medians["put and get"]
    for name, each in medians.items():
        print(
            f"median: {name:34} {said(each)}; put and get: {mine.write / each.write:.2f}, {mine.read / each.read:.2f}"
        )


def said(speeds: Speeds) -> str:
    """In words."""
    return f"writes {speeds.write / 1e9:.3f} GB/s, reads {speeds.read / 1e9:.3f} GB/s"


if __name__ == "__main__":
    main()

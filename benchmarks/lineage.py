"""What lineage costs the head: the bytes for each call that is kept so that its value can be made again.

    python -m benchmarks.lineage                # 20 000 calls, each with a value of its own in an arena
    python -m benchmarks.lineage --calls 5000

The same calls are made twice: with retries, and with none, for which nothing is kept. The difference is the cost. Calls
have no arguments, a small one, or the large value of the call before, of which the program has let go.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import DRIVER, Call, Put, Released, Returned, Spec, Stored, TaskSpec, Value
from mpi_runtime.scheduler.protocol.rank_events import JobBegan, RankJoined

UNIT = 10_000
SIZE = 1 << 20
SHAPES = ("no argument", "a small argument", "the value before")


def used(calls: int, shape: str, max_retries: int) -> tuple[int, int]:
    """Bytes that the scheduler has when so many values are there, and what it counts of them as lineage."""
    scheduler = Scheduler()
    scheduler.handle_rank(RankJoined(0, 0, "host", [0], -1, 0, 0, {}, 1 << 40), 0)
    scheduler.handle_rank(JobBegan(survives_losses=True), 0)
    scheduler.handle(DRIVER, [Spec(1, TaskSpec(), "f", b"", Request(UNIT), max_retries=max_retries)], 0)
    gc.collect()
    tracemalloc.start()
    executor, before = 0, b""
    for number in range(1, calls + 1):
        id, small = (2 * number).to_bytes(16, "big"), (2 * number + 1).to_bytes(16, "big")
        arguments = {SHAPES[0]: [], SHAPES[1]: [small], SHAPES[2]: [before] if before else []}[shape]
        if shape == SHAPES[1]:
            scheduler.handle(DRIVER, [Put(small, Value(bytes(100)))], number)
        scheduler.handle(DRIVER, [Call(id, 1, bytes(100), tuple(arguments))], number)
        effects = scheduler.decide(number)
        executor = executor or next(client for client in effects.clients if client != DRIVER)
        scheduler.handle(executor, [Returned(id, [Value(b"", Stored(0, number * SIZE, SIZE))], 1)], number)
        scheduler.handle(DRIVER, [Released([small, before] if shape == SHAPES[2] else [small])], number)
        scheduler.decide(number)
        before = id
    scheduler.state.history.clear()
    gc.collect()
    bytes_used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return bytes_used, scheduler.state.lineage_bytes


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineage")
    parser.add_argument("--calls", type=int, default=20_000)
    calls = parser.parse_args().calls
    for shape in SHAPES:
        (kept, counted), (without, _) = used(calls, shape, 3), used(calls, shape, 0)
        each = (kept - without) / calls
        print(f"{shape}: {each:.0f} bytes for each call that is kept; it counts {counted / calls:.0f}")


if __name__ == "__main__":
    main()

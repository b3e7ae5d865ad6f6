"""How many calls of a function a second, one by one and with `f.map`?

    python -m benchmarks.mapping                 # plainly, with two CPUs
    python -m benchmarks.mapping --calls 100000

The ways take turns, round by round, in one job, so that a busy machine slows them all; figures are medians. Beside them
are the process pool of the standard library, with chunks of the size that `map` uses for cheap calls, the pool of
`multiprocessing` with its own chunks, and ours of the same name.
"""

import argparse
import multiprocessing
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

import mpi_runtime
from benchmarks.launching import machine
from mpi_runtime.core.calls.chunks import CALLS_MAX
from mpi_runtime.util.multiprocessing import Pool

CPUS = 2
ROUNDS = 5
ONE_BY_ONE_SHARE = 50
"""One by one so many times fewer calls are made: a rate needs no more."""


def empty(number: int) -> None:
    """The function."""


def drained(results: Iterable[object]) -> int:
    """Read all results; how many there were."""
    return sum(1 for _ in results)


def main() -> None:
    """Measure each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500_000, help="how many calls in one round (500000)")
    calls = parser.parse_args().calls
    few = max(1, calls // ONE_BY_ONE_SHARE)
    print(f"{machine()}\nmedians of {ROUNDS} rounds of {calls:,} calls ({few:,} one by one), {CPUS} CPUs\n")
    with (
        ProcessPoolExecutor(CPUS) as pool,
        multiprocessing.get_context("fork").Pool(CPUS) as plain_pool,  # before there are threads
        mpi_runtime.init(num_cpus=CPUS),
        Pool(CPUS) as our_pool,
    ):
        task = mpi_runtime.remote(empty)
        ways: dict[str, Callable[[], int]] = {
            "one by one": lambda: len(mpi_runtime.get([task.remote(n) for n in range(few)])),
            "map of a range, .get()": lambda: len(task.map(range(calls)).get()),
            "map of a range, iterated": lambda: drained(task.map(range(calls))),
            "map of a generator, iterated": lambda: drained(task.map(n for n in range(calls))),
            "map of a range, .as_completed()": lambda: drained(task.map(range(calls)).as_completed()),
            "multiprocessing.Pool.map": lambda: len(plain_pool.map(empty, range(calls))),
            "our util.multiprocessing.Pool.map": lambda: len(our_pool.map(empty, range(calls))),
            f"process pool, chunks of {CALLS_MAX}": lambda: drained(pool.map(empty, range(calls), chunksize=CALLS_MAX)),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS + 1):
            for name, way in ways.items():
                started = perf_counter()
                made = way()
                if number:  # the first round warms up
                    rates[name].append(made / (perf_counter() - started))
    for name, found in rates.items():
        print(f"{name:34} {statistics.median(found):>12,.0f} /s  ({min(found):,.0f} - {max(found):,.0f})")


if __name__ == "__main__":
    main()

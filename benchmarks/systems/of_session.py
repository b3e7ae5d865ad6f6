"""A program that uses workers which run already: connects, measures, prints a line of JSON for each work.

    python of_session.py mpi_runtime session:NAME | ray auto | dask ADDRESS | executorlib -

It needs nothing but the system, so that it runs in the environment of each.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

ROUND_TRIPS = 100
TASKS_MAX = 10_000
TASKS_S = 2.0
"""Seconds that the empty tasks may take: fewer than `TASKS_MAX` in a slower system."""
SIZES = {"1 MB": (1_000_000, 20), "100 MB": (100_000_000, 3)}
"""Bytes there and back, and how often at most."""
LARGE_S = 6.0
"""Seconds after which a size is not moved again."""

System = tuple[Callable[[Any], Any], Callable[[list[Any]], list[Any]], Callable[[Any], Any]]
"""Submits a call of `echo`; waits for the results; makes a large value known first, where that is the quicker way."""


def echo(value: Any) -> Any:
    """All that a task does."""
    return value


def with_rays_names(package: Any, address: str, **options: object) -> System:
    """Ray, or this project."""
    package.init(address, **options)
    return package.remote(echo).remote, package.get, package.put


def with_dask(client_class: Any, address: str) -> System:
    """Dask, whose scheduler dask-jobqueue has started."""
    client = client_class(address)
    return (
        lambda value: client.submit(echo, value, pure=False),
        client.gather,
        lambda value: client.scatter(value, hash=False),
    )


def with_executorlib(executor_class: Any) -> System:
    """In an allocation of Slurm. It cannot connect to workers of another program: these begin with it."""
    executor = executor_class(max_workers=2, block_allocation=True)
    return lambda value: executor.submit(echo, value), lambda ones: [one.result() for one in ones], echo


def opener(name: str, address: str) -> Callable[[], System]:
    """What connects, with its imports done."""
    if name == "mpi_runtime":
        import mpi_runtime

        return lambda: with_rays_names(mpi_runtime, address, quiet=True)
    if name == "ray":
        import ray  # type: ignore[import-not-found]

        return lambda: with_rays_names(ray, address, log_to_driver=False, logging_level="ERROR")
    if name == "dask":
        import distributed  # type: ignore[import-untyped,unused-ignore]

        return lambda: with_dask(distributed.Client, address)
    import executorlib  # type: ignore[import-not-found]

    return lambda: with_executorlib(executorlib.SlurmJobExecutor)


def emit(work: str, seconds: float) -> None:
    """Print the seconds of one operation."""
    print(json.dumps({"work": work, "seconds": seconds}), flush=True)


def median(run: Callable[[], object], times: int) -> float:
    """Seconds of a run."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def main() -> None:
    """Connect and measure."""
    connect = opener(*sys.argv[1:3])
    begin = time.perf_counter()
    submit, wait, known = connect()
    emit("connect", time.perf_counter() - begin)
    wait([submit(0)])
    emit("first", time.perf_counter() - begin)
    wait([submit(number) for number in range(20)])  # all workers have begun
    round_trip = median(lambda: wait([submit(0)]), ROUND_TRIPS)
    emit("round trip", round_trip)
    probe = median(lambda: wait([submit(number) for number in range(100)]), 1) / 100
    count = max(100, min(TASKS_MAX, int(TASKS_S / probe)))
    emit("tasks", median(lambda: wait([submit(number) for number in range(count)]), 1) / count)
    for title, (size, times) in SIZES.items():
        value = random.randbytes(size)

        def there_and_back(value: bytes = value, size: int = size) -> None:
            (found,) = wait([submit(known(value))])
            assert len(found) == size

        end_s = time.perf_counter() + LARGE_S
        found = [median(there_and_back, 1)]
        while len(found) <= times and time.perf_counter() < end_s:
            found.append(median(there_and_back, 1))
        emit(title, statistics.median(found[1:] or found))  # in memory that was used before, if there is time


if __name__ == "__main__":
    main()

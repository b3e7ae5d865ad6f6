"""Dask's distributed scheduler with two worker processes of one thread each."""

import logging

import numpy as np

from benchmarks.launching import emit
from benchmarks.systems import work
from benchmarks.systems.work import Work, clock

try:
    from distributed import Client, LocalCluster
except ImportError as error:
    work.missing(error)


class Counter:
    """The actor whose calls are counted."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> None:
        """Change a little state."""
        self.value += 1


def works(client: "Client") -> dict[str, Work]:
    """All work; `scatter` and `gather` stand for put and get."""
    counter = client.submit(Counter, actor=True).result()
    array = np.ones(work.LARGE_BYTES // 8)
    small = b"x" * 100

    def tasks(count: int) -> float:
        started = clock()
        client.gather([client.submit(work.empty, pure=False) for _ in range(count)])
        return clock() - started

    def actor_calls(count: int) -> float:
        started = clock()
        for call in [counter.add() for _ in range(count)]:
            call.result()
        return clock() - started

    def get(value: object, count: int) -> float:
        seconds = 0.0
        for _ in range(count):
            future = client.scatter(value, hash=False)
            started = clock()
            future.result()
            seconds += clock() - started
        return seconds

    return {
        "tasks": tasks,
        "task": work.repeated(lambda: client.submit(work.empty, pure=False).result()),
        "actor_calls": actor_calls,
        "actor_call": work.repeated(lambda: counter.add().result()),
        "put_small": work.repeated(lambda: client.scatter(small, hash=False)),
        "get_small": lambda count: get(small, count),
        "put_large": work.repeated(lambda: client.scatter(array, hash=False)),
        "get_large": lambda count: get(array, count),
    }


if __name__ == "__main__":
    emit(versions=work.found("distributed"))
    started = clock()
    cluster = LocalCluster(
        n_workers=work.WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    with cluster, Client(cluster) as client:
        client.submit(work.empty).result()
        emit(work="start", count=1, seconds=clock() - started)
        work.run(works(client))

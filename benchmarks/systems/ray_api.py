"""The work in the names of Ray's core API, which this project shares with Ray: one text for both."""

from typing import Any

import numpy as np

from benchmarks.systems import ray_shapes
from benchmarks.systems.work import LARGE_BYTES, Work, clock, empty, repeated


class Counter:
    """The actor whose calls are counted."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> None:
        """Change a little state."""
        self.value += 1


def works(ray: Any) -> dict[str, Work]:
    """All work, done through the module `ray`, which has been initialised."""
    task = ray.remote(empty)
    counter = ray.remote(Counter).remote()
    array = np.ones(LARGE_BYTES // 8)
    small = b"x" * 100

    def tasks(count: int) -> float:
        started = clock()
        ray.get([task.remote() for _ in range(count)])
        return clock() - started

    def actor_calls(count: int) -> float:
        started = clock()
        ray.get([counter.add.remote() for _ in range(count)])
        return clock() - started

    def put_small(count: int) -> float:
        started = clock()
        refs = [ray.put(small) for _ in range(count)]
        seconds = clock() - started
        assert len(set(refs)) == count
        return seconds

    def get_small(count: int) -> float:
        refs = [ray.put(small) for _ in range(count)]
        started = clock()
        for ref in refs:
            ray.get(ref)
        return clock() - started

    def put_large(count: int) -> float:
        seconds = 0.0
        for _ in range(count):
            started = clock()
            ref = ray.put(array)
            seconds += clock() - started
            del ref
        return seconds

    def get_large(count: int) -> float:
        seconds = 0.0
        for _ in range(count):
            ref = ray.put(array)
            started = clock()
            value = ray.get(ref)
            seconds += clock() - started
            assert value.nbytes == array.nbytes
            del value, ref
        return seconds

    return {
        "tasks": tasks,
        "task": repeated(lambda: ray.get(task.remote())),
        "actor_calls": actor_calls,
        "actor_call": repeated(lambda: ray.get(counter.add.remote())),
        "put_small": put_small,
        "get_small": get_small,
        "put_large": put_large,
        "get_large": get_large,
        **ray_shapes.works(ray),
    }

"""Moving average over 1000 series of 1000 points: how to cut work into tasks.

One task for everything gains nothing; a task for each series gains, but pays for a thousand calls and sends each series
on its own; a few tasks that read their share of one array, put once, is what a good user writes.

    python examples/moving_average.py
    mpi-runtime run -n 4 examples/moving_average.py
"""

import itertools
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import mpi_runtime

mpi_runtime.init()

Array = npt.NDArray[np.float64]
WINDOW = 10


def smooth_one(series: Array) -> Array:
    """For each point the mean of it and the nine before it; plain Python on purpose, so that it takes time."""
    points = series.tolist()
    means = [sum(points[max(0, end - WINDOW) : end]) / min(end, WINDOW) for end in range(1, len(points) + 1)]
    return np.array(means)


def smooth_all(table: Array) -> Array:
    return np.array([smooth_one(series) for series in table])


@mpi_runtime.remote
def smooth_rows(table: Array, first: int, last: int) -> Array:
    """The table arrives as a view of shared memory: taking rows of it copies nothing."""
    return smooth_all(table[first:last])


def with_one_task() -> Array:
    smoothed: Array = mpi_runtime.get(mpi_runtime.remote(smooth_all).remote(table))
    return smoothed


def with_a_task_for_each_series() -> Array:
    smooth = mpi_runtime.remote(smooth_one)
    return np.array(mpi_runtime.get([smooth.remote(series) for series in table]))


def with_a_few_tasks_on_shared_data() -> Array:
    shared = mpi_runtime.put(table)
    bounds = np.linspace(0, len(table), 4 * cpus + 1).astype(int).tolist()
    refs = [smooth_rows.remote(shared, first, last) for first, last in itertools.pairwise(bounds)]
    return np.concatenate(mpi_runtime.get(refs))


def report(name: str, compute: Callable[[], Array]) -> None:
    started = time.perf_counter()
    result = compute()
    seconds = time.perf_counter() - started
    assert np.array_equal(result, expected)
    print(f"{name:34} {seconds:6.2f} s   {serial_s / seconds:4.1f} x")


cpus = int(mpi_runtime.cluster_resources()["CPU"])
table = np.random.default_rng(seed=1).normal(size=(1000, 1000))

started = time.perf_counter()
expected = smooth_all(table)
serial_s = time.perf_counter() - started

print(f"1000 series of 1000 points, window {WINDOW}, {cpus} CPUs")
print(f"{'serial':34} {serial_s:6.2f} s   {1:4.1f} x")
report("one task for everything", with_one_task)
report("a task for each series", with_a_task_for_each_series)
report(f"{4 * cpus} tasks on shared data", with_a_few_tasks_on_shared_data)
print("all results equal the serial one")

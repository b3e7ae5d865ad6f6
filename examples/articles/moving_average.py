"""The moving average with the kernel of the article: numpy's mean of up to 11 points, for each point on its own.

    python moving_average.py          # 1000 series of 1000 points, as in the article
    python moving_average.py 50       # 50 series of 50 points

`examples/moving_average.py` shows how to cut the same work better.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import mpi_runtime

Array = npt.NDArray[np.float64]
SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
WINDOW = 10


def smooth_one(series: Array) -> Array:
    smoothed = np.zeros(len(series))
    for at in range(len(series)):
        smoothed[at] = np.mean(series[max(0, at - WINDOW) : at + 1])  # 11 points: at - 10 to at
    return smoothed


def smooth_all(table: Array) -> Array:
    return np.array([smooth_one(series) for series in table])


def main() -> None:
    mpi_runtime.init()
    table = np.random.default_rng(1).normal(size=(SIZE, SIZE))
    whole, row = mpi_runtime.remote(smooth_all), mpi_runtime.remote(smooth_one)
    ways: dict[str, Callable[[], Array]] = {
        "serial": lambda: smooth_all(table),
        "one task": lambda: mpi_runtime.get(whole.remote(table)),
        "a task for each series": lambda: np.array(mpi_runtime.get([row.remote(series) for series in table])),
    }
    print(f"{SIZE} series of {SIZE} points, {int(mpi_runtime.cluster_resources()['CPU'])} CPUs")
    results, serial_s = [], 0.0
    for name, compute in ways.items():
        started = time.perf_counter()
        results.append(compute())
        seconds = time.perf_counter() - started
        serial_s = serial_s or seconds
        print(f"{name:24} {seconds:8.4f} s, {serial_s / seconds:4.1f} times as fast")
    assert all(np.allclose(result, results[0]) for result in results)
    print("all results are equal")


if __name__ == "__main__":
    main()

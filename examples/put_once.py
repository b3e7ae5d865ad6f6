"""Put once: ten tasks that need the same array, handed to each of them, or put once and handed on by reference.

An array given as an argument is serialised for every call. An array that was put is serialised once; the calls carry
a reference of a few bytes, and every process of the host reads the same memory.

    python examples/put_once.py
    mpi-runtime run -n 4 examples/put_once.py
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

import mpi_runtime

mpi_runtime.init(num_cpus=2)


class CountedArray:
    """An array that counts how many of its bytes are serialised in this process."""

    serialised_bytes = 0

    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        CountedArray.serialised_bytes += self.values.nbytes
        return CountedArray, (self.values,)


@mpi_runtime.remote
def total(array: CountedArray, power: int) -> tuple[float, bool]:
    """The sum of powers, and whether the array is a view of memory that this process does not own."""
    return float((array.values**power).sum()), not array.values.flags.owndata


def run(argument: Any) -> tuple[list[float], bool]:
    answers = mpi_runtime.get([total.remote(argument, power) for power in range(1, 11)])
    sums, views = zip(*answers, strict=True)
    return list(sums), all(views)


array = CountedArray(np.random.default_rng(seed=3).uniform(size=1_000_000))
print(f"ten tasks on one array of {array.values.nbytes / 1e6:.0f} MB")
run(CountedArray(np.ones(1)))  # starts the processes, so that the times below are of the data alone

CountedArray.serialised_bytes = 0
started = time.perf_counter()
expected, _ = run(array)
seconds = time.perf_counter() - started
passed = CountedArray.serialised_bytes
print(f"passed ten times:                     {passed / 1e6:4.0f} MB serialised, {1000 * seconds:4.0f} ms")

CountedArray.serialised_bytes = 0
started = time.perf_counter()
sums, views = run(mpi_runtime.put(array))
seconds = time.perf_counter() - started
put = CountedArray.serialised_bytes
print(f"put once, reference passed ten times: {put / 1e6:4.0f} MB serialised, {1000 * seconds:4.0f} ms")
print(f"the tasks worked on {'views of shared memory' if views else 'copies'}")

assert sums == expected
assert passed == 10 * put == 10 * array.values.nbytes
assert views

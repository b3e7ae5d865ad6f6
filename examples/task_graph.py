"""Task graphs: references as arguments are dependencies; tasks may submit tasks.

First zeros, zeros, multiply: the product starts when both arrays are there, and they never pass through this
program. Then two experiments at once, each of many simulations: this works on a single CPU too, since a task that
waits gives its CPU back.

    python examples/task_graph.py
    mpi-runtime run -n 4 examples/task_graph.py
"""

import numpy as np
import numpy.typing as npt

import mpi_runtime

mpi_runtime.init()

Array = npt.NDArray[np.float64]


@mpi_runtime.remote
def zeros(rows: int, columns: int) -> Array:
    return np.zeros((rows, columns))


@mpi_runtime.remote
def identity(size: int) -> Array:
    return np.eye(size)


@mpi_runtime.remote
def add(left: Array, right: Array) -> Array:
    return left + right


@mpi_runtime.remote
def multiply(left: Array, right: Array) -> Array:
    return left @ right


@mpi_runtime.remote
def simulate(seed: int, steps: int, drift: float) -> float:
    """Where a random walk ends."""
    return float(np.random.default_rng(seed).normal(loc=drift, size=steps).sum())


@mpi_runtime.remote
def experiment(drift: float, simulations: int) -> tuple[float, float]:
    """Submit the simulations from inside a task; the mean of their ends, and its standard error."""
    ends = mpi_runtime.get([simulate.remote(seed, 400, drift) for seed in range(simulations)])
    return float(np.mean(ends)), float(np.std(ends) / np.sqrt(simulations))


product = mpi_runtime.get(multiply.remote(zeros.remote(100, 100), zeros.remote(100, 100)))
print(f"zeros * zeros: {product.shape[0]} x {product.shape[1]}, sum {product.sum():.0f}")
assert product.shape == (100, 100)
assert not product.any()

# A graph need not be known beforehand: (I + I) multiplied by itself ten times, each step on the reference before it.
twice = add.remote(identity.remote(50), identity.remote(50))
power = twice
for _ in range(9):
    power = multiply.remote(power, twice)
trace = np.trace(mpi_runtime.get(power))
print(f"chain of ten:  trace of (2 I)^10 = {trace:.0f} = 50 * 2^10")
assert trace == 50 * 2**10

drifts = [0.0, 0.5]
outcomes = mpi_runtime.get([experiment.remote(drift, 100) for drift in drifts])
for drift, (mean, error) in zip(drifts, outcomes, strict=True):
    print(f"experiment:    drift {drift:.1f}, 100 walks of 400 steps end at {mean:6.1f} +- {error:.1f}")
    assert abs(mean - 400 * drift) < 5 * error

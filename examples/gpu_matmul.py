"""Products of matrices on GPUs: one large product over all of them, many small ones on shares, actors that keep theirs.

With cupy on the GPUs that are found. Where there is no GPU, or no cupy, the same tasks compute with numpy on CPUs, so
the program can be tried out anywhere:

    python examples/gpu_matmul.py            # n = 1024
    mpirun -n 5 python examples/gpu_matmul.py 16384
"""

import itertools
import sys
import time
from typing import Any

import numpy as np

import mpi_runtime

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1024

mpi_runtime.init(num_cpus=4)
gpus = int(mpi_runtime.cluster_resources().get("GPU", 0))
types = [name.partition(":")[2] for name in mpi_runtime.cluster_resources() if name.startswith("accelerator_type:")]


def library() -> Any:
    """What to compute with in this task: cupy if it has a GPU and there is a cupy that can use it, else numpy."""
    if mpi_runtime.get_gpu_ids():
        try:
            import cupy

            return cupy if cupy.cuda.is_available() else np
        except ImportError:
            pass
    return np


def on_host(array: Any) -> Any:
    """A numpy array: results leave a task through the memory of its host."""
    return array if isinstance(array, np.ndarray) else array.get()


@mpi_runtime.remote
def name_of_library() -> str:
    return str(library().__name__)


@mpi_runtime.remote
def multiply(a: Any, b: Any) -> Any:
    """A tile of the product. The blocks lie in shared memory, and are copied to the device from there."""
    xp = library()
    return on_host(xp.asarray(a) @ xp.asarray(b))


@mpi_runtime.remote
def small(seed: int) -> float:
    """One of many that need a GPU for a moment only, and little of it."""
    xp = library()
    a = xp.asarray(np.random.default_rng(seed).random((64, 64), dtype=np.float32))
    return float((a @ a).sum())


@mpi_runtime.remote
class Squarer:
    """Keeps its GPUs as long as it lives, and what it has put there."""

    def __init__(self) -> None:
        self.xp = library()
        self.calls = 0

    def square(self, a: Any) -> Any:
        self.calls += 1
        a = self.xp.asarray(a)
        return on_host(a @ a)

    def about(self) -> tuple[list[int], int]:
        return mpi_runtime.get_gpu_ids(), self.calls


@mpi_runtime.remote
def read(seed: int) -> Any:
    """Stands for reading and preparing a batch on CPUs."""
    return np.random.default_rng(seed).random((128, 128), dtype=np.float32)


whole: Any = {"num_gpus": 1} if gpus else {}
share: Any = {"num_gpus": 0.25} if gpus else {}
used = mpi_runtime.get(name_of_library.options(**whole).remote())
print(f"{gpus} GPU(s) of types {types}; tasks compute with {used}")

# One large product, in tiles of rows of A and columns of B: each block is put once and read by all tasks of its host.
a, b = (np.random.default_rng(seed).random((N, N), dtype=np.float32) for seed in (1, 2))
parts = 4
rows = [mpi_runtime.put(block) for block in np.split(a, parts)]
columns = [mpi_runtime.put(np.ascontiguousarray(block)) for block in np.split(b, parts, axis=1)]
started = time.perf_counter()
tiles = [multiply.options(**whole).remote(row, column) for row, column in itertools.product(rows, columns)]
product = np.block([mpi_runtime.get(tiles[at : at + parts]) for at in range(0, parts**2, parts)])
seconds = time.perf_counter() - started
print(f"{N} x {N} in {parts**2} tiles: {2 * N**3 / seconds / 1e12:.3f} TFLOP/s, the copies included")
assert np.allclose(product, a @ b, rtol=1e-3)

# Many small ones: four tasks share a GPU. A share is a promise to the scheduler; the device does not enforce it.
sums = mpi_runtime.get([small.options(**share).remote(seed) for seed in range(40)])
print(f"40 small products on shares, sum of all {sum(sums):.0f}")

# Two actors with a GPU each, fed by tasks on CPUs: a batch is read while the one before is computed.
keep: Any = {"num_gpus": 1} if gpus >= 2 else share
actors = [Squarer.options(**keep).remote() for _ in range(2)]
results = [actors[seed % 2].square.remote(read.remote(seed)) for seed in range(10)]
assert all(result.shape == (128, 128) for result in mpi_runtime.get(results))
for number, (ids, calls) in enumerate(mpi_runtime.get([actor.about.remote() for actor in actors])):
    print(f"actor {number} with GPU {ids}: {calls} batches")
del actors

# An actor with several GPUs has those that are linked best.
if gpus >= 2:
    pair = Squarer.options(num_gpus=2).remote()
    ids, _ = mpi_runtime.get(pair.about.remote())
    print(f"an actor with two GPUs has {ids}")

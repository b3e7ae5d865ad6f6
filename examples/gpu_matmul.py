"""Tasks on GPUs: one large product of matrices over all of the cluster, and many small ones that share a GPU.

With cupy on the GPUs that are found, however many. Where there is no GPU, or no cupy, the same tasks compute with numpy
on CPUs, so the program can be tried out anywhere:

    python examples/gpu_matmul.py            # n = 1024
    mpirun -n 5 python examples/gpu_matmul.py 16384
"""

import itertools
import os
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

import mpi_runtime

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1024

mpi_runtime.init()
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
    """A numpy array: results leave a task through the memory of its host, and are to be read where no GPU is."""
    return array if isinstance(array, np.ndarray) else array.get()


def device() -> str:
    """Where this task computes: the node's number of each GPU that it was given, in the order of CUDA's ordinals."""
    return f"{os.uname().nodename} GPU {mpi_runtime.get_gpu_ids()}" if mpi_runtime.get_gpu_ids() else "CPUs"


@mpi_runtime.remote(num_returns=2)
def tile(*blocks: Any) -> tuple[Any, str]:
    """A tile of the product: the sum of A[i, k] @ B[k, j] over k. The blocks A[i, :] come first, then B[:, j].

    They lie in shared memory. Only one pair and the tile itself are on the device at a time, so the matrices may be
    larger than its memory.
    """
    xp = library()
    half = len(blocks) // 2
    total = xp.asarray(blocks[0]) @ xp.asarray(blocks[half])
    for a, b in zip(blocks[1:half], blocks[half + 1 :], strict=True):
        total += xp.asarray(a) @ xp.asarray(b)
    return on_host(total), device()


@mpi_runtime.remote
def small(seed: int, share: float) -> tuple[float, str]:
    """One of many that need a GPU for a moment only, and little of it."""
    xp = library()
    if xp is not np:
        # A share is a promise to the scheduler, which the device does not enforce: this holds us to it.
        xp.get_default_memory_pool().set_limit(fraction=share)
    a = xp.asarray(np.random.default_rng(seed).random((64, 64), dtype=np.float32))
    return float((a @ a).sum()), device()


@mpi_runtime.remote
def name_of_library() -> str:
    return str(library().__name__)


# A task waits for its GPU most of the time: it asks for no processor of its own, so that all GPUs are used at once.
whole: Any = {"num_gpus": 1, "num_cpus": 0} if gpus else {}
share: Any = {"num_gpus": 0.25, "num_cpus": 0} if gpus else {}
used = mpi_runtime.get(name_of_library.options(**whole).remote())
print(f"{gpus} GPU(s) of types {types}; tasks compute with {used}")

# One large product. Each matrix is cut into parts x parts blocks, with two tiles or more for each GPU. A block is put
# once, and read from there by all tasks that need it.
parts = 2
while parts**2 < 2 * gpus:
    parts += 1
a, b = (np.random.default_rng(seed).random((N, N), dtype=np.float32) for seed in (1, 2))
blocks_a, blocks_b = (
    [[mpi_runtime.put(block) for block in np.array_split(row, parts, axis=1)] for row in np.array_split(whole, parts)]
    for whole in (a, b)
)
started = time.perf_counter()
tiles, places = [], []
for i, j in itertools.product(range(parts), repeat=2):
    made, place = tile.options(**whole).remote(*blocks_a[i], *(row[j] for row in blocks_b))
    tiles.append(made)
    places.append(place)
product = np.block([mpi_runtime.get(tiles[at : at + parts]) for at in range(0, parts**2, parts)])
seconds = time.perf_counter() - started
print(f"{N} x {N} in {parts**2} tiles: {2 * N**3 / seconds / 1e12:.3f} TFLOP/s, the copies included")
for place, count in sorted(Counter(mpi_runtime.get(places)).items()):
    print(f"  {count} tiles on {place}")
# Is it the product? For a vector x that is asked in n² steps: (A B) x = A (B x).
x = np.random.default_rng(3).random(N)
assert np.allclose(product @ x, a @ (b @ x), rtol=1e-3)
print("the product is right")

# Many small ones: four tasks at a time share a GPU.
results = mpi_runtime.get([small.options(**share).remote(seed, 0.25) for seed in range(40)])
for seed, (total, _) in enumerate(results):
    matrix = np.random.default_rng(seed).random((64, 64), dtype=np.float32)
    assert np.isclose(total, (matrix @ matrix).sum(), rtol=1e-3)
shares = sorted(Counter(place for _, place in results).items())
print("40 small products on shares:", ", ".join(f"{count} on {place}" for place, count in shares))

"""Actors on GPUs: one that uses two of them, and a pipeline in which tasks on CPUs prepare what actors on GPUs compute.

With cupy on the GPUs that are found. Where there is no GPU, or no cupy, the same actors compute with numpy on CPUs:

    python examples/gpu_actors.py
    mpirun -n 5 python examples/gpu_actors.py 1000       # batches
"""

import contextlib
import os
import sys
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

import mpi_runtime

BATCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 30
IN_FLIGHT = 2
"""Batches for each actor that are being prepared, wait or are computed: while it computes one, the next is made."""

mpi_runtime.init()
gpus = int(mpi_runtime.cluster_resources().get("GPU", 0))


def library() -> Any:
    """What to compute with in this process: cupy if it has a GPU and there is a cupy that can use it, else numpy."""
    with contextlib.suppress(ImportError):
        import cupy

        if mpi_runtime.get_gpu_ids() and cupy.cuda.is_available():
            return cupy
    return np


@mpi_runtime.remote
class Halves:
    """A matrix in parts, each on a GPU of its own: for what is too large for one."""

    def __init__(self, matrix: Any) -> None:
        self.xp = library()
        # Of this process's devices the first is cuda:0, the second cuda:1, whatever numbers the node has for them.
        self.gpus = list(zip(mpi_runtime.get_gpu_ids(), mpi_runtime.get_gpus(), strict=True))
        self.parts = []
        for ordinal, part in enumerate(np.array_split(matrix, max(1, len(self.gpus)))):
            with self.on(ordinal):
                self.parts.append(self.xp.asarray(part))

    def on(self, ordinal: int) -> Any:
        """Have cupy use this device within the block."""
        return contextlib.nullcontext() if self.xp is np else self.xp.cuda.Device(ordinal)

    def times(self, x: Any) -> Any:
        """The product. All devices are told to begin before the result of the first is awaited."""
        products = []
        for ordinal, part in enumerate(self.parts):
            with self.on(ordinal):
                products.append(part @ self.xp.asarray(x))
        if self.xp is np:
            return np.concatenate(products)
        return np.concatenate([product.get() for product in products])

    def about(self) -> str:
        where = [f"GPU {id} ({gpu.name}) as cuda:{ordinal}" for ordinal, (id, gpu) in enumerate(self.gpus)]
        return f"{' and '.join(where) or 'CPUs'}, with {self.xp.__name__}"


def batch(number: int) -> Any:
    """Stands for what is read and prepared."""
    return np.random.default_rng(number).random((128, 128), dtype=np.float32)


prepare = mpi_runtime.remote(batch)


@mpi_runtime.remote
class Scorer:
    """Keeps its GPU, and the weights that it has put there, as long as it lives."""

    def __init__(self, weights: Any) -> None:
        self.xp = library()
        self.weights = self.xp.asarray(weights)

    def score(self, data: Any) -> tuple[float, str]:
        """A number for a batch, and where it was made."""
        ids = mpi_runtime.get_gpu_ids()
        score = float((self.xp.asarray(data) @ self.weights).sum())
        return score, f"{os.uname().nodename} GPU {ids}" if ids else f"CPUs, process {os.getpid()}"


def scores(actors: list[Any], batches: int) -> Iterator[tuple[int, float, str]]:
    """Yield the results as they come: number of the batch, score, place.

    Back-pressure: a batch is begun only when an actor has less than IN_FLIGHT of them, so a slow GPU, or a slow reader
    of these results, keeps tasks from filling memory with batches. The quicker actor gets more of them.
    """
    numbers, free = deque(range(batches)), deque(actors * IN_FLIGHT)
    running: dict[Any, tuple[int, Any]] = {}
    while numbers or running:
        while numbers and free:
            number, actor = numbers.popleft(), free.popleft()
            # The reference goes to the actor, the batch from shared memory to its GPU: never through this process.
            running[actor.score.remote(prepare.remote(number))] = number, actor
        (done,), _ = mpi_runtime.wait(list(running))
        number, actor = running.pop(done)
        free.append(actor)
        yield (number, *mpi_runtime.get(done))


matrix = np.random.default_rng(1).random((1000, 500), dtype=np.float32)
x = np.random.default_rng(2).random(500, dtype=np.float32)
# Two of one node, which are those that are linked best; or what there is.
most = int(max(node["Resources"].get("GPU", 0) for node in mpi_runtime.nodes()))
pair = Halves.options(num_gpus=min(2, most)).remote(mpi_runtime.put(matrix))
assert np.allclose(mpi_runtime.get(pair.times.remote(x)), matrix @ x, rtol=1e-3)
print(f"{gpus} GPU(s); a product in parts on {mpi_runtime.get(pair.about.remote())}")
del pair  # its GPUs are free when its process is gone

weights = np.random.default_rng(3).random((128, 16), dtype=np.float32)
put = mpi_runtime.put(weights)
actors = [Scorer.options(num_gpus=1 if gpus else 0).remote(put) for _ in range(gpus or 2)]
places: Counter[str] = Counter()
for number, score, place in scores(actors, BATCHES):
    assert np.isclose(score, (batch(number) @ weights).sum(), rtol=1e-3)
    places[place] += 1
print(f"{places.total()} batches, at most {IN_FLIGHT * len(actors)} of them in flight")
for place, count in sorted(places.items()):
    print(f"  {count} on {place}")

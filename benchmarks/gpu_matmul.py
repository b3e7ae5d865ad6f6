"""What does a GPU task cost beside the same product in a bare loop, and what is a warm executor worth?

Products of two matrices that lie on the device already, as tasks and in a loop inside one task, which is what a bare
program with cupy does: `python -m benchmarks.gpu_matmul`, with `--quick` to see that it runs. Where there is no GPU, or
no cupy that can use it, the same program computes with numpy on a CPU and says so: its logic is tested, not its speed.
"""

import argparse
import itertools
import time
from collections import deque
from statistics import mean, median
from typing import Any

import mpi_runtime as ray

SIZES = {"cupy": (1024, 2048, 4096, 8192, 16384), "numpy": (64, 128)}
TYPES = {"cupy": ("float32", "float16"), "numpy": ("float32",)}
TASKS = 50
SHARES = (1, 2, 4, 8)
WINDOW_S, AHEAD_S = 2.0, 0.2
"""How long processes that share a GPU work, all at the same time; and how soon after they have been told to."""
QUICK = 64
_operands: dict[tuple[int, str], tuple[Any, Any]] = {}
"""What lies on the device, in the process of an executor."""


def library() -> Any:
    """Cupy if this task has a GPU and cupy can use it, else numpy."""
    if ray.get_gpu_ids():
        try:
            import cupy
        except ImportError:
            pass
        else:
            if cupy.cuda.is_available():
                return cupy
    import numpy

    return numpy


def finish(xp: Any) -> None:
    """Wait until the device has done what it was told."""
    if xp.__name__ == "cupy":
        xp.cuda.Device().synchronize()


def operands(n: int, kind: str) -> tuple[Any, Any]:
    """Two matrices with random content, made once in a process."""
    if (n, kind) not in _operands:
        import numpy

        xp = library()
        _operands.clear()  # there may be room for one pair only
        made = (numpy.random.default_rng(seed).random((n, n), dtype=numpy.float32).astype(kind) for seed in (1, 2))
        first, second = (xp.asarray(one) for one in made)
        _operands[n, kind] = first, second
    return _operands[n, kind]


@ray.remote(num_cpus=0)
def loop(n: int, kind: str, count: int) -> float:
    """Seconds for one product in a bare loop, each awaited."""
    xp = library()
    a, b = operands(n, kind)
    _ = a @ b  # the library's own start
    finish(xp)
    start = time.perf_counter()
    for _ in range(count):
        _ = a @ b
        finish(xp)
    return (time.perf_counter() - start) / count


@ray.remote(num_cpus=0)
class Sharer:
    """A process that has a share, makes its matrices first, and works when all others can, too."""

    def __init__(self, n: int, kind: str) -> None:
        self._pair, self._xp = operands(n, kind), library()
        self._once()

    def _once(self) -> None:
        _ = self._pair[0] @ self._pair[1]
        finish(self._xp)

    def ready(self) -> None:
        """Return when it is."""

    def rate(self, begin_s: float) -> tuple[float, float, float]:
        """Products a second in a window that begins then, by the clock of the host; when it really began and ended."""
        time.sleep(max(0.0, begin_s - time.time()))
        begun, count = time.time(), 0
        while time.time() < begin_s + WINDOW_S:
            self._once()
            count += 1
        return count / (time.time() - begun), begun, time.time()


def shared(parts: int, n: int, options: dict[str, Any]) -> float:
    """Products a second of so many processes together, in one window of time for all of them.

    Raises:
        RuntimeError: they did not run at the same time.
    """
    sharers = [Sharer.options(**options).remote(n, "float32") for _ in range(parts)]
    ray.get([one.ready.remote() for one in sharers])
    begin_s = time.time() + AHEAD_S
    found = ray.get([one.rate.remote(begin_s) for one in sharers])
    if max(begun for _, begun, _ in found) > min(ended for _, _, ended in found):
        raise RuntimeError(f"{parts} processes did not run at the same time: {found}")
    for one in sharers:
        ray.kill(one)
    return float(sum(rate for rate, _, _ in found))


@ray.remote(num_cpus=0)
def product(n: int, kind: str) -> str:
    """One product; which library made it."""
    xp = library()
    a, b = operands(n, kind)
    _ = a @ b
    finish(xp)
    return str(xp.__name__)


def by_task(n: int, kind: str, count: int, depth: int, options: dict[str, Any]) -> list[float]:
    """Seconds for each product as a task, with so many tasks in flight: each is asked for as one before it ends."""
    task = product.options(**options)
    ray.get([task.remote(n, kind) for _ in range(3)])
    waiting = deque(task.remote(n, kind) for _ in range(depth))
    seconds, start = [], time.perf_counter()
    for _ in range(count):
        ray.get(waiting.popleft())
        now = time.perf_counter()
        seconds.append(now - start)
        start = now
        waiting.append(task.remote(n, kind))
    ray.get(list(waiting))
    return seconds


def cold(number: int, options: dict[str, Any]) -> float:
    """Seconds for a small product in a process that has to be started for it."""
    other = {"env_vars": {"MPI_RUNTIME_BENCHMARK": str(number)}}
    start = time.perf_counter()
    ray.get(product.options(runtime_env=other, **options).remote(64, "float32"))
    return time.perf_counter() - start


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a size that says nothing, to see that it runs")
    quick = parser.parse_args().quick
    ray.init(resources={"lane": 1})
    has_gpus = bool(ray.cluster_resources().get("GPU"))
    # One lane: however many devices or processors there are, one process at a time computes.
    whole: dict[str, Any] = {"resources": {"lane": 1}, **({"num_gpus": 1} if has_gpus else {})}
    used = ray.get(product.options(**whole).remote(64, "float32"))
    if not has_gpus:
        print("skipped: GPUs. There is none here; what follows is numpy on a CPU, and says nothing of GPUs")
    elif used == "numpy":
        print("skipped: cupy. It is not installed or cannot use the GPU; what follows is numpy on a CPU")
    else:
        names = ray.get(ray.remote(lambda: [gpu.name for gpu in ray.get_gpus()]).options(**whole).remote())
        print(f"cupy on {names[0]}")
    sizes, count = (QUICK,) if quick else SIZES[used], 5 if quick else TASKS
    # Two in flight: the second lies at the executor already when the first ends.
    print("     n type          loop    1 in flight  ratio  2 in flight  ratio   TFLOP/s  overhead (99 %)")
    for n, kind in itertools.product(sizes, TYPES[used]):
        bare = ray.get(loop.options(**whole).remote(n, kind, count))
        ones = sorted(by_task(n, kind, count, 1, whole))
        one, two = median(ones), mean(by_task(n, kind, count, 2, whole))
        print(
            f"{n:6} {kind:8} {bare * 1e3:7.3f} ms  {one * 1e3:8.3f} ms {bare / one:6.3f}  {two * 1e3:8.3f} ms "
            f"{bare / two:6.3f} {2 * n**3 / two / 1e12:9.3f} {(one - bare) * 1e3:6.3f} ms "
            f"({(ones[len(ones) * 99 // 100] - bare) * 1e3:.3f} ms)"
        )
    print(f"cold executor: {median(cold(number, whole) for number in range(3)) * 1e3:.0f} ms to the first result")
    if not has_gpus:
        print("skipped: shares of a GPU")
        return
    one = 0.0
    for parts in SHARES[: 2 if quick else None]:
        rate = shared(parts, sizes[0], {"num_gpus": 1 / parts})
        one = one or rate
        print(f"{parts} process(es) with 1/{parts} each: {rate:.0f} products/s, {rate / one:.2f} of one process")


if __name__ == "__main__":
    main()

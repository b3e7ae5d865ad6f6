"""Matrix products in a loop and as tasks: each call makes 100 products of 1000 x 1000, for 1, 2, ... calls.

    python matrix_products.py                     # the sizes of the article; takes minutes
    python matrix_products.py 200 5 1,2,4         # size, products in a call, numbers of calls
    python matrix_products.py 200 5 1,2,4 a.png   # with the curve; needs matplotlib

A product by numpy uses all cores by default, and the loop with it. So both sides get one thread for each product.
"""

import os
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # after the number of threads is set

import mpi_runtime

SIZE, PRODUCTS = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 1000), (2, 100)))
COUNTS = [int(word) for word in (sys.argv[3] if len(sys.argv) > 3 else "1,2,3,4,6,8").split(",")]
PICTURE = sys.argv[4] if len(sys.argv) > 4 else ""


def products(seed: int) -> float:
    rng = np.random.default_rng(seed)
    a, b = (rng.random((SIZE, SIZE)) for _ in range(2))
    total = 0.0
    for _ in range(PRODUCTS):
        total += float((a @ b)[0, 0])
    return total


def timed(compute: Any) -> tuple[float, list[float]]:
    started = time.perf_counter()
    found = compute()
    return time.perf_counter() - started, found


def main() -> None:
    mpi_runtime.init()
    remote = mpi_runtime.remote(products)
    print(f"{int(mpi_runtime.cluster_resources()['CPU'])} CPUs, {PRODUCTS} products of {SIZE} x {SIZE} in a call")
    rows = []
    for count in COUNTS:
        serial_s, expected = timed(lambda count=count: [products(seed) for seed in range(count)])
        remote_s, found = timed(lambda count=count: mpi_runtime.get([remote.remote(seed) for seed in range(count)]))
        assert found == expected
        rows.append((count, serial_s, remote_s))
        faster = serial_s / remote_s
        print(f"{count:3} calls: loop {serial_s:7.2f} s, tasks {remote_s:7.2f} s, {faster:5.2f} times as fast")
    if PICTURE:
        draw(rows)


def draw(rows: list[tuple[int, float, float]]) -> None:
    from matplotlib.figure import Figure  # not at the top: only the curve needs it

    axes = Figure(figsize=(5, 3.2), layout="constrained").subplots()
    for column, label in ((1, "loop"), (2, "tasks")):
        axes.plot([row[0] for row in rows], [row[column] for row in rows], "o-", label=label)
    axes.set_xlabel("calls")
    axes.set_ylabel("seconds")
    axes.legend()
    axes.figure.savefig(PICTURE, dpi=80)


if __name__ == "__main__":
    main()

"""Solve the heat equation on gangs of MPI ranks, once for each diffusivity of a sweep.

Each rank has a strip of the plate and exchanges its border rows with its neighbours ("halo exchange"). A gang that has
solved one case is used again for the next. The result is compared with the exact solution.

    python examples/heat.py [--ranks 2] [--size 96]
"""

import argparse
import time
from typing import Any

import numpy

import mpi_runtime

STEPS = 400
COOLING_S = 0.01


def exchange(comm: Any, plate: numpy.ndarray[Any, Any]) -> None:
    """Send the outer rows of this rank's strip to its neighbours, and receive theirs."""
    from mpi4py import MPI

    above = comm.rank - 1 if comm.rank else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    comm.Sendrecv(plate[1], above, recvbuf=plate[-1], source=below)
    comm.Sendrecv(plate[-2], below, recvbuf=plate[0], source=above)


@mpi_runtime.remote
def solve(comm: Any, diffusivity: float, size: int) -> tuple[float, float]:
    """Cool a plate with cold edges. Return the temperature in its middle, and the largest error."""
    from mpi4py import MPI

    rows = numpy.arange(size * comm.rank // comm.size, size * (comm.rank + 1) // comm.size) + 1
    space, step = 1 / (size + 1), COOLING_S / STEPS
    shape = numpy.sin(numpy.pi * space * rows)[:, None] * numpy.sin(numpy.pi * space * numpy.arange(1, size + 1))
    plate = numpy.zeros((len(rows) + 2, size + 2))  # with a border of one row and one column
    plate[1:-1, 1:-1] = shape
    for _ in range(STEPS):
        exchange(comm, plate)
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] += diffusivity * step / space**2 * (around - 4 * plate[1:-1, 1:-1])
    exact = shape * numpy.exp(-2 * numpy.pi**2 * diffusivity * COOLING_S)
    error = comm.allreduce(float(abs(plate[1:-1, 1:-1] - exact).max()), MPI.MAX)
    return comm.allreduce(float(plate.max()), MPI.MAX), error


def main() -> None:
    """Solve all cases, two gangs at a time if there are CPUs for them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=96)
    chosen = parser.parse_args()
    mpi_runtime.init(num_cpus=max(4, chosen.ranks))
    start = time.perf_counter()
    cases = [0.1, 0.2, 0.4, 0.6]
    refs = [solve.options(num_ranks=chosen.ranks).remote(case, chosen.size) for case in cases]
    for case, (middle, error) in zip(cases, mpi_runtime.get(refs), strict=True):
        print(f"diffusivity {case}: {middle:.4f} in the middle, largest error {error:.1e}")
    print(f"{len(cases)} cases on gangs of {chosen.ranks} ranks took {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()

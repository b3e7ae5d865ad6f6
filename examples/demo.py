"""What `make demo` shows: a picture computed on all ranks, who computed it, and what the runtime costs, measured here.

    python examples/demo.py
    mpi-runtime run -n 8 examples/demo.py

Each row of the picture is a task, and tells an actor where it ran; the field of escape times is put once, and the tasks
that shade it all read that memory. Eight CPUs are promised, however many there are, so that several ranks take part.
"""

import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import mpi_runtime

program_started = time.perf_counter()
mpi_runtime.init(num_cpus=8)
print(f"started in {time.perf_counter() - program_started:.2f} s: ", end="")

Field = npt.NDArray[np.float32]
COLUMNS, ROWS, FINE_X, FINE_Y = 96, 30, 6, 12
"""The size of the picture in characters, and how many points make one."""
LEFT, RIGHT, BOTTOM, TOP = -2.2, 0.8, -1.2, 1.2
STEPS = 200
SHADES = " .,:;-=+*ox%X#@"


class Origin(NamedTuple):
    """Where a row was computed, and in how much CPU time."""

    row: int
    rank: int
    host: str
    pid: int
    cpu_s: float


@mpi_runtime.remote
class Ledger:
    """Collects what the tasks report."""

    def __init__(self) -> None:
        self.origins: dict[int, Origin] = {}

    def note(self, origin: Origin) -> None:
        self.origins[origin.row] = origin

    def read(self) -> list[Origin]:
        return [self.origins[row] for row in sorted(self.origins)]

    def count(self) -> int:
        return len(self.origins)


@mpi_runtime.remote
def escape_times(row: int, ledger: Any) -> Field:
    """For the points of one row: after how many steps of z -> z*z + c they are far away; never is infinity."""
    cpu_before = time.process_time()
    x = np.linspace(LEFT, RIGHT, COLUMNS * FINE_X)
    y = np.linspace(TOP, BOTTOM, ROWS * FINE_Y)[row * FINE_Y : (row + 1) * FINE_Y]
    c = (x[None, :] + 1j * y[:, None]).ravel()
    times = np.full(c.size, np.inf, dtype=np.float32)
    near, z = np.arange(c.size), np.zeros_like(c)
    for step in range(STEPS):
        z = z * z + c[near]
        square = z.real**2 + z.imag**2
        far = square > 100
        times[near[far]] = step - np.log2(np.log(square[far]))
        near, z = near[~far], z[~far]
    rank = mpi_runtime.get_runtime_context().get_rank()
    origin = Origin(row, rank, socket.gethostname(), os.getpid(), time.process_time() - cpu_before)
    mpi_runtime.get(ledger.note.remote(origin))
    return times.reshape(FINE_Y, -1)


@mpi_runtime.remote
def shade(field: Field, row: int) -> str:
    """The characters of a row, each shade as frequent in the whole field as the others."""
    levels = np.quantile(field[np.isfinite(field)], np.linspace(0, 1, len(SHADES) + 1)[1:-1] ** 0.7)
    points = field[row * FINE_Y : (row + 1) * FINE_Y].reshape(FINE_Y, COLUMNS, FINE_X)
    medians = np.median(points, axis=(0, 2))
    shades = [SHADES[level] for level in np.searchsorted(levels, medians)]
    return "".join(" " if np.isinf(median) else shade for median, shade in zip(medians, shades, strict=True))


@mpi_runtime.remote
def empty() -> None:
    pass


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def show_picture(ledger: Any) -> None:
    """Compute the picture and print it, each row with the rank that computed it; then who took part."""
    started = time.perf_counter()
    whole = np.concatenate(mpi_runtime.get([escape_times.remote(row, ledger) for row in range(ROWS)]))
    origins = mpi_runtime.get(ledger.read.remote())
    field = mpi_runtime.put(whole)
    rows = [shade.remote(field, row) for row in range(ROWS)]
    print(f"\n{'':{COLUMNS - 2}}rank")
    for origin, row in zip(origins, rows, strict=True):
        print(f"{mpi_runtime.get(row)} {origin.rank}", flush=True)
    took_s = time.perf_counter() - started
    ranks, hosts, pids = ({origin[field] for origin in origins} for field in (1, 2, 3))
    print(
        f"\n{ROWS} rows on {len(ranks)} rank{'s' * (len(ranks) > 1)} of {len(hosts)} host{'s' * (len(hosts) > 1)} ",
        end="",
    )
    cpu_s = sum(origin.cpu_s for origin in origins)
    print(f"by {len(pids)} processes, in {took_s:.2f} s and {cpu_s:.2f} s of CPU time;")
    print(f"{whole.nbytes / 1e6:.1f} MB of escape times put once and read by {ROWS} tasks\n")
    for rank in sorted(ranks):
        own = [origin for origin in origins if origin.rank == rank]
        processes = ", ".join(str(pid) for pid in sorted({origin.pid for origin in own}))
        print(f"rank {rank:3} on {own[0].host:12} {'#' * len(own):{ROWS}} {len(own):2} rows, process {processes}")


def show_costs(ledger: Any) -> None:
    """Measure and print what the runtime itself takes."""
    array = np.ones(12_500_000)
    mpi_runtime.put(array)  # the first time, the memory is new to the operating system
    tasks_s = seconds(lambda: mpi_runtime.get([empty.remote() for _ in range(10_000)]))
    trip_s = statistics.median(seconds(lambda: mpi_runtime.get(empty.remote())) for _ in range(300))
    calls_s = seconds(lambda: mpi_runtime.get([ledger.count.remote() for _ in range(10_000)]))
    put_s = statistics.median(seconds(lambda: mpi_runtime.put(array)) for _ in range(5))
    ref = mpi_runtime.put(array)
    get_s = seconds(lambda: mpi_runtime.get(ref))
    assert np.array_equal(mpi_runtime.get(ref), array)
    print(f"\n10,000 empty tasks         {10_000 / tasks_s:9,.0f} /s")
    print(f"10,000 calls of an actor   {10_000 / calls_s:9,.0f} /s")
    print(f"one task, there and back   {1e6 * trip_s:9,.0f} us")
    print(f"put of 100 MB              {0.1 / put_s:9.1f} GB/s")
    print(f"get of 100 MB              {1e6 * get_s:9,.0f} us, not copied")


cluster = mpi_runtime.cluster_resources()
print(f"{cluster['CPU']:g} CPUs promised, {len(os.sched_getaffinity(0))} here; the program is process {os.getpid()}")
ledger = Ledger.remote()
show_picture(ledger)
assert mpi_runtime.get(ledger.count.remote()) == ROWS
show_costs(ledger)

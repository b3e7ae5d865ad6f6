"""What does a live page cost the head: its CPU time with a page open and without one, in turns.

    python -m benchmarks.watching                       # 10 000 calls a second, ten turns of 6 s each
    python -m benchmarks.watching --rate 2000 --turns 4

The page is what asks the job: `LiveJob`, once a second, as in `mpi-runtime view`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.launching import machine
from mpi_runtime.cli.watching import Watching

PROGRAM = """
import sys, time
import mpi_runtime as ray

@ray.remote
def work(number):
    return number

rate, refs = float(sys.argv[1]), []
with ray.init(num_cpus=2, quiet=True):
    ray.get([work.remote(number) for number in range(2000)])
    print("up", flush=True)
    next_s = time.monotonic()
    while True:
        refs = [work.remote(number) for number in range(100)]
        ray.get(refs)
        next_s = max(next_s + 100 / rate, time.monotonic() - 0.1)
        time.sleep(max(0.0, next_s - time.monotonic()))
"""


def head_of(pid: int) -> int:
    """Return the process id of the head of a program: the child of that name."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in children if "head" in Path(f"/proc/{one}/comm").read_text())


def used(head: int) -> float:
    """Return the CPU time of all threads of a process, in seconds, to the nanosecond."""
    tasks = Path(f"/proc/{head}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks) / 1e9


def turn(pid: int, head: int, took_s: float, is_open: bool) -> tuple[float, float]:
    """Return the share of a core that the head used in a turn, and the calls that ended each second."""
    seen = Watching(pid)
    calls, begin_s, begin = seen.facts.glance.counts.ran, time.monotonic(), used(head)
    end_s = begin_s + took_s
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(1.0, left_s))
        if is_open:
            seen.sample()
            seen.document()
    share = (used(head) - begin) / (time.monotonic() - begin_s)
    seen.sample()
    return share, (seen.facts.glance.counts.ran - calls) / took_s


def main() -> None:
    """Measure in turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching")
    parser.add_argument("--rate", type=float, default=10_000, help="calls a second")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    print(machine())
    command = [sys.executable, "-c", PROGRAM, str(options.rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        head = head_of(program.pid)
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for number in range(2 * options.turns):
            is_open = bool(number % 2)
            found[is_open].append(turn(program.pid, head, options.seconds, is_open))
        program.kill()
    for is_open, name in ((False, "alone"), (True, "with a page open")):
        shares, rates = zip(*found[is_open], strict=True)
        print(
            f"{name}: {statistics.median(shares):.2%} of a core ({min(shares):.2%} to {max(shares):.2%}), "
            f"{statistics.median(rates):,.0f} calls a second"
        )
    more = [with_page[0] - alone[0] for alone, with_page in zip(found[False], found[True], strict=True)]
    print(f"the page: {statistics.median(more):.2%} of a core more (load {os.getloadavg()[0]:.0f})")


if __name__ == "__main__":
    main()

"""The work that every system does, and how it is timed; each `with_*.py` beside this file brings a system.

An adapter is a program: it starts its system with two workers, does each work that the system has, and prints one JSON
line for each. It is started anew for every round, so that nothing carries over. Adapters are not called by the bare
names of their systems because Ray puts a program's folder first in the module search path of its workers.
"""

import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from benchmarks.launching import emit

WORKERS = 2
LARGE_BYTES = 100_000_000

COUNTS = {
    "tasks": 10_000,
    "task": 1_000,
    "map": 200_000,
    "actor_calls": 10_000,
    "actor_call": 1_000,
    "put_small": 5_000,
    "get_small": 5_000,
    "put_large": 5,
    "get_large": 5,
    "memcpy": 5,
    "fan_in": 50,
    "chain": 1_000,
    "tree": 50,
    "wait_loop": 1_000,
    "nested": 200,
    "mb_argument": 200,
    "mb_result": 200,
    "mb_result_warm": 200,
    "parameter_server": 200,
    "actors": 20,
}
"""How often each work is done, in the order in which they are done."""

LONGEST_S = {"tasks": 5.0, "actors": 5.0}
"""How long a work may take; 2 seconds where nothing is said."""

clock = time.perf_counter
Work = Callable[[int], float]
"""Does the work so many times and returns how many seconds that took."""


def empty() -> None:
    """The task of which there are ten thousand."""


def ignore(number: int) -> None:
    """What is mapped over numbers."""


def timed(action: Callable[[], object]) -> float:
    """How many seconds the action takes."""
    started = clock()
    action()
    return clock() - started


def repeated(action: Callable[[], object]) -> Work:
    """The work of doing an action again and again, each time to its end."""

    def work(count: int) -> float:
        started = clock()
        for _ in range(count):
            action()
        return clock() - started

    return work


def run(works: Mapping[str, Work]) -> None:
    """Do each work, up to a tenth of it first as warm-up, and print seconds for one operation of each.

    Arguments of the program: how many empty tasks, and which share of the other counts. Work that turns out slow in
    its warm-up is cut short, so that no system takes minutes.
    """
    tasks, share = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else (COUNTS["tasks"], 1.0)
    for name, full_count in COUNTS.items():
        if name not in works:
            continue
        count = tasks if name == "tasks" else max(2, round(full_count * share))
        limit_s = LONGEST_S.get(name, 2.0)
        first = max(2, count // 100)
        expected_s = works[name](first) / first
        warm_up = max(2, min(count // 10, int(0.2 * limit_s / expected_s)))
        expected_s = works[name](warm_up) / warm_up
        count = max(2, min(count, int(limit_s / expected_s)))
        emit(work=name, count=count, seconds=works[name](count) / count)


def found(distribution: str) -> str:
    """The name and version of an installed distribution, for the report."""
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution}, not installed: from the checkout"


def missing(error: ImportError) -> None:
    """Say that the system is not installed, and end without an error: the others go on."""
    emit(missing=str(error))
    sys.exit(0)

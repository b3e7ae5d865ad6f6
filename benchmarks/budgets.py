"""What an empty task costs in CPU time in each process, against the budgets.

    python -m benchmarks.budgets               # plainly, and under mpirun -n 3
    python -m benchmarks.budgets --tasks 20000

A busy machine disturbs CPU time less than a rate, but not little: caches are shared, and batches become smaller. So
the bare pipeline (`systems/with_bare_pipeline.py`) is measured beside it, to tell a slow moment from slow code.
"""

import argparse
import os
import sys
import time

from benchmarks.launching import emit, json_lines, machine, mpirun
from benchmarks.processes import cpu_seconds_of, descendants, roles

BUDGETS_US = {"driver": 6.0, "head": 8.0, "worker": 3.0, "executor": 6.0}
SHOWN = ("driver", "head", "worker", "executor", "forkserver", "launcher", "other")
CHUNK = 10_000
RANKS = 3


def empty() -> None:
    """The task."""


def measure(tasks: int, under_mpi: bool) -> None:
    """Be the program that is measured: run the tasks, print CPU seconds for one of them by role."""
    import mpi_runtime

    mpi_runtime.init(num_cpus=2)
    task = mpi_runtime.remote(empty)

    def run(count: int) -> None:
        for _ in range(count // CHUNK):
            mpi_runtime.get([task.remote() for _ in range(CHUNK)])

    run(max(2 * CHUNK, tasks // 5))
    job = roles(under_mpi)
    before, started = cpu_seconds_of(job), time.perf_counter()
    run(tasks)
    seconds, after = time.perf_counter() - started, cpu_seconds_of(job)
    emit(rate=tasks / seconds, us={role: 1e6 * (after[role] - before[role]) / tasks for role in after})
    mpi_runtime.shutdown()


def measure_bare(tasks: int) -> None:
    """Be the bare pipeline, which is driver, head and two executors too."""
    from benchmarks.systems import with_bare_pipeline

    run = with_bare_pipeline.works(with_bare_pipeline.start())["tasks"]
    run(2 * CHUNK)
    driver, head, *executors = [os.getpid(), *descendants(os.getpid())]
    job = {"driver": [driver], "head": [head], "executor": executors}
    before = cpu_seconds_of(job)
    seconds, after = run(tasks), cpu_seconds_of(job)
    emit(rate=tasks / seconds, us={role: 1e6 * (after[role] - before[role]) / tasks for role in after})


def report(title: str, command: list[str], budgets: dict[str, float]) -> None:
    """Run the measured program and print its table."""
    lines, problem = json_lines(command, timeout_s=180)
    if problem or not lines:
        print(f"{title}: no figures: {problem or 'nothing was printed'}")
        return
    used = lines[-1]["us"]
    print(f"{title}: {lines[-1]['rate']:,.0f} tasks/s")
    for role in SHOWN:
        budget, cost = budgets.get(role), used.get(role)
        if cost is None or (budget is None and cost < 0.05):
            continue
        verdict = "" if budget is None else f"  budget {budget:4.1f}, {'kept' if cost <= budget else 'EXCEEDED'}"
        print(f"  {role:11} {cost:6.2f} us{verdict}")
    print(f"  {'together':11} {sum(used.values()):6.2f} us")


def main() -> None:
    """Measure both ways to start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000, help="how many empty tasks, in chunks of 10000 (100000)")
    parser.add_argument("--measure", choices=["plain", "mpi", "bare"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = max(1, options.tasks // CHUNK) * CHUNK
    if options.measure == "bare":
        measure_bare(tasks)
        return
    if options.measure:
        measure(tasks, options.measure == "mpi")
        return
    print(f"{machine()}\nCPU time of an empty task in each process, mean of {tasks:,}, two executors\n")
    again = [sys.executable, "-m", "benchmarks.budgets", "--tasks", str(tasks), "--measure"]
    report("bare pipeline", [*again, "bare"], budgets={})
    report("python app.py", [*again, "plain"], BUDGETS_US)
    launcher = mpirun(RANKS)
    if launcher:
        report(f"mpirun -n {RANKS} python app.py", [*launcher, *again, "mpi"], BUDGETS_US)
    else:
        print("mpirun: not found beside this Python or on PATH")


if __name__ == "__main__":
    main()

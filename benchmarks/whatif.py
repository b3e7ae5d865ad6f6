"""Whether `mpi-runtime whatif` tells the truth: batches and jobs on 1, 2 and 4 hosts, beside what it says after one.

    python -m benchmarks.whatif              # as root: the hosts are network namespaces of this machine

Commands sleep, so that hosts which share the processors of this machine are as many as they seem. Each batch is run on
1, 2 and 4 hosts of 2 CPUs, with one rank each. What whatif says is made from the journal of each run, for all numbers
of hosts. Times are from the first start of a command to the last end. Jobs of tasks and actors sleep too. They are
recorded on each number of hosts; their times are from the first submission to the last value, as the driver sees them.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from mpi_runtime.batch.history.batch_history import History, read_history
from mpi_runtime.scheduler.recording import Recording
from mpi_runtime.whatif.batches import Batch
from mpi_runtime.whatif.recorded_calls import read_job
from mpi_runtime.whatif.recorded_jobs import Job
from mpi_runtime.whatif.virtual_cluster import Shape
from tests.hosts.lab import Lab, lab, missing

RANKS = (1, 2, 4)
CPUS = 2
ON_RANKS = "import sys; from mpi_runtime.cli.main import main; sys.exit(main(['batch', *sys.argv[1:]]))"
"""The program of each rank: what `mpirun mpi-runtime batch` runs."""


def independent() -> str:
    """Commands of many lengths, in no order."""
    chance = random.Random(1)
    return "".join(f"sleep {chance.choice((0.2, 0.5, 1, 3)) * chance.uniform(0.7, 1.3):.2f}\n" for _ in range(60))


def wide_and_narrow() -> str:
    """Commands that need one CPU and some that need a whole host, with limits as people state them."""
    chance = random.Random(2)
    lines = [f"sleep {chance.uniform(0.3, 1.5):.2f} #batch time_limit=3" for _ in range(50)]
    lines += [f"sleep {chance.uniform(0.5, 2):.2f} #batch num_cpus=2 time_limit=4" for _ in range(10)]
    chance.shuffle(lines)
    return "\n".join(lines) + "\n"


def graph() -> str:
    """Arrays after each other, and chains beside them: as a workflow has them."""
    return """
        [[task]]
        name = "split"
        command = "sleep 1"
        [[task]]
        name = "map"
        command = "sleep {t}  # {part}"
        product = { t = [0.4, 0.9, 1.6], part = { range = [0, 12] } }
        after = ["split"]
        [[task]]
        name = "reduce"
        command = "sleep 1.5"
        after = ["map"]
        [[task]]
        name = "first"
        command = "sleep 3"
        [[task]]
        name = "second"
        command = "sleep 3"
        after = ["first"]
        [[task]]
        name = "third"
        command = "sleep 2"
        after = ["second", "split"]
    """


BATCHES = {"independent.txt": independent, "wide.txt": wide_and_narrow, "graph.toml": graph}
JOB = """
import random, time
import mpi_runtime as ray

@ray.remote
def work(s, *before):
    time.sleep(s)
    return s

@ray.remote(num_cpus=2)
def wide(s):
    time.sleep(s)

@ray.remote
def parent(s):
    return sum(ray.get([work.remote(s) for _ in range(3)]))

@ray.remote(num_cpus=1)
class Counter:
    def add(self, s):
        time.sleep(s)
        return s

ray.init()
chance = random.Random(3)
begin_s = time.time()
{body}
print("took", time.time() - begin_s)
"""
JOBS = {
    "tasks": """
ray.get([work.remote(chance.uniform(0.2, 1.8)) for _ in range(50)] + [wide.remote(0.7) for _ in range(6)])
""",
    "rounds": """
for _ in range(3):
    parts = [work.remote(chance.uniform(0.3, 0.9)) for _ in range(12)]
    pairs = [work.remote(0.5, *two) for two in zip(parts[::2], parts[1::2])]
    ray.get(work.remote(0.4, *pairs))
""",
    "nested": """
def of(depth, s):
    return parent_of.remote(depth, s) if depth else work.remote(s)

@ray.remote
def parent_of(depth, s):
    time.sleep(s / 2)
    return sum(ray.get([of(depth - 1, s) for _ in range(3)]))

ray.get([of(chance.choice((1, 2)), chance.uniform(0.2, 0.6)) for _ in range(12)])
""",
    "actors": """
counter = Counter.remote()
added = [counter.add.remote(0.25) for _ in range(20)]
ray.get([parent.remote(chance.uniform(0.3, 0.8)) for _ in range(8)] + added)
""",
}
"""Tasks alone; rounds that wait, with calls that have the values of others; calls that make calls and wait for them,
one or two levels deep; an actor beside such calls."""


def run_on(hosts: Lab, file: Path, ranks: int) -> History:
    """Run a batch with a rank on each of so many hosts; what it remembers."""
    directory = file.with_suffix(f".{ranks}")
    program = hosts.mpirun(
        ON_RANKS,
        str(file), "--directory", str(directory),
        ranks={f"host{number + 1}": 1 for number in range(ranks)},
        env={"MPI_RUNTIME_NUM_CPUS": str(CPUS)},
    )  # fmt: skip
    with program:
        program.finish(timeout=300).expect(0)
    return read_history(str(directory))


def makespan_s(history: History) -> float:
    """From the first start to the last end."""
    results = [ended.result for ended in history.all_ends]
    return max(one.end for one in results) - min(one.start for one in results)


def record_on(hosts: Lab, name: str, ranks: int) -> tuple[Job, float]:
    """Run a job with a rank on each of so many hosts; its recording, and how long it took in seconds."""
    file = hosts.place / f"{name}.{ranks}.rec"
    program = hosts.mpirun(
        JOB.replace("{body}", JOBS[name]),
        ranks={f"host{number + 1}": 1 for number in range(ranks)},
        env={"MPI_RUNTIME_NUM_CPUS": str(CPUS), "MPI_RUNTIME_RECORD": str(file)},
    )
    with program:
        done = program.finish(timeout=300).expect(0)
    took_s = next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("took"))
    return Job(read_job(Recording(file.read_bytes()))), took_s


def compare(name: str, real: dict[int, tuple[Batch | Job, float]]) -> float:
    """Print what each run says of all numbers of hosts; the largest part by which one is off."""
    worst = 0.0
    for source, (replayed, _) in real.items():
        for ranks, (_, took_s) in real.items():
            said_s = replayed.on(ranks, Shape(CPUS)).seconds
            off = said_s / took_s - 1
            worst = max(worst, abs(off))
            print(f"| {name} | {source} | {ranks} | {took_s:.2f} | {said_s:.2f} | {off:+.1%} |", flush=True)
    return worst


def main() -> None:
    """Print a line for each pair of runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whatif", description=__doc__)
    parser.add_argument("--only", choices=(*BATCHES, *JOBS), nargs="+", default=(*BATCHES, *JOBS), help="all")
    names = parser.parse_args().only
    if problem := missing():
        raise SystemExit(problem)
    print("| batch or job | record of | hosts | real, s | whatif, s | off by |")
    print("| --- | --- | --- | --- | --- | --- |")
    worst = 0.0
    with lab(max(RANKS)) as hosts:
        for name in names:
            real: dict[int, tuple[Batch | Job, float]] = {}
            for ranks in RANKS:
                if name in JOBS:
                    real[ranks] = record_on(hosts, name, ranks)
                    continue
                file = hosts.place / name
                file.write_text(BATCHES[name]())
                history = run_on(hosts, file, ranks)
                real[ranks] = Batch(history), makespan_s(history)
            worst = max(worst, compare(name, real))
    print(f"\nThe worst is off by {worst:.1%}.")


if __name__ == "__main__":
    main()

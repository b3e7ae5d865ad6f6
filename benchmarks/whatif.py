"""Whether `mpi-runtime whatif` tells the truth: batches on 1, 2 and 4 hosts, beside what it says after one of them.

    python -m benchmarks.whatif              # as root: the hosts are network namespaces of this machine

Commands sleep, so that hosts which share the processors of this machine are as many as they seem. Each batch is run on
1, 2 and 4 hosts of 2 CPUs, with one rank each. What whatif says is made from the journal of each run, for all numbers
of hosts. Times are from the first start of a command to the last end.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from mpi_runtime.batch.past import History, read_history
from mpi_runtime.whatif.batches import Batch
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


def main() -> None:
    """Print a line for each pair of runs."""
    argparse.ArgumentParser(prog="python -m benchmarks.whatif", description=__doc__).parse_args()
    if problem := missing():
        raise SystemExit(problem)
    print("| batch | journal of | hosts | real, s | whatif, s | off by |")
    print("| --- | --- | --- | --- | --- | --- |")
    worst = 0.0
    with lab(max(RANKS)) as hosts:
        for name, text in BATCHES.items():
            file = hosts.place / name
            file.write_text(text())
            real = {ranks: run_on(hosts, file, ranks) for ranks in RANKS}
            for source, history in real.items():
                batch = Batch(history)
                for ranks in RANKS:
                    took_s, said_s = makespan_s(real[ranks]), batch.on(ranks, Shape(CPUS)).seconds
                    worst = max(worst, abs(said_s / took_s - 1))
                    print(
                        f"| {name} | {source} | {ranks} | {took_s:.2f} | {said_s:.2f} | {said_s / took_s - 1:+.1%} |",
                        flush=True,
                    )
    print(f"\nThe worst is off by {worst:.1%}.")


if __name__ == "__main__":
    main()

"""Graphs of tasks in bulk-synchronous steps of bare MPI: the limit. `mpirun -n 2`, started by `benchmarks.metg`.

Each rank has a block of columns. After each row it sends what the tasks of the other rank
read, and waits for what its own read.
"""

import argparse
from typing import Any

from benchmarks.launching import emit
from benchmarks.systems import work
from benchmarks.systems.graphs import Graph, Value, measure, task

try:
    from mpi4py import MPI
except ImportError as error:
    work.missing(error)

WORLD = MPI.COMM_WORLD


def owner(graph: Graph, point: int) -> int:
    """The rank that has this column."""
    return point * WORLD.size // graph.width


def play(graph: Graph) -> None:
    """This rank's part of a graph."""
    row: dict[int, Value] = {}
    for step in range(graph.steps):
        mine = [point for point in graph.points(step) if owner(graph, point) == WORLD.rank]
        row = {point: task(step, point, graph.loops, *[row[one] for one in graph.reads(step, point)]) for point in mine}
        if step + 1 < graph.steps:
            exchange(graph, step, row)
    WORLD.Barrier()


def exchange(graph: Graph, step: int, row: dict[int, Value]) -> None:
    """Send what others read in the next row, and receive what this rank reads."""
    wanted: dict[int, set[tuple[int, int]]] = {rank: set() for rank in range(WORLD.size)}
    for point in graph.points(step + 1):
        reader = owner(graph, point)
        for one in graph.reads(step + 1, point):
            if owner(graph, one) != reader:
                wanted[reader].add((owner(graph, one), one))
    sent: list[Any] = [
        WORLD.isend(row[one], dest=reader, tag=one)
        for reader, reads in wanted.items()
        for sender, one in sorted(reads)
        if sender == WORLD.rank
    ]
    for sender, one in sorted(wanted[WORLD.rank]):
        row[one] = WORLD.recv(source=sender, tag=one)
    MPI.Request.waitall(sent)


def run(graph: Graph) -> float:
    """Seconds of one graph: the slowest rank's."""
    WORLD.Barrier()
    return float(WORLD.allreduce(work.timed(lambda: play(graph)), op=MPI.MAX))


def main() -> None:
    """Measure; only rank 0 prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--patterns", nargs="+", required=True)
    parser.add_argument("--widths", nargs="+", type=int, required=True)
    parser.add_argument("--speed", type=float, required=True)
    chosen = parser.parse_args()
    report = emit if WORLD.rank == 0 else lambda **_: None
    measure(run, chosen.patterns, chosen.widths, chosen.speed, report)


if __name__ == "__main__":
    main()

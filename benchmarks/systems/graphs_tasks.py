"""Graphs of tasks with references between them: this project, Ray, and Dask. Started by `benchmarks.metg`."""

import argparse
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.systems import work
from benchmarks.systems.graphs import Graph, measure, task


def through(submit: Callable[..., Any], wait: Callable[[list[Any]], object]) -> Callable[[Graph], float]:
    """How to run a graph with a system that takes references, or futures, as arguments."""

    def play(graph: Graph, last: set[tuple[int, int]]) -> None:
        row: list[Any] = []
        ends = []
        for step in range(graph.steps):
            row = [
                submit(step, point, graph.loops, *[row[one] for one in graph.reads(step, point)])
                for point in graph.points(step)
            ]
            ends += [reference for point, reference in enumerate(row) if (step, point) in last]
        wait(ends)

    def run(graph: Graph) -> float:
        last = set(graph.unread())  # not measured: it belongs to the graph, not to the system
        return work.timed(lambda: play(graph, last))

    return run


def main() -> None:
    """Start the system with two workers, and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=["mpi_runtime", "ray", "dask"])
    parser.add_argument("--patterns", nargs="+", required=True)
    parser.add_argument("--widths", nargs="+", type=int, required=True)
    parser.add_argument("--speed", type=float, required=True)
    chosen = parser.parse_args()
    if chosen.system == "dask":
        with_dask(chosen)
        return
    try:
        ray = import_module(chosen.system)
    except ImportError as error:
        work.missing(error)
    if chosen.system == "ray":
        ray.init(num_cpus=work.WORKERS, include_dashboard=False, logging_level="error")
    else:
        ray.init(num_cpus=work.WORKERS)
    remote = ray.remote(task)
    measure(through(remote.remote, ray.get), chosen.patterns, chosen.widths, chosen.speed)
    ray.shutdown()


def with_dask(chosen: argparse.Namespace) -> None:
    """Dask: two worker processes of one thread each."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        work.missing(error)
    cluster = LocalCluster(
        n_workers=work.WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    with cluster, Client(cluster) as client:

        def submit(*arguments: Any) -> Any:
            return client.submit(task, *arguments, pure=False)

        measure(through(submit, client.gather), chosen.patterns, chosen.widths, chosen.speed)


if __name__ == "__main__":
    main()

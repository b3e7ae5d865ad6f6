"""Estimates for a graph of calls on some nodes, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpi_runtime.whatif.virtual_cluster import Ran, Shape


class Prospect(NamedTuple):
    """The estimate for a batch or a job on some nodes."""

    nodes: int
    shape: Shape
    seconds: float
    """From the first start to the last end; 0 if nothing can run."""
    cpu_use: float
    gpu_use: float
    """The shares of all CPUs and GPUs in use, from 0 to 1."""
    bound: str
    """The lower bound of the makespan, in words."""
    never: int
    """The number of calls that no node can run, and of those that depend on them."""

    @property
    def node_hours(self) -> float:
        """Nodes times hours."""
        return self.nodes * self.seconds / 3600


def prospect(
    nodes: int, shape: Shape, seconds: float, ran: Sequence[Ran], chain_s: float, never: int, noun: str
) -> Prospect:
    """Summarise a run in virtual time.

    Args:
        nodes: their number.
        shape: of each node.
        seconds: from the start to the last end.
        ran: the calls that ran.
        chain_s: the duration of the longest chain.
        never: the number of calls that could not run.
        noun: the plural of a call, for people.
    """
    used = [(one.shape, (one.end_us - one.start_us) / 1e6) for one in ran]
    cpu_s, gpu_s = (sum(one.cpus * took for one, took in used), sum(one.gpus * took for one, took in used))
    bounds = {"the work on CPUs": cpu_s / (nodes * shape.cpus) if shape.cpus else 0.0}
    if shape.gpus:
        bounds["the work on GPUs"] = gpu_s / (nodes * shape.gpus)
    bounds["the longest chain"] = chain_s
    name = max(bounds, key=lambda one: bounds[one])
    whole = nodes * seconds
    return Prospect(
        nodes,
        shape,
        seconds,
        cpu_s / (whole * shape.cpus) if whole and shape.cpus else 0.0,
        gpu_s / (whole * shape.gpus) if whole and shape.gpus else 0.0,
        f"{never} of its {noun} can never run there" if never else f"{name}, {_time(bounds[name])}",
        never,
    )


def fits(asked: Shape, shape: Shape) -> bool:
    """Whether a node of a shape can ever run a call of this shape."""
    there = dict(shape.resources)
    has_custom = all(amount <= there.get(name, 0) for name, amount in asked.resources)
    return has_custom and asked.cpus <= shape.cpus and asked.gpus <= shape.gpus and asked.memory <= shape.memory


def in_lines(prospects: Sequence[Prospect]) -> list[str]:
    """A table for people."""
    rows = [("nodes", "CPUs", "GPUs", "makespan", "node hours", "CPUs used", "GPUs used", "cannot be faster than")]
    for one in prospects:
        gpu_use = f"{one.gpu_use:.0%}" if one.shape.gpus else ""
        rows.append((
            str(one.nodes), f"{one.shape.cpus:g}", f"{one.shape.gpus:g}", _time(one.seconds), f"{one.node_hours:.2f}",
            f"{one.cpu_use:.0%}", gpu_use, one.bound,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]))
    return lines


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 3600:.2f} h"

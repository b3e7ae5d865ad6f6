"""Estimates for a graph of calls on some nodes, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpi_runtime.show import numbers
from mpi_runtime.show.tables import aligned
from mpi_runtime.whatif.virtual_cluster import Ran, Shape

IDLE_S = 60.0
"""After this time with nothing to do a job leaves a batch that several run, as `--idle-timeout` is by default."""
DEARER_MAX = 1.1
"""How many times the core hours of the cheapest jobs a proposal may take."""


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

    jobs: int = 1
    """The number of jobs that share these nodes; each leaves when it has had nothing to do for `IDLE_S`."""
    held_s: float = 0.0
    """How long nodes are held, in seconds times nodes."""

    @property
    def node_hours(self) -> float:
        """Hours for which nodes are held, times nodes."""
        return self.held_s / 3600

    @property
    def core_hours(self) -> float:
        """The same, times the CPUs of a node."""
        return self.node_hours * self.shape.cpus


def prospect(
    nodes: int, shape: Shape, seconds: float, ran: Sequence[Ran], chain_s: float, never: int, noun: str, jobs: int = 1
) -> Prospect:
    """Summarise a run in virtual time, of `seconds`. `noun` is the plural of a call, for people.

    `never` is the number of calls that could not run. Each of the `jobs` has an equal part of the nodes.
    """
    used = [(one.demand, (one.end_us - one.start_us) / 1e6) for one in ran]
    cpu_s, gpu_s = (sum(one.num_cpus * took for one, took in used), sum(one.num_gpus * took for one, took in used))
    bounds = {"the work on CPUs": cpu_s / (nodes * shape.cpus) if shape.cpus else 0.0}
    if shape.gpus:
        bounds["the work on GPUs"] = gpu_s / (nodes * shape.gpus)
    bounds["the longest chain"] = chain_s
    name = max(bounds, key=lambda one: bounds[one])
    whole = nodes * seconds
    cpu_use = cpu_s / (whole * shape.cpus) if whole and shape.cpus else 0.0
    gpu_use = gpu_s / (whole * shape.gpus) if whole and shape.gpus else 0.0
    bound = f"{never} of its {noun} can never run there" if never else f"{name}, {numbers.seconds(bounds[name])}"
    held_s = _held_s(nodes // jobs, jobs, seconds, ran)
    return Prospect(nodes, shape, seconds, cpu_use, gpu_use, bound, never, jobs, held_s)


def _held_s(each: int, jobs: int, seconds: float, ran: Sequence[Ran]) -> float:
    """How long nodes are held: the first job coordinates to the end, any other leaves a while after its last call."""
    last_s = [seconds] + [0.0] * (jobs - 1)
    for one in ran:
        job = one.node // each
        last_s[job] = max(last_s[job], one.end_us / 1e6)
    return sum(each * min(seconds, last + IDLE_S) for last in last_s)


def proposal(prospects: Sequence[Prospect]) -> str:
    """The jobs to ask for: the fastest of those that hold few more core hours than the cheapest; empty: none."""
    able = [one for one in prospects if one.seconds and not one.never]
    if not able:
        return ""
    least = min(one.core_hours for one in able)
    best = min((one for one in able if one.core_hours <= least * DEARER_MAX), key=lambda one: one.seconds)
    each, gpus = best.nodes // best.jobs, f" and {_of(best.shape.gpus, 'GPU')}" if best.shape.gpus else ""
    size = f"{numbers.plural(each, 'node')} with {_of(best.shape.cpus, 'CPU')}{gpus}{' each' * (each > 1)}"
    count = f"{best.jobs} jobs of" if best.jobs > 1 else "one job of"
    return f"proposal: {count} {size}: {numbers.seconds(best.seconds)}, {best.core_hours:.2f} core hours"


def in_lines(prospects: Sequence[Prospect]) -> list[str]:
    """A table for people."""
    has_jobs = any(one.jobs > 1 for one in prospects)
    rows: list[tuple[str, ...]] = [
        ("nodes", "CPUs", "GPUs", "makespan", "node hours", "CPUs used", "GPUs used", "cannot be faster than")
    ]
    for one in prospects:
        gpu_use = f"{one.gpu_use:.0%}" if one.shape.gpus else ""
        rows.append((
            str(one.nodes), f"{one.shape.cpus:g}", f"{one.shape.gpus:g}", numbers.seconds(one.seconds),
            f"{one.node_hours:.2f}", f"{one.cpu_use:.0%}", gpu_use, one.bound,
        ))  # fmt: skip
    if has_jobs:
        parts = [("jobs", "nodes each", "core hours")]
        parts += [(str(one.jobs), str(one.nodes // one.jobs), f"{one.core_hours:.2f}") for one in prospects]
        rows = [(*part, *row[1:4], *row[5:]) for part, row in zip(parts, rows, strict=True)]
    return aligned(rows, numbers=len(rows[0]) - 1)


def _of(amount: float, noun: str) -> str:
    return f"{amount:g} {noun}{'s' * (amount != 1)}"

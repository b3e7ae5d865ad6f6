"""Graphs of calls for looking at orders: twenty random ones, and five that are known from scientific workflows.

The shapes of the five, and the number and mean duration of their tasks, are those of the workflows of about a thousand
tasks that the Pegasus project published for Montage, CyberShake, Epigenomics, LIGO Inspiral and SIPHT (Bharathi and
others, "Characterization of scientific workflows", WORKS 2008; Juve and others, "Characterizing and profiling
scientific workflows", FGCS 2013). They say nothing of CPUs: here the long kinds of tasks ask for several, as programs
with threads do. Durations vary around the means.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_runtime.whatif.virtual_cluster import Shape

SECOND_US = 1_000_000


@dataclass
class Node:
    """A call of a graph."""

    name: str
    shape: Shape
    duration_us: int
    after: list[int] = field(default_factory=list)
    """Positions of earlier calls of the graph."""
    priority: int = 0


@dataclass
class Workload:
    """A graph of calls, and nodes to run it on."""

    name: str
    nodes: list[Shape]
    calls: list[Node] = field(default_factory=list)

    def add(self, name: str, shape: Shape, seconds: float, after: list[int] | None = None, priority: int = 0) -> int:
        """Add a call; its position."""
        self.calls.append(Node(name, shape, max(1, round(seconds * SECOND_US)), after or [], priority))
        return len(self.calls) - 1


def random_workload(seed: int) -> Workload:
    """A random one: sizes and durations over two orders of magnitude, some with GPUs, half of them graphs."""
    rng = random.Random(seed)
    cpus = rng.choice((8, 16, 32, 64))
    gpus = rng.choice((0, 0, 4))
    workload = Workload(f"random {seed}", [Shape(cpus, gpus)] * rng.choice((1, 2, 4, 8)))
    kinds = []
    for kind in range(rng.randint(2, 8)):
        cpu = rng.choice((1, 1, 1, 2, 4, cpus // 4, cpus // 2, cpus))
        gpu = rng.choice((0, 0, 0.5, 1, 2)) if gpus and cpu <= cpus // 4 else 0
        kinds.append((f"kind{kind}", Shape(cpu, gpu), 10 ** rng.uniform(0.5, 2.5)))
    is_graph = rng.random() < 0.5
    count = rng.randint(200, 600)
    for index in range(count):
        name, shape, mean_s = rng.choice(kinds)
        after = []
        if is_graph and index > 20:
            after = sorted({rng.randrange(max(0, index - 100), index) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))})
        workload.add(name, shape, mean_s * rng.lognormvariate(0, 0.4), after)
    return workload


class _Maker:
    """Adds tasks of kinds whose durations vary a little."""

    def __init__(self, name: str) -> None:
        self.workload = Workload(name, [Shape(16)] * 4)
        self._rng = random.Random(name)

    def tasks(self, count: int, name: str, cpus: int, mean_s: float, after: Callable[[int], list[int]]) -> list[int]:
        """Add this many of a kind. `after`: for the number of each, what it waits for."""
        return [
            self.workload.add(name, Shape(cpus), mean_s * self._rng.uniform(0.7, 1.3), after(index))
            for index in range(count)
        ]


def montage() -> Workload:
    """Mosaics of the sky: wide, one after the other, wide, and a chain."""
    make = _Maker("Montage")
    project = make.tasks(166, "mProjectPP", 1, 13.58, lambda _: [])
    difference = make.tasks(662, "mDiffFit", 1, 10.59, lambda n: [project[n % 166], project[(n * 7 + 1) % 166]])
    concat = make.tasks(1, "mConcatFit", 4, 52.96, lambda _: difference)
    model = make.tasks(1, "mBgModel", 16, 89.12, lambda _: concat)
    background = make.tasks(166, "mBackground", 1, 10.74, lambda n: [model[0], project[n]])
    table = make.tasks(1, "mImgTbl", 1, 65.91, lambda _: background)
    sum_of_all = make.tasks(1, "mAdd", 16, 99.53, lambda _: table)
    make.tasks(1, "mJPEG", 1, 2.52, lambda _: make.tasks(1, "mShrink", 4, 22.25, lambda _: sum_of_all))
    return make.workload


def cybershake() -> Workload:
    """Earthquakes: few long ones, many after each, one short one after each of those."""
    make = _Maker("CyberShake")
    extract = make.tasks(4, "ExtractSGT", 16, 126.12, lambda _: [])
    seismogram = make.tasks(497, "SeismogramSynthesis", 2, 43.65, lambda n: [extract[n % 4]])
    peak = make.tasks(497, "PeakValCalc", 1, 1.08, lambda n: [seismogram[n]])
    make.tasks(1, "ZipSeis", 4, 9.38, lambda _: seismogram)
    make.tasks(1, "ZipPSA", 4, 3.81, lambda _: peak)
    return make.workload


def epigenomics() -> Workload:
    """Genomes: pipelines side by side with one very long stage, and a chain."""
    make = _Maker("Epigenomics")
    split = make.tasks(7, "fastqSplit", 1, 60.36, lambda _: [])
    stage = make.tasks(245, "filterContams", 1, 1.40, lambda n: [split[n % 7]])
    for name, cpus, mean_s in (("sol2sanger", 1, 0.37), ("fastq2bfq", 1, 0.68), ("map", 4, 6068.53)):
        before = stage
        stage = make.tasks(245, name, cpus, mean_s, lambda n, before=before: [before[n]])  # type: ignore[misc]
    merge = make.tasks(7, "mapMerge", 2, 18.98, lambda n: stage[n::7])
    for name, cpus, mean_s in (("mapMergeAll", 8, 136.76), ("maqIndex", 1, 0.18), ("pileup", 8, 1845.77)):
        before = merge
        merge = make.tasks(1, name, cpus, mean_s, lambda _, before=before: before)  # type: ignore[misc]
    return make.workload


def inspiral() -> Workload:
    """Gravitational waves: two long stages, with a few that gather in between."""
    make = _Maker("Inspiral")
    bank = make.tasks(229, "TmpltBank", 1, 18.14, lambda _: [])
    first = make.tasks(229, "Inspiral", 4, 462.62, lambda n: [bank[n]])
    gather = make.tasks(20, "Thinca", 1, 5.29, lambda n: first[n::20])
    trigger = make.tasks(251, "TrigBank", 1, 5.12, lambda n: [gather[n % 20]])
    second = make.tasks(251, "Inspiral2", 4, 462.59, lambda n: [trigger[n]])
    make.tasks(20, "Thinca2", 1, 5.42, lambda n: second[n::20])
    return make.workload


def sipht() -> Workload:
    """Searches for small RNAs: 32 graphs with tasks of very different lengths side by side."""
    make = _Maker("SIPHT")
    for _ in range(32):
        patser = make.tasks(18, "Patser", 1, 1.28, lambda _: [])
        make.tasks(1, "PatserConcate", 1, 0.08, lambda _, patser=patser: patser)  # type: ignore[misc]
        search = [
            *make.tasks(1, "RNAMotif", 1, 33.99, lambda _: []),
            *make.tasks(1, "Transterm", 1, 56.63, lambda _: []),
            *make.tasks(1, "Findterm", 8, 1215.59, lambda _: []),
            *make.tasks(1, "Blast", 8, 2508.64, lambda _: []),
        ]
        rna = make.tasks(1, "SRNA", 4, 355.85, lambda _, search=search: search)  # type: ignore[misc]
        parse = make.tasks(1, "FFNParse", 1, 1.62, lambda _, rna=rna: rna)  # type: ignore[misc]
        blasts = [
            *make.tasks(1, "BlastCandidate", 1, 5.06, lambda _, rna=rna: rna),  # type: ignore[misc]
            *make.tasks(1, "BlastParalogues", 1, 5.12, lambda _, parse=parse: parse),  # type: ignore[misc]
            *make.tasks(1, "BlastQRNA", 4, 1428.87, lambda _, rna=rna: rna),  # type: ignore[misc]
            *make.tasks(1, "BlastSynteny", 2, 33.00, lambda _, parse=parse: parse),  # type: ignore[misc]
        ]
        make.tasks(1, "SRNAAnnotate", 1, 1.60, lambda _, blasts=blasts: blasts)  # type: ignore[misc]
    return make.workload


def all_workloads() -> list[Workload]:
    """All of them."""
    known = [montage(), cybershake(), epigenomics(), inspiral(), sipht()]
    return [*(random_workload(seed) for seed in range(20)), *known]

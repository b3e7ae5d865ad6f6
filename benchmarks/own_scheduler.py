"""What calls with a scheduler of their own cost, measured here, and what they give a virtual cluster.

    python -m benchmarks.own_scheduler                # measures, then simulates 1 to 1 024 hosts
    python -m benchmarks.own_scheduler --svg FILE     # and draws them

The costs are CPU time, which a busy machine disturbs less than durations. In the virtual cluster the real scheduler
places calls on nodes of 64 CPUs in virtual time. Its head is charged for each call, each host for the start of a
scheduler, the copies of an argument and a result of 1 MB, and each inner call.
"""

from __future__ import annotations

import argparse
import heapq
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mpi_runtime as ray
from benchmarks.launching import cpu_seconds, machine
from benchmarks.processes import roles
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import StartExecutor
from mpi_runtime.scheduler.protocol.events import Call, Done, Spec, TaskSpec
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted, RankJoined

UNIT = 10_000
CPUS = 64
HOSTS = (1, 4, 16, 64, 256, 1024)
INNER_S = 0.01
"""The duration of an inner call."""
INNER = CPUS * 500
"""Inner calls of an outer call: five seconds of a node."""
ROUNDS = 4
"""Outer calls for each node."""
CALLS = 5000
STARTS = 20
_TICKS = os.sysconf("SC_CLK_TCK")


class Costs(NamedTuple):
    """Seconds of CPU."""

    outer: float
    """Of the head for an outer call with an argument and a result of 1 MB."""
    nested: float
    """Of the head for a nested call, without own schedulers."""
    start: float
    """Of a warm start and end of an inner scheduler with its first executor, all processes together."""
    copies: float
    """Of the copies of an argument and a result of 1 MB between the two jobs."""
    inner: float
    """Of the inner head for an inner call."""
    leak: float
    """Of the outer head for an inner call."""


@ray.remote
def empty(value: Any = None) -> Any:
    """Do nothing."""
    return value


@ray.remote(num_cpus=1, own_scheduler=True)
def own(calls: int, value: Any = None) -> Any:
    """Make so many inner calls, and pass a value to one. Return it, after CPU times of the processes inside."""
    ref = ray.put(value)
    ray.get([empty.remote() for _ in range(calls)])
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    (head,) = [int(pid) for pid in children if "head" in Path(f"/proc/{pid}/comm").read_text()]
    seen = ray.get(empty.remote(ref)) if value is not None else None
    return cpu_seconds(head), ended_children(head), cpu_seconds(me), seen


@ray.remote(num_cpus=1)
def plain(calls: int) -> None:
    """Make so many nested calls."""
    ray.get([empty.remote() for _ in range(calls)])


def ended_children(pid: int) -> float:
    """The CPU seconds of the children of a process that have ended, with theirs."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[13]) + int(words[14])) / _TICKS


def spent(head: int, work: Callable[[], object]) -> float:
    """The CPU seconds of a process while some work is done."""
    before = cpu_seconds(head)
    work()
    return cpu_seconds(head) - before


def measure() -> Costs:
    """Measure on this machine."""
    ray.init(num_cpus=2, quiet=True)
    (head,) = roles(False)["head"]
    ray.get([plain.remote(200), own.remote(1), own.remote(1)])
    nested = spent(head, lambda: ray.get(plain.remote(CALLS))) / CALLS
    first = ray.get(own.remote(1))
    for _ in range(STARTS):
        last = ray.get(own.remote(1))
    start = sum(after - before for after, before in zip(last[:3], first[:3], strict=True)) / STARTS
    value = np.ones(1 << 17)
    before = ray.get(own.remote(1, value))
    outer = spent(head, lambda: [ray.get(own.remote(1, value)) for _ in range(STARTS)]) / STARTS
    after = ray.get(own.remote(1, value))
    with_copies = sum(one - other for one, other in zip(after[:3], before[:3], strict=True)) / (STARTS + 1)
    leak = spent(head, lambda: ray.get(own.remote(CALLS))) / CALLS
    few, many = ray.get(own.remote(1)), ray.get(own.remote(CALLS))
    ray.shutdown()
    return Costs(outer, nested, start, max(0.0, with_copies - start), (many[0] - few[0]) / CALLS, leak)


class Virtual:
    """A cluster in virtual time: the real scheduler, a head that takes time for each call, and nodes."""

    def __init__(self, hosts: int, costs: Costs) -> None:
        self.scheduler = Scheduler()
        self.costs = costs
        self.head_s = 0.0
        """When the head is free."""
        self.due: list[tuple[float, int, bytes]] = []
        """Ends of calls: when, the executor, the call."""
        self.scheduler.handle_rank(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30), 0)
        for rank in range(1, hosts + 1):
            self.scheduler.handle_rank(RankJoined(rank, rank, f"n{rank}", list(range(CPUS)), -1, 0, 0, {}, 1 << 30), 0)

    def run(self, calls: int, lasts_s: float) -> float:
        """Run so many calls that each take a node for this long. Return when the last has ended."""
        scheduler, spec = self.scheduler, Spec(1, TaskSpec(), "outer", b"", Request(CPUS * UNIT))
        scheduler.handle(0, [spec], 0)
        scheduler.handle(0, [Call(n.to_bytes(16, "big"), 1, b"") for n in range(calls)], 0)
        self._decide(0.0, lasts_s)
        end_s = 0.0
        while self.due:
            end_s, executor, id = heapq.heappop(self.due)
            self.head_s = max(self.head_s, end_s) + self.costs.outer / 2
            scheduler.handle(executor, [Done(id, b"value", round(lasts_s * 1e6))], round(self.head_s * 1e6))
            self._decide(self.head_s, lasts_s)
        return max(end_s, self.head_s)

    def _decide(self, now_s: float, lasts_s: float) -> None:
        while True:
            effects = self.scheduler.decide(round(now_s * 1e6))
            started = [
                (effect.executor, rank)
                for rank, ones in effects.ranks.items()
                for effect in ones
                if isinstance(effect, StartExecutor)
            ]
            for client, messages in effects.clients.items():
                for message in messages:
                    if type(message) is Call:
                        self.head_s = max(self.head_s, now_s) + self.costs.outer / 2
                        heapq.heappush(self.due, (self.head_s + lasts_s, client, message.id))
            if not started:
                return
            for executor, rank in started:
                self.scheduler.handle_rank(ExecutorStarted(executor, 1000 + rank), round(now_s * 1e6))


def simulate(costs: Costs) -> list[tuple[int, float, float]]:
    """For each number of hosts: inner calls a second with own schedulers, and at most with one scheduler."""
    found = []
    for hosts in HOSTS:
        lasts_s = costs.start + costs.copies + max(INNER * INNER_S / CPUS, INNER * costs.inner)
        end_s = Virtual(hosts, costs).run(hosts * ROUNDS, lasts_s)
        found.append((hosts, hosts * ROUNDS * INNER / end_s, min(hosts * CPUS / INNER_S, 1 / costs.nested)))
    return found


def svg(rows: list[tuple[int, float, float]]) -> str:
    """The rows as a plot with logarithmic axes."""

    def at(hosts: float, rate: float) -> str:
        return f"{60 + 50 * np.log2(hosts):.1f},{330 - 60 * (np.log10(rate) - 3):.1f}"

    lines = []
    for column, colour, name in ((1, "#0b7285", "own schedulers"), (2, "#c92a2a", "one scheduler, at most")):
        points = [at(row[0], row[column]) for row in rows]
        lines.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = points[-1].split(",")
        lines.append(f'<text x="{x}" y="{float(y) - 8}" text-anchor="end" fill="{colour}">{name}</text>')
    for hosts, *_ in rows:
        x = at(hosts, 1e3).split(",")[0]
        lines.append(f'<text x="{x}" y="350" text-anchor="middle" fill="#555">{hosts}</text>')
    for power in range(3, 8):
        height = 330 - 60 * (power - 3)
        lines.append(f'<path d="M60 {height}H560" stroke="#ccc"/>')
        lines.append(f'<text x="55" y="{height + 4}" text-anchor="end" fill="#555">{10**power:,}</text>')
    lines.append('<text x="310" y="372" text-anchor="middle" fill="#555">hosts of 64 CPUs (simulated)</text>')
    lines.append('<text x="60" y="70" fill="#555">inner calls of 10 ms a second</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 60 600 320" font-family="sans-serif" font-size="12">'
    return "\n".join([head, *lines, "</svg>", ""])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path)
    chosen = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), machine(), f"load {os.getloadavg()[0]:.0f}", flush=True)
    costs = measure()
    for name, seconds in costs._asdict().items():
        print(f"{name:>8} {seconds * 1e6:10.1f} us", flush=True)
    rows = simulate(costs)
    print(
        "| hosts of 64 CPUs | own schedulers | for each host | one scheduler, at most |\n| ---: | ---: | ---: | ---: |"
    )
    for hosts, ours, one in rows:
        print(f"| {hosts:,} | {ours:,.0f} /s | {ours / hosts:,.0f} /s | {one:,.0f} /s |")
    if chosen.svg:
        chosen.svg.write_text(svg(rows))


if __name__ == "__main__":
    main()

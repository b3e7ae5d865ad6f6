"""What the scheduler costs alone, by the number of nodes and of waiting calls.

    python -m benchmarks.scheduler                       # 10, 1 000 and 10 000 nodes of 8 CPUs, 100 000 calls
    python -m benchmarks.scheduler --nodes 100 --calls 20000 --profile

Virtual nodes and clients hand records over in memory: no codec, no sockets. Two kinds of calls: long ones that are sent
one by one (each needs a placement: a decision which executor runs it), and short ones of known duration, sent ahead in
batches.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.launching import machine
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.events import Call, ClientEvent, Done, RankJoined, Released, Spec
from mpi_runtime.scheduler.state import Effects

UNIT = 10_000
CPUS = 8
FRAME = 100
"""Calls in one frame of the driver, as clients that are busy send them."""


@dataclass
class Costs:
    """Seconds of CPU time of one run, by what was handled: other programs on the machine disturb it little."""

    submit: float = 0.0
    done: float = 0.0
    release: float = 0.0
    decide: float = 0.0
    placed: int = 0


class Bench:
    """A scheduler with nodes, and executors that finish whatever they are sent."""

    def __init__(self, nodes: int) -> None:
        self.scheduler = Scheduler()
        self.costs = Costs()
        self.now = 0
        self.numbers = iter(range(1 << 62))
        self.in_hand: deque[tuple[int, list[bytes]]] = deque()
        """What executors were sent and have not finished, in order."""
        self.scheduler.handle_rank(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30), 0)
        for rank in range(1, nodes + 1):
            cpus = list(range(CPUS))
            self.scheduler.handle_rank(RankJoined(rank, rank, f"node{rank}", cpus, -1, 0, 0, {}, 1 << 30), 0)
        self.scheduler.decide(0)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time to one of the costs."""
        start_s = time.process_time()
        yield
        setattr(self.costs, what, getattr(self.costs, what) + time.process_time() - start_s)

    def _decide(self) -> None:
        self.now += 100
        with self.timed("decide"):
            effects = self.scheduler.decide(self.now)
        self._receive(effects)

    def _receive(self, effects: Effects) -> None:
        for client, messages in effects.clients.items():
            ids = [message.id for message in messages if type(message) is Call]
            if ids:
                self.costs.placed += len(ids)
                self.in_hand.append((client, ids))

    def submit(self, spec: Spec, calls: int) -> list[bytes]:
        """Submit so many calls of a spec, in frames."""
        ids = [next(self.numbers).to_bytes(16, "big") for _ in range(calls)]
        self.scheduler.handle(0, [spec], self.now)
        for start in range(0, calls, FRAME):
            frame: list[ClientEvent] = [Call(id, spec.id, b"") for id in ids[start : start + FRAME]]
            with self.timed("submit"):
                self.scheduler.handle(0, frame, self.now)
            self._decide()
        return ids

    def finish(self, most: int, duration_us: int) -> None:
        """Have the executors finish up to so many calls, each decision after 16 frames."""
        while most > 0 and self.in_hand:
            frames: list[tuple[int, list[ClientEvent]]] = []
            for _ in range(min(16, len(self.in_hand))):
                client, ids = self.in_hand.popleft()
                most -= len(ids)
                frames.append((client, [Done(id, b"value", duration_us) for id in ids]))
            with self.timed("done"):
                for client, frame in frames:
                    self.scheduler.handle(client, frame, self.now)
            self._decide()

    def release(self, ids: list[bytes]) -> None:
        """Have the driver drop what it holds."""
        frames = [[Released(ids[start : start + FRAME])] for start in range(0, len(ids), FRAME)]
        with self.timed("release"):
            for frame in frames:
                self.scheduler.handle(0, frame, self.now)
        self._decide()


def measure(nodes: int, calls: int, duration_us: int) -> tuple[Costs, int]:
    """Costs of so many calls with every CPU busy, beside as many that wait; how many placements were measured."""
    bench = Bench(nodes)
    spec = Spec(1, 0, "work", b"", UNIT)
    slots = nodes * CPUS
    bench.submit(spec, slots)  # every CPU is busy, and its executor forked
    bench.finish(1, duration_us)  # the duration is known
    bench.costs = Costs()
    ids = bench.submit(spec, calls)
    submitted = bench.costs.placed
    bench.finish(calls, duration_us)
    while bench.in_hand:
        bench.finish(calls, duration_us)
    bench.release(ids)
    return bench.costs, bench.costs.placed - submitted


def table(nodes: list[int], calls: int) -> None:
    """Measure and print."""
    print(machine())
    print(f"{calls} calls; microseconds for one call, and placements a second in the time of done and decide")
    names = "".join(f"{name:>8}" for name in ("calls", "submit", "done", "release", "decide", "all"))
    print(f"{'nodes':>7}{names} {'placements/s':>13}")
    for name, duration_us in (("long", 1_000_000), ("short", 20)):
        for number in nodes:
            gc.collect()
            gc.disable()
            costs, _ = measure(number, calls, duration_us)
            gc.enable()
            parts = [costs.submit, costs.done, costs.release, costs.decide]
            shown = " ".join(f"{part / calls * 1e6:7.2f}" for part in (*parts, sum(parts)))
            print(f"{number:>7} {name:>7} {shown} {costs.placed / (costs.done + costs.decide):>13,.0f}", flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 1000, 10_000])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    run: Callable[[], None] = lambda: table(chosen.nodes, chosen.calls)  # noqa: E731
    if not chosen.profile:
        run()
        return
    profile = cProfile.Profile()
    profile.runcall(run)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()

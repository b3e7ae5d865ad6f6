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
from collections.abc import Callable

from benchmarks.launching import machine
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import Call, ClientEvent, Done, Released, Spec, TaskSpec
from mpi_runtime.scheduler.protocol.rank_events import RankJoined

UNIT = 10_000
CPUS = 8
DRIVER = 0
FRAME = 100
"""Calls in one frame of the driver, as clients that are busy send them."""
EXECUTORS = 16
"""Executors whose frames the head handles before it decides."""


class Bench:
    """A scheduler with nodes, and executors that finish whatever they are sent."""

    def __init__(self, nodes: int) -> None:
        self.scheduler = Scheduler()
        self.spent_s = 0.0
        """CPU time inside the scheduler: other programs on the machine disturb it less than a rate."""
        self.ended = 0
        self.now = 0
        self.numbers = iter(range(1 << 62))
        self.in_hand: deque[tuple[int, list[bytes]]] = deque()
        """What executors were sent and have not finished, in order."""
        self.scheduler.handle_rank(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30), 0)
        for rank in range(1, nodes + 1):
            cpus = list(range(CPUS))
            self.scheduler.handle_rank(RankJoined(rank, rank, f"node{rank}", cpus, -1, 0, 0, {}, 1 << 30), 0)
        self.scheduler.decide(0)

    def _handle(self, frames: list[tuple[int, list[ClientEvent]]]) -> None:
        """One turn of the head's loop."""
        scheduler = self.scheduler
        self.now += 100
        start_s = time.process_time()
        for client, frame in frames:
            scheduler.handle(client, frame, self.now)
        effects = scheduler.decide(self.now)
        self.spent_s += time.process_time() - start_s
        for client, messages in effects.clients.items():
            ids = [message.id for message in messages if type(message) is Call]
            if ids:
                self.in_hand.append((client, ids))

    def submit(self, spec: Spec, calls: int) -> list[bytes]:
        """Submit so many calls of a spec, in frames."""
        ids = [next(self.numbers).to_bytes(16, "big") for _ in range(calls)]
        self._handle([(DRIVER, [spec])])
        for start in range(0, calls, FRAME):
            self._handle([(DRIVER, [Call(id, spec.id, b"") for id in ids[start : start + FRAME]])])
        return ids

    def finish(self, duration_us: int) -> None:
        """Have some executors finish all they have."""
        frames: list[tuple[int, list[ClientEvent]]] = []
        for _ in range(min(EXECUTORS, len(self.in_hand))):
            client, ids = self.in_hand.popleft()
            self.ended += len(ids)
            frames.append((client, [Done(id, b"value", duration_us) for id in ids]))
        self._handle(frames)

    def release(self, ids: list[bytes]) -> None:
        """Have the driver drop what it holds."""
        for start in range(0, len(ids), FRAME):
            self._handle([(DRIVER, [Released(ids[start : start + FRAME])])])

    def lap(self) -> float:
        """The time spent since the last lap."""
        spent_s, self.spent_s = self.spent_s, 0.0
        return spent_s


def measure(nodes: int, calls: int, duration_us: int) -> list[float]:
    """Seconds a call: submitted while all CPUs are busy; ended, with another in its place; ended last; released."""
    bench = Bench(nodes)
    spec = Spec(1, TaskSpec(), "work", b"", Request(UNIT))
    bench.submit(spec, nodes * CPUS)
    bench.finish(duration_us)  # now the duration is known
    bench.lap()
    ids = bench.submit(spec, calls)
    costs = [bench.lap() / calls]
    ended = bench.ended
    while any(queue.ready for queue in bench.scheduler.state.queues.values()):
        bench.finish(duration_us)
    costs.append(bench.lap() / max(1, bench.ended - ended))
    ended = bench.ended
    while bench.in_hand:
        bench.finish(duration_us)
    costs.append(bench.lap() / (bench.ended - ended))
    bench.release(ids)
    return [*costs, bench.lap() / calls]


def table(nodes: list[int], calls: int) -> None:
    """Measure and print."""
    print(machine())
    print(f"{calls} calls wait while {CPUS} run on each node; microseconds of CPU for one call")
    names = "".join(f"{name:>9}" for name in ("calls", "submit", "replace", "drain", "release"))
    print(f"{'nodes':>7}{names} {'replaced/s':>13}")
    for name, duration_us in (("long", 1_000_000), ("short", 20)):
        for number in nodes:
            gc.collect()
            gc.disable()
            costs = measure(number, calls, duration_us)
            gc.enable()
            shown = "".join(f"{cost * 1e6:9.2f}" for cost in costs)
            print(f"{number:>7}{name:>9}{shown} {1 / costs[1] if costs[1] else 0:>13,.0f}", flush=True)


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

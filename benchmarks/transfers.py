"""Large values between hosts, beside bare MPI on the same ranks in the same run.

    mpirun -n 5 python benchmarks/transfers.py [--megabytes 256] [--rounds 5] [--only pair broadcast latency shuffle]

Each rank should be on a host of its own (ranks of one host share memory, and move nothing). Bare MPI is measured first,
in the processes that are the ranks afterwards; then `init()` takes them. Rank 0 prints.

- `pair`: a value from one host to another, beside `Isend` and `Irecv`; warm memory on both sides.
- `broadcast`: a value to all other hosts, beside `MPI_Bcast`; and how many times the value each host has sent.
- `latency`: round trips of an empty call to a host while it sends values to another one, beside the same in peace.
- `shuffle`: each host makes a part for each host, and takes one from each: bytes in all per second.

All times include what the calls take that ask for the values. The time: about 10 s, and 20 times what it takes to move
so many megabytes between two hosts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

MB = 1_000_000
PARTS = ("pair", "broadcast", "latency", "shuffle")
CALLS = 200
LATENCY_MB = 4000


def bare(megabytes: int, rounds: int) -> dict[str, float]:
    """Seconds for one copy from rank 1 to rank 2 (0 to 1 if there are only two), and to all ranks: medians."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    buffer = np.ones(megabytes * MB, dtype=np.uint8)
    first, second = (1, 2) if world.size > 2 else (0, 1)
    times: dict[str, list[float]] = {"pair": [], "broadcast": []}
    for number in range(rounds + 1):  # the first one warms up
        for name in times:
            world.Barrier()
            started = time.perf_counter()
            if name == "broadcast":
                world.Bcast(buffer, first)
            elif world.rank == first:
                world.Send(buffer, second)
            elif world.rank == second:
                world.Recv(buffer, first)
            world.Barrier()
            if number:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(each) for name, each in times.items()}


def sent() -> int:
    """Bytes that this host has sent over its network."""
    with open("/proc/net/dev") as lines:
        return sum(int(line.split(":")[1].split()[8]) for line in lines if ":" in line and " lo:" not in line)


def make(megabytes: int) -> Any:
    """A value."""
    return np.ones(megabytes * MB, dtype=np.uint8)


def make_parts(megabytes: int, count: int) -> Any:
    """Several values."""
    return tuple(np.ones(megabytes * MB, dtype=np.uint8) for _ in range(count))


def use(*values: Any) -> int:
    """Look at values."""
    return sum(int(value[-1]) for value in values)


def timed(action: Callable[[], object]) -> float:
    """How many seconds it takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


class Bench:
    """The runtime, with a way to have a function run on a host."""

    def __init__(self, megabytes: int, rounds: int) -> None:
        import mpi_runtime as ray

        self.ray, self.megabytes, self.rounds = ray, megabytes, rounds
        ray.init(log_to_driver=False)
        nodes = [node for node in ray.nodes() if node["Resources"].get("CPU")]
        self.hosts = [f"node:{node['NodeManagerHostname']}" for node in nodes]
        self.hosts = self.hosts[1:] + self.hosts[:1]  # the host of rank 0 has more to do

    def on(self, host: str, function: Callable[..., Any], **options: Any) -> Any:
        """The function as one that runs on a host."""
        return self.ray.remote(function).options(resources={host: 0.001}, num_cpus=0, **options)

    def made(self, host: str) -> Any:
        """A value that lies on a host."""
        value = self.on(host, make).remote(self.megabytes)
        self.ray.wait([value])
        return value

    def pair(self, bare_s: dict[str, float]) -> None:
        """See the head of this file."""
        times = [self.moved(self.hosts[1:2])[0] for _ in range(self.rounds + 1)]
        self.say("one value, host to host", statistics.median(times[1:]), bare_s["pair"], 1)

    def broadcast(self, bare_s: dict[str, float]) -> None:
        """See the head of this file."""
        others = self.hosts[1:]
        measured = [self.moved(others) for _ in range(self.rounds + 1)][1:]
        took_s = statistics.median(took for took, _ in measured)
        self.say(f"one value to {len(others)} hosts", took_s, bare_s["broadcast"], len(others))
        by_host = zip(*(shares for _, shares in measured), strict=True)
        each = ", ".join(f"{statistics.median(shares):.2f}" for shares in by_host)
        print(f"    each host has sent the value so many times: {each}", flush=True)

    def moved(self, hosts: list[str]) -> tuple[float, list[float]]:
        """How long it takes until a value of the first host was used on others, and how often each host has sent it."""
        value, before = self.made(self.hosts[0]), self.count()
        took_s = timed(lambda: self.ray.get([self.on(host, use).remote(value) for host in hosts]))
        return took_s, [(now - then) / (self.megabytes * MB) for now, then in zip(self.count(), before, strict=True)]

    def count(self) -> list[int]:
        """What each host has sent so far."""
        return self.ray.get([self.on(host, sent).remote() for host in self.hosts])

    def latency(self, bare_s: dict[str, float]) -> None:
        """See the head of this file."""
        del bare_s
        first, second = self.hosts[:2]
        empty = self.on(first, use)
        self.ray.get(empty.remote())
        calm = [timed(lambda: self.ray.get(empty.remote())) for _ in range(CALLS)]
        busy: list[float] = []
        moved = 0
        while len(busy) < CALLS or moved < LATENCY_MB:
            value = self.made(first)
            ended = self.on(second, use).remote(value)
            while not self.ray.wait([ended], timeout=0)[0]:
                busy.append(timed(lambda: self.ray.get(empty.remote())))
            moved += self.megabytes
            del value, ended
        for name, times in (("in peace", calm), (f"while {moved / 1000:.1f} GB move", busy)):
            ordered = sorted(times)
            print(
                f"round trip of a call, {name:22} median {1e3 * statistics.median(ordered):7.2f} ms, 99 of 100 below "
                f"{1e3 * ordered[len(ordered) * 99 // 100]:7.2f} ms",
                flush=True,
            )

    def shuffle(self, bare_s: dict[str, float]) -> None:
        """See the head of this file."""
        count = len(self.hosts)
        size = max(1, self.megabytes // count)
        times = []
        for _ in range(self.rounds + 1):
            rows = [self.on(host, make_parts, num_returns=count).remote(size, count) for host in self.hosts]
            self.ray.wait([part for row in rows for part in row], num_returns=count * count)
            columns = list(zip(*rows, strict=True))
            pairs = list(zip(self.hosts, columns, strict=True))
            started = time.perf_counter()
            self.ray.get([self.on(host, use).remote(*parts) for host, parts in pairs])
            times.append(time.perf_counter() - started)
            del rows, columns, pairs
        moved = size * MB * count * (count - 1)
        median = statistics.median(times[1:])
        print(
            f"shuffle among {count} hosts: {moved / 1e9:.2f} GB in {median:.3f} s, {moved / median / 1e9:.2f} GB/s; "
            f"{moved / count / median / (self.megabytes * MB / bare_s['pair']):.2f} of bare MPI from each host",
            flush=True,
        )

    def say(self, name: str, ours_s: float, bare_s: float, copies: int) -> None:
        """Print a line."""
        total = self.megabytes * MB * copies / 1e9
        print(
            f"{name}: {ours_s:.3f} s, {total / ours_s:.2f} GB/s; bare MPI {bare_s:.3f} s, {total / bare_s:.2f} GB/s; "
            f"ratio of speeds {bare_s / ours_s:.2f}",
            flush=True,
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=256, help="size of the value (default 256)")
    parser.add_argument("--rounds", type=int, default=5, help="so many times, and once before (default 5)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    bare_s = bare(arguments.megabytes, arguments.rounds)
    bench = Bench(arguments.megabytes, arguments.rounds)  # only rank 0 goes on from here
    print(f"{len(bench.hosts)} hosts, {arguments.megabytes} MB, medians of {arguments.rounds}", flush=True)
    for part in arguments.only:
        getattr(bench, part)(bare_s)


if __name__ == "__main__":
    main()

"""How long graphs of calls take with the order of the scheduler, beside a lower bound and first-come-first-served.

    python -m benchmarks.makespan

All in virtual time: the figures are the same on every machine.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence

from benchmarks.workloads import Workload, all_workloads
from mpi_runtime.whatif.virtual_cluster import Ran, Shape, VirtualCluster, Work, asked


def bound_us(workload: Workload) -> float:
    """No order can be faster.

    Work is divided by capacity, of CPUs and of GPUs; a large call counts as a whole node where nothing of the least
    size that is counted fits beside it (Martello and Toth's bound L2 for bin packing). For each call: all that comes
    before it, divided so, and then the longest chain from it on.
    """
    calls = workload.calls
    paths = paths_us(workload, [call.duration_us for call in calls])
    ancestors = [0] * len(calls)
    for index, call in enumerate(calls):
        for before in call.after:
            ancestors[index] |= ancestors[before] | 1 << before
    best = 0.0
    for size, amounts in (
        (workload.nodes[0].cpus, [call.shape.cpus for call in calls]),
        (workload.nodes[0].gpus, [call.shape.gpus for call in calls]),
    ):
        if not size:
            continue
        for least in {amount for amount in amounts if 0 < amount <= size / 2} | {0}:
            counted = [size if amount > size - least else amount if amount >= least else 0 for amount in amounts]
            works = [count * call.duration_us / size for count, call in zip(counted, calls, strict=True)]
            best = max(best, sum(works) / len(workload.nodes))
            known: dict[int, float] = {}
            for path, mask in zip(paths, ancestors, strict=True):
                if mask not in known:
                    known[mask] = sum(work for one, work in enumerate(works) if mask >> one & 1) / len(workload.nodes)
                best = max(best, known[mask] + path)
    return best


def limits_us(workload: Workload) -> dict[str, int]:
    """What a person might state for each kind of call: the longest."""
    limits: dict[str, int] = {}
    for call in workload.calls:
        limits[call.name] = max(limits.get(call.name, 0), call.duration_us)
    return limits


def paths_us(workload: Workload, durations_us: Sequence[int]) -> list[int]:
    """For each call how long it and the longest chain after it take, if they take so long."""
    paths = [0] * len(workload.calls)
    for index in reversed(range(len(paths))):
        call = workload.calls[index]
        paths[index] += durations_us[index]
        for before in call.after:
            paths[before] = max(paths[before], paths[index])
    return paths


def rounded(us: int) -> int:
    """As batches round it: calls of about the same path share a queue."""
    return 1 << us.bit_length() - 1


class Followers:
    """What becomes ready when a call has ended."""

    def __init__(self, workload: Workload) -> None:
        self.missing = [len(call.after) for call in workload.calls]
        self.followers: list[list[int]] = [[] for _ in workload.calls]
        for index, call in enumerate(workload.calls):
            for before in call.after:
                self.followers[before].append(index)

    def begin(self) -> list[int]:
        """What waits for nothing."""
        return [index for index, missing in enumerate(self.missing) if not missing]

    def ended(self, index: int) -> list[int]:
        """What waits for nothing any more."""
        ready = []
        for follower in self.followers[index]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                ready.append(follower)
        return ready


def ours_us(workload: Workload, with_limits: bool = True) -> int:
    """The makespan with the scheduler of real jobs."""
    followers, limits = Followers(workload), limits_us(workload)
    paths = paths_us(workload, [limits[call.name] for call in workload.calls])

    def submit(indices: Sequence[int]) -> None:
        works = []
        for index in indices:
            call = workload.calls[index]
            path_us = rounded(paths[index]) if with_limits else 0
            limit_us = limits[call.name] if with_limits else 0
            work = Work(call.name, asked(call.shape, limit_us, call.priority), call.duration_us, path_us, index)
            works.append(work)
        cluster.submit(works)

    def ended(ran: Ran) -> None:
        ready = followers.ended(ran.work.tag)
        if ready:
            submit(ready)

    cluster = VirtualCluster(workload.nodes, ended)
    submit(followers.begin())
    ran = cluster.run()
    assert len(ran) == len(workload.calls), f"{workload.name}: {len(ran)} of {len(workload.calls)} calls were run"
    return max(one.end_us for one in ran)


def first_come_us(workload: Workload) -> int:
    """The makespan when calls start strictly in the order in which they became ready, on the first node with room."""
    followers = Followers(workload)
    free = [[node.cpus, node.gpus] for node in workload.nodes]
    waiting = followers.begin()
    running: list[tuple[int, int, int]] = []
    now = 0
    while waiting or running:
        while waiting:
            shape = workload.calls[waiting[0]].shape
            place = next((n for n, (c, g) in enumerate(free) if c >= shape.cpus and g >= shape.gpus), None)
            if place is None:
                break
            _take(free[place], shape, -1)
            heapq.heappush(running, (now + workload.calls[waiting[0]].duration_us, waiting.pop(0), place))
        now, index, place = heapq.heappop(running)
        _take(free[place], workload.calls[index].shape, 1)
        waiting += followers.ended(index)
    return now


def _take(free: list[float], shape: Shape, sign: int) -> None:
    free[0] += sign * shape.cpus
    free[1] += sign * shape.gpus


def main() -> None:
    """Print the table."""
    print("| workload | calls | nodes | bound, s | ours / bound | without limits | first come / bound |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for workload in all_workloads():
        bound = bound_us(workload)
        row = ours_us(workload) / bound, ours_us(workload, False) / bound, first_come_us(workload) / bound
        rows.append(row)
        nodes = f"{len(workload.nodes)} x {workload.nodes[0].cpus:g}"
        print(f"| {workload.name} | {len(workload.calls)} | {nodes} | {bound / 1e6:.0f} | ", end="")
        print(" | ".join(f"{one:.2f}" for one in row), "|", flush=True)
    means = [statistics.mean(column) for column in zip(*rows, strict=True)]
    print(f"| mean | | | | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()

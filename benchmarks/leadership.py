"""One head for the nodes of a leadership machine: the rate of tasks, and the part of the machine that works.

    python -m benchmarks.leadership                      # 1 to 1 024 nodes of 56 CPUs and 8 GPUs
    python -m benchmarks.leadership --nodes 64 --charge 2

The workloads are those with which arXiv 2509.20819 (September 2025) measured RADICAL-Pilot on Frontier: tasks that do
nothing, tasks of 180 s on one CPU, and a mixed campaign like IMPECCABLE: MPI simulations on several nodes, tasks on
GPUs and functions. There are four tasks for each CPU, and about as much work in the campaign.

Nodes, executors and the driver are virtual; the scheduler and the codec of all its messages are real. The clock is
virtual too: it advances by the measured seconds of each turn of the head, times `--charge`, and to the next event while
the head has nothing to do. A message takes 0.1 ms and a new executor 10 ms (assumed). The rate is tasks over the
measured seconds of the head. Utilisation is the busy time of CPUs over all CPUs until the last task has ended; beside
it stands that of a head that costs nothing, which shows what the ends of the list cost.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable

from msgspec import Struct

from benchmarks.launching import machine
from mpi_runtime.core.transport import codec
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import Ready, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import Call, ClientEvent, Done, GangSpec, Released, Spec, TaskSpec
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, ExecutorStarted, RankEvent, RankJoined, TakenBack

UNIT = 10_000
CPUS, GPUS = 56, 8
WAVES = 4
"""Tasks for each CPU."""
DRIVER = 0
FRAME = 100
"""Calls in one frame of the driver."""
MESSAGE_US = 100
FORK_US = 10_000
SUBMIT_US = 4
"""The driver makes a call in this time."""
SECOND_US = 1_000_000
NODES = (1, 4, 16, 64, 256, 1024)


class Kind(Struct):
    """Tasks of one function: how many for each node, and how long."""

    name: str
    for_node: float
    shortest_s: float
    longest_s: float
    cpus: int = 1
    gpus: int = 0
    ranks: int = 0
    """The members of its gang, each with these CPUs and GPUs."""
    on_node: int = 0


NULL = [Kind("null", WAVES * CPUS, 0, 0)]
DUMMY = [Kind("dummy", WAVES * CPUS, 180, 180)]
CAMPAIGN = [
    Kind("simulate", 0.5, 300, 300, cpus=7, gpus=1, ranks=16, on_node=8),
    Kind("infer", 24, 60, 180, cpus=7, gpus=1),
    Kind("dock", 150, 30, 90),
]
WORKLOADS = {"null": NULL, "180 s": DUMMY, "campaign": CAMPAIGN}


class Process(Struct):
    """An executor, or a member of a gang."""

    rank: int
    calls: deque[Call]
    """In order; the first one runs."""
    free_us: int
    """When it is there, and later when the running call ends."""


class Machine:
    """A virtual machine with one real scheduler."""

    def __init__(self, nodes: int, charge: float) -> None:
        self.scheduler = Scheduler()
        self.charge = charge
        self.now = 0
        self.head_s = 0.0
        self.busy_us = 0
        self.ended = 0
        self.last_us = 0
        self.specs: dict[int, tuple[Spec, Kind]] = {}
        self.duration: dict[bytes, int] = {}
        self._processes: dict[int, Process] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._timer_us = -1
        self._frames: defaultdict[int, list[ClientEvent]] = defaultdict(list)
        self._of_ranks: list[RankEvent] = []
        self._of_ranks.append(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30))
        for rank in range(1, nodes + 1):
            cpus = list(range(CPUS))
            self._of_ranks.append(RankJoined(rank, rank, f"node{rank}", cpus, -1, GPUS * UNIT, 0, {}, 1 << 30))
        self._turn()
        self.now, self.head_s = 0, 0.0

    def at(self, when: int, happens: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, happens))

    def say(self, when: int, client: int, events: list[ClientEvent]) -> None:
        """Let a frame of a client arrive."""
        self.at(when + MESSAGE_US, lambda: self._frames[client].extend(events))

    def run(self) -> None:
        """Until nothing happens any more."""
        while self._heap:
            self.now = max(self.now, self._heap[0][0])
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            self._turn()

    def _turn(self) -> None:
        """One turn of the head: frames in, a decision, frames out."""
        of_ranks, self._of_ranks = self._of_ranks, []
        frames = [(client, codec.encode(events)) for client, events in self._frames.items()]
        self._frames.clear()
        start_s = time.perf_counter()
        for event in of_ranks:
            self.scheduler.handle_rank(event, self.now)
        for client, frame in frames:
            self.scheduler.handle(client, codec.from_client.decode(frame), self.now)
        effects = self.scheduler.decide(self.now)
        for orders in effects.ranks.values():
            codec.encode(orders)
        for messages in effects.clients.values():
            codec.encode(messages)
        deadline = self.scheduler.deadline()
        spent_s = time.perf_counter() - start_s
        self.head_s += spent_s
        self.now += int(spent_s * SECOND_US * self.charge)
        for rank, orders in effects.ranks.items():
            for order in orders:
                self._obey(rank, order)
        for client, messages in effects.clients.items():
            self._receive(client, messages)
        if deadline is not None and self._busy() and not self.now < self._timer_us <= deadline:
            self._timer_us = max(deadline, self.now + 1)
            self.at(self._timer_us, lambda: None)

    def _busy(self) -> bool:
        return self.ended < len(self.duration)

    def _obey(self, rank: int, order: object) -> None:
        if isinstance(order, StartExecutor):
            there_us = self.now + MESSAGE_US + FORK_US
            self._processes[order.executor] = Process(rank, deque(), there_us)
            self.at(there_us + MESSAGE_US, lambda: self._of_ranks.append(ExecutorStarted(order.executor, 1000)))
        elif isinstance(order, StopExecutor) and self._processes.pop(order.executor, None) is not None:
            died = ExecutorDied(order.executor, b"", "ended")
            self.at(self.now + 2 * MESSAGE_US, lambda: self._of_ranks.append(died))
        elif isinstance(order, TakeBack) and order.executor in self._processes:
            self.at(self.now + MESSAGE_US, lambda: self._take_back(order))

    def _take_back(self, order: TakeBack) -> None:
        process = self._processes.get(order.executor)
        calls = process.calls if process is not None else deque()
        taken = [calls.pop().id for _ in range(min(order.count, len(calls) - 1))]
        back = TakenBack(order.executor, taken[::-1])
        self.at(self.now + MESSAGE_US, lambda: self._of_ranks.append(back))

    def _receive(self, client: int, messages: list[object]) -> None:
        if client == DRIVER:
            ids = [message.id for message in messages if isinstance(message, Ready)]
            if ids:
                self.ended += len(ids)
                self.last_us = self.now
                self.say(self.now, DRIVER, [Released(ids)])
            return
        process = self._processes.get(client)
        for message in messages:
            if isinstance(message, Call) and process is not None:
                process.calls.append(message)
                if len(process.calls) == 1:
                    self._start(client, process, max(self.now + MESSAGE_US, process.free_us))

    def _start(self, client: int, process: Process, when: int) -> None:
        call = process.calls[0]
        _, kind = self.specs[call.spec]
        duration = self.duration.get(call.id)
        if duration is None:  # a further member of a gang: its part of the call has an id of its own
            duration = int(kind.longest_s * SECOND_US)
        process.free_us = when + duration
        self.busy_us += duration * kind.cpus
        self.at(process.free_us, lambda: self._end(client, process, duration))

    def _end(self, client: int, process: Process, duration: int) -> None:
        call = process.calls.popleft()
        self.say(self.now, client, [Done(call.id, b"value", duration)])
        if process.calls:
            self._start(client, process, self.now)

    def submit(self, kinds: list[Kind], nodes: int) -> None:
        """Let the driver submit all tasks, in frames: it makes the next one while the head reads the last."""
        chance = random.Random(0)
        calls: list[ClientEvent] = []
        for number, kind in enumerate(kinds, 1):
            gang = GangSpec(kind.ranks, kind.on_node) if kind.ranks else None
            asks = Request(kind.cpus * UNIT, kind.gpus * UNIT)
            spec = Spec(number, TaskSpec(), kind.name, b"", asks, gang=gang)
            self.specs[number] = spec, kind
            self.say(0, DRIVER, [spec])
            if kind.ranks > nodes * (kind.on_node or 1):
                continue  # this machine is too small for its gang
            for _ in range(max(1, round(kind.for_node * nodes))):
                id = len(self.duration).to_bytes(15, "big") + b"\0"
                self.duration[id] = int(chance.uniform(kind.shortest_s, kind.longest_s) * SECOND_US)
                calls.append(Call(id, number, b""))
        chance.shuffle(calls)
        for start in range(0, len(calls), FRAME):
            self.say(start * SUBMIT_US, DRIVER, calls[start : start + FRAME])


def measure(kinds: list[Kind], nodes: int, charge: float) -> Machine:
    """Run a workload, and check that each task has ended."""
    gc.collect()
    gc.disable()
    try:
        made = Machine(nodes, charge)
        made.submit(kinds, nodes)
        made.run()
    finally:
        gc.enable()
    if made.ended != len(made.duration):
        raise RuntimeError(f"{made.ended} of {len(made.duration)} tasks have ended")
    return made


def used(made: Machine, nodes: int) -> float:
    """The part of the CPUs that was busy until the last task had ended."""
    return made.busy_us / (made.last_us * CPUS * nodes)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--charge", type=float, default=1.0, help="how often the measured seconds count")
    parser.add_argument("--only", choices=WORKLOADS)
    chosen = parser.parse_args()
    print(machine())
    columns = f"{'workload':<10}{'nodes':>6}{'tasks':>9}{'head s':>8}{'tasks/s':>9}"
    print(columns + f"{'makespan s':>12}{'used':>8}{'if free':>9}")
    for name, kinds in WORKLOADS.items():
        for nodes in chosen.nodes if chosen.only in (None, name) else ():
            made = measure(kinds, nodes, chosen.charge)
            tasks, head_s = len(made.duration), made.head_s
            shown = ""
            if any(kind.longest_s for kind in kinds):
                free = measure(kinds, nodes, 0)
                shown = f"{used(made, nodes):>8.2%}{used(free, nodes):>9.2%}"
            line = (
                f"{name:<10}{nodes:>6}{tasks:>9}{head_s:>8.2f}{tasks / head_s:>9,.0f}{made.last_us / SECOND_US:>12.2f}"
            )
            print(line + shown, flush=True)


if __name__ == "__main__":
    main()

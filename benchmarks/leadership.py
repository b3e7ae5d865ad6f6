"""One head for the nodes of a leadership machine: the rate of tasks, and the part of the machine that works.

    python -m benchmarks.leadership                      # 1 to 1 024 nodes of 56 CPUs and 8 GPUs
    python -m benchmarks.leadership --nodes 64 --charge 2
    python -m benchmarks.leadership --write              # puts the table into docs/performance.md

The workloads are those with which arXiv 2509.20819 (September 2025) measured RADICAL-Pilot on Frontier: tasks that do
nothing, tasks of 180 s on one CPU, and a mixed campaign in the shape of IMPECCABLE: MPI simulations on several nodes,
tasks on GPUs and functions. There are four tasks for each CPU, and about as much work in the campaign.

Nodes, executors and the driver are virtual; the scheduler and the codec of all its messages are real: frames of
executors arrive within those of their ranks, as by MPI, and the garbage collector runs as it does in a head. MPI's own
sends and receives are not measured. The clock is virtual too: it advances by the measured seconds of each turn of the
head, times `--charge`, and to the next event while the head has nothing to do. Assumed are 0.1 ms for a message, 5 us
of the driver for a call, and 10 ms for a new executor, one after the other on each node.

- Rate of the head: tasks over the measured seconds of the head.
- Rate of the machine: tasks over the time from the first call until the driver has the last result.
- Bound: no order of the tasks could end sooner. It is their CPU seconds over the CPUs, their GPU seconds over the GPUs,
  or the longest task, whichever is most.
- Used: busy CPU seconds over all CPU seconds in this time, the start of executors included. Beside it stands
  that of a head that costs nothing, which shows what the order of the tasks, the end of the list and the start cost.

The campaign ends later than its bound, also with a free head. Tasks start in the order of submission as far as there is
room, and each node soon has tasks on one CPU. So gangs of whole nodes start when these run out, and nodes that become
free wait for each other; the last gangs end one after the other, too. If gangs are submitted first, the campaign ends
at about the same time: the tasks on GPUs are last then, and the last of these end one after the other.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from msgspec import Struct

from benchmarks.launching import machine
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.messages import FromExecutor, ToExecutor
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
SUBMIT_US = 5
"""The driver makes a call in this time."""
SECOND_US = 1_000_000
NODES = (1, 4, 16, 64, 256, 1024)
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
TITLE = "## One head for a leadership machine"
"""The first section of the page that `benchmarks.peers`, which writes those before, keeps."""
PAPER = """\
| arXiv 2509.20819, Frontier, the best of its figures | tasks/s | utilisation |
| --- | ---: | ---: |
| srun | 152 | below 50 % |
| RADICAL-Pilot, Flux | 930 | - |
| RADICAL-Pilot, Flux and Dragon | above 1,500 | above 99.6 % |

Its tasks are real processes on real nodes; these nodes are virtual, and what a task costs its node is not in the table.
For IMPECCABLE it states makespans against each other alone: with Flux 30 to 60 % less than with srun.
"""


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
        self.kinds: dict[bytes, Kind] = {}
        self._processes: dict[int, Process] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._timer_us = -1
        self._forks_us: defaultdict[int, int] = defaultdict(int)
        """When the forkserver of a rank has done what it was asked for."""
        self._frames: defaultdict[int, list[ClientEvent]] = defaultdict(list)
        self._of_ranks: defaultdict[int, list[RankEvent | FromExecutor]] = defaultdict(list)
        self.scheduler.handle_rank(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30), 0)
        for rank in range(1, nodes + 1):
            cpus = list(range(CPUS))
            self._of_ranks[rank] = [RankJoined(rank, rank, f"node{rank}", cpus, -1, GPUS * UNIT, 0, {}, 1 << 30)]
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
        scheduler, now = self.scheduler, self.now
        of_driver = codec.encode(self._frames.pop(DRIVER, []))
        for client, events in self._frames.items():
            ended = sum(type(event) is Done for event in events)
            self._of_ranks[scheduler.rank_of(client)].append(FromExecutor(client, codec.encode(events), ended))
        frames = [codec.encode(messages) for messages in self._of_ranks.values()]
        self._frames.clear()
        self._of_ranks.clear()
        start_s = time.perf_counter()
        for frame in frames:
            for message in codec.between_ranks.decode(frame):
                if type(message) is FromExecutor:
                    events = codec.from_client.decode(message.frame)
                    scheduler.handle(message.executor, events, now, message.ended)
                else:
                    scheduler.handle_rank(cast(RankEvent, message), now)
        scheduler.handle(DRIVER, codec.from_client.decode(of_driver), now)
        effects = scheduler.decide(now)
        to_ranks: defaultdict[int, list[object]] = defaultdict(list)
        for rank, orders in effects.ranks.items():
            to_ranks[rank] += orders
        for client, messages in effects.clients.items():
            ids = [message.id for message in messages if type(message) is Call]
            frame = codec.encode(messages)
            if client != DRIVER:
                to_ranks[scheduler.rank_of(client)].append(ToExecutor(client, ids, frame))
        for sent in to_ranks.values():
            codec.encode(sent)
        deadline = scheduler.deadline()
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
            there_us = max(self.now + MESSAGE_US, self._forks_us[rank]) + FORK_US
            self._forks_us[rank] = there_us
            self._processes[order.executor] = Process(rank, deque(), there_us)
            started = ExecutorStarted(order.executor, 1000)
            self.at(there_us + MESSAGE_US, lambda: self._of_ranks[rank].append(started))
        elif isinstance(order, StopExecutor) and self._processes.pop(order.executor, None) is not None:
            died = ExecutorDied(order.executor, b"", "ended")
            self.at(self.now + 2 * MESSAGE_US, lambda: self._of_ranks[rank].append(died))
        elif isinstance(order, TakeBack) and order.executor in self._processes:
            self.at(self.now + MESSAGE_US, lambda: self._take_back(rank, order))

    def _take_back(self, rank: int, order: TakeBack) -> None:
        process = self._processes.get(order.executor)
        calls = process.calls if process is not None else deque()
        taken = [calls.pop().id for _ in range(min(order.count, len(calls) - 1))]
        back = TakenBack(order.executor, taken[::-1])
        self.at(self.now + MESSAGE_US, lambda: self._of_ranks[rank].append(back))

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
                self.kinds[id] = kind
                calls.append(Call(id, number, b""))
        chance.shuffle(calls)
        for start in range(0, len(calls), FRAME):
            self.say(start * SUBMIT_US, DRIVER, calls[start : start + FRAME])


def measure(kinds: list[Kind], nodes: int, charge: float) -> Machine:
    """Run a workload, and check that each task has ended."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(100_000, 50, 100)  # as in a head
    try:
        made = Machine(nodes, charge)
        made.submit(kinds, nodes)
        made.run()
    finally:
        gc.set_threshold(*thresholds)
    if made.ended != len(made.duration):
        raise RuntimeError(f"{made.ended} of {len(made.duration)} tasks have ended")
    return made


def used(made: Machine, nodes: int) -> float:
    """The part of the CPUs that was busy until the last task had ended."""
    return made.busy_us / (made.last_us * CPUS * nodes)


def bound_s(made: Machine, nodes: int) -> float:
    """The shortest makespan of any order."""
    work = [(made.duration[id] / SECOND_US * max(1, kind.ranks), kind) for id, kind in made.kinds.items()]
    cpu_s, gpu_s = sum(each_s * kind.cpus for each_s, kind in work), sum(each_s * kind.gpus for each_s, kind in work)
    return max(cpu_s / (CPUS * nodes), gpu_s / (GPUS * nodes), max(made.duration.values()) / SECOND_US)


def rows(nodes: Iterable[int], charge: float, only: str | None, limit_s: float) -> Iterable[str]:
    """Measure, and make the lines of the table. What may take longer than the limit is left out."""
    yield "| workload | nodes | tasks | head, tasks/s | machine, tasks/s | makespan, s | bound, s | used | free head |"
    yield "| --- |" + " ---: |" * 8
    for name, kinds in WORKLOADS.items():
        last = (1, 0.0)
        for count in nodes if only in (None, name) else ():
            expected_s = last[1] * count / last[0]
            if expected_s > limit_s:
                yield f"| {name} | {count:,} | - | not measured: {expected_s / 60:.0f} min | - | - | - | - | - |"
                continue
            start_s = time.perf_counter()
            made = measure(kinds, count, charge)
            last = (count, time.perf_counter() - start_s)
            tasks, makespan_s = len(made.duration), made.last_us / SECOND_US
            if any(kind.longest_s for kind in kinds):
                rate, shares = "-", f"{used(made, count):.2%} | {used(measure(kinds, count, 0), count):.2%}"
            else:
                rate, shares = f"{tasks / makespan_s:,.0f}", "- | -"
            least = f"{bound_s(made, count):,.2f}" if rate == "-" else "-"
            head = f"{tasks / made.head_s:,.0f}"
            yield f"| {name} | {count:,} | {tasks:,} | {head} | {rate} | {makespan_s:,.2f} | {least} | {shares} |"


def put(section: str) -> None:
    """Replace the section of the page with this title, or add it as the last one."""
    before, _, rest = PAGE.read_text().partition(f"\n{section.splitlines()[0]}\n")
    _, mark, after = rest.partition("\n## ")
    PAGE.write_text(f"{before.rstrip()}\n\n{section.rstrip()}\n{mark}{after}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--charge", type=float, default=1.0, help="how often the measured seconds count")
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="leave out what may take longer; 600 s")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    chosen = parser.parse_args()
    host = re.sub(r" +", " ", machine())
    lines = [
        TITLE,
        "",
        f"Written by `python -m benchmarks.leadership --write`, which says what is measured. {host}.",
        "",
    ]
    print("\n".join(lines))
    for line in rows(chosen.nodes, chosen.charge, chosen.only, chosen.limit):
        print(line, flush=True)
        lines.append(line)
    print(f"\n{PAPER}", end="")
    if chosen.write:
        put("\n".join([*lines, "", PAPER]))


if __name__ == "__main__":
    main()

"""Virtual time, virtual lines between processes, and the head around the scheduler under test."""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.messages import Ended, FromExecutor, ToExecutor
from mpi_runtime.scheduler.actors import checkpoints
from mpi_runtime.scheduler.actors.calls import is_timed
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.dispatch import deadline
from mpi_runtime.scheduler.protocol.effects import (
    LATE,
    QUARANTINE,
    UNHANDLED,
    Cancel,
    Checkpoint,
    Fresh,
    JournalEffect,
    Recall,
    Record,
    StartExecutor,
)
from mpi_runtime.scheduler.protocol.events import Call, EndAnnounced, EndMoved
from mpi_runtime.scheduler.protocol.rank_events import (
    ExecutorDied,
    FrameRefused,
    MemoryReported,
    RankJoined,
    RankLost,
    Recalled,
    TakenBack,
)
from mpi_runtime.scheduler.records.lifecycle import ALIVE, READY
from tests.checks import executors as invariants
from tests.checks.circles import Passing
from tests.simulation.cards import described
from tests.simulation.journals import Journal
from tests.simulation.options import UNIT, Options, zone
from tests.simulation.require import require

if TYPE_CHECKING:
    from mpi_runtime.core.agent.custody import Custodian
    from mpi_runtime.core.head.direct_lines import DirectLines
    from tests.simulation.checkers import Checker

DRIVER = 0
JUNK = "sent a frame that cannot be read: junk"


NEVER_US = 10**15


class World:
    """Everything that happens, in order of virtual time (microseconds)."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rng = random.Random(options.seed + (options.course << 40))
        self.now = 0
        self.happened = 0
        self.counters: Counter[str] = Counter()
        """How often what was explored."""
        self.files: dict[str, dict[int, bytes]] = {}
        """The files of ranks with values that have left full arenas, by path."""
        self.journal: Journal | None = Journal() if options.has_journal else None
        self.trace = 0
        """Hash of every frame with its time and sender."""
        self.last: deque[tuple[int, str, list[object]]] = deque(maxlen=25)
        """The last messages: when, whose, what. For reports."""
        self.checker: Checker
        self.broken = some_gpus(options, options.broken, 13)
        """The GPUs that are broken, of those that may be."""
        self.busy = some_gpus(options, options.busy, 17) - self.broken
        """Those that others use up."""
        rng = random.Random(options.seed * 4001 + 19)
        self.dead_nodes = {host for host in range(len(options.hosts)) if rng.random() < options.dead_nodes}
        """The hosts on which CUDA does not start, by number."""
        """GPUs on which every call fails. Only for membership."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do this later."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._count, action))

    def between(self, bounds: tuple[int, int]) -> int:
        """A random time."""
        return self.rng.randint(*bounds)

    def chance(self, probability: float) -> bool:
        """Whether a fault with this probability happens now."""
        return probability > 0 and self.now < self.options.faults_until_us and self.rng.random() < probability

    def run(self, until: Callable[[], bool], limit_us: int) -> bool:
        """Let things happen until the condition holds; whether it did before the limit and while anything happened."""
        heap = self._heap
        while not until():
            if not heap or heap[0][0] > limit_us:
                return False
            self.now, _, action = heapq.heappop(heap)
            self.happened += 1
            action()
        return True

    def note(self, sender: str, frame: bytes, messages: list[object]) -> None:
        """Remember a frame."""
        self.trace = crc32(frame, crc32(b"%d %s" % (self.now, sender.encode()), self.trace))
        self.last.append((self.now, sender, messages))


class Line:
    """From one process to another: keeps the order, takes its time."""

    def __init__(self, world: World, delay_us: tuple[int, int], receive: Callable[[object], None]) -> None:
        self._world = world
        self._delay_us = delay_us
        self._receive = receive
        self._last_us = 0
        self._on_its_way: deque[list[object]] = deque()
        self.lag_us = 0
        """What each message takes besides."""

    def send(self, message: object) -> None:
        """Deliver this after what was sent before."""
        world = self._world
        delay_us = world.between(self._delay_us) + self.lag_us
        if world.options.stall_us and world.chance(0.01):
            delay_us += world.rng.randint(0, world.options.stall_us)
        self._last_us = max(self._last_us, world.now + delay_us)
        parcel = [message]
        self._on_its_way.append(parcel)
        world.at(self._last_us - world.now, lambda: self._deliver(parcel))

    def _deliver(self, parcel: list[object]) -> None:
        if self._on_its_way and self._on_its_way[0] is parcel:
            self._on_its_way.popleft()
            self._receive(parcel[0])

    def drain(self) -> list[object]:
        """Take all that is on its way."""
        messages = [message for (message,) in self._on_its_way]
        self._on_its_way.clear()
        return messages


class Head:
    """The head's loop around the scheduler: everything that has arrived is handled, then one decision is performed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler = Scheduler()
        self.passing = Passing()
        self.lines: dict[int, Line] = {}
        """To each rank."""
        self.driver_line: Line
        self.custodian: Custodian
        """Of the executors with direct lines."""
        self.direct: DirectLines | None = None
        self._ranks: dict[int, int] = {}
        """The rank of each executor."""
        self._lost: set[int] = set()
        """Ranks that are gone. Only for membership."""
        self._inbox: list[tuple[int, bytes]] = []
        """Frames, from -1 - rank or from the driver."""
        self._awake = False
        self._timer_us = -1

    def receive_from_rank(self, rank: int, frame: bytes) -> None:
        """A frame from a rank has arrived."""
        self._inbox.append((-1 - rank, frame))
        self._wake()

    def hear_direct(self, message: object) -> None:
        """Its own custodian reports something, which is handled at once."""
        self.world.counters["reports of direct lines"] += 1
        self._handle_rank(0, codec.encode([message]))
        self._wake()

    def receive_from_driver(self, frame: bytes) -> None:
        """A frame from the driver has arrived."""
        self._inbox.append((DRIVER, frame))
        self._wake()

    def rank_lost(self, rank: int) -> None:
        """MPI says that a rank is gone."""
        self._inbox.append((-1 - rank, b""))
        self._wake()

    def _lose(self, rank: int) -> None:
        explored = self.world.counters
        before = explored["reports of direct lines"]
        self.custodian.lose(rank)
        explored["frames of the lost"] += explored["reports of direct lines"] - before
        executors = [executor for executor, where in self._ranks.items() if where == rank]
        self.world.checker.losses.rank_lost(rank, executors)
        self._lost.add(rank)
        for executor in executors:
            del self._ranks[executor]
        for event in codec.between_ranks.decode(codec.encode([RankLost(rank, "was killed")])):
            self.scheduler.handle_rank(event, self.world.now)  # type: ignore[arg-type]

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self.world.at(self.world.rng.choice((0, 2, 100)), self._work)

    def _work(self) -> None:
        self._awake = False
        inbox, self._inbox = self._inbox, []
        now = self.world.now
        for sender, frame in inbox:
            if sender == DRIVER:
                messages = codec.from_client.decode(frame)
                self.world.note("driver", frame, list(messages))
                self.world.checker.heard(DRIVER, messages)
                self.scheduler.handle(DRIVER, messages, now)
            elif not frame:
                self._lose(-1 - sender)
            else:
                self._handle_rank(-1 - sender, frame)
        self.decide()

    def _handle_rank(self, rank: int, frame: bytes) -> None:
        now = self.world.now
        for message in codec.between_ranks.decode(frame):
            if rank in self._lost:
                self._hear_too_late(message, now)
            elif isinstance(message, FromExecutor):
                self._hear(message, now)
            elif isinstance(message, Ended):
                self.custodian.end(message)
            else:
                self.world.note(f"rank {rank}", frame, [message])
                if isinstance(message, ExecutorDied):
                    self._ranks.pop(message.executor, None)
                    self.world.checker.cancels.executor_died(message.executor)
                    self.world.checker.losses.heard_of_death(message.executor)
                elif isinstance(message, TakenBack):
                    self.world.checker.cancels.taken_back(message.ids)
                elif isinstance(message, MemoryReported):
                    self.world.checker.tight.heard(message)
                self.world.checker.quality.rank_said(rank, message)
                self.world.checker.followers.rank_said(message)
                self.world.checker.copies.rank_said(rank, message)
                self.scheduler.handle_rank(message, now)  # type: ignore[arg-type]

    def _hear_too_late(self, message: object, now: int) -> None:
        """What a rank has said that is gone by now: nothing comes of it."""
        self.world.counters["late messages"] += 1
        if isinstance(message, FromExecutor):
            try:
                events = codec.from_client.decode(message.frame)
            except codec.BadFrameError:
                self.scheduler.handle_rank(FrameRefused(message.executor, "junk", message.ended), now)
            else:
                self.scheduler.handle(message.executor, events, now, message.ended)
        elif not isinstance(message, Ended):
            self.scheduler.handle_rank(message, now)  # type: ignore[arg-type]

    def _hear(self, message: FromExecutor, now: int) -> None:
        number, scheduler = message.executor, self.scheduler
        try:
            events = codec.from_client.decode(message.frame)
        except codec.BadFrameError:
            scheduler.handle_rank(FrameRefused(number, "junk", message.ended), now)
            return
        self.world.note(f"executor {number}", message.frame, list(events))
        executor = scheduler.state.executors.get(number)
        if executor is None or not executor.refusal:  # else nothing of it counts
            self.world.checker.heard(number, events)
        scheduler.handle(number, events, now, message.ended)
        assert executor is None or executor.refusal is None or executor.refusal.why == JUNK, executor.refusal

    def decide(self) -> None:
        """Have the scheduler decide, and perform what it says."""
        self.world.checker.quality.decides()
        effects = self.scheduler.decide(self.world.now)
        notes = [note.text for note in effects.notes if note.event in (QUARANTINE, LATE)]
        self.world.checker.cards_said(notes)
        self.world.checker.unread.told([note.text for note in effects.notes if note.event == UNHANDLED])
        self.world.checker.followers.decided(effects)
        self.world.checker.quality.decided(effects)
        self.world.checker.copies.decided(effects)
        if self.world.options.check_inside:
            invariants.check(self.scheduler.state)
            self.passing.look(self.scheduler.state)
            kept = sum(node.reserved_for is not None for node in self.scheduler.state.nodes.values())
            self.world.counters["decisions with a reservation"] += kept
        self.world.checker.times.noted(notes)
        self._keep_journal(effects.journal)
        frames: dict[int, list[Any]] = {}
        for rank, rank_effects in effects.ranks.items():
            require(rank not in self._lost, f"rank {rank} is gone, and is told {rank_effects}")
            for effect in rank_effects:
                if isinstance(effect, StartExecutor):
                    self._ranks[effect.executor] = rank
                    self.world.checker.executor_starts(effect, rank)
                elif isinstance(effect, Cancel):
                    self.world.checker.tight.ends(effect)
            left = list(rank_effects) if self.direct is None else self.direct.left_to(rank, rank_effects)
            if left:
                frames[rank] = left
        for client, messages in effects.clients.items():
            if not messages:
                continue
            frame = codec.encode(messages)
            if client == DRIVER:
                self.world.note("head to driver", frame, messages)
                self.driver_line.send(frame)
            else:
                self.world.note(f"head to executor {client}", frame, messages)
                calls = [message for message in messages if type(message) is Call]
                self.world.checker.sent(calls)
                self.world.checker.tight.sent(client, calls)
                self.world.checker.cancels.sent(client, calls)
                self.world.checker.times.sent(calls)
                self.world.checker.sent_to_gpus(client, calls)
                ids = [call.id for call in calls]
                if client in self.custodian:
                    self.custodian.to_executor(client, ids, frame)
                else:
                    frames.setdefault(self._ranks[client], []).append(ToExecutor(client, ids, frame))
        for rank, messages in frames.items():
            frame = codec.encode(messages)
            self.world.note(f"head to rank {rank}", frame, [one for one in messages if type(one) is not ToExecutor])
            self.lines[rank].send(frame)
        self._set_timer()

    def _keep_journal(self, effects: list[JournalEffect]) -> None:
        journal = self.world.journal
        for effect in effects:
            assert journal is not None
            if isinstance(effect, Record):
                journal.give(effect)
                self.world.checker.recorded(effect)
            elif isinstance(effect, Checkpoint):
                self.world.counters["states saved"] += 1
                journal.give(effect)
            elif isinstance(effect, Fresh):
                journal.give(effect)
            elif isinstance(effect, Recall) and effect.is_actor:
                states, number = journal.take_state(effect)
                self.world.counters["states taken up"] += bool(states)
                self.scheduler.handle_rank(Recalled(effect.id, states, number), self.world.now)
                self._wake()
            elif isinstance(effect, Recall):
                values = journal.take(effect)
                self.world.counters["recalls of actors" if effect.actor else "recalls"] += bool(values)
                self.scheduler.handle_rank(Recalled(effect.id, values), self.world.now)
                self._wake()

    def announce_end(self) -> None:
        """The job is about to end: actors are to save their states."""
        self.world.counters["ends announced"] += 1
        self.scheduler.handle(DRIVER, [EndAnnounced()], self.world.now)
        self.decide()

    def put_off_end(self) -> None:
        """The job's time was to end now, and was extended: what was held back can run."""
        state, now, held_back = self.scheduler.state, self.world.now, self.world.checker.times.held_back
        for queue in state.queues.values():
            if queue.is_late:
                held_back(queue.function.spec.name, len(queue.ready))
        for actor in state.actors.values():
            is_decided = actor not in state.called  # what has arrived since the last decision is not compared yet
            is_looked_at = actor.state == ALIVE and is_decided and not checkpoints.holds_back(state, actor)
            for calls in actor.callers.values() if is_looked_at else ():
                function = calls[0].function
                if calls[0].state == READY and is_timed(actor, function) and deadline.why_not(state, function, now):
                    held_back(function.spec.name, len(calls))
                    self.world.counters["calls of actors held back"] += len(calls)
        self.world.checker.times.notes.clear()  # the next announcement of an end logs a line again
        self.scheduler.handle(DRIVER, [EndMoved(now + NEVER_US)], now)
        self.decide()

    def _set_timer(self) -> None:
        deadline = self.scheduler.deadline()
        if deadline is None or (self.world.now < self._timer_us <= deadline):
            return
        self._timer_us = deadline = max(deadline, self.world.now + 1)
        self.world.at(deadline - self.world.now, self._on_timer)

    def _on_timer(self) -> None:
        if self.world.now == self._timer_us:
            self._timer_us = -1
            self.decide()


def some_gpus(options: Options, share: float, salt: int) -> set[str]:
    """A share of the described GPUs, by UUID."""
    rng = random.Random(options.seed * 4001 + salt)
    names = [f"GPU-{host}-{number}" for host, shape in enumerate(options.hosts) for number in range(len(shape.kinds))]
    return {name for name in names if rng.random() < share}


def joined(options: Options) -> list[RankJoined]:
    """How the ranks of the cluster present themselves."""
    events = []
    rank = 0
    if options.head_alone:
        events.append(RankJoined(0, 0, "head", [], 0, 0, 0, {}, 1 << 30))
        rank = 1
    for number, shape in enumerate(options.hosts):
        first = rank
        for index in range(shape.ranks):
            first_index = index == 0
            cpus = list(range(index, shape.cpus, shape.ranks))
            gpu = 0 if shape.kinds else len(range(index, shape.gpus, shape.ranks)) * UNIT
            devices, links = described(shape, number, index)
            memory = shape.memory if first_index else 0
            name = f"host{number}"
            custom = {f"node:{name}": UNIT, **shape.custom} if first_index else {}
            cpu, labels = len(cpus) * UNIT, {"zone": zone(number)}
            arena = 1 << 20 if options.arena_slots else 1 << 30
            events.append(RankJoined(
                rank, first, name, cpus, cpu, gpu, memory, custom, arena, labels, devices=devices, links=links
            ))  # fmt: skip
            rank += 1
    events[0].end_us = options.end_us
    return events

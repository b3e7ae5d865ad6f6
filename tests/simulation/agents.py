"""Virtual node agents: they obey as `mpi_runtime/processes/node_agent.py` does, with virtual executors."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field

from mpi_runtime.scheduler.effects import Cancel, Fetch, Free, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.events import ExecutorDied, ExecutorStarted, Fetched, TakenBack
from mpi_runtime.transport import codec
from mpi_runtime.transport.messages import Drained, FromExecutor, ToExecutor
from tests.simulation.executors import Executor
from tests.simulation.options import ALL
from tests.simulation.world import Head, Line, World


class Arena:
    """The part of a host's memory that one rank deals out. Offsets are reused at once: that provokes mix-ups."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.contents: dict[int, bytes] = {}
        """What was written, by offset; empty until then."""
        self._free: list[int] = []

    def allocate(self) -> int:
        """An offset, or -1: refused."""
        if self.world.chance(self.world.options.refusals):
            self.world.counters["refused"] += 1
            return -1
        offset = min(self._free, default=len(self.contents))
        if self._free:
            self._free.remove(offset)
        assert offset not in self.contents
        self.contents[offset] = b""
        return offset

    def free(self, offset: int) -> None:
        """An extent is not used any more."""
        assert offset in self.contents, f"rank {self.rank}: offset {offset} is freed twice"
        del self.contents[offset]
        self._free.append(offset)


@dataclass(eq=False)
class Hand:
    """An executor as its agent sees it."""

    number: int
    executor: Executor
    line: Line
    ids: deque[bytes] = field(default_factory=deque)
    sent: int = 0
    draining: bool = False
    is_doomed: bool = False
    """It is being killed for a call that it may end before: nothing else may start."""
    held_back: deque[tuple[list[bytes], int, bytes]] = field(default_factory=deque)
    extents: dict[int, None] = field(default_factory=dict)


class Agent:
    """The agent of one rank."""

    def __init__(self, world: World, head: Head, rank: int, host: int, agents: dict[int, Agent]) -> None:
        self.world = world
        self.rank = rank
        self.host = host
        self.agents = agents
        self.arena = Arena(world, rank)
        self.hands: dict[int, Hand] = {}
        self.orphans: dict[int, dict[int, None]] = {}
        """Extents of executors that have died, until the scheduler has said what becomes of them."""
        options = world.options
        delay_us = options.socket_us if rank == 0 else options.network_us
        self._to_head = Line(world, delay_us, lambda frame: head.receive_from_rank(rank, frame))  # type: ignore[arg-type]
        head.lines[rank] = Line(world, delay_us, self._receive)

    def fault_of(self, devices: list[str]) -> tuple[str, bool] | None:
        """What CUDA answers for good to a call that has these GPUs, if it does, and whether a program can cause it."""
        options = self.world.options
        may_break = [uuid for uuid in devices if options.breakable == ALL or uuid.endswith("-0")]
        if not may_break or not options.breakable or devices[0].startswith("stated"):
            return None
        if any(uuid in self.world.broken for uuid in may_break) and self.world.now < options.faults_until_us:
            return "cudaErrorECCUncorrectable", False
        return ("cudaErrorIllegalAddress", True) if self.world.chance(options.gpu_faults) else None

    def report(self, *messages: object) -> None:
        """Tell the head."""
        self._to_head.send(codec.encode(messages))

    def _receive(self, frame: object) -> None:
        for message in codec.between_ranks.decode(frame):  # type: ignore[arg-type]
            if isinstance(message, ToExecutor):
                self._to_executor(message.executor, message.ids, message.frame)
            elif isinstance(message, StartExecutor):
                self._start(message)
            elif isinstance(message, StopExecutor):
                self._stop(message)
            elif isinstance(message, TakeBack):
                self.take_back(message)
            elif isinstance(message, Cancel):
                self._cancel(message)
            elif isinstance(message, Free):
                self._free(message)
            else:
                assert isinstance(message, Fetch)
                self._fetch(message)

    # Executors

    def _start(self, effect: StartExecutor) -> None:
        world = self.world
        assert effect.executor not in self.hands, f"executor {effect.executor} is started twice"
        executor = Executor(world, self, effect)
        line = Line(world, world.options.socket_us, executor.receive)
        self.hands[effect.executor] = Hand(effect.executor, executor, line)
        world.counters["forks"] += 1

        def forked() -> None:
            if executor.alive:
                for _ in range(1 + world.chance(world.options.duplicates)):
                    self.report(ExecutorStarted(effect.executor, 1000 + effect.executor))
                executor.start()

        world.at(world.between(world.options.fork_us), forked)

    def _stop(self, effect: StopExecutor) -> None:
        hand = self.hands.get(effect.executor)
        if hand is None:
            return
        self.world.counters["stops"] += 1
        if effect.force:
            self._kill(hand)
        else:
            hand.line.send("exit")

    def _kill(self, hand: Hand) -> None:
        kill_us = self.world.between(self.world.options.kill_us)
        self.world.at(kill_us, lambda: hand.executor.die("was killed by signal 9"))

    def _cancel(self, effect: Cancel) -> None:
        """Interrupt a call, wherever its executor is with it. By force: kill the executor if the call runs."""
        hand = self.hands.get(effect.executor)
        if hand is None:
            return
        if effect.force:
            self.take_back(TakeBack(hand.number, sys.maxsize))
            if hand.ids and hand.ids[-1] == effect.id:
                hand.draining = hand.is_doomed = True
                self.world.counters["kills of cancelled calls"] += 1
                self._kill(hand)
                return
        hand.executor.pipe.append(effect.id)
        self.world.at(self.world.between(self.world.options.socket_us), hand.executor.interrupt)

    def _to_executor(self, number: int, ids: list[bytes], frame: bytes) -> None:
        hand = self.hands.get(number)
        if hand is None:
            return
        if ids and (hand.draining or hand.held_back):
            hand.held_back.append((ids, len(ids), frame))
            return
        self._give(hand, ids, len(ids), frame)

    def _give(self, hand: Hand, ids: list[bytes], count: int, frame: bytes) -> None:
        hand.ids.extend(ids)
        hand.executor.tokens += len(ids)
        hand.sent += count
        if len(ids) < count:
            hand.draining = True
        hand.line.send(frame)

    def take_back(self, effect: TakeBack) -> None:
        """Take calls back that were not started, the last first."""
        hand = self.hands.get(effect.executor)
        if hand is None:
            return
        taken: deque[bytes] = deque()
        for ids, _, _ in reversed(hand.held_back):
            while ids and len(taken) < effect.count:
                taken.appendleft(ids.pop())
        while len(taken) < effect.count and hand.executor.tokens:
            hand.executor.tokens -= 1
            taken.appendleft(hand.ids.pop())
            hand.draining = True
        while hand.held_back and not hand.held_back[0][0]:
            # Nothing in it may start any more, but the running call may wait for a value in it.
            self._give(hand, *hand.held_back.popleft())
        self.world.counters["take backs"] += 1
        self.world.counters["calls taken back"] += len(taken)
        self.report(TakenBack(hand.number, list(taken)))

    def hear(self, number: int, message: object) -> None:
        """An executor said something: a frame with the number of calls that end in it, or something for its agent."""
        hand = self.hands[number]
        if isinstance(message, tuple):
            count, frame = message
            for _ in range(count):
                hand.ids.popleft()
            self.report(FromExecutor(number, frame))
        elif isinstance(message, Drained):
            if message.received == hand.sent and not hand.is_doomed:
                hand.draining = False
                while hand.held_back and not hand.draining:
                    self._give(hand, *hand.held_back.popleft())
        else:
            assert isinstance(message, str)
            self._on_exited(hand, message)

    def _on_exited(self, hand: Hand, cause: str) -> None:
        executor = hand.executor
        ids = [*hand.ids, *(id for ids, _, _ in hand.held_back for id in ids)]
        claimed = len(hand.ids) - executor.tokens
        running = ids[claimed - 1] if claimed > 0 else b""
        del self.hands[hand.number]
        if hand.extents:
            self.orphans[hand.number] = hand.extents
        unstarted = [id for id in ids if id != running]
        self.report(ExecutorDied(hand.number, running, unstarted, cause, "memory" in cause, list(hand.extents)))

    # Memory

    def allocate(self, executor: int) -> int:
        """Room for a value of an executor, or of the driver."""
        offset = self.arena.allocate()
        if offset >= 0 and executor in self.hands:
            self.hands[executor].extents[offset] = None
        return offset

    def _free(self, effect: Free) -> None:
        offsets = effect.offsets
        if effect.executor:
            left = self.orphans.pop(effect.executor, {})
            offsets = [offset for offset in offsets if offset in left]
        for offset in offsets:
            self.arena.free(offset)
            for extents in (*self.orphans.values(), *(hand.extents for hand in self.hands.values())):
                extents.pop(offset, None)

    def abandon(self, offsets: list[int]) -> None:
        """Extents that were given to an executor will not become objects."""
        self._free(Free(offsets))

    def _fetch(self, effect: Fetch) -> None:
        world = self.world
        offset = self.arena.allocate()
        world.counters["fetches"] += 1
        source = self.agents[effect.rank].arena
        assert effect.offset in source.contents, f"{effect} is of an extent that was freed"
        assert self.agents[effect.rank].host != self.host, f"{effect} is from the host itself"

        def arrived() -> None:
            if offset < 0:
                self.report(Fetched(self.rank, effect.id, -1, "the arena is full"))
                return
            assert effect.offset in source.contents, f"{effect} was under way when its source was freed"
            self.arena.contents[offset] = source.contents[effect.offset]
            self.report(Fetched(self.rank, effect.id, offset))

        world.at(world.between(world.options.transfer_us), arrived)

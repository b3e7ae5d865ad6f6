"""Virtual node agents: they obey as `mpi_runtime/core/agent/agent.py` does, with virtual executors and real custody."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, cast

from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.messages import Ended, StartDirect, ToExecutor
from mpi_runtime.core.transport.unsent_frame import sealed
from mpi_runtime.gpu.device import BUSY, DEVICE, NODE, PROGRAM
from mpi_runtime.scheduler.protocol.effects import (
    Cancel,
    Erase,
    Fetch,
    Free,
    Restore,
    RoomAnswer,
    Spill,
    StartExecutor,
    StopExecutor,
    StopFetch,
    TakeBack,
)
from mpi_runtime.scheduler.protocol.limits import READ_PAST_US
from mpi_runtime.scheduler.protocol.rank_events import (
    Arriving,
    ExecutorStarted,
    Fetched,
    MemoryReported,
    RoomWanted,
    Spilled,
)
from mpi_runtime.scheduler.values import spreading
from tests.simulation.custodians import custodian
from tests.simulation.executors import Executor
from tests.simulation.options import ALL
from tests.simulation.steps import CURSED
from tests.simulation.world import DRIVER, Head, Line, World

TIGHT_BYTES = 1 << 30
LOOK_US = 20_000
SLOT_BYTES = 100_000
STOPPED_US = 5_000_000
"""By then whoever takes a copy from memory that was freed has been told to stop."""


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
class Incoming:
    """A copy on its way here."""

    effect: Fetch
    offset: int


WITH_FORKSERVER = "died with its forkserver"


def plan_kills(world: World, agents: dict[int, Agent]) -> None:
    """Have forkservers killed as the options say."""
    rng = random.Random(world.options.seed * 4051 + 7)
    at_us = 0
    for _ in range(world.options.forkserver_kills):
        at_us += rng.choice((100, 3000, 30_000, 200_000))
        agent = rng.choice(list(agents.values()))
        if at_us < world.options.faults_until_us:
            world.at(at_us, agent.lose_forkserver)


class Agent:
    """The agent of one rank."""

    def __init__(self, world: World, head: Head, rank: int, host: int, agents: dict[int, Agent]) -> None:
        self.world = world
        self.head = head
        self.rank = rank
        self.host = host
        self.agents = agents
        self.alive = True
        self.said = 0
        """How many messages it has sent."""
        self.arena = Arena(world, rank)
        self.executors: dict[int, Executor] = {}
        self.awaited: dict[int, Executor] = {}
        """Those with direct lines, until the order to start them arrives."""
        self.custodian = custodian(self, self.report)
        self.file: dict[int, bytes] = {}
        """What was written to disk, by offset."""
        self.incoming: dict[bytes, Incoming] = {}
        """Copies on their way here."""
        self._wants_room = False
        self.tight_looks = 0
        """How often it will still be found that the host's memory is nearly used up."""
        self.extents: dict[int, dict[int, None]] = {}
        """Extents of executors; of one that has died, until the scheduler has said what becomes of them."""
        options = world.options
        delay_us = options.socket_us if rank == 0 else options.network_us
        self.to_head = Line(world, delay_us, lambda frame: head.receive_from_rank(rank, frame))  # type: ignore[arg-type]
        head.lines[rank] = Line(world, delay_us, self._receive)

    def fault_of(self, devices: list[str]) -> tuple[str, str] | None:
        """What CUDA answers for good to a call that has these GPUs, if it does, and who may be the cause."""
        options = self.world.options
        may_break = [uuid for uuid in devices if options.breakable == ALL or uuid.endswith("-0")]
        if not may_break or not options.breakable or devices[0].startswith("stated"):
            return None
        if self.world.now < options.faults_until_us:
            if options.breakable == ALL and self.host in self.world.dead_nodes:
                return "cudaErrorSystemNotReady", NODE
            if any(uuid in self.world.busy for uuid in may_break):
                return "cudaErrorDevicesUnavailable", BUSY
            if any(uuid in self.world.broken for uuid in may_break):
                return "cudaErrorECCUncorrectable", DEVICE
        return ("cudaErrorIllegalAddress", PROGRAM) if self.world.chance(options.gpu_faults) else None

    def report(self, *messages: object) -> None:
        """Tell the head."""
        if self.alive:
            self.said += 1
            self.to_head.send(codec.encode(messages))

    def _receive(self, frame: object) -> None:
        if not self.alive:
            return
        for message in codec.between_ranks.decode(frame):  # type: ignore[arg-type]
            if isinstance(message, ToExecutor):
                self.custodian.to_executor(message.executor, message.ids, message.frame)
            elif isinstance(message, StartDirect):
                self._start(self.awaited.pop(message.start.executor))
            elif isinstance(message, StartExecutor):
                executor = Executor(self.world, self, self, message)
                self.custodian.add(message.executor, self.rank, cast(Any, executor.channel), executor.tokens)
                self._start(executor)
            elif isinstance(message, StopExecutor | TakeBack | Cancel):
                self._obey(message)
            elif isinstance(message, Free):
                self._free(message)
            elif isinstance(message, Fetch):
                self._fetch(message)
            elif isinstance(message, StopFetch):
                self._stop_fetch(message)
            else:
                self._about_disk(message)

    # Executors

    def _start(self, executor: Executor) -> None:
        world = self.world
        assert executor.number not in self.executors, f"executor {executor.number} is started twice"
        self.executors[executor.number] = executor
        world.counters["forks"] += 1
        is_cursed = tuple(executor.effect.environment.items()) == CURSED
        if world.chance(world.options.stillborn / 4):
            world.counters["stillborn"] += 1
            world.counters["executors that could not be started"] += 1
            executor.die("could not be started: no more processes are allowed")

        def forked() -> None:
            if executor.alive and self.alive and (is_cursed or world.chance(world.options.stillborn)):
                world.counters["stillborn"] += 1
                executor.die("exited with code 1")
            elif executor.alive and self.alive:
                for _ in range(1 + world.chance(world.options.duplicates)):
                    self.report(ExecutorStarted(executor.number, 1000 + executor.number))
                executor.start()

        world.at(world.between(world.options.fork_us), forked)

    def _obey(self, effect: StopExecutor | TakeBack | Cancel) -> None:
        if isinstance(effect, StopExecutor):
            self.world.counters["stops"] += 1
            self.world.counters["kills of overdue calls"] += effect.force and self.world.checker.times.any_is_over()
        left = self.custodian.obey(effect)
        executor = self.executors.get(effect.executor)
        if executor is None:
            return
        if isinstance(left, StopExecutor):
            self.world.counters["kills of cancelled calls"] += isinstance(effect, Cancel)
            kill_us = self.world.between(self.world.options.kill_us)
            self.world.at(kill_us, lambda: executor.die("was killed by signal 9"))
        elif isinstance(left, Cancel):
            executor.pipe.append((left.id, left.attempt))
            self.world.at(self.world.between(self.world.options.socket_us), executor.interrupt)

    def lose_forkserver(self) -> None:
        """Somebody kills the forkserver: all executors are gone, those that are being forked too."""
        self.world.counters["kills of forkservers"] += 1
        for executor in list(self.executors.values()):
            if executor.alive:
                self.world.counters["deaths"] += 1
                executor.die(WITH_FORKSERVER)

    def on_exited(self, executor: Executor, cause: str) -> None:
        """The forkserver reports that a process is gone."""
        if not self.alive:
            return
        del self.executors[executor.number]
        draft = sealed(bytes(executor.memory.content))
        self.world.counters["drafts that were left"] += bool(draft)
        ended = Ended(executor.number, cause, "", "memory" in cause, cause == WITH_FORKSERVER, draft)
        if executor.number in self.custodian:
            self.custodian.end(ended)
        else:
            self.report(ended)

    # Memory

    def fill(self) -> None:
        """The memory of the host is nearly used up, for as long as it takes to be looked at a few times."""
        if not self.tight_looks:
            self.tight_looks = self.world.rng.choice((1, 2, 3, 10))
            self._look()

    def _look(self) -> None:
        """Say how it is with the memory."""
        self.tight_looks -= 1
        is_tight = self.tight_looks > 0
        self.world.counters["hosts that are tight"] += is_tight
        sizes = [(number, TIGHT_BYTES) for number, executor in self.executors.items() if executor.started]
        self.report(MemoryReported(self.rank, is_tight, TIGHT_BYTES, TIGHT_BYTES, "the host", 0.95, sizes))
        if is_tight:
            self.world.at(LOOK_US, self._look)

    def allocate(self, executor: int) -> int:
        """Room for a value of an executor, or of the driver."""
        offset = self.arena.allocate()
        self._look_for_room()
        if offset >= 0 and executor != DRIVER:
            self.extents.setdefault(executor, {})[offset] = None
        return offset

    def _free(self, effect: Free) -> None:
        offsets = effect.offsets
        if effect.executor:
            left = self.extents.pop(effect.executor, {})
            offsets = [offset for offset in offsets if offset in left]
        for offset in offsets:
            self.arena.free(offset)
            for extents in self.extents.values():
                extents.pop(offset, None)

    def abandon(self, offsets: list[int]) -> None:
        """Extents that were given to an executor will not become objects."""
        self._free(Free(offsets))

    # More than memory

    def _look_for_room(self) -> None:
        """Say how much too much there is, again and again."""
        slots = self.world.options.arena_slots
        if slots and not self._wants_room and len(self.arena.contents) > slots:
            self._wants_room = True
            self._want_room()

    def _want_room(self) -> None:
        excess = len(self.arena.contents) - self.world.options.arena_slots
        self._wants_room = excess > 0
        self.report(RoomWanted(self.rank, max(0, excess) * SLOT_BYTES))
        if excess > 0 and self.alive:
            self.world.counters["reports of full arenas"] += 1
            self.world.at(self.world.between((100, LOOK_US)), self._want_room)

    def _about_disk(self, effect: object) -> None:
        if isinstance(effect, Erase):
            for offset in effect.offsets:
                del self.file[offset]
        elif isinstance(effect, Spill):
            self._spill(effect)
        elif isinstance(effect, Restore):
            self._restore(effect)
        else:
            assert isinstance(effect, RoomAnswer)
            assert effect.is_coming != bool(effect.reason)
            self.world.counters["rooms that cannot be had"] += not effect.is_coming

    def _spill(self, effect: Spill) -> None:
        world, data = self.world, self.arena.contents[effect.offset]
        assert data, f"{effect} is of what nobody has written"

        def written() -> None:
            assert not self.alive or self.arena.contents.get(effect.offset) is data, f"{effect} was freed meanwhile"
            if world.chance(world.options.disk_failures):
                world.counters["disk failures"] += 1
                self.report(Spilled(self.rank, effect.id, -1, "the disk is full"))
                return
            world.counters["values written to disk"] += 1
            offset = next(offset for offset in range(len(self.file) + 1) if offset not in self.file)
            self.file[offset] = data
            world.files[name := f"file of rank {self.rank}"] = self.file
            self.report(Spilled(self.rank, effect.id, offset, file=name))

        world.at(world.between(world.options.transfer_us), written)

    def _restore(self, effect: Restore) -> None:
        world, data = self.world, self.file[effect.offset]
        offset = self.arena.allocate()
        self._look_for_room()
        world.counters["values read from disk"] += 1

        def read() -> None:
            if not self.alive:
                return
            found = self.file.get(effect.offset, b"")
            if found is not data:  # nobody wants it any more, or somebody will read what is not there
                world.counters["values erased as they were read"] += 1
            if offset < 0:
                self.report(Fetched(self.rank, effect.id, -1, "the arena is full", order=effect.order))
                return
            self.arena.contents[offset] = found
            self.report(Fetched(self.rank, effect.id, offset, order=effect.order))

        waits = self._wants_room and world.chance(0.5)  # for room, perhaps longer than clients do
        world.at(world.between(world.options.transfer_us) + waits * world.between((0, 3 * READ_PAST_US)), read)

    # From other hosts

    def _fetch(self, effect: Fetch) -> None:
        """Bring a copy here, or go on from another source."""
        world = self.world
        world.counters["fetches"] += 1
        before = self.incoming.get(effect.id)
        offset = self.arena.allocate() if before is None else before.offset
        self._look_for_room()
        assert self.agents[effect.rank].host != self.host, f"{effect} is from the host itself"
        one = self.incoming[effect.id] = Incoming(effect, offset)
        if before is not None:
            world.counters["copies that go on from elsewhere"] += 1
        elif offset >= 0 and effect.size >= spreading.PIPELINED_BYTES:
            self.report(Arriving(self.rank, effect.id, offset, effect.order))
        world.at(world.between(world.options.transfer_us), lambda: self._arrived(one))

    def _arrived(self, one: Incoming) -> None:
        """What comes from a source has come, or not."""
        effect, world = one.effect, self.world
        source = self.agents[effect.rank]
        if not self.alive or self.incoming.get(effect.id) is not one:
            return
        if one.offset < 0:
            del self.incoming[effect.id]
            self.report(Fetched(self.rank, effect.id, -1, "the arena is full", order=effect.order))
        elif not source.alive and world.rng.random() < 0.8:  # else it had all been sent
            world.counters["transfers from the dead"] += 1
            self._lost(effect, f"rank {effect.rank} was lost")
        elif effect.offset not in source.arena.contents:
            world.at(STOPPED_US, lambda: self._is_stopped(one))
        elif any(other.offset == effect.offset for other in source.incoming.values()):
            world.at(world.between(world.options.transfer_us), lambda: self._arrived(one))  # it arrives there still
        elif world.chance(world.options.losses):
            world.counters["lost transfers"] += 1
            self._lost(effect, f"rank {effect.rank} cannot be reached")
        else:
            del self.incoming[effect.id]
            self.arena.contents[one.offset] = source.arena.contents[effect.offset]
            self.report(Fetched(self.rank, effect.id, one.offset, order=effect.order))

    def _lost(self, effect: Fetch, reason: str) -> None:
        self.report(Fetched(self.rank, effect.id, -1, reason, is_lost=True, order=effect.order))

    def _is_stopped(self, one: Incoming) -> None:
        """The source was freed while a copy was under way: nobody wants it any more, or it is ordered elsewhere."""
        going_on = self.alive and self.incoming.get(one.effect.id) is one
        assert not going_on, f"{one.effect} was under way when its source was freed"

    def _stop_fetch(self, effect: StopFetch) -> None:
        one = self.incoming.pop(effect.id, None)
        if one is not None and one.offset >= 0:
            self.world.counters["copies that are stopped"] += 1
            self.arena.free(one.offset)

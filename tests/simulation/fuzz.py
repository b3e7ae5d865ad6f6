"""Wrong frames on every channel: `python -m tests.simulation.fuzz [--frames N] [--first SEED]`.

Simulations are recorded: every frame that the head hears, and every one that it sends to ranks. Then a real head and
real agents are brought to a moment of the recording, and attacked with frames that would have come next, but mutated.
Nothing may be raised but what means that a frame is dropped, and what the scheduler knows must hold together after.
The same seed is the same attack.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from mpi_runtime.config import Config
from mpi_runtime.core.agent.agent import NodeAgent
from mpi_runtime.core.head import head
from mpi_runtime.core.head.head import DriverFrameError, Head
from mpi_runtime.core.host.launch import Launch
from mpi_runtime.core.objects import arena
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.rank import bad_frames, worker
from mpi_runtime.core.rank.worker import Worker
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL, Channel, Frame, Splitter, pair
from mpi_runtime.core.transport.messages import Abandon, Allocate, Drained, Shutdown, ToExecutor
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.start import Start
from mpi_runtime.core.transport.tokens import tokens_of
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Effects
from mpi_runtime.scheduler.protocol.events import DRIVER, Call
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, JobBegan
from mpi_runtime.scheduler.records.lifecycle import STAGING, STARTING
from tests.checks import executors as invariants
from tests.fake_rank import FakeRank
from tests.mpi import memory_transport
from tests.simulation import run
from tests.simulation.mutated_frames import in_bytes, in_fields, mutated
from tests.simulation.options import Options, random_options
from tests.simulation.world import World

FRAMES_EACH = 60
"""So many frames in one attack: later ones find a world that is less and less like a real one."""
AHEAD = 40
"""From so many of the next frames of the recording they are made."""


@dataclass
class Step:
    """One thing that the head did."""

    what: str
    """"client", "rank", "decide", or "sent" for what it sent to a rank."""
    who: int
    now: int
    frame: bytes = b""
    ended: int = 0


@dataclass
class Recording:
    """A simulation as its head has seen it."""

    options: Options
    steps: list[Step] = field(default_factory=list)


class Recorder(Scheduler):
    """A scheduler that writes down what it hears."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def handle(self, client_number: int, events: Any, now: int, ended_in_frame: int | None = None) -> None:
        """See `Scheduler`."""
        frame = codec.encode(events)
        self._recording.steps.append(Step("client", client_number, now, frame, ended_in_frame or 0))
        super().handle(client_number, events, now, ended_in_frame)

    def handle_rank(self, event: Any, now: int) -> None:
        """See `Scheduler`."""
        if not isinstance(event, JobBegan):  # which the head tells itself
            self._recording.steps.append(Step("rank", 0, now, codec.encode([event])))
        super().handle_rank(event, now)

    def decide(self, now: int) -> Effects:
        """See `Scheduler`."""
        self._recording.steps.append(Step("decide", 0, now))
        effects = super().decide(now)
        for rank, for_rank in effects.ranks.items():
            self._recording.steps.append(Step("sent", rank, now, codec.encode(for_rank)))
        for client, messages in effects.clients.items():
            if client != DRIVER and messages:
                ids = [message.id for message in messages if isinstance(message, Call)]
                frame = codec.encode([ToExecutor(client, ids, codec.encode(messages))])
                self._recording.steps.append(Step("sent", client, now, frame))
        return effects


def recorded(seed: int) -> Recording:
    """The recording of one simulation."""
    options = replace(random_options(seed), end_us=0)  # a mutated frame could move it, and calls wait
    world = World(options)
    recording = Recording(options)
    with mock.patch("tests.simulation.world.Scheduler", partial(Recorder, recording)):
        run.play(world)
    return recording


class Clock:
    """The time that the head sees."""

    now = 0

    def __call__(self) -> int:
        return self.now


class Ports:
    """The driver's end, as the head reads from it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was wrong."""
        self.splitter = Splitter()
        self.data = b""

    def receive(self) -> list[Frame]:
        """See `Channel`."""
        data, self.data = self.data, b""
        return self.splitter.feed(data)

    def send(self, frame: bytes, count: int = 0) -> None:
        """Nobody listens."""

    unsent_bytes = 0


class NoGpus:
    """No GPUs are on this rank."""

    def devices(self, uuids: list[str]) -> list[Any]:
        """None has any."""
        if uuids:
            raise KeyError(uuids[0])
        return []

    def variables(self, uuids: list[str]) -> dict[str, str]:
        """None are shown."""
        return {}


class FuzzedRank(FakeRank):
    """Its agent starts executors with any devices."""

    def find_gpus(self) -> Any:
        return NoGpus()


class Attack:
    """One moment of a recording, and what is sent to it."""

    def __init__(self, recording: Recording, seed: int, clock: Clock) -> None:
        self.rng = random.Random(seed)
        self.clock = clock
        self.counters: Counter[str] = Counter()
        self.recording = recording
        self.poller = Poller()
        self.transports = memory_transport.network(2)
        self.memory = arena.create(1 << 20, 2)
        self.driver = Ports()
        ours = self._new_rank(0, lambda message: self.head.report(message))
        self.head: Head = Head(cast(Any, self.driver), self.transports[0], self.poller, Start(None, Launch()), ours)
        self.head._joined = {0: cast(Any, None), 1: cast(Any, None)}
        self.agent = ours.agent
        self.reports: list[Any] = []
        self.worker = Worker(self.transports[1], self.poller, cast(Any, None), cast(Any, None), "")
        self.worker._rank = self.theirs = self._new_rank(1, self.reports.append)
        self.now = 0

    def _new_rank(self, rank: int, report: Any) -> Any:
        arena = AgentArena(self.memory, rank)
        setup = cast(Any, SimpleNamespace(scratch=""))
        agent = NodeAgent(FuzzedRank(self.transports[rank], self.poller, report, arena, setup=setup))
        agent._forkserver.start = lambda: None  # type: ignore[method-assign]
        return SimpleNamespace(agent=agent, config=Config(), job=SimpleNamespace(lost=[], token="job"))

    def run(self) -> None:
        """Attack, and look whether all holds together."""
        scheduler, steps = self.head._scheduler, self.recording.steps
        ranks = next(number for number, step in enumerate(steps) if step.what != "rank")  # they join first
        at = self.rng.randrange(ranks, len(steps))
        for number, step in enumerate(steps[:at]):
            self._replay(step)
            if number == ranks - 1:
                scheduler.handle_rank(JobBegan(), 0)
        self._give_in_hand()
        ahead = [step for step in steps[at : at + AHEAD] if step.frame] or [step for step in steps if step.frame]
        self.others = [step.frame for step in ahead] + [
            step.frame for step in self.rng.choices(steps, k=20) if step.frame
        ]
        for number in range(FRAMES_EACH):
            self._send(self.rng.choice(ahead))
            self.clock.now += self.rng.choice((0, 10, 5000))
            if number % 4 == 0:
                scheduler.decide(self.clock.now)
            if number % 20 == 0:
                scheduler.decide(self.clock.now)
                invariants.check(scheduler.state)
        self._bury()

    def _replay(self, step: Step) -> None:
        scheduler = self.head._scheduler
        self.clock.now = step.now
        if step.what == "client":
            scheduler.handle(step.who, codec.from_client.decode(step.frame), step.now, step.ended or None)
        elif step.what == "rank":
            scheduler.handle_rank(codec.between_ranks.decode(step.frame)[0], step.now)  # type: ignore[arg-type]
        elif step.what == "decide":
            scheduler.decide(step.now)

    def _give_in_hand(self) -> None:
        """Let the agent have the executors, with what is in their hands."""
        for executor in self.head._scheduler.state.executors.values():
            self._start(executor.id)
            ids = [task.id for task in executor.assigned.values() if task.state != STAGING]
            self.agent.custodian.to_executor(executor.id, ids, b"\x90")
            if ids and executor.state != STARTING:
                self.agent.custodian.line(executor.id).custody._claim()

    def _start(self, number: int) -> None:
        ours, theirs = pair()
        theirs.close()
        tokens = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self.agent.custodian.add(number, 0, Channel(ours), tokens_of(tokens))

    # One frame

    def _send(self, step: Step) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self._to_agent()
        elif step.what == "sent":
            self.counters["head to worker"] += 1
            self.worker._hear(0, self._wrong(step.frame))
            self.reports.clear()
        elif step.what == "rank":
            self.counters["worker to head"] += 1
            self.head._take(1, self._wrong(step.frame))
        else:
            executors = list(self.agent.custodian._lines)
            who = step.who if rng.random() < 0.8 or not executors else rng.choice(executors)
            data = mutated(rng, step.frame, step.ended, self.others)
            self._from_client(who, data * rng.choice((1, 1, 1, 2)))

    def _wrong(self, frame: bytes) -> bytes:
        change = self.rng.random() < 0.6
        return in_fields(self.rng, frame, self.others) if change else in_bytes(self.rng, frame)

    def _from_client(self, who: int, data: bytes) -> None:
        if who == DRIVER:
            self.counters["driver to head"] += 1
            self.driver.data = data
            try:
                self.head._on_driver()
            except DriverFrameError:
                self.counters["jobs that ended"] += 1  # it is said why; what was handled must be whole nevertheless
                self.driver.clear()
            return
        executor = self.agent.custodian._lines.get(who)
        if executor is not None and not executor.is_refused:
            self.counters["executor to head"] += 1
            self.agent.custodian._on_frames(executor, executor.channel.splitter.feed(data))

    def _to_agent(self) -> None:
        """What clients say to their agent."""
        rng, number = self.rng, self.rng.randrange(1 << 10)
        right = [Allocate(number, number), Drained(number % 4), Abandon(64 * (number % 8)), Shutdown()]
        frame = codec.encode(rng.sample(right, rng.choice((1, 2))))
        who = rng.choice([DRIVER, *self.agent.custodian._lines]) if rng.random() < 0.9 else DRIVER
        self.counters["client to agent"] += 1
        self._from_client(who, mutated(rng, frame, LOCAL, self.others))

    # The end

    def _bury(self) -> None:
        """Refused executors are killed, as the head wants: what they had in hand goes where it belongs."""
        scheduler = self.head._scheduler
        for executor in list(scheduler.state.executors.values()):
            if executor.refusal:
                self.counters["refused executors"] += 1
                local = self.agent.custodian._lines.get(executor.id)
                running = local.custody.close() if local is not None else b""
                scheduler.handle_rank(ExecutorDied(executor.id, running, "was killed"), self.clock.now)
        scheduler.decide(self.clock.now)
        invariants.check(scheduler.state)
        self.counters["dropped between ranks"] += self.head._bad_frames.counts.total()
        self.counters["dropped between ranks"] += self.worker._bad_frames.counts.total()

    def close(self) -> None:
        """Leave nothing open."""
        self.head._printer.close(lambda: True)
        for agent in (self.agent, self.theirs.agent):
            for executor in list(agent._executors.values()):
                agent._forget(executor)
            agent._transfers._active.clear()  # nobody answers
            agent._transfers.sends._outgoing.clear()
            agent.close()
        for transport in self.transports:
            transport.close(clean=True)
        os.close(self.memory)
        self.poller.close()


@contextlib.contextmanager
def quiet(clock: Clock) -> Iterator[None]:
    """In virtual time, and without the lines on standard error."""
    with (
        mock.patch.object(head, "now_us", clock),
        mock.patch.object(bad_frames, "print", create=True),
        mock.patch.object(worker, "Rank", None),
    ):
        yield


def fuzz(frames: int, first: int) -> Counter[str]:
    """Send so many wrong frames; what became of them.

    Raises:
        AssertionError: something was raised that must not be, or does not hold; with the seed.
    """
    counters: Counter[str] = Counter()
    clock = Clock()
    seed = first
    with quiet(clock):
        while sent(counters) < frames:
            recording = recorded(seed)
            for number in range(20):
                attack = Attack(recording, seed * 1000 + number, clock)
                try:
                    with run.limits(recording.options):
                        attack.run()
                except Exception as error:
                    raise AssertionError(f"attack {number} on seed {seed}: {type(error).__name__}: {error}") from error
                finally:
                    attack.close()
                counters.update(attack.counters)
            seed += 1
    return counters


def sent(counters: Counter[str]) -> int:
    """How many frames were sent."""
    return sum(count for name, count in counters.items() if " to " in name)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fuzz")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    chosen = parser.parse_args()
    start_s = time.perf_counter()
    print(dict(fuzz(chosen.frames, chosen.first)))
    print(f"in {time.perf_counter() - start_s:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

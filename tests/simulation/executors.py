"""Virtual executors: each runs calls one at a time, in order, each by a token that it claims; or is an actor that runs
several at a time.

What feeds them is the client's, and they claim calls by the same code as the real ones; how calls are run follows
`mpi_runtime/core/executor/executor.py` and `concurrency.py`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.core.client.outbox import seal, take
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL
from mpi_runtime.core.transport.messages import Drained
from mpi_runtime.core.transport.tokens import Tokens, claim
from mpi_runtime.core.transport.unsent_frame import SIZE, Draft, Memory
from mpi_runtime.gpu.device import NODE
from mpi_runtime.scheduler.protocol.effects import Entry, StartExecutor
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Began,
    Call,
    Done,
    ErrorRead,
    Faulted,
    Kept,
    MethodSpec,
    Returned,
    Saved,
    Spec,
    StateLost,
    TaskSpec,
    Unfilled,
    Value,
    Yielded,
)
from mpi_runtime.scheduler.protocol.ids import digest
from tests.simulation import endings, oracle
from tests.simulation.channels import Channel, End, Junk
from tests.simulation.endings import PassedOnError, Running
from tests.simulation.journals import SAVING, UNREADABLE, Had
from tests.simulation.processes import CANCELLED, TAINT, Content, Process
from tests.simulation.require import require
from tests.simulation.scope import CallInterruptedError, Pause, Program, Scope, TaintedError
from tests.simulation.steps import Await, Signal, Yield
from tests.simulation.world import Line, World

if TYPE_CHECKING:
    from tests.simulation.agents import Agent

TICK_US = 1000
"""An item that was yielded is sent by then."""


class Counter:
    """Tokens, as an event counter has them: written by the agent, and taken by both."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int) -> None:
        """There are so many more."""
        self.count += count

    def take(self) -> None:
        """There is one less; raises BlockingIOError if there was none."""
        if not self.count:
            raise BlockingIOError
        self.count -= 1


class Stores:
    """Memory that its executor writes and its agent reads. The process may die before any of its stores."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.content = bytearray(SIZE)
        self.words = memoryview(self.content).cast("Q")

    def __getitem__(self, where: slice) -> bytes:
        return bytes(self.content[where])

    def __setitem__(self, where: int | slice, value: int | bytes) -> None:
        if not self._executor.may_die_here():
            if isinstance(where, slice):
                self.content[where] = value  # type: ignore[assignment]
            else:
                self.words[where] = value  # type: ignore[assignment]


class Executor(Process):
    """One executor's process."""

    def __init__(self, world: World, agent: Agent, keeper: Agent, effect: StartExecutor) -> None:
        super().__init__(world, effect.executor, lambda rank: agent.agents[rank].arena.contents)
        self.blocking.lends_cpu = True
        self.agent = agent
        self.keeper = keeper
        """The agent that gives it memory."""
        self.effect = effect
        counter = Counter()
        self.tokens = Tokens(counter.add, counter.take, lambda: None)
        """Of calls that may be claimed."""
        self.pipe: list[tuple[bytes, int]] = []
        """Attempts of calls that are to be cancelled: written by the agent."""
        self.cancelled: set[tuple[bytes, int]] = set()
        """Those of which it has heard. Only for membership."""
        self.running: dict[bytes, Running] = {}
        self.lanes: Mapping[str, int] = {}
        """For an actor that runs several calls at a time: how many of each group."""
        self.is_async = False
        self.waiting: deque[tuple[Call, list[Entry]]] = deque()
        """Of such an actor: calls whose group has no room."""
        self.signals: set[int] = set()
        """What calls of an actor have told each other. Only for membership."""
        self.started = False
        self.worked = False
        """Whether a call has ended well."""
        self.has_no_cuda = False
        """The head hears that CUDA does not start here."""
        self.slowness = 10 if world.chance(world.options.slow_executors) else 1
        self.is_garbled = False
        """Junk was written to its descriptor: nobody hears what it says from then on."""
        self.unheard: list[bytes] = []
        """Calls that have ended since then."""
        self.flush_is_set = False
        self.claimed: Call | None = None
        """A call that is neither begun nor sent back."""
        self.comes_back = False
        """Whether it is being sent back."""
        self.is_dying = False
        """It says nothing more, and dies at once."""
        self._deaths = random.Random(world.options.seed * 5003 + effect.executor)
        self._sealed: list[bytes] = []
        """Calls whose ends are in the draft."""
        self.memory = Stores(self)
        self.draft = Draft(Memory(self.memory, self.memory))
        self.is_held = False
        """The end of the job was announced to it."""
        self.had: list[bytes] | None = None
        """Of an actor whose state is saved: the calls that it has had."""
        self.channel = Channel(world, self.receive)
        self._forkserver = Line(world, world.options.socket_us, lambda cause: agent.on_exited(self, str(cause)))

    # Hearing

    def receive(self, frame: object) -> None:
        """A frame has arrived; before the fork it waits."""
        if not self.alive:
            return
        self.hear(codec.to_client.decode(frame))  # type: ignore[arg-type]
        self.is_held = self.is_held or self.feed.saving
        if self.started:
            self._go_on()

    def start(self) -> None:
        """The process is up. Calls may have been cancelled before."""
        self.started = True
        self.interrupt()
        self._go_on()

    def interrupt(self) -> None:
        """The agent's signal. A task is interrupted where it is; so is a coroutine; other methods run on."""
        if not self.alive or not self.started or self.is_dying:
            return
        attempts, self.pipe = self.pipe, []
        self.cancelled.update(attempts)
        for id, attempt in attempts:
            running = self.running.get(id)
            if (
                running is not None
                and running.attempt == attempt
                and (isinstance(running.spec.kind, TaskSpec) or self.is_async)
            ):
                if self.world.checker.times.is_over(running.id) and self.world.chance(self.world.options.stubborn):
                    self.world.counters["calls that go on"] += 1
                    self.cancelled.discard((id, attempt))
                    continue
                self.world.counters["interrupts"] += 1
                self._interrupt(running)
        if self.is_async:
            for call, entries in [one for one in self.waiting if (one[0].id, one[0].attempt) in self.cancelled]:
                self.waiting.remove((call, entries))
                self._refuse(call)
        self._go_on()

    # Running

    def _go_on(self) -> None:
        """Go on with what need not wait any more, and run what is next."""
        for running in [] if self.is_dying else list(self.running.values()):
            pause = running.pause
            if pause is not None and pause.is_over is not None and pause.is_over():
                if self.blocking.lends_cpu:
                    self.world.checker.unblocked(self)
                self._advance(running)
        while self.alive and not self.is_dying and (self.lanes or not self.running):
            if not self.feed.calls:
                self._look_at_state()
                self.flush()
                if self.feed.exiting:
                    exit_us = self.world.between(self.world.options.exit_us)
                    self.world.at(exit_us, lambda: self.die("exited with code 0"))
                return
            claimed = claim(self.feed.calls, self.tokens, self.feed.received)
            if isinstance(claimed, Drained):
                self.flush()
                self._send((LOCAL, codec.encode([claimed])))
                continue
            call, entries = claimed
            self._check_hold(self.feed.specs[call.spec])
            if self.lanes:
                self.waiting.append((call, entries))
                self._fill_lanes()
            else:
                self._run(call, entries)

    def _fill_lanes(self) -> None:
        """Begin calls whose group has room, in the order in which they came."""
        while self.alive and not self.is_dying:
            busy = [running.spec.group for running in self.running.values()]
            groups = [self.feed.specs[call.spec].group for call, _ in self.waiting]
            at = next((at for at, group in enumerate(groups) if busy.count(group) < self.lanes[group]), -1)
            if at < 0:
                return
            call, entries = self.waiting[at]
            del self.waiting[at]
            self._run(call, entries)

    def _run(self, call: Call, entries: list[Entry]) -> None:
        world = self.world
        if (call.id, call.attempt) in self.cancelled:
            self._refuse(call)
            return
        if self.feed.is_follower(entries):
            if not self.feed.fill(entries):
                self._come_back(call)
                return
            self.claimed = call
            self._seal()
            if self.is_dying or not self.alive:
                return
            self.claimed = None
            world.checker.followers.filled(self, call, entries)
        key, caller, order = msgspec.msgpack.decode(call.payload)
        running = Running(call, self.feed.specs[call.spec], world.checker.work.jobs[key], world.now)
        self.running[call.id] = running
        self.scopes.running = running
        if len(self.running) > 1:
            world.counters["calls beside others"] += 1
        world.checker.started(self, call, caller, order)
        self.feed.begins_to_yield(call.id)
        if running.job.kills:
            world.at(0, self._kill)
        deaths = world.options.deaths * (5 if running.job.is_fragile else 1)
        if world.counters["deaths"] < world.options.deaths_max and world.chance(deaths):
            cause = world.rng.choice(("was killed by signal 11", "exited with code 1", "ran out of memory"))
            world.at(world.rng.choice((0, 50, 3000, 100_000)), lambda: self._fault(cause))
        if world.counters["deaths"] < world.options.deaths_max and world.chance(world.options.junk):
            world.at(world.rng.choice((0, 50, 3000)), self._write_junk)
        if world.now < world.options.faults_until_us and world.chance(world.options.tight):
            self.agent.fill()
        fault = self.agent.fault_of(self.effect.uuids)
        if fault is not None:
            world.at(world.rng.choice((0, 50, 3000)), lambda: self._lose_gpus(running, *fault))
        running.program = self._program(running, entries)
        if running.spec.time is not None and running.spec.time.is_enforced:
            self.outgoing.post(Began(call.id))
            self.flush()
        self._advance(running)

    def _advance(self, running: Running) -> None:
        """Run on to the next pause or to the end."""
        running.pause = None
        if self.alive and not self.is_dying:
            self._wait_or_end(running, next(running.program, None))

    def _interrupt(self, running: Running) -> None:
        """Have the program of a call end where it is."""
        if self.blocking.lends_cpu and running.pause is not None and running.pause.is_over is not None:
            self.world.checker.unblocked(self)
        running.pause = None
        try:
            pause = running.program.throw(CallInterruptedError())
        except StopIteration:
            pause = None
        self._wait_or_end(running, pause)

    def _wait_or_end(self, running: Running, pause: Pause | None) -> None:
        running.pause = pause
        if pause is None:
            del self.running[running.id]
            if self.lanes:
                self._fill_lanes()
            self._go_on()
        elif pause.is_over is not None:
            if self.blocking.lends_cpu:
                self.world.counters["blocks"] += 1
                self.world.checker.blocked(self)
            self._go_on()  # it may be there by now
        else:
            self.world.at(pause.duration_us * self.slowness, lambda: self._resume(running, pause))

    def _resume(self, running: Running, pause: Pause) -> None:
        if self.alive and running.pause is pause:
            self._advance(running)

    def _refuse(self, call: Call) -> None:
        """A call was cancelled before it could start."""
        self.world.counters["refusals of cancelled calls"] += 1
        spec = self.feed.specs[call.spec]
        self.world.checker.cancels.refused(call.id, is_alone=not isinstance(spec.kind, TaskSpec))
        self.outgoing.post(Returned(call.id, [Value(CANCELLED, None, [], True)], 0, raised=True))
        self._note_had(call, spec)
        self._post(spec)

    def _come_back(self, call: Call) -> None:
        """A call lacks an argument that calls before it were to make."""
        self.world.counters["followers that came back"] += 1
        self.claimed = call
        self.outgoing.post(Unfilled(call.id))
        self.comes_back = True
        self.flush()
        self.comes_back = False
        if self.is_garbled:
            self.world.checker.begun(self, call)
            self.unheard.append(call.id)
            self.claimed = None

    def _program(self, running: Running, entries: list[Entry]) -> Program:
        call, job = running.call, running.job
        assert call is not None
        running.slots.update(enumerate(call.holds))
        self.adopt(call.holds)
        message: Done | Returned
        try:
            if isinstance(running.spec.kind, ActorSpec):
                self._take_up(call)
            elif call.kept and (loaded := endings.kept(self, running)) is not None:
                self._conclude(running, loaded)
                return
            elif call.kept and isinstance(running.spec.kind, MethodSpec):
                raise PassedOnError(oracle.FAILED, b"JournalError")  # the state has had it
            for entry in entries:
                kind, name, _ = self.read(entry)
                self.look_again(entry)
                if kind != oracle.VALUE:
                    self.outgoing.add(ErrorRead([entry.id]))
                is_final = self.world.checker.followers.is_final(call, entry.id)
                if kind == oracle.ERROR or not self.world.checker.values.is_right(entry.id, kind, name, is_final):
                    raise PassedOnError(kind, name)
                running.seen.append(name)
            raises = job.raises < 0 or call.attempt < job.raises
            yield from self.perform(job.steps[: job.raises_at] if raises else job.steps, running)
            if raises:
                raise PassedOnError(oracle.ERROR, oracle.digest(job.key, b"raised", *running.seen))
            message = endings.result(self, running)
        except PassedOnError as error:
            message = endings.raised(self, running, error)
        except TaintedError as error:
            message = endings.raised(self, running, PassedOnError(oracle.FAILED, TAINT + str(error).encode()))
        except CallInterruptedError:
            message = endings.raised(self, running, PassedOnError(oracle.FAILED, CANCELLED))
        self._conclude(running, message)

    def _conclude(self, running: Running, message: Done | Returned) -> None:
        call, spec, job = running.call, running.spec, running.job
        assert call is not None
        self.worked = self.worked or (
            not isinstance(spec.kind, ActorSpec) and not (isinstance(message, Returned) and message.raised)
        )
        self.world.checker.ended(self, call, message)
        self.outgoing.post(message)
        if self.feed.has_followers and type(message) is Done:
            self.feed.remember(message)
        self._note_had(call, spec)
        self.feed.ends_yielding(call.id)
        if not job.keeps:
            self.leave(running)
        if (
            isinstance(spec.kind, ActorSpec)
            and spec.kind.concurrency
            and not (isinstance(message, Returned) and message.raised)
        ):
            self.lanes, self.is_async, self.blocking.lends_cpu = spec.kind.concurrency, spec.kind.is_async, False
        self._post(spec)

    # The state of an actor

    def _take_up(self, call: Call) -> None:
        """Begin as an actor: with the calls that its state has had."""
        self.had = [] if call.digest else None
        if call.kept and self.world.rng.random() < UNREADABLE:
            self.world.counters["states that cannot be read"] += 1
            self.outgoing.post(StateLost("it cannot be read"))
        elif call.kept:
            state = msgspec.msgpack.decode(call.kept[0].data, type=Had)
            self.had, self.signals = state.calls, set(state.signals)

    def _note_had(self, call: Call, spec: Spec) -> None:
        """A call has ended, and the state has it, unless it had it before. Now and then it is saved."""
        if self.had is None or not isinstance(spec.kind, MethodSpec) or call.kept or not call.digest:
            return
        self.had.append(call.id)
        if self.world.rng.random() < SAVING:
            self._save()
        elif self.world.rng.random() < SAVING:
            self.world.at(self.world.rng.choice((0, 200, 20_000)), self._save_later)

    def _save(self) -> None:
        if self.had is not None:
            state = msgspec.msgpack.encode(Had(self.had, sorted(self.signals)))
            name = digest(msgspec.msgpack.encode((state, self.number, self.world.now)), 16)
            self.outgoing.post(Saved(name, Kept(state)))

    def _look_at_state(self) -> None:
        """Save the state, if that was asked for."""
        if self.feed.saving:
            self.feed.saving = False
            self.world.counters["states asked for"] += 1
            self._save()

    def _check_hold(self, spec: Spec) -> None:
        """Before the end of the job an actor that saves its state begins no more calls: others would be lost."""
        if self.is_held and isinstance(spec.kind, MethodSpec):
            executor = self.agent.head.scheduler.state.executors.get(self.number)
            actor = executor.actor if executor is not None else None
            require(
                actor is None or actor.saves is None or actor.saves.unsaved_why,
                f"executor {self.number} begins calls though the job ends",
            )

    def _save_later(self) -> None:
        if self.alive:
            self._save()
            self.flush()

    def perform_in_call(self, step: Yield | Signal | Await, scope: Scope) -> Program:
        """Do what only calls do."""
        assert isinstance(scope, Running)
        if isinstance(step, Yield):
            yield from self._give(step, scope)
        elif isinstance(step, Signal):
            self.signals.add(step.key)
        else:
            yield from self.blocked([], lambda: step.key in self.signals)

    def _give(self, step: Yield, running: Running) -> Program:
        """Send an item, and wait until another one is wanted."""
        if (running.id, running.attempt) in self.cancelled:
            raise CallInterruptedError
        index, spec = running.yielded, running.spec
        holds = [running.slots[slot] for slot in step.holds if slot in running.slots]
        content = Content(oracle.item_digest(running.job.key, index, running.seen), holds)
        value = self.store(content, step.size, holds)
        id = running.next_ids(1)
        self.world.checker.items.given(id, running.id, index, spec.backpressure)
        running.yielded += 1
        self.outgoing.post(Yielded(running.id, index, id, value))
        self._flush_by(TICK_US)
        if spec.backpressure and not self._is_wanted(running, index + 1):
            self.world.counters["back-pressure"] += 1
            yield from self.blocked([running.id], lambda: self._is_wanted(running, index + 1))

    def _is_wanted(self, running: Running, index: int) -> bool:
        return self.feed.wants(running.id, index, running.spec.backpressure)

    # Saying

    def allocate(self) -> tuple[int, int]:
        """Room in the part of the agent that gives it memory."""
        return self.keeper.rank, self.keeper.allocate(self.number)

    def flush(self) -> None:
        """Send what was said."""
        if not self.alive or self.is_dying:
            return
        posted = [message.id for message in self.outgoing.messages if isinstance(message, Done | Returned)]
        ended, frame = take(self.outgoing, self.draft)
        if not frame:
            return
        if ended > 1:
            self.world.counters["batched results"] += 1
        if self.is_garbled or self.may_die_here():  # with a part of the frame in the socket
            self.unheard += posted
            self.has_no_cuda = False
            if not self.is_garbled:
                return
        self._send((ended, frame))

    def _send(self, message: object) -> None:
        if self.is_dying:
            return
        self.channel.up.send(message)
        if self.comes_back:
            self.claimed = None
        self.draft.sent()
        self._sealed.clear()

    def may_die_here(self) -> bool:
        """Whether the process is dead, or dies in this moment, in the midst of what it says."""
        world = self.world
        if self.is_dying or not self.alive:
            return True
        if self.is_garbled or world.now >= world.options.faults_until_us or not self._dies_while_it_says():
            return False
        self.is_dying = True
        world.counters["deaths while something is said"] += 1
        world.at(0, lambda: self._fault("was killed by signal 9"))
        return True

    def _dies_while_it_says(self) -> bool:
        options = self.world.options
        share = options.deaths if self.draft.count else options.deaths / 10
        return self.world.counters["deaths"] < options.deaths_max and self._deaths.random() < share

    def _seal(self) -> None:
        """Say what ended so that it is heard if the process dies."""
        posted = [message.id for message in self.outgoing.messages if isinstance(message, Done | Returned)]
        if not seal(self.outgoing, self.draft):
            self.flush()
        elif self.is_dying or self.is_garbled:
            self.unheard += posted
        else:
            self._sealed += posted
            self.world.counters["sealed results"] += len(posted)

    def _post(self, spec: Spec) -> None:
        """After a call: results may wait for others; if for long, or if the call must not run again, in the draft."""
        world = self.world
        if not world.options.batch_us or world.rng.random() < 0.3:
            self.flush()
        else:
            if not spec.max_retries or spec.gather_us:
                self._seal()
            self._flush_by(max(world.options.batch_us, spec.gather_us if self.feed.calls else 0))
        if world.counters["deaths"] < world.options.deaths_max and world.chance(world.options.idle_deaths):
            world.at(world.rng.choice((0, 200, 20_000)), lambda: self._fault("was killed by signal 15"))

    def _flush_by(self, most_us: int) -> None:
        if not self.flush_is_set:
            self.flush_is_set = True
            self.world.at(self.world.rng.randint(0, most_us), self._flush_later)

    def _flush_later(self) -> None:
        self.flush_is_set = False
        self.flush()

    # The end

    def _fault(self, cause: str) -> None:
        if self.alive and self.world.now < self.world.options.faults_until_us:
            self.world.counters["deaths"] += 1
            self.die(cause)

    def _write_junk(self) -> None:
        """User code writes where only frames belong: its agent cannot read it, or the head cannot."""
        if self.alive and not self.is_garbled and self.world.now < self.world.options.faults_until_us:
            self.world.counters["deaths"] += 1
            self.world.counters["junk"] += 1
            self.is_garbled = True
            self.unheard += self._sealed
            self.channel.up.send(self.world.rng.choice((Junk(), (0, b"junk"))))

    def _lose_gpus(self, running: Running, name: str, blame: str) -> None:
        """CUDA answers a call with an error for good: the process says so and ends."""
        if self.alive and self.running.get(running.id) is running:
            self.world.counters["faults of GPUs"] += 1
            self.world.counters[f"faults of GPUs: {blame}"] += 1
            self.world.counters["deaths"] += 1
            self.has_no_cuda = blame == NODE and not self.is_dying
            self.outgoing.post(Faulted(running.spec.name, name, blame, not self.worked, "traceback"))
            self.flush()
            self.die("exited with code 1")

    def _kill(self) -> None:
        """A call ends its own process."""
        if self.alive:
            self.world.counters["killers"] += 1
            self.world.counters["deaths"] += 1
            self.die("was killed by signal 9")

    def die_with_rank(self) -> None:
        """The rank is gone, and so is the process: nobody can tell how far it had come."""
        if self.alive:
            self.alive = False
            self.world.checker.died_with_rank(self)
            self.channel.up.send(End())

    def die(self, cause: str) -> None:
        """The process is gone: what it had not sent is lost, and its agent hears of it after all that it had sent."""
        if not self.alive:
            return
        self.alive = False
        self.world.checker.died(self)
        self.channel.up.send(End())
        self._forkserver.send(cause)

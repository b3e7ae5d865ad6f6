"""Virtual executors: each runs calls one at a time, in order, each by a token that it claims."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime.scheduler.effects import Answer, StartExecutor
from mpi_runtime.scheduler.events import Call, Done, Returned, Spec, Value
from mpi_runtime.transport import codec
from mpi_runtime.transport.messages import Drained
from tests.simulation import oracle
from tests.simulation.processes import MESSAGES, TAINT, Content, Message, Pause, Process, Program, TaintedError
from tests.simulation.workload import ACTOR, Job
from tests.simulation.world import Line, World

if TYPE_CHECKING:
    from tests.simulation.agents import Agent


class Executor(Process):
    """One executor's process."""

    def __init__(self, world: World, agent: Agent, effect: StartExecutor) -> None:
        super().__init__(world, effect.executor, lambda rank: agent.agents[rank].arena.contents)
        self.agent = agent
        self.effect = effect
        self.tokens = 0
        """Calls that may be claimed: written by the agent, and taken by both."""
        self.received = 0
        self.specs: dict[int, Spec] = {}
        self.calls: deque[tuple[Call, list[Message]]] = deque()
        self.exiting = False
        self.started = False
        self.call: Call | None = None
        self.program: Program | None = None
        self.pause: Pause | None = None
        self.ended = 0
        """Ends of calls in the outbox."""
        self.slowness = 10 if world.chance(world.options.slow_executors) else 1
        self.flush_is_set = False
        self._to_agent = Line(world, world.options.socket_us, lambda message: agent.hear(self.number, message))

    # Hearing

    def receive(self, frame: object) -> None:
        """A frame has arrived; before the fork it waits."""
        if not self.alive:
            return
        if frame == "exit":
            self.exiting = True
        else:
            self._take(codec.to_client.decode(frame))  # type: ignore[arg-type]
        if self.started:
            self._go_on()

    def _take(self, messages: list[object]) -> None:
        """The values of a call's arguments come before it in the same frame; its spec in that one or an earlier one."""
        arguments: dict[bytes, Message] = {}
        for message in messages:
            if isinstance(message, Call):
                self.received += 1
                assert message.spec in self.specs, f"{message} came before its spec"
                entries = [arguments[id] if id in arguments else self.values[id] for id in message.arguments]
                self.calls.append((message, entries))
            elif isinstance(message, Spec):
                self.specs[message.id] = message
            elif isinstance(message, Answer):
                self.world.counters["answers"] += 1
            else:
                assert isinstance(message, MESSAGES)
                self.take_in(message)
                arguments[message.id] = message

    def start(self) -> None:
        """The process is up."""
        self.started = True
        self._go_on()

    # Running

    def _go_on(self) -> None:
        """Go on with what is running, or run what is next."""
        if self.pause is not None:
            if self.pause.ids:
                ready = sum(id in self.values for id in self.pause.ids)
                if ready >= self.pause.count:
                    self.pause = None
                    self.world.checker.unblocked(self)
                    self._advance()
            return
        while self.call is None and self.alive:
            if not self.calls:
                self.flush()
                if self.exiting:
                    exit_us = self.world.between(self.world.options.exit_us)
                    self.world.at(exit_us, lambda: self.die("exited with code 0"))
                return
            call, entries = self.calls.popleft()
            if self.tokens:
                self.tokens -= 1
                self._run(call, entries)
            else:
                self.calls.clear()
                self.flush()
                self._to_agent.send(Drained(self.received))

    def _run(self, call: Call, entries: list[Message]) -> None:
        world = self.world
        self.call = call
        self.parent = call.id + call.attempt.to_bytes(4, "big")
        self.index = 0
        key, caller, order = msgspec.msgpack.decode(call.payload)
        job = world.checker.work.jobs[key]
        world.checker.started(self, call, caller, order)
        if world.counters["deaths"] < world.options.deaths_max and world.chance(world.options.deaths):
            cause = world.rng.choice(("was killed by signal 11", "exited with code 1", "ran out of memory"))
            world.at(world.rng.choice((0, 50, 3000, 100_000)), lambda: self._fault(cause))
        self.program = self._program(job, call, entries)
        self._advance()

    def _advance(self) -> None:
        """Run on to the next pause or to the end."""
        if not self.alive:
            return
        assert self.program is not None
        self.pause = next(self.program, None)
        if self.pause is None:
            self.program = self.call = None
            self._go_on()
        elif self.pause.ids:
            self.world.counters["blocks"] += 1
            self.world.checker.blocked(self)
            self._go_on()  # it may be there by now
        else:
            self.world.at(self.pause.duration_us * self.slowness, self._resume)

    def _resume(self) -> None:
        if self.alive:
            self.pause = None
            self._advance()

    def _program(self, job: Job, call: Call, entries: list[Message]) -> Program:
        spec = self.specs[call.spec]
        began_us = self.world.now
        slots = dict(enumerate(call.holds))
        self.adopt(call.holds)
        seen: list[bytes] = []
        message: Done | Returned
        try:
            for entry in entries:
                kind, name, _ = self.read(entry)
                if kind == oracle.ERROR or not self.world.checker.is_right(entry.id, kind, name):
                    raise PassedOnError(kind, name)
                seen.append(name)
            if job.raises < 0 or call.attempt < job.raises:
                raise PassedOnError(oracle.ERROR, oracle.digest(job.key, b"raised", *seen))
            yield from self.perform(job.steps, slots, seen)
            message = self._result(job, spec, call, oracle.digest(job.key, *seen), slots, began_us)
        except PassedOnError as error:
            message = self._error(job, call, error, began_us)
        except TaintedError as error:
            value = Value(TAINT + str(error).encode(), None, [], True)
            message = Returned(call.id, [value], self.world.now - began_us)
        self.world.checker.ended(self, call, message)
        self.outbox.append(message)
        self.ended += 1
        if not job.keeps:
            self.drop(list(slots.values()))
        self._post(spec)

    def _result(
        self, job: Job, spec: Spec, call: Call, name: bytes, slots: dict[int, bytes], began_us: int
    ) -> Done | Returned:
        duration_us = self.world.now - began_us
        if spec.kind == ACTOR or not spec.num_returns:
            data = msgspec.msgpack.encode(Content(name if spec.kind == ACTOR else oracle.digest(name, 0)))
            return Done(call.id, data, duration_us)
        inner = [slots[slot] for slot in job.holds if slot in slots]
        values = []
        for index, size in enumerate(job.sizes):
            holds = inner if index == 0 else []
            try:
                values.append(self.store(Content(oracle.digest(name, index), holds), size, holds))
            except TaintedError:
                self.agent.abandon([value.stored.offset for value in values if value.stored is not None])
                raise
        if len(values) == 1 and values[0].stored is None and not inner:
            return Done(call.id, values[0].data, duration_us)
        return Returned(call.id, values, duration_us)

    def _error(self, job: Job, call: Call, error: PassedOnError, began_us: int) -> Returned:
        duration_us = self.world.now - began_us
        if error.kind != oracle.ERROR:
            value = Value(error.name if error.name.startswith(TAINT) else TAINT + error.name, None, [], True)
            return Returned(call.id, [value], duration_us)
        try:
            value = self.store(Content(error.name), job.sizes[0], [], is_error=True)
        except TaintedError:
            value = self.store(Content(error.name), 8, [], is_error=True)
        return Returned(call.id, [value], duration_us, raised=True)

    # Saying

    def allocate(self) -> tuple[int, int]:
        """Room in the part of the own agent."""
        return self.agent.rank, self.agent.allocate(self.number)

    def flush(self) -> None:
        """Send what was said."""
        if not self.outbox or not self.alive:
            return
        if self.ended > 1:
            self.world.counters["batched results"] += 1
        self._to_agent.send((self.ended, codec.encode(self.outbox)))
        self.outbox = []
        self.ended = 0

    def _post(self, spec: Spec) -> None:
        """After a call: results may wait a little for others; those of calls that must not run again do not."""
        world = self.world
        if not spec.max_retries or not world.options.batch_us or world.rng.random() < 0.3:
            self.flush()
        elif not self.flush_is_set:
            self.flush_is_set = True
            world.at(world.rng.randint(0, world.options.batch_us), self._flush_later)
        if world.counters["deaths"] < world.options.deaths_max and world.chance(world.options.idle_deaths):
            world.at(world.rng.choice((0, 200, 20_000)), lambda: self._fault("was killed by signal 15"))

    def _flush_later(self) -> None:
        self.flush_is_set = False
        self.flush()

    # The end

    def _fault(self, cause: str) -> None:
        if self.alive and self.world.now < self.world.options.faults_until_us:
            self.world.counters["deaths"] += 1
            self.die(cause)

    def die(self, cause: str) -> None:
        """The process is gone: what it had not sent is lost, and its agent hears of it after all that it had sent."""
        if not self.alive:
            return
        self.alive = False
        self.world.checker.died(self)
        self._to_agent.send(cause)


class PassedOnError(Exception):
    """A call ends with this error of user code, its own or an argument's."""

    def __init__(self, kind: str, name: bytes) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

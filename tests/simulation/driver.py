"""The virtual driver: runs the workload's program, looks at everything once more, lets go of everything."""

from __future__ import annotations

from collections.abc import Callable

from mpi_runtime.core.transport import codec
from mpi_runtime.scheduler.protocol.events import Query
from mpi_runtime.scheduler.protocol.questions import (
    AvailableResources,
    ClientQuestion,
    Explain,
    Groups,
    Nodes,
    Statistics,
    Store,
)
from tests.simulation.agents import Agent
from tests.simulation.processes import Process
from tests.simulation.scope import Pause, Program, Scope, TaintedError
from tests.simulation.steps import Get, Open, Step, Take
from tests.simulation.world import DRIVER, Head, Line, World

QUESTIONS: tuple[Callable[[bytes], ClientQuestion], ...] = (
    *(Explain, Explain, Nodes),
    *(lambda _: Statistics(), lambda _: AvailableResources(), Groups, lambda _: Store()),
)


class Driver(Process):
    """The driver, on the host of rank 0."""

    def __init__(self, world: World, head: Head, agent: Agent) -> None:
        super().__init__(world, DRIVER, lambda rank: agent.agents[rank].arena.contents)
        self.agent = agent
        self.finished = False
        self.pause: Pause | None = None
        self.scope = Scope(b"driver")
        self.scopes.running = self.scope
        self._to_head = Line(world, world.options.socket_us, head.receive_from_driver)  # type: ignore[arg-type]
        head.driver_line = Line(world, world.options.socket_us, self._receive)
        self.program = self._program(world.checker.work.steps)

    def start(self) -> None:
        """Begin."""
        self._advance()

    def _program(self, steps: list[Step]) -> Program:
        world = self.world
        scope = self.scope
        for step in steps:
            try:
                yield from self.perform([step], scope)
            except TaintedError:
                assert isinstance(step, Get | Open | Take)  # what it was to bring is missing from now on
            if world.rng.random() < world.options.questions:
                question = world.rng.choice(QUESTIONS)
                self.outgoing.post(Query(1, question(world.rng.choice([b"", *scope.slots.values()]))))
            if world.rng.random() < 0.3:
                self.flush()
            if world.rng.random() < 0.1:
                yield Pause(world.rng.choice((10, 1000, 20_000)))
        self.leave(scope)
        self.flush()

    def _advance(self) -> None:
        self.pause = next(self.program, None)
        if self.pause is None:
            self.finished = True
        elif self.pause.is_over is not None:
            self._look()
        else:
            self.flush()
            self.world.at(self.pause.duration_us, self._resume)

    def _resume(self) -> None:
        self.pause = None
        self._advance()

    def _look(self) -> None:
        pause = self.pause
        if pause is not None and pause.is_over is not None and pause.is_over():
            self._resume()

    def _receive(self, frame: object) -> None:
        self.hear(codec.to_client.decode(frame))  # type: ignore[arg-type]
        self._look()
        if self.finished:
            self.flush()  # nothing else does: items that nobody takes any more may have come

    def left_over(self) -> list[str]:
        """What the client knows of objects, when it has let go of all."""
        known = self.references
        left = {"counts": len(known.counts), "values": len(known.values), "borrowed objects": len(known.borrowed)}
        return [f"{count} of the driver's {name}" for name, count in left.items() if count]

    def allocate(self) -> tuple[int, int]:
        """Room in the part of rank 0."""
        return self.agent.rank, self.agent.allocate(DRIVER)

    def flush(self) -> None:
        """Send what was said."""
        frame = self.outgoing.frame()
        if frame:
            self._to_head.send(codec.encode(frame))

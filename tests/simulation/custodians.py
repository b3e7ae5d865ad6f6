"""What a real custodian works on in a simulation: virtual lines and virtual memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mpi_runtime.core.agent.custody import Custodian
from mpi_runtime.core.head.direct_lines import DirectLines
from mpi_runtime.core.transport.messages import StartDirect
from mpi_runtime.scheduler.protocol.effects import StartExecutor
from mpi_runtime.scheduler.protocol.rank_events import TakenBack
from tests.simulation.channels import Channel
from tests.simulation.executors import Executor

if TYPE_CHECKING:
    from tests.simulation.agents import Agent
    from tests.simulation.world import Head, World

REFUSED = 0.1
"""Chance that the system refuses a direct line. Then what is sent goes by MPI."""


class Poller:
    """Calls back at once when something arrives."""

    def add(self, channel: Channel, callback: Callable[[], None]) -> None:
        """Wait for it."""
        channel.watch(callback)

    def remove(self, channel: Channel) -> None:
        """Wait for it no more."""
        channel.watch(None)

    def send(self, channel: Channel, frame: bytes) -> None:
        """Send a frame."""
        channel.send(frame)


class Extents:
    """The memory of an agent's clients, as far as their ends need it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def of(self, client: int) -> list[int]:
        """What a client has, and has not made an object of."""
        return list(self._agent.extents.get(client, ()))

    def drop_requests(self, client: int) -> None:
        """Nothing waits here."""


def custodian(agent: Agent, report: Callable[[Any], None]) -> Custodian:
    """A custodian that works on the memory of an agent."""
    counters = agent.world.counters

    def counted(message: object) -> None:
        if isinstance(message, TakenBack):
            counters["take backs"] += 1
            counters["calls taken back"] += len(message.ids)
        report(message)

    return Custodian(agent.rank, cast(Any, Poller()), counted, cast(Any, Extents(agent)))


class VirtualLines(DirectLines):
    """The direct lines of a simulated job."""

    def __init__(self, world: World, head: Head, agents: dict[int, Agent]) -> None:
        hosts = [agents[rank].host for rank in range(len(agents))]
        super().__init__(cast(Any, SimpleNamespace(rank=0, hosts=hosts)), head.custodian, "", True)
        self._world = world
        self._agents = agents

    def _start(self, rank: int, start: StartExecutor) -> StartDirect | StartExecutor:
        if self._world.chance(REFUSED):
            return start
        self._world.counters["direct lines"] += 1
        agent = self._agents[rank]
        executor = agent.awaited[start.executor] = Executor(self._world, agent, self._agents[0], start)
        self._custodian.add(start.executor, rank, cast(Any, executor.channel), executor.tokens)
        if not agent.alive:
            executor.die_with_rank()
        return StartDirect(start, b"")

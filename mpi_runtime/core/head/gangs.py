"""What the members of gangs on several nodes exchange when they start: it goes through the head."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from mpi_runtime.core.gangs.gather import Gather
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import GangBytes

ENDED_MAX = 1000
"""Gangs that have ended and whose late messages are dropped."""


class Gathers:
    """One `Gather` for each gang on several nodes."""

    def __init__(self, send: Callable[[int, GangBytes], None]) -> None:
        """Send messages to agents, by their ranks, with this function."""
        self._send = send
        self._gathers: dict[int, Gather] = {}
        self._ended: deque[int] = deque(maxlen=ENDED_MAX)

    def take(self, message: GangBytes, source: int) -> None:
        """Take a message of an agent.

        Raises:
            BadFrameError: it cannot be read, or is not of one of the agents of the gang.
        """
        agents = message.agents
        if message.node >= len(agents) or agents[message.node] != source:
            raise BadFrameError(f"rank {source} has no members of gang {message.gang}")
        if message.gang in self._ended:
            return
        gather = self._gathers.get(message.gang)
        if gather is None:
            gather = self._gathers[message.gang] = Gather(len(agents))
        for node, data in gather.receive(message.node, message.data):
            self._send(agents[node], GangBytes(message.gang, node, agents, data))

    def end(self, gangs: Iterable[int]) -> None:
        """Forget gangs. Their late messages are dropped."""
        for gang in gangs:
            self._gathers.pop(gang, None)
            self._ended.append(gang)

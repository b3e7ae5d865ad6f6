"""Questions of a client, and their answers: the scheduler is asked about its state, the agent for memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from mpi_runtime.scheduler.effects import Answer
from mpi_runtime.scheduler.events import Query
from mpi_runtime.transport.messages import Abandon, Allocate, Allocated

if TYPE_CHECKING:
    from mpi_runtime.processes.client import Client


class Questions:
    """What one client has asked."""

    def __init__(self, client: Client) -> None:
        """For this client."""
        self._client = client
        self._numbers = itertools.count(1)
        self._replies: dict[int, Allocated | Answer] = {}
        self._unwanted: set[int] = set()
        """Questions whose answers have not come, and nobody waits for."""

    def number(self) -> int:
        """A number for a message that is to be answered."""
        return next(self._numbers)

    def query(self, what: str, id: bytes = b"") -> Any:
        """Ask the scheduler about its state."""
        number = self.number()
        self._client.outbox.post(Query(number, what, id))
        return msgspec.msgpack.decode(self.answer(number))

    def allocate(self, size: int) -> Allocated:
        """Ask the agent for so many bytes of the arena."""
        number = self.number()
        self._client.outbox.send_local(Allocate(number, size))
        reply = self._reply(number)
        assert isinstance(reply, Allocated)
        return reply

    def answer(self, number: int) -> bytes:
        """Wait for the scheduler's answer to a message with this number."""
        reply = self._reply(number)
        assert isinstance(reply, Answer)
        return reply.data

    def _reply(self, number: int) -> Allocated | Answer:
        try:
            self._client.wait_until(lambda: number in self._replies, None, None)
            return self._replies.pop(number)
        except BaseException:  # Ctrl-C, or the call was cancelled: nobody takes the answer, which may be memory
            self._unwanted.add(number)
            if number in self._replies:
                self._refuse(self._replies.pop(number))
            raise

    def take(self, reply: Allocated | Answer) -> None:
        """An answer has come."""
        if reply.request in self._unwanted:
            self._refuse(reply)
        else:
            self._replies[reply.request] = reply

    def _refuse(self, reply: Allocated | Answer) -> None:
        self._unwanted.discard(reply.request)
        if isinstance(reply, Allocated) and reply.offset >= 0:
            self._client.outbox.send_local(Abandon(reply.offset))

"""Questions of a client and their answers. The scheduler is asked about its state, the agent for memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from mpi_runtime.core.client.connection import Line
from mpi_runtime.core.client.outbox import Outbox
from mpi_runtime.core.client.spare_extents import Spares
from mpi_runtime.core.transport.messages import (
    Abandon,
    Ahead,
    Allocate,
    Allocated,
    GiveBack,
    Part,
    ReadPart,
    WritePart,
)
from mpi_runtime.scheduler.protocol.effects import Answer
from mpi_runtime.scheduler.protocol.events import Query
from mpi_runtime.scheduler.protocol.questions import A, ClientQuestion, NodeOfRank, Question, decoded


def _query(number: int, question: Question[object]) -> Query:
    if not isinstance(question, ClientQuestion):
        raise TypeError(f"{question!r} is not a question of clients")
    return Query(number, question)


class Replies:
    """Answers that have arrived, and questions without a waiting thread."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.arrived: dict[int, Allocated | Answer | Part] = {}
        self.unwanted: set[int] = set()
        """Questions that no thread waits for, with answers still to arrive."""
        self.spares = Spares()
        self.rank = 0
        """The rank that owns the memory of the spare extents."""

    def came(self, reply: Allocated | Answer | Ahead | GiveBack | Part) -> None:
        """Note an answer, or news of memory."""
        if isinstance(reply, Ahead):
            self.rank = reply.rank
            self._abandon(self.spares.came(reply.size, reply.offsets))
        elif isinstance(reply, GiveBack):
            self._abandon(self.spares.take_all())
        elif reply.request in self.unwanted:
            self._refuse(reply)
        else:
            self.arrived[reply.request] = reply

    def refuse(self, number: int) -> None:
        """Drop the answer to this question, now or on arrival. Memory in it is returned."""
        self.unwanted.add(number)
        if number in self.arrived:
            self._refuse(self.arrived.pop(number))

    def _refuse(self, reply: Allocated | Answer | Part) -> None:
        self.unwanted.discard(reply.request)
        if isinstance(reply, Allocated) and reply.offset >= 0:
            self._abandon([reply.offset])

    def _abandon(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._outbox.send_local(Abandon(offset))


class Questions:
    """The questions of one client."""

    def __init__(self, line: Line, replies: Replies, host: int) -> None:
        """Ask through this line. Answers come into `replies`."""
        self._line = line
        self._replies = replies
        self.host = host
        """The lowest rank of this host."""
        self._numbers = itertools.count(1)
        self._node_id = ""

    def number(self) -> int:
        """Return a new number for a message that gets an answer."""
        return next(self._numbers)

    def ask(self, question: Question[A]) -> A:
        """Ask the scheduler about its state, and return the answer.

        Raises:
            TypeError: an argument of the question has a wrong type.
        """
        number = self.number()
        self._line.outbox.request(_query(number, question))
        return decoded(question, self.answer(number))

    def ask_for(self, question: Question[A], limit_s: float) -> A | None:
        """Ask the scheduler, and return the answer; None: it does not arrive in this time."""
        number = self.number()
        self._line.outbox.request(_query(number, question))
        if not self._line.wait_until(lambda: number in self._replies.arrived, limit_s, None):
            self._replies.refuse(number)
            return None
        return decoded(question, self.answer(number))

    def node_id(self) -> str:
        """Return the id of the node of this process. The scheduler is asked once."""
        if not self._node_id:
            self._node_id = self.ask(NodeOfRank(self.host))
        return self._node_id

    def allocate(self, size: int) -> Allocated:
        """An extent of this many bytes: one granted ahead, or the agent's answer."""
        spares = self._replies.spares
        offset = spares.take(size)
        if offset >= 0:
            return Allocated(0, self._replies.rank, offset)
        number = self.number()
        asked = Allocate(number, size, spares.wanted(size))
        reply = self._reply(number, lambda: self._line.outbox.send_local(asked))
        assert isinstance(reply, Allocated)
        return reply

    def answer(self, number: int) -> bytes:
        """Wait for the scheduler's answer to the message with this number, and return it."""
        reply = self._reply(number)
        assert isinstance(reply, Answer)
        return reply.data

    def ask_for_part(self, asked: ReadPart | WritePart) -> None:
        """Ask the attendant of this driver, which is on another host, to move a part of a value."""
        self._line.outbox.send_local(asked)

    def part(self, number: int) -> Part:
        """Wait for the answer to the request with this number, and return it."""
        reply = self._reply(number)
        assert isinstance(reply, Part)
        return reply

    def forget(self, number: int) -> None:
        """Drop the answer to this request, now or on arrival."""
        self._replies.refuse(number)

    def _reply(self, number: int, ask: Callable[[], None] = lambda: None) -> Allocated | Answer | Part:
        here = self._replies.arrived
        try:
            ask()
            self._line.wait_until(lambda: number in here, None, None)
            return here.pop(number)
        except BaseException:  # Ctrl-C, or the call was cancelled
            self._replies.refuse(number)
            raise

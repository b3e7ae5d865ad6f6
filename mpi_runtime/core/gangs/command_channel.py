"""What members that do not start MPI themselves say to their agent: for commands, whose programs may be MPI programs.

A member asks whether its program has initialised and finalized MPI, meets the others when its program has ended, and
sends output in whole lines to rank 0. So one process writes the file of the command, wherever its ranks run. Rank 0
takes the lines of a member before that member sends more. Before a member runs another program, it asks for another
start: each program has an MPI world of its own.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from mpi_runtime.core.gangs.gather import Answer, Fence, Fenced, Question
from mpi_runtime.core.transport.channel import READ_BYTES, Channel, ChannelClosedError, Splitter, packed, pair

if TYPE_CHECKING:
    from mpi_runtime.core.transport.poller import Poller  # members load this module

VARIABLE = "_MPI_RUNTIME_GANG_FD"
"""The variable with the number of the descriptor in a member."""
NAME = "_MPI_RUNTIME_GANG"
"""The variable with the name of the gang: what another launcher starts for it has this variable too."""
_KEY = b"meet"
_DESCRIPTORS_MAX = 4


class Asked(msgspec.Struct, array_like=True, tag="s"):
    """A member asks what its program has done. The answer is `Status`."""


class Status(msgspec.Struct, array_like=True, tag="S"):
    """What the program of a member has done."""

    is_initialised: bool
    is_finalized: bool
    protocol: str
    """The one by which this gang is started; empty: none."""
    problem: str
    """Why `protocol` is empty."""


class Renew(msgspec.Struct, array_like=True, tag="r"):
    """A member is about to run another program. The answer is `Renewed`, and descriptors."""


class Renewed(msgspec.Struct, array_like=True, tag="R"):
    """The start of another MPI world. Descriptors come with it."""

    env: dict[str, str]
    """Variables of the member."""
    names: list[str]
    """For each descriptor the variable that has its number."""


class Meet(msgspec.Struct, array_like=True, tag="m"):
    """A member waits for all others, with bytes for them. The answer is `Met`."""

    part: bytes


class Met(msgspec.Struct, array_like=True, tag="M"):
    """All members are there; their bytes, by rank."""

    parts: list[bytes]


class Lines(msgspec.Struct, array_like=True, tag="l"):
    """Output of a member for rank 0."""

    stream: int
    data: bytes
    rank: int = 0


class Taken(msgspec.Struct, array_like=True, tag="t"):
    """Rank 0 has written the lines of this rank."""

    rank: int = 0


class Aborted(msgspec.Struct, array_like=True, tag="A"):
    """The program of a member has called MPI_Abort. With MPICH it continues, and must be killed."""

    code: int
    text: str


class Launches(msgspec.Struct, array_like=True, tag="x"):
    """Another launcher starts processes on the hosts of the gang. They end with the gang."""


_Reply = TypeVar("_Reply", Status, Met, Taken, Renewed)
_FromMember = Asked | Meet | Lines | Taken | Launches | Renew
_from_member: msgspec.msgpack.Decoder[_FromMember] = msgspec.msgpack.Decoder(_FromMember)
_ToMember = Status | Met | Lines | Taken | Aborted | Renewed
_to_member: msgspec.msgpack.Decoder[_ToMember] = msgspec.msgpack.Decoder(_ToMember)
_encode = msgspec.msgpack.encode


_End = TypeVar("_End", Channel, socket.socket)


class Pairs(Generic[_End]):
    """Socketpairs of an agent with members of one gang on one node, which inherit the other ends."""

    def __init__(self, poller: Poller) -> None:
        """Have none yet. `poller`: waits for members."""
        self._poller = poller
        self._ours: dict[int, _End] = {}
        self._theirs: dict[int, socket.socket] = {}

    def forked(self, rank: int) -> None:
        """Close this process's copy of a member's end."""
        if rank in self._theirs:
            self._theirs.pop(rank).close()

    def _end(self, rank: int) -> None:
        if rank in self._ours:
            ours = self._ours.pop(rank)
            self._poller.remove(ours)
            ours.close()

    def close(self) -> None:
        """End all dialogues."""
        for rank in list(self._ours):
            self._end(rank)
        for rank in list(self._theirs):
            self.forked(rank)


class Talks(Pairs[Channel]):
    """The agent's side: members of one gang on one node."""

    def __init__(
        self,
        poller: Poller,
        hosts: Sequence[int],
        own: int,
        exchange: Callable[[Fence | Question | Answer], None],
        status: Callable[[int], Status],
        renew: Callable[[int], None],
    ) -> None:
        """Talk with nobody yet.

        Args:
            poller: waits for members.
            hosts: the node of each rank.
            own: this node.
            exchange: sends a message to another node.
            status: returns the status of a rank of this node.
            renew: begins another start for a rank of this node, and calls `renewed` when it can be used.
        """
        super().__init__(poller)
        self._hosts, self._own = hosts, own
        self._exchange, self._status, self._renew = exchange, status, renew
        self._meeting: dict[int, bytes] = {}
        self.launches = False
        """Whether another launcher starts processes here."""

    def member(self, rank: int) -> int:
        """Make the socketpair of a member. Returns the member's end, which `forked` closes here."""
        ours, theirs = pair()
        channel = self._ours[rank] = Channel(ours)
        self._theirs[rank] = theirs
        self._poller.add(channel, lambda: self._on_ready(rank))
        return theirs.fileno()

    def renewed(self, rank: int, env: Mapping[str, str], descriptors: Mapping[str, int]) -> None:
        """Answer `Renew`. The member has read all else, so the socket accepts this at once."""
        if rank in self._ours:
            data = packed(_encode(Renewed(dict(env), list(descriptors))), 0)
            with contextlib.suppress(OSError):  # it has ended
                socket.send_fds(self._ours[rank].socket, [data], list(descriptors.values()))

    def abort(self, rank: int, code: int, text: str) -> None:
        """Report to a member that its program has called MPI_Abort."""
        self._send(rank, Aborted(code, text))

    def say(self, rank: int, lines: bytes) -> None:
        """Have lines written to the standard error of the command, as if this member had sent them."""
        self._take(rank, Lines(2, lines))

    def _send(self, rank: int, message: _ToMember) -> None:
        channel = self._ours.get(rank)
        if channel is not None:
            self._poller.send(channel, _encode(message))

    def _on_ready(self, rank: int) -> None:
        try:
            for _, frame in self._ours[rank].receive():
                self._take(rank, _from_member.decode(frame))
        except (ChannelClosedError, msgspec.DecodeError):
            self._end(rank)

    def _take(self, rank: int, message: _FromMember) -> None:
        if isinstance(message, Asked):
            self._send(rank, self._status(rank))
        elif isinstance(message, Renew):
            self._renew(rank)
        elif isinstance(message, Launches):
            self.launches = True
        elif isinstance(message, Meet):
            self._meeting[rank] = message.part
            if len(self._meeting) == self._hosts.count(self._own):
                part, self._meeting = _encode(self._meeting), {}
                self._exchange(Fence(_KEY, sorted(set(self._hosts)), part))
        elif isinstance(message, Lines):
            if self._own == self._hosts[0]:
                self._send(0, Lines(message.stream, message.data, rank))
            else:
                body = _encode((message.stream, message.data))
                self._exchange(Question(self._hosts[0], -rank, body))
        elif rank == 0:
            if self._hosts[message.rank] == self._own:
                self._send(message.rank, Taken())
            else:
                self._exchange(Answer(self._hosts[message.rank], -message.rank, b""))

    def on_message(self, message: Fenced | Question | Answer) -> bool:
        """Take a message from other nodes, if it is one of members. Return whether it is."""
        if isinstance(message, Fenced):
            if message.key != _KEY:
                return False
            parts: dict[int, bytes] = {}
            for part in message.parts:
                parts.update(msgspec.msgpack.decode(part, type=dict[int, bytes]))
            for rank in list(self._ours):
                self._send(rank, Met([parts[one] for one in sorted(parts)]))
        elif message.number >= 0:
            return False
        elif isinstance(message, Question):
            stream, data = msgspec.msgpack.decode(message.body, type=tuple[int, bytes])
            self._send(0, Lines(stream, data, -message.number))
        else:
            self._send(-message.number, Taken())
        return True


class AgentLostError(Exception):
    """The agent of a member has died."""


class Line:
    """The member's side. Only one thread at a time uses it."""

    def __init__(self, descriptor: int, rank: int) -> None:
        """Talk by a descriptor, that of the variable, for the member with this rank."""
        self._end = socket.socket(fileno=descriptor)
        self._end.setblocking(True)
        self._splitter = Splitter()
        self._rank = rank
        self._write: Callable[[int, bytes, int], None] | None = None
        self._on_abort: Callable[[int, str], None] | None = None
        self._early: list[Lines] = []
        """Lines that arrived before `serve`."""
        self._descriptors: list[int] = []
        """Those that have arrived with messages."""

    def serve(self, write: Callable[[int, bytes, int], None], on_abort: Callable[[int, str], None]) -> None:
        """Serve a command from now on.

        Args:
            write: takes a stream of the command, 1 or 2, lines for it, and their rank. Rank 0 needs it.
            on_abort: is called when the program has called MPI_Abort, with its code and a text.
        """
        self._write, self._on_abort = write, on_abort
        early, self._early = self._early, []
        for lines in early:
            self._take(lines, write)

    def fileno(self) -> int:
        """Return the descriptor, to wait for messages of the agent."""
        return self._end.fileno()

    def status(self) -> Status:
        """Return what the program of this member has done."""
        return self._wait_for(Asked(), Status)

    def renew(self) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Have another start begun, for another program. Returns variables, and descriptors by their variable."""
        self._write = self._on_abort = None
        renewed = self._wait_for(Renew(), Renewed)
        descriptors, self._descriptors = self._descriptors, []
        return renewed.env, dict(zip(renewed.names, descriptors, strict=True))

    def meet(self, part: bytes) -> list[bytes]:
        """Wait for all members, and return the bytes of each. Rank 0 writes lines of others meanwhile."""
        return self._wait_for(Meet(part), Met).parts

    def launch(self) -> None:
        """Report that another launcher starts processes for this gang."""
        self._end.sendall(packed(_encode(Launches()), 0))

    def send(self, stream: int, data: bytes) -> None:
        """Send lines to the command's stream, and wait until they were taken."""
        if self._rank == 0:
            assert self._write is not None
            self._write(stream, data, 0)
        else:
            self._wait_for(Lines(stream, data), Taken)

    def look(self) -> None:
        """Take what has arrived: on rank 0 the lines of other members."""
        while select.select([self._end], [], [], 0)[0]:
            self._read()

    def _wait_for(self, message: Asked | Meet | Lines | Renew, kind: type[_Reply]) -> _Reply:
        self._end.sendall(packed(_encode(message), 0))
        while True:
            for reply in self._read():
                if isinstance(reply, kind):
                    return reply

    def _read(self) -> list[Status | Met | Taken | Renewed]:
        data, descriptors, _, _ = socket.recv_fds(self._end, READ_BYTES, _DESCRIPTORS_MAX)
        self._descriptors += descriptors
        if not data:
            raise AgentLostError("the agent of this member has ended")
        replies = []
        for _, frame in self._splitter.feed(data):
            reply = _to_member.decode(frame)
            if isinstance(reply, Lines):
                if self._write is None:
                    self._early.append(reply)
                else:
                    self._take(reply, self._write)
            elif isinstance(reply, Aborted):
                if self._on_abort is not None:
                    self._on_abort(reply.code, reply.text)
            else:
                replies.append(reply)
        return replies

    def _take(self, lines: Lines, write: Callable[[int, bytes, int], None]) -> None:
        write(lines.stream, lines.data, lines.rank)
        self._end.sendall(packed(_encode(Taken(lines.rank)), 0))

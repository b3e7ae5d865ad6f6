"""The start of one gang on one node: what a member needs, and what members have done.

A *gang* is a group of executors with an MPI world of their own. MPI_Init expects that a launcher such as mpirun has
started its process, and asks it: which rank am I, where do the others listen? Here no launcher has. So the agent of
each node plays the launcher for the members on its node, and agents of several nodes exchange answers through the head.

    member -- MPI_Init asks --> Side (PMI-1, or PMIx by a helper process) -- fences, questions --> Gather on the head
           <-- answer --------       NodeStart: one gang, this node       <-- from other nodes ---

Words: a *member* is one process of the gang. A *side* speaks the protocol of the MPI library that was found
(`start_protocols.py`). A *fence* is a point at which all members wait for each other and exchange their addresses. A
*start* is one MPI world: members that run commands get another one for each program (`renew`).

The life of a start:
1. `Starts.start` makes a `NodeStart`, and the side begins. It is `is_ready`, or has a `problem`, and calls `changed`.
2. `member(rank)`, once for each rank here: variables and descriptors for its process. `forked`: close our copies.
3. Members initialise, and finalize. `look` reads what a member has sent before its other messages are handled.
4. `close`, when members have ended or are about to be killed.

What always holds: each start of a job has a name of its own (`name_of`), because MPI libraries name shared memory after
it. `changed` is not called before `Starts.start` has returned, nor after `close`. This class neither forks nor kills
members: their agent does, as for other executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Timer
from typing import NamedTuple, Protocol

from mpi_runtime import config as configuration
from mpi_runtime.core.gangs import command_channel, environment, gather
from mpi_runtime.core.gangs.command_channel import Talks
from mpi_runtime.core.gangs.gather import Answer, Fence, Fenced, Gather, Question
from mpi_runtime.core.host.process_tree import kill_tagged
from mpi_runtime.scheduler.protocol.effects import Membership

NUMBER_MAX = 65535
LAUNCHED_S = 1.0
"""When what another launcher has started is looked for again, after the end of its gang, in seconds."""


class MemberStart(NamedTuple):
    """What a process needs in order to be a member, before MPI_Init."""

    env: Mapping[str, str]
    """Variables to set."""
    unset: Sequence[str]
    """Variables to remove first."""
    fds: Mapping[str, int]
    """Variables, and descriptors of this process. The member sets each variable to the number that the descriptor has
    in the member."""


class Side(Protocol):
    """The part of a start that depends on the protocol."""

    def member(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Return variables, and descriptors by the name of their variable."""

    def forked(self, rank: int) -> None:
        """Close copies of descriptors."""

    def look(self, rank: int) -> None:
        """Read what a member has sent, if members send anything to this process."""

    def on_message(self, message: Fenced | Question | Answer) -> None:
        """Take a message of the `Gather`."""

    def close(self) -> None:
        """End all dialogues."""


class NodeStart:
    """From the request for a gang to MPI_Finalize of its members on this node."""

    def __init__(
        self,
        gang: bytes,
        shape: Membership,
        send: Callable[[bytes], None],
        changed: Callable[[NodeStart], None],
    ) -> None:
        """Called by `Starts.start`, which describes the arguments."""
        self._gang, self._starts = gang, 0
        self.name = name_of(gang)
        self.hosts, self.names = shape.hosts, shape.names
        self.own = shape.hosts[shape.rank]
        self.ranks = [rank for rank, host in enumerate(shape.hosts) if host == self.own]
        self.protocol = ""
        self.problem = ""
        self.why_none = ""
        """Why no protocol is spoken, though members can be started: they talk, and need not be MPI programs."""
        self.is_ready = False
        self.initialised: set[int] = set()
        self.finalized: set[int] = set()
        self.aborted: tuple[int, int, str] | None = None
        self.texts: list[tuple[int, bytes, bool]] = []
        """What `say` was called with. The owner takes it."""
        self.is_closed = False
        self._send, self._changed = send, changed
        self._side: Side | None = None
        self._alone = Gather(1) if len(shape.names) == 1 else None
        self._unserved = set(self.ranks)
        """Ranks that have not got this start yet."""
        self._asking: set[int] = set()
        """Ranks that wait for this start: they have had an earlier one."""
        self.again: Callable[[], None] | None = None
        """Begins the part of a start that depends on the protocol."""
        self.talks: Talks | None = None

    def member(self, rank: int) -> MemberStart:
        """Return what a member of this node needs. Call it once for each rank, when `is_ready`."""
        variables, descriptors = self._of_this_start(rank)
        if self.talks is not None:
            descriptors = {**descriptors, command_channel.VARIABLE: self.talks.member(rank)}
        env = {**environment.places(rank, self.hosts, self.names), **variables}
        return MemberStart(env, environment.unset(configuration.environment()), descriptors)

    def _of_this_start(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        self._unserved.discard(rank)
        variables, descriptors = self._side.member(rank) if self._side is not None else ({}, {})
        return (variables if self.talks is None else {**variables, command_channel.NAME: self.name}), descriptors

    def renew(self, rank: int) -> None:
        """Begin another start for a member that runs one program after another. All members of the node ask for it.

        The members have met since their programs ended, and these had finalized MPI or had not begun it.
        """
        if not self._unserved:
            self._begin_again()
        self._asking.add(rank)
        self.note()

    def _begin_again(self) -> None:
        assert self.again is not None
        if self._side is not None:
            self._side.close()
            self._side = None
        self._starts += 1
        self.name = name_of(self._gang, self._starts)
        self._unserved, self.is_ready, self.problem = set(self.ranks), False, ""
        self.initialised, self.finalized = set(), set()
        try:
            self.again()
        except OSError as error:
            self.problem = f"another MPI program could not be started: {error}"

    def _serve(self) -> None:
        if self.is_ready and self.talks is not None:
            asking, self._asking = self._asking, set()
            for rank in asking:
                self.talks.renewed(rank, *self._of_this_start(rank))
                self.forked(rank)

    def forked(self, rank: int) -> None:
        """Close this process's copies of a member's descriptors: the member has them."""
        if self._side is not None:
            self._side.forked(rank)
        if self.talks is not None:
            self.talks.forked(rank)

    def look(self, rank: int) -> None:
        """Read what a member has sent before now. `aborted` is then known before the member's other messages."""
        if self._side is not None:
            self._side.look(rank)

    def on_message(self, data: bytes) -> None:
        """Take a message of the gang's `Gather`."""
        message = gather.arrived(data)
        if self.talks is not None and self.talks.on_message(message):
            return
        if self._side is not None:
            self._side.on_message(message)

    def status(self, rank: int) -> command_channel.Status:
        """Return what the program of a member has done by now."""
        self.look(rank)
        return command_channel.Status(rank in self.initialised, rank in self.finalized, self.protocol, self.why_none)

    def close(self) -> None:
        """End the start: the members have ended, or are about to be killed."""
        self.is_closed = True
        side, self._side = self._side, None
        if side is not None:
            side.close()
        if self.talks is not None:
            self.talks.close()
            if self.talks.launches:
                end_launched(self.name)

    # For the sides

    def begin(self, side: Side, protocol: str) -> None:
        """Have this side answer the members."""
        self._side, self.protocol = side, protocol

    def exchange(self, message: Fence | Question | Answer) -> None:
        """Send a message to the head, or take it back at once if there is no other node."""
        data = gather.encode(message)
        if self._alone is None:
            self._send(data)
            return
        for _, answer in self._alone.receive(0, data):
            self.on_message(answer)

    def abort(self, rank: int, code: int, text: str) -> None:
        """A member has called MPI_Abort. One that talks ends its program itself."""
        if self.talks is not None:
            self.talks.abort(rank, code, text)
        else:
            self.aborted = rank, code, text

    def say(self, rank: int, lines: bytes, is_new: bool) -> None:
        """The MPI library of a member has lines for its user. `is_new`: no other member here has logged the like."""
        if self.talks is None:
            self.texts.append((rank, lines, is_new))
        elif is_new:
            self.talks.say(rank, lines)

    def note(self, problem: str = "") -> None:
        """Something has changed."""
        self.problem = self.problem or problem
        self._serve()
        if not self.is_closed:
            self._changed(self)


def end_launched(name: str) -> None:
    """Kill what another launcher has started here for a gang, now and once more: it may be starting more."""
    kill_tagged(command_channel.NAME, name)
    timer = Timer(LAUNCHED_S, kill_tagged, (command_channel.NAME, name))
    timer.daemon = True
    timer.start()


def name_of(gang: bytes, start: int = 0) -> str:
    """Return the name of a start of a gang for MPI libraries: characters, `@`, and a number from 1 to `NUMBER_MAX`.

    Open MPI names shared memory by 16 bits of a hash of the characters, and the number, as with names that its own
    launcher gives. So gangs of a job never meet, and those of two jobs as seldom as two runs of `mpirun`.
    """
    number = int.from_bytes(gang[-8:], "big")
    return f"{gang[:-8].hex()}.{number // NUMBER_MAX}.{start}@{number % NUMBER_MAX + 1}"

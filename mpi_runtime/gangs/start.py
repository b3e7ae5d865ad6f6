"""The node's part of a start: a gang's members on one node, from their environment to MPI_Finalize.

1. `Starts.start` begins a gang. With PMI-1 its members can be forked at once; with PMIx when the helper has registered
   the gang, and with an unknown library when the helper has found it.
2. `member` returns what a member needs: variables, and with PMI-1 a descriptor.
3. Members call MPI_Init, and ask. What concerns other nodes goes to the `Gather` of the gang on the head, and back
   through `on_message`. A gang on a single node has a `Gather` of its own.
4. `close`, when the members have ended.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.gangs import environment, gather, library, pmi1, pmix_server, talk
from mpi_runtime.gangs.gather import Answer, Fence, Fenced, Gather, Question
from mpi_runtime.gangs.helper import GANGS_MAX, Helper, Watcher
from mpi_runtime.gangs.library import Library
from mpi_runtime.gangs.pmix_server import Report
from mpi_runtime.gangs.segments import sweep
from mpi_runtime.gangs.talk import Talks

READ_BYTES = 1 << 16
NUMBER_MAX = 65535
CLOCK_S = 2.0
"""Seconds by which times of files may be behind: some systems count in coarse steps."""
CONTEXT_MAX = (1 << 32) - 1
"""Groups of PMIx are numbered from here down, as PRRTE does: low numbers are those of ordinary communicators."""


class MemberStart(NamedTuple):
    """What a process needs in order to be a member, before MPI_Init."""

    env: Mapping[str, str]
    """Variables to set."""
    unset: Sequence[str]
    """Variables to remove first."""
    fds: Mapping[str, int]
    """Variables, and descriptors of this process. The member sets each variable to the number that the descriptor has
    in the member."""


class _Side(Protocol):
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
    """The start of one gang on one node."""

    def __init__(
        self,
        gang: bytes,
        ranks: Sequence[int],
        hosts: Sequence[int],
        names: Sequence[str],
        send: Callable[[bytes], None],
        changed: Callable[[NodeStart], None],
    ) -> None:
        """Called by `Starts.start`, which describes the arguments."""
        self.name = name_of(gang)
        self.ranks, self.hosts, self.names = list(ranks), list(hosts), list(names)
        self.own = self.hosts[self.ranks[0]]
        self.protocol = ""
        self.problem = ""
        self.why_none = ""
        """Why no protocol is spoken, though members can be started: they talk, and need not be MPI programs."""
        self.is_ready = False
        self.initialised: set[int] = set()
        self.finalized: set[int] = set()
        self.aborted: tuple[int, int, str] | None = None
        self.is_closed = False
        self._since_s = time.time() - CLOCK_S
        self._send, self._changed = send, changed
        self._side: _Side | None = None
        self._alone = Gather(1) if len(names) == 1 else None
        self.talks: Talks | None = None

    def member(self, rank: int) -> MemberStart:
        """Return what a member of this node needs. Call it once for each rank, when `is_ready`."""
        variables: Mapping[str, str] = {}
        descriptors: Mapping[str, int] = {}
        if self._side is not None:
            variables, descriptors = self._side.member(rank)
        if self.talks is not None:
            descriptors = {**descriptors, talk.VARIABLE: self.talks.member(rank)}
        env = {**environment.places(rank, self.hosts), **variables}
        return MemberStart(env, environment.unset(configuration.environment()), descriptors)

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
        if self._side is not None and not (self.talks is not None and self.talks.on_message(message)):
            self._side.on_message(message)

    def status(self, rank: int) -> talk.Status:
        """Return what the program of a member has done by now."""
        self.look(rank)
        return talk.Status(rank in self.initialised, rank in self.finalized, self.protocol, self.why_none)

    def close(self) -> None:
        """End the start: the members have ended, or are about to be killed."""
        self.is_closed = True
        side, self._side = self._side, None
        if side is not None:
            side.close()
        if self.talks is not None:
            self.talks.close()
        if self.initialised - self.finalized:
            sweep(self._since_s)

    # For the sides

    def begin(self, side: _Side, protocol: str) -> None:
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

    def note(self, problem: str = "") -> None:
        """Something has changed."""
        self.problem = self.problem or problem
        if not self.is_closed:
            self._changed(self)


def name_of(gang: bytes) -> str:
    """Return the name of a gang for MPI libraries: characters, then `@` and a number from 1 to `NUMBER_MAX`.

    Open MPI names shared memory by 16 bits of a hash of the characters, and the number, as with names that its own
    launcher gives. So gangs of a job never meet, and those of two jobs as seldom as two runs of `mpirun`.
    """
    number = int.from_bytes(gang[-8:], "big")
    return f"{gang[:-8].hex()}.{number // NUMBER_MAX}@{number % NUMBER_MAX + 1}"


class Starts:
    """All gangs that start on this node."""

    def __init__(self, poller: Watcher, directory: Callable[[], str]) -> None:
        """Start nothing yet.

        Args:
            poller: waits for descriptors.
            directory: returns a private directory of the job on this host. It is called with the first gang.
        """
        self._poller, self._directory = poller, directory
        self._library: Library | None = None
        self._helper: Helper | None = None
        self._retired: list[Helper] = []
        """Helpers that get no further gang and still have some."""
        self._undecided: list[NodeStart] = []

    def start(
        self,
        gang: bytes,
        size: int,
        ranks: Sequence[int],
        hosts: Sequence[int],
        names: Sequence[str],
        send: Callable[[bytes], None],
        changed: Callable[[NodeStart], None],
        protocol: str = "",
        talks: bool = False,
    ) -> NodeStart:
        """Begin the start of a gang.

        Args:
            gang: its name: bytes that no other job has, and a number in 8 bytes, big end first, that no other gang of
                the job has. A retry is another gang.
            size: the number of ranks.
            ranks: those of this node, one at least.
            hosts: for each rank the index of its node in `names`.
            names: the host names of the nodes, as `gethostname` returns them.
            send: is called with bytes for the `Gather` of the gang. Not if there is one node.
            changed: is called when an attribute of the result has changed, but not before this returns.
            protocol: `pmi1` or `pmix`; empty: that of the MPI library that is found here.
            talks: whether members talk with this process, as members do that run commands.

        Returns:
            The start. If it has a `problem`, members cannot be started.
        """
        assert size == len(hosts)
        node = NodeStart(gang, ranks, hosts, names, send, changed)
        if talks:
            node.talks = Talks(self._poller, node.hosts, node.own, node.exchange, node.status)
        protocol = protocol or configuration.gang_protocol()
        try:
            known = Library(protocol=protocol) if protocol else self._library
            if known is not None:
                self._decide(node, known)
            else:
                self._undecided.append(node)
                self._take_helper()
        except OSError as error:
            node.problem = f"the helper process of gangs could not be started: {error}"
        return node

    def close(self) -> None:
        """End the helpers. The gangs must have been closed."""
        for helper in [*self._retired, *([self._helper] if self._helper else [])]:
            helper.close()
        self._helper, self._retired = None, []

    def _take_helper(self) -> Helper:
        for helper in [one for one in self._retired if not one.gangs]:
            self._retired.remove(helper)
            helper.close()
        if self._helper is not None and self._helper.total >= GANGS_MAX:
            self._retired.append(self._helper)
            self._helper = None
        if self._helper is None or self._helper.is_closed:
            known = self._library.pmix if self._library else ""
            self._helper = Helper(self._poller, self._directory(), known, self._on_found)
        return self._helper

    def _on_found(self, found: Library) -> None:
        """The helper has found the library, or has died before: then the next gang starts another one."""
        if found.version:
            self._library = found
        undecided, self._undecided = self._undecided, []
        for node in undecided:
            if not node.is_closed:
                self._decide(node, found)
                node.note()
        if self._helper is not None and not self._helper.gangs and found.protocol != library.PMIX:
            self._helper.close()
            self._helper = None

    def _decide(self, node: NodeStart, found: Library) -> None:
        if found.protocol == library.PMI1:
            node.begin(_Pmi1Side(node, self._poller), found.protocol)
            node.is_ready = True
        elif found.protocol == library.PMIX:
            _PmixSide(node, self._take_helper)
        elif node.talks is not None:
            node.why_none, node.is_ready = found.problem, True
        else:
            node.problem = found.problem


class _Pmi1Side:
    """Talks PMI-1 with members over socketpairs that they inherit."""

    def __init__(self, node: NodeStart, poller: Watcher) -> None:
        self._node, self._poller = node, poller
        self._dialogue = pmi1.Dialogue(node.name, node.ranks, node.hosts, node.names)
        node.initialised, node.finalized = self._dialogue.initialised, self._dialogue.finalized
        self._ours: dict[int, socket.socket] = {}
        self._theirs: dict[int, socket.socket] = {}

    def member(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._ours[rank], self._theirs[rank] = ours, theirs
        self._poller.add(ours.fileno(), lambda: self._on_ready(rank))
        return environment.of_pmi1(rank, len(self._node.hosts)), {"PMI_FD": theirs.fileno()}

    def forked(self, rank: int) -> None:
        if rank in self._theirs:
            self._theirs.pop(rank).close()

    def look(self, rank: int) -> None:
        if rank in self._ours:
            self._on_ready(rank)

    def _on_ready(self, rank: int) -> None:
        try:
            data = self._ours[rank].recv(READ_BYTES)
            if not data:
                self._end(rank)
                return
            before = len(self._dialogue.initialised), len(self._dialogue.finalized), self._dialogue.aborted
            self._perform(self._dialogue.receive(rank, data))
        except BlockingIOError:
            return
        except OSError:
            self._end(rank)
            return
        except pmi1.ProtocolError as error:
            self._end(rank)
            self._node.note(f"a member does not speak PMI-1: {error}")
            return
        if self._dialogue.aborted and not before[2]:
            self._node.abort(*self._dialogue.aborted)
        if before != (len(self._dialogue.initialised), len(self._dialogue.finalized), self._dialogue.aborted):
            self._node.note()

    def _perform(self, actions: Sequence[pmi1.Reply | Fence]) -> None:
        for action in actions:
            if isinstance(action, Fence):
                self._node.exchange(action)
            elif action.rank in self._ours:
                try:
                    self._ours[action.rank].sendall(action.data)
                except OSError:  # it has ended, or asks without reading
                    self._end(action.rank)

    def on_message(self, message: Fenced | Question | Answer) -> None:
        if isinstance(message, Fenced):
            self._perform(self._dialogue.fenced(message.key, message.parts))

    def _end(self, rank: int) -> None:
        if rank in self._ours:
            ours = self._ours.pop(rank)
            self._poller.remove(ours.fileno())
            ours.close()

    def close(self) -> None:
        for rank in list(self._ours):
            self._end(rank)
        for rank in list(self._theirs):
            self.forked(rank)


class _PmixSide:
    """Has the helper talk PMIx with members."""

    def __init__(self, node: NodeStart, take_helper: Callable[[], Helper]) -> None:
        self._node, self._helper, self._take_helper = node, take_helper(), take_helper
        self._variables: Mapping[int, Mapping[str, str]] = {}
        self._fences: dict[bytes, int] = {}
        """The numbers of fences and groups that wait for other nodes."""
        self._questions: dict[int, tuple[int, int]] = {}
        self._is_second = False
        node.begin(self, library.PMIX)
        self._register()

    def _register(self) -> None:
        node = self._node
        self._helper.register(self, pmix_server.Register(node.name, node.hosts, node.names, node.own))

    def member(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        return {**environment.of_open_mpi(configuration.environment()), **self._variables[rank]}, {}

    def forked(self, rank: int) -> None:
        pass

    def look(self, rank: int) -> None:
        self._helper.look()  # the helper has reported what a member has done before the member continued

    def on_helper_lost(self, problem: str) -> None:
        if self._node.is_ready or self._is_second:
            self._node.note(problem)
            return
        self._is_second = True  # a gang that was killed may have been the cause
        try:
            self._helper = self._take_helper()
        except OSError as error:
            self._node.note(f"{problem}; another one could not be started: {error}")
            return
        self._register()

    def on_report(self, report: Report) -> None:
        node = self._node
        if isinstance(report, pmix_server.Fence):
            self._enter(msgspec.msgpack.encode(("fence", report.ranks)), report)
        elif isinstance(report, pmix_server.Group):
            self._enter(msgspec.msgpack.encode(("group", report.group, report.ranks)), report)
        elif isinstance(report, pmix_server.Wanted):
            body = msgspec.msgpack.encode(report.rank)
            node.exchange(Question(node.hosts[report.rank], report.number, body))
        elif isinstance(report, pmix_server.LookedUp):
            asker, number = self._questions.pop(report.number)
            node.exchange(Answer(asker, number, report.data, report.status))
        else:
            self._on_news(report)
            node.note()

    def _on_news(self, report: Report) -> None:
        node = self._node
        if isinstance(report, pmix_server.Registered):
            self._variables, node.is_ready = report.variables, True
        elif isinstance(report, pmix_server.Refused):
            node.problem = report.problem
        elif isinstance(report, pmix_server.Member):
            node.initialised.add(report.rank)
            (node.finalized.add if report.is_final else node.finalized.discard)(report.rank)
        elif isinstance(report, pmix_server.Aborted):
            node.abort(report.rank, report.code, report.text)

    def _enter(self, key: bytes, report: pmix_server.Fence | pmix_server.Group) -> None:
        self._fences[key] = report.number
        hosts = self._node.hosts
        nodes = sorted({hosts[rank] for rank in report.ranks} if report.ranks else set(hosts))
        self._node.exchange(Fence(key, nodes, report.data))

    def on_message(self, message: Fenced | Question | Answer) -> None:
        if isinstance(message, Fenced):
            number = self._fences.pop(message.key)
            if msgspec.msgpack.decode(message.key)[0] == "fence":
                self._helper.send(pmix_server.Collected(number, 0, b"".join(message.parts)))
            else:
                self._helper.send(pmix_server.Grouped(number, CONTEXT_MAX - message.number, message.parts))
        elif isinstance(message, Question):
            number = self._helper.number(self)
            self._questions[number] = message.node, message.number
            rank = msgspec.msgpack.decode(message.body, type=int)
            self._helper.send(pmix_server.LookUp(number, self._node.name, rank))
        else:
            self._helper.send(pmix_server.Collected(message.number, message.status, message.body))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._helper.forget(self._node.name)

"""The two protocols of a start: PMI-1 is answered here, PMIx by the helper."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mpi_runtime.core.gangs import library, pmi1
from mpi_runtime.core.gangs import pmix_messages as messages
from mpi_runtime.core.gangs.command_channel import Pairs
from mpi_runtime.core.gangs.gather import Answer, Fence, Fenced, Question
from mpi_runtime.core.gangs.node import NodeStart
from mpi_runtime.core.gangs.pmix_helper import Helper
from mpi_runtime.core.transport.poller import Poller

READ_BYTES = 1 << 16
CONTEXT_MAX = (1 << 32) - 1
"""Groups of PMIx are numbered from here down, as PRRTE does: low numbers are those of ordinary communicators."""
_NUMBERS = re.compile(rb"(0x[0-9a-f]+|\d+)")


class Pmi1Side(Pairs[socket.socket]):
    """Talks PMI-1 with members over socketpairs that they inherit."""

    def __init__(self, node: NodeStart, poller: Poller) -> None:
        """Talk with nobody yet."""
        super().__init__(poller)
        self._node = node
        self._dialogue = pmi1.Dialogue(node.name, node.ranks, node.hosts, node.names)
        node.initialised, node.finalized = self._dialogue.initialised, self._dialogue.finalized

    def member(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._ours[rank], self._theirs[rank] = ours, theirs
        self._poller.add(ours, lambda: self._on_ready(rank))
        return {"PMI_RANK": str(rank), "PMI_SIZE": str(len(self._node.hosts))}, {"PMI_FD": theirs.fileno()}

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
        if self._dialogue.aborted is not None and self._dialogue.aborted != before[2]:
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


class PmixSide:
    """Has the helper talk PMIx with members."""

    def __init__(self, node: NodeStart, take_helper: Callable[[], Helper]) -> None:
        """Have the helper register the gang. `take_helper` returns the helper of this node."""
        self._node, self._helper, self._take_helper = node, take_helper(), take_helper
        self._variables: Mapping[int, Mapping[str, str]] = {}
        self._fences: dict[bytes, int] = {}
        """The numbers of fences and groups that wait for other nodes."""
        self._questions: dict[int, tuple[int, int]] = {}
        self._kinds: set[int] = set()
        """Hashes of the texts that members have logged, without their numbers."""
        self._is_second = False
        node.begin(self, library.PMIX)
        self._register()

    def _register(self) -> None:
        node = self._node
        self._helper.register(self, messages.Register(node.name, node.hosts, node.names, node.own))

    def member(self, rank: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
        return self._variables[rank], {}

    def forked(self, rank: int) -> None:
        pass  # members get no descriptors

    def look(self, rank: int) -> None:
        self._helper.look()  # the helper has reported what a member has done before the member continued

    def on_helper_lost(self, problem: str) -> None:
        """Take another helper, once, if the gang was not registered."""
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

    def on_report(self, report: messages.Report) -> None:
        """Take a report of the helper about this gang."""
        node = self._node
        if isinstance(report, messages.Fence):
            key = msgspec.msgpack.encode((report.group, report.ranks))
            self._fences[key] = report.number
            nodes = sorted({node.hosts[rank] for rank in report.ranks} if report.ranks else set(node.hosts))
            node.exchange(Fence(key, nodes, report.data))
        elif isinstance(report, messages.Wanted):
            body = msgspec.msgpack.encode(report.rank)
            node.exchange(Question(node.hosts[report.rank], report.number, body))
        elif isinstance(report, messages.Collected):
            asker, number = self._questions.pop(report.number)
            node.exchange(Answer(asker, number, report.data, report.status))
        else:
            self._on_news(report)
            node.note()

    def _on_news(self, report: messages.Report) -> None:
        node = self._node
        if isinstance(report, messages.Registered):
            self._variables, node.problem = report.variables, report.problem or node.problem
            node.is_ready = not report.problem
        elif isinstance(report, messages.Member):
            node.initialised.add(report.rank)
            (node.finalized.add if report.is_final else node.finalized.discard)(report.rank)
        elif isinstance(report, messages.Aborted):
            node.abort(report.rank, report.code, report.text)
        elif isinstance(report, messages.Logged):
            kind = hash(_NUMBERS.sub(b"", report.text))  # texts of two ranks differ in ranks, pids and addresses
            node.say(report.rank, report.text.rstrip(b"\n") + b"\n", kind not in self._kinds)
            self._kinds.add(kind)

    def on_message(self, message: Fenced | Question | Answer) -> None:
        if isinstance(message, Fenced):
            number = self._fences.pop(message.key)
            if msgspec.msgpack.decode(message.key)[0] is None:
                self._helper.send(messages.Collected(number, 0, b"".join(message.parts)))
            else:
                self._helper.send(messages.Grouped(number, CONTEXT_MAX - message.number, message.parts))
        elif isinstance(message, Question):
            number = self._helper.number(self)
            self._questions[number] = message.node, message.number
            rank = msgspec.msgpack.decode(message.body, type=int)
            self._helper.send(messages.LookUp(number, self._node.name, rank))
        else:
            self._helper.send(messages.Collected(message.number, message.status, message.body))

    def close(self) -> None:
        node = self._node
        if node.is_ready and node.talks is None and not node.finalized.issuperset(node.ranks):
            self._helper.is_suspect = True
        with contextlib.suppress(OSError):
            self._helper.forget(node.name)

"""Gangs on this node: members are forked when the start service is ready for them.

The agent of a member answers what its MPI library asks at the start (`gangs/start.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from mpi_runtime.core.agent.executors import SAID_BYTES_MAX, LocalExecutor, last_words
from mpi_runtime.core.executor import scratch
from mpi_runtime.core.executor.fork_messages import Fork, ForkHelper, MpiStart, OpenMpi, Request
from mpi_runtime.core.gangs.greeting import ABORT_S, UNREACHABLE, abort_s, advice
from mpi_runtime.core.gangs.node import NodeStart
from mpi_runtime.core.gangs.start import Starts
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import GangBytes
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.effects import Membership

ForkIt = Callable[[Fork, list[int]], None]
"""Has the forkserver fork a member, with these further descriptors."""


class Agent(Protocol):
    """What gangs ask of their agent."""

    rank: int
    poller: Poller
    scratch: str
    """The directory for files of the job on this host."""

    def report(self, message: GangBytes, /) -> None:
        """Send a message to the head."""

    def ask_forkserver(self, request: Request, descriptors: list[int]) -> None:
        """Send a request with these descriptors. Without a forkserver nothing happens."""

    def kill(self, executor: LocalExecutor) -> None:
        """End the process of an executor. `before_kill` is called first."""

    def ignore(self, executor: LocalExecutor) -> None:
        """Drop all further frames of an executor."""

    def give_up(self, executor: LocalExecutor, cause: str) -> None:
        """Report the end of an executor that was never forked."""


class LocalGang:
    """The members of one gang on this node."""

    def __init__(self, shape: Membership, own: int) -> None:
        self.shape = shape
        self.own = own
        """The index of this node."""
        self.start: NodeStart | None = None
        self.members: dict[int, LocalExecutor] = {}
        """By rank: those that were forked and have not ended."""
        self.waiting: dict[int, tuple[LocalExecutor, Fork, ForkIt]] = {}
        """By rank: those that will be forked when the start service is ready."""


def say(executor: LocalExecutor) -> None:
    """Forward the texts of its MPI library."""
    if executor.unsaid:
        lines, executor.unsaid = executor.unsaid, b""
        executor.outputs[-1].forward(lines)


class Gangs:
    """All gangs with members on this node."""

    def __init__(self, agent: Agent) -> None:
        """Start nothing yet."""
        self._agent = agent
        self._starts = Starts(
            agent.poller,
            self._enter,
            lambda: agent.ask_forkserver(OpenMpi(), []),
            lambda directory, library, end: agent.ask_forkserver(ForkHelper(directory, library), [end]),
        )
        self._job = os.path.basename(agent.scratch).partition("@")[0].encode()
        """The token of the job: names of gangs must be unique on the host."""
        self._lock = -1
        self._gangs: dict[int, LocalGang] = {}
        self._late: list[tuple[float, LocalExecutor, Callable[[], None]]] = []
        """Reports of ends and texts of members that wait, each with the time when it is sent."""

    def _enter(self) -> str:
        if self._lock < 0:
            self._lock = scratch.enter(self._agent.scratch)
        return self._agent.scratch

    def start(self, executor: LocalExecutor, shape: Membership, request: Fork, fork: ForkIt) -> None:
        """Have a member forked, now or when the start service is ready.

        Raises:
            BadFrameError: it belongs to another agent.
        """
        own = shape.hosts[shape.rank]
        agent = self._agent
        if shape.agents[own] != agent.rank:
            raise BadFrameError(f"rank {agent.rank} is to start a member of the gang of rank {shape.agents[own]}")
        executor.gang, executor.gang_rank = shape.gang, shape.rank
        gang = self._gangs.get(shape.gang)
        if gang is None:
            gang = self._gangs[shape.gang] = LocalGang(shape, own)
            try:
                gang.start = self._starts.start(
                    self._job + shape.gang.to_bytes(8, "big"),
                    shape,
                    lambda data: agent.report(GangBytes(shape.gang, own, shape.agents, data)),
                    lambda _: self._changed(shape.gang),
                )
            except OSError as error:
                executor.death_note = f"could not be started: {scratch.why_not(error, agent.scratch)}"
        gang.waiting[shape.rank] = executor, request, fork
        self._look(gang)

    def _changed(self, number: int) -> None:
        gang = self._gangs.get(number)
        if gang is not None:
            self._look(gang)

    def _look(self, gang: LocalGang) -> None:
        start = gang.start
        if start is not None:
            texts, start.texts = start.texts, []
            for rank, lines, is_new in texts:
                if (member := gang.members.get(rank)) is not None:
                    member.mpi_words = (member.mpi_words + lines)[-SAID_BYTES_MAX:]
                    if is_new and member.unsaid is not None:
                        member.unsaid += lines
                        if len(gang.shape.names) > 1:
                            # Longer than the end of another member waits that has called MPI_Abort.
                            self._late.append((time.monotonic() + 2 * ABORT_S, member, partial(say, member)))
                        else:
                            say(member)
        problem = start.problem if start is not None else "the files of the job cannot be made"
        if problem:
            for executor, *_ in list(gang.waiting.values()):
                self._agent.give_up(
                    executor, executor.death_note or f"could not be started as a member of a gang: {problem}"
                )
            initialised = start.initialised if start is not None else ()
            for rank, executor in gang.members.items():
                if rank not in initialised and not executor.death_note:  # it would wait in MPI_Init for ever
                    executor.death_note = f"could not start MPI as a member of a gang: {problem}"
                    self._agent.kill(executor)
            return
        assert start is not None
        if start.is_ready:
            for rank, (executor, request, fork) in list(gang.waiting.items()):
                del gang.waiting[rank]
                gang.members[rank] = executor
                given = start.member(rank)
                request.mpi = MpiStart(dict(given.env), list(given.unset), list(given.fds))
                fork(request, list(given.fds.values()))
                start.forked(rank)
        if start.aborted is not None:
            rank, code, text = start.aborted
            executor_ = gang.members.get(rank)
            if executor_ is not None and not executor_.death_note and executor_.unsaid is not None:
                executor_.death_note = f"called MPI_Abort with code {code}{text and ': '}{text}"
                if len(gang.shape.names) > 1:
                    executor_.end_waits_s = abort_s(code)
                    if code == UNREACHABLE:
                        here = gang.shape.names[gang.own]
                        executor_.death_note += f", as Open MPI does if it cannot reach another host. {advice(here)}"
                executor_.death_note += last_words(executor_.mpi_words)
                self._agent.ignore(executor_)  # MPI_Abort of MPICH returns, and the member could still end its call
                self._agent.kill(executor_)

    def before_frames(self, executor: LocalExecutor) -> None:
        """Read what a member has sent to the start service before it sent frames."""
        gang = self._gangs.get(executor.gang)
        if gang is not None and gang.start is not None and executor.gang_rank in gang.members:
            gang.start.look(executor.gang_rank)

    def take(self, message: GangBytes) -> None:
        """Take bytes from the head for the members of a gang. If they have ended, nothing happens."""
        gang = self._gangs.get(message.gang)
        if gang is not None and gang.start is not None:
            gang.start.on_message(message.data)

    def before_kill(self, executor: LocalExecutor) -> bool:
        """Give up a member that was not forked. Return whether there is a process to kill."""
        gang = self._gangs.get(executor.gang)
        if gang is None:
            return True
        if executor.gang_rank in gang.waiting:
            self._agent.give_up(executor, "was stopped before it started")
            return False
        return True

    def stopped(self, number: int) -> None:
        """The head stops this member because it knows of another end: its texts and MPI_Abort follow from that."""
        members = [one for gang in self._gangs.values() for one in gang.members.values()]
        for member in [*members, *(one for _, one, _ in self._late)]:
            if member.number == number:
                member.unsaid = None
        self._late = [(0.0 if one.number == number else at_s, one, report) for at_s, one, report in self._late]

    def ended(self, executor: LocalExecutor) -> None:
        """Note the end of a member. With the last one the gang ends here."""
        gang = self._gangs.get(executor.gang)
        if gang is None:
            return
        if not executor.end_waits_s:
            say(executor)
        gang.members.pop(executor.gang_rank, None)
        gang.waiting.pop(executor.gang_rank, None)
        if not gang.members and not gang.waiting:
            del self._gangs[executor.gang]
            if gang.start is not None:
                gang.start.close()

    def report_end(self, executor: LocalExecutor, report: Callable[[], None]) -> None:
        """Report the end of an executor by this call, now or in a later turn."""
        if executor.end_waits_s and executor.unsaid is not None:
            at_s = time.monotonic() + executor.end_waits_s
            self._late += [(at_s, executor, partial(say, executor)), (at_s, executor, report)]
        else:
            report()

    def turn(self) -> float | None:
        """Send the reports that are due. Return the seconds until the next one; None: no report waits."""
        if not self._late:
            return None
        now_s = time.monotonic()
        due = [report for at_s, _, report in self._late if at_s <= now_s]
        self._late = [late for late in self._late if late[0] > now_s]
        for report in due:
            report()
        return min(at_s for at_s, *_ in self._late) - now_s if self._late else None

    def close(self) -> None:
        """End the start service, when all executors have ended."""
        for gang in self._gangs.values():
            if gang.start is not None:
                gang.start.close()
        self._starts.close()
        if self._lock >= 0:
            lock, self._lock = self._lock, -1
            scratch.leave(self._agent.scratch, lock)

"""The node agent, which head and worker share: the processes of this rank's executors, and its part of the arena.

The agent obeys the scheduler and keeps only what it needs for that. It has executors forked and killed, and reads their
output. What they send goes to a custodian: that of this agent, or that of the head's if they have direct lines.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import asdict

from mpi_runtime.core.agent.custody import Custodian
from mpi_runtime.core.agent.executors import Drafts, LocalExecutor, describe_status, keep_spare, last_words
from mpi_runtime.core.agent.extents import NOBODY, Extents
from mpi_runtime.core.agent.forkserver import ForkserverLine, Forkservers
from mpi_runtime.core.agent.gpus import Gpus
from mpi_runtime.core.agent.memory import MemoryWatch
from mpi_runtime.core.agent.output_lines import Lines
from mpi_runtime.core.agent.spills import Spills
from mpi_runtime.core.executor.fork_messages import Exited, Fork, Interrupt, Kill, Request, Setup
from mpi_runtime.core.host.machine import shortage
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.objects.transfer import Transfers
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Transport
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import (
    Ended,
    ForAgent,
    GangBytes,
    Measure,
    PauseLogs,
    Pull,
    StackRead,
    StackWanted,
    Unpull,
    WorkerToHead,
)
from mpi_runtime.core.transport.poller import Poller, shorter
from mpi_runtime.scheduler.protocol import effects, rank_events
from mpi_runtime.scheduler.protocol.effects import Cancel, Fetch, RankEffect, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.ids import attempt_of

if TYPE_CHECKING:
    from mpi_runtime.core.agent.gangs import Gangs
    from mpi_runtime.core.agent.measuring import Meter
    from mpi_runtime.core.agent.stacks import Stacks


class Rank(Protocol):
    """What an agent asks of its rank."""

    transport: Transport
    poller: Poller
    arena: AgentArena
    setup: Setup
    """The first request to each forkserver."""
    forkservers: Forkservers
    memory: MemoryWatch | None
    """None: no calls run here."""
    expects_calls: bool
    """True: start the forkserver now. Otherwise the first executor waits for it."""

    def report(self, message: WorkerToHead, /) -> None:
        """Send a message to the head."""

    def find_gpus(self) -> Gpus:
        """Return the GPUs of the rank. May wait for a helper process."""

    def spill_directory(self) -> str:
        """Return the directory for values that leave a full arena; empty: nothing is spilled."""

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""


class NodeAgent:
    """The agent of one rank in one job."""

    def __init__(self, of: Rank) -> None:
        """Take part in a job, as the agent of this rank."""
        self._transport = transport = of.transport
        self.rank = rank = transport.rank
        self.poller = poller = of.poller
        self.report: Callable[[WorkerToHead], None] = of.report
        self.now_s: Callable[[], float] = of.now_s
        self.scratch = of.setup.scratch
        self._neighbours = [one for one, host in enumerate(transport.hosts) if host == transport.hosts[rank]]
        """The ranks of this host, in the order of their regions of the arena."""
        self._arena = arena = of.arena
        self._extents = extents = Extents(arena, self)
        self._transfers = Transfers(transport, arena, lambda size, use: extents.ask(size, NOBODY, use), extents.free)
        self._spills = Spills(rank, of.spill_directory, arena, extents, poller, of.report)
        self.custodian = Custodian(rank, poller, of.report, extents)
        self._drafts = Drafts()
        self._executors: dict[int, LocalExecutor] = {}
        self._logs_paused = False
        self._memory = of.memory
        self._gangs: Gangs | None = None
        self._meter: Meter | None = None
        self._stacks: Stacks | None = None
        self._path = of.forkservers.path
        self._forkserver = ForkserverLine(
            poller,
            of.forkservers,
            of.setup,
            [arena.descriptor, self._drafts.descriptor],
            self._on_forkserver,
            self._on_forkserver_lost,
            self._pids,
        )
        if of.expects_calls:
            with contextlib.suppress(OSError):  # the first call that needs it gets the error
                self._forkserver.start()
        self.gpus = of.find_gpus()  # last: meanwhile the forkserver starts

    # The forkserver

    def _on_forkserver(self, message: rank_events.ExecutorStarted | Exited) -> None:
        executor = self._executors.get(message.executor)
        if executor is None:
            return
        if isinstance(message, rank_events.ExecutorStarted):
            executor.pid = message.pid
            for lines in executor.outputs:
                lines.pause(self._logs_paused)
            self.report(message)
        else:
            self._on_exited(executor, message)

    def _on_forkserver_lost(self, code: int) -> None:
        how = (
            f"was killed by signal {-code}"
            if code < 0
            else f"exited with code {code}; its own error, if any, is printed above"
        )
        for executor in list(self._executors.values()):
            gone = Exited(executor.number, max(0, -code), f"died with its forkserver, which {how}")
            self._on_exited(executor, gone, with_forkserver=code == -signal.SIGKILL)

    def _pids(self) -> list[int]:
        return [executor.pid for executor in self._executors.values() if executor.pid]

    # Effects

    def obey(self, order: RankEffect | ForAgent) -> None:
        """Perform an effect, or take another message of the head.

        Raises:
            BadFrameError: it is impossible; nothing was changed.
        """
        _ORDERS[type(order)](self, order)

    def _stop_calls(self, effect: StopExecutor | TakeBack | Cancel) -> None:
        left = self.custodian.obey(effect)
        if self._gangs is not None and isinstance(left, StopExecutor) and left.force:
            self._gangs.stopped(left.executor)
        executor = self._executors.get(effect.executor)
        if executor is None:  # it died, which the agent reports
            return
        if isinstance(left, StopExecutor):
            self.kill(executor)
        elif isinstance(left, Cancel):
            # The pipe is full of ids that it does not read; or it has just died, perhaps killed for another call.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(executor.cancels, attempt_of(left.id, left.attempt))
                self._forkserver.ask(Interrupt(executor.number), [])

    def _free(self, effect: effects.Free) -> None:
        if effect.executor:
            self._extents.free_of(effect.executor, effect.offsets)
        else:
            self._extents.free(effect.offsets)

    def start(self, effect: StartExecutor, key: bytes = b"") -> None:
        """Start an executor. With a `key` it has a direct line, whose ends the head has handed to this rank under it.

        Raises:
            BadFrameError: it cannot be meant; nothing was changed.
        """
        number = effect.executor
        if number in self._executors:
            raise BadFrameError(f"executor {number} is started twice")
        try:
            devices, variables = self.gpus.devices(effect.uuids), self.gpus.variables(effect.uuids)
        except (IndexError, KeyError, ValueError) as error:
            raise BadFrameError(f"rank {self.rank} has no GPUs {effect.uuids}") from error
        ends: list[int] = []
        try:
            keep_spare()
            self._forkserver.start()
            ends += self._transport.take(key) if key else self.custodian.open(number, self.rank)
            if not ends:
                raise OSError("its direct line has not arrived")
            draft = self._drafts.take()
        except OSError as error:
            for end in ends:
                os.close(end)
            self._end(Ended(number, f"could not be started: {shortage(error)}"), is_direct=bool(key))
            return
        cancelled, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        custody = None if key else self.custodian.line(number).custody
        executor = self._executors[number] = LocalExecutor(number, draft, cancels, custody)
        written = []
        for stream in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(write_end, True)
            lines = Lines(read_end, number, stream, self.report, self.poller)
            lines.pause(True)  # until its process id is known, which is in the prefix of its lines
            executor.outputs.append(lines)
            written.append(write_end)
        request = Fork(**asdict(effect), devices=devices, variables=variables, draft=draft)
        own = [*ends, cancelled, *written]
        executor.unforked = own

        def fork(request: Fork, more: list[int]) -> None:
            self._forkserver.ask(request, [*own, *more])
            executor.close_unforked()

        if effect.member is None:
            fork(request, [])
        else:
            self.custodian.line(number).before_frames = partial(self.gangs.before_frames, executor)
            self.gangs.start(executor, effect.member, request, fork)

    @property
    def gangs(self) -> Gangs:
        """The gangs of this rank. Their modules are loaded with the first one."""
        if self._gangs is None:
            from mpi_runtime.core.agent.gangs import Gangs

            self._gangs = Gangs(self)
        return self._gangs

    # What gangs and extents ask of it

    def wake(self) -> None:
        """Take the next turn soon."""
        self._spills.wake()

    def ask_forkserver(self, request: Request, descriptors: list[int]) -> None:
        """Send a request with these descriptors. Without a forkserver nothing happens."""
        self._forkserver.ask(request, descriptors)

    def ignore(self, executor: LocalExecutor) -> None:
        """Drop all further frames of an executor."""
        self.custodian.ignore(executor.number)

    def give_up(self, executor: LocalExecutor, cause: str) -> None:
        """Report the end of an executor that was never forked."""
        self._on_exited(executor, Exited(executor.number, 0, cause))

    def kill(self, executor: LocalExecutor) -> None:
        """End the process of an executor, if it was forked."""
        # The forkserver kills it: only the parent knows that the process id still belongs to the child.
        if executor.gang and not self.gangs.before_kill(executor):
            return
        self._forkserver.ask(Kill(executor.number), [])

    def _fetch(self, effect: Fetch) -> None:
        """Transfer a copy of an object to this host."""
        if effect.rank == self.rank or effect.rank >= self._transport.size:
            raise BadFrameError(f"rank {self.rank} is to fetch an object from rank {effect.rank}")
        self._transfers.fetch(effect)

    def _pause_logs(self, message: PauseLogs) -> None:
        """Stop reading the output of executors, so that writers wait; or continue."""
        self._logs_paused = message.paused
        for executor in self._executors.values():
            for lines in executor.outputs:
                lines.pause(message.paused or not executor.pid)

    def _measure(self, message: Measure) -> None:
        """Report what executors use, and what is used of the host: somebody looks at the job."""
        if self._meter is None:
            from mpi_runtime.core.agent.measuring import Meter  # not at the top: nobody looks at most jobs

            found = self.gpus.report
            uuids = [device.uuid for device in found.devices]
            self._meter = Meter(self.rank, self.poller, found.vendor, uuids, self._path)
        self.report(self._meter.measure(message.host, self._pids()))

    def _read_stack(self, message: StackWanted) -> None:
        """Have the stacks of an executor read, and report them."""
        if message.pid not in self._pids():
            return
        if self._stacks is None:
            from mpi_runtime.core.agent.stacks import Stacks  # not at the top, as above

            self._stacks = Stacks(
                self.poller, self._path, lambda pid, text: self.report(StackRead(self.rank, pid, text))
            )
        self._stacks.read(message.pid)

    def pull(self, rank: int, message: Pull | Unpull) -> None:
        """Send an object to a rank that asks for it, or stop sending it.

        Raises:
            BadFrameError: there is no such object.
        """
        if isinstance(message, Unpull):
            self._transfers.sends.end(rank, message)
        elif message.start < message.size:
            self._transfers.sends.add(rank, message)
        else:
            raise BadFrameError(f"rank {rank} asks for bytes behind the end of an object")

    def turn(self) -> float | None:
        """Do the work of one turn of the loop. Return the seconds until the next must come; None: for ever."""
        if self._transfers.busy:
            for fetched in self._transfers.poll():
                self.report(fetched)
        for region in self._arena.settle():
            self._transport.send(self._neighbours[region], codec.encode([]))  # wakes that rank: it reads the header
        retry_s = self._extents.serve_waiting()
        if self._arena.busy:
            return 0.0
        if self._gangs is not None:
            retry_s = shorter(retry_s, self._gangs.turn())
        return shorter(retry_s, self._memory.turn(self._executors.values()) if self._memory is not None else None)

    # Ends

    def _on_exited(self, executor: LocalExecutor, exited: Exited, with_forkserver: bool = False) -> None:
        """Pass the end of a process on to the custodian of its line, which reports it."""
        unsent = self._drafts.content(executor.draft)  # before another executor gets the draft
        if executor.gang:
            self.gangs.before_frames(executor)
        self._forget(executor)
        ended = Ended(executor.number, exited.problem, with_forkserver=with_forkserver, draft=unsent)
        if not exited.problem:
            status, was_killed = exited.status, ""
            if self._memory is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                was_killed = self._memory.has_killed()
            ended.out_of_memory = bool(was_killed)
            ended.cause = executor.death_note
            if not ended.cause:
                ended.cause = describe_status(status) + (f", {was_killed}" if was_killed else "")
                ended.said = last_words(executor.mpi_words or executor.outputs[-1].last) if executor.outputs else ""
        report = partial(self._end, ended, executor.custody is None)
        if self._gangs is not None:
            self._gangs.report_end(executor, report)
        else:
            report()

    def _end(self, ended: Ended, is_direct: bool) -> None:
        (self.report if is_direct else self.custodian.end)(ended)

    def stop(self) -> None:
        """End forkserver and executors."""
        self._forkserver.end()
        for executor in list(self._executors.values()):
            self._forget(executor)
        if self._gangs is not None:
            self._gangs.close()
        self.custodian.stop()
        self._transfers.stop_all()

    @property
    def is_transferring(self) -> bool:
        """Whether transfers to or from this rank are under way."""
        return self._transfers.busy

    def close(self) -> None:
        """Close the arena. Call it when all ranks of the job are idle."""
        if self._meter is not None:
            self._meter.close()
        if self._stacks is not None:
            self._stacks.close()
        self._transfers.sends.complete()
        self.custodian.close()
        self._spills.close()
        self._drafts.close()
        self._arena.close()

    def _forget(self, executor: LocalExecutor) -> None:
        """Forward the last output of an executor that has ended, and close its descriptors."""
        executor.close_unforked()
        if executor.gang:
            self.gangs.ended(executor)
        os.close(executor.cancels)
        self._drafts.give_back(executor.draft)
        for lines in executor.outputs:
            lines.drain()
        del self._executors[executor.number]


_ORDERS: dict[type, Callable[[NodeAgent, Any], None]] = {
    StartExecutor: NodeAgent.start,
    Fetch: NodeAgent._fetch,
    StopExecutor: NodeAgent._stop_calls,
    TakeBack: NodeAgent._stop_calls,
    Cancel: NodeAgent._stop_calls,
    effects.Free: NodeAgent._free,
    effects.Spill: lambda agent, effect: agent._spills.obey(effect),
    effects.Restore: lambda agent, effect: agent._spills.obey(effect),
    effects.Erase: lambda agent, effect: agent._spills.obey(effect),
    effects.StopFetch: lambda agent, effect: agent._transfers.stop(effect.id),
    effects.RoomAnswer: lambda agent, effect: agent._extents.answered(effect.is_coming, effect.reason),
    GangBytes: lambda agent, message: agent.gangs.take(message),
    PauseLogs: NodeAgent._pause_logs,
    Measure: NodeAgent._measure,
    StackWanted: NodeAgent._read_stack,
}

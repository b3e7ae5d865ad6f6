"""The node agent, which head and worker share: the executors of this rank, and its part of the arena.

The agent obeys the scheduler and keeps only what it needs for that. It forwards frames to and from executors without
decoding them; `custody.py` records the calls assigned to each executor. If a frame of an executor cannot be read, the
agent reports it to the head, which orders a kill, and ignores all further frames of that executor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mpi_runtime.agent.custody import Custody
from mpi_runtime.agent.executors import Drafts, LocalExecutor, describe_status, keep_spare, last_words
from mpi_runtime.agent.extents import NOBODY, Extents
from mpi_runtime.agent.forkserver import ForkserverLine, Forkservers
from mpi_runtime.agent.gangs import Gangs
from mpi_runtime.agent.gpus import Gpus
from mpi_runtime.agent.lines import Lines
from mpi_runtime.agent.memory import MemoryWatch
from mpi_runtime.agent.poller import Poller, shorter
from mpi_runtime.agent.spills import Spills
from mpi_runtime.executor.fork_messages import Exited, Fork, Forked, Interrupt, Kill, Setup
from mpi_runtime.host.machine import shortage
from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.objects.transfer import Transfers
from mpi_runtime.scheduler.protocol import effects, rank_events
from mpi_runtime.scheduler.protocol.effects import Cancel, Fetch, RankEffect, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import DRIVER
from mpi_runtime.scheduler.protocol.ids import attempt_of
from mpi_runtime.transport import codec, messages
from mpi_runtime.transport.base import Transport
from mpi_runtime.transport.channel import LOCAL, Channel, ChannelClosedError, Frame, pair
from mpi_runtime.transport.codec import BadFrameError
from mpi_runtime.transport.messages import Drained, FromExecutor, Pull, Shutdown, Unpull, WorkerToHead
from mpi_runtime.transport.tokens import tokens_of


class NodeAgent:
    """The agent of one rank in one job."""

    def __init__(
        self,
        transport: Transport,
        poller: Poller,
        report: Callable[[WorkerToHead], None],
        arena: AgentArena,
        setup: Setup,
        forkservers: Forkservers,
        find_gpus: Callable[[], Gpus],
        memory: MemoryWatch | None = None,
        spill_directory: Callable[[], str] = lambda: "",
        expects_calls: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take part in a job.

        Args:
            transport: to the other ranks.
            poller: waits for sockets and pipes of this rank.
            report: sends a message to the head.
            arena: this rank's part of the arena.
            setup: what executors have in common.
            forkservers: starts the forkserver.
            find_gpus: returns the GPUs of this rank. It may wait for a helper process.
            memory: watches the memory of this host; None: no calls run here.
            spill_directory: returns the directory for values that leave a full arena; empty: there is none.
            expects_calls: start the forkserver now. Otherwise the first executor waits for it.
            now_s: the clock, in seconds.
        """
        self._transport = transport
        self._poller = poller
        self._report = report
        self._rank = rank = transport.rank
        self._neighbours = [one for one, host in enumerate(transport.hosts) if host == transport.hosts[rank]]
        """The ranks of this host, in the order of their regions of the arena."""
        self._arena = arena
        self._extents = extents = Extents(
            arena,
            rank,
            now_s,
            self._send,
            lambda size, clients: report(rank_events.RoomWanted(rank, size, clients)),
            lambda: self._spills.wake(),
        )
        self._transfers = Transfers(transport, arena, lambda size, use: extents.ask(size, NOBODY, use), extents.free)
        self._spills = Spills(rank, spill_directory, arena, extents, poller, report)
        self._drafts = Drafts()
        self._executors: dict[int, LocalExecutor] = {}
        self._logs_paused = False
        self._memory = memory
        self.gangs = Gangs(poller, rank, setup.scratch, report, self._kill, self._give_up)
        self._forkserver = ForkserverLine(
            poller,
            forkservers,
            setup,
            [arena.descriptor, self._drafts.descriptor],
            self._on_forkserver,
            self._on_forkserver_lost,
            self._pids,
        )
        if expects_calls:
            with contextlib.suppress(OSError):  # the first call that needs it gets the error
                self._forkserver.start()
        self.gpus = find_gpus()  # last: meanwhile the forkserver starts

    # The forkserver

    def _on_forkserver(self, message: Forked | Exited) -> None:
        executor = self._executors.get(message.executor)
        if executor is None:
            return
        if isinstance(message, Forked):
            executor.pid = message.pid
            for lines in executor.outputs:
                lines.pause(self._logs_paused)
            self._report(rank_events.ExecutorStarted(executor.number, message.pid))
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

    def obey(self, effect: RankEffect) -> None:
        """Perform an effect.

        Raises:
            BadFrameError: it is impossible; nothing was changed.
        """
        if isinstance(effect, effects.Spill | effects.Restore | effects.Erase):
            self._spills.obey(effect)
        elif isinstance(effect, StopExecutor | TakeBack | Cancel):
            executor = self._executors.get(effect.executor)
            if executor is not None:  # else it died, which the agent reports
                _FOR_EXECUTOR[type(effect)](self, executor, effect)
        else:
            _FOR_AGENT[type(effect)](self, effect)

    def _free(self, effect: effects.Free) -> None:
        if effect.executor:
            self._extents.free_of(effect.executor, effect.offsets)
        else:
            self._extents.free(effect.offsets)

    def _start(self, effect: StartExecutor) -> None:
        if effect.executor in self._executors:
            raise BadFrameError(f"executor {effect.executor} is started twice")
        try:
            devices, variables = self.gpus.devices(effect.uuids), self.gpus.variables(effect.uuids)
        except (IndexError, KeyError, ValueError) as error:
            raise BadFrameError(f"rank {self._rank} has no GPUs {effect.uuids}") from error
        try:
            keep_spare()
            self._forkserver.start()
            draft = self._drafts.take()
        except OSError as error:
            self._report(rank_events.ExecutorDied(effect.executor, b"", f"could not be started: {shortage(error)}"))
            return
        ours, theirs = pair()
        tokens = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        cancelled, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        executor = self._executor(effect.executor, Channel(ours), tokens, cancels, draft)
        written = []
        for stream in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(write_end, True)
            lines = Lines(read_end, executor.number, stream, self._report, self._poller)
            lines.pause(True)  # until its process id is known, which is in the prefix of its lines
            executor.outputs.append(lines)
            written.append(write_end)
        request = Fork(
            effect.executor,
            effect.environment,
            effect.gpu_ids,
            effect.threads,
            effect.cpus,
            devices,
            variables,
            effect.imports,
            draft,
        )
        self._poller.add(executor.channel, lambda: self._on_executor(executor))
        own = [theirs.detach(), cancelled, *written]

        def fork(request: Fork, more: list[int]) -> None:
            self._forkserver.ask(request, [own[0], tokens, *own[1:], *more])
            executor.close_unforked()

        executor.unforked = own
        if effect.member is None:
            fork(request, [])
        else:
            self.gangs.start(executor, effect.member, request, fork)

    def _give_up(self, executor: LocalExecutor, cause: str) -> None:
        """Report the end of an executor that was not forked."""
        self._on_exited(executor, Exited(executor.number, 0, cause))

    def _executor(self, number: int, channel: Channel, tokens: int, cancels: int, draft: int) -> LocalExecutor:
        custody = Custody(tokens_of(tokens), partial(self._send, channel))
        executor = self._executors[number] = LocalExecutor(number, channel, tokens, cancels, draft, custody)
        return executor

    def _stop(self, executor: LocalExecutor, effect: StopExecutor) -> None:
        if effect.force:
            self._kill(executor)
        else:
            self._send(executor.channel, codec.encode([messages.Exit()]))

    def _kill(self, executor: LocalExecutor) -> None:
        # The forkserver kills it: only the parent knows that the process id still belongs to the child.
        if executor.gang and not self.gangs.before_kill(executor):
            return
        self._forkserver.ask(Kill(executor.number), [])

    def to_executor(self, number: int, ids: list[bytes], frame: bytes) -> None:
        """Forward a frame to an executor. `ids`: the calls in it, in order."""
        executor = self._executors.get(number)
        if executor is None:
            return  # it died, which the agent reports
        executor.custody.pass_on(ids, frame)

    def _send(self, channel: Channel, frame: bytes) -> None:
        channel.send(frame)
        if channel.unsent_bytes:
            self._poller.watch_unsent(channel)

    def _take_back(self, executor: LocalExecutor, effect: TakeBack) -> None:
        self._report(rank_events.TakenBack(executor.number, executor.custody.take_back(effect.count)))

    def _cancel(self, executor: LocalExecutor, effect: Cancel) -> None:
        """Interrupt a call, whether it runs or not. With `force`, kill the executor if the call runs."""
        if effect.force:
            taken, is_running = executor.custody.cancel_by_force(effect.id)
            self._report(rank_events.TakenBack(executor.number, taken))
            if is_running:
                self._kill(executor)
            return  # else it has ended or was stolen, and the scheduler may give it to the same executor
        # The pipe is full of ids that it does not read; or it has just died, perhaps killed for another call.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(executor.cancels, attempt_of(effect.id, effect.attempt))
            self._forkserver.ask(Interrupt(executor.number), [])

    def _fetch(self, effect: Fetch) -> None:
        """Transfer a copy of an object to this host."""
        if effect.rank == self._rank or effect.rank >= self._transport.size:
            raise BadFrameError(f"rank {self._rank} is to fetch an object from rank {effect.rank}")
        self._transfers.fetch(effect)

    def pause_logs(self, paused: bool) -> None:
        """Stop reading the output of executors, so that writers wait; or continue."""
        self._logs_paused = paused
        for executor in self._executors.values():
            for lines in executor.outputs:
                lines.pause(paused or not executor.pid)

    def pull(self, rank: int, message: Pull | Unpull) -> None:
        """Send an object to a rank that asks for it, or stop sending it.

        Raises:
            BadFrameError: there is no such object.
        """
        if isinstance(message, Unpull):
            self._transfers.on_unpull(rank, message)
        elif message.start < message.size:
            self._transfers.on_pull(rank, message)
        else:
            raise BadFrameError(f"rank {rank} asks for bytes behind the end of an object")

    # Frames of clients

    def _on_executor(self, executor: LocalExecutor) -> None:
        if executor.gang:
            self.gangs.before_frames(executor)
        try:
            frames = executor.channel.receive()
        except ChannelClosedError:
            self._poller.remove(executor.channel)  # the forkserver reports how it ended
            return
        if not executor.is_refused:
            self._on_frames(executor, frames)

    def _on_frames(self, executor: LocalExecutor, frames: list[Frame]) -> None:
        executor.arrived += len(frames)
        try:
            for count, frame in frames:
                if count == LOCAL:
                    self._on_local(executor, frame)
                    continue
                if count:
                    executor.custody.end(count)
                self._report(FromExecutor(executor.number, frame, count))
            if executor.channel.splitter.problem:
                raise BadFrameError(executor.channel.splitter.problem)
        except BadFrameError as error:
            self._refuse(executor, str(error))

    def _refuse(self, executor: LocalExecutor, problem: str) -> None:
        """Refuse an executor that has sent a bad frame: ignore it, prevent further starts, and report it."""
        executor.is_refused = True
        self._poller.remove(executor.channel)
        executor.custody.doom()
        self._report(rank_events.FrameRefused(executor.number, problem))

    def _on_local(self, executor: LocalExecutor, frame: bytes) -> None:
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Drained):
                executor.custody.drained(message.received)
            elif isinstance(message, Shutdown):
                raise BadFrameError("an executor asks for the end of the job")
            else:
                self._on_memory(executor.number, executor.channel, message)

    def on_driver(self, channel: Channel, frame: bytes) -> bool:
        """Take a frame of the driver to its agent. Return whether it ends the job.

        Raises:
            BadFrameError: the frame cannot be read.
        """
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Shutdown):
                return True
            if isinstance(message, Drained):
                raise BadFrameError("the driver drops calls, and has none")
            self._on_memory(DRIVER, channel, message)
        return False

    def _on_memory(self, client: int, channel: Channel, message: messages.Allocate | messages.Abandon) -> None:
        if isinstance(message, messages.Allocate):
            self._extents.allocate(client, channel, message)
        elif not self._extents.abandon(client, message.offset):
            raise BadFrameError(f"it gives back memory at {message.offset}, which it was not given")

    def turn(self) -> float | None:
        """Do the work of one turn of the loop. Return the seconds until the next must come; None: for ever."""
        for fetched in self._transfers.poll():
            self._report(fetched)
        for region in self._arena.settle():
            self._transport.send(self._neighbours[region], codec.encode([]))  # wakes that rank: it reads the header
        retry_s = self._extents.serve_waiting()
        if self._arena.busy:
            return 0.0
        return shorter(retry_s, self._memory.turn(self._executors.values()) if self._memory is not None else None)

    # Ends

    def _on_exited(self, executor: LocalExecutor, exited: Exited, with_forkserver: bool = False) -> None:
        """Report the end of an executor. The frames that it sent before are forwarded first."""
        if not executor.is_refused:
            self._on_frames(executor, executor.channel.receive_rest())
        left = self._drafts.left(executor.draft, executor.arrived)
        if left is not None and not executor.is_refused:
            self._on_frames(executor, [left])
        running = executor.custody.close()
        self._forget(executor)
        # If it began no call, its output is the only hint at the reason, so the end of it is quoted.
        said = "" if running or not executor.outputs else last_words(executor.outputs[-1].last)
        status, was_killed = exited.status, ""
        if self._memory is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            was_killed = self._memory.has_killed()
        cause = (
            exited.problem
            or executor.death_note
            or describe_status(status) + (f", {was_killed}" if was_killed else "") + said
        )
        died = rank_events.ExecutorDied(executor.number, running, cause, bool(was_killed))
        died.extents, died.with_forkserver = self._extents.of(executor.number), with_forkserver
        self._report(died)

    def stop(self) -> None:
        """End forkserver and executors."""
        self.gangs.before_end()
        self._forkserver.end()
        for executor in list(self._executors.values()):
            self._forget(executor)
        self.gangs.close()
        self._extents.drop_requests()
        self._transfers.stop_all()

    @property
    def is_transferring(self) -> bool:
        """Whether transfers to or from this rank are under way."""
        return self._transfers.busy

    def close(self) -> None:
        """Close the arena. Call it when all ranks of the job are idle."""
        self._transfers.complete()
        self._spills.close()
        self._drafts.close()
        self._arena.close()

    def _forget(self, executor: LocalExecutor) -> None:
        """Forward the last output of an executor that has ended, and close its descriptors."""
        self._poller.remove(executor.channel)
        executor.channel.close()
        executor.close_unforked()
        if executor.gang:
            self.gangs.ended(executor)
        self._extents.drop_requests(executor.number)
        os.close(executor.tokens)
        os.close(executor.cancels)
        self._drafts.give_back(executor.draft)
        for lines in executor.outputs:
            lines.drain()
        del self._executors[executor.number]


_FOR_AGENT: dict[type, Callable[[NodeAgent, Any], None]] = {
    StartExecutor: NodeAgent._start,
    Fetch: NodeAgent._fetch,
    effects.Free: NodeAgent._free,
    effects.StopFetch: lambda agent, effect: agent._transfers.stop(effect.id),
    effects.RoomAnswer: lambda agent, effect: agent._extents.answered(effect.is_coming, effect.reason),
}
_FOR_EXECUTOR: dict[type, Callable[[NodeAgent, LocalExecutor, Any], None]] = {
    StopExecutor: NodeAgent._stop,
    TakeBack: NodeAgent._take_back,
    Cancel: NodeAgent._cancel,
}

"""What head and worker share: the executors of this rank, its part of the arena, and the wires between.

The agent obeys the scheduler and keeps only what it needs for that. Of each executor it knows which calls it has in
hand, in order; frames for it and from it are passed on unread. One token for each call lies in an event counter that
both can reach: the executor claims one before it starts a call, and the agent takes calls back by taking tokens from
the other end. So exactly one of the two has each call, even while user code holds the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import msgspec

from mpi_runtime.objects.arena import AgentArena
from mpi_runtime.objects.transfer import Transfers
from mpi_runtime.processes import forkserver, scratch
from mpi_runtime.processes.devices import Gpus
from mpi_runtime.processes.extents import Extents
from mpi_runtime.processes.forkserver import Fork, Handle, Kill, Setup, kill_group
from mpi_runtime.processes.lines import Lines
from mpi_runtime.processes.poller import Poller
from mpi_runtime.scheduler.effects import Cancel, Fetch, Free, RankEffect, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.events import ExecutorDied, ExecutorStarted, TakenBack
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Transport
from mpi_runtime.transport.channel import LOCAL, Channel, ChannelClosedError, Frame, pair
from mpi_runtime.transport.messages import (
    Abandon,
    Allocate,
    Drained,
    Exit,
    FromExecutor,
    Pull,
    Shutdown,
    WorkerToHead,
)


class AgentError(Exception):
    """This rank cannot do its work any more."""


class Hand:
    """An executor as its agent sees it."""

    def __init__(self, number: int, channel: Channel, tokens: int, cancels: int) -> None:
        self.number = number
        self.channel = channel
        self.tokens = tokens
        self.cancels = cancels
        """A pipe into which the ids of cancelled calls are written."""
        self.ids: deque[bytes] = deque()
        """Calls in hand that have not ended, in order."""
        self.sent = 0
        """How many calls it has ever been sent."""
        self.draining = False
        """Calls were taken back, and it has not said that it has dropped them: further calls are held back."""
        self.held_back: deque[tuple[list[bytes], int, bytes]] = deque()
        """Frames with calls that wait for that: ids that may still be started, number of calls, the frame."""
        self.is_doomed = False
        """It is being killed for a call that it may end before: nothing else may start."""
        self.pid = 0
        self.outputs: list[Lines] = []


class NodeAgent:
    """The agent of one rank."""

    def __init__(
        self,
        poller: Poller,
        report: Callable[[WorkerToHead], None],
        now_s: Callable[[], float],
        environment: Mapping[str, str],
        path: Sequence[str],
        forked: Handle | None = None,
    ) -> None:
        """Wait on a poller's descriptors, report to the head, and give executors this environment.

        `path` is where the forkserver finds its modules; `forked` is one that is there already.
        """
        self._environment = environment
        self._path = path
        self._setup: tuple[Setup, list[int]] | None = None
        """What the forkserver is told first, and the descriptors that go with it."""
        self._poller = poller
        self._report = report
        self._now_s = now_s
        self._rank = 0
        self._transport: Transport
        self._neighbours: list[int] = []
        """The ranks of this host, in the order of their regions."""
        self._arena: AgentArena
        self._extents: Extents
        self._transfers: Transfers
        self._is_set_up = False
        self._hands: dict[int, Hand] = {}
        self._forkserver: Handle | None = None
        self._forked = forked
        self._logs_paused = False
        self.gpus: Gpus
        """Those of this rank, when it has taken up a job."""

    def connect(self, transport: Transport) -> None:
        """Use this transport to the other ranks."""
        self._transport = transport
        self._rank = transport.rank
        self._neighbours = [rank for rank, host in enumerate(transport.hosts) if host == transport.hosts[self._rank]]

    def set_up(self, arena: AgentArena, setup: Setup, descriptor: int) -> None:
        """Use this arena, and tell the forkserver what executors have in common."""
        self._arena = arena
        self._is_set_up = True
        self._extents = Extents(arena, self._rank, self._now_s, self._send)
        self._transfers = Transfers(self._transport, arena)
        self._setup = (setup, [descriptor])
        self._ask_forkserver(*self._setup)

    # The forkserver

    def start_forkserver(self) -> None:
        """Start it, if it has not been started: early where it will be needed, because it takes longest to be ready."""
        if self._forkserver is not None:
            return
        self._forkserver = self._forked or forkserver.start(self._environment, self._path)
        self._forked = None
        self._poller.add(self._forkserver.socket, self._on_forkserver)
        if self._setup is not None:
            self._ask_forkserver(*self._setup)

    def _on_forkserver(self) -> None:
        assert self._forkserver is not None
        try:
            data = self._forkserver.socket.recv(forkserver.MESSAGE_BYTES_MAX)
        except ConnectionError:
            data = b""
        if not data:
            self._fail_without_forkserver()
        message = _from_forkserver.decode(data)
        hand = self._hands.get(message.executor)
        if hand is None:
            return
        if isinstance(message, forkserver.Forked):
            hand.pid = message.pid
            for lines in hand.outputs:
                lines.pause(self._logs_paused)
            self._report(ExecutorStarted(hand.number, message.pid))
        else:
            self._on_exited(hand, message.status)

    def _ask_forkserver(self, request: Setup | Fork | Kill, descriptors: list[int]) -> None:
        if self._forkserver is not None:
            with contextlib.suppress(OSError):  # it is gone, which we hear from `_on_forkserver`
                socket.send_fds(self._forkserver.socket, [msgspec.msgpack.encode(request)], descriptors)

    def _fail_without_forkserver(self) -> NoReturn:
        """The kernel has killed the executors with their parent; what they started in their groups is left to us."""
        assert self._forkserver is not None
        for hand in self._hands.values():
            if hand.pid:
                kill_group(hand.pid)
        code = self._forkserver.wait()
        self._leave_scratch()
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}; what it said is above"
        raise AgentError(f"the forkserver {how}, and all executors of this rank with it: the job cannot go on")

    # Obeying

    def obey(self, effects: list[RankEffect]) -> None:
        """Do what the scheduler wants."""
        for effect in effects:
            if isinstance(effect, StartExecutor):
                self._start(effect)
            elif isinstance(effect, StopExecutor):
                self._stop(effect)
            elif isinstance(effect, TakeBack):
                self._take_back(effect)
            elif isinstance(effect, Cancel):
                self._cancel(effect)
            elif isinstance(effect, Free):
                if effect.executor:
                    self._extents.free_of(effect.executor, effect.offsets)
                else:
                    self._extents.free(effect.offsets)
            else:
                self.fetch(effect)

    def _start(self, effect: StartExecutor) -> None:
        assert effect.executor not in self._hands, f"executor {effect.executor} is started twice"
        ours, theirs = pair()
        tokens = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        cancelled, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        hand = Hand(effect.executor, Channel(ours), tokens, cancels)
        self._hands[effect.executor] = hand
        written = []
        for stream in (1, 2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(write_end, True)
            lines = Lines(read_end, hand.number, stream, self._report, self._poller)
            lines.pause(True)  # until its process number is known, which is part of where the lines come from
            hand.outputs.append(lines)
            written.append(write_end)
        self.start_forkserver()
        devices, variables = self.gpus.devices(effect.devices), self.gpus.variables(effect.devices)
        request = Fork(
            effect.executor, effect.environment, effect.gpus, effect.threads, effect.cpus, devices, variables
        )
        self._ask_forkserver(request, [theirs.fileno(), tokens, cancelled, *written])
        theirs.close()
        for descriptor in (cancelled, *written):
            os.close(descriptor)
        self._poller.add(hand.channel, lambda: self._on_executor(hand))

    def _stop(self, effect: StopExecutor) -> None:
        hand = self._hands.get(effect.executor)
        if hand is None:
            return
        if effect.force:
            self._kill(hand)
        else:
            self._send(hand.channel, codec.encode([Exit()]))

    def _kill(self, hand: Hand) -> None:
        # The forkserver kills: only the parent knows that the number still belongs to the child.
        self._ask_forkserver(Kill(hand.number), [])

    def to_executor(self, number: int, ids: list[bytes], frame: bytes) -> None:
        """Pass a frame on; `ids` are the calls in it, in order."""
        hand = self._hands.get(number)
        if hand is None:
            return  # it died, and the scheduler will hear of it
        if ids and (hand.draining or hand.held_back):
            hand.held_back.append((ids, len(ids), frame))
            return
        self._give(hand, ids, len(ids), frame)

    def _give(self, hand: Hand, ids: list[bytes], count: int, frame: bytes) -> None:
        """Send a frame with `count` calls, of which only `ids` may be started."""
        if ids:
            hand.ids.extend(ids)
            os.eventfd_write(hand.tokens, len(ids))
        hand.sent += count
        if len(ids) < count:
            hand.draining = True
        self._send(hand.channel, frame)

    def _send(self, channel: Channel, frame: bytes) -> None:
        channel.send(frame)
        if channel.unsent_bytes:
            self._poller.watch_unsent(channel)

    def _take_back(self, effect: TakeBack) -> None:
        hand = self._hands.get(effect.executor)
        if hand is None:
            return
        taken: deque[bytes] = deque()
        for ids, _, _ in reversed(hand.held_back):
            while ids and len(taken) < effect.count:
                taken.appendleft(ids.pop())
        while len(taken) < effect.count and _claim(hand.tokens):
            taken.appendleft(hand.ids.pop())
            hand.draining = True
        while hand.held_back and not hand.held_back[0][0]:
            # Nothing in it may start any more, but the running call may wait for a value in it.
            self._give(hand, *hand.held_back.popleft())
        self._report(TakenBack(hand.number, list(taken)))

    def _cancel(self, effect: Cancel) -> None:
        """Interrupt a call, wherever its executor is with it. By force: kill the executor if the call runs."""
        hand = self._hands.get(effect.executor)
        if hand is None:
            return
        if effect.force:
            self._take_back(TakeBack(hand.number, sys.maxsize))  # so that no other call can be running
            if hand.ids and hand.ids[-1] == effect.id:
                hand.draining = hand.is_doomed = True
                self._kill(hand)
                return
        # Thousands are on their way, and it does not look; or it has just died, perhaps killed for another call.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(hand.cancels, effect.id)
            self._ask_forkserver(Kill(hand.number, interrupt=True), [])

    def fetch(self, effect: Fetch) -> None:
        """Bring a copy of an object here."""
        self._transfers.fetch(effect.id, effect.rank, effect.offset, effect.size)

    def pause_logs(self, paused: bool) -> None:
        """Stop reading what executors write, so that they wait, or go on."""
        self._logs_paused = paused
        for hand in self._hands.values():
            for lines in hand.outputs:
                lines.pause(paused or not hand.pid)

    def pull(self, rank: int, pull: Pull) -> None:
        """Send an object to a rank that asks for it."""
        self._transfers.on_pull(rank, pull)

    # Hearing

    def _on_executor(self, hand: Hand) -> None:
        try:
            frames = hand.channel.receive()
        except ChannelClosedError:
            self._poller.remove(hand.channel)  # the forkserver will say how it ended
            return
        self._on_frames(hand, frames)

    def _on_frames(self, hand: Hand, frames: list[Frame]) -> None:
        for count, frame in frames:
            if count == LOCAL:
                self.on_local(hand.number, hand.channel, frame)
                continue
            for _ in range(count):
                hand.ids.popleft()
            self._report(FromExecutor(hand.number, frame))

    def on_local(self, client: int, channel: Channel, frame: bytes) -> bool:
        """A client said something to its agent. Whether that was the end of the job."""
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Allocate):
                self._extents.allocate(client, channel, message)
            elif isinstance(message, Abandon):
                self._extents.free([message.offset])
            elif isinstance(message, Drained):
                self._on_drained(self._hands[client], message.received)
            else:
                assert isinstance(message, Shutdown)
                return True
        return False

    def _on_drained(self, hand: Hand, received: int) -> None:
        if received != hand.sent or hand.is_doomed:
            return  # more is on the way to it, and will be dropped too; or it is to start nothing more
        hand.draining = False
        while hand.held_back and not hand.draining:
            self._give(hand, *hand.held_back.popleft())

    def turn(self) -> float | None:
        """What has to be done in each turn; how soon the next must come, in seconds."""
        if not self._is_set_up:
            return None
        for fetched in self._transfers.poll():
            self._report(fetched)
        for region in self._arena.settle():
            self._transport.send(self._neighbours[region], codec.encode([]))  # it looks into the header when it wakes
        retry_s = self._extents.serve_waiting()
        return 0.0 if self._transfers.busy or self._arena.busy else retry_s

    # Ends

    def _on_exited(self, hand: Hand, status: int) -> None:
        """An executor is gone. All that it sent before is passed on first."""
        self._on_frames(hand, hand.channel.receive_rest())
        unclaimed = 0
        while _claim(hand.tokens):
            unclaimed += 1
        ids = [*hand.ids, *(id for ids, _, _ in hand.held_back for id in ids)]
        claimed = len(hand.ids) - unclaimed
        running = ids[claimed - 1] if claimed > 0 else b""
        self._forget(hand)
        self._report(
            ExecutorDied(
                executor=hand.number,
                running=running,
                unstarted=[id for id in ids if id != running],
                cause=describe_status(status),
                extents=self._extents.of(hand.number),
            )
        )

    def stop(self) -> None:
        """Leave no process: the forkserver kills all executors when our end closes."""
        if self._forkserver is not None:
            self._poller.remove(self._forkserver.socket)
            self._forkserver.end()
            self._forkserver = None
            self._leave_scratch()
        elif self._forked is not None:
            self._forked.end()
            self._forked = None
        for hand in list(self._hands.values()):
            self._forget(hand)
        if self._is_set_up:
            self._extents.drop_requests()

    def _leave_scratch(self) -> None:
        """The forkserver has removed the files of the job, unless it was killed."""
        if self._setup is not None:
            scratch.leave(self._setup[0].scratch)

    @property
    def is_transferring(self) -> bool:
        """Whether objects are on their way to this rank or from it."""
        return self._is_set_up and self._transfers.busy

    def close(self) -> None:
        """Let go of the arena, when nothing can be on its way any more."""
        if self._is_set_up:
            while self._transfers.busy:  # all has arrived; MPI has to be asked before it says so
                self._transfers.poll()
            self._is_set_up = False
            self._arena.close()

    def _forget(self, hand: Hand) -> None:
        """An executor's process is gone: pass on what it still wrote, and close everything of it."""
        self._poller.remove(hand.channel)
        hand.channel.close()
        self._extents.drop_requests(hand.number)
        os.close(hand.tokens)
        os.close(hand.cancels)
        for lines in hand.outputs:
            lines.drain()
        del self._hands[hand.number]


_from_forkserver = msgspec.msgpack.Decoder(forkserver.Forked | forkserver.Exited)


def _claim(tokens: int) -> bool:
    try:
        os.eventfd_read(tokens)
    except BlockingIOError:
        return False
    return True


def describe_status(status: int) -> str:
    """How a process ended, in words, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"was killed by signal {number} ({signal.Signals(number).name}: {signal.strsignal(number)})"
    return f"exited with code {os.WEXITSTATUS(status)} before its call had ended"

"""The custodian: the part of an agent that serves executors over their lines, with their frames, calls and memory.

An executor is sent calls ahead of time. It may then run one for hours, while the scheduler wants the others back. It
cannot be asked: its user code may not return to Python. So its agent must be able to take calls from it, without its
help, and without a call that runs twice.

The idea: a counter (an eventfd) that both share has one *token* for each call that was sent and not started. Who takes
a token owns a call: the executor takes one before it starts its next call, from the front; the agent takes one for each
call that it steals, from the back. The kernel gives each token to one of them.

    agent                                         executor
    ids: [a b c d]   -- frames: a, b, c, d -->    a runs; b, c, d received
    tokens: 3        take 2 = steal d and c       next: take 1 = b; then none is left, so it drops the rest

After a theft the executor still has the frames of these calls. When it finds no token for its next call, it drops all
calls that it has received and not started, and sends `Drained`. Until then no further call may be sent: its token would
let the executor start a stolen call. So calls are held back meanwhile. Values in the same frame are not held back,
because the running call may wait for them.

Words: a *line* is the socket between an executor and its custodian, with the counter beside it. A `Custody` has the
calls of one executor: no socket, no clock. A `Custodian` has all lines of its rank. The process at the other end
belongs to the agent of its rank, which forks it, kills it and reads its output. That agent has the custodian too,
unless the executor has a direct line: then it is the head's (docs/decisions/0305).

What always holds: `ids` has the calls that were sent and have not ended, in order. Frames are forwarded without
decoding, except those for the custodian itself (`LOCAL`). The header of a frame of an executor counts the calls that
end in it, and they are the first in `ids`. All frames that an executor has sent, and its draft, are forwarded before
its death is reported. If a frame cannot be read, the custodian reports it to the head, which orders a kill, and ignores
all further frames of that executor.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from mpi_runtime.core.agent.extents import Extents
from mpi_runtime.core.transport import codec, unsent_frame
from mpi_runtime.core.transport.channel import LOCAL, Channel, ChannelClosedError, Frame, pair
from mpi_runtime.core.transport.codec import BadFrameError, apart
from mpi_runtime.core.transport.messages import (
    Abandon,
    Allocate,
    Drained,
    Ended,
    Exit,
    FromExecutor,
    Recorded,
    Shutdown,
    ToAgent,
    WorkerToHead,
)
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.tokens import Tokens, tokens_of
from mpi_runtime.scheduler.protocol.effects import Cancel, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import DRIVER
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, FrameRefused, TakenBack


class Custody:
    """The calls of one executor, from their arrival at its agent until they have ended or are stolen."""

    def __init__(self, tokens: Tokens, send: Callable[[bytes], object]) -> None:
        """`tokens` is the agent's end of the counter; `send` sends a frame to the executor."""
        self._tokens = tokens
        self._send = send
        self.ids: deque[bytes] = deque()
        """Calls that were sent and have not ended, in order."""
        self._sent = 0
        """How many calls were sent to it in its life."""
        self._draining = False
        """Whether calls were stolen, and the executor has not yet sent `Drained`."""
        self._held_back: deque[tuple[list[bytes], int, bytes]] = deque()
        """Frames with calls that wait for `Drained`: ids that may still be started, number of calls, the frame."""
        self._is_doomed = False
        """Whether it is being killed. It may end its running call before, but must not start another."""
        self._unclaimed = 0
        """Number of calls whose tokens were taken for that reason."""

    def pass_on(self, ids: list[bytes], frame: bytes) -> None:
        """Send a frame, now or when calls may be sent again. `ids`: the calls in it, in order."""
        if ids and not (self._draining or self._held_back):
            self._give(ids, len(ids), frame)
            return
        if ids:
            frame, calls = apart(frame)
            self._held_back.append((ids, len(ids), calls))
        if frame:
            self._send(frame)

    def _give(self, ids: list[bytes], count: int, frame: bytes) -> None:
        """Send a frame with `count` calls, of which only `ids` may be started: at least one."""
        self.ids.extend(ids)
        self._tokens.add(len(ids))
        self._sent += count
        if len(ids) < count:
            self._draining = True
        self._send(frame)

    def end(self, count: int) -> None:
        """Note that this many calls end in a frame of the executor.

        Raises:
            BadFrameError: fewer are assigned to it.
        """
        ids = self.ids
        if count > len(ids):
            raise BadFrameError(f"it ends {count} call(s), and {len(ids)} are assigned to it")
        for _ in range(count):
            ids.popleft()

    def take_back(self, count: int) -> list[bytes]:
        """Steal up to `count` calls that were not started, the last first. Return their ids, in order."""
        taken: deque[bytes] = deque()
        for ids, _, _ in reversed(self._held_back):
            while ids and len(taken) < count:
                taken.appendleft(ids.pop())
        while self.ids and len(taken) < count and self._claim():
            taken.appendleft(self.ids.pop())
            self._draining = True
        while self._held_back and not self._held_back[-1][0]:
            self._held_back.pop()
        return list(taken)

    def cancel_by_force(self, id: bytes) -> tuple[list[bytes], bool]:
        """Steal all calls, so that only this one can be running. Return the stolen ids, and whether this one runs.

        If it runs, the caller must kill the executor, which starts no further call.
        """
        taken = self.take_back(sys.maxsize)
        is_running = bool(self.ids) and self.ids[-1] == id
        if is_running:
            self._draining = self._is_doomed = True
        return taken, is_running

    def doom(self) -> None:
        """Prevent further starts, because the executor is about to be killed. Its calls are reported at its end."""
        self._unclaimed += self._claim_all()
        self._draining = self._is_doomed = True

    def drained(self, received: int) -> None:
        """Note that the executor has dropped all calls that it has not started, of `received` calls in its life.

        Raises:
            BadFrameError: it had no reason to drop calls.
        """
        if received > self._sent or not self._draining:
            raise BadFrameError(f"it drops the rest of {received} call(s); it was sent {self._sent}, none taken back")
        if received != self._sent or self._is_doomed:
            return  # more calls are in flight to it, and will be dropped too; or it must not start any
        self._draining = False
        while self._held_back and not self._draining:
            self._give(*self._held_back.popleft())

    def close(self) -> bytes:
        """Return the id of the call that the executor was running when it ended; empty if it ran none."""
        claimed = len(self.ids) - self._unclaimed - self._claim_all()
        return self.ids[claimed - 1] if claimed > 0 else b""

    def _claim_all(self) -> int:
        """Take the tokens of all calls that have not started, and return how many these are."""
        count = 0
        while count < len(self.ids) and self._claim():  # user code may have written more to the counter
            count += 1
        return count

    def _claim(self) -> bool:
        try:
            self._tokens.take()
        except BlockingIOError:
            return False
        return True


class ExecutorLine(Struct, eq=False):
    """The custodian's record of an executor."""

    number: int
    rank: int
    """The rank that has its process."""
    channel: Channel
    tokens: Tokens
    custody: Custody
    arrived: int = 0
    """How many frames it has sent."""
    is_refused: bool = False
    """Whether it has sent a frame that cannot be read. Its later frames are ignored."""
    before_frames: Callable[[], None] | None = None
    """Called before its frames are read."""
    is_orphaned: bool = False
    """Whether its rank is lost. Its frames are ignored, and nothing but the end of the line reports its end."""


class Custodian:
    """The custodian of one rank."""

    def __init__(self, rank: int, poller: Poller, report: Callable[[WorkerToHead], None], extents: Extents) -> None:
        """Give executors memory of these `extents`, and report to the head what they send."""
        self._rank = rank
        self._poller = poller
        self._report = report
        self._extents = extents
        self._lines: dict[int, ExecutorLine] = {}

    def __contains__(self, number: int) -> bool:
        """Whether an executor has its line here."""
        return number in self._lines

    def open(self, number: int, rank: int) -> list[int]:
        """Make the line of an executor that will be forked by this rank.

        Returns:
            The executor's ends, which the caller closes: a socket and the counter.

        Raises:
            OSError: the system allows no further descriptor.
        """
        ours, theirs = pair()
        tokens = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self.add(number, rank, Channel(ours), tokens_of(tokens))
        return [theirs.detach(), os.dup(tokens)]

    def add(self, number: int, rank: int, channel: Channel, tokens: Tokens) -> ExecutorLine:
        """Serve an executor over this line from now on."""
        custody = Custody(tokens, partial(self._poller.send, channel))
        line = self._lines[number] = ExecutorLine(number, rank, channel, tokens, custody)
        self._poller.add(channel, partial(self._on_line, line))
        return line

    def line(self, number: int) -> ExecutorLine:
        """Return the record of an executor that has its line here."""
        return self._lines[number]

    def ignore(self, number: int) -> None:
        """Ignore all further frames of an executor."""
        line = self._lines[number]
        line.is_refused = True
        self._poller.remove(line.channel)

    # From the head

    def to_executor(self, number: int, ids: list[bytes], frame: bytes) -> None:
        """Forward a frame to an executor. `ids`: the calls in it, in order."""
        line = self._lines.get(number)
        if line is not None:  # else it died, which is reported
            line.custody.pass_on(ids, frame)

    def obey(self, effect: StopExecutor | TakeBack | Cancel) -> StopExecutor | TakeBack | Cancel | None:
        """Do what an effect means for a line that ends here. Return what is left to do for the agent of the process."""
        line = self._lines.get(effect.executor)
        if line is None:
            return effect
        if isinstance(effect, TakeBack):
            self._report(TakenBack(line.number, line.custody.take_back(effect.count)))
            return None
        if not effect.force:
            if isinstance(effect, Cancel):
                return effect
            self._poller.send(line.channel, codec.encode([Exit()]))
            return None
        if isinstance(effect, StopExecutor):
            return effect
        taken, is_running = line.custody.cancel_by_force(effect.id)
        self._report(TakenBack(line.number, taken))
        # If it does not run, it has ended or was stolen, and the scheduler may give it to the same executor.
        return StopExecutor(line.number, force=True) if is_running else None

    # From clients

    def _on_line(self, line: ExecutorLine) -> None:
        if line.before_frames is not None:
            line.before_frames()
        try:
            frames = line.channel.receive()
        except ChannelClosedError:
            self._poller.remove(line.channel)  # the agent of the process reports how it ended
            if line.is_orphaned:
                self.end(Ended(line.number, "died with its rank"))
            return
        if not line.is_orphaned:
            self._on_frames(line, frames)

    def _on_frames(self, line: ExecutorLine, frames: list[Frame]) -> None:
        line.arrived += len(frames)
        try:
            for count, frame in frames:
                if count == LOCAL:
                    self._on_local(line, frame)
                    continue
                if count:
                    line.custody.end(count)
                self._report(FromExecutor(line.number, frame, count))
            if line.channel.splitter.problem:
                raise BadFrameError(line.channel.splitter.problem)
        except BadFrameError as error:
            self._refuse(line, str(error))

    def _refuse(self, line: ExecutorLine, problem: str) -> None:
        """Refuse an executor that has sent a bad frame: ignore it, prevent further starts, and report it."""
        self.ignore(line.number)
        line.custody.doom()
        self._report(FrameRefused(line.number, problem))

    def _on_local(self, line: ExecutorLine, frame: bytes) -> None:
        for message in codec.to_agent.decode(frame):
            if isinstance(message, Drained):
                line.custody.drained(message.received)
            elif isinstance(message, Shutdown):
                raise BadFrameError("an executor asks for the end of the job")
            elif isinstance(message, Recorded):
                self._record(line.number, message)
            else:
                self._on_memory(line.number, line.channel, message)

    def on_driver(self, channel: Channel, message: ToAgent, driver: int = DRIVER) -> bool:
        """Take a message of a driver. Return whether the driver ends its part: that of rank 0 ends the job.

        Raises:
            BadFrameError: a driver may not send it.
        """
        if isinstance(message, Drained):
            raise BadFrameError("the driver drops calls, and has none")
        if isinstance(message, Recorded):
            self._record(driver, message)
        elif not isinstance(message, Shutdown):
            self._on_memory(driver, channel, message)
        return isinstance(message, Shutdown)

    def leave(self, driver: int) -> list[int]:
        """Note that a driver is gone. Return the offsets of the extents that it has and has not made an object of."""
        self._extents.drop_requests(driver)
        return self._extents.of(driver)

    def _record(self, client: int, message: Recorded) -> None:
        message.client = client
        self._report(message)

    def _on_memory(self, client: int, channel: Channel, message: Allocate | Abandon) -> None:
        if isinstance(message, Allocate):
            self._extents.allocate(client, channel, message)
        elif not self._extents.abandon(client, message.offset):
            raise BadFrameError(f"it gives back memory at {message.offset}, which it was not given")

    # Ends

    def end(self, ended: Ended) -> None:
        """Report the end of an executor. The frames that it sent before are forwarded first."""
        running = b""
        line = self._lines.get(ended.executor)
        if line is not None:
            if not line.is_refused:
                self._on_frames(line, line.channel.receive_rest())
                left = unsent_frame.left(ended.draft, line.arrived)
                if left is not None and not line.is_refused:
                    self._on_frames(line, [left])
            running = line.custody.close()
            self.drop(line.number)
        self._report(
            ExecutorDied(
                ended.executor,
                running,
                # If it began no call, its output is the only hint at the reason.
                ended.cause if running else ended.cause + ended.said,
                ended.out_of_memory,
                self._extents.of(ended.executor),
                with_forkserver=ended.with_forkserver,
                keeper=self._rank,
            )
        )

    def lose(self, rank: int) -> None:
        """Note that the agent of these lines' processes is lost: take what they have sent, and let no call start.

        The processes end soon. Until then they may write into the memory that they were given. So it is not free
        before their ends of the lines have closed.
        """
        for line in self._lines.values():
            if line.rank != rank:
                continue
            if not line.is_refused:
                self._on_frames(line, line.channel.receive_rest())
                line.custody.doom()
            line.is_refused = line.is_orphaned = True
            self._poller.remove(line.channel)
            self._poller.add(line.channel, partial(self._on_line, line))

    def drop(self, number: int) -> None:
        """Close the line of an executor."""
        line = self._lines.pop(number)
        self._extents.drop_requests(number)
        self._poller.remove(line.channel)
        line.channel.close()
        line.tokens.close()

    def stop(self) -> None:
        """Take nothing from executors any more. Their lines stay open until they are dead, or they would report it."""
        self._extents.drop_requests()
        for line in self._lines.values():
            self._poller.remove(line.channel)

    def close(self) -> None:
        """Close the lines that are left: their executors have ended."""
        for number in list(self._lines):
            self.drop(number)

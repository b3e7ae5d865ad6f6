"""Drivers beside the program of rank 0: programs that have connected to a session, each with its own end.

A driver leaves in two steps. With `Shutdown`, or a frame that cannot be read, all that belongs to it ends. Its process
may still have arrays in the arena, so their memory is in use until its end of the connection is closed. A driver that
is killed does both at once. Neither ends the job: only the program of rank 0 may.

Nobody waits for a driver that does not read: messages to it stay decoded beyond `UNSENT_MAX`, and output beyond the
limit of its printer is dropped.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mpi_runtime.core.agent.custody import Custodian
from mpi_runtime.core.head.door import Door
from mpi_runtime.core.head.printer import LAG_BYTES_MAX, LAG_BYTES_RESUME, Printer, Recent
from mpi_runtime.core.rank.joining import now_us
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL, SOCKET_BYTES, Channel, ChannelClosedError
from mpi_runtime.core.transport.hello import Hello
from mpi_runtime.core.transport.messages import Away, Welcome
from mpi_runtime.core.transport.poller import Poller, shorter
from mpi_runtime.core.transport.start import send_welcome
from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.effects import Answer, Forget
from mpi_runtime.scheduler.protocol.entries import DriverEntry
from mpi_runtime.scheduler.protocol.events import Forgotten, RefusedError
from mpi_runtime.scheduler.protocol.rank_events import DriverJoined, DriverLeft
from mpi_runtime.scheduler.protocol.window_questions import JobState, Listed

UNSENT_MAX = 8 << 20
"""Bytes of frames that may wait until a driver reads them. Messages beyond are not encoded before."""
MESSAGES_MAX = 64
"""The most messages in one frame of those that were held back. Each may have a value of `inline_bytes_max`."""
PAUSE_S = 0.02
SIGN_S = 1.0
"""Seconds between signs to a driver whose end takes long."""
LEAVE_LIMIT_S = 5.0
"""The most seconds that a driver waits at its end for the last output of its executors."""
STALL_S = 5.0
"""Seconds after which the rest of the output of a driver that has left is dropped if nobody reads it."""


class DriverPrinter(Printer):
    """Prints for one driver. What it does not read is dropped and counted beyond a limit: nobody waits for it."""

    def __init__(self, recent: Recent, streams: Sequence[int]) -> None:
        """Own these descriptors of the driver's standard output and error."""
        self._dropped = 0
        self._is_leaving = threading.Event()
        super().__init__(lambda _: None, streams=(streams[0], streams[1]), recent=recent)

    def _print(self, stream: int, prefix: bytes, lines: bytes) -> None:
        lag = self._put_bytes - self._written_bytes
        if self._dropped and lag < LAG_BYTES_RESUME:
            text = (
                f"mpi_runtime: {self._dropped} bytes of output of calls are lost: this program's output was not read\n"
            )
            self._dropped = 0
            super()._print(2, b"", text.encode())
        if lag > LAG_BYTES_MAX or self._dropped:
            self._dropped += len(lines)
            return
        super()._print(stream, prefix, lines)

    def _parts(self, stream: int, data: bytes) -> Iterator[int]:
        """Write while somebody reads. The descriptor stays blocking, since the driver has it too."""
        at, since_s = 0, time.monotonic()
        stream = self._streams[stream - 1]
        waiting = select.poll()
        waiting.register(stream, select.POLLOUT)
        while at < len(data):
            written = 0
            is_lost = self._is_leaving.is_set() and time.monotonic() - since_s > STALL_S
            try:
                if waiting.poll(100):
                    written = os.write(stream, data[at : at + select.PIPE_BUF])
                    since_s = time.monotonic()
            except BlockingIOError:
                time.sleep(PAUSE_S)
            except OSError:  # nobody reads it any more
                is_lost = True
            if is_lost:
                written = len(data) - at
            at += written
            yield written

    @property
    def is_idle(self) -> bool:
        """Whether all that was printed is written."""
        return self._put_bytes == self._written_bytes

    def finish(self) -> None:
        """Print what is left, without waiting for it, and close the descriptors then."""
        self._is_leaving.set()
        if self._thread is not None or not self._queue.empty():
            self._queue.put(None)
            self._start()

    @property
    def has_finished(self) -> bool:
        """Whether nothing more will be printed, and the descriptors are closed. Call it after `finish`."""
        if self._thread is None and not self._queue.empty():
            self._start()  # the system has refused a thread before
            return False
        if self._thread is not None and self._thread.is_alive():
            return False
        for stream in self._streams:
            os.close(stream)
        self._streams = ()
        return True


class NearDriver:
    """A driver on the host of rank 0."""

    def __init__(self, number: int, channel: Channel, hello: Hello, printer: DriverPrinter) -> None:
        self.number = number
        self.channel = channel
        self.hello = hello
        self.printer = printer
        self.held_back: deque[object] = deque()
        """Messages that are not encoded yet."""
        self.away_ms = 0
        """When the line to it broke, since 1970; 0: it is on this host, or its line is not broken."""
        self.is_refused = False
        """Whether a frame of it could not be read. All later ones are dropped."""
        self.left_s = 0.0
        """When it began to leave; 0: it has not."""
        self.sign_s = 0.0
        """When it gets the next sign that its end takes longer."""
        self.is_released = False
        """Whether its `shutdown()` may return: the last output was written."""


class Drivers:
    """The drivers of a session, and its door."""

    def __init__(
        self,
        poller: Poller,
        scheduler: Scheduler,
        custodian: Custodian,
        recent: Recent,
        secret: str,
        welcome: Welcome,
        arena: int,
        log: Callable[[str], None],
    ) -> None:
        """Open the door of the session with this secret.

        Args:
            poller: waits for the drivers too.
            scheduler: of the job.
            custodian: of rank 0: gives drivers memory.
            recent: gets their output too.
            secret: of the session.
            welcome: what each driver gets, but for its number.
            arena: its descriptor, which drivers get too.
            log: writes a line about a driver into the log of the session.

        Raises:
            OSError: the system refuses the address of the door.
        """
        self._poller, self._scheduler, self._custodian, self._recent = poller, scheduler, custodian, recent
        self._welcome, self._arena, self._log = welcome, arena, log
        self._drivers: dict[int, NearDriver] = {}
        self._finishing: list[DriverPrinter] = []
        """Printers of drivers that are gone."""
        self._door = Door(poller, secret, self._let_in)

    def _let_in(self, end: socket.socket, hello: Hello, streams: list[int]) -> None:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        number = self._scheduler.next_client()
        channel = Channel(end)
        driver = NearDriver(number, channel, hello, DriverPrinter(self._recent, streams))
        self._scheduler.handle_rank(DriverJoined(number, hello.program, hello.pid), now_us())
        self._drivers[number] = driver
        self._poller.add(channel, partial(self._on_frames, driver))
        welcome = self._welcome
        try:
            # The socket is new, so it takes this at once.
            send_welcome(
                channel,
                Welcome(regions=welcome.regions, driver=number, inline_bytes_max=welcome.inline_bytes_max),
                self._arena,
            )
        except OSError:
            return  # it has left, which the next read notices
        self._log(f"driver {number} has connected: {hello.program} (pid {hello.pid})")

    def __contains__(self, number: int) -> bool:
        return number in self._drivers

    def pid(self, number: int) -> int:
        """Return the process id of a driver, as it states it; 0: it is gone."""
        return self._drivers[number].hello.pid if number in self._drivers else 0

    def print(self, number: int, stream: int, prefix: bytes, lines: bytes, executor: int, is_plain: bool) -> None:
        """Print the output of an executor of a driver, unless it wants none."""
        driver = self._drivers[number]
        if driver.hello.log_to_driver:
            driver.printer.print(stream, prefix, lines, executor, is_plain)

    def ended(self, executor: int) -> None:
        """Show no status of an executor any more: it has ended."""
        for driver in self._drivers.values():
            driver.printer.ended(executor)

    # From drivers

    def _on_frames(self, driver: NearDriver) -> None:
        try:
            frames = driver.channel.receive()
        except ChannelClosedError:
            self._gone(driver)
            return
        if driver.is_refused:
            return
        try:
            for count, frame in frames:
                if count != LOCAL:
                    self._scheduler.handle(driver.number, codec.from_client.decode(frame), now_us())
                else:
                    self._on_local(driver, frame)
            if driver.channel.splitter.problem:
                raise codec.BadFrameError(driver.channel.splitter.problem)
        except (codec.BadFrameError, RefusedError) as error:
            self._log(f"driver {driver.number} sent a frame that cannot be read, so its calls end: {error}")
            driver.is_refused = driver.is_released = True
            self._leave(driver)
            with contextlib.suppress(OSError):  # it has just ended
                driver.channel.socket.shutdown(socket.SHUT_WR)  # its next call raises an error

    def _on_local(self, driver: NearDriver, frame: bytes) -> None:
        for message in codec.through_door.decode(frame):
            if isinstance(message, Away):
                driver.away_ms = int(time.time() * 1000) if message.is_away else 0
            elif self._custodian.on_driver(driver.channel, message, driver.number):
                self._leave(driver)

    def mark_away(self, answer: object) -> None:
        """Change the state of drivers whose line is broken, in an answer of the scheduler to a visitor."""
        rows = answer.drivers if isinstance(answer, JobState) else answer.rows if isinstance(answer, Listed) else ()
        for one in rows:
            if isinstance(one, DriverEntry) and one.state == "CONNECTED" and one.driver in self._drivers:
                one.away_ms = self._drivers[one.driver].away_ms
                one.state = "AWAY" if one.away_ms else one.state

    def _leave(self, driver: NearDriver) -> None:
        """End what belongs to a driver. Its arrays stay valid as long as its connection is open."""
        if not driver.left_s:
            driver.left_s = driver.sign_s = time.monotonic()
            driver.held_back.clear()
            self._scheduler.handle_rank(DriverLeft(driver.number, has_views=True), now_us())

    def _gone(self, driver: NearDriver) -> None:
        """Forget a driver whose end of the connection is closed."""
        number = driver.number
        self._poller.remove(driver.channel)
        del self._drivers[number]
        self._scheduler.handle_rank(DriverLeft(number, self._custodian.leave(number)), now_us())
        driver.channel.close()
        driver.printer.finish()
        self._finishing.append(driver.printer)
        self._log(f"driver {number} has left")

    # To drivers

    def send(self, number: int, messages: list[object]) -> bool:
        """Send messages to a driver, now or when it has read others. Return whether the scheduler has heard of it.

        One that is leaving gets nothing: the head answers in its place that it keeps all that it uses.
        """
        driver = self._drivers.get(number)
        if driver is None:
            return False
        if driver.left_s:
            asked = [message for message in messages if type(message) is Forget]
            answers = [Forgotten(message.request, message.ids, []) for message in asked]
            self._scheduler.handle(number, answers, now_us())
            return bool(answers)
        if driver.held_back or driver.channel.unsent_bytes > UNSENT_MAX:
            driver.held_back += messages
            return False
        driver.channel.send(codec.encode(messages))
        self._poller.watch_unsent(driver.channel)
        return False

    def turn(self) -> float | None:
        """Do what is due. Return the seconds until the next call must come; None: none need."""
        soon = self._door.turn()
        now = time.monotonic()
        for driver in self._drivers.values():
            if driver.held_back and driver.channel.unsent_bytes <= UNSENT_MAX // 2:
                self._send_held_back(driver)
            if driver.left_s and not driver.is_released:
                self._release(driver, now)
                soon = shorter(soon, PAUSE_S)
        if self._finishing:
            self._finishing = [one for one in self._finishing if not one.has_finished]
            soon = shorter(soon, PAUSE_S * 10)
        return soon

    def _send_held_back(self, driver: NearDriver) -> None:
        held, channel = driver.held_back, driver.channel
        while held and channel.unsent_bytes <= UNSENT_MAX and not channel.closed:
            channel.send(codec.encode([held.popleft() for _ in range(min(len(held), MESSAGES_MAX))]))
        self._poller.watch_unsent(channel)

    def _release(self, driver: NearDriver, now_s: float) -> None:
        """Let the `shutdown()` of a driver return when its executors have ended, and their output was written."""
        is_late = now_s > driver.left_s + LEAVE_LIMIT_S
        if not is_late and (self._scheduler.is_ending(driver.number) or not driver.printer.is_idle):
            if now_s > driver.sign_s + SIGN_S:
                driver.sign_s = now_s
                driver.channel.send(codec.encode([Answer(0, b"")]))
            return
        driver.is_released = True
        driver.channel.send(b"", LOCAL)
        self._poller.watch_unsent(driver.channel)

    def close(self) -> None:
        """End the connections: the session ends."""
        self._door.close()
        for driver in list(self._drivers.values()):
            self._poller.remove(driver.channel)
            driver.channel.close()
            driver.printer.finish()
        self._drivers.clear()

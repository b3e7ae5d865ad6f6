"""Attendants: threads of the keeper, each of which serves a driver on another host.

To the head an attendant is a driver on its own host: it comes through the door, gets the descriptor of the memory, and
two pipes are its standard output and error. Frames go through it unread, but those about parts of values.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import socket
import sys
import time

import msgspec

from mpi_runtime.core.lines import end as lines
from mpi_runtime.core.lines.end import Arrived, LineEnd, Opening
from mpi_runtime.core.lines.numbered import (
    DATA,
    END,
    ERRORS,
    HELLO,
    OPEN,
    OUTPUT,
    PAYLOAD_MAX,
    WELCOME,
    Frame,
    LineError,
)
from mpi_runtime.core.lines.parts import Parts
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL, SOCKET_BYTES, Splitter, packed
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.hello import LENGTH_BYTES, Hello, address_of
from mpi_runtime.core.transport.local import reached
from mpi_runtime.core.transport.messages import Away, ReadPart, Welcome, WritePart
from mpi_runtime.core.transport.start import read_welcome
from mpi_runtime.errors import LaunchError

UNSENT_MAX = 8 << 20
"""Bytes that the head has not taken, after which an attendant reads nothing more from its line."""
WELCOME_LIMIT_S = 15.0
"""Seconds in which the head must answer: less than a line may be silent."""
LAST_LIMIT_S = 2.0
"""Seconds for the last words to a driver when the session ends."""
_READ_BYTES = 1 << 20


class Attendant:
    """Serves one driver, from its first line to its end."""

    def __init__(self, secret: str, number: int) -> None:
        self._secret = secret
        self.number = number
        """For the log."""
        self.has_ended = False
        self._arrived: queue.SimpleQueue[Arrived | None] = queue.SimpleQueue()
        """Lines that have not begun; None: end now."""
        self._woken, self._wakes = socket.socketpair()
        for one in (self._woken, self._wakes):
            one.setblocking(False)
        self._end = LineEnd()
        self._control: socket.socket | None = None
        self._away_s = time.monotonic()
        """Since when there is no line."""
        self._reconnect_s = lines.SILENCE_S
        self._head: socket.socket | None = None
        self._to_head = bytearray()
        self._outputs: dict[int, int] = {}
        """Kinds of frames by pipe."""
        self._parts: Parts | None = None
        self._files = ""
        """The directory for `passed_files`, if this host has it."""
        self._arena = -1
        self._from_head, self._from_driver = Splitter(), Splitter()
        self._is_over = False
        """Whether nothing more comes from the driver, or from the head."""
        self._over_s = 0.0

    # From other threads

    def use(self, arrived: Arrived) -> None:
        """Continue with this line."""
        self._arrived.put(arrived)
        self._wake()
        if self.has_ended:
            self._refuse_all()

    def stop(self) -> None:
        """End soon: the session has ended."""
        self._arrived.put(None)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wakes.send(b"\0")

    # In its own thread

    def run(self) -> None:
        """Serve the driver until it, or the session, ends, or it is away for too long."""
        try:
            while not self._is_finished():
                self._turn()
        finally:
            self.has_ended = True
            self._close()

    def _is_finished(self) -> bool:
        now = time.monotonic()
        if self._is_over:
            return (self._end.numbered.is_acknowledged and not self._end.is_writing) or now > self._over_s
        if self._end.is_up:
            return False
        if self._head is None:  # its first line has ended before its `Hello` came
            return now > self._away_s + lines.SILENCE_S
        if now > self._away_s + self._reconnect_s:
            self._log(f"is away for {self._reconnect_s:g} s, and counts as gone")
            return True
        return False

    def _turn(self) -> None:
        end, waits = self._end, select.poll()
        waits.register(self._woken, select.POLLIN)
        soon_s = lines.BEAT_S if end.is_up and not self._is_over else 0.5
        is_reading = len(self._to_head) < UNSENT_MAX
        if end.is_up:
            try:
                end.write()
                soon_s = min(soon_s, end.turn(is_reading))
            except LineError as error:
                self._lose(str(error))
                return
            assert self._control is not None
            waits.register(self._control, select.POLLIN)
            if is_reading:
                waits.register(end.coming, select.POLLIN)
            if end.is_writing:
                waits.register(end.going, select.POLLOUT)
        takes_more = end.numbered.kept_bytes < lines.KEPT_MAX
        if self._head is not None:
            waits.register(self._head, (select.POLLIN if takes_more else 0) | (select.POLLOUT if self._to_head else 0))
            if takes_more:
                for pipe in self._outputs:
                    waits.register(pipe, select.POLLIN)
        ready = dict(waits.poll(soon_s * 1000))
        if self._woken.fileno() in ready:
            self._begin_lines()
            return
        if self._head is not None:
            state = ready.get(self._head.fileno(), 0)
            if state & select.POLLOUT:
                self._flush()
            if state & ~select.POLLOUT and self._head is not None:
                self._read_head()
            elif takes_more and any(pipe in ready for pipe in self._outputs):
                self._read_outputs()
        if end.is_up and end.coming in ready and is_reading:
            self._read_line()
        elif self._control is not None and self._control.fileno() in ready:
            self._lose("it has ended")

    def _begin_lines(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(1 << 10)
        while self._arrived.qsize():
            arrived = self._arrived.get()
            if arrived is None:
                self._finish()
                continue
            end, opening = self._end, arrived.opening
            received = end.numbered.received
            try:
                end.use(arrived.coming, arrived.going, opening.epoch, opening.received)
            except LineError as error:
                arrived.refuse(str(error))
                continue
            if self._control is not None:
                self._control.close()
            if end.numbered.epoch > 1 and self._head is not None:
                self._log("is back")
                self._report_away(False)
            self._control, self._reconnect_s = arrived.control, opening.reconnect_s
            if self._head is None and os.path.isdir(opening.files):  # made just before, so both hosts share it
                self._files = opening.files
            try:
                lines.write_frame(
                    arrived.going, OPEN, msgspec.msgpack.encode(Opening(opening.key, opening.epoch, received))
                )
            except LineError as error:
                self._lose(str(error))

    def _lose(self, why: str) -> None:
        """Wait for the next line."""
        self._end.drop()
        if self._control is not None:
            self._control.close()
        self._control, self._away_s = None, time.monotonic()
        if self._head is not None:
            self._log(f"is away: its line has ended ({why}). It may come back for {self._reconnect_s:g} s")
            self._report_away(True)

    def _report_away(self, is_away: bool) -> None:
        """Have the head show whether there is a line."""
        self._to_head += packed(codec.encode([Away(is_away)]), LOCAL)
        self._flush()

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"mpi_runtime: driver {self.number} on another host {text}", file=sys.stderr, flush=True)

    # From the driver

    def _read_line(self) -> None:
        end = self._end
        try:
            frames = end.read()
        except LineError as error:
            self._lose(str(error))
            return
        data = b"".join([frame.payload for frame in frames if frame.kind == DATA])
        if data and self._head is not None:
            self._on_data(data)
        for frame in frames:
            if frame.kind != DATA:
                self._on_frame(frame)
        end.numbered.handled = end.numbered.received

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == HELLO and not self._is_over and self._head is None:
            self._connect(frame.payload)
        elif frame.kind == END:
            self._flush()
            if self._head is not None and self._to_head:  # the last messages, which the head always takes
                self._head.settimeout(LAST_LIMIT_S)
                with contextlib.suppress(OSError):
                    self._head.sendall(self._to_head)
            self._leave()
            self._end.beat()
            self._finish()

    def _connect(self, data: bytes) -> None:
        """Be a driver of the session in place of the one that has sent this `Hello`."""
        welcome = self._introduced(data)
        self._end.put(WELCOME, msgspec.msgpack.encode(welcome))
        if welcome.problem:
            self._finish()
        else:
            self.number = welcome.driver

    def _introduced(self, data: bytes) -> Welcome:
        ours = theirs = -1, -1
        try:
            hello = msgspec.msgpack.decode(data, type=Hello)
            hello.secret = self._secret
            self._head = head = reached(address_of(self._secret))
            out, errors = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
            ours, theirs = (out[0], errors[0]), (out[1], errors[1])
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                head.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
            head.settimeout(WELCOME_LIMIT_S)
            text = msgspec.msgpack.encode(hello)
            socket.send_fds(head, [len(text).to_bytes(LENGTH_BYTES, "little") + text], theirs)
            welcome, self._arena = read_welcome(head)
            if welcome.problem:
                return welcome
            head.setblocking(False)
            self._parts = Parts(self._arena, self._files)
            welcome.files = self._files
            welcome.store_bytes = self._parts.layout.capacity
        except (OSError, LaunchError) as error:
            return Welcome(f"the head of the session does not answer: {error}", error="ConnectionError")
        except msgspec.MsgspecError as error:
            return Welcome(
                f"the first message cannot be read: is it of another version? ({error})", error="LaunchError"
            )
        finally:
            for descriptor in theirs:
                if descriptor >= 0:
                    os.close(descriptor)
            self._outputs = {pipe: kind for pipe, kind in zip(ours, (OUTPUT, ERRORS), strict=True) if pipe >= 0}
        for pipe in ours:
            os.set_blocking(pipe, False)
        return welcome

    def _on_data(self, data: bytes) -> None:
        answers = []
        for count, frame in self._from_driver.feed(data):
            if count == LOCAL and (parts := self._asked_parts(frame)):
                assert self._parts is not None
                answers += [self._parts.answer(part) for part in parts]
            else:
                self._to_head += packed(frame, count)
        for answer in answers:
            self._end.put(DATA, packed(codec.encode([answer]), 0))
        if self._from_driver.problem:
            self._log(f"sends what cannot be read: {self._from_driver.problem}")
            self._leave()
            self._finish()
            return
        self._flush()

    @staticmethod
    def _asked_parts(frame: bytes) -> list[ReadPart | WritePart]:
        try:
            messages = codec.to_attendant.decode(frame)
        except BadFrameError:
            return []  # the head refuses it
        return [one for one in messages if type(one) is ReadPart or type(one) is WritePart]

    def _flush(self) -> None:
        while self._to_head and self._head is not None:
            try:
                sent = self._head.send(memoryview(self._to_head)[:PAYLOAD_MAX])
            except BlockingIOError:
                return
            except OSError:
                self._to_head.clear()
                return  # the next read notices it
            del self._to_head[:sent]

    # From the head

    def _read_head(self) -> None:
        assert self._head is not None
        try:
            data = self._head.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        # What was printed before the head has sent this comes before it: the last output, before `shutdown()` returns.
        self._read_outputs()
        frames = [packed(frame, count) for count, frame in self._from_head.feed(data)] if data else []
        if frames:
            self._end.put(DATA, b"".join(frames))
        if not data:
            self._leave()
            self._finish()

    def _read_outputs(self) -> None:
        for pipe, kind in list(self._outputs.items()):
            try:
                data = os.read(pipe, _READ_BYTES)
            except BlockingIOError:
                continue
            if data:
                self._end.put(kind, data)
            else:
                os.close(pipe)
                del self._outputs[pipe]

    # Ends

    def _leave(self) -> None:
        """Leave the session: the head frees what belongs to the driver."""
        if self._head is not None:
            self._read_outputs()
            self._head.close()
            self._head = None
        self._to_head.clear()
        for pipe in self._outputs:
            os.close(pipe)
        self._outputs = {}

    def _finish(self) -> None:
        """Send the last frame, and end when it is acknowledged, or soon."""
        if not self._is_over:
            self._is_over = True
            self._over_s = time.monotonic() + LAST_LIMIT_S
            self._leave()
            self._end.put(END)

    def _close(self) -> None:
        self._leave()
        self._end.drop()
        if self._control is not None:
            self._control.close()
        self._refuse_all()
        if self._parts is not None:
            self._parts.close()
        if self._arena >= 0:
            os.close(self._arena)
            self._arena = -1
        if self._files:
            shutil.rmtree(self._files, ignore_errors=True)

    def _refuse_all(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                arrived = self._arrived.get_nowait()
                if arrived is not None:
                    arrived.refuse("the driver has ended")

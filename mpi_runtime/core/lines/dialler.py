"""The dialler: the process between a driver and the line to the host of its session.

It is a process because user code may hold the interpreter for minutes, fork, and get Ctrl-C. It reads what the driver
sends, also while there is no line, until `KEPT_MAX` bytes wait for one: then the driver waits too. `main` is all that
it runs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import signal
import socket
import time
from collections import deque

import msgspec

from mpi_runtime.core.head.door import Visitor
from mpi_runtime.core.host.spawn import name_process
from mpi_runtime.core.lines.commands import Way
from mpi_runtime.core.lines.dial import Dial
from mpi_runtime.core.lines.end import KEPT_MAX, LineEnd, Opening
from mpi_runtime.core.lines.numbered import DATA, END, ERRORS, HELLO, OUTPUT, WELCOME, Frame, LineError
from mpi_runtime.core.lines.output import Output
from mpi_runtime.core.transport.hello import LENGTH_BYTES
from mpi_runtime.core.transport.messages import Welcome
from mpi_runtime.show import log

PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before each new dial. The last one counts for all further ones."""
GOODBYE_S = 30.0
"""Seconds for which a dialler tries to report the end of its driver."""
_READ_BYTES = 1 << 18


class Task(msgspec.Struct):
    """What a dialler is for."""

    ways: list[Way]
    name: str
    """The name of the session."""
    host: str
    driver: int
    """The process id of the driver."""
    reconnect_s: float
    quiet: bool
    files: str
    """The path for a directory of `passed_files`."""


class Dialler:
    """Moves frames between the driver and whichever line there is."""

    def __init__(self, driver: socket.socket, task: Task, words: int) -> None:
        self._task = task
        self._words = words
        """A pipe for the reason of the end, which the driver reads when its connection has ended."""
        self._driver: socket.socket | None = driver
        self._process = os.pidfd_open(task.driver)
        """Ends with the driver, even if its children have its socket."""
        self._end = LineEnd()
        self._key = os.urandom(16)
        self._outputs: dict[int, Output] = {}
        self._to_driver: deque[tuple[int, memoryview]] = deque()
        """What the driver has not taken, with the number of its frame."""
        self._dial: Dial | None = None
        """The present attempt, or the command of the present line."""
        self._dialled: queue.SimpleQueue[Dial] = queue.SimpleQueue()
        self._woken, self._wakes = socket.socketpair()
        for one in (self._woken, self._wakes, driver):
            one.setblocking(False)
        self._epoch = 0
        """Of the last attempt."""
        self._attempts = 0
        """Attempts since there was a line."""
        self._dial_s = 0.0
        """When to dial next."""
        self._lost_s = time.monotonic()
        self._has_warned = False
        """Whether a warning was logged, since there was a line, that the driver waits for one."""
        self._has_begun = False
        """Whether there was a line."""
        self._problems: list[str] = []
        """Why each way has failed."""
        self._end_s = float("inf")
        """When to end at the latest: the driver, or the session, has ended."""

    def run(self) -> None:
        """Serve the driver until it, or the session, ends."""
        if not self._introduce():
            return
        while time.monotonic() < self._end_s:
            if self._is_done():
                break
            self._turn()
        if self._dial is not None:
            self._end.drop()
            self._dial.close(grace_s=2.0)
        until_s = time.monotonic() + 5.0
        while any(one.waiting for one in self._outputs.values()) and time.monotonic() < until_s:
            time.sleep(0.02)
            for one in self._outputs.values():
                one.flush()
        shutil.rmtree(self._task.files, ignore_errors=True)

    def _is_done(self) -> bool:
        """Whether the other end knows of the end of the driver."""
        if self._driver is not None:
            return False
        return self._end.numbered.is_acknowledged or not self._has_begun

    def _introduce(self) -> bool:
        """Take the `Hello` of the driver. Return whether it came."""
        assert self._driver is not None
        visitor = Visitor(self._driver)
        try:
            while (data := visitor.read()) is None:
                select.select([self._driver], [], [])
        except (OSError, ValueError):
            return False
        self._outputs = {kind: Output(stream) for kind, stream in zip((OUTPUT, ERRORS), visitor.streams, strict=True)}
        self._end.put(HELLO, data)
        return True

    def _turn(self) -> None:
        end, waits, now = self._end, select.poll(), time.monotonic()
        soon_s = 5.0
        if self._dial is None:
            if now >= self._dial_s:
                self._begin_dial()
            else:
                soon_s = min(soon_s, self._dial_s - now)
        if end.is_up:
            try:
                end.write()
                soon_s = min(soon_s, end.turn())
            except LineError as error:
                self._lose(str(error))
                return
            waits.register(end.coming, select.POLLIN)
            if end.is_writing:
                waits.register(end.going, select.POLLOUT)
        waits.register(self._woken, select.POLLIN)
        if self._driver is not None:
            takes_more = end.numbered.kept_bytes < KEPT_MAX
            if not takes_more and not end.is_up:
                self._warn_of_waits()
            events = (select.POLLIN if takes_more else 0) | (select.POLLOUT if self._to_driver else 0)
            waits.register(self._driver, events)
            waits.register(self._process, select.POLLIN)
        for one in self._outputs.values():
            if one.waiting:
                waits.register(one.stream, select.POLLOUT)
        ready = dict(waits.poll(min(soon_s, max(0.0, self._end_s - now)) * 1000))
        for one in self._outputs.values():
            if one.waiting and one.stream in ready:
                one.flush()
        if self._driver is not None:
            state = ready.get(self._driver.fileno(), 0)
            if state & select.POLLOUT:
                self._flush()
            if state & ~select.POLLOUT:
                self._read_driver()
            elif self._process in ready:
                self._driver_ended()
        if end.is_up and end.coming in ready:
            self._read_line()
        if self._woken.fileno() in ready:
            self._end_dials()

    # The line

    def _begin_dial(self) -> None:
        ways, numbered = self._task.ways, self._end.numbered
        way = ways[self._attempts % len(ways)]
        self._attempts += 1
        self._epoch += 1
        opening = Opening(self._key, self._epoch, numbered.received, self._has_begun, self._task.reconnect_s)
        if way.is_slow and not self._has_begun:
            with contextlib.suppress(OSError):  # the other end looks for it
                os.mkdir(self._task.files, 0o700)
            opening.files = self._task.files
        try:
            self._dial = Dial(way, opening, self._dialled, self._wakes)
        except OSError as error:
            self._dial_failed(f"`{way.name}`: {error.strerror}", is_final=False)

    def _end_dials(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(1 << 10)
        while self._dialled.qsize():
            dial = self._dialled.get()
            if not dial.problem:
                try:
                    self._end.use(dial.coming, dial.going, self._epoch, dial.received)
                except LineError as error:
                    dial.problem, dial.is_final = str(error), True
            if dial.problem:
                os.close(dial.coming)
                os.close(dial.going)
                dial.close()
                self._dial = None
                self._dial_failed(dial.problem, dial.is_final)
                continue
            if self._has_begun:
                self._say(log.INFO, f"the line to {self._task.host} is back")
            # The way that works is tried first from now on.
            self._task.ways.sort(key=lambda way: way is not dial.way)
            self._has_begun, self._has_warned, self._attempts = True, False, 0
            self._problems.clear()

    def _dial_failed(self, problem: str, is_final: bool) -> None:
        self._problems.append(problem)
        now = time.monotonic()
        if not self._has_begun:
            if is_final or self._attempts >= len(self._task.ways):
                self._refuse()
            return
        if is_final:
            self._give_up(problem)
        elif now > self._lost_s + self._task.reconnect_s:
            self._give_up(f"it could not be reached for {self._task.reconnect_s:g} s: {problem}")
        else:
            rounds = self._attempts // len(self._task.ways)
            self._dial_s = now + PAUSES_S[min(rounds, len(PAUSES_S) - 1)]

    def _refuse(self) -> None:
        """Answer the driver in place of the session."""
        task = self._task
        why = "; ".join(self._problems)
        text = f"init('session:{task.name}'): the session runs on {task.host}, which cannot be reached from here: {why}"
        self._pass_on(0, self._packed(msgspec.msgpack.encode(Welcome(text, error="ConnectionError"))))
        self._session_ended()

    def _lose(self, why: str) -> None:
        """Dial again."""
        self._end.drop()
        if self._dial is not None:
            self._dial.close()
            self._dial = None
        self._lost_s, self._dial_s = time.monotonic(), 0.0
        if self._driver is not None and self._end_s == float("inf"):
            text = f"the line to {self._task.host} is lost ({why}), and is dialled again for "
            self._say(log.WARNING, f"{text}{self._task.reconnect_s:g} s")

    def _warn_of_waits(self) -> None:
        if not self._has_warned and self._has_begun:
            self._has_warned = True
            text = f"{KEPT_MAX >> 20} MiB of this program's messages wait for the line to {self._task.host}, and so "
            self._say(log.WARNING, text + "do its next calls, which Ctrl-C does not interrupt")

    def _give_up(self, why: str) -> None:
        self._say(log.WARNING, f"the session {self._task.name!r} on {self._task.host} is lost: {why}")
        self._session_ended(why)

    def _say(self, level: int, text: str) -> None:
        if (level > log.INFO or not self._task.quiet) and ERRORS in self._outputs:
            self._outputs[ERRORS].print(log.line(level, log.SESSION, text).words().encode())

    def _read_line(self) -> None:
        try:
            frames = self._end.read()
        except LineError as error:
            self._lose(str(error))
            return
        first = self._end.numbered.received - len(frames) + 1
        for number, frame in enumerate(frames, first):
            self._on_frame(number, frame)
        if not self._to_driver:
            self._end.numbered.handled = self._end.numbered.received

    def _on_frame(self, number: int, frame: Frame) -> None:
        if frame.kind in self._outputs:
            self._outputs[frame.kind].print(frame.payload)
        elif frame.kind == DATA:
            self._pass_on(number, frame.payload)
        elif frame.kind == WELCOME:
            self._pass_on(number, self._packed(frame.payload))
        elif frame.kind == END:
            self._end.beat()
            self._session_ended()

    # The driver

    @staticmethod
    def _packed(welcome: bytes) -> bytes:
        return len(welcome).to_bytes(LENGTH_BYTES, "little") + welcome

    def _pass_on(self, number: int, data: bytes) -> None:
        if self._driver is not None:
            self._to_driver.append((number, memoryview(data)))
            if len(self._to_driver) == 1:
                self._flush()

    def _flush(self) -> None:
        waiting = self._to_driver
        while waiting and self._driver is not None:
            number, data = waiting[0]
            try:
                sent = self._driver.send(data)
            except BlockingIOError:
                return
            except OSError:
                waiting.clear()  # the next read notices it
                return
            if sent < len(data):
                waiting[0] = number, data[sent:]
                continue
            waiting.popleft()
            self._end.numbered.handled = max(self._end.numbered.handled, number)

    def _read_driver(self) -> None:
        assert self._driver is not None
        try:
            data = self._driver.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._end.put(DATA, data)
        else:
            self._driver_ended()

    def _driver_ended(self) -> None:
        """Report the end of the driver, after all that it has sent."""
        assert self._driver is not None
        with contextlib.suppress(OSError):
            while data := self._driver.recv(_READ_BYTES):
                self._end.put(DATA, data)
        self._end.put(END)
        self._close_driver()
        self._close_outputs()
        self._end_s = time.monotonic() + min(GOODBYE_S, self._task.reconnect_s)

    def _session_ended(self, why_lost: str = "") -> None:
        """End, when the driver has taken the rest. `why_lost`: why nothing is known of the session any more."""
        with contextlib.suppress(OSError):
            os.write(self._words, why_lost.encode()[: select.PIPE_BUF] or b"\n")
        if self._driver is not None and self._to_driver:
            self._driver.settimeout(GOODBYE_S)
            with contextlib.suppress(OSError):
                for _, data in self._to_driver:
                    self._driver.sendall(data)
        self._close_driver()
        with contextlib.suppress(LineError):
            if self._end.is_up:
                self._end.write()
        self._end_s = 0.0

    def _close_outputs(self) -> None:
        """Close the output of a driver that has ended: somebody may wait for its end, as a pipe does."""
        for kind, one in list(self._outputs.items()):
            if not one.waiting:
                one.close()
                del self._outputs[kind]
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)

    def _close_driver(self) -> None:
        self._to_driver.clear()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._end.numbered.handled = self._end.numbered.received


def main(descriptor: int, words: int, task: str) -> None:
    """Be the dialler of the driver at the other end of this socket. `words`: a pipe for the reason of the end."""
    name_process("mpi-runtime line")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    end = socket.socket(fileno=descriptor)
    for inherited in (descriptor, words):
        os.set_inheritable(inherited, False)
    with contextlib.suppress(ProcessLookupError):  # the driver has ended
        Dialler(end, msgspec.json.decode(task, type=Task), words).run()

"""The door of a session: a local socket at which programs of its user connect, apart from the window of the job.

To connect is to run code, so a visitor must be a process of the same user, which the kernel certifies (SO_PEERCRED; not
root), and know the secret of the session file: containers may share network and user number with the session, and not
the home directory. A `Hello` is read as it arrives, so that no visitor keeps the head waiting.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import time
from collections.abc import Callable
from functools import partial

import msgspec

from mpi_runtime.core.transport.hello import HELLO_BYTES_MAX, LENGTH_BYTES, Hello, address_of, differences
from mpi_runtime.core.transport.local import user_of
from mpi_runtime.core.transport.messages import Welcome
from mpi_runtime.core.transport.poller import Poller

BACKLOG = 128
VISITORS_MAX = 64
"""The most visitors whose `Hello` has not arrived. More wait in the backlog."""
HELLO_S = 5.0
"""Seconds in which a `Hello` must arrive."""
STREAMS = 2
"""The descriptors that come with it."""
_hello = msgspec.msgpack.Decoder(Hello)


class Visitor:
    """A connection whose `Hello` has not arrived."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.data = b""
        self.streams: list[int] = []
        self.until_s = time.monotonic() + HELLO_S

    def read(self) -> bytes | None:
        """Read what has arrived. Return the whole `Hello`, encoded; None: it is not complete.

        Raises:
            OSError: the visitor has left.
            ValueError: it sends something else.
        """
        wanted = LENGTH_BYTES
        while True:
            if len(self.data) >= LENGTH_BYTES:
                wanted = LENGTH_BYTES + int.from_bytes(self.data[:LENGTH_BYTES], "little")
                if wanted > HELLO_BYTES_MAX:
                    raise ValueError(f"its first message has {wanted} bytes, and a hello at most {HELLO_BYTES_MAX}")
            if len(self.data) == wanted:
                return self.data[LENGTH_BYTES:]
            try:
                part, streams, _, _ = socket.recv_fds(self.end, wanted - len(self.data), STREAMS, _FLAGS)
            except BlockingIOError:
                return None
            self.streams += streams
            if not part:
                raise ConnectionResetError
            self.data += part

    def refuse(self, problem: str) -> None:
        """Send it the reason. It may have left, and is not waited for."""
        data = msgspec.msgpack.encode(Welcome(problem, error="ConnectionError"))
        with contextlib.suppress(OSError):
            self.end.send(len(data).to_bytes(LENGTH_BYTES, "little") + data)

    def close(self) -> None:
        """Close the connection, and what came with it."""
        for stream in self.streams:
            os.close(stream)
        self.end.close()


_FLAGS = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT


class Door:
    """A listening socket, and those who have not been let in."""

    def __init__(self, poller: Poller, secret: str, let_in: Callable[[socket.socket, Hello, list[int]], None]) -> None:
        """Open the door of the session with this secret. `let_in` gets the connection, with its two streams.

        Raises:
            OSError: the system refuses the address.
        """
        self._poller = poller
        self._secret = secret
        self._let_in = let_in
        self._visitors: dict[int, Visitor] = {}
        """By descriptor, the oldest first."""
        self._is_paused = False
        """Whether no visitor is accepted for now: there are too many, or the system refuses descriptors."""
        self._looks_s = 0.0
        """When to look again whether one can be."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(address_of(secret))
            self._socket.listen(BACKLOG)
        except BaseException:
            self._socket.close()
            raise
        poller.add(self._socket, self._on_visitors)

    def _on_visitors(self) -> None:
        for _ in range(BACKLOG):
            if len(self._visitors) >= VISITORS_MAX:
                self._pause()
                return
            try:
                end, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # the system refuses a descriptor, or the visitor has left
                self._pause()
                return
            if user_of(end) != os.geteuid():
                end.close()
                continue
            end.setblocking(False)
            self._visitors[end.fileno()] = Visitor(end)
            self._poller.add(end, partial(self._on_hello, end.fileno()))

    def _pause(self) -> None:
        self._is_paused, self._looks_s = True, time.monotonic() + 0.1
        self._poller.pause(self._socket)

    def _on_hello(self, descriptor: int) -> None:
        visitor = self._visitors[descriptor]
        try:
            data = visitor.read()
        except ValueError as error:
            self._refuse(descriptor, str(error))
            return
        except OSError:
            self._drop(descriptor)
            return
        if data is None:
            return
        try:
            hello = _hello.decode(data)
        except msgspec.MsgspecError as error:
            self._refuse(descriptor, f"its first message cannot be read ({error}): is it of another version?")
            return
        if not hmac.compare_digest(hello.secret.encode(), self._secret.encode()):
            self._refuse(descriptor, "its secret is not that of this session")
        elif problem := differences(hello.ways):
            self._refuse(descriptor, f"{problem}. Both must be the same")
        elif len(visitor.streams) != STREAMS:
            self._refuse(descriptor, "its standard output and error did not arrive: too many descriptors are open")
        else:
            del self._visitors[descriptor]
            self._poller.remove(visitor.end)
            self._let_in(visitor.end, hello, visitor.streams)

    def _refuse(self, descriptor: int, problem: str) -> None:
        self._visitors[descriptor].refuse(f"The session refuses the connection of this program: {problem}.")
        self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        visitor = self._visitors.pop(descriptor)
        self._poller.remove(visitor.end)
        visitor.close()

    def turn(self) -> float | None:
        """Drop visitors that are silent. Return the seconds until the next call must come; None: none need."""
        now = time.monotonic()
        while self._visitors and (first := next(iter(self._visitors.items())))[1].until_s <= now:
            self._refuse(first[0], f"its first message has not arrived in {HELLO_S:g} s")
        if self._is_paused and now >= self._looks_s and len(self._visitors) < VISITORS_MAX:
            self._is_paused = False
            self._poller.resume(self._socket)
        if self._is_paused:
            return 0.1
        return next(iter(self._visitors.values())).until_s - now if self._visitors else None

    def close(self) -> None:
        """Let nobody in any more."""
        for descriptor in list(self._visitors):
            self._drop(descriptor)
        self._poller.remove(self._socket)
        self._socket.close()

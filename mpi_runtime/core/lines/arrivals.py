"""Lines that arrive in the keeper: whose they are, and the attendants that use them."""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Iterable

import msgspec

from mpi_runtime.core.lines import end as lines
from mpi_runtime.core.lines.attendant import LAST_LIMIT_S, Attendant
from mpi_runtime.core.lines.end import Arrived, Opening
from mpi_runtime.core.lines.numbered import OPEN, LineError
from mpi_runtime.core.transport.local import user_of

OPEN_LIMIT_S = 30.0
"""Seconds in which a line must state whose it is."""
BACKLOG = 64


class Attendants:
    """The drivers of a session that are on other hosts, and the address at which their lines arrive."""

    def __init__(self, secret: str) -> None:
        """Listen for the session with this secret.

        Raises:
            OSError: the system refuses the address.
        """
        self._secret = secret
        self._served: dict[bytes, Attendant] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(lines.address_of(secret))
            self._socket.listen(BACKLOG)
        except BaseException:
            self._socket.close()
            raise
        threading.Thread(target=self._listen, name="mpi_runtime lines", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                control, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(0.1)  # the system refuses a descriptor
                continue
            if user_of(control) != os.geteuid():
                control.close()
                continue
            threading.Thread(target=self._admit, args=(control,), name="mpi_runtime line", daemon=True).start()

    def _admit(self, control: socket.socket) -> None:
        """Find out whose line this is."""
        streams: list[int] = []
        try:
            control.settimeout(OPEN_LIMIT_S)
            secret, streams = _read_secret(control)
            if len(streams) != 2 or not hmac.compare_digest(secret, self._secret.encode()):
                raise LineError("its secret is not that of this session")
            control.settimeout(None)
            os.write(streams[1], lines.MAGIC)
            frame = lines.read_frame(streams[0], OPEN_LIMIT_S)
            if frame.kind != OPEN:
                raise LineError("it does not begin with its opening")
            opening = msgspec.msgpack.decode(frame.payload, type=Opening)
        except (OSError, LineError, msgspec.MsgspecError):
            _close(control, streams)
            return
        self._assign(Arrived(control, streams[0], streams[1], opening))

    def _assign(self, arrived: Arrived) -> None:
        opening = arrived.opening
        with self._lock:
            self._served = {key: one for key, one in self._served.items() if not one.has_ended}
            attendant = self._served.get(opening.key)
            if attendant is None and not opening.has_begun:
                attendant = self._served[opening.key] = Attendant(self._secret, 0)
                attendant.use(arrived)
                thread = threading.Thread(target=attendant.run, name="mpi_runtime attendant", daemon=True)
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]
                thread.start()
                return
            if attendant is not None:
                attendant.use(arrived)
                return
        arrived.refuse("the session has freed what belonged to this program: it was away for too long")

    def end(self) -> None:
        """End the lines, since the session has ended, and listen no more. Call it when the head has ended its job."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._socket.close()
        for attendant in list(self._served.values()):
            attendant.stop()
        until_s = time.monotonic() + LAST_LIMIT_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))


def _close(control: socket.socket, streams: Iterable[int]) -> None:
    for stream in streams:
        with contextlib.suppress(OSError):
            os.close(stream)
    control.close()


def _read_secret(control: socket.socket) -> tuple[bytes, list[int]]:
    """Read the first message of `session pipe`, with its streams."""
    data, streams = b"", []
    while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "little"):
        part, came, _, _ = socket.recv_fds(control, 1 << 10, 2, socket.MSG_CMSG_CLOEXEC)
        streams += came
        if not part:
            break
        data += part
    return data[2:], streams

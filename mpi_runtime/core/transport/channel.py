"""Frames on a socketpair between a client and its rank process.

Each frame has a header: its length, the length again with all bits inverted, and a count. In a frame of an executor the
count is the number of its calls that end in the frame, so that its agent can update its records without decoding;
LOCAL means that the frame is for the agent itself. Both ends are inherited: there is no name, no port and no listening
socket.

User code can write to a descriptor that it inherits. The second length detects this at once. Without it a reader could
take a few bytes of junk for the beginning of a frame of gigabytes, and wait for its end.
"""

import socket
import struct
from collections import deque
from contextlib import suppress

from mpi_runtime.core.transport.base import Buffer

HEADER = struct.Struct("<IIH")
FRAME_BYTES_MAX = (1 << 31) - 1
"""A header with a larger length is not valid."""
LOCAL = 0xFFFF
COUNT_MAX = 0xFFFE
READ_BYTES = 1 << 16
"""Bytes that one read asks for. For larger blocks malloc asks the system each time, which costs more."""
SOCKET_BYTES = 1 << 20
"""Bytes of socket buffer requested for each direction. The kernel gives at most `net.core.wmem_max`."""
ALL_BITS = 0xFFFFFFFF

Frame = tuple[int, bytes]


class ChannelClosedError(Exception):
    """The other end is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets with large buffers."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    return ends


def packed(frame: Buffer, count: int) -> bytes:
    """Return a frame with its header.

    Raises:
        ValueError: the frame is too long.
    """
    length = len(frame)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes is longer than the longest, {FRAME_BYTES_MAX}: use put()")
    return HEADER.pack(length, length ^ ALL_BITS, count) + frame


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The beginning of a frame. The parts are joined when it is complete: each join copies all bytes."""
        self._size = 0
        self._wanted = 0
        self.problem = ""
        """Why the rest of the stream cannot be read; empty if it can."""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with this data. After a `problem` there are no more."""
        if self.problem:
            return []
        if self._parts:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._wanted:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        frames: list[Frame] = []
        at, end = 0, len(data)
        wanted = HEADER.size
        while end - at >= HEADER.size:
            length, turned, count = HEADER.unpack_from(data, at)
            if length ^ turned != ALL_BITS:
                self.problem = f"no frame starts with {data[at : at + 40]!r}"
                return frames
            stop = at + HEADER.size + length
            if stop > end:
                if length > FRAME_BYTES_MAX:
                    self.problem = f"a frame of {length} bytes begins"
                    return frames
                wanted = HEADER.size + length
                break
            frames.append((count, data[at + HEADER.size : stop]))
            at = stop
        if at < end:
            self._parts.append(data[at:])
            self._size, self._wanted = end - at, wanted
        return frames


class Channel:
    """The rank process's end. It never blocks: frames that the socket does not accept yet are kept, in order."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.splitter = Splitter()
        self._unsent: deque[memoryview] = deque()
        self._with_next = b""
        """Frames that are sent together with the next one."""
        self.unsent_bytes = 0
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self.socket.fileno()

    def send(self, frame: Buffer, count: int = 0) -> None:
        """Send a frame, or keep it until the socket accepts it. Does nothing if the other end is gone."""
        if self.closed:
            return
        data = packed(frame, count)
        if self._with_next:
            data, self._with_next = self._with_next + data, b""
        self._unsent.append(memoryview(data))
        self.unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self.flush()

    def add_to_next(self, frame: Buffer) -> None:
        """Send a frame together with the next one, just before it: it alone is not worth a wake-up."""
        self._with_next += packed(frame, 0)

    def send_rest_and(self, frame: Buffer, count: int) -> None:
        """Send all kept frames and then this one. Blocks until the other end has taken them."""
        self.socket.setblocking(True)
        self.flush()
        self.send(frame, count)
        self.socket.setblocking(False)

    def flush(self) -> None:
        """Send kept frames, as many as the socket accepts."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self._forget()
                return
            self.unsent_bytes -= sent
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()

    def _forget(self) -> None:
        self._unsent.clear()
        self.unsent_bytes = 0
        self.closed = True

    def receive(self) -> list[Frame]:
        """Return the frames that have arrived.

        Raises:
            ChannelClosedError: the other end is gone, and all frames that it sent have been returned.
        """
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosedError from error
        if not data:
            raise ChannelClosedError
        return self.splitter.feed(data)

    def receive_rest(self) -> list[Frame]:
        """Return all frames that the other end sent before it died."""
        frames: list[Frame] = []
        with suppress(OSError):
            while data := self.socket.recv(READ_BYTES):
                frames += self.splitter.feed(data)
        return frames

    def close(self) -> None:
        """Drop what is unsent, and close this end."""
        self._forget()
        self.socket.close()

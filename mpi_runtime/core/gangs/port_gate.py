"""The port to which members of gangs connect, in the place of the port of the PMIx library.

Every user of the host can connect to a port of it. The PMIx library reads the first message of a connection in its only
thread, and waits for it as long as it takes: one silent connection stops the server. It also believes the user id that
the message states. So members get the address of this gate:

1. The kernel knows the user of a connection. One of another user is closed at once, unread.
2. The first message is read here, beside all other connections and within `FIRST_LIMIT_S`.
3. The complete message goes to the library, and then all bytes of both sides.

The port of the library remains, and takes packets of this gate only: a filter of the kernel drops all others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable

from mpi_runtime.core.transport.channel import ALL_BITS, READ_BYTES

Address = tuple[str, int]
"""Host and port."""
FIRST_LIMIT_S = 60.0
"""Seconds for the first message of a connection: as long as MPI_Init may take. Nobody waits for it but the sender."""
FIRST_BYTES_MAX = 1 << 20
"""The longest first message: names, versions and a credential of some hundred bytes."""
VISITORS_MAX = 64
"""New connections of one turn."""
BACKLOG = 4096
"""Connections that wait for a turn. The kernel allows at most `net.core.somaxconn`; the next waits for a second."""
LOOKS = 3
"""Looks for one connection: a table that changes while it is read may lack a line."""
TABLE = "/proc/net/tcp"
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _NETLINK_BYTES = 4, 20, 1, 16
"""Numbers of `sock_diag(7)`, and the length of a header of `netlink(7)`."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""A linger of zero: the connection leaves no line in the table."""
_HEADER = struct.Struct("=iIQ")
"""The header of a message of PMIx: two numbers, and the length of the rest."""
_SO_ATTACH_FILTER = 26
_RETURN, _LOAD_16, _LOAD_32, _IF_EQUAL = 0x06, 0x28, 0x20, 0x15
"""Instructions of the classic BPF of Linux: see `linux/bpf_common.h`."""
_SOURCE_PORT, _SOURCE_ADDRESS = 0, (1 << 32) - 0x100000 + 12
"""Where a filter of a TCP socket finds them: in the header of TCP, and in that of IP (SKF_NET_OFF)."""


class _End:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unsent = b""
        """What it has not taken yet."""
        self.other: _End | None = None
        """The end of the library, or of the member; None: the first message is not complete."""
        self.first = b""
        """What has arrived of the first message."""
        self.deadline_s = 0.0


class Gate:
    """Passes connections of this user on to a listening socket of this process."""

    def __init__(self, listener: int, limit_s: float = FIRST_LIMIT_S) -> None:
        """Begin to take connections, in a thread. The filter is set before this returns.

        `listener`: the descriptor of the library's socket. `limit_s`: for the first message of a connection.

        Raises:
            OSError: the kernel does not allow the filter, or does not name users.
        """
        self._user = _way_to_users()
        self._library, self._limit_s = socket.socket(fileno=os.dup(listener)), limit_s
        self._host, self._port = self._library.getsockname()
        self._ports: dict[int, _End] = {}
        """By port: our ends of connections to the library."""
        self._filter()
        self._public = socket.create_server((self._host, 0), backlog=BACKLOG)
        self._public.setblocking(False)
        self.port: int = self._public.getsockname()[1]
        self._ends: dict[int, _End] = {}
        self._early: dict[int, _End] = {}
        """Of members whose first message is not complete, the oldest first."""
        self._poll = select.poll()
        self._poll.register(self._public, select.POLLIN)
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="mpi_runtime gate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._is_open = False
        self._public.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        for one in (self._public, self._library, *(end.socket for end in self._ends.values())):
            one.close()

    def at_gate(self, uri: str) -> str:
        """Return the address of this gate in the place of that of the library, where a text ends with it."""
        own = f"{self._host}:{self._port}"
        return f"{uri.removesuffix(own)}{self._host}:{self.port}" if uri.endswith(own) else uri

    def _filter(self) -> None:
        """Have the kernel drop packets for the library that are not sent from our ports."""
        program = [(_LOAD_32, 0, 0, _SOURCE_ADDRESS)]
        program += [(_IF_EQUAL, 1, 0, int.from_bytes(socket.inet_aton(self._host), "big")), (_RETURN, 0, 0, 0)]
        program += [(_LOAD_16, 0, 0, _SOURCE_PORT)]
        for port in self._ports:
            program += [(_IF_EQUAL, 0, 1, port), (_RETURN, 0, 0, ALL_BITS)]
        program += [(_RETURN, 0, 0, 0)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
        pointer = struct.pack("HP", len(program), ctypes.addressof(code))
        self._library.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)

    def _run(self) -> None:
        try:
            while self._is_open:
                first = next(iter(self._early.values()), None)
                wait_s = None if first is None else max(0.0, first.deadline_s - time.monotonic())
                for descriptor, events in self._poll.poll(None if wait_s is None else int(1000 * wait_s) + 1):
                    if not self._is_open:
                        break
                    if descriptor == self._public.fileno():
                        self._on_visitors()
                    elif (end := self._ends.get(descriptor)) is not None:
                        self._on_ready(end, events)
                now_s = time.monotonic()
                for end in [end for end in self._early.values() if end.deadline_s <= now_s]:
                    self._close(end)
        except BaseException:  # members would wait for ever
            traceback.print_exc()
            os._exit(1)

    def _on_visitors(self) -> None:
        visitors: list[tuple[socket.socket, Address]] = []
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            while len(visitors) < VISITORS_MAX:
                visitors.append(self._public.accept())
        for connection, address in visitors:
            if self._user(address, (self._host, self.port)) != os.geteuid():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                connection.close()
                continue
            end = _End(connection)
            end.deadline_s = time.monotonic() + self._limit_s
            self._early[connection.fileno()] = end
            self._add(end)

    def _add(self, end: _End) -> None:
        self._ends[end.socket.fileno()] = end
        self._poll.register(end.socket, select.POLLIN)

    def _on_ready(self, end: _End, events: int) -> None:
        try:
            if events & select.POLLOUT:
                self._flush(end)
            if events & ~select.POLLOUT:
                self._read(end)
        except BlockingIOError:
            return
        except OSError:
            self._close(end)

    def _read(self, end: _End) -> None:
        data = end.socket.recv(READ_BYTES)
        if not data:
            self._close(end)
        elif end.other is not None:
            end.other.unsent += data
            self._flush(end.other)
        else:
            end.first += data
            if len(end.first) >= _HEADER.size:
                length = _HEADER.unpack_from(end.first)[2]
                if length > FIRST_BYTES_MAX:
                    self._close(end)
                elif len(end.first) >= _HEADER.size + length:
                    self._pass_on(end)

    def _pass_on(self, member: _End) -> None:
        """Connect a member to the library, with its first message."""
        own = _End(socket.socket())
        own.socket.bind((self._host, 0))
        self._ports[own.socket.getsockname()[1]] = own
        own.other, member.other = member, own
        own.unsent, member.first = member.first, b""
        self._add(own)
        del self._early[member.socket.fileno()]
        self._filter()
        with contextlib.suppress(BlockingIOError):
            own.socket.connect((self._host, self._port))
        self._watch(own)
        self._watch(member)

    def _flush(self, end: _End) -> None:
        assert end.other is not None
        with contextlib.suppress(BlockingIOError):
            end.unsent = end.unsent[end.socket.send(end.unsent) :]
        self._watch(end)
        self._watch(end.other)

    def _watch(self, end: _End) -> None:
        """Wait until this end takes more, and for what it sends if the other end has taken all that it has sent."""
        reads = end.other is None or not end.other.unsent
        self._poll.modify(end.socket, (select.POLLOUT if end.unsent else 0) | (select.POLLIN if reads else 0))

    def _close(self, end: _End) -> None:
        """Close a connection at both ends."""
        both = [one for one in (end, end.other) if one is not None]
        ours = [port for port, one in self._ports.items() if one in both]
        for port in ours:
            del self._ports[port]
        if ours:
            self._filter()  # first: another process may have these ports then
        for one in both:
            self._early.pop(one.socket.fileno(), None)
            del self._ends[one.socket.fileno()]
            self._poll.unregister(one.socket)
            one.socket.close()


def _way_to_users() -> Callable[[Address, Address], int]:
    """Return the function by which this kernel names the user of the far end of a connection.

    Raises:
        OSError: it does not.
    """
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as probe:
        for way in (_asked, _listed):
            with contextlib.suppress(OSError):
                if way(probe.getsockname(), server.getsockname()) == os.geteuid():
                    return way
    raise OSError(
        f"this kernel does not name the users of TCP connections, by sock_diag or in {TABLE}, so nothing would keep "
        "other users away from gangs. MPICH starts gangs without TCP"
    )


def _asked(far: Address, near: Address) -> int:
    """Return the user id of the far end of a connection on this host, as `sock_diag(7)` knows it; -1: unknown."""
    places = struct.pack("!HH4s12x4s12x", far[1], near[1], socket.inet_aton(far[0]), socket.inet_aton(near[0]))
    what = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ALL_BITS) + places + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as line:
        line.send(struct.pack("=IHHII", _NETLINK_BYTES + len(what), _BY_FAMILY, _REQUEST, 0, 0) + what)
        answer = line.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return -1
    user, inode = struct.unpack_from("=II", answer, _NETLINK_BYTES + 64)
    return int(user) if inode else -1  # without one the socket is closed, and its user not known any more


def _listed(far: Address, near: Address) -> int:
    """Return the same from the table of all connections, at 10 us for each: for kernels without `sock_diag`."""
    begin = b" %b %b " % (_hex(far), _hex(near))
    for _ in range(LOOKS):
        with open(TABLE, "rb") as file:
            table = file.read()
        if (at := table.find(begin)) >= 0:
            _, _, _, _, _, _, user, _, inode, *_ = table[at : table.index(b"\n", at)].split()
            return int(user) if int(inode) else -1
    return -1


def _hex(address: Address) -> bytes:
    """Return an address as /proc/net/tcp writes it."""
    host, port = address
    return b"%08X:%04X" % (struct.unpack("=I", socket.inet_aton(host))[0], port)


def listening() -> dict[Address, int]:
    """Return the sockets of this process that listen on a port of IPv4: descriptors by address."""
    found: dict[Address, int] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family == socket.AF_INET and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[one.getsockname()] = int(name)
    return found

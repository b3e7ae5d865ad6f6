"""The gate before a library that waits for one connection at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from mpi_runtime.core.gangs import port_gate as gates
from mpi_runtime.core.gangs.port_gate import FIRST_BYTES_MAX, Gate

LIMIT_S = 20.0
HEADER = struct.Struct("=iIQ")
BODY = b"x" * 50
MESSAGE = HEADER.pack(-1, (1 << 32) - 1, len(BODY)) + BODY


@dataclass
class Library:
    """Accepts a connection, reads its first message as long as that takes, then the next one."""

    listener: socket.socket
    taken: list[socket.socket] = field(default_factory=list)
    seen: list[tuple[int, bytes]] = field(default_factory=list)
    """For each connection the bytes that were there at once, and its first message."""

    def run(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            at_once = len(one.recv(1 << 16, socket.MSG_PEEK))
            self.seen.append((at_once, one.recv(len(MESSAGE), socket.MSG_WAITALL)))
            self.taken.append(one)


@pytest.fixture
def library() -> Iterator[Library]:
    library = Library(socket.create_server(("127.0.0.1", 0)))
    thread = threading.Thread(target=library.run)
    thread.start()
    yield library
    library.listener.shutdown(socket.SHUT_RDWR)
    library.listener.close()
    thread.join()
    for one in library.taken:
        one.close()


@pytest.fixture
def open_gate(library: Library) -> Iterator[Callable[..., Gate]]:
    made: list[Gate] = []

    def open_it(**options: float) -> Gate:
        made.append(Gate(library.listener.fileno(), **options))
        return made[-1]

    yield open_it
    for gate in made:
        gate.close()


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def connect(gate: Gate) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gate.port), LIMIT_S)


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


FIRST = {
    "silent": b"",
    "half a header": MESSAGE[:7],
    "all but a byte": MESSAGE[:-1],
    "garbage": b"GET / HTTP/1.1\r\n\r\n" * 10,
    "huge": HEADER.pack(-1, 0, 1 << 62) + BODY,
    "a little too long": HEADER.pack(-1, 0, FIRST_BYTES_MAX + 1) + BODY,
}


@pytest.mark.parametrize("first", FIRST)
def test_a_connection_without_a_whole_message_holds_up_nobody(
    first: str, library: Library, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate()
    bad = [connect(gate) for _ in range(100)]
    for one in bad:
        one.sendall(FIRST[first])
    bad[0].close()
    good = connect(gate)
    good.sendall(MESSAGE)
    until(lambda: library.seen)
    assert library.seen == [(len(MESSAGE), MESSAGE)]
    if first in ("garbage", "huge", "a little too long"):
        assert all(is_closed(one) for one in bad[1:])
    for one in (good, *bad):
        one.close()


def test_a_slow_message_arrives_in_one_piece_and_others_before_it(
    library: Library, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate()
    with connect(gate) as slow, connect(gate) as quick:
        for at in range(len(MESSAGE)):
            if at == 20:
                quick.sendall(MESSAGE)
                until(lambda: library.seen)
            slow.sendall(MESSAGE[at : at + 1])
        until(lambda: len(library.seen) == 2)
    assert library.seen == [(len(MESSAGE), MESSAGE)] * 2


def test_the_first_message_has_a_time_limit_and_the_others_have_none(
    library: Library, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(limit_s=0.2)
    with connect(gate) as silent, connect(gate) as good:
        good.sendall(MESSAGE)
        until(lambda: library.taken)
        assert is_closed(silent)
        good.sendall(b"later")
        assert library.taken[0].recv(5) == b"later"


def test_both_sides_are_passed_on_and_their_ends(library: Library, open_gate: Callable[..., Gate]) -> None:
    gate = open_gate()
    data = os.urandom(20 << 20)
    with connect(gate) as good:
        good.sendall(MESSAGE)
        until(lambda: library.taken)
        inner = library.taken[0]
        inner.settimeout(LIMIT_S)
        for source, sink in ((good, inner), (inner, good)):
            sending = threading.Thread(target=source.sendall, args=(data,))
            sending.start()
            time.sleep(0.05)  # the sink takes nothing for a while
            found = bytearray()
            while len(found) < len(data):
                found += sink.recv(1 << 20)
            sending.join()
            assert found == data
        inner.close()
        assert is_closed(good)
    with connect(gate) as good:
        good.sendall(MESSAGE)
        until(lambda: len(library.taken) == 2)
        good.close()
        assert is_closed(library.taken[1])


def test_without_the_library_a_connection_ends(library: Library, open_gate: Callable[..., Gate]) -> None:
    gate = open_gate()
    library.listener.shutdown(socket.SHUT_RDWR)
    for _ in range(2):
        with connect(gate) as one:
            one.sendall(MESSAGE)
            assert is_closed(one)
    library.listener.listen()


def test_nobody_passes_by_the_gate(library: Library, open_gate: Callable[..., Gate]) -> None:
    address = library.listener.getsockname()
    gate = open_gate()
    with connect(gate) as good:
        good.sendall(MESSAGE)
        until(lambda: library.taken)
        port = library.taken[0].getpeername()[1]
        library.taken[0].close()
        assert is_closed(good)
        for source in (("127.0.0.1", 0), ("127.0.0.2", port), ("127.0.0.2", 0)):
            with socket.socket() as one:
                one.settimeout(0.1)
                one.bind(source)
                with pytest.raises(TimeoutError):
                    one.connect(address)
    assert gate.at_gate(f"a.0;tcp4://127.0.0.1:{address[1]}") == f"a.0;tcp4://127.0.0.1:{gate.port}"
    assert gate.at_gate(f"tcp4://127.0.0.1:{address[1]}1") == f"tcp4://127.0.0.1:{address[1]}1"


WAYS = ["_asked", "_listed"]
"""By which the gate learns of users."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
@pytest.mark.parametrize("way", WAYS)
def test_connections_of_other_users_are_closed(
    way: str, library: Library, open_gate: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "_asked", getattr(gates, way))
    gate = open_gate()
    os.seteuid(65534)
    try:
        others = [socket.socket(family) for family in (socket.AF_INET, socket.AF_INET6)]
    finally:
        os.seteuid(0)
    for one, host in zip(others, ("127.0.0.1", "::ffff:127.0.0.1"), strict=True):
        with one:
            one.settimeout(LIMIT_S)
            with contextlib.suppress(ConnectionResetError):  # at once
                one.connect((host, gate.port))
                assert is_closed(one)
    with connect(gate) as good:
        good.sendall(MESSAGE)
        until(lambda: library.seen)
    assert len(library.seen) == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_user_of_a_connection_is_known_while_it_is_open(way: str) -> None:
    """A closed socket has the user 0 in the tables of the kernel, and root must not take it for its own."""
    user = getattr(gates, way)
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        address = far.getsockname()
        assert user(address, server.getsockname()) == os.geteuid()
        accepted, _ = server.accept()
        assert user(address, server.getsockname()) == os.geteuid()
        assert user(server.getsockname(), address) == os.geteuid()
        far.close()
        assert user(address, server.getsockname()) == -1
        accepted.close()
        assert user(address, server.getsockname()) == -1
        assert user(("127.0.0.1", 1), server.getsockname()) == -1


def refuses(*_: object) -> int:
    raise PermissionError("a sandbox")


def test_without_sock_diag_the_table_is_read_and_without_both_there_is_no_gate(
    library: Library, open_gate: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "_asked", refuses)
    with connect(open_gate()) as good:
        good.sendall(MESSAGE)
        until(lambda: library.seen)
    monkeypatch.setattr(gates, "TABLE", "/proc/net/none")
    with pytest.raises(OSError, match="does not name the users of TCP connections"):
        Gate(library.listener.fileno())


def test_the_listening_sockets_of_this_process_are_found(library: Library) -> None:
    with socket.create_connection(library.listener.getsockname()):
        found = gates.listening()
    assert found[library.listener.getsockname()] == library.listener.fileno()

"""What a client reads: whole frames, and nothing for as long as somebody wants it to look elsewhere."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from mpi_runtime.core.client.connection import Inbox
from mpi_runtime.core.transport.channel import packed

FRAME = packed(b"frame", 0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket, int, int]]:
    """Both ends of a connection, and of a pipe."""
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    yield ours, theirs, reader, writer
    ours.close()
    theirs.close()
    os.close(reader)
    os.close(writer)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_wait_ends_when_a_signal_is_announced(
    ends: tuple[socket.socket, socket.socket, int, int], timeout_s: float | None
) -> None:
    ours, theirs, reader, writer = ends
    inbox = Inbox(ours)
    os.write(writer, b"cancelled")
    inbox.read(timeout_s, reader)
    assert inbox.frames() is None
    theirs.sendall(FRAME)
    inbox.read(timeout_s, reader)
    assert inbox.frames() == [(0, b"frame")]


def test_the_other_descriptor_is_left_alone(ends: tuple[socket.socket, socket.socket, int, int]) -> None:
    ours, theirs, reader, writer = ends
    inbox = Inbox(ours)
    inbox.read(0.01, reader)
    assert inbox.frames() is None
    os.write(writer, b"cancelled")
    theirs.sendall(FRAME)
    inbox.read(None)
    assert inbox.frames() == [(0, b"frame")]
    assert os.read(reader, 100) == b"cancelled"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_the_error_of_an_alarm_is_not_that_of_the_connection(
    ends: tuple[socket.socket, socket.socket, int, int], timeout_s: float | None
) -> None:
    """Programs limit the time of a piece of code so, and `TimeoutError` is an `OSError`."""

    def late(*_: object) -> None:
        raise TimeoutError("too late")

    ours, theirs, _, _ = ends
    inbox = Inbox(ours)
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="too late"):
            inbox.read(timeout_s)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    theirs.sendall(FRAME)
    inbox.read(timeout_s)
    assert inbox.frames() == [(0, b"frame")]
    theirs.close()
    inbox.read(timeout_s)
    assert inbox.frames() == []
    assert inbox.is_closed

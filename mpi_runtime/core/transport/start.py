"""Messages between driver and head before the frames of a job: `Start` from the driver, `Welcome` from the head.

A program that connects to a session sends a `Hello` (`hello.py`) in place of `Start`.
"""

from __future__ import annotations

import os
import socket

import msgspec

from mpi_runtime.core.host.launch import Launch
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.messages import Job, Welcome

_LENGTH_BYTES = 4


class Start(msgspec.Struct):
    """Sent by the driver to its head, before each job and at the end."""

    job: Job | None
    """None: there will be no further job."""
    launch: Launch
    log_level: int = 0
    """The lowest level of log lines that the head writes."""
    log: int = -1
    """The descriptor to which it writes them as messages, sent along; -1: it writes text to standard error."""
    secret: str = ""
    """Of a session: who knows it may connect; empty: nobody else may, this is a plain job."""


def send_start(end: socket.socket, start: Start) -> None:
    """Send this to the head, with the descriptor `log`."""
    _send(end, msgspec.msgpack.encode(start), start.log)


def read_start(end: socket.socket) -> Start | None:
    """Wait for the next message; None if the driver is gone."""
    end.setblocking(True)
    try:
        data, descriptor = _read(end)
    except OSError:
        return None
    end.setblocking(False)
    start = msgspec.msgpack.decode(data, type=Start)
    start.log = descriptor
    return start


def send_welcome(driver: Channel, message: Welcome, arena: int | None) -> None:
    """Send the driver a message before its frames: a length, a `Welcome`, and with it the descriptor of the arena."""
    driver.socket.setblocking(True)
    _send(driver.socket, msgspec.msgpack.encode(message), -1 if arena is None else arena)
    driver.socket.setblocking(False)


def read_welcome(end: socket.socket) -> tuple[Welcome, int]:
    """Wait for the next message of the head before its frames, and the descriptor of the arena, or -1 without one.

    Raises:
        OSError: the head is gone.
    """
    data, descriptor = _read(end)
    return msgspec.msgpack.decode(data, type=Welcome), descriptor


def _send(end: socket.socket, data: bytes, descriptor: int) -> None:
    data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    sent = socket.send_fds(end, [data], [descriptor] if descriptor >= 0 else [])
    if sent < len(data):  # an empty sendall would fail if the other process has answered and ended
        end.sendall(data[sent:])


def _read(end: socket.socket) -> tuple[bytes, int]:
    data, wanted, descriptor = b"", _LENGTH_BYTES, -1
    while len(data) < wanted:
        part, descriptors, _, _ = socket.recv_fds(end, wanted - len(data), 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if not part:
            raise ConnectionResetError
        data += part
        if len(data) == wanted == _LENGTH_BYTES:
            wanted += int.from_bytes(data, "little")
    return data[_LENGTH_BYTES:], descriptor

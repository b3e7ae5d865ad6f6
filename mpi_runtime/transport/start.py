"""Messages between driver and head before the frames of a job: `Start` from the driver, `Welcome` from the head."""

from __future__ import annotations

import os
import socket

import msgspec

from mpi_runtime.host.launch import Launch
from mpi_runtime.transport.channel import Channel
from mpi_runtime.transport.messages import Job, Welcome


class Start(msgspec.Struct):
    """Sent by the driver to its head, before each job and at the end."""

    job: Job | None
    """None: there will be no further job."""
    launch: Launch
    log_level: int = 0
    """The lowest level of log lines that the head writes."""
    log: int = -1
    """The descriptor to which it writes them as messages, sent along; -1: it writes text to standard error."""


def send_start(end: socket.socket, start: Start) -> None:
    """Send this to the head, with the descriptor `log`."""
    data = msgspec.msgpack.encode(start)
    data = len(data).to_bytes(4, "little") + data
    sent = socket.send_fds(end, [data], [start.log] if start.log >= 0 else [])
    if sent < len(data):  # an empty sendall would fail if the head has answered and ended
        end.sendall(data[sent:])


def read_start(end: socket.socket) -> Start | None:
    """Wait for the next message; None if the driver is gone."""
    end.setblocking(True)
    data = b""
    length = 4
    descriptors: list[int] = []
    try:
        while len(data) < length:
            part, received, _, _ = socket.recv_fds(end, length - len(data), 1)
            descriptors += received
            if not part:
                return None
            data += part
            if len(data) == length == 4:
                length += int.from_bytes(data, "little")
    except OSError:
        return None
    end.setblocking(False)
    start = msgspec.msgpack.decode(data[4:], type=Start)
    for start.log in descriptors:
        os.set_inheritable(start.log, False)
    return start


def send_welcome(driver: Channel, message: Welcome, arena: int | None) -> None:
    """Send the driver its first message: a length, a `Welcome`, and with it the descriptor of the arena."""
    data = msgspec.msgpack.encode(message)
    driver.socket.setblocking(True)
    socket.send_fds(driver.socket, [len(data).to_bytes(4, "little") + data], [] if arena is None else [arena])
    driver.socket.setblocking(False)

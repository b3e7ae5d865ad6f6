"""The messages before the frames of a job: whole in whatever pieces they arrive, with the descriptor sent along."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from mpi_runtime.config import Config
from mpi_runtime.core.host.launch import Launch
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.messages import Job, Welcome
from mpi_runtime.core.transport.start import Start, read_start, read_welcome, send_start, send_welcome


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_longer_than_the_buffer_of_the_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    job = Job(Config(), b"/" * 1_000_000, [b"/lib"], [b"app.py"], 10, [], "token")
    sender = threading.Thread(target=send_start, args=(ours, Start(job, Launch())))
    sender.start()
    found = read_start(theirs)
    sender.join()
    assert found is not None
    assert (found.job, found.log) == (job, -1)
    answer = Welcome("x" * 1_000_000, {3: 1})
    sender = threading.Thread(target=send_welcome, args=(Channel(theirs), answer, None))
    sender.start()
    assert read_welcome(ours) == (answer, -1)
    sender.join()


def test_a_message_that_arrives_byte_by_byte(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    found: list[Start | None] = []
    reader = threading.Thread(target=lambda: found.append(read_start(theirs)))
    reader.start()
    whole, copy = socket.socketpair()
    with whole, copy:
        send_start(whole, Start(None, Launch(), 20))
        for byte in copy.recv(1000):
            ours.sendall(bytes([byte]))
    reader.join()
    assert found == [Start(None, Launch(), 20)]


def test_descriptors_arrive_and_children_do_not_inherit_them(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    read, write = os.pipe()
    send_start(ours, Start(None, Launch(), log=write))
    found = read_start(theirs)
    assert found is not None
    send_welcome(Channel(theirs), Welcome(), found.log)
    _, last = read_welcome(ours)
    assert not os.get_inheritable(found.log)
    assert not os.get_inheritable(last)
    os.write(last, b"line")
    assert os.read(read, 10) == b"line"
    for descriptor in (read, write, found.log, last):
        os.close(descriptor)


def test_the_other_process_is_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(b"\x10\x00")
    ours.close()
    assert read_start(theirs) is None
    with pytest.raises(ConnectionError):
        read_welcome(theirs)

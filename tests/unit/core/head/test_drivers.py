"""Drivers of a session that do not read: what the head keeps for them is bounded, and nobody waits."""

from __future__ import annotations

import os
import secrets
import select
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from mpi_runtime.core.head.drivers import UNSENT_MAX, DriverPrinter, Drivers
from mpi_runtime.core.head.printer import LAG_BYTES_MAX, Recent
from mpi_runtime.core.transport.channel import Splitter
from mpi_runtime.core.transport.hello import LENGTH_BYTES, Hello, address_of, ways
from mpi_runtime.core.transport.messages import Welcome
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.start import read_welcome
from mpi_runtime.scheduler.protocol.effects import Ready
from tests.builders import Cluster

LINE = b"x" * 999 + b"\n"


def test_output_that_is_not_read_is_dropped_and_counted() -> None:
    reader, writer = os.pipe()
    errors, errors_end = os.pipe()
    printer = DriverPrinter(Recent(), [writer, errors_end])
    count = 3 * LAG_BYTES_MAX // len(LINE)
    for _ in range(count):
        printer.print(1, b"", LINE)
    read = 0
    while read < LAG_BYTES_MAX:
        read += len(os.read(reader, 1 << 16))
    limit_s = time.monotonic() + 30
    while not printer.is_idle:
        if select.select([reader], [], [], 0.1)[0]:
            read += len(os.read(reader, 1 << 16))
        assert time.monotonic() < limit_s
    while select.select([reader], [], [], 0)[0]:
        read += len(os.read(reader, 1 << 16))
    in_pipe = 1 << 16
    assert LAG_BYTES_MAX <= read <= LAG_BYTES_MAX + in_pipe + 2 * len(LINE)
    printer.print(1, b"", b"after\n")
    lost = count * len(LINE) - read
    assert f"mpi_runtime: {lost} bytes of output of calls are lost".encode() in os.read(errors, 1000)
    assert os.read(reader, 100) == b"after\n"
    printer.finish()
    while not printer.has_finished:
        time.sleep(0.01)
    assert os.read(reader, 1) == b""  # its end is closed
    os.close(reader)
    os.close(errors)


def test_messages_that_are_not_read_are_not_encoded() -> None:
    poller, secret = Poller(), secrets.token_hex(8)
    custodian = SimpleNamespace(leave=lambda number: [])
    with Cluster().node() as cluster:
        arena = os.open(os.devnull, os.O_RDONLY)
        scheduler = cluster.scheduler
        drivers = Drivers(
            poller, scheduler, cast(Any, custodian), Recent(), secret, Welcome(regions={0: 0}), arena, lambda _: None
        )
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.connect(address_of(secret))
        hello = msgspec.msgpack.encode(Hello(secret=secret, ways=ways()))
        socket.send_fds(end, [len(hello).to_bytes(LENGTH_BYTES, "little") + hello], [1, 2])
        number = scheduler.next_client()
        while number not in drivers:
            poller.poll(1.0)
        welcome, theirs = read_welcome(end)
        os.close(theirs)
        assert welcome.driver == number
        sent = [Ready(n.to_bytes(16, "big"), b"x" * 60_000) for n in range(1000)]
        for message in sent:
            drivers.send(number, [message])
        driver = drivers._drivers[number]
        assert driver.channel.unsent_bytes <= UNSENT_MAX + 70_000
        assert len(driver.held_back) > 500
        splitter, arrived = Splitter(), 0
        end.setblocking(False)
        while arrived < len(sent):
            poller.poll(0.0)
            drivers.turn()
            assert driver.channel.unsent_bytes <= UNSENT_MAX + 64 * 70_000
            try:
                frames = splitter.feed(end.recv(1 << 20))
            except BlockingIOError:
                continue
            for _, frame in frames:
                ids = [int.from_bytes(one.id, "big") for one in msgspec.msgpack.decode(frame, type=list[Ready])]
                assert ids == list(range(arrived, arrived + len(ids)))
                arrived += len(ids)
        end.close()
        while number in drivers:
            poller.poll(1.0)
        while drivers._finishing:
            drivers.turn()
        drivers.close()
        poller.close()
        os.close(arena)
        cluster.decide()

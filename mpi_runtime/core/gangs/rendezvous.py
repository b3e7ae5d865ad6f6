"""How members find each other without MPI: the address and the port of rank 0.

The ledger of ports belongs to the host, not to a job: a process takes a block of ports by binding the abstract socket
with its number, and the kernel frees that when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915
"""The request of Linux for the address of a network interface: see `netdevice(7)`."""
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
"""The ports that Linux gives to programs which ask for any port."""
PORTS = (range(20_000, 32_000), range(10_000, 20_000))
"""Ports for libraries other than MPI."""
PORTS_OF_GANG = 40
"""A gang takes another one for each call, so that a port that the last call has used need not be free yet."""

_taken: list[socket.socket] = []
"""The sockets of the blocks that this process has."""


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface of this host.

    Raises:
        OSError: it has none, or does not exist.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        packed = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(one.fileno(), SIOCGIFADDR, packed)[20:24])


def take_ports() -> int:
    """Take a block of PORTS_OF_GANG ports of this host until this process ends, and return the first.

    No other gang of this host has them, of whatever job and user. They lie outside of the ephemeral range.

    Raises:
        OSError: all blocks are taken or in use.
    """
    low, high = ephemeral()
    firsts = (first for ports in PORTS for first in ports[::PORTS_OF_GANG])
    blocks = [first for first in firsts if first > high or first + PORTS_OF_GANG <= low]
    start = os.getpid() % len(blocks) if blocks else 0  # other processes begin elsewhere
    for first in [*blocks[start:], *blocks[:start]]:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as one:
            own.bind(f"\0mpi_runtime.port.{first}")
            one.bind(("", first))
            _taken.append(own)
            return first
        own.close()
    raise OSError(f"no block of ports for MASTER_PORT is free outside of the ephemeral range ({EPHEMERAL})")


def ephemeral() -> tuple[int, int]:
    """The first and the last port of the ephemeral range."""
    try:
        with open(EPHEMERAL) as file:
            low, high = map(int, file.read().split())
    except (OSError, ValueError):  # no Linux as we know it
        return 32_768, 60_999
    return low, high

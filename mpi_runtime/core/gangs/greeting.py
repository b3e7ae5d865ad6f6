"""Members of a new gang on several nodes exchange a message, so that a wrong network is an error and not a long wait.

MPI libraries choose network interfaces by their addresses. They connect when the first message is sent, not in
MPI_Init. If they choose an interface that does not lead to the other host, that message never arrives.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from mpi_runtime import config as configuration
from mpi_runtime.core.gangs.rendezvous import address_of
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.effects import Membership

LIMIT_S = 20.0
"""How long the message may take, in seconds."""
LOOK_S = 0.0005
UNREACHABLE = 14
"""The code, MPI_ERR_UNKNOWN, with which Open MPI calls MPI_Abort itself when it cannot reach another member, or when
its connection to one has broken."""
ABORT_S = 0.25
"""How long an MPI_Abort in a gang on several nodes waits for reports from the others, in seconds. MPI libraries call it
when another member dies and its connections break; the report of that death may arrive later."""
_CHOICES = (
    "OMPI_MCA_btl",
    "OMPI_MCA_pml",
    "UCX_NET_DEVICES",
    "UCX_TLS",
    "FI_PROVIDER",
    "FI_TCP_IFACE",
    "MPIR_CVAR_CH4",
)
"""How the names of variables begin by which users choose networks."""


def greet(world: object, place: Membership) -> None:
    """Exchange a message with the next and the previous node, as the first member of this one.

    `world`: the communicator of all members.

    Raises:
        LaunchError: none has arrived within `LIMIT_S`, or the library has refused to send it.
    """
    firsts = [place.hosts.index(host) for host in range(len(place.names))]
    if place.rank not in firsts:
        return
    own = firsts.index(place.rank)
    others = firsts[(own + 1) % len(firsts)], firsts[own - 1]
    try:
        waiting, problem = _exchange(world, others), f"exchanged no message within {LIMIT_S:.0f} s"
    except RuntimeError as error:  # `MPI.Exception`: the library has found no way to the other host
        waiting, problem = set(others), f"the first message between them failed ({error})"
    if waiting:
        there = [f"rank {other} on {place.names[place.hosts[other]]}" for other in sorted(waiting)]
        raise LaunchError(problem_of(place.rank, place.names[place.hosts[place.rank]], there, problem))


def _exchange(world: Any, others: Sequence[int]) -> set[int]:
    """Send a message to the first of these ranks, and receive one from the second. Return those that do not answer."""
    received = bytearray(1)
    requests = [world.Isend(b"x", others[0]), world.Irecv(received, others[1])]
    end_s = time.monotonic() + LIMIT_S
    while waiting := {other for other, request in zip(others, requests, strict=True) if not request.Test()}:
        if time.monotonic() > end_s:
            break
        time.sleep(LOOK_S)
    return waiting


def problem_of(rank: int, here: str, there: Iterable[str], problem: str) -> str:
    """Why messages between this rank on its host and others may not arrive, and what to do."""
    chosen = [
        f"{name}={text}" for name, text in sorted(configuration.environment().items()) if name.startswith(_CHOICES)
    ]
    return (
        f"rank {rank} on {here} and {', '.join(there)} have started MPI, but {problem}. "
        f"Settings: {', '.join(chosen) or 'none'}. {advice(here)}"
    )


def abort_s(code: int) -> float:
    """How long an MPI_Abort with this code waits. If it follows from another one, it waits longer than that."""
    return 2 * ABORT_S if code == UNREACHABLE else ABORT_S


def advice(here: str) -> str:
    """Why MPI may not reach another host from this one, and what to do. `here`: the name of this host."""
    return (
        "MPI probably uses a network interface that does not lead from one host to the other. "
        f"{here} has {', '.join(interfaces()) or 'no interface with an address'}. Set OMPI_MCA_btl_tcp_if_include "
        "(Open MPI), FI_TCP_IFACE or UCX_NET_DEVICES (MPICH) to the interface of the network that the hosts share, "
        "and see that no firewall is between them"
    )


def interfaces() -> list[str]:
    """The network interfaces of this host that have an address, but the loopback interface."""
    found = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):  # it has no address
            if name != "lo":
                found.append(f"{name} ({address_of(name)})")
    return found

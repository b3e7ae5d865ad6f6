"""A member of a gang: an executor that starts MPI, and gives each call a communicator of its own."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.events import Spec

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

INIT_LIMIT_S = 60.0
"""How long MPI_Init may take, in seconds. Members wait in it for each other."""
YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""A setting of Open MPI: members that wait let others run. Without it 8 bytes take 0.9 ms and not 3 us on a host with
fewer processors than members."""
SIOCGIFADDR = 0x8915
"""The request of Linux for the address of a network interface: see `netdevice(7)`."""
PORTS = range(20_000, 32_000)
"""Ports for libraries other than MPI: below those that Linux gives to programs that ask for any port."""
PORTS_OF_GANG = 40
"""A gang takes another one for each call, so that a port that the last call has used need not be free yet."""


class Place(msgspec.Struct, array_like=True):
    """The place of a member in its gang."""

    rank: int
    hosts: list[int]
    """For each rank the index of its node in `names`."""
    names: list[str]
    gang: int
    """The number of the gang in the job."""
    starts_mpi: bool
    """Whether members start MPI themselves. Else a program that they start may do so, and calls get no communicator."""

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.hosts)

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"


class Member:
    """The MPI world of this process."""

    def __init__(self, place: Place) -> None:
        """Start nothing yet."""
        self.place = place
        self._world: Intracomm | None = None
        self._problem: BaseException | None = None
        self._calls = 0
        self._port = 0
        """The first port of the gang for libraries other than MPI; 0: none was chosen."""
        self._specs: dict[int, Spec] = {}
        self.comm: Intracomm | None = None
        """The communicator of the running call."""

    def begin(self) -> None:
        """Initialise MPI, ahead of the first call. A failure is raised by the first call."""
        if not self.place.starts_mpi:
            return
        faulthandler.dump_traceback_later(INIT_LIMIT_S, exit=True)
        try:
            self._world = _initialised(self.place)
        except Exception as error:
            self._problem = error
        finally:
            faulthandler.cancel_dump_traceback_later()

    def enter(self) -> Intracomm | None:
        """Return the communicator for a call: a copy of the gang's world. All members call this.

        None: this member does not start MPI.

        Raises:
            LaunchError: MPI could not be started.
        """
        if not self.place.starts_mpi:
            os.environ["MASTER_PORT"] = str(PORTS[self.place.gang * 97 % len(PORTS)])
            return None
        if self._world is None:
            raise LaunchError(
                f"MPI could not be started on {self.place} of a gang: {self._problem}. Calls with num_ranks need "
                "mpi4py and an MPI library where they run."
            ) from self._problem
        comm = self.comm = self._world.Dup()
        if not self._port:
            self._port, address = comm.bcast((free_port(), self._address()) if self.place.rank == 0 else None)
            if address:
                os.environ["MASTER_ADDR"] = address
        os.environ["MASTER_PORT"] = str(self._port + self._calls % PORTS_OF_GANG)
        self._calls += 1
        return comm

    def _address(self) -> str:
        """The address of the interface that the user has chosen for gloo; empty: none was chosen."""
        name = configuration.environment().get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        return address_of(name) if name and len(self.place.names) > 1 else ""

    def leave(self) -> None:
        """End a call that has not raised: free its communicator."""
        comm, self.comm = self.comm, None
        if comm is not None:
            comm.Free()

    def is_spent(self) -> bool:
        """Whether the process must not run another call: it is in a process group of torch."""
        torch = sys.modules.get("torch.distributed")
        return torch is not None and bool(torch.is_available() and torch.is_initialized())

    def own(self, spec: Spec) -> Spec:
        """The spec of the part of a call that this member runs: it has one value, unless it is that of rank 0."""
        known = self._specs.get(spec.id)
        if known is None:
            count = spec.num_returns if self.has_value(spec) and not spec.by_rank else 1
            known = self._specs[spec.id] = msgspec.structs.replace(spec, num_returns=count)
        return known

    def has_value(self, spec: Spec) -> bool:
        """Whether the value of this member counts."""
        return spec.by_rank or self.place.rank == 0


current: Member | None = None
"""That of this process; None: it does not belong to a gang."""


def become(place: Place, env: Mapping[str, str], unset: Sequence[str], descriptors: Mapping[str, int]) -> Member:
    """Make this process a member, before its first user instruction."""
    global current
    for name in unset:
        os.environ.pop(name, None)
    os.environ.update(env)
    os.environ.update({name: str(descriptor) for name, descriptor in descriptors.items()})
    os.environ.update(torch_names(place))
    if place.hosts.count(place.hosts[place.rank]) > len(os.sched_getaffinity(0)):  # members spin while they wait
        os.environ.setdefault(YIELD, "1")
    current = Member(place)
    return current


def _initialised(place: Place) -> Intracomm:
    import mpi4py

    mpi4py.rc.finalize = False  # it is collective, and members are killed
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.Get_size() != place.size:
        version = MPI.Get_library_version().strip().partition("\n")[0]
        raise LaunchError(
            f"MPI has started with {world.Get_size()} rank(s) and not {place.size}: the MPI library of mpi4py "
            f"({version}) did not understand how it was started, by PMI-1 for MPICH and by PMIx for Open MPI 5"
        )
    return world


def torch_names(place: Place) -> dict[str, str]:
    """The variables of `torchrun`, by which torch and other libraries find the other members."""
    host = place.hosts[place.rank]
    local = [rank for rank, other in enumerate(place.hosts) if other == host]
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(local.index(place.rank)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "NODE_RANK": str(host),
        "GROUP_RANK": str(host),
        "MASTER_ADDR": "127.0.0.1" if len(place.names) == 1 else place.names[0],
    }


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface of this host.

    Raises:
        OSError: it has none, or does not exist.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        packed = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(one.fileno(), SIOCGIFADDR, packed)[20:24])


def free_port() -> int:
    """The first of PORTS_OF_GANG ports of this host that no program uses now, other ones than near processes choose.

    Raises:
        OSError: all of them are in use.
    """
    blocks = len(PORTS) // PORTS_OF_GANG
    for step in range(blocks):
        port = PORTS[(os.getpid() + step) % blocks * PORTS_OF_GANG]
        with socket.socket() as one:
            try:
                one.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def running() -> Any:
    """The communicator of the running call; None: none runs, or this process does not belong to a gang."""
    return current.comm if current is not None else None

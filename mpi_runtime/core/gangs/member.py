"""A member of a gang: an executor that starts MPI, and gives each call a communicator of its own."""

from __future__ import annotations

import copyreg
import faulthandler
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.gangs.rendezvous import PORTS_OF_GANG, address_of, take_ports
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.events import Spec

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from mpi_runtime.core.gangs import command_channel
    from mpi_runtime.scheduler.protocol.effects import Membership

INIT_LIMIT_S = 60.0
"""How long MPI_Init may take, in seconds. Members wait in it for each other."""
OF_PMIX = "PMIX_NAMESPACE"
"""A member with this variable is started by PMIx, so by Open MPI."""
YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""A setting of Open MPI: members that wait let others run. Without it 8 bytes take 0.9 ms and not 3 us on a host with
fewer processors than members."""


class Member:
    """The MPI world of this process."""

    def __init__(self, place: Membership) -> None:
        """Start nothing yet."""
        self.place = place
        self._world: Intracomm | None = None
        self._problem: BaseException | None = None
        self._calls = 0
        self._port = 0
        """The first port of the gang for libraries other than MPI; 0: none was chosen."""
        self._specs: dict[int, Spec] = {}
        self._programs = 0
        self.must_end = False
        """Whether a program has left its MPI world in a state that no other program can follow."""
        self.comm: Intracomm | None = None
        """The communicator of the running call."""
        self._last: Intracomm | None = None
        """That of the call before."""

    def begin(self) -> None:
        """Initialise MPI, ahead of the first call. A failure is raised by the first call."""
        if not self.place.starts_mpi:
            return
        faulthandler.dump_traceback_later(INIT_LIMIT_S, exit=True)
        try:
            world = _initialised(self.place)
            if len(self.place.names) > 1:
                from mpi_runtime.core.gangs.greeting import greet  # not at the top: every forkserver loads this module

                greet(world, self.place)
            self._world = world
        except Exception as error:
            self._problem = error
        finally:
            faulthandler.cancel_dump_traceback_later()

    def enter(self) -> Intracomm | None:
        """Return the communicator for a call: a copy of the gang's world. All members call this.

        That of the call before is freed only now. When all members are here, what they had sent in it has arrived, too.
        Open MPI gives the number of a freed communicator to the next one, and a late message would end up there: the
        members hang. None: this member does not start MPI.

        Raises:
            LaunchError: MPI could not be started.
        """
        if not self.place.starts_mpi:
            self._agree_on_port(lambda own: msgspec.json.decode(self.meet(msgspec.json.encode(own))[0]))
            return None
        if self._world is None:
            raise LaunchError(
                f"MPI could not be started on {self.place} of a gang: {self._problem}. Calls with num_ranks need "
                "mpi4py and an MPI library where they run."
            ) from self._problem
        comm = self.comm = self._world.Dup()
        last, self._last = self._last, None
        if last:  # false after a Free by user code
            last.Free()
        self._agree_on_port(comm.bcast)
        return comm

    @functools.cached_property
    def line(self) -> command_channel.Line:
        """The line to the agent of a member that does not start MPI."""
        from mpi_runtime.core.gangs import command_channel  # not at the top: every forkserver loads this module

        return command_channel.Line(int(configuration.environment()[command_channel.VARIABLE]), self.place.rank)

    def meet(self, part: bytes) -> list[bytes]:
        """Wait for all members, and return the bytes of each. For gangs that do not start MPI."""
        return self.line.meet(part) if self.place.size > 1 else [part]

    def begin_program(self) -> None:
        """Prepare for a program in an MPI world of its own. Each after the first needs another start; all call this."""
        if self._programs:
            old = configuration.environment()
            env, descriptors = self.line.renew()
            for name in descriptors:
                os.close(int(old[name]))
            _set(env, descriptors, self.place)
            self.meet(b"")  # now it can be used on all nodes
        self._programs += 1

    def _agree_on_port(self, from_first: Callable[[tuple[int, str] | None], tuple[int, str]]) -> None:
        """Set the port of this call. `from_first` returns the argument of rank 0 on each."""
        if not self._port:
            self._port, address = from_first((take_ports(), self._address()) if self.place.rank == 0 else None)
            if address:
                os.environ["MASTER_ADDR"] = address
        os.environ["MASTER_PORT"] = str(self._port + self._calls % PORTS_OF_GANG)
        self._calls += 1

    def _address(self) -> str:
        """The address of the interface that the user has chosen for gloo; empty: none was chosen."""
        name = configuration.environment().get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        return address_of(name) if name and len(self.place.names) > 1 else ""

    def leave(self) -> None:
        """End a call that has not raised."""
        self._last, self.comm = self.comm, None

    def is_spent(self) -> bool:
        """Whether the process must not run another call: it has finalized MPI, or is in a process group of torch."""
        if self.must_end:
            return True
        mpi, torch = sys.modules.get("mpi4py.MPI"), sys.modules.get("torch.distributed")
        if mpi is not None and self._world is not None and mpi.Is_finalized():
            return True
        return torch is not None and bool(torch.is_available() and torch.is_initialized())

    def own(self, spec: Spec) -> Spec:
        """The spec of the part of a call that this member runs: it has one value, unless it is that of rank 0."""
        known = self._specs.get(spec.id)
        if known is None:
            count = spec.num_returns if self.has_value(spec) and not spec.by_rank else 1
            known = self._specs[spec.id] = msgspec.structs.replace(spec, num_returns=count)
        return known

    def has_value(self, spec: Spec) -> bool:
        """Whether this member returns a value of the call. With `by_rank` each does, else rank 0."""
        return spec.by_rank or self.place.rank == 0


current: Member | None = None
"""That of this process; None: it does not belong to a gang."""


def become(place: Membership, env: Mapping[str, str], unset: Sequence[str], descriptors: Mapping[str, int]) -> Member:
    """Make this process a member, before its first user instruction."""
    global current
    for name in unset:
        os.environ.pop(name, None)
    _set(env, descriptors, place)
    if place.hosts.count(place.hosts[place.rank]) > len(os.sched_getaffinity(0)):  # members spin while they wait
        os.environ.setdefault(YIELD, "1")
    if place.processors:
        from mpi_runtime.core.host.claimed_processors import claim  # not at the top: every forkserver loads this module

        if processors := claim(place.processors):
            os.sched_setaffinity(0, processors)
    current = Member(place)
    return current


def _set(env: Mapping[str, str], descriptors: Mapping[str, int], place: Membership) -> None:
    """Set the variables of a start."""
    os.environ.update(env)
    os.environ.update({name: str(descriptor) for name, descriptor in descriptors.items()})
    if OF_PMIX in env:
        from mpi_runtime.core.gangs.environment import of_open_mpi  # not at the top: every forkserver loads this module

        os.environ.update(of_open_mpi(configuration.environment(), len(place.names) == 1))


def _initialised(place: Membership) -> Intracomm:
    import mpi4py

    mpi4py.rc.finalize = False  # it is collective, and members are killed
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.Get_size() != place.size:
        version = MPI.Get_library_version().strip().partition("\n")[0]
        raise LaunchError(
            f"MPI has started with {world.Get_size()} rank(s) and not {place.size}: the MPI library of mpi4py "
            f"({version}) did not understand how it was started, by PMI-1 for MPICH and by PMIx for Open MPI"
        )

    copyreg.pickle(MPI.Exception, lambda error: (_error, (error.Get_error_code(), str(error))))

    class Comm(MPI.Intracomm):
        """A copy of it, as each call gets one, is of this class too."""

        def Abort(self, errorcode: int = 0) -> NoReturn:
            """End the gang. For a copy MPICH has all members exit alike, so nobody knows which one has called it."""
            MPI.COMM_WORLD.Abort(errorcode)

    return Comm(world)


def _error(code: int, text: str) -> Any:
    """Return an error of MPI that a member has raised, without loading `mpi4py.MPI`: that starts MPI."""
    mpi = sys.modules.get("mpi4py.MPI")
    return RuntimeError(text) if mpi is None else mpi.Exception(code)


def running() -> Any:
    """The communicator of the running call; None: none runs, or this process does not belong to a gang."""
    return current.comm if current is not None else None

"""Starts the members of gangs as plain processes, with the start service and nothing else of the job."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mpi_runtime.core.gangs.environment import of_open_mpi
from mpi_runtime.core.gangs.gather import Gather
from mpi_runtime.core.gangs.member import OF_PMIX
from mpi_runtime.core.gangs.node import MemberStart, NodeStart
from mpi_runtime.core.gangs.start import Starts
from mpi_runtime.core.host import mpi_files
from mpi_runtime.core.host.launchers import child_environment
from mpi_runtime.core.host.spawn import library_path, start_helper
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.effects import Membership
from tests.helpers import mpi_python

LIMIT_S = 60.0


@dataclass
class Gang:
    """A gang whose members are processes of this one."""

    nodes: list[NodeStart]
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def initialised(self) -> set[int]:
        return set().union(*(node.initialised for node in self.nodes))

    @property
    def finalized(self) -> set[int]:
        return set().union(*(node.finalized for node in self.nodes))


class Driver:
    """One host that acts as several: each has its own `Starts`, and its own poller's turn."""

    def __init__(self, mpi: str = "openmpi", nodes: int = 1) -> None:
        """`mpi`: the library that members load. This process is one of the environment with Open MPI."""
        self.mpi = mpi
        self.python = str(mpi_python(mpi))
        self.poller = Poller()
        self._directory = tempfile.TemporaryDirectory(prefix="mrg-")
        self.helpers: list[subprocess.Popen[bytes]] = []
        self.starts = [
            Starts(self.poller, lambda: self._directory.name, lambda: None, self._start_helper) for _ in range(nodes)
        ]
        self.names = [f"node{number}" for number in range(nodes)]
        self.changes = 0
        self._late: list[tuple[NodeStart, bytes]] = []
        """Messages of the head to nodes."""
        self._gangs = 0

    def _start_helper(self, directory: str, library: str, end: int) -> None:
        code = f"from mpi_runtime.core.gangs.pmix_server import main; main({end}, {directory!r}, {library!r})"
        self.helpers.append(start_helper(code, [end], library_path()))

    def start(self, hosts: Sequence[int], command: Sequence[str], protocol: str = "", **env: str) -> Gang:
        """Start a gang of such processes, and return it when all were started. `hosts`: the node of each rank."""
        self._gangs += 1
        number = os.getpid().to_bytes(4, "big") + self._gangs.to_bytes(8, "big")
        count = max(hosts) + 1
        gather = Gather(count)
        nodes: list[NodeStart] = []

        def send(data: bytes, index: int) -> None:
            for to, answer in gather.receive(index, data):
                self._late.append((nodes[to], answer))

        protocol = protocol or ("" if self.mpi == "openmpi" else "pmi1")
        names = self.names[:count]
        nodes += [
            self.starts[index].start(
                number, shape_of(hosts, index, names), partial(send, index=index), self._note, protocol
            )
            for index in range(count)
        ]
        gang = Gang(nodes)
        self.until(lambda: all(node.is_ready or node.problem for node in nodes))
        for node in nodes:
            assert not node.problem, node.problem
            for rank in node.ranks:
                gang.processes[rank] = _spawn(command, node.member(rank), env, count == 1)
                node.forked(rank)
        return gang

    def _note(self, node: NodeStart) -> None:
        self.changes += 1

    def until(self, condition: Callable[[], bool], limit_s: float = 0) -> None:
        """Answer members until a condition holds."""
        end_s = time.monotonic() + (limit_s or LIMIT_S)
        while not condition():
            assert time.monotonic() < end_s, "the gang takes too long"
            self.turn()

    def run(
        self, hosts: Sequence[int], code: str, protocol: str = "", **env: str
    ) -> tuple[Gang, dict[int, tuple[int, str, str]]]:
        """Run Python code on a gang to its end, with `MPI` and `comm`."""
        gang = self.start(hosts, self.code(code), protocol, **env)
        return gang, self.wait(gang)

    def code(self, code: str) -> list[str]:
        """Return the command that runs Python code in a member."""
        return [self.python, "-c", f"from mpi4py import MPI\ncomm = MPI.COMM_WORLD\n{code}"]

    def turn(self) -> None:
        self.poller.poll(0 if self._late else 0.02)
        late, self._late = self._late, []
        for node, data in late:
            node.on_message(data)

    def wait(self, gang: Gang) -> dict[int, tuple[int, str, str]]:
        """Wait for the end of all members, end the gang, and return exit code, output and errors of each rank."""
        outputs: dict[int, tuple[str, str]] = {}
        self.until(lambda: all(process.poll() is not None for process in gang.processes.values()))
        for rank, process in gang.processes.items():
            outputs[rank] = process.communicate()
        self.turn()
        self._end(gang)
        return {rank: (process.returncode, *outputs[rank]) for rank, process in gang.processes.items()}

    def kill(self, gang: Gang) -> None:
        """Kill the members and end the gang, as an agent does."""
        for process in gang.processes.values():
            process.kill()
        for process in gang.processes.values():
            process.communicate()
        self._end(gang)

    def _end(self, gang: Gang) -> None:
        mpi_files.sweep()
        for node in gang.nodes:
            node.close()

    def close(self) -> None:
        for starts in self.starts:
            starts.close()
        for helper in self.helpers:
            helper.wait(LIMIT_S)
        self.poller.close()
        self._directory.cleanup()


def shape_of(hosts: Sequence[int], node: int, names: Sequence[str], starts_mpi: bool = True) -> Membership:
    """Return the membership of the first rank of a node."""
    return Membership(0, hosts.index(node), list(hosts), list(names), [], starts_mpi)


def _spawn(
    command: Sequence[str], member: MemberStart, env: Mapping[str, str], is_one_node: bool
) -> subprocess.Popen[str]:
    environment = {name: text for name, text in child_environment(os.environ).items() if name not in member.unset}
    environment |= {**member.env, **{name: str(number) for name, number in member.fds.items()}, **env}
    if OF_PMIX in environment:
        environment |= of_open_mpi(environment, is_one_node)
    return subprocess.Popen(
        list(command),
        env=environment,
        pass_fds=list(member.fds.values()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

"""What members that run commands say to their agent: on one node and on two, also without an MPI library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Thread

import pytest

from mpi_runtime.core.gangs.command_channel import NAME, VARIABLE, AgentLostError, Line
from mpi_runtime.core.gangs.gather import Gather
from mpi_runtime.core.gangs.library import Library
from mpi_runtime.core.gangs.node import NodeStart
from mpi_runtime.core.gangs.start import Starts
from mpi_runtime.core.transport.poller import Poller
from tests.gang_driver import shape_of

LIMIT_S = 30.0


class Members:
    """The nodes of a gang without an MPI library, and a line for each rank."""

    def __init__(self, hosts: list[int]) -> None:
        self.poller, self.written, self.aborts = Poller(), b"", list[tuple[int, int, str]]()
        names = [f"node{number}" for number in sorted(set(hosts))]
        gather, nodes = Gather(len(names)), list[NodeStart]()
        self.nodes, self.lines = nodes, dict[int, Line]()
        for number in range(len(names)):
            starts = Starts(self.poller, lambda: "/nowhere", lambda: None, lambda *_: None)
            starts._library = Library(problem="none here")

            def send(data: bytes, number: int = number) -> None:
                for node, answer in gather.receive(number, data):
                    nodes[node].on_message(answer)

            shape = shape_of(hosts, number, names, starts_mpi=False)
            nodes.append(starts.start(b"job" + bytes(8), shape, send, lambda _: None))
        for node in nodes:
            assert node.is_ready
            assert not node.problem
            for rank in node.ranks:
                descriptor = os.dup(node.member(rank).fds[VARIABLE])
                node.forked(rank)
                self.lines[rank] = Line(descriptor, rank)
                self.lines[rank].serve(self._write, lambda *end, rank=rank: self._abort(rank, *end))

    def _write(self, stream: int, data: bytes, rank: int) -> None:
        assert data.startswith(b"%d " % rank)
        self.written += b"%d:" % stream + data

    def _abort(self, rank: int, code: int, text: str) -> None:
        self.aborts.append((rank, code, text))

    def during(self, *threads: Thread) -> None:
        """Answer members until these threads have ended."""
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.poller.poll(0.01)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        for line in self.lines.values():
            line._end.close()
        self.poller.close()


@pytest.fixture(params=[[0, 0, 0], [0, 0, 1], [0, 1, 2]])
def members(request: pytest.FixtureRequest) -> Iterator[Members]:
    found = Members(request.param)
    yield found
    found.close()


def test_members_send_lines_to_rank_0_and_meet(members: Members) -> None:
    met: dict[int, list[bytes]] = {}

    def run(rank: int) -> None:
        for number in range(5):
            members.lines[rank].send(1 + number % 2, b"%d %d\n" % (rank, number))
        met[rank] = members.lines[rank].meet(b"end of %d" % rank)

    members.during(*(Thread(target=run, args=(rank,)) for rank in range(3)))
    assert met == {rank: [b"end of 0", b"end of 1", b"end of 2"] for rank in range(3)}
    found = sorted(members.written.decode().splitlines())
    assert found == sorted(f"{1 + number % 2}:{rank} {number}" for rank in range(3) for number in range(5))


def test_the_status_of_a_member_and_its_abort(members: Members) -> None:
    members.nodes[-1].initialised.add(2)
    members.nodes[-1].abort(2, 7, "why")
    found = []
    members.during(Thread(target=lambda: found.append(members.lines[2].status())))
    assert (found[0].is_initialised, found[0].is_finalized, found[0].protocol) == (True, False, "")
    assert found[0].problem == "none here"
    assert members.aborts == [(2, 7, "why")]
    assert members.nodes[-1].aborted is None


def test_each_member_that_aborts_is_known_with_pmi1(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPI_Abort of MPICH returns: a member whose abort was not known would end with a segmentation fault."""
    poller, aborts = Poller(), list[tuple[int, int, str]]()
    starts = Starts(poller, lambda: "/nowhere", lambda: None, lambda *_: None)
    node = starts.start(b"job" + bytes(8), shape_of([0, 0], 0, ["here"]), lambda _: None, lambda _: None, "pmi1")
    monkeypatch.setattr(node, "abort", lambda *abort: aborts.append(abort))
    for rank in (1, 0):
        os.write(node.member(rank).fds["PMI_FD"], b"cmd=abort exitcode=%d message=why\n" % (5 + rank))
        node.look(rank)
    assert aborts == [(1, 6, "why"), (0, 5, "why")]
    node.close()
    poller.close()


def test_a_text_of_the_library_of_a_member_is_written_by_rank_0(members: Members) -> None:
    """And the member's own lines after it, although it has ended."""
    last = members.nodes[-1]
    last.say(2, b"2 first\n", True)
    last.say(2, b"2 again\n", False)
    met: list[bytes] = []

    def run(rank: int) -> None:
        for number in range(3):
            members.lines[rank].send(1, b"%d %d\n" % (rank, number))
        met.extend(members.lines[rank].meet(b""))

    members.during(*(Thread(target=run, args=(rank,)) for rank in range(3)))
    assert met == [b""] * 9
    found = sorted(members.written.decode().splitlines())
    assert found == sorted(["2:2 first", *(f"1:{rank} {number}" for rank in range(3) for number in range(3))])
    assert last.texts == []


def test_members_get_a_start_for_each_program(members: Members) -> None:
    """Its name is the same on all nodes, and rank 0 writes lines that arrive early when it serves the new program."""
    names: dict[int, list[str]] = {rank: [] for rank in range(3)}

    def run(rank: int) -> None:
        line = members.lines[rank]
        for number in range(3):
            env, descriptors = line.renew()
            assert not descriptors
            names[rank].append(env[NAME])
            line.meet(b"")
            if rank:
                line.send(1, b"%d %d\n" % (rank, number))
            else:
                line.serve(members._write, lambda code, text: None)
            line.meet(b"")

    members.during(*(Thread(target=run, args=(rank,)) for rank in range(3)))
    assert names[0] == names[1] == names[2]
    assert len({*names[0], NodeStart(b"job" + bytes(8), shape_of([0], 0, ["a"]), print, print).name}) == 4
    assert {node.name for node in members.nodes} == {names[0][-1]}
    assert sorted(members.written.split(b"\n")[:-1]) == sorted(b"1:%d %d" % (r, n) for r in (1, 2) for n in range(3))


def test_a_member_whose_agent_has_died_gets_an_error(members: Members) -> None:
    for node in members.nodes:
        node.close()
    with pytest.raises((AgentLostError, OSError)):
        members.lines[0].meet(b"")

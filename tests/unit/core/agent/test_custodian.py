"""Executors whose process another rank has: the orders in which their frames, their ends and their ranks' ends arrive.

Two agents on one host: the head's has the lines, that of rank 1 the processes. See docs/decisions/0305.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from mpi_runtime.core.agent.agent import NodeAgent
from mpi_runtime.core.agent.executors import LocalExecutor
from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.executor.fork_messages import MESSAGE_BYTES_MAX, Exited
from mpi_runtime.core.executor.forkserver_handle import Handle
from mpi_runtime.core.head import direct_lines
from mpi_runtime.core.head.direct_lines import DirectLines
from mpi_runtime.core.objects import arena
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport import codec, unsent_frame
from mpi_runtime.core.transport.channel import LOCAL, Channel, packed
from mpi_runtime.core.transport.messages import Allocate, Allocated, Ended, FromExecutor, PauseLogs, StartDirect
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.unsent_frame import Draft
from mpi_runtime.scheduler.protocol.effects import Cancel, Free, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import Done
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, FrameRefused, TakenBack
from tests.fake_rank import FakeRank
from tests.mpi import memory_transport

CALLS = [bytes([number] * 16) for number in range(1, 5)]
START = StartExecutor(1, {}, [], 1, [])
MIB = 1 << 20


def done(number: int) -> bytes:
    return codec.encode([Done(CALLS[number], b"", 1)])


class Pair:
    """The agents of rank 0 and 1 of one host, and executor 1, which we play."""

    def __init__(self) -> None:
        self.poller = Poller()
        self.transports = memory_transport.network(2)
        self.memory = arena.create(4 * MIB, 2)
        self.forkservers = Forkservers([])
        self.reports: list[list[Any]] = [[], []]
        self.agents = [
            NodeAgent(
                FakeRank(
                    self.transports[rank],
                    self.poller,
                    self.reports[rank].append,
                    AgentArena(self.memory, rank),
                    self.forkservers,
                )
            )
            for rank in (0, 1)
        ]
        self.custodian = self.agents[0].custodian
        self.lines = DirectLines(self.transports[0], self.custodian, "job 1", True)
        ours, self.forkserver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.forkservers._early = Handle(ours, lambda: 0, 1 << 22)
        self.agents[1]._forkserver.start()
        self.requested()
        self.descriptors: list[int] = []
        self.end: socket.socket

    def requested(self) -> list[int]:
        """The descriptors that come with the next request to the forkserver; we close them."""
        descriptors = socket.recv_fds(self.forkserver, MESSAGE_BYTES_MAX, 6)[1]
        for descriptor in descriptors:
            os.close(descriptor)
        return descriptors

    def start(self) -> "Pair":
        """Start executor 1 as the head does it."""
        self.obey(1, [START])
        _, found, _, _ = socket.recv_fds(self.forkserver, MESSAGE_BYTES_MAX, 6)
        self.end, self.descriptors = socket.socket(fileno=found[0]), list(found[1:])
        return self

    def obey(self, rank: int, effects: Sequence[Any]) -> list[Any]:
        """Have effects performed that the scheduler has for a rank; returns what was left to the rank."""
        left = self.lines.left_to(rank, effects)
        for one in left:
            if isinstance(one, StartDirect):
                self.agents[rank].start(one.start, one.key)
            else:
                self.agents[rank].obey(cast(Any, one))
        return left

    @property
    def process(self) -> LocalExecutor:
        return self.agents[1]._executors[1]

    def runs(self) -> None:
        """The executor claims a call."""
        os.eventfd_read(self.descriptors[0])

    def dies(self, status: int = 9) -> Ended:
        """The process ends, which its agent reports."""
        self.agents[1]._on_exited(self.process, Exited(1, status))
        ended = self.reports[1].pop()
        assert isinstance(ended, Ended)
        return ended

    def heard(self) -> list[Any]:
        """What the head's custodian has reported since the last time."""
        reports, self.reports[0][:] = self.reports[0][:], []
        return reports

    def close(self) -> None:
        for agent in self.agents:
            for executor in list(agent._executors.values()):
                agent._forget(executor)
            agent._forkserver.end()
            agent.close()
        self.forkserver.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        if self.descriptors:
            self.end.close()
        for transport in self.transports:
            transport.take(b"")
            transport.close(clean=True)
        os.close(self.memory)
        self.poller.close()


@pytest.fixture
def two() -> Iterator[Pair]:
    two = Pair()
    yield two
    two.close()


def test_calls_and_results_do_not_pass_the_rank_of_the_process(two: Pair) -> None:
    two.start()
    assert 1 in two.custodian
    assert 1 not in two.agents[1].custodian
    two.custodian.to_executor(1, CALLS[:1], codec.encode([]))
    two.runs()
    two.end.sendall(packed(done(0), 1))
    two.poller.poll(0)
    assert two.heard() == [FromExecutor(1, done(0), 1)], "before its start was reported"
    assert two.reports[1] == []


def test_frames_that_arrive_after_the_report_of_the_death(two: Pair) -> None:
    two.start()
    two.custodian.to_executor(1, CALLS[:3], codec.encode([]))
    two.runs()
    two.runs()
    two.end.sendall(packed(done(0), 1))  # nobody has read it when the other way is faster
    two.custodian.end(two.dies())
    frame, died = two.heard()
    assert frame == FromExecutor(1, done(0), 1)
    assert (died.executor, died.running, died.keeper) == (1, CALLS[1], 0)
    assert 1 not in two.custodian


@pytest.mark.parametrize("arrived", [0, 3, 0xFFFF, 0x10000])
def test_a_draft_is_compared_with_the_frames_that_have_arrived_at_the_head(two: Pair, arrived: int) -> None:
    two.start()
    two.custodian.to_executor(1, CALLS[:2], codec.encode([]))
    two.runs()
    two.custodian._lines[1].arrived = arrived
    slot = two.process.draft
    prepared = Draft(unsent_frame.map_memory(two.agents[1]._drafts.descriptor, slot))
    prepared._number = (arrived - 1) % 0x10000
    prepared.sent()
    assert prepared.add([Done(CALLS[0], b"", 1)], 1)
    ended = two.dies()
    assert two.agents[1]._drafts.take() == slot, "another executor has the draft now"
    two.custodian.end(ended)
    frame, died = two.heard()
    assert frame == FromExecutor(1, unsent_frame._framed(1, done(0)[1:]), 1)
    assert died.running == b""


def test_a_draft_that_has_arrived_is_not_read_again(two: Pair) -> None:
    two.start()
    two.custodian.to_executor(1, CALLS[:1], codec.encode([]))
    two.runs()
    prepared = Draft(unsent_frame.map_memory(two.agents[1]._drafts.descriptor, two.process.draft))
    assert prepared.add([Done(CALLS[0], b"", 1)], 1)
    two.end.sendall(packed(prepared.frame([], 0)[1], 1))  # and it dies before it has noted that
    two.custodian.end(two.dies())
    assert [type(one) for one in two.heard()] == [FromExecutor, ExecutorDied]


def test_an_end_of_the_line_without_a_report(two: Pair) -> None:
    """The agent of the process is stopped. Its report comes when it runs on."""
    two.start()
    two.end.close()
    two.poller.poll(0)
    assert two.heard() == []
    assert not two.poller.poll(0), "nothing spins meanwhile"
    two.custodian.end(two.dies())
    assert [one.executor for one in two.heard()] == [1]


def test_a_start_that_fails_after_calls_were_sent(two: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(two.agents[1]._drafts, "take", refuse)
        (start,) = two.lines.left_to(1, [START])
        two.custodian.to_executor(1, CALLS[:2], codec.encode([]))
        assert isinstance(start, StartDirect)
        two.agents[1].start(start.start, start.key)
    (ended,) = two.reports[1]
    two.custodian.end(ended)
    (died,) = two.heard()
    assert died.running == b"", "none of them has run"
    assert "could not be started: Too many open files" in died.cause
    assert not two.agents[1]._executors


def test_descriptors_that_nobody_took_are_not_taken_for_those_of_another(two: Pair) -> None:
    two.lines.left_to(1, [START])  # the rank refuses it before it takes them
    two.custodian.drop(1)
    two.lines = DirectLines(two.transports[0], two.custodian, "job 2", True)  # where numbers begin again
    two.start()
    two.custodian.to_executor(1, [], b"to the second")
    two.end.setblocking(False)
    assert Channel(two.end).receive() == [(0, b"to the second")]


def test_a_rank_without_the_descriptors_reports_a_failed_start(two: Pair) -> None:
    two.agents[1].start(START, b"job 1 1")
    (ended,) = two.reports[1]
    assert ended.cause == "could not be started: its direct line has not arrived"


@pytest.mark.parametrize("step", ["descriptors", "handing"])
def test_where_the_system_refuses_a_line_frames_go_by_mpi(
    two: Pair, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    if step == "descriptors":
        monkeypatch.setattr(direct_lines, "keep_spare", refuse)
    else:
        monkeypatch.setattr(two.transports[0], "hand", lambda rank, descriptors, key: False)
    assert two.lines.left_to(1, [START]) == [START]
    assert 1 not in two.custodian
    assert two.lines.left_to(1, [TakeBack(1, 1)]) == [TakeBack(1, 1)]


def test_ranks_of_other_hosts_and_jobs_without_direct_lines() -> None:
    transports = memory_transport.network(3, [0, 0, 2])
    two = Pair()
    for lines, rank in (
        (DirectLines(transports[0], two.custodian, "", True), 2),
        (DirectLines(transports[0], two.custodian, "", False), 1),
    ):
        assert lines.left_to(rank, [START]) == [START]
    two.close()
    for transport in transports:
        transport.close(clean=True)


def test_who_does_what_of_an_effect(two: Pair) -> None:
    two.start()
    two.custodian.to_executor(1, CALLS[:3], codec.encode([]))
    two.runs()
    assert two.obey(1, [TakeBack(1, 1)]) == []
    assert two.heard() == [TakenBack(1, CALLS[2:3])]
    interrupt = Cancel(1, CALLS[0], force=False)
    assert two.obey(1, [interrupt, Free([])]) == [interrupt, Free([])]
    assert len(os.read(two.descriptors[1], 100)) == 20, "the id of the attempt, by its rank"
    assert two.obey(1, [Cancel(1, CALLS[0], force=True)]) == [StopExecutor(1, force=True)]
    assert two.heard() == [TakenBack(1, CALLS[1:2])]
    assert two.obey(1, [Cancel(1, CALLS[3], force=True)]) == [], "it does not run"
    assert two.obey(1, [StopExecutor(1, force=False)]) == []
    assert two.obey(1, [StopExecutor(1, force=True)]) == [StopExecutor(1, force=True)]


def test_memory_is_the_heads_and_is_free_when_the_scheduler_has_answered(two: Pair) -> None:
    two.start()
    two.end.sendall(packed(codec.encode([Allocate(7, MIB)]), LOCAL))
    two.poller.poll(0)
    two.end.setblocking(False)
    (frame,) = Channel(two.end).receive()
    assert codec.to_client.decode(frame[1]) == [Allocated(7, 0, 0)]
    two.custodian.end(two.dies())
    (died,) = two.heard()
    assert (died.extents, died.keeper) == ([0], 0)
    two.agents[0].obey(Free([0], 1))
    assert two.agents[0]._arena.allocator.used == 0


def test_a_lost_rank(two: Pair) -> None:
    """What was sent counts, nothing starts, and memory is free only when the process cannot write any more."""
    two.start()
    two.end.sendall(packed(codec.encode([Allocate(7, MIB)]), LOCAL))
    two.poller.poll(0)
    two.custodian.to_executor(1, CALLS[:3], codec.encode([]))
    two.runs()
    two.end.sendall(packed(done(0), 1))
    two.custodian.lose(1)
    assert two.heard() == [FromExecutor(1, done(0), 1)]
    with pytest.raises(BlockingIOError):
        two.runs()
    two.end.sendall(packed(codec.encode([]), 0))  # the process lives on for a moment
    two.poller.poll(0)
    assert two.heard() == []
    two.end.close()
    two.poller.poll(0)
    (died,) = two.heard()
    assert (died.executor, died.extents, died.keeper) == (1, [0], 0)
    assert 1 not in two.custodian


def test_a_lost_rank_whose_executor_was_refused_or_is_gone(two: Pair) -> None:
    two.start()
    two.end.sendall(b"junk where only frames belong")
    two.poller.poll(0)
    (refused,) = two.heard()
    assert isinstance(refused, FrameRefused)
    two.end.close()
    two.custodian.lose(1)
    two.poller.poll(0)
    assert [type(one) for one in two.heard()] == [ExecutorDied]


def test_what_an_executor_has_printed_is_quoted_if_it_has_begun_no_call(two: Pair) -> None:
    two.start()
    os.write(two.descriptors[-1], b"no such module\n")
    two.process.pid = 1
    two.agents[1].obey(PauseLogs(False))
    ended = two.dies(3 << 8)
    two.custodian.end(ended)
    assert two.heard()[-1].cause == "exited with code 3 before its call had ended\nno such module"
    two.reports[1].clear()


def test_memory_is_watched_though_the_agent_of_the_process_does_not_know_its_calls(two: Pair) -> None:
    two.start()
    assert two.process.may_run_calls


def test_lines_stay_open_at_the_end_of_a_job_until_all_is_dead(two: Pair) -> None:
    two.start()
    two.custodian.stop()
    two.end.setblocking(False)
    with pytest.raises(BlockingIOError):
        two.end.recv(1)
    two.custodian.close()
    assert two.end.recv(1) == b""

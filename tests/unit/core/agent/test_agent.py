"""What an agent does when something is wrong with its executors: dead and nobody has heard of it, or sending junk."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from mpi_runtime.core.agent import leftovers
from mpi_runtime.core.agent.agent import NodeAgent
from mpi_runtime.core.agent.executors import LocalExecutor, describe_status
from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.agent.output_lines import Lines
from mpi_runtime.core.executor import scratch
from mpi_runtime.core.executor.fork_messages import MESSAGE_BYTES_MAX, Exited
from mpi_runtime.core.executor.forkserver_handle import Handle
from mpi_runtime.core.objects import arena
from mpi_runtime.core.objects.arena import AgentArena
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import LOCAL, Channel, packed, pair
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.core.transport.messages import (
    Abandon,
    Allocate,
    Allocated,
    Drained,
    FromExecutor,
    Log,
    PauseLogs,
    Pull,
    Shutdown,
)
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.tokens import tokens_of
from mpi_runtime.scheduler.protocol.effects import Cancel, Fetch, Free, StartExecutor, StopExecutor, TakeBack
from mpi_runtime.scheduler.protocol.events import Done
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted, FrameRefused, TakenBack
from tests.fake_rank import SETUP, FakeRank
from tests.mpi import memory_transport

CALLS = [bytes([number] * 16) for number in range(1, 10)]
MIB = 1 << 20


class Desk:
    """An agent with one executor that we play, and what it reports."""

    def __init__(self, ranks: int = 1, rank: int = 0) -> None:
        self.reports: list[Any] = []
        self.poller = Poller()
        self.transports = memory_transport.network(ranks)
        self.memory = arena.create(4 * MIB, ranks)
        self.arena = AgentArena(self.memory, rank)
        self.forkservers = Forkservers([])
        self.agent = NodeAgent(
            FakeRank(self.transports[rank], self.poller, self.reports.append, self.arena, self.forkservers)
        )
        ours, self.end = pair()
        self.tokens = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self.pipe, cancels = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.line = self.agent.custodian.add(1, rank, Channel(ours), tokens_of(self.tokens))
        self.executor = self.agent._executors[1] = LocalExecutor(
            1, self.agent._drafts.take(), cancels, self.line.custody
        )

    def write(self, data: bytes) -> list[Any]:
        """Write to the executor's descriptor: what is reported then."""
        self.end.sendall(data)
        self.poller.poll(0)
        return self.take()

    def take(self) -> list[Any]:
        reports = self.reports[:]
        self.reports.clear()
        return reports

    def heard(self) -> list[Any]:
        """What the executor was told."""
        self.end.setblocking(False)
        channel = Channel(self.end)
        return [message for _, frame in channel.receive() for message in codec.to_client.decode(frame)]

    def close(self) -> None:
        for executor in list(self.agent._executors.values()):
            self.agent._forget(executor)
        self.end.close()
        os.close(self.pipe)
        self.agent.close()
        for transport in self.transports:
            transport.close(clean=True)
        os.close(self.memory)
        self.poller.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


@pytest.fixture
def two() -> Iterator[Desk]:
    desk = Desk(ranks=2)
    yield desk
    desk.close()


def test_a_cancel_for_an_executor_that_has_just_died(desk: Desk) -> None:
    desk.end.close()
    desk.agent.obey(Cancel(1, b"a" * 16, force=False))
    desk.agent.obey(Cancel(1, b"b" * 16, force=True))
    assert desk.take() == [TakenBack(1, [])]


def test_an_effect_for_an_executor_that_is_gone(desk: Desk) -> None:
    for effect in (Cancel(7, CALLS[0], force=True), TakeBack(7, 3), StopExecutor(7, force=True)):
        desk.agent.obey(effect)
    desk.agent.custodian.to_executor(7, [CALLS[0]], b"frame")
    assert desk.take() == []


def test_a_forced_cancel_takes_back_what_has_not_started(desk: Desk) -> None:
    desk.agent.custodian.to_executor(1, CALLS[:3], codec.encode([]))
    os.eventfd_read(desk.tokens)  # it runs the first
    desk.agent.obey(Cancel(1, CALLS[0], force=True))
    assert desk.take() == [TakenBack(1, CALLS[1:3])]
    with pytest.raises(BlockingIOError):
        os.eventfd_read(desk.tokens)


DONE = codec.encode([Done(CALLS[0], b"", 1)])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"abc", "no frame starts with b'abc"),
        (b"\0" * 300, "no frame starts with"),
        (b"\xff\xff\xff\x7f" * 5, "no frame starts with"),
        (packed(DONE, 3), "it ends 3 call(s), and 2 are assigned to it"),
        (packed(b"junk", LOCAL), "the frame of 4 bytes starts with b'junk'"),
        (packed(DONE, LOCAL), "the frame of"),
        (packed(codec.encode([Shutdown()]), LOCAL), "asks for the end of the job"),
        (packed(codec.encode([Drained(2)]), LOCAL), "it was sent 3, none taken back"),
        (packed(codec.encode([Drained(4)]), LOCAL), "it was sent 3, none taken back"),
        (packed(codec.encode([Abandon(0)]), LOCAL), "gives back memory at 0, which it was not given"),
        (packed(b"\x91\x93\x14\x01\xd0\xff", LOCAL), ">= 0"),
    ],
)
def test_junk_is_reported_and_nothing_after_it_counts(desk: Desk, data: bytes, problem: str) -> None:
    desk.agent.custodian.to_executor(1, CALLS[:3], codec.encode([]))
    os.eventfd_read(desk.tokens)  # it runs the first, ends it, and runs the second
    os.eventfd_read(desk.tokens)
    assert desk.write(packed(DONE, 1)) == [FromExecutor(1, DONE, 1)]
    passed_on, refused = desk.write(packed(codec.encode([]), 0) + data + packed(codec.encode([]), 0))
    assert passed_on == FromExecutor(1, codec.encode([]), 0)
    assert isinstance(refused, FrameRefused)
    assert problem in refused.problem
    assert desk.write(packed(codec.encode([]), 0)) == []
    desk.agent.custodian.to_executor(1, CALLS[3:5], codec.encode([]))
    with pytest.raises(BlockingIOError):  # none of these may start
        os.eventfd_read(desk.tokens)
    desk.agent._on_exited(desk.executor, Exited(1, signal.SIGKILL))
    (died,) = desk.take()
    assert died.running == CALLS[1]


def test_what_was_sent_before_the_junk_is_passed_on_when_its_sender_has_died(desk: Desk) -> None:
    desk.agent.custodian.to_executor(1, CALLS[:2], codec.encode([]))
    os.eventfd_read(desk.tokens)
    desk.end.sendall(packed(DONE, 1) + b"junk for a header" + packed(DONE, 1))
    desk.agent._on_exited(desk.executor, Exited(1, 0))
    ended, refused, died = desk.take()
    assert ended == FromExecutor(1, DONE, 1)
    assert isinstance(refused, FrameRefused)
    assert (died.running, died.cause) == (b"", "exited with code 0 before its call had ended")


def test_a_result_that_is_ended_may_be_its_executors_last_word(desk: Desk) -> None:
    desk.agent.custodian.to_executor(1, CALLS[:1], codec.encode([]))
    os.eventfd_read(desk.tokens)
    desk.end.sendall(packed(DONE, 1))
    desk.agent._on_exited(desk.executor, Exited(1, signal.SIGTERM))
    ended, died = desk.take()
    assert ended == FromExecutor(1, DONE, 1)
    assert died.cause.startswith("was killed by signal 15 (SIGTERM: ")


def test_memory_is_given_and_given_back(desk: Desk) -> None:
    assert desk.write(packed(codec.encode([Allocate(5, 100)]), LOCAL)) == []
    assert desk.heard() == [Allocated(5, 0, 0)]
    assert desk.agent._extents.of(1) == [0]
    assert desk.write(packed(codec.encode([Abandon(0)]), LOCAL)) == []
    assert desk.arena.allocator.used == 0


@pytest.mark.parametrize("message", [Drained(0), Abandon(64)])
def test_what_the_driver_may_not_say(desk: Desk, message: Drained | Abandon) -> None:
    with pytest.raises(BadFrameError):
        desk.agent.custodian.on_driver(desk.line.channel, message)
    assert desk.agent.custodian.on_driver(desk.line.channel, Shutdown())
    assert not desk.agent.custodian.on_driver(desk.line.channel, Allocate(1, 1))


@pytest.mark.parametrize(
    "effect",
    [
        StartExecutor(1, {}, [], 1, []),
        StartExecutor(2, {}, [0], 1, [], uuids=["GPU-nobody-has"]),
        Free([0]),
        Fetch(CALLS[0], 0, 0, 10),
        Fetch(CALLS[0], 2, 0, 10),
    ],
)
def test_what_cannot_be_done_does_no_harm(two: Desk, effect: Any) -> None:
    class NoGpus:
        def devices(self, uuids: list[str]) -> list[str]:
            return uuids

        def variables(self, uuids: list[str]) -> dict[str, str]:
            raise KeyError(*uuids)

    two.agent.gpus = cast(Any, NoGpus())
    with pytest.raises(BadFrameError):
        two.agent.obey(effect)
    assert list(two.agent._executors) == [1]
    assert not two.agent.is_transferring
    with pytest.raises(BadFrameError):
        two.agent.pull(1, Pull(1, 64, 10, 10, 4096))


def test_a_rank_says_which_it_is() -> None:
    desk = Desk(ranks=2, rank=1)
    with pytest.raises(BadFrameError, match=r"rank 1 has no GPUs \['GPU-nobody-has'\]"):
        desk.agent.obey(StartExecutor(2, {}, [0], 1, [], uuids=["GPU-nobody-has"]))
    desk.close()


def test_of_extents_to_be_freed_only_those_that_there_are(desk: Desk) -> None:
    offsets = [desk.arena.allocate(64) for _ in range(2)]
    assert offsets == [0, 64]
    with pytest.raises(BadFrameError, match=r"it frees memory at \[4096\], where nothing is allocated"):
        desk.agent.obey(Free([0, 4096, 64]))
    assert desk.arena.allocator.used == 0


class Pausable:
    """What an executor writes, as far as it can be paused."""

    def __init__(self) -> None:
        self.paused: list[bool] = []

    def pause(self, paused: bool) -> None:
        self.paused.append(paused)

    def drain(self) -> None:
        """Nothing is there."""


def test_output_is_read_when_the_process_is_known_and_nobody_has_paused_it(desk: Desk) -> None:
    lines = Pausable()
    desk.executor.outputs.append(cast(Lines, lines))
    desk.agent.obey(PauseLogs(True))
    desk.agent.obey(PauseLogs(False))  # its process is not known: where its lines come from could not be said
    desk.executor.pid = 1
    desk.agent.obey(PauseLogs(True))
    desk.agent.obey(PauseLogs(False))
    assert lines.paused == [True, True, True, False]


NOBODY = 1 << 22
"""More than any process id."""


class Forkserver:
    """The forkserver of an agent, played by the test."""

    def __init__(self, desk: Desk, code: int = 0) -> None:
        ours, self.end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours = ours.fileno()
        desk.forkservers._early = Handle(ours, lambda: code, NOBODY)
        desk.agent._forkserver.start()
        for descriptor in self.read():  # with what executors have in common
            os.close(descriptor)

    def read(self) -> list[int]:
        """Hear a request; the descriptors that come with it."""
        return socket.recv_fds(self.end, MESSAGE_BYTES_MAX, 6)[1]

    def says(self, message: ExecutorStarted) -> None:
        self.end.send(msgspec.msgpack.encode(message))


def test_nothing_is_read_of_an_executor_before_its_process_is_known(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "adopt", lambda: None)
    forkserver = Forkserver(desk)
    desk.agent.obey(StartExecutor(2, {}, [], 1, []))
    descriptors = forkserver.read()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(descriptors[1])  # no call may be started yet
    said = [Log(2, stream, b"line %d\n" % stream) for stream in (1, 2)]
    for line, descriptor in zip(said, descriptors[-2:], strict=True):
        os.write(descriptor, line.data)
    desk.poller.poll(0)
    assert desk.take() == []
    forkserver.says(ExecutorStarted(2, 4711))
    while len(desk.reports) < 3:
        desk.poller.poll(None)
    assert sorted(desk.take(), key=repr) == [ExecutorStarted(2, 4711), *said]
    desk.agent.stop()
    assert forkserver.end.recv(1) == b"", "it is told to end"
    assert forkserver.ours not in desk.poller._callbacks
    for descriptor in descriptors:
        os.close(descriptor)
    forkserver.end.close()


def test_a_forkserver_that_was_never_needed_is_ended_too(desk: Desk) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    desk.forkservers._early = Handle(ours, lambda: 0, NOBODY)
    desk.agent.stop()
    assert theirs.recv(1) == b""
    theirs.close()


@pytest.mark.parametrize("is_heard", [True, False], ids=["closed", "reset"])
@pytest.mark.parametrize(("code", "how"), [(-9, "was killed by signal 9"), (1, "exited with code 1; its own error")])
def test_a_rank_goes_on_without_its_forkserver(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_heard: bool, code: int, how: str
) -> None:
    killed: list[list[int]] = []
    monkeypatch.setattr(leftovers, "kill_left", killed.append)
    left: list[str] = []
    monkeypatch.setattr(scratch, "leave", left.append)
    forkserver = Forkserver(desk, code)
    desk.agent.custodian.to_executor(1, CALLS[:2], b"")
    os.eventfd_read(desk.tokens)  # it has begun the first
    desk.agent.obey(StopExecutor(1, force=True))
    if is_heard:
        forkserver.read()
    forkserver.end.close()
    desk.executor.pid = 4711
    ours, theirs = pair()
    starting = desk.agent.custodian.add(2, 0, Channel(ours), tokens_of(os.eventfd(0, os.EFD_NONBLOCK)))
    desk.agent._executors[2] = LocalExecutor(2, desk.agent._drafts.take(), os.eventfd(0), starting.custody)
    theirs.close()
    desk.end.close()
    desk.agent._forkserver._on_message()
    assert killed == [[4711]], "of the second there is no process yet"
    assert left == [SETUP.scratch]
    first, second = desk.take()
    assert (first.executor, first.running) == (1, CALLS[0])
    assert (second.executor, second.running) == (2, b"")
    for died in (first, second):
        assert died.cause.startswith(f"died with its forkserver, which {how}")
        assert died.with_forkserver == (code == -9), "one that fails by itself would fail again"
    assert not desk.agent._executors
    assert forkserver.ours not in desk.poller._callbacks
    another = Forkserver(desk)
    desk.agent.obey(StartExecutor(3, {}, [], 1, []))
    for descriptor in another.read():
        os.close(descriptor)
    desk.agent.stop()
    another.end.close()


def test_what_an_executor_does_not_take_at_once_is_sent_when_it_reads(desk: Desk) -> None:
    desk.agent.custodian.to_executor(1, [], bytes(8 * MIB))
    desk.end.setblocking(False)
    rounds = 0
    while desk.line.channel.unsent_bytes and rounds < 1000:
        with contextlib.suppress(BlockingIOError):
            desk.end.recv(MIB)
        desk.poller.poll(0)
        rounds += 1
    assert rounds > 1
    assert not desk.line.channel.unsent_bytes


def test_memory_that_an_executor_was_given_is_freed_when_the_scheduler_says_so(desk: Desk) -> None:
    assert desk.write(packed(codec.encode([Allocate(1, MIB)]), LOCAL)) == []
    assert desk.arena.allocator.used == MIB
    (answer,) = desk.heard()
    desk.agent.obey(Free([answer.offset], 1))
    assert desk.arena.allocator.used == 0


def test_memory_that_a_dead_executor_waited_for_is_not_taken(desk: Desk) -> None:
    offset = desk.arena.allocate(4 * MIB)
    assert offset == 0
    assert desk.write(packed(codec.encode([Allocate(1, MIB)]), LOCAL)) == []
    desk.agent._on_exited(desk.executor, Exited(1, 9))
    desk.agent.obey(Free([offset]))
    assert desk.arena.allocator.used == 0


def test_a_neighbour_whose_spare_memory_is_in_the_way_is_woken(two: Desk) -> None:
    neighbour = AgentArena(two.memory, 1)
    spare = neighbour.allocate(4 * MIB)
    assert spare == 0
    neighbour.free(spare)
    assert two.agent.turn() is None
    assert two.transports[1].receive() == []
    two.arena.allocate(64)
    assert two.agent.turn() is None
    assert list(two.transports[1].receive()) == [(0, codec.encode([]))]
    assert neighbour.settle() == []
    assert neighbour.busy
    neighbour.close()


def test_how_a_process_ended_in_words() -> None:
    assert describe_status(3 << 8) == "exited with code 3 before its call had ended"
    assert describe_status(signal.SIGKILL) == "was killed by signal 9 (SIGKILL: Killed)"
    assert describe_status(63).startswith("was killed by signal 63")

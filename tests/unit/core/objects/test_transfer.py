"""Transfers between arenas: whole, in parts, from a source that has it all or gets it, and what goes wrong."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count

import pytest

from mpi_runtime.core.objects import sends, transfer
from mpi_runtime.core.objects.arena import AgentArena, create
from mpi_runtime.core.objects.transfer import AT_ONCE, CHUNK_BYTES, Transfers
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Buffer, Transfer, TransportError
from mpi_runtime.core.transport.messages import Pull, Unpull
from mpi_runtime.scheduler.protocol.effects import Fetch
from mpi_runtime.scheduler.protocol.limits import PIPELINED_BYTES
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched
from tests.mpi import memory_transport
from tests.mpi.memory_transport import MemoryTransport, network

MIB = 1 << 20
CAPACITY = 96 * MIB
LARGE = PIPELINED_BYTES + 100_001


def transfers_of(transport: MemoryTransport, arena: AgentArena) -> Transfers:
    """Return transfers into an arena that has room now or not at all."""

    def ask(size: int, use: Callable[[int, str], None]) -> None:
        target = arena.allocate(size)
        use(-1 if target is None else target, arena.refusal(size) if target is None else "")

    return Transfers(transport, arena, ask, partial(free, arena))


def free(arena: AgentArena, offsets: Iterable[int]) -> None:
    """Free extents."""
    for offset in offsets:
        arena.free(offset)


class Peer:
    """A rank."""

    def __init__(self, transport: MemoryTransport, arena: AgentArena) -> None:
        self.transport, self.arena = transport, arena
        self.transfers = transfers_of(transport, arena)
        self.pulls: list[Pull | Unpull] = []

    def put(self, data: bytes) -> int:
        offset = self.arena.allocate(len(data))
        assert offset is not None
        self.arena.view(offset, len(data))[:] = data
        return offset

    def fetch(self, id: bytes, rank: int, offset: int, size: int, order: int = 1) -> None:
        self.transfers.fetch(Fetch(id, rank, offset, size, order))

    def hear(self) -> None:
        for rank, frame in self.transport.receive():
            for message in codec.between_ranks.decode(frame):
                assert isinstance(message, Pull | Unpull)
                self.pulls.append(message)
                if isinstance(message, Pull):
                    self.transfers.sends.add(rank, message)
                else:
                    self.transfers.sends.end(rank, message)

    def turn(self) -> list[Fetched | Arriving]:
        self.hear()
        return self.transfers.poll()

    def used(self) -> int:
        return self.arena.allocator.used


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    transports = network(6, hosts=list(range(6)))
    descriptors = [create(CAPACITY, 1) for _ in transports]
    arenas = [AgentArena(descriptor, 0) for descriptor in descriptors]
    yield [Peer(one, arena) for one, arena in zip(transports, arenas, strict=True)]
    for transport, arena, descriptor in zip(transports, arenas, descriptors, strict=True):
        transport.close(clean=True)
        arena.close()
        os.close(descriptor)


def until_quiet(peers: list[Peer]) -> list[Fetched]:
    """Let all ranks take turns until nothing is under way. Returns what has ended."""
    ended: list[Fetched] = []
    for _ in range(500):
        for peer in peers:
            ended += [report for report in peer.turn() if isinstance(report, Fetched)]
        if not any(peer.transfers.busy or peer.transport.busy for peer in peers):
            return ended
    raise AssertionError("the transfers do not end")


def arriving(reports: list[Fetched | Arriving]) -> Arriving:
    (report,) = reports
    assert isinstance(report, Arriving)
    return report


@pytest.mark.parametrize("size", [1, 64, 100_001, MIB + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
def test_an_object_arrives(peers: list[Peer], size: int) -> None:
    source, target = peers[1], peers[4]
    source.put(b"something else")
    data = os.urandom(size)
    offset = source.put(data)
    target.fetch(b"id", 1, offset, size, order=7)
    assert target.transfers.busy
    (fetched,) = until_quiet(peers)
    assert (fetched.rank, fetched.id, fetched.reason, fetched.order) == (4, b"id", "", 7)
    assert target.arena.view(fetched.offset, size) == data
    assert target.arena.free(fetched.offset) >= size
    assert not source.transfers.busy


def test_many_at_once_in_all_directions(peers: list[Peer]) -> None:
    wanted: dict[tuple[int, bytes], bytes] = {}
    for source, peer in enumerate(peers):
        for number in range(4):
            data = bytes([source, number]) * (1000 + 800_000 * number)
            offset = peer.put(data)
            for target in {(source + 1) % 6, (source + 3) % 6}:
                id = bytes([source, number])
                peers[target].fetch(id, source, offset, len(data))
                wanted[target, id] = data
    ended = until_quiet(peers)
    assert len(ended) == len(wanted)
    for fetched in ended:
        data = wanted.pop((fetched.rank, fetched.id))
        assert peers[fetched.rank].arena.view(fetched.offset, len(data)) == data


def test_requests_of_one_turn_go_in_one_frame_to_each_source_and_wait_for_their_turn(peers: list[Peer]) -> None:
    offsets = {rank: peers[rank].put(b"12345") for rank in (1, 2)}
    for number in range(2 * AT_ONCE):
        peers[0].fetch(number.to_bytes(2, "big"), 1 + number % 2, offsets[1 + number % 2], 5)
    for number in range(AT_ONCE):
        peers[0].fetch(b"more" + bytes([number]), 1, offsets[1], 5)
    assert peers[0].turn() == []
    for rank in (1, 2):
        ((_, frame),) = peers[rank].transport.receive()
        pulls = codec.between_ranks.decode(frame)
        assert len(pulls) == AT_ONCE
        for pull in pulls:
            assert isinstance(pull, Pull)
            peers[rank].transfers.sends.add(0, pull)
    assert len(until_quiet(peers)) == 3 * AT_ONCE


def test_all_receivers_get_their_chunks_in_turns_and_small_ones_do_not_wait(
    peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sends, "CHUNKS", 2)
    size = 3 * CHUNK_BYTES
    large, small = peers[0].put(bytes(size)), peers[0].put(b"small")
    for rank in (1, 2, 3):
        peers[rank].fetch(b"large", 0, large, size)
    peers[4].fetch(b"small", 0, small, 5)
    for peer in peers[1:]:
        peer.turn()
    ended: list[str] = []
    for _ in range(40):
        peers[0].turn()
        ended += [f"{report.rank}" for peer in peers[1:] for report in peer.turn()]
    assert ended[0] == "4"
    assert sorted(ended[1:]) == ["1", "2", "3"]
    assert until_quiet(peers) == []


def test_what_arrives_is_passed_on_in_parts(peers: list[Peer]) -> None:
    """From 0 to 1 to 2 to 3: nobody waits until the one before has it all."""
    data = os.urandom(LARGE)
    offset, begun = peers[0].put(data), []
    for rank in (1, 2, 3):
        peers[rank].fetch(b"id", rank - 1, offset, LARGE, order=rank)
        report = arriving(peers[rank].turn())
        assert (report.rank, report.id, report.order) == (rank, b"id", rank)
        offset = report.offset
    ended: list[Fetched] = []
    while len(ended) < 3:
        for peer in (*peers[3:0:-1], peers[0]):  # so that nothing goes through two ranks in one round
            ended += [report for report in peer.turn() if isinstance(report, Fetched)]
            begun.append(peer.transfers)
        parts = [one.arrived for peer in peers[1:4] for one in peer.transfers._by_target.values()]
        assert parts == sorted(parts, reverse=True)
    assert [fetched.rank for fetched in ended] == [1, 2, 3]
    for fetched in ended:
        assert peers[fetched.rank].arena.view(fetched.offset, LARGE) == data
    assert until_quiet(peers) == []


def half(peer: Peer, source: Peer, size: int = LARGE) -> int:
    """Let the first chunk come; returns how much is there."""
    for _ in range(2):
        source.turn()
        peer.turn()
    (one,) = peer.transfers._by_target.values()
    assert 0 < one.arrived < size
    return one.arrived


def test_a_transfer_that_is_stopped_frees_its_memory_and_the_source(peers: list[Peer]) -> None:
    offset = peers[0].put(bytes(LARGE))
    peers[1].fetch(b"id", 0, offset, LARGE)
    peers[1].turn()
    half(peers[1], peers[0])
    peers[1].transfers.stop(b"id")
    assert until_quiet(peers) == []
    assert peers[1].used() == 0
    assert not peers[0].transfers.busy
    assert peers[1].transfers._tags == set()


@pytest.mark.parametrize("ask_again", [True, False])
def test_what_waits_for_room_can_be_stopped(peers: list[Peer], ask_again: bool) -> None:
    offset, asked = peers[0].put(b"12345"), []
    target = Transfers(
        peers[1].transport, peers[1].arena, lambda size, use: asked.append(use), partial(free, peers[1].arena)
    )
    peers[1].transfers = target
    target.fetch(Fetch(b"id", 0, offset, 5, 1))
    target.fetch(Fetch(b"id", 0, offset, 5, 2))
    target.stop(b"id")
    if ask_again:
        target.fetch(Fetch(b"id", 0, offset, 5, 3))
    for use in asked:
        extent = peers[1].arena.allocate(5)
        assert extent is not None
        use(extent, "")
    assert [fetched.order for fetched in until_quiet(peers)] == [3] * ask_again
    assert peers[1].used() == 64 * ask_again
    assert len(asked) == 1 + ask_again


def test_a_transfer_goes_on_from_another_source(peers: list[Peer]) -> None:
    """The first source gives up; the one behind notices nothing."""
    data = os.urandom(LARGE)
    first, second = peers[0].put(data), peers[5].put(data)
    peers[1].fetch(b"id", 0, first, LARGE, order=1)
    middle = arriving(peers[1].turn()).offset
    peers[2].fetch(b"id", 1, middle, LARGE, order=2)
    peers[2].turn()
    had = half(peers[1], peers[0])
    peers[0].arena.free(first)
    ended = []
    for _ in range(20):
        ended += [report for peer in peers[:3] for report in peer.turn() if isinstance(report, Fetched)]
    (lost,) = ended
    assert (lost.rank, lost.offset, lost.is_lost, lost.order) == (1, -1, True, 1)
    assert lost.reason == "rank 0 no longer has it"
    assert not peers[0].transfers.busy
    peers[1].fetch(b"id", 5, second, LARGE, order=3)
    ended = until_quiet(peers)
    assert [(fetched.rank, fetched.order) for fetched in ended] == [(1, 3), (2, 2)]
    for fetched in ended:
        assert peers[fetched.rank].arena.view(fetched.offset, LARGE) == data
    (pull,) = peers[5].pulls
    assert isinstance(pull, Pull)
    assert pull.start >= had


def test_an_order_for_another_source_is_followed_at_once(peers: list[Peer]) -> None:
    data = os.urandom(LARGE)
    first, second = peers[0].put(data), peers[5].put(data)
    peers[1].fetch(b"id", 0, first, LARGE, order=1)
    peers[1].turn()
    half(peers[1], peers[0])
    peers[1].fetch(b"id", 5, second, LARGE, order=2)
    (fetched,) = until_quiet(peers)
    assert fetched.order == 2
    assert peers[1].arena.view(fetched.offset, LARGE) == data
    assert not peers[0].transfers.busy


def test_the_end_of_the_job_stops_everything(peers: list[Peer]) -> None:
    """Also where somebody waits for parts that will never come."""
    offset = peers[0].put(bytes(LARGE))
    peers[1].fetch(b"id", 0, offset, LARGE)
    middle = arriving(peers[1].turn()).offset
    peers[2].fetch(b"id", 1, middle, LARGE)
    peers[2].turn()
    peers[1].hear()
    for rank in range(3):
        peers[rank].transfers.stop_all()
    assert until_quiet(peers) == []
    assert peers[1].used() == peers[2].used() == 0


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_left_behind_however_a_transfer_ends(
    peers: list[Peer], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks take turns at random, and receivers and sources give up at random. MPI may send before it is received."""
    if seed % 2:
        send = MemoryTransport.send_bulk

        def send_eagerly(self: MemoryTransport, rank: int, tag: int, buffer: Buffer) -> Transfer:
            sent = send(self, rank, tag, bytes(buffer))
            assert isinstance(sent, memory_transport._Send)
            sent.finished = True
            return sent

        monkeypatch.setattr(MemoryTransport, "send_bulk", send_eagerly)
    monkeypatch.setattr(transfer, "CHUNK_BYTES", MIB // 4)
    chance = random.Random(seed)
    size = chance.choice([1, MIB // 4, MIB // 4 + 1, MIB, 3 * MIB + 17])
    data = os.urandom(size)
    offsets = [peer.put(data) for peer in peers[:2]]
    for order in range(1, 12):
        id = b"%d" % chance.randrange(3)
        peers[2].fetch(id, chance.randrange(2), chance.choice([*offsets, CAPACITY - 64]), size, order)
        for _ in range(chance.randrange(12)):
            chance.choice(peers[:3]).turn()
        if chance.random() < 0.5:
            peers[2].transfers.stop(id)
    for number in range(3):
        peers[2].fetch(b"%d" % number, number % 2, offsets[number % 2], size, 100)
    ended = {fetched.id: fetched for fetched in until_quiet(peers) if fetched.order == 100}
    assert len(ended) == 3
    assert all(peers[2].arena.view(one.offset, size) == data for one in ended.values())
    assert not any(queue for peer in peers for queue in peer.transport._inbox.bulk.values())


def test_no_room(peers: list[Peer]) -> None:
    offset = peers[0].put(bytes(MIB))
    peers[1].put(bytes(CAPACITY - MIB + 1))
    peers[1].fetch(b"id", 0, offset, MIB, order=4)
    assert peers[1].transfers.busy
    (fetched,) = peers[1].turn()
    assert isinstance(fetched, Fetched)
    assert (fetched.rank, fetched.id, fetched.offset, fetched.order) == (1, b"id", -1, 4)
    assert "no room for an object of 1.0 MiB" in fetched.reason
    assert not peers[1].transfers.busy
    assert peers[0].transport.receive() == []


def test_who_asks_for_what_is_not_there_is_told_so(peers: list[Peer]) -> None:
    offset = peers[0].put(b"x" * 64)
    for order, (place, size) in enumerate([(offset, 65), (offset + 64, 1)]):
        peers[3].fetch(bytes([order]), 0, place, size, order)
    ended = until_quiet(peers)
    assert [(fetched.offset, fetched.is_lost) for fetched in ended] == [(-1, True)] * 2
    for order in range(2):
        peers[3].transfers.stop(bytes([order]))
    assert peers[3].used() == 0
    assert not peers[0].transfers.busy


class Failing:
    """A transfer whose peer is lost."""

    received = 0

    def done(self) -> bool:
        raise TransportError("it is gone")


class Broken(MemoryTransport):
    """Loses its peers: at once, or in the middle of every transfer."""

    at_once = False

    def send(self, rank: int, frame: Buffer) -> None:
        if self.at_once:
            raise TransportError("it is gone")

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Failing:
        if self.at_once:
            raise TransportError("it is gone")
        return Failing()

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Failing:
        if self.at_once:
            raise TransportError("it is gone")
        return Failing()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_lost_peer(peers: list[Peer], at_once: bool) -> None:
    arena = peers[0].arena
    broken = Broken(0, [0, 1], [peers[0].transport._inbox] * 2)
    broken.at_once = at_once
    transfers = transfers_of(broken, arena)
    offset = peers[0].put(bytes(2 * MIB))
    transfers.fetch(Fetch(b"id", 1, 0, 2 * MIB, 1))
    for tag in range(3):
        transfers.sends.add(1, Pull(tag, offset, 2 * MIB, 0, CHUNK_BYTES))
    transfers.sends.add(1, Pull(3, offset, 10, 0, CHUNK_BYTES))
    (ended,) = [report for _ in range(4) for report in transfers.poll()]
    assert isinstance(ended, Fetched)
    assert (ended.id, ended.offset, ended.is_lost) == (b"id", -1, True)
    assert "rank 1 was lost while it sent the object: it is gone" in ended.reason
    assert not transfers.busy
    transfers.stop(b"id")
    assert arena.allocator.used == 2 * MIB


def test_a_receiver_that_dies_is_forgotten(peers: list[Peer]) -> None:
    peers[0].transfers.sends.add(1, Pull(0, 64, 10, 0, CHUNK_BYTES))
    assert peers[0].transfers.busy  # it waits for an answer to its refusal
    peers[0].transport.lost = (1,)
    peers[0].transfers.poll()
    assert not peers[0].transfers.busy


def test_tags_are_unique_and_come_round(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BULK_TAGS", 3)
    offset = peers[0].put(b"12345")
    for number in range(5):
        peers[1].fetch(bytes([number]), 0, offset, 5)
    assert len(until_quiet(peers)) == 5
    assert [pull.tag for pull in peers[0].pulls] == [0, 1, 2, 0, 1]


def test_chunks_fit_the_speed_of_their_source(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    now = count()
    offset = peers[0].put(bytes(LARGE))
    for seconds, chunk in ((0.5, CHUNK_BYTES), (0.5, 256 << 10), (0.001, 256 << 10), (0.001, CHUNK_BYTES)):
        monkeypatch.setattr(time, "monotonic", lambda seconds=seconds: next(now) * seconds)
        peers[1].fetch(b"id", 0, offset, LARGE)
        (fetched,) = until_quiet(peers)
        peers[1].arena.free(fetched.offset)
        pull = peers[0].pulls[-1]
        assert isinstance(pull, Pull)
        assert pull.chunk == chunk

"""Transfers between the arenas of hosts, over a network inside this process and over one that fails."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from mpi_runtime.objects.arena import AgentArena, create
from mpi_runtime.objects.transfer import FAN_OUT, SMALL, Transfers
from mpi_runtime.scheduler.rank_events import Fetched
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Buffer, Transfer, TransportError
from mpi_runtime.transport.memory import MemoryTransport, network
from mpi_runtime.transport.messages import Pull

MIB = 1 << 20
CAPACITY = 32 * MIB


class Peer(NamedTuple):
    """One rank, alone on its host."""

    transport: MemoryTransport
    arena: AgentArena
    transfers: Transfers

    def put(self, data: bytes) -> int:
        offset = self.arena.allocate(len(data))
        assert offset is not None
        self.arena.view(offset, len(data))[:] = data
        return offset

    def turn(self) -> list[Fetched]:
        for sender, frame in self.transport.receive():
            for message in codec.between_ranks.decode(frame):
                assert isinstance(message, Pull)
                self.transfers.on_pull(sender, message)
        return self.transfers.poll()


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    transports = network(6, hosts=list(range(6)))
    descriptors = [create(CAPACITY, 1) for _ in transports]
    arenas = [AgentArena(descriptor, 0) for descriptor in descriptors]
    yield [Peer(one, arena, Transfers(one, arena)) for one, arena in zip(transports, arenas, strict=True)]
    for transport, arena, descriptor in zip(transports, arenas, descriptors, strict=True):
        transport.close(clean=True)
        arena.close()
        os.close(descriptor)


def until_quiet(peers: list[Peer]) -> list[Fetched]:
    """Let all ranks take turns until nothing is under way."""
    ended: list[Fetched] = []
    for _ in range(100):
        for peer in peers:
            ended += peer.turn()
        if not any(peer.transfers.busy or peer.transport.busy for peer in peers):
            return ended
    raise AssertionError("the transfers do not end")


@pytest.mark.parametrize("size", [1, 64, 100_001, SMALL, SMALL + 1, 5 * MIB])
def test_an_object_arrives(peers: list[Peer], size: int) -> None:
    source, target = peers[1], peers[4]
    source.put(b"something else")
    data = os.urandom(size)
    offset = source.put(data)
    target.transfers.fetch(b"id", 1, offset, size)
    assert target.transfers.busy
    (fetched,) = until_quiet(peers)
    assert (fetched.rank, fetched.id, fetched.reason) == (4, b"id", "")
    assert target.arena.view(fetched.offset, size) == data
    assert target.arena.free(fetched.offset) >= size
    assert not source.transfers.busy


def test_many_at_once_in_all_directions(peers: list[Peer]) -> None:
    wanted: dict[tuple[int, bytes], bytes] = {}
    for source, peer in enumerate(peers):
        for number in range(4):
            data = bytes([source, number]) * (1000 + 300_000 * number)
            offset = peer.put(data)
            for target in {(source + 1) % 6, (source + 3) % 6}:
                id = bytes([source, number])
                peers[target].transfers.fetch(id, source, offset, len(data))
                wanted[target, id] = data
    ended = until_quiet(peers)
    assert len(ended) == len(wanted)
    for fetched in ended:
        data = wanted.pop((fetched.rank, fetched.id))
        assert peers[fetched.rank].arena.view(fetched.offset, len(data)) == data


def test_large_sends_take_turns_and_small_ones_do_not_wait(peers: list[Peer]) -> None:
    source = peers[0]
    large, small = source.put(bytes(SMALL + 1)), source.put(b"small")
    for target in peers[1:]:
        target.transfers.fetch(b"large", 0, large, SMALL + 1)
    peers[1].transfers.fetch(b"small", 0, small, 5)
    assert source.turn() == []
    # The source has seen all requests and started what it may.
    ended = [fetched for target in peers[1:] for fetched in target.turn()]
    assert sorted(fetched.id for fetched in ended) == [b"large"] * FAN_OUT + [b"small"]
    assert source.transfers.busy
    source.turn()
    ended = [fetched for target in peers[1:] for fetched in target.turn()]
    assert len(ended) == FAN_OUT
    assert [fetched.id for fetched in until_quiet(peers)] == [b"large"]
    assert not source.transfers.busy


def test_no_room(peers: list[Peer]) -> None:
    offset = peers[0].put(bytes(MIB))
    peers[1].put(bytes(CAPACITY - MIB + 1))
    peers[1].transfers.fetch(b"id", 0, offset, MIB)
    assert peers[1].transfers.busy
    (fetched,) = peers[1].turn()
    assert (fetched.rank, fetched.id, fetched.offset) == (1, b"id", -1)
    assert "no room for an object of 1048576 bytes" in fetched.reason
    assert not peers[1].transfers.busy
    assert peers[0].transport.receive() == []


def test_a_wrong_request_is_refused_by_name(peers: list[Peer]) -> None:
    offset = peers[0].put(b"x" * 64)
    for wrong in (Pull(0, offset, 65), Pull(0, offset + 64, 1)):
        with pytest.raises(ValueError, match="rank 3 asked for"):
            peers[0].transfers.on_pull(3, wrong)
    assert not peers[0].transfers.busy


class Failing:
    """A transfer whose peer is lost."""

    def done(self) -> bool:
        raise TransportError("it is gone")


class Broken(MemoryTransport):
    """Loses its peers: at once, or in the middle of every transfer."""

    at_once = False

    def send(self, rank: int, frame: Buffer) -> None:
        if self.at_once:
            raise TransportError("it is gone")

    def send_bulk(self, rank: int, tag: int, buffer: Buffer) -> Transfer:
        if self.at_once:
            raise TransportError("it is gone")
        return Failing()

    def receive_bulk(self, rank: int, tag: int, buffer: memoryview) -> Transfer:
        return Failing()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_lost_peer(peers: list[Peer], at_once: bool) -> None:
    arena = peers[0].arena
    broken = Broken(0, [0, 1], [peers[0].transport._inbox] * 2)
    broken.at_once = at_once
    transfers = Transfers(broken, arena)
    offset = peers[0].put(bytes(2 * MIB))
    transfers.fetch(b"id", 1, 0, 2 * MIB)
    for _ in range(3):
        transfers.on_pull(1, Pull(0, offset, 2 * MIB))
    transfers.on_pull(1, Pull(0, offset, 10))
    ended = [fetched for _ in range(4) for fetched in transfers.poll()]
    assert [(fetched.id, fetched.offset) for fetched in ended] == [(b"id", -1)]
    assert "rank 1" in ended[0].reason
    assert "it is gone" in ended[0].reason
    assert ended[0].is_lost
    assert not transfers.busy
    assert arena.statistics().used == 2 * MIB


def test_tags_are_unique_and_come_round(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_runtime.objects.transfer.TAGS", 3)
    offset = peers[0].put(b"12345")

    def tags() -> list[int]:
        frames = [frame for _, frame in peers[0].transport.receive()]
        pulls = [message for frame in frames for message in codec.between_ranks.decode(frame)]
        for pull in pulls:
            assert isinstance(pull, Pull)
            peers[0].transfers.on_pull(1, pull)
        return [pull.tag for pull in pulls if isinstance(pull, Pull)]

    for number in range(5):
        peers[1].transfers.fetch(bytes([number]), 0, offset, 5)
    assert tags() == [0, 1, 2]
    ended = peers[1].transfers.poll()
    assert [fetched.offset == -1 for fetched in ended] == [True, True, False, False, False]
    assert "3 transfers under way already" in ended[0].reason
    peers[1].transfers.fetch(b"again", 0, offset, 5)
    assert tags() == [0]
    assert [fetched.id for fetched in peers[1].transfers.poll()] == [b"again"]
    assert until_quiet(peers) == []

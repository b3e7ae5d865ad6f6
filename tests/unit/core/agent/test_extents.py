"""What clients were given of the arena: who has what, who waits for room, and what a dead client leaves."""

from types import SimpleNamespace
from typing import Any, cast

from mpi_runtime.core.agent.extents import AHEAD_MAX, AHEAD_S, ALLOCATE_RETRY_S, ALLOCATE_WAIT_S, NOBODY, Extents
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.messages import Ahead, Allocate, Allocated, GiveBack

RANK = 3


class Arena:
    """Room for so many extents, numbered from 0; the lowest free one is given."""

    def __init__(self, room: int) -> None:
        self.layout = SimpleNamespace(capacity=100)
        self.vacant = list(range(room))

    def allocate(self, size: int) -> int | None:
        return self.vacant.pop(0) if self.vacant and size <= self.layout.capacity else None

    def free(self, offset: int) -> None:
        assert offset not in self.vacant
        self.vacant = sorted([*self.vacant, offset])

    def size(self, offset: int) -> int:
        return 1

    def plentiful(self, size: int) -> int:
        return len(self.vacant) // 2 // size

    def lacking(self, sizes: list[int]) -> int:
        return sum(sizes)

    def refusal(self, size: int) -> str:
        return f"no room for {size}"


class Desk:
    """Extents with an arena, a clock, and what clients were told."""

    def __init__(self, room: int) -> None:
        self.arena = Arena(room)
        self.now = 0.0
        self.told: list[Allocated] = []
        self.reports: list[object] = []
        self.others: list[Ahead | GiveBack] = []
        """What was told besides answers."""
        agent = SimpleNamespace(
            rank=RANK,
            poller=SimpleNamespace(send=self.hear),
            now_s=lambda: self.now,
            report=self.reports.append,
            wake=lambda: None,
        )
        self.extents = Extents(cast(Any, self.arena), cast(Any, agent))
        self.requests = 0
        self.channel: Channel = cast(Channel, SimpleNamespace(add_to_next=lambda frame: self.hear(self.channel, frame)))

    def hear(self, channel: Channel, frame: bytes) -> None:
        for message in cast(list[Allocated | Ahead | GiveBack], codec.to_client.decode(frame)):
            if isinstance(message, Allocated):
                self.told.append(message)
            else:
                self.others.append(message)

    def ask(self, client: int, size: int = 1, ahead: int = 0) -> int:
        """Ask for memory; the number of the request."""
        self.requests += 1
        self.extents.allocate(client, self.channel, Allocate(self.requests, size, ahead))
        return self.requests

    def answers(self) -> list[tuple[int, int]]:
        """Request and offset of what was told since the last call."""
        told, self.told = self.told, []
        assert all(answer.rank == RANK for answer in told)
        return [(answer.request, answer.offset) for answer in told]


def test_requests_that_find_no_room_are_answered_in_order_when_there_is_some() -> None:
    desk = Desk(room=1)
    first, second, third = desk.ask(1), desk.ask(2), desk.ask(1)
    assert desk.answers() == [(first, 0)]
    assert desk.extents.serve_waiting() == ALLOCATE_RETRY_S
    desk.extents.free([0])
    assert desk.answers() == [(second, 0)]
    desk.extents.free([0])
    assert desk.answers() == [(third, 0)]
    assert desk.extents.serve_waiting() is None


def test_who_has_waited_too_long_is_refused_and_who_asks_for_too_much_at_once() -> None:
    desk = Desk(room=1)
    desk.ask(1)
    late = desk.ask(2)
    large = desk.ask(3, size=1000)
    assert desk.answers() == [(1, 0), (large, -1)]
    desk.now = ALLOCATE_WAIT_S
    assert desk.extents.serve_waiting() is None
    assert desk.answers() == [(late, -1)]


def test_copies_get_as_much_time_again_when_those_before_them_are_refused() -> None:
    desk = Desk(room=1)
    desk.ask(1)
    late = desk.ask(2)
    copies: list[int] = []
    desk.extents.ask(1, NOBODY, lambda offset, reason: copies.append(offset))
    desk.now = ALLOCATE_WAIT_S
    assert desk.extents.serve_waiting() == ALLOCATE_RETRY_S
    assert (desk.answers(), copies) == ([(1, 0), (late, -1)], [])
    desk.now += 0.9 * ALLOCATE_WAIT_S
    assert desk.extents.serve_waiting() == ALLOCATE_RETRY_S
    desk.now += 0.2 * ALLOCATE_WAIT_S
    assert desk.extents.serve_waiting() is None
    assert copies == [-1]


def test_a_dead_client_gets_nothing_and_what_it_had_is_freed_once() -> None:
    desk = Desk(room=2)
    desk.ask(1)
    desk.ask(1)
    waiting = desk.ask(1)
    desk.extents.drop_requests(1)
    assert sorted(desk.extents.of(1)) == [0, 1]
    desk.extents.free([1])
    other = desk.ask(2)
    assert desk.answers()[2:] == [(other, 1)]
    assert waiting == 3
    desk.extents.free_of(1, [0, 1])  # 1 is another's by now
    assert desk.arena.vacant == [0]
    assert desk.extents.of(2) == [1]


def test_extents_are_given_ahead_where_memory_is_plentiful() -> None:
    desk = Desk(room=8)
    desk.ask(1, ahead=3)
    assert desk.answers() == [(1, 0)]
    assert desk.others == [Ahead(RANK, 1, [1, 2, 3])]
    desk.ask(2, ahead=3)
    assert desk.answers() == [(2, 4)]
    assert desk.others[1:] == [Ahead(RANK, 1, [5])], "of three that are left, one is plenty"
    desk.ask(3, ahead=3)
    assert desk.answers() == [(3, 6)]
    assert len(desk.others) == 2, "one is left, and that is not plenty"
    assert desk.extents.of(1) == [0, 1, 2, 3]
    assert desk.extents.abandon(1, 3)
    assert not desk.extents.abandon(2, 2), "it is not its own"


def test_nobody_is_given_more_than_a_few_ahead() -> None:
    desk = Desk(room=100)
    desk.ask(1, ahead=10**6)
    assert [len(message.offsets) for message in desk.others if isinstance(message, Ahead)] == [AHEAD_MAX]


def test_what_was_given_ahead_is_wanted_back_when_another_finds_no_room() -> None:
    desk = Desk(room=8)
    desk.ask(1, ahead=3)
    for client in range(2, 6):
        desk.ask(client)
    assert len(desk.answers()) == 5
    late = desk.ask(6)
    assert desk.others[1:] == [GiveBack()]
    assert desk.extents.abandon(1, 3)
    assert desk.answers() == [(late, 3)]
    desk.ask(7)
    assert len(desk.others) == 2, "it was asked once"


def test_what_was_given_ahead_is_wanted_back_after_a_while_without_requests() -> None:
    desk = Desk(room=8)
    desk.ask(1, ahead=1)
    assert desk.extents.serve_waiting() == AHEAD_S
    desk.now = 0.9
    desk.ask(1, ahead=1)
    desk.now = 1.5
    assert desk.extents.serve_waiting() == AHEAD_S
    assert [type(message) for message in desk.others] == [Ahead, Ahead]
    desk.now = 3.0
    assert desk.extents.serve_waiting() is None
    assert [type(message) for message in desk.others] == [Ahead, Ahead, GiveBack]


def test_who_has_ended_is_not_asked_for_anything() -> None:
    desk = Desk(room=8)
    desk.ask(1, ahead=1)
    desk.extents.drop_requests(1)
    assert desk.extents.serve_waiting() is None
    assert [type(message) for message in desk.others] == [Ahead]


def test_what_a_client_has_used_returns_to_it_and_never_more_than_it_wants() -> None:
    desk = Desk(room=16)
    desk.ask(1, ahead=2)
    assert desk.others.pop() == Ahead(RANK, 1, [1, 2])
    desk.extents.free([0])
    assert not desk.others, "it has two"
    desk.extents.free([1, 2])
    assert desk.others == [Ahead(RANK, 1, [1]), Ahead(RANK, 1, [2])]
    assert desk.extents.of(1) == [1, 2]
    assert 0 in desk.arena.vacant
    desk.ask(1, ahead=2)  # so it has used all
    assert desk.others.pop() == Ahead(RANK, 1, [3, 4])
    desk.extents.free([1, 3])
    assert desk.others[2:] == [Ahead(RANK, 1, [3])], "with 4 these are two"
    assert desk.extents.abandon(1, 3)
    assert 3 in desk.arena.vacant, "what it does not want is free"


def test_nothing_returns_to_its_client_where_memory_is_short_or_the_client_is_gone() -> None:
    desk = Desk(room=6)
    desk.ask(1, ahead=1)
    desk.extents.free([1])
    assert desk.others == [Ahead(RANK, 1, [1])] * 2
    for client in (2, 3):
        desk.ask(client)
    desk.extents.free([1])
    assert (len(desk.others), desk.arena.vacant) == (3, [4, 5])
    desk.ask(4)
    desk.extents.free([1])
    assert (len(desk.others), desk.arena.vacant) == (3, [1, 5]), "two are left, and that is not plenty"
    desk.ask(1)
    desk.extents.drop_requests(1)
    desk.extents.free([2, 3, 4])
    assert (len(desk.others), desk.arena.vacant) == (3, [2, 3, 4, 5])
    desk.extents.free_of(1, desk.extents.of(1))
    assert (len(desk.others), desk.arena.vacant) == (3, [0, 1, 2, 3, 4, 5])

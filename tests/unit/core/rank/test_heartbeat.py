"""Signs of life: who is silent for too long is lost, who was not listened to is not."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.core.rank.heartbeat import Heartbeat, LostError
from mpi_runtime.core.transport import codec


class Wire:
    """A transport of rank 0 that notes what is sent: ranks 0 and 1 on one host, 2 and 3 on others."""

    rank = 0
    hosts = (0, 0, 2, 3)
    hostnames = ("a", "a", "b", "c")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, rank: int, frame: Any) -> None:
        assert codec.between_ranks.decode(frame) == []
        self.sent.append(rank)


class World:
    def __init__(self, timeout_s: float = 30.0) -> None:
        self.now = 100.0
        self.wire = Wire()
        self.heartbeat = Heartbeat(self.wire, timeout_s, lambda: self.now)  # type: ignore[arg-type]

    def advance(self, seconds: float, *heard: int) -> None:
        """In steps in which the rank takes its turn, hearing these."""
        end = self.now + seconds
        while self.now < end:
            self.heartbeat.seen.update(heard)
            pause = self.heartbeat.turn()
            self.now = min(end, self.now + (pause if pause is not None else seconds))


def test_signs_go_to_other_hosts_alone_and_in_time() -> None:
    world = World()
    assert world.heartbeat.turn() is None, "nobody is expected yet"
    world.heartbeat.expect(range(4))
    assert world.heartbeat.turn() == 3.0
    assert world.wire.sent == [2, 3]
    world.now += 2.0
    assert world.heartbeat.turn() == 1.0
    assert world.wire.sent == [2, 3], "not before it is time"
    world.advance(300.0, 2, 3)
    assert len(world.wire.sent) == 2 * 101


def test_who_is_silent_is_lost_in_time() -> None:
    world = World()
    world.heartbeat.expect([2, 3])
    world.advance(50.0, 2, 3)
    silent_s = world.now
    with pytest.raises(LostError, match=r"rank 3 on c: nothing was heard for 30 s, .*heartbeat_timeout_s"):
        world.advance(100.0, 2)
    assert 27.0 <= world.now - silent_s <= 33.0


def test_time_in_which_nobody_listened_does_not_count() -> None:
    """The process was stopped, or its host slept."""
    world = World()
    world.heartbeat.expect([2])
    world.advance(10.0, 2)
    world.now += 3600.0
    world.heartbeat.turn()
    world.advance(20.0)
    world.advance(20.0, 2)


def test_nobody_is_expected_when_it_is_off_or_over() -> None:
    world = World(timeout_s=0.0)
    world.heartbeat.expect([2])
    assert world.heartbeat.turn() is None
    world = World()
    world.heartbeat.expect([2])
    world.advance(10.0, 2)
    world.heartbeat.stop()
    world.now += 1000.0
    assert world.heartbeat.turn() is None

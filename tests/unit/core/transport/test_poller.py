"""What a rank process waits on: how often it looks for more before it answers."""

import os
from collections.abc import Iterator

import pytest

from mpi_runtime.core.transport import poller as polling
from mpi_runtime.core.transport.poller import ALONE_MAX, Poller


class Desk:
    """A poller with one descriptor, and how often it was polled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.poller = Poller()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.more = 0
        """How often it rings again while it is read."""
        self.polls = 0
        self.poller.add(self.bell, self._read)
        poll = self.poller.poll

        def counted(timeout_s: float | None) -> bool:
            self.polls += 1
            return poll(timeout_s)

        monkeypatch.setattr(self.poller, "poll", counted)

    def _read(self) -> None:
        os.eventfd_read(self.bell)
        if self.more:
            self.more -= 1
            os.eventfd_write(self.bell, 1)

    def turn(self, more: int = 0) -> int:
        """Ring, and gather; how often was looked."""
        self.polls, self.more = 0, more
        os.eventfd_write(self.bell, 1)
        assert self.poller.gather(1.0)
        return self.polls


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(polling, "GATHER_S", 60.0)
    made = Desk(monkeypatch)
    yield made
    made.poller.close()
    os.close(made.bell)


def test_what_comes_while_a_rank_reads_is_read_in_the_same_turn(desk: Desk) -> None:
    assert desk.turn(more=5) == 7
    assert desk.more == 0


def test_where_nothing_more_ever_comes_it_is_looked_for_in_one_of_eight_turns_and_then_again_in_each(
    desk: Desk,
) -> None:
    assert [desk.turn() for _ in range(ALONE_MAX)] == [2] * ALONE_MAX
    assert [desk.turn() for _ in range(ALONE_MAX)] == [*[1] * (ALONE_MAX - 1), 2]
    assert [desk.turn() for _ in range(ALONE_MAX - 1)] == [1] * (ALONE_MAX - 1)
    assert desk.turn(more=1) == 3
    assert desk.turn() == 2

"""Objects that come back from disk, in every order with what becomes of them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.core.agent.spills import Spills
from mpi_runtime.core.transport.codec import BadFrameError
from mpi_runtime.scheduler.protocol.effects import Erase, Restore, Spill
from mpi_runtime.scheduler.protocol.rank_events import Fetched, Spilled
from tests.helpers import wait_until

SIZE = 8192
A, B = b"a" * 16, b"b" * 16


class Host:
    """Memory in which each extent has one size. What asks for one waits until the test gives it."""

    def __init__(self, folder: Path) -> None:
        self.memory = bytearray(16 * SIZE)
        self.asked: list[Callable[[int, str], None]] = []
        self.freed: list[int] = []
        self.said: list[Any] = []
        self.is_full = True
        self._next = 8 * SIZE
        self._bells: list[Callable[[], None]] = []
        self.spills = Spills(3, lambda: str(folder), self, self, self, self.said.append)  # type: ignore[arg-type]

    def view(self, offset: int, size: int) -> memoryview:
        return memoryview(self.memory)[offset : offset + size]

    def ask(self, size: int, client: int, use: Callable[[int, str], None]) -> None:
        self.asked.append(use)
        if not self.is_full:
            self.give()

    def give(self) -> int:
        """Give an extent to who has asked first."""
        self._next += SIZE
        self.asked.pop(0)(self._next, "")
        return self._next

    def free(self, offsets: list[int]) -> None:
        self.freed += offsets

    def add(self, descriptor: int, act: Callable[[], None]) -> None:
        self._bells.append(act)

    def remove(self, descriptor: int) -> None:
        pass

    def hears(self, count: int) -> list[Any]:
        """Wait until it has said so much."""

        def has_said() -> bool:
            for bell in self._bells:
                bell()
            return len(self.said) >= count

        wait_until(has_said)
        said = self.said[:]
        self.said.clear()
        return said

    def spill(self, id: bytes, place: int) -> int:
        """Write an extent to disk; where it is there."""
        self.memory[place : place + SIZE] = id * (SIZE // len(id))
        self.spills.obey(Spill(id, place, SIZE))
        [told] = self.hears(1)
        assert isinstance(told, Spilled)
        return told.offset


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.spills.close()


def test_an_object_that_is_erased_while_it_waits_for_memory_is_told_to_be_gone(host: Host) -> None:
    offset = host.spill(A, 0)
    host.spills.obey(Restore(A, offset, SIZE, 7))
    host.spills.obey(Erase([offset]))
    place = host.give()
    assert host.said == [Fetched(3, A, -1, "it was erased while it waited for memory", is_lost=True, order=7)]
    assert host.freed == [place]


def test_an_object_that_is_asked_for_again_while_it_is_read_is_told_of_with_its_own_bytes(host: Host) -> None:
    first, second = host.spill(A, 0), host.spill(B, SIZE)
    for order, (id, offset) in enumerate([(A, first), (A, first), (B, second), (A, first)], 1):
        host.spills.obey(Restore(id, offset, SIZE, order))
    places = [host.give() for _ in range(4)]
    told = host.hears(4)
    assert told == [Fetched(3, id, places[at], order=at + 1) for at, id in enumerate([A, A, B, A])]
    for one in told:
        assert bytes(host.view(one.offset, SIZE)) == one.id * (SIZE // 16)


def test_what_was_never_there_is_a_bad_frame(host: Host) -> None:
    host.spill(A, 0)
    host.is_full = False
    with pytest.raises(BadFrameError, match="are not an object"):
        host.spills.obey(Restore(B, 5 * SIZE, SIZE, 1))
    assert len(host.freed) == 1

"""Drafts: what an executor has said and not sent is heard after its death, all of it or nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.core.agent.executors import Drafts
from mpi_runtime.core.transport import codec, unsent_frame
from mpi_runtime.core.transport.unsent_frame import SIZE, Draft, Memory, left
from mpi_runtime.scheduler.protocol.events import Done, Held, Returned, Value


class Stores:
    """Memory that has a copy of itself after each store."""

    def __init__(self) -> None:
        self.bytes = bytearray(SIZE)
        self.copies = [bytes(SIZE)]

    def __getitem__(self, where: slice) -> bytes:
        return bytes(self.bytes[where])

    def __setitem__(self, where: int | slice, value: Any) -> None:
        if isinstance(where, slice):
            self.bytes[where] = value
        else:
            memoryview(self.bytes).cast("Q")[where] = value
        assert len(self.bytes) == SIZE
        self.copies.append(bytes(self.bytes))


def done(number: int, size: int = 5) -> Done:
    return Done(bytes([number] * 16), bytes([number] * size), number)


def read(found: tuple[int, bytes] | None) -> list[Any]:
    assert found is not None
    messages = codec.from_client.decode(found[1])
    assert found[0] == sum(isinstance(message, Done | Returned) for message in messages)
    return messages


@pytest.fixture
def memory() -> Stores:
    return Stores()


@pytest.fixture
def prepared(memory: Stores) -> Draft:
    return Draft(Memory(memory, memory))


def test_what_was_added_is_sent_and_is_left(memory: Stores, prepared: Draft) -> None:
    said: list[Any] = [Held([b"x" * 16]), done(1), Returned(b"y" * 16, [Value(b"z")], 1), done(2)]
    assert prepared.add(said[:3], 2)
    assert prepared.add(said[3:], 1)
    assert read(left(memory.copies[-1], 0)) == said
    assert read(prepared.frame([], 0)) == said
    assert read(prepared.frame([done(3), Held([b"w" * 16])], 1)) == [*said, done(3), Held([b"w" * 16])]
    prepared.sent()
    assert prepared.count == 0
    assert left(memory.copies[-1], 0) is None
    assert left(memory.copies[-1], 1) is None


def test_after_each_store_there_is_what_was_there_or_what_comes(memory: Stores, prepared: Draft) -> None:
    """Wherever the process dies: what is left is a beginning of what was said, and no call ends twice."""
    for number in range(1, 20):
        stores = len(memory.copies)
        assert prepared.add([done(number)], 1)
        expected = [done(one) for one in range(1, number + 1)]
        for copy in memory.copies[stores:-1]:
            assert left(copy, 0) is None if number == 1 else read(left(copy, 0)) == expected[:-1]
        assert read(left(memory.copies[-1], 0)) == expected
    stores = len(memory.copies)
    prepared.sent()
    for copy in memory.copies[stores - 1 :]:
        assert left(copy, 1) is None, "it has arrived"
    assert read(left(memory.copies[stores - 1], 0)) == expected, "a part of it is in the socket"


@pytest.mark.parametrize("frames", [1, 0xFFFE, 0xFFFF, 0x10000])
def test_the_number_of_a_frame_may_be_large(memory: Stores, prepared: Draft, frames: int) -> None:
    prepared._number = (frames - 1) % 0x10000
    prepared.sent()
    assert prepared.add([done(1)], 1)
    assert read(left(memory.copies[-1], frames)) == [done(1)]
    assert left(memory.copies[-1], frames - 1) is None
    assert left(memory.copies[-1], frames + 1) is None


def test_what_does_not_fit_is_not_in_it(memory: Stores, prepared: Draft) -> None:
    assert not prepared.add([done(1, SIZE)], 1)
    assert prepared.count == 0
    assert left(memory.copies[-1], 0) is None
    count = 0
    while prepared.add([done(1, 1000)], 1):
        count += 1
    assert count == unsent_frame._LENGTH // 1040
    assert read(left(memory.copies[-1], 0)) == [done(1, 1000)] * count
    assert not prepared.add([done(1, 1000)], 1)
    assert prepared.add([done(2, 1)], 1), "what is shorter may fit"


def test_a_file_has_room_for_many_and_is_used_again() -> None:
    drafts = Drafts()
    first, second = drafts.take(), drafts.take()
    assert first != second
    writer = Draft(unsent_frame.map_memory(drafts.descriptor, second))
    assert writer.add([done(7)], 1)
    assert read(left(drafts.content(second), 0)) == [done(7)]
    assert len(drafts.content(second)) < 100, "only what is used"
    assert drafts.content(first) == b""
    drafts.give_back(second)
    assert drafts.take() == second
    assert drafts.content(second) == b"", "it is empty again"
    drafts.close()

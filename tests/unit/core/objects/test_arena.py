"""The arena: what agents count together, what clients write and read across processes, and when views are let go."""

import gc
import os
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy
import pytest

from mpi_runtime.core.objects import arena, region
from mpi_runtime.core.objects.allocator import PAGE
from mpi_runtime.core.objects.arena import TRIM_STEP, AgentArena, ClientArena, Layout, create, default_capacity
from mpi_runtime.core.objects.region import COPY_STEP

MIB = 1 << 20
CAPACITY = 16 * MIB
LENGTH = CAPACITY * arena.SPREAD


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = create(CAPACITY, 2)
    yield made
    os.close(made)


def resident(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def put(agent: AgentArena, client: ClientArena, data: bytes) -> int:
    offset = agent.allocate(len(data))
    assert offset is not None
    client.write(agent.region, offset, len(data), [(0, data)])
    return offset


def nothing() -> None:
    pass


# The memory file.


def test_the_layout_is_in_the_file(descriptor: int) -> None:
    layout = Layout.of(descriptor)
    assert layout == Layout(CAPACITY, 2)
    length = -(-LENGTH // region.HUGE) * region.HUGE
    assert (layout.start(0), layout.start(1)) == (region.HUGE, region.HUGE + length)
    assert os.fstat(descriptor).st_size == layout.size == region.HUGE + 2 * length
    assert not os.get_inheritable(descriptor)
    assert resident(descriptor) <= PAGE
    with pytest.raises(ValueError, match="not 2"):
        layout.start(2)


def test_the_words_of_all_regions_have_room_before_the_first() -> None:
    """With 87381 regions there is one word more than a large page holds."""
    assert [Layout(CAPACITY, regions).header // region.HUGE for regions in (1, 87380, 87381)] == [1, 1, 2]


def test_nobody_can_cut_it_short(descriptor: int) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, PAGE)


def test_many_large_regions_cost_nothing() -> None:
    descriptor = create(1 << 38, 200)
    try:
        agent, client = AgentArena(descriptor, 199), ClientArena(descriptor)
        offset = put(agent, client, b"far")
        assert bytes(client.read(199, offset, 3, nothing)) == b"far"
        assert resident(descriptor) < MIB
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("capacity", "regions"), [(PAGE - 1, 1), (PAGE, 0)])
def test_too_small(capacity: int, regions: int) -> None:
    with pytest.raises(ValueError, match="needs a page"):
        create(capacity, regions)


# Agents.


def test_the_capacity_is_the_hosts(descriptor: int) -> None:
    one, two = AgentArena(descriptor, 0), AgentArena(descriptor, 1)
    first = one.allocate(10 * MIB)
    assert first is not None
    assert two.allocate(7 * MIB) is None
    assert "no room for an object of 7.0 MiB: 10.0 MiB of its 16.0 MiB are in use" in two.refusal(7 * MIB)
    assert "no room for an object of 17.0 MiB: it has 16.0 MiB in all" in two.refusal(17 * MIB)
    assert (one.allocator.used, two.allocator.used) == (10 * MIB, 0)
    assert two.allocate(6 * MIB) is not None
    assert one.allocate(1) is None
    assert one.free(first) == 10 * MIB
    assert two.allocate(10 * MIB) is not None
    assert (one.allocator.used, two.allocator.used) == (0, 16 * MIB)
    with pytest.raises(ValueError, match=f"offset {first}"):
        one.free(first)


def test_objects_that_lie_scattered_are_in_nobodys_way() -> None:
    descriptor = create(4 * MIB, 1)
    agent = AgentArena(descriptor, 0)
    blocks = [agent.allocate(MIB) for _ in range(4)]
    agent.free(blocks[0] or 0)
    agent.free(blocks[2] or 0)
    assert agent.lacking([2 * MIB]) == 2 * MIB
    assert agent.lacking([2 * MIB, MIB]) == 2 * MIB
    assert agent.lacking([2 * MIB, 3 * MIB]) == 3 * MIB
    assert agent.allocate(2 * MIB) is not None
    os.close(descriptor)


def test_a_refusal_tells_of_holes() -> None:
    """However long regions are, small objects could lie so that they are."""
    descriptor = create(4 * MIB, 1)
    agent = AgentArena(descriptor, 0)
    blocks = [agent.allocator.allocate(MIB) for _ in range(4 * arena.SPREAD)]
    kept = blocks[3::4]  # as many as there is room for
    for offset in [block for block in blocks if block not in kept]:
        agent.free(offset or 0)
    agent.free(kept[0] or 0)
    assert agent.allocator.used == 3 * MIB
    agent._used[0] = 0  # as if these were not counted
    assert "of 4.0 MiB that are free only" in agent.refusal(4 * MIB)
    os.close(descriptor)


def test_an_agent_reads_and_writes_its_extents(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 1), ClientArena(descriptor)
    offset = agent.allocate(100)
    assert offset is not None
    view = agent.view(offset, 100)
    view[:] = bytes(range(100))
    assert bytes(client.read(1, offset, 100, nothing)) == bytes(range(100))
    for wrong in ((offset, 200), (offset + 64, 10), (-64, 10)):
        with pytest.raises(ValueError, match="no extent"):
            agent.view(*wrong)
    agent.free(offset)
    with pytest.raises(ValueError, match="no extent"):
        agent.view(offset, 100)


# Memory that is free but still there.


def test_trim_returns_memory(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    kept = put(agent, client, b"k" * MIB)
    offset = put(agent, client, b"x" * (4 * MIB))
    before = resident(descriptor)
    assert agent.trim(MIB) == 0
    agent.free(offset)
    assert agent.allocator.spare == 4 * MIB
    assert resident(descriptor) == before
    assert agent.trim(MIB + 1) == MIB + PAGE
    assert resident(descriptor) == before - MIB - PAGE
    assert agent.trim(CAPACITY) == 3 * MIB - PAGE
    assert resident(descriptor) == before - 4 * MIB
    assert agent.allocator.spare == 0
    assert bytes(client.read(0, kept, MIB, nothing)) == b"k" * MIB


def test_memory_is_used_again_before_new_memory_is_touched(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    for size in (4 * MIB, 3 * MIB, MIB + 5, 4 * MIB):
        agent.free(put(agent, client, b"x" * size))
    assert resident(descriptor) <= 4 * MIB + PAGE


def settle_all(agents: list[AgentArena]) -> list[int]:
    """Let agents take their turns, only those that are busy or were woken, until none is; returns who was woken."""
    woken: list[int] = []
    turn = {agent.region for agent in agents if agent.busy}
    for _ in range(100):
        if not turn:
            return woken
        asked = [region for index in turn for region in agents[index].settle()]
        woken += asked
        turn = {agent.region for agent in agents if agent.busy} | set(asked)
    raise AssertionError("the agents wake each other for ever")


def test_spare_memory_of_others_does_not_make_a_host_exceed_its_capacity() -> None:
    capacity = 3 * TRIM_STEP
    descriptor = create(capacity, 3)
    agents = [AgentArena(descriptor, number) for number in range(3)]
    client = ClientArena(descriptor)
    data = bytes(TRIM_STEP + MIB)
    agents[0].free(put(agents[0], client, data))
    agents[1].free(put(agents[1], client, data))
    assert not any(agent.busy for agent in agents)
    assert settle_all(agents) == []
    put(agents[2], client, data)
    assert agents[2].busy
    assert settle_all(agents) == [0, 1]
    assert resident(descriptor) <= capacity + PAGE
    put(agents[2], client, data)
    settle_all(agents)
    assert resident(descriptor) <= capacity + PAGE
    # Its own memory is given back first: now the other two have none.
    agents[2].free(next(iter(agents[2].allocator._extents)))
    put(agents[1], client, bytes(2 * TRIM_STEP - MIB - PAGE))
    settle_all(agents)
    assert resident(descriptor) <= capacity + PAGE
    os.close(descriptor)


def test_agents_do_not_wake_each_other_for_fragments_that_cannot_be_returned() -> None:
    descriptor = create(4 * PAGE, 2)
    one, two = AgentArena(descriptor, 0), AgentArena(descriptor, 1)
    half = PAGE // 2
    assert one.allocate(half) is not None  # the other half of this page is spare for ever
    assert two.allocate(half) is not None
    assert two.allocate(3 * PAGE) is not None
    assert settle_all([one, two]) == [0]
    os.close(descriptor)


def test_who_can_give_enough_back_itself_wakes_nobody(descriptor: int) -> None:
    one, two = AgentArena(descriptor, 0), AgentArena(descriptor, 1)
    one.free(one.allocate(4 * MIB) or 0)
    hole = two.allocate(6 * MIB)
    wall = two.allocate(2 * MIB)
    two.free(hole or 0)
    assert two.allocate(8 * MIB) is not None  # 10 are used, and 10 spare: 4 too many
    assert two.settle() == []
    assert two.busy
    assert sum(two._used) + sum(two._spare) == CAPACITY
    assert two.settle() == []
    assert not two.busy
    assert one.allocator.spare == 4 * MIB
    assert wall is not None


def test_memory_that_the_system_does_not_take_back_stays_spare(descriptor: int) -> None:
    agent = AgentArena(descriptor, 0)
    agent.free(agent.allocate(MIB) or 0)
    pages = Mock()
    pages.madvise.side_effect = OSError("this system cannot")
    agent._window.locate = lambda offset, size: (pages, offset)  # type: ignore[method-assign]
    assert agent.trim(MIB) == 0
    assert pages.madvise.call_count == 1
    assert agent.allocator.spare == MIB


# Clients.


def test_parts_are_written_where_they_belong(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    offset = agent.allocate(3 * COPY_STEP)
    assert offset is not None
    matrix = numpy.arange(600_000, dtype=numpy.float64).reshape(-1, 6)
    size = 132 + matrix.nbytes
    parts: list[tuple[int, Any]] = [
        (0, b"head"),
        (64, matrix.data),
        (size - 4, bytearray(b"tail")),
        (5, b""),
        (5, matrix[:0].data),
    ]
    client.write(0, offset, size, parts)
    view = client.read(0, offset, size, nothing)
    assert bytes(view[:4]) == b"head"
    assert bytes(view[-4:]) == b"tail"
    assert view[64:-68] == matrix.tobytes()
    client.write(0, offset, size, [])
    with pytest.raises(ValueError, match="not an extent"):
        client.write(0, LENGTH - 1, 2, [(0, b"ab")])
    for position in (-1, 2):
        with pytest.raises(ValueError, match="do not lie in an extent of 2 bytes"):
            client.write(0, offset, 2, [(position, b"a")])


def test_a_part_may_be_gone_when_the_next_is_asked_for(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    offset = agent.allocate(3 * MIB)
    assert offset is not None
    buffer = bytearray(MIB)

    def parts() -> Iterator[tuple[int, bytearray]]:
        for number in range(3):
            buffer[:] = bytes([number]) * MIB
            yield number * MIB, buffer

    client.write(0, offset, 3 * MIB, parts())
    view = client.read(0, offset, 3 * MIB, nothing)
    assert [bytes(view[at : at + MIB]) == bytes([at // MIB]) * MIB for at in range(0, 3 * MIB, MIB)] == [True] * 3


@pytest.mark.parametrize("extent", [(-1, 2), (0, 0), (0, LENGTH + 1), (LENGTH, 1)])
def test_what_lies_outside_cannot_be_read(descriptor: int, extent: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not an extent"):
        ClientArena(descriptor).read(0, *extent, nothing)


def test_values_cannot_be_changed_through_a_view(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    view = client.read(0, put(agent, client, bytes(80)), 80, nothing)
    assert view.readonly
    assert (view.format, view.ndim) == ("B", 1)
    array = numpy.frombuffer(view, numpy.float64)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_a_view_is_let_go_once_when_nothing_of_it_is_left(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    released: deque[str] = deque()
    view = client.read(0, put(agent, client, bytes(80)), 80, partial(released.append, "view"))
    part = view[8:16]
    array = numpy.frombuffer(view, numpy.float64)
    column = array.reshape(5, 2)[:, 1]
    del view, array
    assert not released
    del part
    assert not released
    assert column.sum() == 0
    del column
    assert list(released) == ["view"]
    gc.collect()
    assert list(released) == ["view"]


def test_each_read_is_let_go_for_itself(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    released: deque[int] = deque()
    offset = put(agent, client, b"same")
    views = [client.read(0, offset, 4, partial(released.append, number)) for number in range(3)]
    del views[1]
    assert list(released) == [1]
    views.clear()
    assert sorted(released) == [0, 1, 2]


def test_a_view_in_a_cycle_is_let_go_by_the_garbage_collector(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    released: deque[int] = deque()
    cycle: list[object] = [client.read(0, put(agent, client, b"cycle"), 5, partial(released.append, 1))]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert list(released) == [1]


def test_a_value_of_several_buffers_is_one_view(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    released: deque[int] = deque()
    value = {"a": numpy.arange(1000), "b": [numpy.ones((30, 40)), b"text"], "c": numpy.asfortranarray(numpy.eye(9))}
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts: list[tuple[int, bytes | memoryview]] = [(0, head)]
    places: list[tuple[int, int]] = []
    end = len(head)
    for buffer in buffers:
        start = -(-end // 64) * 64
        end = start + buffer.raw().nbytes
        parts.append((start, buffer.raw()))
        places.append((start, end))
    offset = agent.allocate(end)
    assert offset is not None
    client.write(0, offset, end, parts)
    view = client.read(0, offset, end, partial(released.append, 1))
    copy = pickle.loads(view[: len(head)], buffers=[view[start:stop] for start, stop in places])
    del view
    assert (copy["a"] == value["a"]).all()
    assert (copy["b"][0] == 1).all()
    assert copy["c"].flags.f_contiguous
    last = copy["b"][0]
    del copy
    gc.collect()
    assert not released
    del last
    assert list(released) == [1]


def test_views_are_let_go_in_other_threads(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    offset = put(agent, client, bytes(100))
    released: deque[int] = deque()

    def read(number: int) -> None:
        for _ in range(200):
            view = client.read(0, offset, 100, partial(released.append, number))
            assert bytes(view[5:6]) == b"\0"

    threads = [threading.Thread(target=read, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(released) == [0] * 200 + [1] * 200 + [2] * 200 + [3] * 200


def test_views_outlive_the_client(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    released: deque[int] = deque()
    view = client.read(0, put(agent, client, b"still here"), 10, partial(released.append, 1))
    client.close()
    del client
    gc.collect()
    assert bytes(view) == b"still here"
    del view
    assert not released


def test_default_capacity() -> None:
    assert default_capacity(10 << 30) == (3 << 30)
    assert default_capacity(123_457) % PAGE == 0

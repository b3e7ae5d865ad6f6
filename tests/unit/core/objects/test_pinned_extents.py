"""Extents of the arena that a GPU reads and writes itself, and agents that give memory back meanwhile.

The GPU is pretended (`tests/fake_cuda`), but it holds the pages themselves: memory that is given back under it shows as
wrong bytes. Each bug that is planted here is found by that, or by memory that nobody has counted.
"""

import fcntl
import gc
import os
import random
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpi_runtime import config
from mpi_runtime.core.objects import pinned_extents, range_locks, serialize
from mpi_runtime.core.objects.allocator import LARGE, PAGE, round_up
from mpi_runtime.core.objects.arena import AgentArena, ClientArena, create
from mpi_runtime.gpu import cuda_context, staging
from tests.fake_cuda import memory

LIBRARIES = Path(memory.__file__).parent / "libraries"
MIB = 1 << 20
CAPACITY = 12 * MIB
SEEDS = range(6)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(LIBRARIES)
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(config.GPU_PIN_MB, "6")
    memory.reset()
    staging._pairs.clear()
    import cupy

    yield cupy
    sys.modules.pop("cupy", None)
    staging._pairs.clear()
    staging._lent_out.clear()
    memory.reset()
    pinned_extents._mapped.clear()


class Stored(NamedTuple):
    offset: int
    size: int
    content: Any


class Host:
    """One agent, and one client that uses a GPU."""

    def __init__(self, cupy: Any, capacity: int = CAPACITY, regions: int = 1) -> None:
        self.cupy = cupy
        self.descriptor = create(capacity, regions)
        self.agent = AgentArena(self.descriptor, regions - 1)
        self.client = ClientArena(self.descriptor)

    def put(self, content: Any) -> Stored | None:
        """Write an array of the GPU into the arena; None: there is no room."""
        value = serialize.dumps(self.cupy.asarray(content))
        offset = self.agent.allocate(value.size())
        if offset is None:
            return None
        place = self.agent.region, offset, value.size()
        self.client.write(*place, value.parts(lambda: self.client.pinned(*place)))
        return Stored(offset, value.size(), content)

    def get(self, stored: Stored) -> Any:
        """The array on the GPU, as numpy's."""
        view = self.client.read(self.agent.region, stored.offset, stored.size, lambda: None)
        return serialize.loads(view, serialize.loads_on_device).get()

    def bytes_of(self, stored: Stored) -> Any:
        """The array as others see it."""
        return serialize.loads(self.agent.view(stored.offset, stored.size), serialize.loads_on_host)

    def uncounted(self) -> int:
        """Bytes of the file that are in memory though nobody counts them."""
        allocator = self.agent.allocator
        counted = round_up(allocator.used, PAGE) + allocator.spare + PAGE
        return os.stat(self.descriptor).st_blocks * 512 - counted

    def close(self) -> None:
        gc.collect()
        self.client.close()
        if self.client._pinned is not None and self.client._pinned._own >= 0:
            os.close(self.client._pinned._own)  # kept for the life of a process
        self.agent.close()
        os.close(self.descriptor)


@pytest.fixture
def host(cupy: Any) -> Iterator[Host]:
    found = Host(cupy)
    yield found
    found.close()


def array(size: int, number: int = 0) -> Any:
    return np.random.default_rng(number).integers(0, 256, size, np.uint8)


def exercise(cupy: Any, seed: int) -> None:
    """Put, get, drop and give back at random; what is read is what was written, whoever reads it."""
    rng, stored = random.Random(seed), list[Stored]()
    host = Host(cupy)
    try:
        for step in range(60):
            what = rng.random()
            if what < 0.45 or not stored:
                size = rng.choice((MIB, MIB + 5000, 2 * MIB, 3 * MIB - 300)) - 300
                made = host.put(array(size, step))
                stored += [made] if made is not None else []
            elif what < 0.65:
                one = rng.choice(stored)
                assert np.array_equal(host.get(one), one.content), "the device has read other bytes"
            elif what < 0.85:
                host.agent.free(stored.pop(rng.randrange(len(stored))).offset)
            else:
                host.agent.trim(rng.choice((PAGE, MIB, CAPACITY)))
            for one in stored[-3:]:
                assert np.array_equal(host.bytes_of(one), one.content), "the device has written elsewhere"
            assert host.uncounted() <= 0, "memory has come into being that nobody counts"
    finally:
        with suppress(AssertionError):
            host.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_given_back_meanwhile_arrays_have_their_bytes(cupy: Any, seed: int) -> None:
    exercise(cupy, seed)
    assert memory.counts["straight"] > 5, "pinned memory was used"
    assert not memory.registered, "and let go of at the end"


def no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(range_locks, "share", lambda descriptor, start, size: True)


def lock_dropped_at_once(patch: pytest.MonkeyPatch) -> None:
    share = range_locks.share

    def shared(descriptor: int, start: int, size: int) -> bool:
        granted = share(descriptor, start, size)
        range_locks.drop(descriptor, start, size)
        return granted

    patch.setattr(range_locks, "share", shared)


def lock_dropped_after_the_copy(patch: pytest.MonkeyPatch) -> None:
    pinned = pinned_extents.PinnedExtents.pinned

    @contextmanager
    def for_one_copy(self: pinned_extents.PinnedExtents, start: int, size: int, *more: Any) -> Iterator[bool]:
        with pinned(self, start, size, *more) as is_pinned:
            yield is_pinned
        if is_pinned:
            range_locks.drop(self._own, start, size)

    patch.setattr(pinned_extents.PinnedExtents, "pinned", for_one_copy)


def lock_of_a_page_less(patch: pytest.MonkeyPatch) -> None:
    share = range_locks.share
    patch.setattr(range_locks, "share", lambda descriptor, start, size: share(descriptor, start, size - PAGE))


def pinned_to_the_page_after(patch: pytest.MonkeyPatch) -> None:
    register = cuda_context.register
    patch.setattr(cuda_context, "register", lambda cuda, at, size: register(cuda, at, size + PAGE))


def agent_that_ignores_the_refusal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(range_locks, "take", lambda descriptor, start, size: True)
    patch.setattr(range_locks, "shared_part", lambda descriptor, start, size: None)


@pytest.mark.parametrize(
    "plant",
    [
        no_lock, lock_dropped_at_once, lock_dropped_after_the_copy, lock_of_a_page_less, pinned_to_the_page_after,
        agent_that_ignores_the_refusal,
    ],
)  # fmt: skip
def test_each_planted_bug_is_found(
    cupy: Any, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        memory.reset()
        memory.install()
        try:
            exercise(cupy, seed)
        except AssertionError:
            return
    pytest.fail("no seed shows it")


# One thing at a time.


def straight(work: Callable[[], Any]) -> int:
    """How many copies the device makes of or to memory of the arena itself."""
    before = memory.counts["straight"]
    work()
    return memory.counts["straight"] - before


def kept_pinned(host: Host, size: int = 2 * MIB) -> Stored:
    """An array whose extent is pinned."""
    stored = host.put(array(size))
    assert stored is not None
    assert straight(lambda: host.get(stored)) == 1
    return stored


def pinned_bytes() -> int:
    return sum(held.size for held in memory.registered.values())


def test_the_second_copy_of_the_same_memory_is_straight(host: Host) -> None:
    """Both ways, and with the next object that comes to lie there."""
    content = array(3 * MIB + 5)
    stored = host.put(content)
    assert stored is not None
    assert memory.counts["straight"] == 0, "what is copied once is not worth it"
    for _ in range(2):
        assert straight(lambda: np.testing.assert_array_equal(host.get(stored), content)) == 1
    assert memory.counts["registered"] == 1
    host.agent.free(stored.offset)
    smaller = array(2 * MIB, 1)
    again = host.put(smaller)
    assert again is not None
    assert again.offset == stored.offset
    assert memory.counts["straight"] == 3, "it lies within what is pinned"
    assert np.array_equal(host.bytes_of(again), smaller)
    assert np.array_equal(host.get(again), smaller)
    assert memory.counts["registered"] == 1


def test_small_values_and_small_parts_go_as_before(host: Host) -> None:
    small = host.put(array(LARGE - 1000))
    assert small is not None
    parts = [host.cupy.asarray(array(100_000, number)) for number in range(30)]
    value = serialize.dumps(parts)
    offset = host.agent.allocate(value.size())
    assert offset is not None
    for _ in range(3):
        host.get(small)
        host.client.write(0, offset, value.size(), value.parts(lambda: host.client.pinned(0, offset, value.size())))
    assert memory.counts["straight"] == memory.counts["registered"] == 0


@pytest.mark.parametrize("setting", ["0", None, ""])
def test_nothing_is_pinned_by_default(host: Host, setting: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config.GPU_PIN_MB)
    if setting is not None:
        monkeypatch.setenv(config.GPU_PIN_MB, setting)
    stored = host.put(array(2 * MIB))
    assert stored is not None
    assert straight(lambda: [host.get(stored) for _ in range(3)]) == memory.counts["registered"] == 0
    assert host.client._pinned is None


def test_a_bound_in_bytes_and_the_longest_unused_goes_first(host: Host) -> None:
    first, second, third = (kept_pinned(host, 2 * MIB - 500) for _ in range(3))
    assert pinned_bytes() == 6 * MIB
    host.get(first)
    fourth = kept_pinned(host, 2 * MIB - 500)
    assert pinned_bytes() == 6 * MIB
    for stored, is_pinned in ((first, 1), (third, 1), (fourth, 1), (second, 1)):
        before = memory.counts["registered"]
        assert straight(lambda stored=stored: host.get(stored)) == is_pinned  # type: ignore[misc]
        assert memory.counts["registered"] - before == (stored is second)
    large = host.put(array(6 * MIB))
    assert large is None or straight(lambda: [host.get(large) for _ in range(3)]) == 0


def test_what_is_under_way_is_not_let_go_of(host: Host) -> None:
    first, other = kept_pinned(host, 4 * MIB), host.put(array(3 * MIB))
    assert other is not None
    with host.client.pinned(0, first.offset, first.size) as whole:
        assert whole is not None
        assert straight(lambda: host.get(other)) == 0
        assert straight(lambda: host.get(first)) == 1
    assert straight(lambda: host.get(other)) == 1
    assert pinned_bytes() == round_up(other.size, PAGE)


def test_threads_do_not_wait_for_each_other(host: Host) -> None:
    stored = host.put(array(2 * MIB))
    assert stored is not None
    host.get(kept_pinned(host))
    assert host.client._pinned is not None
    with host.client._pinned._busy:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(host.get(stored)))
        thread.start()
        thread.join(60)
    assert np.array_equal(found[0], stored.content)


@pytest.mark.parametrize("limit", [0, 1, 4])
def test_a_system_that_lets_less_be_pinned(host: Host, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ulimit -l` or a control group may: what is refused once is the bound from then on."""
    monkeypatch.setenv("FAKE_CUDA_PIN_LIMIT", str(limit * MIB))
    stored = [host.put(array(2 * MIB - 500, number)) for number in range(4)]
    refused: list[int] = []
    register = cuda_context.register

    def counted(*args: Any) -> int:
        refused.append(register(*args))
        return refused[-1]

    monkeypatch.setattr(cuda_context, "register", counted)
    for _ in range(3):
        for one in stored:
            assert one is not None
            assert np.array_equal(host.get(one), one.content)
    assert pinned_bytes() == (4 * MIB if limit == 4 else 0)
    assert sum(code != 0 for code in refused) == 1
    for one in stored:
        assert one is not None
        host.agent.free(one.offset)
    assert host.agent.trim(CAPACITY) == 8 * MIB - pinned_bytes(), "a refusal leaves no lock behind"


def test_what_cannot_be_unpinned_stays_locked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = kept_pinned(host)
    host.agent.free(stored.offset)
    monkeypatch.setattr(cuda_context, "unregister", lambda cuda, address: 700)
    host.client.close()
    assert host.agent.trim(CAPACITY) == 0
    assert len(pinned_extents._mapped) == 1, "it stays mapped, or its address would be used again"


def test_what_is_around_pinned_memory_is_given_back(host: Host) -> None:
    blocks = [host.put(array(2 * MIB - 500, number)) for number in range(5)]
    middle = blocks[2]
    assert middle is not None
    assert straight(lambda: host.get(middle)) == 1
    for one in blocks:
        assert one is not None
        host.agent.free(one.offset)
    assert host.agent.trim(MIB) == MIB
    assert host.agent.trim(CAPACITY) == 7 * MIB
    assert host.agent.allocator.spare == 2 * MIB
    host.client.close()
    assert host.agent.trim(CAPACITY) == 2 * MIB


def test_a_program_that_closes_what_is_not_its_own_means_low_numbers(host: Host) -> None:
    high = fcntl.fcntl(host.descriptor, fcntl.F_DUPFD_CLOEXEC, 700)
    own = range_locks.own_description(high)
    assert range_locks.share(own, PAGE, PAGE)
    os.closerange(690, 700)
    assert own > high
    assert range_locks.shared_part(host.descriptor, 0, CAPACITY) == (PAGE, 2 * PAGE)
    os.close(own)
    assert range_locks.shared_part(host.descriptor, 0, CAPACITY) is None
    os.close(high)


def test_objects_that_lie_across_the_end_of_what_is_pinned(host: Host) -> None:
    """A copy must lie in one pinned range or in none, so the old range is let go of."""
    first, second = kept_pinned(host, 2 * MIB - 500), kept_pinned(host, 2 * MIB - 500)
    for one in (first, second):
        host.agent.free(one.offset)
    across = host.put(array(3 * MIB, 7))
    assert across is not None
    assert across.offset == first.offset
    for _ in range(3):
        assert np.array_equal(host.get(across), across.content)
    assert len(memory.registered) == 1
    assert memory.counts["straight"] > 2


def test_a_region_that_is_not_mapped_as_a_whole_is_not_pinned(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 50, 1 << 50))
    host = Host(cupy)
    stored = host.put(array(2 * MIB))
    assert stored is not None
    assert straight(lambda: [host.get(stored) for _ in range(3)]) == 0
    host.close()


def test_a_copy_that_is_refused_goes_by_the_buffers(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, copy = kept_pinned(host), host.cupy.cuda.runtime.memcpyAsync

    def refused(to: int, source: int, size: int, kind: int, stream: int) -> None:
        if size > staging.CHUNK or memory._held(min(to, source), 1) is not None:
            raise memory.CUDARuntimeError(1)
        copy(to, source, size, kind, stream)

    monkeypatch.setattr(host.cupy.cuda.runtime, "memcpyAsync", staticmethod(refused))
    assert straight(lambda: np.testing.assert_array_equal(host.get(stored), stored.content)) == 0
    host.agent.free(stored.offset)
    again = host.put(array(2 * MIB, 5))
    assert again is not None
    assert again.offset == stored.offset
    assert np.array_equal(host.bytes_of(again), again.content)


def test_a_dead_context_is_told_as_such(host: Host) -> None:
    stored = kept_pinned(host)
    memory.fault(700)
    with pytest.raises(memory.CUDARuntimeError, match="IllegalAddress"):
        host.get(stored)


# Other processes.


def test_a_full_arena_of_which_much_is_pinned(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects find room all the same. The host has more in memory than its capacity by what is pinned, and no more."""
    monkeypatch.setenv(config.GPU_PIN_MB, "4")
    host = Host(cupy, regions=2)
    other = AgentArena(host.descriptor, 0)
    for one in [kept_pinned(host, 2 * MIB - 500) for _ in range(6)]:
        host.agent.free(one.offset)
    assert pinned_bytes() == 4 * MIB
    blocks = [other.allocate(2 * MIB) for _ in range(6)]
    assert None not in blocks
    for offset in blocks:
        other.view(offset or 0, 2 * MIB)[:] = b"x" * (2 * MIB)
    agents, turns = [other, host.agent], 0
    while any(agent.busy for agent in agents) or turns == 0:
        turns += 1
        assert turns < 50, "agents that cannot give back what is pinned do not try for ever"
        for agent in agents:
            for region in agent.settle():
                agents[region].busy = True
    assert os.fstat(host.descriptor).st_blocks * 512 <= CAPACITY + 4 * MIB + PAGE
    for offset in blocks:
        assert bytes(other.view(offset or 0, 2 * MIB)[-1:]) == b"x"
    del agents
    other.close()
    host.close()


# Interrupts.


def interrupted_at(number: int, work: Callable[[], None]) -> bool:
    """Run, with a `KeyboardInterrupt` at the n-th line in the modules that copy; whether it came to that."""
    files = {staging.__file__, pinned_extents.__file__}
    left = [number]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files and frame.f_code is not without_care.__code__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def without_care(way: Any, start: Callable[[Any, int], None], buffer: Any) -> bool:
    start(buffer, 0)
    way.wait()
    return True


@pytest.mark.timeout(240)
@pytest.mark.parametrize("plant", [False, True])
def test_an_interrupt_anywhere_leaves_no_copy_under_way(
    cupy: Any, plant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extent is another's soon after. The bug that is planted: an interrupt between the start and the wait."""
    if plant:
        monkeypatch.setattr(staging, "_at_once", without_care)
    monkeypatch.setattr(staging, "CHUNK", MIB)
    content, number, under_way, at_last, came = array(MIB, 9), 0, 0, 0, True
    while came and not (plant and under_way):
        number += 1
        memory.reset()  # each in a process of its own, as it were
        memory.install()
        value = serialize.dumps(cupy.asarray(content))
        stored, host = Stored(0, value.size(), content), Host(cupy)
        assert host.agent.allocate(value.size()) == 0

        def write_and_read(host: Host = host, value: Any = value, stored: Stored = stored) -> None:
            place = 0, 0, value.size()
            host.client.write(*place, value.parts(lambda: host.client.pinned(*place)))
            host.get(stored)

        write_and_read()
        before = memory.counts["straight"]
        came = interrupted_at(number, write_and_read)
        at_last = memory.counts["straight"] - before
        under_way += any(task.is_straight for task in memory._tasks)
        memory.settle(0)
        write_and_read()
        assert np.array_equal(host.bytes_of(stored), content)
        host.close()
    assert bool(under_way) == plant
    assert plant or (number > 20 and at_last == 2), "it was all straight when nothing came between"

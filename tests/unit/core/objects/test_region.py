"""A region of the arena as a process maps it: which pages are entered before a copy, and where they are large."""

import errno
import itertools
import mmap
import os
import resource
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.core.objects import region
from mpi_runtime.core.objects.allocator import PAGE
from mpi_runtime.core.objects.arena import AgentArena, ClientArena, Layout, create
from tests.unit.core.objects.test_arena import MIB, nothing, put, resident


class Pages:
    """A mapping that notes what is asked of it; its system may be one that cannot do that."""

    def __init__(self, problem: OSError | None = None) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self.problem = problem

    def madvise(self, advice: int, start: int, size: int) -> None:
        self.asked.append((advice, start, size))
        if self.problem is not None:
            raise self.problem

    def __setitem__(self, place: slice, data: memoryview) -> None:
        assert place.stop - place.start == len(data)


@pytest.mark.parametrize("limit", [resource.RLIM_INFINITY, 1 << 50])
def test_what_was_written_is_noted_only_of_a_region_that_is_mapped_as_a_whole(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region.resource, "getrlimit", lambda _: (limit, limit))
    descriptor = create(5 * region.TOUCH_GRAIN + PAGE, 1)
    layout = Layout.of(descriptor)
    made = region.Window(descriptor, layout.start(0), layout.length, mmap.ACCESS_WRITE)
    length = region.HUGE // region.TOUCH_GRAIN
    if limit == resource.RLIM_INFINITY:
        assert length <= len(made.touched) <= 2 * length
    assert bool(made.touched) == (made.large is not None) == (limit == resource.RLIM_INFINITY)
    os.close(descriptor)


def test_pages_are_asked_for_once_where_that_is_noted() -> None:
    source = memoryview(bytes(3 * PAGE))
    for touched, times in ((bytearray(2), 1), (bytearray(), 2)):
        pages = Pages()
        for _ in range(2):
            region.copy(pages, PAGE + 1, source, touched)  # type: ignore[arg-type]
        assert pages.asked == [(region.MADV_POPULATE_READ, PAGE, 3 * PAGE + 1)] * times
    assert touched == bytearray()


# Large pages.


class Collapsing(Pages):
    """Pages of which some calls are refused."""

    def __setitem__(self, at: Any, value: Any) -> None:
        pass


def in_large_pages() -> int:
    """Bytes of shared memory that this process has mapped in large pages."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("ShmemPmdMapped:"):
            return int(line.split()[1]) << 10
    return 0


def test_what_is_written_lies_in_large_pages_where_the_system_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, make = [], region.LargePages._make

    def noted(large: region.LargePages, mapping: mmap.mmap, at: int) -> None:
        before = large._failures
        make(large, mapping, at)
        refused.extend([at] * (large._failures - before))

    monkeypatch.setattr(region.LargePages, "_make", noted)
    descriptor = create(64 * MIB, 2)
    agent, client = AgentArena(descriptor, 1), ClientArena(descriptor)
    before, data = in_large_pages(), os.urandom(1 << 16) * 256
    offset = put(agent, client, data)
    assert client.read(1, offset, len(data), nothing) == data
    writer = client._writers[1]
    found = in_large_pages() - before
    if writer.large is not None and not refused:  # in all of the value but for its ends, when read too
        assert found >= 2 * (len(data) - 2 * region.HUGE)
    assert resident(descriptor) <= len(data) + 2 * MIB, "nothing beside the value takes memory"
    agent.free(offset)
    assert agent.trim(3 * MIB + PAGE) == 3 * MIB + PAGE  # large pages are cut
    assert resident(descriptor) <= len(data) - 1 * MIB
    os.close(descriptor)


@pytest.mark.parametrize(("error", "tries"), [(errno.EINVAL, 1), (errno.EAGAIN, region.COLLAPSE_FAILURES_MAX)])
def test_a_system_without_large_pages_is_asked_a_few_times(error: int, tries: int) -> None:
    pages, touched = Collapsing(OSError(error, "refused")), bytearray(1 << 10)
    large = region.LargePages(3 * PAGE, 64 * MIB)
    region.copy(pages, 3 * PAGE, memoryview(bytes(32 * MIB)), touched, large)  # type: ignore[arg-type]
    asked = [one for one in pages.asked if one[0] == region.MADV_COLLAPSE]
    assert asked == [(region.MADV_COLLAPSE, 3 * PAGE + n * region.HUGE, region.HUGE) for n in range(tries)]


@pytest.mark.parametrize(("every", "tries"), [(1, region.COLLAPSE_FAILURES_MAX), (2, 32 // 2)])
def test_where_large_pages_take_long_few_are_asked_for(every: int, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of so many takes long."""
    took_s = itertools.cycle([1.1 * region.COLLAPSE_S_MAX, *[0.0] * (every - 1)])
    times = (now_s for took in took_s for now_s in (0.0, took))
    monkeypatch.setattr(region.time, "thread_time", partial(next, times))
    pages, touched = Collapsing(), bytearray(1 << 10)
    large = region.LargePages(3 * PAGE, 64 * MIB)
    region.copy(pages, 3 * PAGE, memoryview(bytes(32 * MIB)), touched, large)  # type: ignore[arg-type]
    assert len([one for one in pages.asked if one[0] == region.MADV_COLLAPSE]) == tries


def test_only_what_is_overwritten_is_made_large() -> None:
    pages, touched = Collapsing(), bytearray(1 << 10)
    large = region.LargePages(0, 64 * MIB)
    for _ in range(2):
        region.copy(pages, region.HUGE - PAGE, memoryview(bytes(2 * region.HUGE)), touched, large)  # type: ignore[arg-type]
    asked = [one[1:] for one in pages.asked if one[0] == region.MADV_COLLAPSE]
    assert asked == [(region.HUGE, region.HUGE)]  # once

"""Which bundle goes to which node."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.scheduler.places.packing import Asked, arrange
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import STRATEGIES
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.resources import Pool, copy_of, fits, take


def pools(*cpus: int) -> dict[int, Pool]:
    return {host: Pool(cpu, 0, {}, []) for host, cpu in enumerate(cpus)}


def hosts(strategy: str, asked: list[int], owned: dict[int, Pool]) -> list[int] | None:
    spots = arrange([Asked(Request(cpu, 0, 0)) for cpu in asked], strategy, owned)
    return None if spots is None else [host for _, host in sorted(spots)]


def test_packs_where_least_is_to_spare() -> None:
    assert hosts("PACK", [1, 2], pools(8, 3, 2)) == [1, 1]
    assert hosts("STRICT_PACK", [1, 2], pools(8, 3, 2)) == [1, 1]


def test_packs_on_few_when_one_is_too_small() -> None:
    found = hosts("PACK", [2, 2, 2], pools(2, 4, 2))
    assert found is not None
    assert len(set(found)) == 2
    assert hosts("STRICT_PACK", [2, 2, 2], pools(2, 4, 2)) is None


def test_spreads_evenly() -> None:
    assert sorted(hosts("SPREAD", [1] * 5, pools(4, 4)) or []) == [0, 0, 0, 1, 1]
    assert hosts("STRICT_SPREAD", [1] * 3, pools(4, 4)) is None


def test_a_bundle_moves_on_when_another_needs_its_node() -> None:
    owned = {0: Pool(4, 0, {"disk": 1}, []), 1: Pool(4, 0, {"disk": 1, "lane": 1}, []), 2: Pool(1, 0, {"lane": 1}, [])}
    asked = [Request(1, 0, 0, (("disk", 1),)), Request(1, 0, 0, (("lane", 1),)), Request(4, 0, 0)]
    spots = arrange(list(map(Asked, asked)), "STRICT_SPREAD", owned)
    assert spots is not None
    assert sorted(host for _, host in spots) == [0, 1, 2]


def test_shares_of_devices_are_packed_largest_first() -> None:
    owned = {0: Pool(0, 0, {}, [UNIT, UNIT])}
    asked = [Request(0, share * UNIT // 10, 0) for share in (5, 4, 6, 5)]
    assert arrange(list(map(Asked, asked)), "STRICT_PACK", owned) is not None


def test_who_needs_no_gpu_stays_away_from_them() -> None:
    owned = {0: Pool(4, 0, {}, [UNIT]), 1: Pool(4, 0, {}, [])}
    for strategy in ("PACK", "SPREAD"):
        assert arrange([Asked(Request(1, 0, 0))], strategy, owned) == [(0, 1)]


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD"])
def test_bundles_with_least_choice_go_first_unless_others_then_have_no_room(strategy: str) -> None:
    one = Request(1, 0, 0)
    assert arrange([Asked(one), Asked(one, {0})], strategy, pools(1, 1)) == [(1, 0), (0, 1)]
    assert arrange([Asked(Request(4, 0, 0)), Asked(one, {0, 1})], strategy, pools(4, 1)) is not None
    assert arrange([Asked(one, {0, 1}), Asked(one, {0, 2}), Asked(one, {2})], strategy, pools(1, 1, 1)) is not None
    assert arrange([Asked(one, {0}), Asked(one, {0})], strategy, pools(1, 1)) is None


AMOUNTS = st.integers(0, 4)


@given(
    asked=st.lists(st.tuples(AMOUNTS, st.sampled_from((0, 0, UNIT // 2, UNIT, 2 * UNIT))), min_size=1, max_size=5),
    owned=st.lists(st.tuples(AMOUNTS, st.integers(0, 2)), min_size=1, max_size=4),
    strategy=st.sampled_from(STRATEGIES),
)
def test_what_is_found_can_be_taken_and_is_as_the_strategy_says(
    asked: list[tuple[int, int]], owned: list[tuple[int, int]], strategy: str
) -> None:
    free = {host: Pool(cpu, 0, {}, [UNIT] * gpus) for host, (cpu, gpus) in enumerate(owned)}
    requests = [Request(cpu, gpu, 0) for cpu, gpu in asked]
    spots = arrange(list(map(Asked, requests)), strategy, free)
    if strategy == "STRICT_SPREAD":
        ways = permutations(free, len(requests))
        exists = any(all(fits(one, free[host]) for one, host in zip(requests, way, strict=True)) for way in ways)
        assert (spots is not None) == exists
    if spots is None:
        return
    assert sorted(index for index, _ in spots) == list(range(len(requests)))
    left = {host: copy_of(pool) for host, pool in free.items()}
    for index, host in spots:
        assert fits(requests[index], left[host])
        take(requests[index], left[host])
    used = {host for _, host in spots}
    if strategy == "STRICT_PACK":
        assert len(used) == 1
    if strategy == "STRICT_SPREAD":
        assert len(used) == len(requests)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD"])
def test_what_one_soft_way_does_not_find_another_may(strategy: str) -> None:
    assert arrange([Asked(Request(size, 0, 0)) for size in (3, 2, 2)], strategy, pools(3, 4)) is not None

"""Requests and grants: nothing is promised twice, and a share is of one device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import StartExecutor
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.resources import Pool, choose_gpus, fits, give_back, take
from mpi_runtime.scheduler.records.index import Index
from mpi_runtime.scheduler.records.records import Node
from tests.builders import Cluster

amounts = st.integers(0, 4 * UNIT)
requests = st.builds(
    Request,
    amounts,
    st.one_of(st.integers(0, UNIT), st.sampled_from([UNIT, 2 * UNIT])),
    st.integers(0, 100),
    st.sampled_from([(), (("disk", UNIT),), (("disk", 1), ("lane", UNIT))]),
)


def pool() -> Pool:
    return Pool(4 * UNIT, 100, {"disk": 2 * UNIT, "lane": UNIT}, [UNIT] * 3)


@given(st.lists(requests, max_size=12), st.randoms(use_true_random=False))
def test_what_is_taken_comes_back(wanted: list[Request], order: object) -> None:
    free = pool()
    grants = []
    for request in wanted:
        if fits(request, free):
            grants.append(take(request, free))
        assert min(free.cpu, free.memory, *free.custom.values(), *free.gpu_units) >= 0
        assert max(free.gpu_units) <= UNIT
    order.shuffle(grants)
    for grant in grants:
        give_back(grant, free)
    assert free == pool()


@pytest.mark.parametrize(
    ("units", "free", "chosen"),
    [
        (UNIT, [UNIT, UNIT], ((0, UNIT, 0),)),
        (2 * UNIT, [UNIT, UNIT // 2, UNIT], ((0, UNIT, 0), (2, UNIT, 0))),
        (UNIT, [UNIT // 2, UNIT // 2], None),  # two halves are no whole
        (UNIT // 2, [UNIT, UNIT // 2, 0], ((1, UNIT // 2, 0),)),  # the fullest that has it: whole ones stay whole
        (UNIT // 4, [UNIT, UNIT // 2, UNIT // 4], ((2, UNIT // 4, 0),)),
        (UNIT // 2, [UNIT // 4, UNIT // 4], None),
        (UNIT, [], None),
    ],
)
def test_devices_are_whole_or_shares_of_one(
    units: int, free: list[int], chosen: tuple[tuple[int, int, int], ...] | None
) -> None:
    assert choose_gpus(Request(0, units, 0), Pool(0, 0, {}, free)) == chosen


def test_no_cpu_is_had_even_from_an_overdrawn_node() -> None:
    assert fits(Request(0, 0, 0), Pool(-UNIT, 0, {}, []))
    assert not fits(Request(1, 0, 0), Pool(-UNIT, 0, {}, []))


def test_calls_on_gpus_are_told_which_are_theirs() -> None:
    with Cluster().node(cpus=4, gpus=2) as cluster:
        ids = [cluster.submit(gpu=0.5), cluster.submit(gpu=0.5), cluster.submit(gpu=1)]
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 3)] == [[0], [0], [1]]
        cluster.running(*ids)


def test_a_call_for_a_whole_gpu_waits_until_one_is_whole() -> None:
    with Cluster().node(cpus=4, gpus=2) as cluster:
        halves = [cluster.submit(name=name, gpu=0.75) for name in "ab"]
        executors = cluster.running(*halves)
        whole = cluster.submit(gpu=1)
        cluster.nothing()
        cluster.done(executors[1], halves[1])
        cluster.told(halves[1])
        assert cluster.state.executors[cluster.placed(whole)].key.gpu_ids == (1,)


def test_a_blocked_call_keeps_its_gpu() -> None:
    with Cluster().node(cpus=2, gpus=1) as cluster:
        parent = cluster.submit(gpu=1)
        executor = cluster.placed(parent)
        child = cluster.submit(gpu=1, client=executor)
        cluster.blocked(executor, child)
        cluster.nothing()


@pytest.mark.parametrize("field", ["memory", "custom"])
def test_memory_and_custom_resources_are_not_oversold(field: str) -> None:
    with Cluster().node(cpus=4, memory=UNIT, disk=1) as cluster:
        fields = {field: UNIT if field == "memory" else {"disk": UNIT}}
        first, second = cluster.submit_many(2, **fields)
        executor = cluster.placed(first)
        cluster.nothing()
        cluster.done(executor, first)
        cluster.told(first)
        cluster.placed(second)


def test_calls_without_cpu_need_none() -> None:
    with Cluster().node(cpus=1) as cluster:
        cluster.placed(cluster.submit())
        assert len(set(cluster.running(*cluster.submit_many(3, cpu=0)))) == 3


def test_the_index_finds_the_node_with_most_of_the_rarest_resource() -> None:
    index = Index()
    nodes = [
        Node(number=number, hostname=f"host{number}", total=pool(), free=Pool(cpu, 0, {}, devices))
        for number, (cpu, devices) in enumerate([(4, [UNIT // 2]), (8, []), (2, [UNIT])])
    ]
    for node in nodes:
        index.update(node)
    assert [node.number for node in index.candidates(Request(1, 0, 0))] == [1, 0, 2]
    assert [node.number for node in index.candidates(Request(1, 1, 0))] == [2, 0]
    nodes[1].free.cpu = 0
    index.update(nodes[1])
    found = index.find(Request(3, 0, 0), None)
    assert found is nodes[0]
    nodes[0].free.cpu = 2
    index.update(nodes[0])
    assert index.find(Request(3, 0, 0), None) is None

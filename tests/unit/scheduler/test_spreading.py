"""From where copies are brought: from whole ones and from those that are arriving, few at a time."""

from __future__ import annotations

import heapq
from itertools import count

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch, Free, Restore, Spill, StopFetch
from mpi_runtime.scheduler.protocol.events import BroadcastRequested, CancelRequested, Stored, Value, Where
from mpi_runtime.scheduler.protocol.limits import HOP_BYTES, PIPELINED_BYTES, SHARED_BYTES, UNREACHED_US
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched, RankLost, RoomWanted, Spilled
from mpi_runtime.scheduler.values.spreading import open_sources
from tests.builders import DRIVER, Cluster

MIB = 1 << 20
LARGE = 64 * MIB


def on(node: int) -> Where:
    """Calls run on this node."""
    return Where(node=f"{node:032x}")


def cluster_of(nodes: int) -> Cluster:
    """A head, and nodes with a processor each: node n is rank n."""
    cluster = Cluster().head()
    for _ in range(nodes):
        cluster.node(cpus=1)
    return cluster


def wanted(cluster: Cluster, size: int, nodes: int) -> bytes:
    """A value at the head, and a call on each node that wants it."""
    id = cluster.put(size=size, offset=64)
    for node in range(1, nodes + 1):
        cluster.submit(id, where=on(node))
    return id


class Network:
    """Links with room for one byte in each unit of time, in each direction. Chunks move in time, and are passed on."""

    def __init__(self, cluster: Cluster, size: int, chunk: int) -> None:
        self.cluster, self.size, self.chunk = cluster, size, chunk
        self.sent: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.now = 0
        self._numbers = count()
        self._events: list[tuple[int, int, int, int]] = []
        self._orders: dict[int, Fetch] = {}
        self._have: dict[int, int] = {}
        self._busy_until: dict[int, int] = {}

    def play(self) -> None:
        """Until all is there."""
        self._take_orders()
        while self._events:
            self.now, _, rank, have = heapq.heappop(self._events)
            self._have[rank] = have
            if have == self.size:
                order = self._orders.pop(rank)
                self.ended[rank] = self.now
                self.cluster.rank_says(Fetched(rank, order.id, 0, order=order.order))
                self._take_orders()
            for receiver in [one for one, order in self._orders.items() if order.rank == rank]:
                self._move(receiver)
            if rank in self._orders:
                self._move(rank)

    def _take_orders(self) -> None:
        while orders := [(to, one) for kind, to, one in self.cluster.recorded if kind == "rank" and type(one) is Fetch]:
            self.cluster.recorded.clear()
            for rank, order in orders:
                self._orders[rank] = order
                self._have[rank] = 0
                if order.size >= PIPELINED_BYTES:
                    self.cluster.rank_says(Arriving(rank, order.id, 0, order.order))
            for rank, _ in orders:
                self._move(rank)

    def _move(self, rank: int) -> None:
        """The next chunk to a rank, if its source has it and none is on its way."""
        order, have = self._orders[rank], self._have[rank]
        there = self._have[order.rank] if order.rank in self._orders else self.size
        if have >= self.size or min(have + self.chunk, self.size) > there or any(e[2] == rank for e in self._events):
            return
        length = min(self.chunk, self.size - have)
        start = max(self.now, self._busy_until.get(order.rank, 0))
        self._busy_until[order.rank] = start + length
        self.sent[order.rank] = self.sent.get(order.rank, 0) + length
        heapq.heappush(self._events, (start + length, next(self._numbers), rank, have + length))


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 8, 15, 16, 40])
def test_a_large_value_reaches_all_soon_after_the_first_and_nobody_sends_it_twice(nodes: int) -> None:
    cluster = cluster_of(nodes)
    wanted(cluster, 512 * MIB, nodes)
    network = Network(cluster, 512 * MIB, 4 * MIB)
    network.play()
    assert network.ended.keys() == set(range(1, nodes + 1))
    assert max(network.ended.values()) <= 1.35 * 512 * MIB
    assert set(network.sent.values()) == {512 * MIB}
    cluster.forget()


@pytest.mark.parametrize(("nodes", "rounds"), [(1, 1), (2, 2), (3, 2), (7, 3), (15, 4), (31, 5), (100, 7)])
def test_a_value_that_is_not_passed_on_in_parts_takes_log_n_rounds(nodes: int, rounds: int) -> None:
    size = SHARED_BYTES
    cluster = cluster_of(nodes)
    wanted(cluster, size, nodes)
    network = Network(cluster, size, size)
    network.play()
    assert network.ended.keys() == set(range(1, nodes + 1))
    assert max(network.ended.values()) == rounds * size
    assert max(network.sent.values()) <= rounds * size
    cluster.forget()


def test_a_small_value_is_sent_to_several_at_once() -> None:
    with cluster_of(20) as cluster:
        id = wanted(cluster, MIB, 20)
        assert [order.rank for order in cluster.take(Fetch, 8)] == [0] * 8
        cluster.rank_says(Fetched(1, id, 0, order=1))
        assert sorted(order.rank for order in cluster.take(Fetch, 9)) == [0] + [1] * 8
        cluster.forget()


def test_a_chain_is_no_longer_than_pays() -> None:
    size = 4 * HOP_BYTES
    with cluster_of(8) as cluster:
        id = wanted(cluster, size, 8)
        assert cluster.one(Fetch, to=1).rank == 0
        for rank in range(1, 4):
            cluster.rank_says(Arriving(rank, id, 64 * rank, rank))
            assert cluster.one(Fetch, to=rank + 1) == Fetch(id, rank, 64 * rank, size, rank + 1)
        cluster.rank_says(Arriving(4, id, 256, 4))
        assert not cluster.take(Fetch, 0)
        cluster.rank_says(Fetched(1, id, 64, order=1))
        assert sorted((order.rank, order.order) for order in cluster.take(Fetch, 2)) == [(0, 5), (4, 6)]
        cluster.forget()


def test_who_waits_for_room_takes_no_source_from_others() -> None:
    with cluster_of(2) as cluster:
        wanted(cluster, LARGE, 2)
        assert cluster.one(Fetch, to=1).rank == 0
        cluster.forget()
        cluster.rank_says(RoomWanted(1, LARGE, []))
        assert cluster.one(Fetch, to=2).rank == 0
        cluster.forget()


def chain(cluster: Cluster) -> bytes:
    """A value comes from rank 1 to 2, and from there to 3 while it arrives. It can be made again."""
    id = cluster.submit(max_retries=3, where=on(1))
    cluster.returned(cluster.placed(id), id, Value(b"", Stored(1, 64, LARGE)))
    for node in (2, 3):
        cluster.submit(id, where=on(node))
    assert cluster.one(Fetch, to=2).rank == 1
    cluster.rank_says(Arriving(2, id, 128, 1))
    assert cluster.one(Fetch, to=3) == Fetch(id, 2, 128, LARGE, 2)
    cluster.rank_says(Arriving(3, id, 192, 2))
    cluster.forget()
    return id


def test_whose_source_is_gone_goes_on_from_another_one_and_those_behind_it_notice_nothing() -> None:
    with cluster_of(3) as cluster:
        id = chain(cluster)
        cluster.subscribed(DRIVER, id)
        driver = cluster.one(Fetch, to=0)
        assert driver.rank == 3
        cluster.rank_says(Fetched(0, id, 0, order=driver.order))
        cluster.forget()
        cluster.rank_says(RankLost(1, "was killed"))
        assert [(to, one) for _, to, one in cluster.recorded if type(one) is Fetch] == [(2, Fetch(id, 0, 0, LARGE, 4))]
        cluster.rank_says(Fetched(2, id, 128, order=4))
        cluster.rank_says(Fetched(3, id, 192, order=2))
        assert cluster.state.fetching == {}
        cluster.forget()


def test_a_rank_in_the_middle_of_a_chain_is_lost() -> None:
    with cluster_of(3) as cluster:
        id = chain(cluster)
        cluster.rank_says(RankLost(2, "was killed"))
        assert cluster.one(Fetch, to=3) == Fetch(id, 1, 64, LARGE, 3)
        cluster.rank_says(Fetched(3, id, 192, order=3))
        assert cluster.state.fetching == {}
        cluster.forget()


def test_what_one_has_of_a_value_is_a_source_again_as_soon_as_the_rest_comes() -> None:
    with cluster_of(4) as cluster:
        id = chain(cluster)
        cluster.rank_says(Fetched(3, id, -1, "rank 2 was lost", is_lost=True, order=2))  # and the other one is busy
        cluster.submit(id, where=on(4))
        assert cluster.one(Fetch, to=4).rank == 2
        cluster.forget()
        cluster.rank_says(RankLost(2, "was killed"))
        third, fourth = cluster.one(Fetch, to=3), cluster.one(Fetch, to=4)
        assert (third.rank, fourth.rank) == (1, 3)
        cluster.rank_says(Fetched(3, id, 192, order=third.order))
        cluster.rank_says(Fetched(4, id, 256, order=fourth.order))
        assert cluster.state.fetching == {}
        cluster.forget()


def test_where_no_copy_is_left_all_of_a_chain_are_stopped_and_the_value_is_made_again() -> None:
    with cluster_of(3) as cluster:
        id = chain(cluster)
        cluster.rank_says(RankLost(1, "was killed"))
        stopped = {to for _, to, one in cluster.recorded if type(one) is StopFetch}
        assert stopped == {2, 3}
        assert cluster.state.fetching == {}
        assert cluster.explain(id).state != "stored"
        cluster.rank_says(Fetched(2, id, 128, order=1))  # it had come before it was stopped
        assert Free([128]) in [one for _, _, one in cluster.recorded]
        cluster.forget()


def test_what_cannot_be_had_from_one_is_asked_of_another() -> None:
    with cluster_of(3) as cluster:
        id = cluster.put(size=LARGE, rank=1, offset=64)
        cluster.submit(id, where=on(2))
        cluster.rank_says(Fetched(2, id, 128, order=1))
        cluster.forget()
        cluster.submit(id, where=on(3))
        assert cluster.one(Fetch, to=3).rank == 1
        cluster.rank_says(Fetched(3, id, -1, "rank 1 cannot be reached", is_lost=True, order=2))
        assert cluster.one(Fetch, to=3) == Fetch(id, 2, 128, LARGE, 3)
        cluster.rank_says(Fetched(3, id, -1, "rank 2 cannot be reached", is_lost=True, order=3))
        cluster.forget()
        cluster.later(UNREACHED_US)
        assert cluster.explain(id).state == "lost"
        cluster.forget()


def test_who_takes_parts_of_a_copy_that_is_given_up_begins_anew() -> None:
    with cluster_of(3) as cluster:
        id = chain(cluster)
        cluster.rank_says(Fetched(2, id, -1, "rank 1 cannot be reached", is_lost=True, order=1))
        cluster.later(UNREACHED_US)
        told = [(to, type(one)) for _, to, one in cluster.recorded if type(one) in (Fetch, StopFetch)]
        assert told == [(2, StopFetch), (3, StopFetch), (3, Fetch)]
        assert cluster.take(Fetch, 1)[0] == Fetch(id, 1, 64, LARGE, 3)
        cluster.rank_says(Fetched(3, id, 192, order=2))  # of the old parts: they may be wrong
        assert Free([192]) in [one for _, _, one in cluster.recorded]
        assert [*cluster.state.fetching[id]] == [3]
        cluster.rank_says(Fetched(3, id, 256, order=3))
        assert cluster.state.fetching == {}
        cluster.forget()


def test_a_cancelled_call_in_the_middle_of_a_chain_stops_nothing_that_others_need() -> None:
    with cluster_of(3) as cluster:
        id = cluster.put(size=LARGE, rank=1, offset=64)
        middle, last = (cluster.submit(id, where=on(node)) for node in (2, 3))
        cluster.rank_says(Arriving(2, id, 128, 1))
        cluster.forget()
        cluster.client_says(DRIVER, CancelRequested(middle, False, False))
        cluster.forget()
        assert [*cluster.state.fetching[id]] == [2, 3]
        cluster.client_says(DRIVER, CancelRequested(last, False, False))
        assert {to for _, to, one in cluster.recorded if type(one) is StopFetch} == {2, 3}
        assert cluster.state.fetching == {}
        assert cluster.state.sending == {}
        cluster.forget()


def test_what_arrives_is_a_source_for_large_values_only() -> None:
    with cluster_of(2) as cluster:
        id = wanted(cluster, PIPELINED_BYTES - 1, 2)
        cluster.rank_says(Arriving(1, id, 64, 1))  # which no rank would say
        found = cluster.state.objects[id]
        assert open_sources(cluster.state, found, cluster.state.fetching[id]) == {}
        cluster.forget()


def test_a_whole_copy_goes_before_one_that_arrives_even_if_its_rank_sends_something_else() -> None:
    with cluster_of(4) as cluster:
        id = cluster.put(size=LARGE, offset=64)
        other = cluster.put(size=LARGE, rank=1, offset=64)
        cluster.submit(id, where=on(1))
        cluster.rank_says(Fetched(1, id, 128, order=1))
        cluster.submit(id, where=on(2))
        assert cluster.one(Fetch, to=2).rank == 0
        cluster.rank_says(Arriving(2, id, 64, 2))
        cluster.submit(other, where=on(3))
        assert cluster.one(Fetch, to=3).rank == 1
        cluster.submit(id, where=on(4))
        assert cluster.one(Fetch, to=4) == Fetch(id, 1, 128, LARGE, 4)
        cluster.forget()


def test_what_was_asked_for_ahead_is_brought_also_when_a_call_that_wants_it_is_cancelled() -> None:
    with cluster_of(2) as cluster:
        id = cluster.put(size=LARGE, offset=64)
        cluster.client_says(DRIVER, BroadcastRequested([id]))
        call = cluster.submit(id, where=on(1))
        assert [*cluster.state.fetching[id]] == [1, 2]
        cluster.client_says(DRIVER, CancelRequested(call, False, False))
        assert [*cluster.state.fetching[id]] == [1, 2]
        assert not cluster.take(StopFetch, 0)
        cluster.forget()


def on_disk(cluster: Cluster, is_dropped: bool) -> bytes:
    """A value of rank 1 that was written to disk; its copy in the arena was dropped, or room is not needed any more."""
    id = cluster.put(size=LARGE, rank=1, offset=64)
    cluster.rank_says(RoomWanted(1, LARGE, []))
    assert cluster.one(Spill, to=1).id == id
    if not is_dropped:
        cluster.rank_says(RoomWanted(1, 0, []))
    cluster.rank_says(Spilled(1, id, 0))
    cluster.rank_says(RoomWanted(1, 0, []))
    assert bool(cluster.state.objects[id].copies) is not is_dropped
    cluster.forget()
    return id


def test_a_value_is_read_from_disk_for_who_wants_it_and_not_if_nobody_does_any_more() -> None:
    with cluster_of(2) as cluster:
        id = on_disk(cluster, is_dropped=True)
        call = cluster.submit(id, where=on(2))
        assert cluster.one(Restore, to=1) == Restore(id, 0, LARGE, 1)
        cluster.forget()
        cluster.client_says(DRIVER, CancelRequested(call, False, False))
        assert cluster.one(StopFetch, to=1).id == id
        assert cluster.state.fetching == {}
        cluster.forget()


def test_a_value_that_is_in_the_arena_too_is_not_read_from_disk() -> None:
    with cluster_of(2) as cluster:
        id = on_disk(cluster, is_dropped=False)
        cluster.submit(id, where=on(2))
        order = cluster.one(Fetch, to=2)
        cluster.forget()
        cluster.rank_says(Fetched(2, id, -1, "rank 1 cannot be reached", is_lost=True, order=order.order))
        assert not cluster.take(Restore, 0)
        cluster.forget()

"""Calls go where their arguments are; where there is no room they wait as long as moving these would take."""

from __future__ import annotations

from mpi_runtime.scheduler.protocol.effects import Fetch, TakeBack
from mpi_runtime.scheduler.protocol.events import Call, Stored, Value
from mpi_runtime.scheduler.protocol.limits import MOVED_BYTES_PER_US, NEAR_WORTH_BYTES, STUCK_US
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched
from tests.builders import Cluster

GB = 1_000_000_000
MOVE_US = GB // MOVED_BYTES_PER_US
"""How long a value of 1 GB is thought to take."""


def busy(nodes: int = 2, us: int = -1) -> tuple[Cluster, bytes, int]:
    """Nodes with a processor each. Node 1 has a value of 1 GB and runs a call; `us`: how long the last took."""
    cluster = Cluster().head()
    for _ in range(nodes):
        cluster.node(cpus=1)
    data = cluster.put(size=GB, rank=1, offset=64)
    if us >= 0:
        known = cluster.submit(data, name="busy")
        cluster.done(cluster.placed(known), known, us=us)
        cluster.told(known)
    executor = cluster.placed(cluster.submit(data, name="busy"))
    assert node_of(cluster, executor) == 1
    return cluster, data, executor


def node_of(cluster: Cluster, executor: int) -> int:
    return cluster.state.executors[executor].rank.number


def test_a_call_waits_for_the_node_that_has_its_arguments_and_runs_there() -> None:
    cluster, data, executor = busy()
    with cluster:
        id = cluster.submit(data, name="waits")
        cluster.nothing()
        cluster.later(MOVE_US // 2)
        cluster.nothing()
        (first,) = cluster.state.executors[executor].assigned
        cluster.done(executor, first)
        assert node_of(cluster, cluster.placed(id)) == 1
        cluster.forget()


def test_it_waits_no_longer_than_moving_them_takes() -> None:
    cluster, data, _ = busy()
    with cluster:
        id = cluster.submit(data, name="waits")
        cluster.later(MOVE_US - 1000)
        cluster.nothing()
        cluster.later(1000)
        assert cluster.one(Fetch, to=2).id == data
        cluster.rank_says(Fetched(2, data, 64, order=1))
        assert node_of(cluster, cluster.placed(id)) == 2
        cluster.forget()


def test_those_behind_it_do_not_wait_once_more() -> None:
    cluster, data, _ = busy(nodes=4)
    with cluster:
        for _ in range(3):
            cluster.submit(data, name="waits")
        cluster.nothing()
        cluster.later(MOVE_US)
        at_work = {executor.rank.number for executor in cluster.state.executors.values() if executor.assigned}
        assert at_work == {1, 2, 3, 4}
        cluster.forget()


def test_it_does_not_wait_where_calls_are_known_to_take_longer() -> None:
    cluster, data, _ = busy(us=10 * MOVE_US)
    with cluster:
        cluster.submit(data, name="waits")
        assert cluster.one(Fetch, to=2).id == data
        cluster.forget()


def test_it_waits_where_calls_are_known_to_end_soon() -> None:
    cluster, data, _ = busy(us=MOVE_US // 2)
    with cluster:
        cluster.submit(data, name="waits")
        cluster.nothing()
        cluster.later(MOVE_US)
        cluster.forget()


def test_it_does_not_wait_for_what_actors_keep() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        data = cluster.put(size=GB, rank=1, offset=64)
        actor = cluster.actor(data, held_cpu=10_000)
        cluster.done(cluster.placed(actor), actor)
        cluster.submit(data)
        assert cluster.one(Fetch, to=2).id == data
        cluster.forget()


def test_what_is_little_moves_at_once() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        data = cluster.put(size=NEAR_WORTH_BYTES - 1, rank=1, offset=64)
        for _ in range(2):
            cluster.submit(data)
        assert cluster.one(Fetch, to=2).id == data
        cluster.forget()


def test_what_is_there_too_does_not_count() -> None:
    """Of two arguments one is on both nodes: only the other one would be moved."""
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        made = cluster.submit(name="make")
        executor = cluster.placed(made)
        here = node_of(cluster, executor)
        cluster.returned(executor, made, Value(b"", Stored(here, 64, 4 * NEAR_WORTH_BYTES)))
        cluster.take(Call, 0)
        cluster.forget()
        cluster.state.objects[made].copies[3 - here] = Stored(3 - here, 64, 4 * NEAR_WORTH_BYTES)  # type: ignore[index]
        cluster.state.extents[3 - here, 64] = made
        cluster.state.ranks[3 - here].stored = 4 * NEAR_WORTH_BYTES
        for _ in range(2):
            cluster.submit(made)
        assert len([one for _, _, one in cluster.recorded if isinstance(one, Call)]) == 2
        cluster.forget()


# What is brought ahead


def with_values(nodes: int, count: int, us: int) -> tuple[Cluster, list[bytes]]:
    """Nodes with a processor each, and values at the head, which runs nothing. Calls of "long" are known to take so
    long."""
    cluster = Cluster().head()
    for _ in range(nodes):
        cluster.node(cpus=1)
    known = cluster.submit(name="long")
    cluster.done(cluster.placed(known), known, us=us)
    cluster.told(known)
    return cluster, [cluster.put(size=GB // 10, offset=64 + number * GB) for number in range(count)]


def brought(cluster: Cluster, *ids: bytes) -> list[int]:
    """Bring all copies that are ordered, which must be these. Returns the nodes."""
    orders = [(to, one) for _, to, one in cluster.recorded if isinstance(one, Fetch)]
    assert [one.id for _, one in orders] == list(ids)
    cluster.take(Fetch, len(orders))
    for number, (to, one) in enumerate(orders):
        cluster.rank_says(Fetched(to, one.id, (one.order * 8 + number) * GB, order=one.order))
    return [to for to, _ in orders]


def test_arguments_are_brought_while_the_call_before_it_runs() -> None:
    cluster, values = with_values(1, 4, us=MOVE_US)
    with cluster:
        calls = [cluster.submit(value, name="long") for value in values]
        brought(cluster, values[0], values[1])
        executor = cluster.placed(calls[0])
        assert cluster.placed(calls[1]) == executor
        cluster.nothing()  # one ahead, and no more
        cluster.done(executor, calls[0], us=MOVE_US)
        cluster.told(calls[0])
        brought(cluster, values[2])
        assert cluster.placed(calls[2]) == executor
        cluster.nothing()
        cluster.forget()


def test_they_are_not_where_that_would_save_little() -> None:
    cluster, values = with_values(1, 2, us=3 * MOVE_US)
    with cluster:
        calls = [cluster.submit(value, name="long") for value in values]
        brought(cluster, values[0])
        cluster.placed(calls[0])
        cluster.nothing()
        cluster.forget()


def test_what_was_to_be_brought_goes_elsewhere_if_there_is_room() -> None:
    cluster, values = with_values(2, 3, us=MOVE_US)
    with cluster:
        calls = [cluster.submit(value, name="long") for value in values]
        first, second, third = [(to, one) for _, to, one in cluster.recorded if isinstance(one, Fetch)]
        cluster.take(Fetch, 3)
        cluster.rank_says(*(Fetched(to, one.id, GB, order=one.order) for to, one in (first, second)))
        mine, other = cluster.running(*calls[:2])
        assert (third[1].id, third[0]) == (values[2], node_of(cluster, mine))
        cluster.done(other, calls[1], us=MOVE_US // 2)
        cluster.told(calls[1])
        cluster.one(TakeBack)
        cluster.taken_back(mine)  # nothing: the call waits in the head
        cluster.later(2 * STUCK_US)
        cluster.nothing()  # the copy that is on its way will be the source
        cluster.rank_says(Arriving(third[0], values[2], 2 * GB, third[1].order))
        order = cluster.one(Fetch, to=node_of(cluster, other))
        assert (order.id, order.rank) == (values[2], third[0])
        cluster.forget()

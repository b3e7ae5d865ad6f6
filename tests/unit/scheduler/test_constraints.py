"""Where calls may run: on all nodes in turn, on one node, on nodes with labels."""

from typing import Any

import pytest

from mpi_runtime.scheduler.places.constraints import matches
from mpi_runtime.scheduler.protocol.events import ABSENT, EXISTS, IN, NOT_IN, Label, Where
from mpi_runtime.scheduler.protocol.questions import Nodes
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import LARGE, UNIT, Cluster

SSD = Label("disk", IN, ("ssd", "nvme"))


def three_nodes() -> Cluster:
    zones = [{"zone": "a"}, {"zone": "b", "disk": "ssd"}, {"zone": "b"}]
    cluster = Cluster()
    for labels in zones:
        cluster.node(cpus=2, labels=labels)
    return cluster


def host(cluster: Cluster, id: bytes) -> int:
    return cluster.state.executors[cluster.placed(id)].rank.node.number


@pytest.mark.parametrize(
    ("label", "with_it", "without"),
    [
        (Label("zone", IN, ("a", "b")), True, False),
        (Label("zone", IN, ("b",)), False, False),
        (Label("zone", NOT_IN, ("a",)), False, True),
        (Label("zone", NOT_IN, ("b",)), True, True),
        (Label("zone", EXISTS), True, False),
        (Label("zone", ABSENT), False, True),
    ],
    ids=str,
)
def test_labels(label: Label, with_it: bool, without: bool) -> None:
    assert matches((label,), {"zone": "a"}) is with_it
    assert matches((label,), {}) is without


def test_nodes_are_taken_in_turn() -> None:
    with three_nodes() as cluster:
        spread = Where(spread=True)
        ids = cluster.submit_many(6, where=spread)
        assert [host(cluster, id) for id in ids] == [0, 1, 2, 0, 1, 2]
        cluster.submit(where=spread)
        cluster.nothing()


def test_short_calls_are_spread_too_and_actors_that_hold_nothing() -> None:
    with three_nodes() as cluster:
        first = cluster.submit(where=Where(spread=True))
        executor = cluster.placed(first)
        cluster.done(executor, first, us=5)
        cluster.told(first)
        ids = cluster.submit_many(3, where=Where(spread=True))
        assert sorted(host(cluster, id) for id in ids) == [0, 1, 2]
        for place in (0, 1, 2):
            actor = cluster.actor(where=Where(spread=True))
            at = cluster.placed(actor)
            assert cluster.state.executors[at].rank.node.number == (place + 1) % 3
            cluster.done(at, actor)
            cluster.told(actor)


def test_a_node_may_be_asked_for() -> None:
    with three_nodes() as cluster:
        on_2 = Where(node=f"{2:032x}")
        ids = cluster.submit_many(3, where=on_2)
        assert [host(cluster, id) for id in ids[:2]] == [2, 2]
        why = cluster.explain(ids[2]).why
        assert f"on a node with 'ray.io/node-id' = '{2:032x}'" in why
        assert why.endswith("host2: 0 CPU, 0 GPU free. In use by f (2).")


def test_a_node_that_there_is_not() -> None:
    with three_nodes() as cluster:
        failed = cluster.told(cluster.submit(name="f", where=Where(node="beef")))
        assert failed.code == "InfeasibleResourceError"
        assert "f is to run on a node with 'ray.io/node-id' = 'beef', but no node matches" in failed.message
        cluster.placed(cluster.submit(where=Where(node="beef", soft=True)))


def test_a_node_that_is_too_small() -> None:
    with Cluster().node(cpus=1).node(cpus=4) as cluster:
        node = f"{0:032x}"
        failed = cluster.told(cluster.submit(cpu=2, where=Where(node=node)))
        assert "none of these (host0) owns that much" in failed.message
        assert host(cluster, cluster.submit(cpu=2, where=Where(node=node, soft=True))) == 1


@pytest.mark.parametrize(
    ("request_", "is_named"),
    [({"cpu": 2}, True), ({"cpu": 2, "where": Where(node=f"{0:032x}")}, True), ({"gpu": 1}, False)],
)
def test_the_error_names_the_reason_why_a_host_has_few_cpus(request_: dict[str, Any], is_named: bool) -> None:
    bound = "rank 0 is bound to 1 of 8 CPUs"
    with Cluster().join(RankJoined(0, 0, "host0", [0], -1, 0, 0, {}, 1 << 30, cpu_limit=bound)) as cluster:
        failed = cluster.told(cluster.submit(**request_))
        assert (f" On host0 {bound}. " in failed.message) == is_named


def test_a_soft_wish_for_a_node_waits_for_it_while_it_is_busy() -> None:
    with Cluster().node(cpus=1).node(cpus=1) as cluster:
        ids = cluster.submit_many(2, where=Where(node=f"{0:032x}", soft=True))
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        cluster.told(ids[0])
        assert cluster.placed(ids[1]) == executor


def test_labels_choose_nodes() -> None:
    with three_nodes() as cluster:
        zone_b = (Label("zone", IN, ("b",)),)
        ids = cluster.submit_many(4, where=Where(labels=zone_b))
        assert sorted(host(cluster, id) for id in ids) == [1, 1, 2, 2]
        failed = cluster.told(cluster.submit(where=Where(labels=(Label("zone", ABSENT),))))
        assert "with no 'zone', but no node matches" in failed.message
        assert "zone=b, disk=ssd" in failed.message


def test_preferred_labels_where_there_is_room() -> None:
    with three_nodes() as cluster:
        ids = cluster.submit_many(5, where=Where(labels=(Label("zone", IN, ("b",)),), preferred=(SSD,)))
        assert [host(cluster, id) for id in ids[:4]] == [1, 1, 2, 2]
        cluster.nothing()


def test_the_heads_own_node_runs_nothing_whoever_asks() -> None:
    with Cluster().head().node(cpus=1) as cluster:
        head = Label("ray.io/node-id", IN, (f"{0:032x}",))
        assert host(cluster, cluster.submit(cpu=0, where=Where(preferred=(head,)))) == 1
        assert cluster.told(cluster.submit(cpu=0, where=Where(node=f"{0:032x}"))).code == "InfeasibleResourceError"


def test_large_arguments_draw_calls_to_them_where_that_is_allowed() -> None:
    with three_nodes() as cluster:
        value = cluster.put(size=LARGE, rank=2)
        assert host(cluster, cluster.submit(value, where=Where(labels=(Label("zone", IN, ("b",)),)))) == 2
        id = cluster.submit(value, where=Where(labels=(Label("zone", IN, ("a",)),)))
        assert cluster.state.objects[id].task.executor.rank.node.number == 0  # type: ignore[union-attr]
        cluster.forget()


def test_a_node_is_kept_for_a_large_request_only_where_it_may_run() -> None:
    with three_nodes() as cluster:
        small = cluster.submit_many(6)
        cluster.running(*small)
        large = cluster.submit(name="large", cpu=2, where=Where(labels=(Label("disk", EXISTS),)))
        assert [node.reserved_for is not None for node in cluster.state.nodes.values()] == [False, True, False]
        assert "with some 'disk'" in cluster.explain(large).why


def test_nodes_tell_their_labels() -> None:
    with three_nodes() as cluster:
        labels = [node.labels for node in cluster.ask(Nodes())]
        assert labels[1] == {"ray.io/node-id": f"{1:032x}", "hostname": "host1", "zone": "b", "disk": "ssd"}


def test_what_makes_no_difference_shares_a_queue() -> None:
    with Cluster().node(cpus=1) as cluster:
        cluster.placed(cluster.submit())
        cluster.submit(name="soft", where=Where(node="beef", soft=True))
        cluster.submit(name="empty", where=Where())
        assert len(cluster.state.queues) == 1
        assert cluster.state.nodes[0].total.cpu == UNIT

"""Placement groups: reserved whole or not at all, used by those who may, gone with all that ran in them."""

from typing import Any

import msgspec
import pytest

from mpi_runtime.scheduler.nodes import groups
from mpi_runtime.scheduler.protocol.effects import Answer, Fetch, Free, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import IN, NOT_IN, STRATEGIES, Label, Stored, Value, Where
from mpi_runtime.scheduler.protocol.limits import ACTOR_PATIENCE_US, RESERVATION_US
from mpi_runtime.scheduler.protocol.questions import (
    AvailableResources,
    ClusterResources,
    Groups,
    NamedGroup,
    Statistics,
)
from mpi_runtime.scheduler.protocol.rank_events import Fetched
from mpi_runtime.scheduler.records.records import Function
from tests.builders import LARGE, UNIT, Cluster


def inside(group: bytes, bundle: int = -1) -> Where:
    return Where(group=group, bundle=bundle)


# Placing


def test_a_group_that_fits_is_placed_at_once() -> None:
    with Cluster().node(cpus=4) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 2})
        assert cluster.told(group).data == b"a group"
        assert cluster.state.nodes[0].free.cpu == UNIT
        assert cluster.ask(AvailableResources())["CPU"] == 1
        assert cluster.ask(ClusterResources())["CPU"] == 4


def test_all_bundles_or_none() -> None:
    with Cluster().node(cpus=2) as cluster:
        busy = cluster.submit()
        executor = cluster.placed(busy)
        group = cluster.group({"cpu": 1}, {"cpu": 1})
        assert cluster.state.nodes[0].free.cpu == UNIT
        assert "It asks for 2 bundle(s) (1 CPU; 1 CPU)" in cluster.explain(group).why
        cluster.done(executor, busy)
        cluster.told(busy)
        cluster.told(group)
        assert cluster.state.nodes[0].free.cpu == 0


@pytest.mark.parametrize(
    ("strategy", "nodes"), [("PACK", 1), ("STRICT_PACK", 1), ("SPREAD", 3), ("STRICT_SPREAD", 3)], ids=str
)
def test_bundles_lie_as_the_strategy_says(strategy: str, nodes: int) -> None:
    with Cluster().node(cpus=4).node(cpus=4).node(cpus=4) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1}, {"cpu": 1}, strategy=strategy)
        cluster.told(group)
        assert len(set(cluster.nodes_of(group))) == nodes


@pytest.mark.parametrize(("strategy", "nodes"), [("PACK", [0, 0, 1, 1]), ("SPREAD", [0, 1, 0, 1])], ids=str)
def test_soft_strategies_make_do_with_what_there_is(strategy: str, nodes: list[int]) -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group(*[{"cpu": 1}] * 4, strategy=strategy)
        cluster.told(group)
        assert sorted(cluster.nodes_of(group)) == sorted(nodes)


@pytest.mark.parametrize("strategy", ["STRICT_PACK", "STRICT_SPREAD"])
def test_strict_strategies_wait_for_ever_and_say_so(strategy: str) -> None:
    with Cluster().node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group(*[{"cpu": 1}] * 3, strategy=strategy)
        assert "It is infeasible" in cluster.explain(group).why
        (entry,) = cluster.ask(Groups(group))
        assert (entry.state, entry.scheduling) == ("PENDING", "INFEASIBLE")
        waiting = cluster.submit(where=inside(group))
        assert "waits for placement group" in cluster.explain(waiting).why
        assert "It is infeasible" in cluster.explain(waiting).why
        cluster.remove_group(group)
        assert cluster.told(group).code == cluster.told(waiting).code == "PlacementGroupRemovedError"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bundles_lie_on_nodes_with_their_labels(strategy: str) -> None:
    with Cluster().node(cpus=4, labels={"zone": "a"}).node(cpus=2, labels={"zone": "b"}).node(cpus=1) as cluster:
        b, not_a = Label("zone", IN, ("b",)), Label("zone", NOT_IN, ("a",))
        group = cluster.group({"cpu": 1}, {"cpu": 1, "labels": (b,)}, {"cpu": 1, "labels": (not_a,)}, strategy=strategy)
        if strategy == "STRICT_PACK":
            assert "1 CPU on a node with 'zone' = 'b'" in cluster.explain(group).why
            assert "It is infeasible" in cluster.explain(group).why
            return
        cluster.told(group)
        places = {bundle.index: bundle.node.number for bundle in cluster.state.groups[group].bundles.values()}
        assert places[1] == 1
        assert places[2] in (1, 2)
        assert strategy != "STRICT_SPREAD" or places == {0: 0, 1: 1, 2: 2}


def test_a_group_waits_for_a_node_with_its_labels() -> None:
    with Cluster().node(cpus=4, labels={"zone": "a"}) as cluster:
        group = cluster.group({"cpu": 1, "labels": (Label("zone", IN, ("b",)),)})
        assert "hostname=host0, zone=a. Remove it" in cluster.explain(group).why
        cluster.node(cpus=1, labels={"zone": "b"})
        cluster.told(group)
        assert cluster.nodes_of(group) == [1]


def test_a_node_that_joins_makes_room() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group(*[{"cpu": 1}] * 2, strategy="STRICT_SPREAD")
        assert "It is infeasible" in cluster.explain(group).why
        cluster.node(cpus=2)
        cluster.told(group)


def test_groups_are_tried_in_order_of_creation() -> None:
    with Cluster().node(cpus=2) as cluster:
        first = cluster.group({"cpu": 2})
        cluster.told(first)
        second, third = cluster.group({"cpu": 2}), cluster.group({"cpu": 2})
        cluster.remove_group(first)
        cluster.told(second)
        cluster.remove_group(second)
        cluster.told(third)


def test_nodes_are_kept_for_a_group_that_waits_and_only_for_a_time() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(6)
        one, other = cluster.running(*ids[:2])
        group = cluster.group({"cpu": 2}, strategy="STRICT_PACK")
        late = cluster.submit(name="late")
        cluster.done(one, ids[0], us=10_000_000)
        cluster.forget()
        assert "kept for a larger request" in cluster.explain(late).why
        cluster.later(RESERVATION_US)
        cluster.forget()
        assert cluster.state.nodes[0].reserved_for is None
        assert not cluster.state.nodes[0].free.cpu
        cluster.done(other, ids[1], us=10_000_000)
        cluster.forget()
        assert "2 CPU" in cluster.explain(group).why


def test_whole_devices_are_reserved_by_id_and_shares_from_one_device() -> None:
    with Cluster().node(cpus=4, gpus=3) as cluster:
        taken = cluster.submit(gpu=1)
        assert cluster.one(StartExecutor).gpu_ids == [0]
        cluster.placed(taken)
        group = cluster.group({"cpu": 1, "gpu": 1}, {"cpu": 1, "gpu": 0.5})
        cluster.told(group)
        assert [bundle.total.gpu_units for bundle in cluster.state.groups[group].bundles.values()] == [
            [0, UNIT, 0],
            [0, 0, UNIT // 2],
        ]
        id = cluster.submit(gpu=1, where=inside(group))
        assert cluster.one(StartExecutor).gpu_ids == [1]
        cluster.placed(id)
        shares = [cluster.submit(name=f"share{n}", cpu=0, gpu=0.25, where=inside(group, 1)) for n in range(2)]
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 2)] == [[2], [2]]
        cluster.running(*shares)
        outside = cluster.submit(name="outside", gpu=0.5)
        assert cluster.one(StartExecutor).gpu_ids == [2]
        cluster.placed(outside)


def test_the_object_of_a_group_is_an_argument_like_any_other() -> None:
    with Cluster().node(cpus=2) as cluster:
        busy = cluster.submit(cpu=2)
        executor = cluster.placed(busy)
        group = cluster.group({"cpu": 1})
        id = cluster.submit(group)
        cluster.released(group)
        cluster.done(executor, busy)
        cluster.told(busy)
        cluster.done(cluster.placed(id), id)
        cluster.told(id)


def test_names_are_of_one_group_at_a_time() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1}, name="mine", request=5)
        assert msgspec.msgpack.decode(cluster.one(Answer).data) is True
        cluster.told(group)
        second = cluster.group({"cpu": 1}, name="mine", request=6)
        assert msgspec.msgpack.decode(cluster.one(Answer).data) is False
        assert second not in cluster.state.groups
        assert cluster.ask(NamedGroup("", "mine")) == b"a group"
        cluster.remove_group(group)
        assert cluster.ask(NamedGroup("", "mine")) is None


# Using


def test_calls_take_from_their_bundle_and_wait_for_it() -> None:
    with Cluster().node(cpus=4) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1})
        cluster.told(group)
        first = cluster.submit(where=inside(group, 0))
        second = cluster.submit(where=inside(group, 0))
        executor = cluster.placed(first)
        why = cluster.explain(second).why
        assert why.startswith(f"It needs 1 CPU in bundle 0 of placement group {group.hex()}. ")
        assert why.endswith("bundle 0 on host0: 0 CPU, 0 GPU free. In use by f (1).")
        assert cluster.state.nodes[0].free.cpu == 2 * UNIT
        anywhere = cluster.submit(where=inside(group))
        cluster.placed(anywhere)
        cluster.done(executor, first)
        cluster.told(first)
        assert cluster.placed(second) == executor


def test_calls_outside_do_not_take_from_bundles() -> None:
    with Cluster().node(cpus=2) as cluster:
        cluster.told(cluster.group({"cpu": 2}))
        waiting = cluster.submit()
        assert "0 CPU" in cluster.explain(waiting).why
        cluster.nothing()


@pytest.mark.parametrize(
    ("request_", "bundle", "words"),
    [
        ({"cpu": 2}, -1, "in any bundle of placement group"),
        ({"cpu": 1, "gpu": 1}, 0, "in bundle 0 of placement group"),
        ({"cpu": 1}, 2, "which has 2 bundle(s)"),
    ],
    ids=str,
)
def test_what_fits_no_bundle_fails_at_once(request_: dict[str, float], bundle: int, words: str) -> None:
    with Cluster().node(cpus=4, gpus=1) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1, "gpu": 1})
        cluster.told(group)
        id = cluster.submit(name="f", where=inside(group, bundle), **request_)  # type: ignore[arg-type]
        failed = cluster.told(id)
        assert failed.code == "InfeasibleResourceError"
        assert words in failed.message


def test_calls_wait_for_their_group_and_for_arguments() -> None:
    with Cluster().node(cpus=1) as cluster:
        busy = cluster.submit()
        executor = cluster.placed(busy)
        group = cluster.group({"cpu": 1})
        id = cluster.submit(busy, where=inside(group))
        assert "waits for placement group" in cluster.explain(id).why
        cluster.done(executor, busy)
        cluster.told(busy)
        cluster.told(group)
        assert cluster.placed(id) == executor


def test_a_blocked_call_lends_its_cpu_to_its_bundle() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        parent = cluster.submit(where=inside(group))
        executor = cluster.placed(parent)
        child = cluster.submit(name="child", client=executor, where=inside(group))
        cluster.blocked(executor, child)
        inner = cluster.placed(child)
        assert cluster.state.nodes[0].free.cpu == UNIT
        cluster.unblocked(executor)
        assert cluster.state.groups[group].bundles[0].free.cpu == -UNIT
        cluster.done(inner, child)
        cluster.told(child, to=executor)
        cluster.done(executor, parent)
        cluster.told(parent)
        assert cluster.state.groups[group].bundles[0].free.cpu == UNIT


def test_an_actor_is_not_created_in_a_bundle_without_any_cpu() -> None:
    with Cluster().node(cpus=1, gpus=1) as cluster:
        group = cluster.group({"cpu": 1}, {"gpu": 1})
        cluster.told(group)
        call = cluster.submit(where=inside(group, 0))
        worker = cluster.placed(call)
        actor = cluster.actor(where=inside(group))
        cluster.later(ACTOR_PATIENCE_US)
        cluster.nothing()
        cluster.done(worker, call)
        cluster.told(call)
        cluster.placed(actor)


def test_an_actor_in_a_bundle_keeps_what_it_holds_of_it() -> None:
    with Cluster().node(cpus=3) as cluster:
        group = cluster.group({"cpu": 2})
        cluster.told(group)
        actor = cluster.actor(where=inside(group, 0), held_cpu=UNIT)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.forget()
        bundle = cluster.state.groups[group].bundles[0]
        assert (bundle.free.cpu, bundle.actor_cpu, cluster.state.nodes[0].actor_cpu) == (UNIT, UNIT, 0)
        cluster.released(actor)
        assert cluster.one(StopExecutor) == StopExecutor(executor, force=False)
        cluster.died(executor, cause="exited with code 0")
        assert (bundle.free.cpu, bundle.actor_cpu) == (2 * UNIT, 0)


def test_a_large_request_gets_its_turn_in_a_bundle() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 2})
        cluster.told(group)
        small = [cluster.submit(where=inside(group)) for _ in range(3)]
        one, other = cluster.running(*small[:2])
        large = cluster.submit(name="large", cpu=2, where=inside(group))
        late = cluster.submit(name="late", where=inside(group))
        cluster.done(one, small[0])
        cluster.told(small[0])
        cluster.done(cluster.placed(small[2]), small[2])
        cluster.told(small[2])
        assert "kept for a larger request" in cluster.explain(late).why
        cluster.done(other, small[1])
        cluster.told(small[1])
        cluster.placed(large)


def test_a_call_whose_executor_dies_is_run_again_in_its_bundle() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        id = cluster.submit(where=inside(group), max_retries=1)
        executor = cluster.placed(id)
        cluster.died(executor, id)
        again = cluster.state.executors[cluster.placed(id)]
        assert again.source is cluster.state.groups[group].bundles[0]


# Removing


def test_removal_kills_what_runs_and_the_node_gets_back_when_the_process_is_gone() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1})
        cluster.told(group)
        running = cluster.submit(where=inside(group, 0), max_retries=5)
        executor = cluster.placed(running)
        queued = cluster.submit(where=inside(group, 0))
        cluster.remove_group(group)
        assert cluster.one(StopExecutor) == StopExecutor(executor, force=True)
        for id, words in ((running, "f was stopped: placement group"), (queued, "was to run in placement group")):
            failed = cluster.told(id)
            assert failed.code == "PlacementGroupRemovedError"
            assert words in failed.message
        assert cluster.state.nodes[0].free.cpu == UNIT  # the other bundle's
        cluster.done(executor, running)  # it was on its way
        cluster.died(executor)
        assert cluster.state.nodes[0].free.cpu == 2 * UNIT
        cluster.released(group, running, queued)
        assert cluster.is_clean()
        assert not cluster.state.queues


def test_removal_ends_actors_and_creations_that_wait() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        actor = cluster.actor(where=inside(group), held_cpu=UNIT)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        waiting = cluster.actor(where=inside(group), held_cpu=UNIT)
        called = cluster.method(waiting)
        cluster.remove_group(group)
        cluster.one(StopExecutor)
        assert cluster.told(waiting).code == "PlacementGroupRemovedError"
        assert "placement group" in cluster.told(called).message
        cluster.died(executor)
        late = cluster.method(actor)
        failed = cluster.told(late)
        assert failed.code == "ActorDiedError"
        assert "ended because its placement group was removed" in failed.message
        cluster.released(group, actor, waiting, called, late)
        assert cluster.is_clean()


def test_calls_that_wait_for_arguments_fail_at_removal_and_later_ones_at_once() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        busy = cluster.submit()
        cluster.placed(busy)
        waiting = cluster.submit(busy, where=inside(group))
        cluster.remove_group(group)
        cluster.remove_group(group)  # twice does no harm
        assert cluster.told(waiting).code == "PlacementGroupRemovedError"
        assert cluster.told(cluster.submit(where=inside(group))).code == "PlacementGroupRemovedError"
        assert cluster.told(cluster.actor(where=inside(group))).code == "PlacementGroupRemovedError"


def test_removal_while_arguments_are_on_their_way() -> None:
    with Cluster().head().node(cpus=1) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        large = cluster.put(size=LARGE, rank=0)
        id = cluster.submit(large, where=inside(group))
        cluster.one(Fetch)
        executor = cluster.one(StartExecutor).executor
        cluster.remove_group(group)
        cluster.one(StopExecutor)
        assert cluster.told(id).code == "PlacementGroupRemovedError"
        cluster.rank_says(Fetched(1, large, 0))
        cluster.died(executor)
        assert cluster.state.nodes[1].free.cpu == UNIT


def test_a_blocked_call_is_killed_with_its_group() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        parent = cluster.submit(where=inside(group))
        executor = cluster.placed(parent)
        child = cluster.submit(name="child", client=executor)
        cluster.placed(child)
        cluster.blocked(executor, child)
        cluster.remove_group(group)
        cluster.one(StopExecutor)
        cluster.told(parent)
        assert cluster.state.nodes[0].free.cpu == 0
        cluster.unblocked(executor)
        cluster.blocked(executor, child)
        cluster.returned(executor, parent, Value(b"late"))
        cluster.died(executor)
        assert cluster.state.nodes[0].free.cpu == UNIT


def test_what_a_stopped_call_needs_is_there_until_its_process_is_gone() -> None:
    """It may still begin the call, and read memory that would be another's."""
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        large = cluster.put(size=LARGE)
        call = cluster.submit(large, where=inside(group))
        executor = cluster.placed(call)
        cluster.released(large)
        cluster.remove_group(group)
        cluster.one(StopExecutor)
        assert cluster.told(call).code == "PlacementGroupRemovedError"
        cluster.nothing()
        cluster.died(executor)
        assert cluster.one(Free).offsets == [0]


def test_a_group_that_was_removed_leaves_its_executors_that_idle() -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 2})
        cluster.told(group)
        id = cluster.submit(where=inside(group))
        executor = cluster.placed(id)
        cluster.done(executor, id)
        cluster.told(id)
        cluster.remove_group(group)
        after = cluster.submit()
        assert cluster.placed(after) == executor


def test_the_table_tells_all() -> None:
    with Cluster().node(cpus=4, gpus=1, disk=1) as cluster:
        group = cluster.group({"cpu": 1, "gpu": 0.5, "custom": {"disk": UNIT}}, {"memory": 0, "cpu": 2})
        cluster.told(group)
        (entry,) = cluster.ask(Groups())
        assert entry.placement_group_id == group.hex()
        assert entry.bundles == [{"CPU": 1.0, "GPU": 0.5, "disk": 1.0}, {"CPU": 2.0}]
        assert entry.nodes == [f"{0:032x}"] * 2
        assert (entry.state, entry.scheduling) == ("CREATED", "FINISHED")
        assert "reserved on host0, host0" in entry.why
        assert cluster.ask(Statistics()).placement_groups == 1


def test_the_memory_of_a_result_that_comes_too_late_is_freed() -> None:
    with Cluster().node(cpus=1) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        id = cluster.submit(where=inside(group))
        executor = cluster.placed(id)
        cluster.remove_group(group)
        cluster.one(StopExecutor)
        cluster.told(id)
        cluster.returned(executor, id, Value(b"", Stored(0, 64, LARGE)))
        assert cluster.one(Free) == Free([64])
        cluster.died(executor)
        cluster.released(group, id)
        assert cluster.is_clean()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_call_runs_in_the_bundle_that_is_near_to_its_data(rank: int) -> None:
    with Cluster().node(cpus=2).node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1}, {"cpu": 1}, {"cpu": 1}, strategy="STRICT_SPREAD")
        cluster.told(group)
        data = cluster.put(size=LARGE, rank=rank)
        call = cluster.submit(data, where=inside(group))
        assert cluster.state.executors[cluster.placed(call)].rank.number == rank


@pytest.mark.parametrize(("priority", "goes_on"), [(-1, False), (0, False), (1, True)])
def test_a_group_that_waits_goes_before_calls_of_no_higher_priority(priority: int, goes_on: bool) -> None:
    with Cluster().node(cpus=1) as cluster:
        first = cluster.submit(priority=priority)
        executor = cluster.placed(first)
        group = cluster.group({"cpu": 1})
        second = cluster.submit(priority=priority)
        cluster.nothing()
        cluster.done(executor, first)
        cluster.told(first)
        if goes_on:
            assert cluster.placed(second) == executor
        else:
            cluster.told(group)


class Unread(dict[int, Function]):
    """A table through which nothing looks."""

    def values(self) -> Any:
        raise AssertionError("the functions of all groups so far are looked through")


def test_the_end_of_a_group_does_not_depend_on_the_number_of_groups_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster().node(cpus=2) as cluster:
        group = cluster.group({"cpu": 1})
        cluster.told(group)
        first = cluster.submit(where=inside(group))
        second = cluster.submit(where=inside(group), name="second")
        executor = cluster.placed(first)
        monkeypatch.setattr(cluster.state, "functions", Unread(cluster.state.functions))
        groups.remove(cluster.state, group)
        monkeypatch.undo()
        cluster.decide()
        assert not any(function.queues for function in cluster.state.functions.values())
        for call in (first, second):
            assert cluster.told(call).code == "PlacementGroupRemovedError"
        cluster.died(executor)
        cluster.forget()

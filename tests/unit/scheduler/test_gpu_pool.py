"""GPUs of nodes: joined by ranks, limited to what was stated, and passed on only when nobody lives with them."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.gpu.device import Device, Link
from mpi_runtime.scheduler.protocol.effects import StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import Where
from mpi_runtime.scheduler.protocol.questions import AvailableResources, Nodes
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import UNIT, Cluster

GIB = 1 << 30


def gpu(number: int, kind: str = "H100", memory: int = 80 * GIB, **fields: Any) -> Device:
    return Device(f"GPU-{kind}-{number}", kind, (kind,), memory, bus=f"{number:02}", **fields)


def joined(rank: int, host: int, *gpus: Device, stated: int = 0, **fields: Any) -> RankJoined:
    return RankJoined(
        rank, host, f"host{host}", [0, 1, 2, 3], -1, stated * UNIT, 0, {}, 1 << 30, devices=list(gpus), **fields
    )


def cluster_of(*ranks: RankJoined) -> Cluster:
    cluster = Cluster()
    for rank in ranks:
        cluster.join(rank)
    return cluster


def free(cluster: Cluster) -> dict[str, float]:
    found: dict[str, float] = cluster.ask(AvailableResources())
    return {name: amount for name, amount in found.items() if name not in ("CPU", "object_store_memory")}


# Who has what


def test_devices_are_counted_once_and_numbered_by_place() -> None:
    with cluster_of(joined(0, 0, gpu(3), gpu(1)), joined(1, 0, gpu(2), gpu(1))) as cluster:
        assert free(cluster) == {"GPU": 3, "accelerator_type:H100": 3, "gpu_memory": 3.0 * 80 * GIB}
        table = cluster.ask(Nodes())[0].gpus
        assert [(one.id, one.uuid, one.ranks) for one in table] == [
            (0, "GPU-H100-1", [0, 1]), (1, "GPU-H100-2", [1]), (2, "GPU-H100-3", [0]),
        ]  # fmt: skip


def test_a_device_that_two_hosts_name_is_counted_to_one() -> None:
    """Containers with names of their own may show the same card."""
    with cluster_of(joined(0, 0, gpu(1)), joined(1, 1, gpu(1), gpu(2))) as cluster:
        assert free(cluster)["GPU"] == 2
        assert [[one.uuid for one in node.gpus] for node in cluster.ask(Nodes())] == [
            ["GPU-H100-1"], ["GPU-H100-2"],
        ]  # fmt: skip


def test_executors_start_where_their_devices_can_be_used() -> None:
    with cluster_of(joined(0, 0, gpu(0)), joined(1, 0, gpu(1)), joined(2, 0, gpu(1), gpu(2))) as cluster:
        found = {}
        for _ in range(3):
            cluster.submit(cpu=0, gpu=1)
        for rank in range(3):
            for effect in [one for kind, to, one in cluster.recorded if kind == "rank" and to == rank]:
                found[effect.uuids[0]] = rank
                assert effect.gpu_ids == [int(effect.uuids[0][-1])]
        assert found["GPU-H100-0"] == 0
        assert found["GPU-H100-1"] in (1, 2)
        assert found["GPU-H100-2"] == 2
        cluster.forget()


def test_several_of_one_rank() -> None:
    with cluster_of(joined(0, 0, gpu(0)), joined(1, 0, gpu(1), gpu(2))) as cluster:
        cluster.submit(cpu=0, gpu=2)
        assert cluster.one(StartExecutor, to=1).gpu_ids == [1, 2]
        cluster.forget()
        failed = cluster.told(cluster.submit(name="too many", cpu=0, gpu=3))
        assert "GPUs by node: host0: 3 x H100." in failed.message
        assert "srun --gpus-per-node=N" in failed.message


@pytest.mark.parametrize(("options", "ids"), [
    ({"gpu": 1, "custom": {"accelerator_type:A100": 10}}, [0]),
    ({"gpu": 2, "custom": {"accelerator_type:H100": 10}}, [1, 2]),
    ({"gpu_memory": 50 * GIB}, [1]),
    ({"gpu": 0.5, "gpu_memory": 30 * GIB}, [0]),
    ({"gpu": 0.5, "gpu_memory": 41 * GIB}, [1]),
    ({"gpu": 1, "gpu_memory": 41 * GIB}, [1]),
])  # fmt: skip
def test_types_and_memory(options: dict[str, Any], ids: list[int]) -> None:
    with cluster_of(joined(0, 0, gpu(0, "A100", 40 * GIB), gpu(1), gpu(2))) as cluster:
        cluster.submit(cpu=0, **options)
        assert cluster.one(StartExecutor).gpu_ids == ids
        cluster.forget()


def test_a_call_that_asks_for_memory_alone_shares_a_device_that_is_shared() -> None:
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        cluster.submit(cpu=0, gpu=0.5)
        cluster.submit(cpu=0, gpu_memory=10 * GIB)
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 2)] == [[0], [0]]
        cluster.forget()


def test_memory_is_not_promised_twice() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        first, second = (cluster.submit(cpu=0, gpu_memory=30 * GIB) for _ in range(2))
        assert free(cluster)["gpu_memory"] == 20 * GIB
        executor = cluster.placed(first)
        cluster.placed(second)
        waiting = cluster.submit(cpu=0, gpu=0.5)
        assert cluster.explain(waiting).why.startswith("It needs 0.5 GPU.")
        quarter = cluster.submit(cpu=0, gpu=0.25, name="quarter")
        cluster.placed(quarter)
        cluster.died(executor, first)
        cluster.forget()


def test_bundles_have_the_memory_of_their_part() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        group = cluster.group({"gpu": 0.5})
        cluster.forget()
        assert free(cluster)["gpu_memory"] == 40 * GIB
        inside = Where(group=group, bundle=0)
        cluster.submit(cpu=0, gpu_memory=30 * GIB, where=inside)
        cluster.submit(cpu=0, gpu=0.1, gpu_memory=10 * GIB, where=inside)
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 2)] == [[0], [0]]
        cluster.forget()
        failed = cluster.told(cluster.submit(name="g", cpu=0, gpu_memory=41 * GIB, where=inside))
        assert "that never fits" in failed.message


def test_links_choose_the_set() -> None:
    links = [Link("GPU-H100-0", "GPU-H100-3", 2, 50), Link("GPU-H100-1", "GPU-H100-2", 2, 50)]
    with cluster_of(joined(0, 0, *(gpu(number) for number in range(4)), links=links)) as cluster:
        for _ in range(2):
            cluster.submit(cpu=0, gpu=2)
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 2)] == [[0, 3], [1, 2]]
        assert [one.linked for one in cluster.ask(Nodes())[0].gpus] == [[3], [2], [1], [0]]
        cluster.forget()


# What was stated


@pytest.mark.parametrize(("ranks", "stated", "count", "wrong"), [
    ([joined(0, 0, gpu(0), gpu(1))], None, 2, ""),
    ([joined(0, 0, gpu(0), gpu(1))], 1, 1, ""),
    ([joined(0, 0, gpu(0), gpu(1))], 3, 2, "init(num_gpus=3), but host host0 has 2 x H100 for this job."),
    ([joined(0, 0, gpu(0)), joined(1, 0, gpu(1))], 2, 2, ""),
    ([joined(0, 0, stated=2)], 2, 2, ""),
    ([joined(0, 0, stated=2), joined(1, 0, gpu(1), gpu(2))], 2, 2, ""),
    ([joined(0, 0, gpu_error="NVML is not well")], None, 0, ""),
    ([joined(0, 0, gpu_error="NVML is not well")], 1, 0, "init(num_gpus=1), but on host host0 NVML is not well."),
    ([joined(0, 0, gpu_error="NVML is not well"), joined(1, 0, gpu(1))], 1, 1, ""),
])  # fmt: skip
def test_what_was_stated(ranks: list[RankJoined], stated: float | None, count: int, wrong: str) -> None:
    with cluster_of(*ranks) as cluster:
        assert cluster.begin(stated) == wrong
        cluster.decide()
        found = free(cluster)
        assert found.get("GPU", 0) == count
        real = sum("H100" in one.uuid for one in cluster.ask(Nodes())[0].gpus)
        assert found.get("accelerator_type:H100", 0) == real
        assert real in (0, count), "stated ones are not added to those that were found"


# From one executor to the next


def test_who_idles_with_a_device_is_gone_before_another_kind_gets_it() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        first = cluster.submit(gpu=1)
        executor = cluster.placed(first)
        cluster.done(executor, first)
        cluster.forget()
        again = cluster.submit(gpu=1)
        assert cluster.placed(again) == executor, "of the same kind: it is warm"
        cluster.done(executor, again)
        cluster.forget()
        other = cluster.submit(gpu=1, name="g", environment={"A": "1"})
        assert cluster.one(StopExecutor) == StopExecutor(executor, force=False)
        assert "GPU" not in free(cluster), "it may hold memory of the device as long as it lives"
        assert cluster.explain(other).why.startswith("It needs 1 CPU, 1 GPU. host0: 4 CPU, 0 GPU free.")
        cluster.nothing()
        cluster.died(executor, cause="exited")
        assert cluster.placed(other) != executor


def test_who_has_shared_a_device_is_gone_before_one_of_them_gets_it_whole() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        one = cluster.submit(cpu=0, gpu=0.5)
        other = cluster.submit(cpu=0, gpu=0.5, name="g", environment={"A": "1"})
        executors = cluster.running(one, other)
        for executor, call in zip(executors, (one, other), strict=True):
            cluster.done(executor, call)
        cluster.forget()
        whole = cluster.submit(cpu=0, gpu=1, name="whole")
        assert cluster.one(StopExecutor) == StopExecutor(executors[1], force=False)
        cluster.nothing()
        cluster.died(executors[1], cause="exited")
        assert cluster.placed(whole) == executors[0], "it is warm"


def test_who_ends_for_a_bundle_or_a_node_is_gone_before_the_other_gets_its_device() -> None:
    """It has idled with two, of which one is in a bundle now: both are waited for."""
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        both = cluster.submit(cpu=0, gpu=2)
        old = cluster.placed(both)
        cluster.done(old, both)
        group = cluster.group({"gpu": 1})
        cluster.forget()
        outside = cluster.submit(cpu=0, gpu=1, name="outside")
        assert cluster.one(StopExecutor).executor == old
        inside = cluster.submit_many(2, cpu=0, gpu=1, name="inside", where=Where(group=group))
        cluster.nothing()
        cluster.died(old)
        cluster.placed(outside)
        first = cluster.placed(inside[0])
        cluster.nothing()
        cluster.done(first, inside[0])
        cluster.forget()


def test_no_more_are_ended_than_calls_need_devices() -> None:
    with cluster_of(joined(0, 0, *(gpu(number) for number in range(4)))) as cluster:
        calls = [cluster.submit(cpu=0, gpu=1) for _ in range(4)]
        executors = cluster.running(*calls)
        for executor, call in zip(executors, calls, strict=True):
            cluster.done(executor, call)
        cluster.forget()
        pair = cluster.submit(cpu=0, gpu=2, name="pair")
        assert len(cluster.take(StopExecutor, 2)) == 2
        cluster.nothing()
        for executor in executors[:2]:
            cluster.died(executor, cause="exited")
        cluster.placed(pair)


def test_nobody_is_ended_for_the_sake_of_one_who_idles_with_the_same_device() -> None:
    """Two have had shares of a device. Who needs a whole one gets another, though one of the two could run it."""
    with Cluster().node(cpus=2, gpus=2) as cluster:
        shares = [cluster.submit(gpu=0.5), cluster.submit(gpu=0.5, environment={"MODE": "a"})]
        executors = cluster.running(*shares)
        assert [cluster.state.executors[one].key.gpu_ids for one in executors] == [(0,), (0,)]
        for executor, id in zip(executors, shares, strict=True):
            cluster.done(executor, id)
            cluster.told(id)
        whole = cluster.submit(gpu=1)
        assert cluster.one(StartExecutor).gpu_ids == [1]
        assert cluster.placed(whole) not in executors
        others = cluster.submit(gpu=1)  # now there is no other one: who idles with it in another environment goes
        assert cluster.one(StopExecutor) == StopExecutor(executors[1], False)
        cluster.died(executors[1])
        assert cluster.placed(others) == executors[0]


def test_a_device_with_which_nobody_idles_is_taken_first() -> None:
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        first = cluster.submit(cpu=0, gpu=1)
        executor = cluster.placed(first)
        cluster.done(executor, first)
        cluster.forget()
        cluster.submit(cpu=0, gpu=1, name="g", environment={"A": "1"})
        assert cluster.one(StartExecutor).gpu_ids == [1]
        cluster.forget()


def test_shares_go_where_shares_are_also_when_executors_idle_with_whole_ones() -> None:
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        whole = [cluster.submit(cpu=0, gpu=1) for _ in range(2)]
        for id in whole:
            cluster.done(cluster.placed(id), id)
        shares = [cluster.submit(cpu=0, gpu=0.5) for _ in range(2)]
        executors = [cluster.placed(id) for id in shares]
        keys = {cluster.state.executors[executor].key.gpu_ids for executor in executors}
        assert len(set(executors)) == 2
        assert len(keys) == 1
        cluster.forget()


def test_a_call_that_fails_to_get_room_ends_nobody() -> None:
    """It asks for two devices: one is idle, the other in use."""
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        calls = [cluster.submit(cpu=0, gpu=1) for _ in range(2)]
        executors = cluster.running(*calls)
        cluster.done(executors[0], calls[0])
        cluster.forget()
        cluster.submit(cpu=0, gpu=2, name="pair")
        cluster.nothing()
        cluster.done(executors[1], calls[1])
        assert len(cluster.take(StopExecutor, 2)) == 2
        cluster.forget()


def test_nothing_is_kept_for_a_call_that_waits_for_devices_of_actors() -> None:
    """They do not come free by waiting, and a node that is kept would do nothing else meanwhile."""
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        cluster.actor(cpu=0, gpu=1)
        cluster.forget()
        pair = cluster.submit(cpu=0, gpu=2, name="pair")
        assert "kept" not in cluster.explain(pair).why
        cluster.placed(cluster.submit(name="other"))
        task = cluster.submit(cpu=0, gpu=1, name="task")
        cluster.placed(task)


def test_shares_do_not_keep_a_device_from_being_whole_for_ever() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        first, second = (cluster.submit(cpu=0, gpu=0.5) for _ in range(2))
        executors = cluster.running(first, second)
        whole = cluster.submit(cpu=1, gpu=1, name="whole")
        later = [cluster.submit(cpu=0, gpu=0.5) for _ in range(3)]
        cluster.done(executors[0], first, us=10_000_000)
        cluster.forget()
        assert cluster.explain(later[0]).why.endswith("(kept for a larger request). In use by f (1).")
        task = cluster.submit(name="a task that needs no GPU")
        cluster.placed(task)
        cluster.done(executors[1], second, us=10_000_000)
        gone = cluster.one(StopExecutor).executor
        cluster.died(gone, cause="exited")
        assert {gone, cluster.placed(whole)} == set(executors), "whoever shared it with the other is gone"
        cluster.forget()


def test_cpus_that_a_call_for_gpus_needs_are_kept_for_it() -> None:
    with cluster_of(joined(0, 0, gpu(0), gpu(1))) as cluster:
        calls = [cluster.submit(cpu=0, gpu=1) for _ in range(2)]
        cluster.running(*calls)
        cluster.submit(cpu=2, gpu=2, name="both")
        others = [cluster.submit(name="other") for _ in range(3)]
        cluster.running(*others[:2])
        assert cluster.explain(others[2]).why.endswith("(kept for a larger request). In use by f (2), other (2).")
        cluster.nothing()


def test_what_an_actor_has_of_a_gpu_is_not_waited_for() -> None:
    """A node is not kept for a call that could run there only if an actor ended."""
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        cluster.placed(cluster.actor(cpu=0, gpu_memory=40 * GIB))
        cluster.submit(name="large", cpu=4, gpu_memory=60 * GIB)
        assert cluster.state.nodes[0].reserved_for is None
        cluster.submit(name="fits", cpu=4, gpu_memory=40 * GIB)
        cluster.forget()


@pytest.mark.parametrize(("linked", "expected"), [(False, [0, 3]), (True, [0, 1])])
def test_two_gpus_that_are_linked_are_worth_an_end(linked: bool, expected: list[int]) -> None:
    """Executors idle with the second and the third of four: the others are taken, if none of the pairs is better."""
    links = [Link(gpu(one).uuid, gpu(one + 1).uuid, 4, 10) for one in (0, 2)] if linked else []
    with cluster_of(joined(0, 0, *map(gpu, range(4)), links=links)) as cluster:
        calls = [cluster.submit(cpu=0, gpu=1) for _ in range(4)]
        executors = dict(zip(calls, cluster.running(*calls), strict=True))
        for call, executor in executors.items():
            if cluster.state.executors[executor].key.gpu_ids in ((1,), (2,)):
                cluster.done(executor, call)
            else:
                cluster.died(executor, call)
        cluster.forget()
        for one in [one for one in cluster.state.executors.values() if one.assigned]:
            cluster.done(one.id, *one.assigned)
        cluster.forget()
        pair = cluster.submit(cpu=0, gpu=2)
        if linked:
            cluster.died(cluster.one(StopExecutor).executor)
        assert list(cluster.state.executors[cluster.placed(pair)].key.gpu_ids) == expected


def test_a_call_that_no_node_can_run_hears_where_the_driver_did_not_answer() -> None:
    with cluster_of(joined(0, 0, gpu_error="the driver hangs"), joined(1, 1, gpu(0))) as cluster:
        message = cluster.told(cluster.submit(gpu=2)).message
        assert "On host0 the driver hangs." in message
        assert "On host1" not in message


def test_what_is_wrong_is_said_once_for_each_node() -> None:
    told: dict[str, Any] = {"gpu_error": "the driver hangs", "gpu_problems": ["GPU 2 does not answer"]}
    with cluster_of(joined(0, 0, **told), joined(1, 0, **told)) as cluster:
        assert cluster.ask(Nodes())[0].gpu_problems == ["GPU 2 does not answer", "the driver hangs"]


def test_that_several_instances_of_mig_cannot_be_had_is_told_who_asks_for_several() -> None:
    with cluster_of(joined(0, 0, gpu(0, instance=(1, 0)), gpu(1, instance=(2, 0)))) as cluster:
        hint = "A task can have one instance of MIG only"
        assert hint in cluster.told(cluster.submit(gpu=2)).message
        assert hint not in cluster.told(cluster.submit(gpu=1, gpu_memory=100 * GIB)).message

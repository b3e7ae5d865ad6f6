"""GPUs that fail: who is blamed, and what becomes of a device that does it again. And which rank is near to which."""

from __future__ import annotations

from typing import Any

import pytest

from mpi_runtime.gpu.device import BUSY, DEVICE, NOBODY, NODE, PROGRAM, Device, Link
from mpi_runtime.scheduler.places import gpu_pool
from mpi_runtime.scheduler.protocol.effects import ReadyFailed, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import Call, Where
from mpi_runtime.scheduler.protocol.limits import BACKOFF_US_MAX
from mpi_runtime.scheduler.protocol.questions import ClusterResources, Groups, Nodes
from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.builders import Cluster
from tests.unit.scheduler.test_gpu_pool import GIB, cluster_of, free, gpu, joined

ILLEGAL: dict[str, Any] = {"fault": "cudaErrorIllegalAddress", "blame": PROGRAM}


def pair() -> Cluster:
    return cluster_of(joined(0, 0, gpu(0), gpu(1)))


def out(cluster: Cluster) -> list[int]:
    return [one.id for one in cluster.ask(Nodes())[0].gpus if one.quarantined]


def device_of(cluster: Cluster, executor: int) -> int:
    return cluster.state.executors[executor].key.gpu_ids[0]


def test_the_first_failure_only_puts_a_device_behind_others() -> None:
    with pair() as cluster:
        id = cluster.submit(cpu=0, gpu=1, max_retries=3)
        first = cluster.placed(id)
        assert device_of(cluster, first) == 0
        cluster.faulted(first, id)
        second = cluster.placed(id)
        assert device_of(cluster, second) == 1, "the next attempt shows whether it was the device"
        assert free(cluster)["GPU"] == 1
        cluster.done(second, id)
        cluster.told(id)
        assert out(cluster) == []
        assert not cluster.notes


def test_the_second_in_a_row_takes_it_out() -> None:
    with pair() as cluster:
        keeper = cluster.actor(cpu=0, gpu=1)
        cluster.placed(keeper)
        id = cluster.submit(cpu=0, gpu=1, max_retries=1)
        first = cluster.placed(id)
        bad = device_of(cluster, first)
        cluster.faulted(first, id)
        cluster.faulted(cluster.placed(id), id, fault="cudaErrorUnknown")
        failed = cluster.told(id)
        assert failed.code == "GpuExecutorDiedError"
        line, traceback = failed.message.splitlines()
        assert "ended because CUDA answered cudaErrorUnknown in f on GPU 1 (GPU-H100-1): its context was dead" in line
        assert "It was run 2 times; max_retries is 1. What had happened before: 0 s ago the call was lost" in line
        assert traceback == "the traceback"
        assert out(cluster) == [bad]
        assert cluster.notes == [
            "host host0: GPU 1 (GPU-H100-1) quarantined: two fresh executors failed, the last with cudaErrorUnknown "
            "in f; 1 of 2 remain."
        ]
        assert cluster.ask(ClusterResources())["GPU"] == 1
        assert cluster.ask(ClusterResources())["accelerator_type:H100"] == 1
        assert cluster.ask(ClusterResources())["gpu_memory"] == 80 * GIB
        assert "GPU" not in free(cluster)
        waiting = cluster.submit(cpu=0, gpu=1)
        assert "0 GPU free (1 quarantined)" in cluster.explain(waiting).why


@pytest.mark.parametrize(("faults", "is_out"), [
    ([("f", ILLEGAL), ("f", ILLEGAL)], False),
    ([("f", ILLEGAL), ("g", ILLEGAL)], True),
    ([("f", ILLEGAL), ("f", {})], True),
    ([("f", {}), ("f", ILLEGAL)], True),
    ([("f", {}), ("f", {"is_fresh": False})], False),
    ([("f", {"is_fresh": False}), ("f", {})], False),
])  # fmt: skip
def test_what_a_program_does_wrong_is_not_held_against_a_device(
    faults: list[tuple[str, dict[str, Any]]], is_out: bool
) -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        for name, fault in faults:
            id = cluster.submit(cpu=0, gpu=1, max_retries=0, name=name)
            cluster.faulted(cluster.placed(id), id, name, **fault)
            cluster.told(id)
        assert out(cluster) == [0] * is_out


def test_a_process_that_works_clears_a_device() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        for _ in range(3):
            id = cluster.submit(cpu=0, gpu=1, max_retries=0)
            cluster.faulted(cluster.placed(id), id)
            cluster.told(id)
            id = cluster.submit(cpu=0, gpu=1, name="works")
            executor = cluster.placed(id)
            cluster.done(executor, id)
            cluster.told(id)
            cluster.died(executor)
        assert out(cluster) == []


def test_an_actor_that_worked_clears_a_device() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        id = cluster.submit(cpu=0, gpu=1, max_retries=0)
        cluster.faulted(cluster.placed(id), id)
        actor = cluster.actor(cpu=0, gpu=1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.released(actor)
        cluster.died(executor)
        id = cluster.submit(cpu=0, gpu=1, max_retries=0)
        cluster.faulted(cluster.placed(id), id)
        assert out(cluster) == []
        cluster.forget()


def quarantined(cluster: Cluster, **request: Any) -> None:
    """Have the device fail twice that a request like this gets."""
    for _ in range(2):
        id = cluster.submit(cpu=0, max_retries=0, name="breaks", **request)
        cluster.faulted(cluster.placed(id), id)
        cluster.told(id)
    assert len(cluster.notes) == 1


def test_what_can_never_run_now_fails_and_the_rest_waits() -> None:
    with pair() as cluster:
        keeper = cluster.actor(cpu=0, gpu=1)
        cluster.placed(keeper)
        slow = cluster.submit(cpu=1, name="slow")
        worker = cluster.placed(slow)
        both = cluster.submit(cpu=0, gpu=2, name="both")
        later = cluster.submit(slow, cpu=0, gpu=2, name="later")
        actor = cluster.actor(cpu=0, gpu=2)
        method = cluster.method(actor)
        group = cluster.group({"gpu": 1}, {"gpu": 1}, strategy="STRICT_PACK")
        cluster.forget()
        assert cluster.ask(Groups(group))[0].scheduling == "NO_RESOURCES"
        quarantined(cluster, gpu=1)
        cluster.done(worker, slow)
        assert [cluster.told(id).code for id in (both, later, method)] == [
            "InfeasibleResourceError", "InfeasibleResourceError", "ActorDiedError",
        ]  # fmt: skip
        assert cluster.ask(Groups(group))[0].scheduling == "INFEASIBLE"
        one = cluster.submit(cpu=0, gpu=1, name="one")
        assert cluster.explain(one).state == "ready"
        failed = cluster.told(cluster.submit(cpu=0, gpu=2, name="again"))
        assert "host0: 1 x H100 (1 quarantined)" in failed.message
        assert "Largest of 1 node(s): host0 with 4 CPU, 1 GPU (1 x H100)" in failed.message
        cluster.forget()


def test_what_is_held_back_fails_too_when_it_can_never_run() -> None:
    cluster = Cluster()
    cluster.join(joined(0, 0, gpu(0), end_us=cluster.now + 1_000_000))
    with cluster:
        late = cluster.submit(cpu=0, gpu=1, name="late", limit_us=2_000_000)
        assert cluster.explain(late).why.startswith("It is not started: it may take 2 s")
        for _ in range(2):
            id = cluster.submit(cpu=0, gpu=1, max_retries=0, name="breaks")
            cluster.faulted(cluster.placed(id), id)
            cluster.told(id)
        assert cluster.told(late).code == "InfeasibleResourceError"


def test_what_comes_back_when_it_can_never_run_again_fails() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        id = cluster.submit(cpu=0, gpu=0.5, max_retries=3)
        executor = cluster.placed(id)
        quarantined(cluster, gpu=0.25)
        cluster.died(executor, id)
        assert cluster.told(id).code == "InfeasibleResourceError"


def test_who_shares_it_gets_no_further_calls_and_actors_stay() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        beside = cluster.submit_many(3, name="beside", cpu=1, gpu=0.25)
        executors = {cluster.placed(id): id for id in beside}
        actor = cluster.actor(cpu=0, gpu=0.125)
        home = cluster.placed(actor)
        cluster.done(home, actor)
        more = cluster.submit_many(2, name="beside", cpu=1, gpu=0.25)
        quarantined(cluster, gpu=0.125)
        for id in more:
            assert cluster.told(id).code == "InfeasibleResourceError"
        for executor, id in executors.items():
            cluster.done(executor, id)
            cluster.told(id)
        assert {stop.executor for stop in cluster.take(StopExecutor, 3)} == set(executors)
        method = cluster.method(actor)
        assert [to for _, to, effect in cluster.recorded if isinstance(effect, Call)] == [home]
        cluster.forget()
        cluster.done(home, method)
        cluster.told(method)
        assert "GPU" not in free(cluster)


def test_a_bundle_that_lost_its_device() -> None:
    with pair() as cluster:
        group = cluster.group({"gpu": 1})
        cluster.told(group)
        inside: dict[str, Any] = {"where": Where(group=group)}
        quarantined(cluster, gpu=1, **inside)
        failed = cluster.told(cluster.submit(cpu=0, gpu=1, name="inside", **inside))
        assert failed.code == "InfeasibleResourceError"
        assert "1 of them have lost a GPU that is quarantined" in failed.message
        cluster.placed(cluster.submit(cpu=0, gpu=1, name="outside"))


def test_an_actor_that_cannot_be_created_again() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        actor = cluster.actor(cpu=0, gpu=1, max_restarts=-1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        called = cluster.method(actor)
        cluster.forget()
        cluster.faulted(executor, called, "Actor.method")
        failed = cluster.told(called)
        assert failed.code == "ActorUnavailableError"
        cluster.faulted(cluster.placed(actor), actor, "Actor")
        cluster.later(BACKOFF_US_MAX)
        told = cluster.told(cluster.method(actor))
        assert (told.code, type(told)) == ("ActorDiedError", ReadyFailed)
        assert "1 quarantined" in told.message
        cluster.released(actor, called)
        cluster.forget()


# Homes


def near(number: int, *cpus: int) -> Device:
    return gpu(number, cpus=cpus)


SOCKETS = [near(n, *range(4 * (n // 4), 4 * (n // 4) + 4)) for n in range(8)]


def rank(number: int, cpus: list[int], gpus: list[Device]) -> RankJoined:
    return RankJoined(number, 0, "host0", cpus, -1, 0, 0, {}, 1 << 30, devices=gpus)


@pytest.mark.parametrize(("ranks", "homes"), [
    ([rank(n, list(range(8)), [gpu(m) for m in range(8)]) for n in range(4)], [0, 0, 1, 1, 2, 2, 3, 3]),
    ([rank(n, list(range(8)), [gpu(m) for m in range(4)]) for n in (2, 0, 1)], [0, 1, 2, 2]),
    ([rank(n, list(range(8)), [gpu(m) for m in range(2)]) for n in range(4)], [0, 2]),
    ([rank(0, [4, 5, 6, 7], SOCKETS), rank(1, [0, 1, 2, 3], SOCKETS)], [1, 1, 1, 1, 0, 0, 0, 0]),
    ([rank(0, [0], SOCKETS), rank(1, [4], SOCKETS), rank(2, [1], SOCKETS), rank(3, [5], SOCKETS)],
     [0, 0, 2, 2, 1, 1, 3, 3]),
    ([rank(0, [0], SOCKETS[2:6]), rank(1, [4], SOCKETS[2:6]), rank(2, [1], SOCKETS[2:6])], [0, 2, 1, 1]),
    ([rank(0, [0], SOCKETS[1:6]), rank(1, [4], SOCKETS[1:6])], [0, 0, 0, 1, 1]),
    ([rank(0, [0, 1], SOCKETS[:4]), rank(1, [2, 3], SOCKETS[:4])], [0, 0, 1, 1]),
    ([rank(0, [0, 1, 2, 3], SOCKETS[:3] + SOCKETS[4:5]), rank(1, [4, 5, 6, 7], SOCKETS[:3] + SOCKETS[4:5])],
     [0, 0, 1, 1]),
    ([rank(0, [0], [gpu(0)]), rank(1, [1], [gpu(1), gpu(2)])], [0, 1, 1]),
])  # fmt: skip
def test_each_device_has_a_home(ranks: list[RankJoined], homes: list[int]) -> None:
    """By processors, evened out to within one; else in blocks."""
    with cluster_of(*ranks) as cluster:
        assert [one.home for one in cluster.ask(Nodes())[0].gpus] == homes
        node = cluster.state.nodes[0]
        assert gpu_pool.homes(node) == homes


def test_executors_start_at_the_home_of_their_devices() -> None:
    ranks = [rank(0, [4, 5, 6, 7], SOCKETS), rank(1, [0, 1, 2, 3], SOCKETS)]
    ranks[0].links = [Link(a.uuid, b.uuid, 2, 50) for a in SOCKETS[4:] for b in SOCKETS[4:] if a is not b]
    with cluster_of(*ranks) as cluster:
        for _ in range(3):
            cluster.submit(cpu=0, gpu=1)
        assert [effect.gpu_ids for effect in cluster.take(StartExecutor, 3, to=1)] == [[0], [1], [2]]
        cluster.submit(cpu=0, gpu=4, name="four")
        assert cluster.one(StartExecutor, to=0).gpu_ids == [4, 5, 6, 7]
        cluster.submit(cpu=0, gpu=1, name="another")
        assert cluster.one(StartExecutor, to=1).gpu_ids == [3]
        cluster.forget()


def test_a_device_that_others_use_up_is_given_last_and_kept() -> None:
    with pair() as cluster:
        id = cluster.submit(cpu=0, gpu=1, max_retries=0)
        executor = cluster.placed(id)
        assert device_of(cluster, executor) == 0
        cluster.faulted(executor, id, fault="cudaErrorDevicesUnavailable", blame=BUSY)
        assert "cudaErrorDevicesUnavailable in f on GPU 0 (GPU-H100-0): others use it up" in cluster.told(id).message
        good, bad = (cluster.submit(cpu=0, gpu=1, max_retries=0) for _ in range(2))
        assert [device_of(cluster, cluster.placed(one)) for one in (good,)] == [1]
        for blame in (BUSY, BUSY, DEVICE):
            executor = cluster.placed(bad)
            assert device_of(cluster, executor) == 0
            cluster.faulted(executor, bad, fault="cudaErrorUnknown", blame=blame)
            cluster.told(bad)
            assert out(cluster) == [], "it is the first that speaks against it"
            bad = cluster.submit(cpu=0, gpu=1, max_retries=0)
        cluster.faulted(cluster.placed(bad), bad)
        cluster.told(bad)
        assert out(cluster) == [0]


def test_an_error_of_neither_is_held_against_nobody() -> None:
    with cluster_of(joined(0, 0, gpu(0))) as cluster:
        for _ in range(3):
            id = cluster.submit(cpu=0, gpu=1, max_retries=0)
            cluster.faulted(cluster.placed(id), id, fault="cudaErrorMpsRpcFailure", blame=NOBODY)
            cluster.told(id)
        assert out(cluster) == []


def test_a_node_on_which_cuda_does_not_start_draws_no_further_calls() -> None:
    """It is said once; the call goes to another node, with all its retries."""
    with cluster_of(joined(0, 0, gpu(0), gpu(1)), joined(1, 1, gpu(0, kind="A100"), gpu(1, kind="A100"))) as cluster:
        id = cluster.submit(cpu=0, gpu=1, max_retries=1)
        cluster.faulted(cluster.placed(id), id, fault="cudaErrorSystemNotReady", blame=NODE)
        (note,) = cluster.notes
        assert note.endswith(
            ": CUDA does not start on this node: cudaErrorSystemNotReady. None of its 2 GPU(s) is used any more."
        )
        assert cluster.ask(ClusterResources())["GPU"] == 2
        for _ in range(2):
            executor = cluster.placed(id)
            assert cluster.state.executors[executor].rank.number == 1
            cluster.faulted(executor, id, **ILLEGAL)
        assert "It was run 3 times; max_retries is 1." in cluster.told(id).message
        assert len(cluster.notes) == 1


def test_what_may_not_be_run_twice_is_not_run_elsewhere_either() -> None:
    with cluster_of(joined(0, 0, gpu(0)), joined(1, 1, gpu(0, kind="A100"))) as cluster:
        id = cluster.submit(cpu=0, gpu=1, max_retries=0)
        cluster.faulted(cluster.placed(id), id, fault="cudaErrorSystemNotReady", blame=NODE)
        assert cluster.told(id).code == "GpuExecutorDiedError"


def test_an_actor_is_created_elsewhere_at_no_charge() -> None:
    with cluster_of(joined(0, 0, gpu(0)), joined(1, 1, gpu(0, kind="A100"))) as cluster:
        id = cluster.actor(cpu=0, gpu=1, max_restarts=0)
        first = cluster.placed(id)
        cluster.faulted(first, id, fault="cudaErrorSystemNotReady", blame=NODE)
        assert cluster.placed(id) != first

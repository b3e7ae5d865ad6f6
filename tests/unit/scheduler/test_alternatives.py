"""Calls that run with one of several requests: the first that fits, then the fastest; never more than there is."""

import pytest

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import ReadyFailed
from mpi_runtime.scheduler.protocol.events import CancelRequested, RefusedError, Where
from mpi_runtime.scheduler.protocol.ids import alternative_id
from mpi_runtime.scheduler.protocol.questions import Late, LateFunction
from tests.builders import DRIVER, UNIT, Cluster

S = 1_000_000
GPU = (Request(cpu=UNIT, gpu=UNIT),)


def fit(cluster: Cluster, count: int = 1, **fields: object) -> list[bytes]:
    """Submit calls that run on 4 CPUs, or on 1 CPU and 1 GPU."""
    return cluster.submit_many(count, name="fit", cpu=4, alternatives=GPU, **fields)


def gpus_of(cluster: Cluster, *ids: bytes) -> list[int]:
    """How many GPUs the executors of calls have."""
    return [len(cluster.state.executors[executor].key.gpu_ids) for executor in cluster.running(*ids)]


def measured(cluster: Cluster, cpu_s: float, gpu_s: float) -> Cluster:
    """A call has run on CPUs, another one on a GPU."""
    first, second = fit(cluster, 2)
    on_cpus, on_gpu = cluster.running(first, second)
    cluster.done(on_cpus, first, us=int(cpu_s * S))
    cluster.done(on_gpu, second, us=int(gpu_s * S))
    cluster.forget()
    return cluster


def test_the_first_that_fits_is_taken_and_what_it_takes_is_not_taken_twice() -> None:
    with Cluster().node(cpus=5, gpus=1) as cluster:
        first, second, third = fit(cluster, 3)
        assert gpus_of(cluster, first, second) == [0, 1]
        assert cluster.state.nodes[0].free.cpu == 0
        why = cluster.explain(third).why
        assert why.startswith("It needs 4 CPU or 1 CPU, 1 GPU. host0: 0 CPU, 0 GPU free")
        cluster.nothing()


def test_an_executor_receives_the_spec_of_the_alternative() -> None:
    with Cluster().node(cpus=5, gpus=1) as cluster:
        first, second = fit(cluster, 2)
        calls = {effect.id: effect.spec for _, _, effect in cluster.recorded if hasattr(effect, "payload")}
        assert calls[second] == alternative_id(calls[first], 1)
        cluster.forget()


def test_the_faster_one_goes_first_once_both_are_known() -> None:
    with measured(Cluster().node(cpus=5, gpus=1), cpu_s=100, gpu_s=1) as cluster:
        (call,) = fit(cluster)
        assert gpus_of(cluster, call) == [1]


def test_a_slower_one_is_left_while_the_faster_one_ends_sooner() -> None:
    """Others may have what it leaves; with enough calls it is taken too."""
    with measured(Cluster().node(cpus=5, gpus=1), cpu_s=100, gpu_s=1) as cluster:
        first, second = fit(cluster, 2)
        assert gpus_of(cluster, first) == [1]
        other = cluster.submit(name="other", cpu=4, priority=-1)
        executor = cluster.placed(other)
        cluster.done(executor, other)
        cluster.forget()
        more = fit(cluster, 200)
        assert gpus_of(cluster, second) == [0]
        cluster.nothing()
        assert cluster.explain(more[0]).state == "ready"


@pytest.mark.parametrize(("waiting", "is_taken"), [(1, False), (2, True)])
def test_a_slower_one_is_taken_as_soon_as_all_by_the_faster_one_would_end_later(waiting: int, is_taken: bool) -> None:
    """On the GPU one more ends after 20 s, two after 30 s. On CPUs the first of them ends after 25 s."""
    with measured(Cluster().node(cpus=5, gpus=1), cpu_s=25, gpu_s=10) as cluster:
        (on_gpu,) = fit(cluster)
        assert gpus_of(cluster, on_gpu) == [1]
        calls = fit(cluster, waiting)
        assert gpus_of(cluster, *calls[:is_taken]) == [0] * is_taken
        cluster.nothing()


def test_a_slower_one_is_taken_where_the_faster_one_is_used_by_others() -> None:
    with measured(Cluster().node(cpus=5, gpus=1), cpu_s=100, gpu_s=1) as cluster:
        cluster.placed(cluster.submit(name="other", gpu=1))
        (call,) = fit(cluster)
        cluster.forget()
        cluster.later(S)
        assert cluster.explain(call).why.startswith("It runs in executor")
        cluster.forget()


def test_calls_of_a_lower_priority_make_room_for_any_alternative() -> None:
    with Cluster().node(cpus=2, gpus=1) as cluster:
        low = cluster.submit_many(3, name="low", gpu=1)
        executor = cluster.placed(low[0])
        (high,) = fit(cluster, priority=1)
        cluster.nothing()
        cluster.done(executor, low[0], us=S)
        assert gpus_of(cluster, high) == [1]
        cluster.forget()


def test_one_that_ends_too_late_is_not_taken() -> None:
    with measured(Cluster().node(cpus=5, gpus=1), cpu_s=100, gpu_s=1) as cluster:
        cluster.state.end_us = cluster.now + 50 * S
        calls = fit(cluster, 300)
        assert gpus_of(cluster, calls[0]) == [1]
        cluster.nothing()
        cluster.now += 50 * S
        cluster.decide()
        cluster.forget()
        why = cluster.explain(calls[-1]).why
        assert why.startswith("It is not started: it may take 1 s (as earlier calls did)")
        assert cluster.ask(Late()).functions == [LateFunction("fit", 299, S)]


def test_one_that_no_node_has_is_left_out_and_all_such_are_an_error() -> None:
    with Cluster().node(cpus=2, gpus=1) as cluster:
        (call,) = fit(cluster)
        assert gpus_of(cluster, call) == [1]
    with Cluster().node(cpus=2) as cluster:
        (call,) = fit(cluster)
        failed = cluster.told(call)
        assert isinstance(failed, ReadyFailed)
        assert failed.code == "InfeasibleResourceError"
        assert failed.message.startswith("fit asks for 4 CPU or 1 CPU, 1 GPU on one node, and no node owns that much.")


def test_a_lost_call_is_placed_like_a_new_one_and_a_cancelled_one_is_not() -> None:
    with Cluster().node(cpus=5, gpus=1) as cluster:
        first, second, third, fourth = fit(cluster, 4, max_retries=1)
        _, on_gpu = cluster.running(first, second)
        cluster.client_says(DRIVER, CancelRequested(third, False, False))
        cluster.died(on_gpu, second)
        assert gpus_of(cluster, second) == [1]
        cluster.done(1, first)
        assert gpus_of(cluster, fourth) == [0]
        cluster.forget()


def test_an_alternative_whose_executors_die_before_they_begin_is_given_up() -> None:
    with Cluster().node(cpus=2, gpus=1) as cluster:
        (call,) = cluster.submit_many(1, name="fit", cpu=1, gpu=1, alternatives=(Request(cpu=2 * UNIT),))
        for _ in range(20):
            executor = cluster.placed(call)
            if not cluster.state.executors[executor].key.gpu_ids:
                break
            cluster.died(executor, b"", "exited with code 1")
            cluster.later(10 * S)
        assert not cluster.state.executors[executor].key.gpu_ids
        cluster.forget()


def test_a_place_excludes_alternatives() -> None:
    with Cluster().node(cpus=5, gpus=1) as cluster, pytest.raises(RefusedError, match="only tasks without a place"):
        fit(cluster, where=Where(spread=True))

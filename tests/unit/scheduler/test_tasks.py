"""Calls from submission to their end."""

from mpi_runtime.scheduler.protocol.effects import Free, Ready, ReadyError, ReadyFailed, ReadyStored
from mpi_runtime.scheduler.protocol.events import Call, RetrySpec, Stored, Value
from tests.builders import LARGE, Cluster


def test_a_call_runs_and_its_value_comes_unasked() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        cluster.done(executor, id, data=b"42")
        assert cluster.told(id) == Ready(id, b"42")
        cluster.released(id)
        assert cluster.is_clean()


def test_a_value_that_nobody_wants_is_dropped() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(num_returns=0)
        cluster.released(id)
        cluster.done(cluster.placed(id), id)
        assert cluster.is_clean()


def test_a_call_waits_for_its_arguments() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        second = cluster.submit(first, first)
        executor = cluster.placed(first)
        cluster.done(executor, first, data=b"1")
        assert cluster.told(first) == Ready(first, b"1")
        assert [one[2] for one in cluster.recorded if one[1] == executor][:2] == [Ready(first, b"1")] * 2
        assert cluster.placed(second) == executor


def test_arguments_live_until_the_call_has_ended() -> None:
    with Cluster().node() as cluster:
        value, inside = cluster.put(), cluster.put()
        id = cluster.submit(value, holds=[inside])
        cluster.released(value, inside)
        assert {value, inside} <= cluster.state.objects.keys()
        cluster.done(cluster.placed(id), id)
        cluster.told(id)
        assert cluster.state.objects.keys() == {id}


def test_several_values_have_consecutive_ids() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(num_returns=2)
        other = (int.from_bytes(id, "big") + 1).to_bytes(16, "big")
        cluster.returned(cluster.placed(id), id, Value(b"1"), Value(b"2"))
        assert cluster.told(id) == Ready(id, b"1")
        assert cluster.told(other) == Ready(other, b"2")
        cluster.released(id, other)
        assert cluster.is_clean()


def test_an_error_is_the_result_of_all_that_need_it() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        second = cluster.submit(cluster.submit(first), name="g")
        cluster.raised(cluster.placed(first), first, b"boom")
        told = [effect for _, _, effect in cluster.recorded]
        assert [type(message) for message in told] == [ReadyError] * 3
        assert told[-1] == ReadyError(second, b"boom")
        cluster.forget()


def test_a_stored_error_of_several_values_is_freed_once() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(num_returns=3)
        ids = [(int.from_bytes(id, "big") + index).to_bytes(16, "big") for index in range(3)]
        cluster.released(ids[0])
        cluster.returned(cluster.placed(id), id, Value(b"", Stored(0, 64, LARGE), is_error=True), raised=True)
        assert cluster.told(ids[2]) == ReadyStored(ids[2], 0, 64, LARGE, True)
        assert cluster.told(ids[1]) == ReadyStored(ids[1], 0, 64, LARGE, True)
        cluster.released(ids[1])
        cluster.nothing()
        cluster.released(ids[2])
        assert cluster.one(Free).offsets == [64]
        assert cluster.is_clean()


def test_a_call_that_raises_is_retried_if_asked() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(max_retries=1, retry=RetrySpec())
        executor = cluster.placed(id)
        cluster.returned(executor, id, Value(b"", Stored(0, 0, LARGE), is_error=True), raised=True)
        assert cluster.one(Free).offsets == [0]
        assert cluster.one(Call).attempt == 1
        cluster.raised(executor, id)
        assert cluster.told(id) == ReadyError(id, b"error")


def test_a_request_that_no_node_can_serve_fails_at_once_and_names_the_largest() -> None:
    with Cluster().node(cpus=2).node(cpus=4, gpus=1) as cluster:
        failed = cluster.told(cluster.submit(cpu=8))
        assert failed.code == "InfeasibleResourceError"
        assert "8 CPU" in failed.message
        assert "host1 with 4 CPU, 1 GPU" in failed.message


def test_an_argument_that_is_gone_fails_the_call() -> None:
    with Cluster().node() as cluster:
        failed = cluster.told(cluster.submit(b"x" * 16))
        assert isinstance(failed, ReadyFailed)
        assert failed.code == "ObjectLostError"


def test_what_a_dead_client_says_is_dropped() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(max_retries=1)
        executor = cluster.placed(id)
        cluster.died(executor, id)
        assert cluster.placed(id) != executor
        cluster.done(executor, id)
        assert cluster.state.objects[id].task is not None


def test_what_the_largest_node_has_is_told_when_nothing_is_large_enough() -> None:
    with Cluster().node(cpus=2).node(cpus=4, memory=1 << 20, disk=1.5) as cluster:
        message = cluster.told(cluster.submit(cpu=5)).message
        assert "Largest of 2 node(s): host1 with 4 CPU, 0 GPU, 1.0 MiB of memory, 1.5 of 'disk'." in message

"""Attempts of calls that have ended, as lists: newest first, bounded, also those that have not run."""

import pytest

from mpi_runtime.scheduler.answers.answering import answer
from mpi_runtime.scheduler.protocol.entries import TaskEntry
from mpi_runtime.scheduler.protocol.events import DRIVER, CancelRequested, Done, Returned, Value
from mpi_runtime.scheduler.protocol.limits import ENDED_MAX
from mpi_runtime.scheduler.protocol.questions import Tasks
from tests.builders import Cluster

ERROR = Value(b"error", is_error=True)


def listed(cluster: Cluster, ended: int = 100, id: bytes = b"") -> list[TaskEntry]:
    return answer(cluster.state, Tasks(id, ended), cluster.now)


def work(cluster: Cluster, name: str = "f") -> bytes:
    id = cluster.submit(name=name)
    cluster.client_says(cluster.placed(id), Done(id, b"", 500, start_us=cluster.now))
    return id


def test_newest_first_after_those_that_have_not_ended() -> None:
    cluster = Cluster().node(cpus=1)
    ids = [work(cluster, f"f{number}") for number in range(3)]
    waits = cluster.submit(name="waits")
    found = listed(cluster)
    assert [one.task_id for one in found] == [waits.hex(), *(id.hex() for id in reversed(ids))]
    assert [one.state for one in found[1:]] == ["FINISHED"] * 3
    assert [one.name for one in listed(cluster, 2)] == ["waits", "f2", "f1"]
    assert listed(cluster, 0) == found[:1]
    assert listed(cluster, -5) == found[:1]


def test_one_by_its_id() -> None:
    cluster = Cluster().node(cpus=1)
    first, _ = work(cluster), work(cluster)
    waits = cluster.submit(name="waits")
    assert [one.task_id for one in listed(cluster, 0, first)] == [first.hex()]
    assert [(one.task_id, one.end_time_ms) for one in listed(cluster, 0, waits)] == [(waits.hex(), None)]
    assert listed(cluster, 0, b"?" * 16) == []


def test_times_are_in_milliseconds_since_1970() -> None:
    cluster = Cluster().node(cpus=1)
    cluster.state.wall_us = 1_800_000_000_000_000 - cluster.now
    id = cluster.submit()
    executor = cluster.placed(id)
    begin_us = cluster.now + 7_000
    cluster.now += 600_000
    cluster.client_says(executor, Done(id, b"", 500_000, start_us=begin_us))
    (one,) = listed(cluster)
    times = (one.creation_time_ms, one.start_time_ms, one.end_time_ms)
    assert times == (1_800_000_000_000, 1_800_000_000_007, 1_800_000_000_507)


def test_errors_have_their_kind_also_of_calls_that_have_not_run() -> None:
    cluster = Cluster().node(cpus=1)
    bad = cluster.submit(name="bad")
    cluster.client_says(cluster.placed(bad), Returned(bad, [ERROR], 10, raised=True, said="ValueError: no"))
    runs, never = cluster.submit(name="runs"), cluster.submit(name="never")
    executor = cluster.placed(runs)
    cluster.client_says(DRIVER, CancelRequested(never, force=False, recursive=False))
    cluster.died(executor, runs)
    found = {one.name: one for one in listed(cluster)}
    assert list(found) == ["runs", "never", "bad"]
    assert {one.state for one in found.values()} == {"FAILED"}
    assert [(one.error_type, one.worker_id is None) for one in found.values()] == [
        ("WORKER_DIED", False), ("TASK_CANCELLED", True), ("TASK_EXECUTION_EXCEPTION", False)
    ]  # fmt: skip
    assert found["bad"].error_message == "ValueError: no"


@pytest.mark.parametrize("more", [1, 50])
def test_the_record_is_bounded(more: int) -> None:
    cluster = Cluster().node(cpus=1)
    for _ in range(more):
        work(cluster)
    assert len(listed(cluster, 10 * ENDED_MAX)) == more
    assert cluster.state.logs.failed.maxlen == ENDED_MAX


def test_the_call_that_submitted_it() -> None:
    cluster = Cluster().node(cpus=2)
    outer = cluster.submit(name="outer")
    inner = cluster.submit(name="inner", client=cluster.placed(outer))
    found = {one.name: one.parent_task_id for one in listed(cluster)}
    assert found == {"outer": None, "inner": outer.hex()}
    cluster.client_says(cluster.placed(inner), Done(inner, b"", 5, start_us=cluster.now))
    assert listed(cluster, id=inner)[0].parent_task_id == outer.hex()

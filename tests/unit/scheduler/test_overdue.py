"""Calls that run longer than their time limit, and calls that go on although they were cancelled."""

from typing import Any

import pytest

from mpi_runtime.scheduler.protocol.effects import IGNORED, Cancel, StopExecutor
from mpi_runtime.scheduler.protocol.events import Began, Call, CancelRequested, RetrySpec, Where
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.limits import INTERRUPT_GRACE_US, LOOK_US
from mpi_runtime.scheduler.protocol.rank_events import RankLost
from tests.builders import DRIVER, Cluster

LIMIT_US = 60_000_000
LIMITED: dict[str, Any] = {"limit_us": LIMIT_US, "is_enforced": True}


def begun(cluster: Cluster, **fields: Any) -> tuple[bytes, int]:
    """A call with a time limit that has begun, and its executor."""
    call = cluster.submit(**{**LIMITED, **fields})
    executor = cluster.placed(call)
    cluster.client_says(executor, Began(call))
    return call, executor


def child(cluster: Cluster, parent: bytes, client: int, number: int = 1, attempt: int = 0) -> bytes:
    """Submit a task as the client's running call does: its id derives from the call's."""
    spec, id = cluster.spec(), prefix_of(parent, attempt) + number.to_bytes(6, "big")
    cluster.client_says(client, spec, Call(id, spec.id, b""))
    return id


def ignored(cluster: Cluster) -> list[str]:
    """What the user was told of cancels."""
    return [note.text for note in cluster.said if note.event == IGNORED]


def test_a_call_is_interrupted_when_its_time_is_over_and_not_before() -> None:
    with Cluster().node() as cluster:
        call, executor = begun(cluster, max_retries=3, retry=RetrySpec())
        cluster.later(LIMIT_US - 1)
        cluster.nothing()
        cluster.later(1)
        assert cluster.one(Cancel) == Cancel(executor, call, False)
        cluster.raised(executor, call)
        told = cluster.told(call)
        assert told.code == "TaskTimeoutError"
        assert "f had run for 60 s in executor 1 (starting, rank 0, host0)" in told.message
        assert "its time_limit is 60 s" in told.message
        cluster.later(10 * LIMIT_US)
        cluster.nothing()


def test_its_time_counts_from_when_it_has_begun() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(**LIMITED)
        executor = cluster.placed(call)
        cluster.later(2 * LIMIT_US)
        cluster.nothing()
        cluster.client_says(executor, Began(call))
        cluster.later(LIMIT_US - 1)
        cluster.nothing()
        cluster.done(executor, call)
        assert cluster.told(call).data == b"value"


def test_time_for_which_the_job_was_stopped_does_not_count() -> None:
    """As by `scontrol suspend`: nobody looks at alarms meanwhile. Nor does it count for the grace after the limit."""
    with Cluster().node() as cluster:
        begun(cluster)
        for left_us, force in ((LIMIT_US, False), (INTERRUPT_GRACE_US, True)):
            cluster.later(left_us // 2)
            cluster.now += 3 * LIMIT_US
            cluster.decide()
            cluster.later(left_us // 2 - 2 * LOOK_US)
            cluster.nothing()
            cluster.later(2 * LOOK_US)
            assert cluster.one(Cancel).force == force
        assert cluster.scheduler.deadline() is None, "nobody looks any more"


def test_the_value_that_it_returns_all_the_same_is_its_value() -> None:
    with Cluster().node() as cluster:
        call, executor = begun(cluster)
        cluster.later(LIMIT_US)
        cluster.one(Cancel)
        cluster.done(executor, call)
        assert cluster.told(call).data == b"value"
        cluster.later(INTERRUPT_GRACE_US)
        cluster.nothing()


def test_a_call_that_does_not_end_then_loses_its_process() -> None:
    with Cluster().node() as cluster:
        call, executor = begun(cluster, max_retries=3)
        cluster.later(LIMIT_US)
        cluster.one(Cancel)
        cluster.later(INTERRUPT_GRACE_US)
        assert cluster.one(Cancel) == Cancel(executor, call, True)
        cluster.died(executor, call)
        told = cluster.told(call)
        assert told.code == "TaskTimeoutError"
        assert "so its process was killed" in told.message
        assert not ignored(cluster)


@pytest.mark.parametrize("dies", [False, True])
def test_it_is_run_again_if_that_was_asked(dies: bool) -> None:
    with Cluster().node() as cluster:
        call, executor = begun(cluster, max_retries=1, retry=RetrySpec(timeouts=True))
        cluster.later(LIMIT_US)
        cluster.one(Cancel)
        if dies:
            cluster.died(executor, call)
        else:
            cluster.raised(executor, call)
        executor = cluster.placed(call)
        cluster.client_says(executor, Began(call))
        cluster.later(LIMIT_US - 1)
        cluster.nothing()
        cluster.later(1)
        assert cluster.one(Cancel) == Cancel(executor, call, False, attempt=1)
        cluster.raised(executor, call)
        assert cluster.told(call).code == "TaskTimeoutError"


def test_if_its_rank_is_lost_it_may_not_have_run_so_long() -> None:
    """The loss of a rank is noticed late. So the call counts as lost with it, not as one that was over its limit."""
    with Cluster().node().node() as cluster:
        call, executor = begun(cluster, max_retries=1, where=Where(node=f"{1:032x}", soft=True))
        cluster.later(LIMIT_US)
        cluster.one(Cancel)
        cluster.rank_says(RankLost(1, "was killed"))
        again = cluster.placed(call)
        assert again != executor
        cluster.done(again, call)
        assert cluster.told(call).data == b"value"


def test_what_it_has_submitted_and_submits_ends_with_it() -> None:
    with Cluster().node(cpus=2) as cluster:
        call, executor = begun(cluster)
        before = child(cluster, call, executor, 1)
        helper = cluster.placed(before)
        cluster.later(LIMIT_US)
        assert {one.id for one in cluster.take(Cancel, 2)} == {call, before}
        after = child(cluster, call, executor, 2)
        assert cluster.told(after, to=executor).code == "TaskCancelledError"
        cluster.raised(helper, before)
        cluster.raised(executor, call)
        cluster.forget()


def test_a_method_cannot_be_interrupted_so_its_actor_starts_again() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor(max_restarts=1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.forget()
        call, behind = cluster.method(actor, **LIMITED), cluster.method(actor)
        cluster.running(call, behind)
        cluster.client_says(executor, Began(call))
        cluster.later(LIMIT_US)
        assert cluster.one(StopExecutor) == StopExecutor(executor, True)
        cluster.died(executor, call)
        told = cluster.told(call)
        assert told.code == "TaskTimeoutError"
        assert "the process of its actor was killed" in told.message
        assert any("ran longer than its time_limit. It is started again" in note.text for note in cluster.said)
        again = cluster.placed(actor)
        cluster.done(again, actor)
        cluster.done(again, behind)
        cluster.forget()


def test_a_coroutine_is_interrupted_and_its_actor_lives_on() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor(concurrency={"": 10}, is_async=True)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.forget()
        call = cluster.method(actor, **LIMITED)
        cluster.running(call)
        cluster.client_says(executor, Began(call))
        cluster.later(LIMIT_US)
        assert cluster.one(Cancel) == Cancel(executor, call, False)
        cluster.raised(executor, call)
        assert cluster.told(call).code == "TaskTimeoutError"


def test_a_cancel_that_is_ignored_is_told_once() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.started(executor)
        cluster.client_says(DRIVER, CancelRequested(call, False, True))
        cluster.one(Cancel)
        cluster.later(INTERRUPT_GRACE_US - 1)
        assert not ignored(cluster)
        cluster.later(1)
        (line,) = ignored(cluster)
        assert line.startswith("f was cancelled 5 s ago and has not ended in executor 1 ")
        assert "cancel(ref, force=True) ends its process" in line
        cluster.later(100 * INTERRUPT_GRACE_US)
        assert len(ignored(cluster)) == 1
        cluster.raised(executor, call)
        cluster.forget()


def test_a_call_whose_process_still_starts_ignores_no_cancel() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.client_says(DRIVER, CancelRequested(call, False, True))
        cluster.later(3 * INTERRUPT_GRACE_US)
        assert not ignored(cluster)
        cluster.started(executor)
        cluster.later(INTERRUPT_GRACE_US)
        assert len(ignored(cluster)) == 1
        cluster.raised(executor, call)
        cluster.forget()


def test_a_cancel_that_is_heeded_is_not_told() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.client_says(DRIVER, CancelRequested(call, False, True))
        cluster.raised(executor, call)
        cluster.later(2 * INTERRUPT_GRACE_US)
        assert not ignored(cluster)
        cluster.forget()


def test_of_methods_that_were_cancelled_only_the_one_that_runs_is_told() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.started(executor)
        cluster.done(executor, actor)
        first, second = cluster.method(actor), cluster.method(actor)
        cluster.forget()
        for call in (first, second):
            cluster.client_says(DRIVER, CancelRequested(call, False, True))
        cluster.later(3 * INTERRUPT_GRACE_US)
        (line,) = ignored(cluster)
        assert line.startswith("Actor.method was cancelled")
        assert "kill(actor) ends the actor" in line
        cluster.done(executor, first)
        cluster.raised(executor, second)
        cluster.forget()


def test_a_recursive_cancel_reaches_what_comes_after_it() -> None:
    with Cluster().node(cpus=2) as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.client_says(DRIVER, CancelRequested(call, False, True))
        late = child(cluster, call, executor)
        assert cluster.told(late, to=executor).code == "TaskCancelledError"
        cluster.raised(executor, call)
        cluster.forget()


def test_a_cancel_that_is_not_recursive_does_not() -> None:
    with Cluster().node(cpus=2) as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cluster.client_says(DRIVER, CancelRequested(call, False, False))
        late = child(cluster, call, executor)
        cluster.done(cluster.placed(late), late)
        cluster.forget()

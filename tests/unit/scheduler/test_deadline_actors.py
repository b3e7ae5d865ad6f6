"""The end of the job's time, for calls of actors: what cannot finish before it waits, and with it what is behind it."""

from typing import Any

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch, StopExecutor
from mpi_runtime.scheduler.protocol.events import (
    CancelRequested,
    EndAnnounced,
    EndMoved,
    KillRequested,
    MethodSpec,
    RetrySpec,
    Value,
)
from mpi_runtime.scheduler.protocol.rank_events import ExecutorDied, Fetched
from tests.builders import LARGE, Cluster
from tests.unit.scheduler.test_deadline import S, ending

NOT_STARTED = "It is not started: it may take 600 s (its time_limit), and the job's time ends in 300 s."


def living(cluster: Cluster, **fields: Any) -> tuple[bytes, int]:
    """An actor that has been created, and its executor."""
    actor = cluster.actor(cpu=0, **fields)
    executor = cluster.placed(actor)
    cluster.done(executor, actor)
    cluster.forget()
    return actor, executor


def call(cluster: Cluster, actor: bytes, name: str, *arguments: bytes, client: int = 0, **fields: Any) -> bytes:
    """Call a method of this name."""
    spec = cluster.spec(f"Actor.{name}", cpu=0, kind=MethodSpec, **fields)
    return cluster.call(spec, *arguments, actor=actor, client=client)


def train(cluster: Cluster, actor: bytes, *arguments: bytes, limit_s: int = 600, **fields: Any) -> bytes:
    """Call a method that says how long it may take."""
    return call(cluster, actor, "train", *arguments, limit_us=limit_s * S, **fields)


def test_what_is_behind_it_waits_too_and_other_callers_do_not() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        task = cluster.submit(name="other caller")
        other = cluster.placed(task)
        cluster.held(other, actor)
        late, behind = train(cluster, actor), call(cluster, actor, "look")
        cluster.nothing()
        assert cluster.placed(call(cluster, actor, "look", client=other)) == executor
        assert cluster.explain(late).why.startswith(NOT_STARTED)
        assert cluster.explain(behind).why == (
            f"It comes after a call of Actor.train by the same caller. Of that: {cluster.explain(late).why}"
        )


def test_one_that_just_can_is_started() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        assert cluster.placed(train(cluster, actor, limit_s=300)) == executor


def test_where_no_end_is_known_calls_are_sent_ahead() -> None:
    with Cluster().node() as cluster:
        actor, executor = living(cluster)
        assert cluster.running(*(train(cluster, actor) for _ in range(3))) == [executor] * 3


def test_such_a_call_is_not_sent_ahead() -> None:
    """Behind others it would begin too late. Nothing else is sent meanwhile, or it would never be its turn."""
    with ending(300) as cluster:
        actor, executor = living(cluster)
        task = cluster.submit(name="other caller")
        other = cluster.placed(task)
        cluster.held(other, actor)
        first, second = train(cluster, actor, limit_s=200), train(cluster, actor, limit_s=200)
        third = call(cluster, actor, "look", client=other)
        assert cluster.placed(first) == executor
        cluster.nothing()
        assert cluster.explain(second).why == "Its actor is busy with earlier calls."
        cluster.now += 50 * S
        cluster.done(executor, first, us=50 * S)
        cluster.told(first)
        cluster.placed(second)
        cluster.nothing()
        cluster.done(executor, second, us=50 * S)
        cluster.told(second)
        cluster.placed(third)


def test_time_runs_out_while_it_waits_for_its_turn() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        first, late = train(cluster, actor, limit_s=200), train(cluster, actor, limit_s=200)
        cluster.placed(first)
        cluster.later(101 * S)
        assert cluster.notes == [
            "calls of Actor.train, each of which may take 200 s (its time_limit), are not started any more: the job's "
            "time ends in 200 s. Have the job requeued, or start one with more time."
        ]
        cluster.done(executor, first, us=101 * S)
        cluster.forget()
        assert cluster.explain(late).why.startswith("It is not started")


def test_an_end_that_is_announced_early_is_compared_with_what_waits_already() -> None:
    """Also where the actor is busy, so that the user hears of it before the job is over."""
    with ending(300) as cluster:
        actor, executor = living(cluster)
        first, late = train(cluster, actor, limit_s=200), train(cluster, actor, limit_s=200)
        cluster.placed(first)
        cluster.client_says(0, EndAnnounced())
        (note,) = cluster.notes
        assert note.startswith("calls of Actor.train, each of which may take 200 s (its time_limit), are not started")
        cluster.done(executor, first, us=S)
        cluster.forget()
        assert cluster.explain(late).why.startswith("It is not started")


def test_tasks_that_wait_for_room_are_compared_with_an_end_that_is_announced_early() -> None:
    with ending(300) as cluster:
        cluster.placed(cluster.submit(name="other"))
        late = cluster.submit(name="fit", limit_us=200 * S)
        cluster.client_says(0, EndAnnounced())
        (note,) = cluster.notes
        assert note.startswith("calls of fit, each of which may take 200 s (its time_limit), are not started any more")
        assert cluster.explain(late).why.startswith("It is not started")


def test_calls_that_were_too_late_start_when_the_end_is_moved() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        method, task = train(cluster, actor, limit_s=600), cluster.submit(name="fit", limit_us=600 * S)
        cluster.nothing()
        assert len(cluster.notes) == 2
        cluster.client_says(0, EndMoved(cluster.now + 900 * S))
        assert cluster.notes[2:] == ["the job's time ends in 900 s, 600 s later than was known"]
        assert cluster.placed(method) == executor
        cluster.done(executor, method, us=S)
        cluster.done(cluster.placed(task), task, us=S)
        cluster.forget()
        cluster.client_says(0, EndMoved(cluster.now + 100 * S))
        late = [train(cluster, actor, limit_s=600), cluster.submit(name="fit", limit_us=600 * S)]
        cluster.nothing()
        assert [one.startswith("calls of") for one in cluster.notes[3:]] == [False, True, True], "logged again"
        cluster.client_says(0, EndAnnounced(), EndMoved(cluster.now + 900 * S))
        cluster.nothing()
        assert cluster.explain(late[0]).why.startswith("It is not started"), "the job is about to end early"


def test_an_end_that_was_not_known_is_compared_once_it_is_announced() -> None:
    with Cluster().node() as cluster:
        actor, executor = living(cluster)
        before = [train(cluster, actor), call(cluster, actor, "slow"), call(cluster, actor, "look")]
        assert cluster.running(*before) == [executor] * 3
        for id, us in zip(before, (S, 60 * S, S), strict=True):
            cluster.done(executor, id, us=us)
        cluster.forget()
        cluster.client_says(0, EndAnnounced())
        look = call(cluster, actor, "look")
        assert cluster.placed(look) == executor
        limited, slow = train(cluster, actor), call(cluster, actor, "slow")
        cluster.nothing()
        assert cluster.explain(limited).why.startswith("It is not started: it may take 600 s (its time_limit)")
        cluster.client_says(0, CancelRequested(limited, False, False))
        assert cluster.told(limited).code == "TaskCancelledError"
        cluster.nothing()
        assert cluster.explain(slow).why.startswith("It is not started: it may take 60 s (as earlier calls did)")


@pytest.mark.parametrize("limits", [{"": 2}, {"": 1, "io": 2}])
def test_in_an_actor_that_takes_several_at_a_time_so_many_begin(limits: dict[str, int]) -> None:
    with ending(300) as cluster:
        actor, _ = living(cluster, concurrency=limits)
        group = max(limits, key=lambda name: limits[name])
        first, second, third = (train(cluster, actor, limit_s=200, group=group) for _ in range(3))
        cluster.running(first, second)
        assert cluster.explain(third).why == "Its actor is busy with earlier calls."
        late, behind = train(cluster, actor), call(cluster, actor, "look")
        if len(limits) > 1:
            assert cluster.explain(late).why.startswith(NOT_STARTED)  # the calls before it are of another group
        assert cluster.explain(behind).state == "ready"


def test_without_an_order_others_go_past_it() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster, out_of_order=True)
        late = train(cluster, actor)
        assert cluster.placed(call(cluster, actor, "look")) == executor
        assert cluster.explain(late).why.startswith(NOT_STARTED)


def test_what_was_measured_counts_where_no_limit_is_said() -> None:
    with ending(100, cpus=2) as cluster:
        (one, slow), (other, quick) = living(cluster), living(cluster)
        first, second = call(cluster, one, "train"), call(cluster, one, "train")
        elsewhere, late = call(cluster, other, "train"), call(cluster, other, "train")
        assert cluster.running(first, elsewhere) == [slow, quick]
        cluster.nothing()  # of what is not known yet nothing is sent ahead
        cluster.now += 55 * S
        cluster.done(slow, first, us=55 * S)
        assert cluster.told(first)
        assert cluster.explain(second).why.startswith(
            "It is not started: it may take 55 s (as earlier calls did), and the job's time ends in 45 s."
        )
        cluster.later(40 * S)
        cluster.state.end_us = cluster.now + 50 * S
        cluster.done(quick, elsewhere, us=1 * S)  # the mean is 48 s
        assert cluster.told(elsewhere)
        assert cluster.running(second, late) == [slow, quick]


def test_a_mean_that_has_grown_is_looked_at_where_the_actor_is_busy() -> None:
    """The user hears then that its call is too late, and not when the actor is free."""
    with ending(100, cpus=2) as cluster:
        (one, slow), (other, busy) = living(cluster), living(cluster)
        first, look, late = call(cluster, one, "train"), call(cluster, other, "look"), call(cluster, other, "train")
        assert cluster.running(first, look) == [slow, busy]
        cluster.now += 55 * S
        cluster.done(slow, first, us=55 * S)
        assert cluster.told(first)
        cluster.later(1)
        (note,) = cluster.notes
        assert note.startswith(
            "calls of Actor.train, each of which may take 55 s (as earlier calls did), are not started"
        )
        cluster.done(busy, look, us=55 * S)
        assert cluster.told(look)
        assert cluster.explain(late).why.startswith("It is not started: it may take 55 s")


def test_where_calls_may_wait_for_each_other_what_was_measured_means_nothing() -> None:
    with ending(100) as cluster:
        actor, executor = living(cluster, concurrency={"": 2})
        first, second, third = (call(cluster, actor, "take") for _ in range(3))
        assert cluster.running(first, second, third) == [executor] * 3
        cluster.now += 60 * S
        cluster.done(executor, first, second, us=60 * S)
        cluster.forget()
        assert cluster.placed(call(cluster, actor, "take")) == executor
        assert cluster.notes == []


def test_short_ones_are_sent_ahead_as_soon_as_that_is_known() -> None:
    with ending(100) as cluster:
        actor, executor = living(cluster)
        ids = [call(cluster, actor, "look") for _ in range(4)]
        assert cluster.placed(ids[0]) == executor
        cluster.nothing()
        cluster.done(executor, ids[0], us=100)
        cluster.told(ids[0])
        assert cluster.running(*ids[1:]) == [executor] * 3
        cluster.placed(call(cluster, actor, "look"))


def test_a_call_whose_argument_came_too_late_is_not_sent() -> None:
    with Cluster().head().node() as cluster:
        cluster.state.end_us = cluster.now + 300 * S
        actor, _ = living(cluster)
        value = cluster.put(size=LARGE)
        late, behind = train(cluster, actor, value, limit_s=299), call(cluster, actor, "look")
        assert cluster.one(Fetch, to=1).id == value
        cluster.later(2 * S)
        cluster.rank_says(Fetched(1, value, 0))
        cluster.nothing()
        assert cluster.explain(late).why.startswith("It is not started")
        assert cluster.explain(behind).state == "ready"
        assert not cluster.state.executors[1].assigned


def test_cancelled_it_lets_those_behind_it_go() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        late, behind = train(cluster, actor), call(cluster, actor, "look")
        cluster.client_says(0, CancelRequested(late, False, False))
        assert cluster.told(late).code == "TaskCancelledError"
        assert cluster.placed(behind) == executor


def test_an_actor_without_handles_waits_with_it_until_it_is_cancelled() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        late = train(cluster, actor)
        cluster.released(actor)
        cluster.nothing()
        cluster.client_says(0, CancelRequested(late, False, False))
        cluster.told(late)
        assert cluster.one(StopExecutor) == StopExecutor(executor, False)


def test_killed_it_fails_what_waits() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        late = train(cluster, actor)
        cluster.client_says(0, KillRequested(actor))
        assert cluster.told(late).code == "ActorDiedError"
        assert cluster.one(StopExecutor) == StopExecutor(executor, True)
        cluster.rank_says(ExecutorDied(executor, b"", "was killed by signal 9"))
        cluster.released(actor, late)
        assert cluster.is_clean()


def test_a_call_that_is_to_be_run_again_is_compared_again() -> None:
    with ending(300) as cluster:
        actor, executor = living(cluster)
        again = train(cluster, actor, limit_s=200, max_retries=1, retry=RetrySpec())
        cluster.placed(again)
        cluster.now += 150 * S
        cluster.returned(executor, again, Value(b"error", is_error=True), raised=True, us=150 * S)
        cluster.nothing()
        assert cluster.explain(again).why.startswith("It is not started")

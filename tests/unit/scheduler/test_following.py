"""Calls that are sent behind the calls that make their arguments."""

from typing import Any

import pytest

from mpi_runtime.scheduler.protocol.effects import Ready, ReadyError, TakeBack
from mpi_runtime.scheduler.protocol.events import FOLLOWED_BYTES_MAX, Call, RefusedError, Unfilled
from mpi_runtime.scheduler.protocol.limits import FOLLOW_US_MAX, FOLLOWERS_MAX, WANTED_MAX
from mpi_runtime.scheduler.protocol.rank_events import RankLost
from tests.builders import DRIVER, LARGE, Cluster


def measured(cluster: Cluster, us: int = 10, data: bytes = b"value", **fields: Any) -> int:
    """End a call, so that the duration of others is known. Return its executor."""
    first = cluster.submit(**{"max_retries": 3, **fields})
    executor = cluster.placed(first)
    cluster.done(executor, first, us=us, data=data)
    cluster.released(first)
    cluster.forget()
    return executor


def call(cluster: Cluster, *arguments: bytes, **fields: Any) -> bytes:
    """Submit a call that may run twice."""
    return cluster.submit(*arguments, **{"max_retries": 3, **fields})


def texts(cluster: Cluster) -> list[str]:
    """What was logged."""
    return [note.text for note in cluster.said]


def sent(cluster: Cluster) -> list[bytes]:
    """The calls that were sent since the last look."""
    calls = [effect.id for _, _, effect in cluster.recorded if isinstance(effect, Call)]
    cluster.forget()
    return calls


def test_a_chain_is_sent_before_its_first_call_has_ended() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first = call(cluster)
        second = call(cluster, first)
        third = call(cluster, second)
        assert cluster.running(first, second, third) == [executor] * 3
        cluster.nothing()  # above all no value
        cluster.done(executor, first, second, third)
        assert [cluster.told(id).data for id in (first, second, third)] == [b"value"] * 3
        cluster.released(first, second, third)
        assert cluster.is_clean()


def test_no_more_follow_than_the_executor_has_room_for_and_the_rest_when_some_have_ended() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        chain = [call(cluster)]
        for _ in range(2 * FOLLOWERS_MAX):
            chain.append(call(cluster, chain[-1]))
        assert sent(cluster) == chain[: 1 + FOLLOWERS_MAX]
        cluster.done(executor, *chain[:10])
        assert sent(cluster) == chain[1 + FOLLOWERS_MAX : 10 + FOLLOWERS_MAX]


def test_a_call_with_values_that_exist_gets_these_alone() -> None:
    with Cluster().node() as cluster:
        executor, known = measured(cluster), cluster.put()
        first = call(cluster)
        second = call(cluster, first, known)
        cluster.placed(first)
        assert cluster.one(Ready, to=executor).id == known
        assert cluster.placed(second) == executor
        cluster.forget()


def test_a_call_whose_maker_is_not_sent_follows_when_it_is() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        running = call(cluster, cpu=0.5)
        cluster.placed(running)
        first = call(cluster)
        second = call(cluster, first)
        cluster.nothing()
        cluster.done(executor, running)
        cluster.told(running)
        assert cluster.running(first, second) == [executor] * 2


@pytest.mark.parametrize(
    ("us", "data"),
    [(-1, b""), (FOLLOW_US_MAX + 1, b"value"), (10, bytes(FOLLOWED_BYTES_MAX + 1))],
    ids=["unknown", "long", "large"],
)
def test_only_behind_short_calls_with_small_values(us: int, data: bytes) -> None:
    with Cluster().node() as cluster:
        if us >= 0:
            measured(cluster, us, data)
        first = call(cluster)
        call(cluster, first)
        cluster.placed(first)
        cluster.nothing()


@pytest.mark.parametrize(
    "fields", [{"max_retries": 0}, {"cpu": 0.5}, {"priority": 1}, {"num_returns": 2}, {"limit_us": 10**6}], ids=str
)
def test_calls_that_must_not_or_need_not_run_there_do_not_follow(fields: dict[str, Any]) -> None:
    with Cluster().node(cpus=1) as cluster:
        measured(cluster)
        if "num_returns" not in fields:
            measured(cluster, **fields)
        first = call(cluster)
        cluster.placed(first)
        call(cluster, first, **fields)
        assert sent(cluster) == []


def test_a_call_of_two_executors_does_not_follow() -> None:
    with Cluster().node(cpus=2) as cluster:
        for id in (both := [call(cluster), call(cluster)]):
            cluster.done(cluster.placed(id), id, us=900)
        cluster.released(*both)
        cluster.forget()
        first, second = call(cluster), call(cluster)
        executors = cluster.running(first, second)
        assert executors[0] != executors[1]
        third = call(cluster, first, second)
        cluster.nothing()
        cluster.done(executors[0], first, us=900)
        cluster.told(first)
        cluster.forget()  # it may follow the other now
        assert third in cluster.state.executors[executors[1]].assigned


def test_a_fan_behind_one_call_is_not_sent_to_its_executor() -> None:
    with Cluster().node(cpus=2) as cluster:
        measured(cluster, us=90)
        first = call(cluster)
        fan = [call(cluster, first) for _ in range(WANTED_MAX)]
        assert sent(cluster) == [first, *fan[:2]], "the second is 90 us late at most"


def test_a_call_comes_back_once_and_waits_like_others() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first = call(cluster)
        second = call(cluster, first)
        third = call(cluster, second)
        cluster.running(first, second, third)
        cluster.raised(executor, first)
        cluster.told(first)
        cluster.client_says(executor, Unfilled(second), Unfilled(third))
        assert isinstance(cluster.told(second), ReadyError), "the error of its argument, without running"
        assert isinstance(cluster.told(third), ReadyError)
        cluster.released(first, second, third)
        assert cluster.is_clean()


def test_a_large_value_is_sent_with_the_call_that_came_back() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first = call(cluster)
        second = call(cluster, first)
        cluster.running(first, second)
        cluster.done(executor, first, data=bytes(FOLLOWED_BYTES_MAX + 1))
        cluster.told(first)
        cluster.client_says(executor, Unfilled(second))
        assert cluster.one(Ready, to=executor).id == first
        assert cluster.placed(second) == executor
        cluster.client_says(executor, Unfilled(second))  # it has all arguments now
        assert any("comes back as it cannot" in line for line in texts(cluster))
        cluster.forget()


def test_calls_that_are_taken_back_wait_for_each_other_again() -> None:
    with Cluster().node(cpus=2) as cluster:
        executor = measured(cluster)
        first = call(cluster)
        second = call(cluster, first)
        third = call(cluster, second)
        cluster.running(first, second, third)
        cluster.blocked(executor, cluster.id())
        assert cluster.one(TakeBack).count == 2
        fourth = call(cluster, first)
        cluster.nothing()  # its executor waits
        cluster.taken_back(executor, second, third)
        cluster.nothing()
        cluster.unblocked(executor)
        cluster.done(executor, first)
        cluster.told(first)
        assert set(sent(cluster)) >= {second, fourth}
        cluster.forget()


def test_nothing_follows_while_calls_are_being_taken_back() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first, other = [call(cluster), call(cluster)]
        cluster.running(first, other)
        cluster.state.executors[executor].asked_back = True
        call(cluster, first)
        cluster.nothing()


def test_the_calls_of_a_dead_executor_wait_for_their_arguments_again() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first = call(cluster)
        cluster.placed(first)
        cluster.forget()
        second = call(cluster, first)
        third = call(cluster, second)
        if cluster.recorded:  # the same function
            cluster.forget()
        cluster.died(executor, first)
        after = sent(cluster)
        assert after[:1] == [first]
        task = cluster.state.objects[first].task
        assert task is not None
        new = task.executor
        assert new is not None
        cluster.done(new.id, first)
        cluster.told(first)
        assert set(after[1:]) | set(sent(cluster)) >= {second}
        assert third in cluster.state.objects


def test_the_calls_of_a_lost_rank_run_in_order_again() -> None:
    with Cluster().node(cpus=0).node() as cluster:
        executor = measured(cluster)
        cluster.node()
        first = call(cluster)
        second = call(cluster, first)
        assert cluster.running(first, second) == [executor] * 2
        cluster.rank_says(RankLost(1, "was killed"))
        assert sent(cluster) == [first]
        task = cluster.state.objects[first].task
        assert task is not None
        assert task.executor is not None
        cluster.done(task.executor.id, first)
        assert sent(cluster) == [second]


def test_a_cancelled_call_that_comes_back_is_cancelled() -> None:
    with Cluster().node() as cluster:
        executor = measured(cluster)
        first = call(cluster)
        second = call(cluster, first)
        cluster.running(first, second)
        task = cluster.state.objects[second].task
        assert task is not None
        task.is_cancelled = True
        cluster.client_says(executor, Unfilled(second))
        assert cluster.told(second).code == "TaskCancelledError"


def test_a_call_that_has_not_followed_cannot_come_back() -> None:
    with Cluster().node() as cluster:
        first = call(cluster)
        executor = cluster.placed(first)
        cluster.client_says(executor, Unfilled(first))
        assert any("comes back as it cannot" in line for line in texts(cluster))
        cluster.forget()
        with pytest.raises(RefusedError):
            cluster.client_says(DRIVER, Unfilled(first))


def test_only_ends_for_which_few_wait_are_wanted() -> None:
    with Cluster().node() as cluster:
        running = call(cluster)
        executor = cluster.placed(running)
        first, second, third = cluster.submit_many(3)
        call(cluster, second)
        call(cluster, third, *(cluster.put() for _ in range(WANTED_MAX)))
        cluster.done(executor, running, us=LARGE)
        wanted = {effect.id: effect.wanted for _, _, effect in cluster.recorded if isinstance(effect, Call)}
        assert wanted == {first: False}
        cluster.done(executor, first, us=LARGE)
        wanted |= {effect.id: effect.wanted for _, _, effect in cluster.recorded if isinstance(effect, Call)}
        cluster.done(executor, second, us=LARGE)
        wanted |= {effect.id: effect.wanted for _, _, effect in cluster.recorded if isinstance(effect, Call)}
        assert wanted[second]
        assert not wanted[third]
        cluster.forget()


def acted(cluster: Cluster, us: int = 10, data: bytes = b"value", **fields: Any) -> tuple[bytes, int]:
    """An actor, and its executor, of which a call has ended."""
    actor = cluster.actor(**fields)
    executor = cluster.placed(actor)
    cluster.done(executor, actor)
    cluster.told(actor)
    first = cluster.method(actor)
    cluster.placed(first)
    cluster.done(executor, first, us=us, data=data)
    cluster.told(first)
    cluster.released(first)
    cluster.forget()
    return actor, executor


def chain(cluster: Cluster, actor: bytes, length: int) -> list[bytes]:
    """Calls of an actor, of which each needs the value of the one before."""
    calls = [cluster.method(actor)]
    for _ in range(length - 1):
        calls.append(cluster.method(actor, calls[-1]))
    return calls


def test_a_chain_of_calls_of_an_actor_is_sent_before_its_first_call_has_ended() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster)
        calls = chain(cluster, actor, 2 * FOLLOWERS_MAX)
        assert sent(cluster) == calls[: 1 + FOLLOWERS_MAX]
        cluster.done(executor, *calls[:10])
        assert sent(cluster) == calls[1 + FOLLOWERS_MAX : 10 + FOLLOWERS_MAX]


@pytest.mark.parametrize(
    "fields",
    [{"concurrency": {"": 2}}, {"concurrency": {"": 2}, "out_of_order": True}, {"out_of_order": True}],
    ids=str,
)
def test_calls_of_an_actor_without_one_order_do_not_follow(fields: dict[str, Any]) -> None:
    with Cluster().node() as cluster:
        actor, _ = acted(cluster, **fields)
        calls = chain(cluster, actor, 2)
        assert sent(cluster) == calls[:1]


def test_what_would_overtake_a_call_that_comes_back_waits_for_its_end() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster)
        first, second = chain(cluster, actor, 2)
        other, third, fourth = cluster.method(actor), cluster.method(actor, second), cluster.method(actor, first)
        assert sent(cluster) == [first, second]
        cluster.done(executor, first)
        cluster.told(first)
        cluster.nothing()  # the second may come back
        cluster.done(executor, second)
        assert sent(cluster) == [other, third, fourth]


def test_a_call_of_another_caller_does_not_wait_for_one_that_may_come_back() -> None:
    with Cluster().node(cpus=2) as cluster:
        running = cluster.submit()
        caller = cluster.placed(running)
        actor, _ = acted(cluster)
        first, second = chain(cluster, actor, 2)
        cluster.running(first, second)
        cluster.held(caller, actor)
        other = cluster.method(actor, client=caller)
        assert cluster.placed(other)


def test_calls_of_an_actor_come_back_to_their_place_in_the_line() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster)
        first, second, third = chain(cluster, actor, 3)
        last = cluster.method(actor)
        assert sent(cluster) == [first, second, third]
        cluster.done(executor, first, data=bytes(FOLLOWED_BYTES_MAX + 1))
        cluster.told(first)
        cluster.client_says(executor, Unfilled(second))
        assert sent(cluster) == [], "the third has not come back"
        cluster.client_says(executor, Unfilled(third))
        assert sent(cluster) == [second], "a call follows once"
        cluster.done(executor, second)
        assert sent(cluster) == [third, last]
        cluster.forget()


def test_calls_of_an_actor_that_come_back_get_the_error_of_their_argument() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster)
        first, second, third = chain(cluster, actor, 3)
        last = cluster.method(actor)
        cluster.raised(executor, first)
        cluster.client_says(executor, Unfilled(second), Unfilled(third))
        for id in (first, second, third):
            assert isinstance(cluster.told(id), ReadyError)
        assert last in sent(cluster)


def test_the_calls_of_an_actor_that_is_created_again_wait_for_each_other_again() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster, max_restarts=1)
        first, second, third = chain(cluster, actor, 3)
        assert sent(cluster) == [first, second, third]
        cluster.done(executor, first)
        cluster.died(executor, second)
        again = cluster.placed(actor)
        cluster.done(again, actor)
        failed = [cluster.told(id) for id in (second, third)]
        assert [one.code for one in failed] == ["ActorUnavailableError"] * 2, "the second is not run twice"
        cluster.forget()


def test_a_cancelled_call_of_an_actor_that_comes_back_is_cancelled_and_holds_up_nothing() -> None:
    with Cluster().node() as cluster:
        actor, executor = acted(cluster)
        first, second = chain(cluster, actor, 2)
        last = cluster.method(actor)
        assert sent(cluster) == [first, second]
        task = cluster.state.objects[second].task
        assert task is not None
        task.is_cancelled = True
        cluster.client_says(executor, Unfilled(second))
        assert cluster.told(second).code == "TaskCancelledError"
        assert sent(cluster) == [last]

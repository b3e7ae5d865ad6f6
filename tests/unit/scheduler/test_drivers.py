"""Several drivers: what belongs to whom, and what ends with a driver that leaves."""

from __future__ import annotations

import itertools

import pytest

from mpi_runtime.scheduler.dispatch.fair_shares import account_of
from mpi_runtime.scheduler.protocol.effects import (
    Answer,
    Free,
    Ready,
    ReadyFailed,
    StartExecutor,
    StopExecutor,
    TakeBack,
)
from mpi_runtime.scheduler.protocol.events import (
    OF_DRIVER,
    AccountSpec,
    ActorSpec,
    Call,
    Done,
    EndAnnounced,
    EndMoved,
    KillRequested,
    MethodSpec,
    NamedActorRequested,
    RefusedError,
    Spec,
    TaskSpec,
)
from mpi_runtime.scheduler.protocol.limits import LEAVING_STEPS
from mpi_runtime.scheduler.protocol.rank_events import DriverJoined, DriverLeft
from tests.builders import DRIVER, LARGE, UNIT, Cluster, spec_of


def gone(cluster: Cluster, driver: int) -> bool:
    """Whether nothing is left of a driver."""
    return not cluster.scheduler.has_driver(driver) and cluster.is_clean() and not cluster.state.clients.get(driver)


def kill_all(cluster: Cluster, driver: int) -> None:
    """The executors that are to end do so."""
    for effect in cluster.take(StopExecutor, len([one for one in cluster.recorded if type(one[2]) is StopExecutor])):
        cluster.died(effect.executor, cause="was killed")
    cluster.later(1_000)


def named(cluster: Cluster, driver: int, name: str, detached: bool) -> tuple[bytes, int]:
    """An actor with a name that lives, and its executor."""
    spec, id = cluster.own(cluster.spec("Actor", kind=ActorSpec), driver), cluster.id()
    cluster.client_says(driver, spec, NamedActorRequested(7, "", name, b"h", detached, Call(id, spec.id, b"")))
    cluster.one(Answer)
    executor = cluster.placed(id)
    cluster.done(executor, id)
    cluster.told(id, to=driver)
    return id, executor


# Joining


def test_numbers_of_drivers_and_executors_are_one_series() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, executor, second = cluster.driver(), cluster.placed(cluster.submit()), cluster.driver()
        assert [first, executor, second] == [1, 2, 3]
        cluster.leave(first)
        assert cluster.driver() == 4
        with pytest.raises(RefusedError, match="the next number is another"):
            cluster.head_says(DriverJoined(4))
        with pytest.raises(RefusedError, match="has not joined"):
            cluster.head_says(DriverLeft(DRIVER))
        with pytest.raises(RefusedError, match="has not joined"):
            cluster.head_says(DriverLeft(executor))
        with pytest.raises(RefusedError, match="has not joined"):
            cluster.head_says(DriverLeft(first))
        with pytest.raises(RefusedError, match="only the program of rank 0"):
            cluster.client_says(second, EndAnnounced())
        with pytest.raises(RefusedError, match="only the program of rank 0"):
            cluster.client_says(second, EndMoved(1))


def test_an_executor_runs_calls_of_one_driver() -> None:
    with Cluster().node(cpus=4) as cluster:
        one, two = cluster.driver(), cluster.driver()
        calls = [cluster.submit(client=client) for client in (DRIVER, one, two)]
        starts = {
            effect.executor: effect.environment.get(OF_DRIVER, "0 ")[:2] for effect in cluster.take(StartExecutor, 3)
        }
        executors = [cluster.placed(id) for id in calls]
        assert [starts[executor] for executor in executors] == ["0 ", "1 ", "2 "]
        assert [cluster.scheduler.driver_of(executor) for executor in executors] == [0, one, two]
        for client, executor, id in zip((DRIVER, one, two), executors, calls, strict=True):
            cluster.done(executor, id)
            cluster.told(id, to=client)
        assert cluster.placed(cluster.submit(client=two)) == executors[2]


def test_a_driver_uses_its_own_functions_only() -> None:
    with Cluster().node() as cluster:
        one, two = cluster.driver(), cluster.driver()
        spec = cluster.own(cluster.spec(), one)
        with pytest.raises(RefusedError, match=f"is a function of driver {one}"):
            cluster.client_says(two, spec)
        with pytest.raises(RefusedError, match=f"is a function of driver {one}"):
            cluster.client_says(DRIVER, spec)
        with pytest.raises(RefusedError, match="is a function of driver 0"):
            cluster.client_says(one, cluster.spec("other"))
        cluster.client_says(one, spec)
        with pytest.raises(RefusedError, match="which another driver has sent"):
            cluster.client_says(two, Call(cluster.id(), spec.id, b""))
        with pytest.raises(RefusedError, match="which must be a number"):
            cluster.client_says(one, Spec(99, spec.kind, "odd", b"", environment={OF_DRIVER: "-1 x"}))
        cluster.leave(one)
        cluster.leave(two)
        assert not cluster.state.drivers
        assert not cluster.state.queues
        assert not cluster.state.functions


# Leaving


def test_calls_and_values_end_with_their_driver() -> None:
    with Cluster().node(cpus=1) as cluster:
        driver = cluster.driver()
        running, *_ = [cluster.submit(client=driver) for _ in range(5)]
        cluster.submit(running, client=driver)
        large = cluster.put(client=driver, size=LARGE, offset=64)
        executor = cluster.placed(running)
        cluster.leave(driver, 64, 128)
        assert cluster.one(StopExecutor) == StopExecutor(executor, True)
        assert cluster.take(Free, 2, to=0) == [Free([128], driver), Free([64])]
        assert large not in cluster.state.objects
        late = cluster.submit(client=executor)  # it does not know yet
        cluster.later(1_000)
        assert cluster.told(late, to=executor).code == "OwnerDiedError"
        cluster.died(executor, running)
        cluster.later(1_000)
        cluster.nothing()
        assert gone(cluster, driver)


def test_a_process_whose_last_call_ends_as_its_driver_leaves_gives_its_cpu_back() -> None:
    with Cluster().node(cpus=1) as cluster:
        driver = cluster.driver()
        call = cluster.submit(client=driver)
        executor = cluster.placed(call)
        other = cluster.own(cluster.spec("other"), driver)  # with so many calls that their ends take several turns
        cluster.client_says(driver, other, *(Call(cluster.id(), other.id, b"") for _ in range(2 * LEAVING_STEPS)))
        cluster.scheduler.handle(executor, [Done(call, b"value", 100)], cluster.now)  # in one turn with what follows
        cluster.leave(driver)
        assert cluster.placed(cluster.submit()) != executor
        cluster.forget()


def test_what_others_hold_stays_and_what_was_to_come_is_an_error() -> None:
    with Cluster().node(cpus=2) as cluster:
        driver, other = cluster.driver(), cluster.driver()
        value, call, waiting = cluster.put(client=driver), cluster.submit(client=driver), cluster.id()
        waiting = cluster.submit(call, client=driver)
        cluster.held(other, value, call, waiting)
        cluster.subscribed(other, call, waiting)
        own = cluster.submit(waiting, client=other)
        executor = cluster.placed(call)
        cluster.leave(driver)
        error = cluster.told(waiting, to=other)
        assert isinstance(error, ReadyFailed)
        assert error.code == "OwnerDiedError"
        assert "has left the job" in error.message
        assert cluster.told(own, to=other).code == "OwnerDiedError"
        assert cluster.told(call, to=other).code == "OwnerDiedError"
        cluster.one(StopExecutor)
        cluster.died(executor, call, "was killed")
        cluster.later(1_000)
        assert not cluster.scheduler.has_driver(driver)
        cluster.subscribed(other, value)
        assert cluster.told(value, to=other) == Ready(value, b"value")
        cluster.released(value, call, waiting, own, client=other)
        assert cluster.is_clean()


def test_calls_of_its_own_actors_end_as_its_other_calls_do() -> None:
    """Whichever is seen first: that the actor is killed, or that the calls have no owner."""
    with Cluster().node(cpus=2) as cluster:
        driver, other = cluster.driver(), cluster.driver()
        actor = cluster.actor(client=driver)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor, to=driver)
        running, waiting = [cluster.method(actor, client=driver) for _ in range(2)]
        assert {cluster.placed(call) for call in (running, waiting)} == {executor}
        cluster.held(other, running, waiting)
        cluster.subscribed(other, running, waiting)
        cluster.leave(driver)
        cluster.one(StopExecutor)
        cluster.died(executor, running)
        cluster.later(1_000)
        for call in (running, waiting):
            error = cluster.told(call, to=other)
            assert isinstance(error, ReadyFailed)
            assert error.code == "OwnerDiedError"
        cluster.released(running, waiting, client=other)
        assert gone(cluster, driver)


def test_actors_are_killed_whoever_has_handles() -> None:
    with Cluster().node(cpus=4) as cluster:
        driver, other = cluster.driver(), cluster.driver()
        actor = cluster.actor(client=driver)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor, to=driver)
        cluster.held(other, actor)
        cluster.held(executor, actor)  # in a circle
        call = cluster.method(actor, client=other)
        assert cluster.placed(call) == executor
        cluster.leave(driver)
        assert cluster.one(StopExecutor) == StopExecutor(executor, True)
        cluster.died(executor, call)
        cluster.later(1_000)
        assert cluster.told(call, to=other).code == "ActorDiedError"
        assert not cluster.scheduler.has_driver(driver)
        assert actor in cluster.state.actors
        cluster.released(actor, call, client=other)
        assert cluster.is_clean()


def test_methods_that_run_in_actors_of_others_continue_and_others_come_back() -> None:
    with Cluster().node(cpus=4) as cluster:
        driver, other = cluster.driver(), cluster.driver()
        actor = cluster.actor(client=other)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor, to=other)
        cluster.held(driver, actor)
        first, second = (cluster.method(actor, client=driver) for _ in range(2))
        third, fourth = (cluster.method(actor, client=other) for _ in range(2))
        cluster.running(first, second, third, fourth)
        nested = cluster.submit(client=executor)  # of the actor, whoever calls it
        worker = cluster.placed(nested)
        cluster.leave(driver)
        assert cluster.one(TakeBack) == TakeBack(executor, 4)
        later = cluster.method(actor, client=other)
        cluster.nothing()  # it would overtake
        cluster.taken_back(executor, second, third, fourth)
        cluster.later(1_000)
        assert cluster.running(third, fourth, later) == [executor] * 3
        cluster.done(executor, first, third, fourth, later)
        for id in (third, fourth, later):
            cluster.told(id, to=other)
        cluster.later(1_000)
        assert not cluster.scheduler.has_driver(driver)
        cluster.done(worker, nested)
        cluster.told(nested, to=executor)
        cluster.nothing()


def test_a_detached_actor_stays_with_what_it_needs() -> None:
    with Cluster().node(cpus=4) as cluster:
        driver = cluster.driver()
        actor, executor = named(cluster, driver, "kept", detached=True)
        _, mortal = named(cluster, driver, "mortal", detached=False)
        idle = cluster.submit(client=driver)
        worker = cluster.placed(idle)
        cluster.done(worker, idle)
        cluster.told(idle, to=driver)
        cluster.leave(driver)
        assert cluster.one(StopExecutor) == StopExecutor(mortal, True)
        cluster.died(mortal)
        assert cluster.state.names.keys() == {("", "kept")}
        nested = cluster.submit(client=executor)
        assert cluster.placed(nested) == worker, "its executors stay"
        deeper = cluster.submit(client=worker)
        other = cluster.placed(deeper)
        cluster.done(other, deeper)
        cluster.told(deeper, to=worker)
        cluster.done(worker, nested)
        cluster.told(nested, to=executor)
        assert cluster.scheduler.has_driver(driver)
        cluster.client_says(DRIVER, KillRequested(actor))
        cluster.one(StopExecutor)
        cluster.died(executor)
        cluster.later(1_000)
        kill_all(cluster, driver)
        assert gone(cluster, driver)


def test_the_history_of_a_driver_that_is_gone_does_not_keep_its_code() -> None:
    with Cluster().node(cpus=1) as cluster:
        driver = cluster.driver()
        spec = spec_of(700, TaskSpec, "large", b"code of a function", UNIT)
        id = cluster.call(spec, client=driver)
        executor = cluster.placed(id)
        cluster.done(executor, id)
        cluster.told(id, to=driver)
        cluster.leave(driver)
        kill_all(cluster, driver)
        assert gone(cluster, driver)
        (run,) = cluster.state.history
        assert (run.function.spec.name, run.function.spec.function) == ("large", b"")


def test_groups_end_with_their_driver_unless_they_are_detached() -> None:
    with Cluster().node(cpus=4) as cluster:
        driver = cluster.driver()
        _own, kept = (
            cluster.group({"cpu": 1}, name=name, client=driver, detached=name == "kept", request=7)
            for name in ("own", "kept")
        )
        cluster.forget()
        cluster.leave(driver)
        assert cluster.state.groups.keys() == {kept}
        assert not cluster.scheduler.has_driver(driver)
        cluster.remove_group(kept)
        assert cluster.is_clean()


def test_views_are_counted_until_the_line_is_closed() -> None:
    with Cluster().node(cpus=1) as cluster:
        driver = cluster.driver()
        viewed, other = cluster.put(client=driver, size=LARGE, offset=64), cluster.put(client=driver)
        cluster.leave(driver, has_views=True)
        cluster.submit(client=driver)  # too late
        cluster.nothing()
        cluster.released(other, client=driver)
        assert cluster.state.objects.keys() == {viewed}
        assert not cluster.state.functions
        cluster.leave(driver, 64)
        assert cluster.take(Free, 2) == [Free([], driver), Free([64])]
        assert gone(cluster, driver)


def test_a_driver_with_much_ends_in_slices() -> None:
    with Cluster().node(cpus=2) as cluster:
        driver = cluster.driver()
        actor = cluster.actor(client=driver)
        task, method = (
            cluster.own(cluster.spec(), driver),
            cluster.own(cluster.spec("m", cpu=0, kind=MethodSpec), driver),
        )
        calls = [Call(cluster.id(), task.id, b"") for _ in range(500)]
        calls += [Call(cluster.id(), method.id, b"", actor=actor) for _ in range(500)]
        cluster.client_says(driver, task, method, *calls)
        cluster.forget()
        cluster.head_says(DriverLeft(driver))
        left = list[int]()
        while len(cluster.state.objects) > 3 and len(left) < 100:
            left.append(len(cluster.state.objects))
            cluster.decide()
        assert max(one - two for one, two in itertools.pairwise(left)) <= LEAVING_STEPS
        assert 10 <= len(left) < 30
        assert actor in cluster.state.actors
        cluster.forget()


# Fairness


def test_the_driver_that_uses_least_goes_first() -> None:
    with Cluster().node(cpus=4) as cluster:
        greedy, late = cluster.driver(), cluster.driver()
        flood = [cluster.submit(client=greedy) for _ in range(20)]
        busy = dict(zip(cluster.running(*flood[:4]), flood[:4], strict=True))
        few = [cluster.submit(client=late) for _ in range(8)]
        for executor, id in list(busy.items())[:3]:
            cluster.done(executor, id, us=1_000_000)
            cluster.told(id, to=greedy)
        sent = [one[2].id for one in cluster.recorded if type(one[2]) is Call]
        assert [id in few for id in sent].count(True) == 2, "two of four CPUs"
        cluster.forget()


def test_a_driver_alone_takes_all() -> None:
    with Cluster().node(cpus=4) as cluster:
        cluster.driver()
        cluster.running(*[cluster.submit(client=cluster.driver()) for _ in range(1)])
        driver = cluster.driver()
        cluster.running(*[cluster.submit(client=driver) for _ in range(3)])


def test_large_requests_of_others_get_their_share() -> None:
    with Cluster().node(cpus=4) as cluster:
        greedy, late = cluster.driver(), cluster.driver()
        flood = [cluster.submit(client=greedy) for _ in range(40)]
        large = cluster.submit(cpu=3, client=late)
        busy = dict(zip(cluster.running(*flood[:4]), flood[:4], strict=True))
        ends = 0
        while not any(type(one[2]) is Call and one[2].id == large for one in cluster.recorded):
            executor, id = next(iter(busy.items()))
            del busy[executor]
            cluster.done(executor, id, us=1_000_000)
            ends += 1
            assert ends <= 8, "it starves"
            busy.update({one[1]: one[2].id for one in cluster.recorded if type(one[2]) is Call and one[2].id != large})
            cluster.recorded = [one for one in cluster.recorded if type(one[2]) is not Call or one[2].id == large]
        cluster.forget()


# What also came to light


def test_a_higher_limit_of_an_account_lets_waiting_calls_start() -> None:
    with Cluster().node(cpus=4) as cluster:
        few = cluster.spec("few", account=AccountSpec("some", limit=1))
        any_number = cluster.spec("any number", account=AccountSpec("some"), priority=1)
        first, second = cluster.call(few), cluster.call(few)
        cluster.placed(first)
        cluster.nothing()
        third = cluster.call(any_number)
        assert len({cluster.placed(second), cluster.placed(third)}) == 2


def test_the_same_limit_of_an_account_again_wakes_nobody() -> None:
    with Cluster().node(cpus=4) as cluster:
        limited, open_ended = AccountSpec("some", limit=2), AccountSpec("any")
        for account, stated_again in (
            (limited, limited),
            (open_ended, open_ended),
            (limited, AccountSpec("some", limit=1)),
        ):
            cluster.call(cluster.spec("first", account=account))
            cluster.state.freed = False
            account_of(cluster.state, cluster.spec("again", account=stated_again), None)
            assert not cluster.state.freed
        cluster.forget()


def test_nothing_is_left_of_an_actor_that_has_called_itself() -> None:
    with Cluster().node(cpus=1) as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        cluster.held(executor, actor)
        call = cluster.method(actor, client=executor)
        cluster.placed(call)
        cluster.client_says(DRIVER, KillRequested(actor))
        cluster.one(StopExecutor)
        cluster.died(executor, call)
        cluster.released(actor)
        cluster.forget()
        assert cluster.is_clean()  # and in the end there are no records in a circle

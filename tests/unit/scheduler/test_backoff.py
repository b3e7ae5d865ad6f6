"""Processes that die at once, again and again, are started again later each time."""

import pytest

from mpi_runtime.scheduler.dispatch import backoff
from mpi_runtime.scheduler.protocol.amounts import times
from mpi_runtime.scheduler.protocol.effects import StopExecutor
from mpi_runtime.scheduler.protocol.events import Call, CancelRequested, KillRequested
from mpi_runtime.scheduler.protocol.limits import AT_ONCE_US, BACKOFF_US, BACKOFF_US_MAX, STILLBORN_MAX
from mpi_runtime.scheduler.protocol.questions import Actors, Tasks, Workers
from tests.builders import DRIVER, Cluster


def crash(cluster: Cluster, call: bytes) -> None:
    """The process that runs a call dies at once."""
    cluster.died(cluster.placed(call), call)


def is_running(cluster: Cluster, call: bytes) -> bool:
    return any(type(effect) is Call and effect.id == call for _, _, effect in cluster.recorded)


def test_waits_grow_up_to_a_limit() -> None:
    waits = [backoff.wait_us(crashes) for crashes in range(1, 10)]
    assert waits == [0, *(min(BACKOFF_US * 2**more, BACKOFF_US_MAX) for more in range(8))]
    assert backoff.wait_us(10**6) == BACKOFF_US_MAX


def test_a_task_that_crashes_at_once_waits_from_the_second_time_on() -> None:
    with Cluster().node() as cluster:
        task = cluster.submit(max_retries=-1)
        crash(cluster, task)
        for crashes in (2, 3, 4):
            crash(cluster, task)
            wait_us = backoff.wait_us(crashes)
            cluster.nothing()
            assert f"died at once {crashes} times in a row: it is run again in" in cluster.explain(task).why
            cluster.later(wait_us - 1)
            cluster.nothing()
            cluster.later(1)
        cluster.done(cluster.placed(task), task)
        cluster.told(task)


def test_a_task_whose_process_dies_after_a_while_is_run_again_at_once() -> None:
    with Cluster().node() as cluster:
        task = cluster.submit(max_retries=-1)
        for _ in range(5):
            executor = cluster.placed(task)
            cluster.later(AT_ONCE_US)
            cluster.died(executor, task)
        assert is_running(cluster, task)
        cluster.forget()


def test_others_run_while_a_call_waits() -> None:
    with Cluster().node() as cluster:
        task = cluster.submit(max_retries=-1)
        crash(cluster, task)
        crash(cluster, task)
        other = cluster.submit()
        cluster.done(cluster.placed(other), other)
        cluster.told(other)
        cluster.later(BACKOFF_US_MAX)
        cluster.placed(task)


def test_a_call_that_waits_can_be_cancelled() -> None:
    with Cluster().node() as cluster:
        task = cluster.submit(max_retries=-1)
        crash(cluster, task)
        crash(cluster, task)
        cluster.client_says(DRIVER, CancelRequested(task, force=False, recursive=True))
        assert cluster.told(task).code == "TaskCancelledError"
        cluster.later(BACKOFF_US_MAX)
        cluster.nothing()


def test_a_constructor_that_crashes_waits_and_its_calls_say_so() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        call = cluster.method(actor)
        for crashes in (1, 2, 3):
            crash(cluster, actor)
            cluster.later(backoff.wait_us(crashes) - 1)
            assert is_running(cluster, actor) == (crashes == 1)
            cluster.later(1)
        crash(cluster, actor)
        assert "4 times in a row" in cluster.explain(call).why
        cluster.later(BACKOFF_US_MAX)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.done(cluster.placed(call), call)  # it has worked: the row is over
        cluster.died(executor)
        assert is_running(cluster, actor)
        cluster.forget()


@pytest.mark.parametrize("crashes", [1, 2])
def test_an_actor_whose_constructor_crashes_ends_with_its_last_handle(crashes: int) -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        for _ in range(crashes):
            executor = cluster.placed(actor)
            if crashes == 1:
                cluster.released(actor)  # while it is running
            cluster.died(executor, actor)
        cluster.released(*[actor] * (crashes > 1))
        cluster.later(BACKOFF_US_MAX)
        cluster.nothing()
        assert not cluster.state.actors


def test_an_actor_that_is_created_again_and_waits_for_room_ends_with_its_last_handle() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        busy = cluster.submit()
        cluster.placed(busy)
        cluster.died(executor)
        cluster.nothing()
        cluster.released(actor)
        assert not cluster.state.actors


def test_an_actor_that_is_killed_to_start_again_does_so_at_once() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=-1)
        for _ in range(4):
            executor = cluster.placed(actor)
            cluster.client_says(DRIVER, KillRequested(actor, no_restart=False))
            cluster.one(StopExecutor)
            cluster.died(executor, actor)
        cluster.placed(actor)


def test_a_process_number_that_is_not_known_yet_is_none() -> None:
    with Cluster().node() as cluster:
        task = cluster.submit()
        actor = cluster.actor(cpu=0)
        cluster.forget()
        (found,) = cluster.ask(Tasks(task))
        assert found.worker_pid is None
        assert [one.pid for one in cluster.ask(Workers())] == [None, None]
        assert [one.pid for one in cluster.ask(Actors(actor))] == [None]


def stillborn(cluster: Cluster, call: bytes) -> None:
    """The executor that was forked for a call dies before it has begun it."""
    cluster.died(cluster.placed(call), cause="exited with code 1\nno such library")


def test_calls_for_which_no_executor_comes_up_fail_after_a_few_tries() -> None:
    with Cluster().node() as cluster:
        first, second = cluster.submit(name="fit", max_retries=-1), cluster.submit(name="fit")
        for tries in range(1, STILLBORN_MAX):
            stillborn(cluster, first)
            if tries > 1:
                assert f"{times(tries)} in a row" in cluster.explain(first).why
            cluster.later(backoff.wait_us(tries))
        stillborn(cluster, first)
        for id in (first, second):
            failed = cluster.told(id)
            assert failed.code == "WorkerCrashedError"
            assert "fit was not started: 5 executors were forked for it" in failed.message
            assert failed.message.endswith("exited with code 1\nno such library")
        cluster.released(first, second)
        assert cluster.is_clean()


def test_a_call_whose_next_executor_may_be_forked_waits_for_something_else() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(name="fit")
        for _ in range(2):
            stillborn(cluster, call)
        cluster.placed(cluster.submit(name="other", priority=1))  # has the only CPU from now on
        cluster.later(backoff.wait_us(2) - 1)
        assert "2 times in a row: the next one is forked in 1e-06 s" in cluster.explain(call).why
        cluster.later(1)
        assert cluster.explain(call).why.startswith("It needs 1 CPU. host0: 0 CPU, 0 GPU free.")


def test_an_executor_that_comes_up_ends_the_row() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        for _ in range(3):
            for tries in range(1, STILLBORN_MAX):
                stillborn(cluster, call)
                cluster.later(backoff.wait_us(tries))
            cluster.done(cluster.placed(call), call)
            cluster.told(call)
            cluster.died(next(iter(cluster.state.executors)))
            call = cluster.submit()
        cluster.forget()


def test_forkservers_that_somebody_kills_say_nothing_of_the_calls() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        for _ in range(2 * STILLBORN_MAX):
            cluster.died(cluster.placed(call), cause="died with its forkserver", with_forkserver=True)
        assert not cluster.said, "nothing is wrong with the calls"
        cluster.done(cluster.placed(call), call)
        cluster.told(call)
        cluster.forget()

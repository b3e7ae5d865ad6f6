"""What happens when executors die, or block while calls are being taken back from them."""

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch, Free, TakeBack
from mpi_runtime.scheduler.protocol.events import Call, Dying, Stored, Value
from mpi_runtime.scheduler.protocol.limits import BACKOFF_US_MAX, STUCK_US
from mpi_runtime.scheduler.protocol.rank_events import Fetched
from tests.builders import DRIVER, LARGE, Cluster


def with_calls_in_hand(cluster: Cluster, number: int, **fields: object) -> tuple[int, list[bytes]]:
    """An executor with so many calls in hand."""
    ids = cluster.submit_many(number + 1, **fields)
    executor = cluster.placed(ids[0])
    cluster.done(executor, ids[0])
    cluster.forget()
    assert list(cluster.state.executors[executor].assigned) == ids[1:]
    return executor, ids[1:]


def test_the_running_call_is_run_again_and_the_others_go_elsewhere() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 3, max_retries=1)
        cluster.died(executor, ids[0])
        attempts = {
            call.id: call.attempt for call in (effect for _, _, effect in cluster.recorded) if type(call) is Call
        }
        assert attempts == {ids[1]: 0, ids[2]: 0, ids[0]: 1}
        cluster.forget()


def test_a_call_that_had_run_and_not_told_its_result_counts_as_run() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 3)
        cluster.died(executor, ids[1])
        assert cluster.told(ids[0]).code == cluster.told(ids[1]).code == "WorkerCrashedError"
        assert cluster.one(Call).id == ids[2]
        cluster.forget()


def test_a_call_that_had_run_does_not_pay_for_the_one_behind_it() -> None:
    """However often the other one kills its process: it may do so before any result is sent."""
    with Cluster().node() as cluster:
        executor, (ran, kills) = with_calls_in_hand(cluster, 2, max_retries=2)
        cluster.died(executor, kills)
        executor = cluster.placed(ran)
        assert cluster.state.executors[executor].assigned[ran].call.attempt == 1
        assert cluster.placed(kills) == executor
        cluster.died(executor, kills)
        cluster.done(cluster.placed(ran), ran)
        assert cluster.told(ran).data == b"value"
        cluster.later(BACKOFF_US_MAX)
        cluster.died(cluster.placed(kills), kills)
        assert "It was run 3 times; max_retries is 2." in cluster.told(kills).message
        cluster.forget()


def test_an_executor_that_ran_nothing_costs_no_retry() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 2)
        cluster.died(executor)
        assert [call.id for call in cluster.take(Call, 2)] == ids
        cluster.forget()


def test_a_call_without_retries_left_says_what_happened() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(name="fit")
        executor = cluster.placed(id)
        cluster.started(executor)
        cluster.died(executor, id, "was killed by signal 11")
        failed = cluster.told(id)
        assert failed.code == "WorkerCrashedError"
        assert (
            f"fit did not end: its executor (pid {4000 + executor}, rank 0, host0) was killed by signal 11."
            in failed.message
        )
        assert "max_retries" not in failed.message, "there is nothing to count"
        cluster.released(id)
        assert cluster.is_clean()


def test_running_out_of_memory_has_a_code_of_its_own() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        cluster.died(cluster.placed(id), id, "was killed by the kernel", out_of_memory=True)
        assert cluster.told(id).code == "OutOfMemoryError"


def test_calls_may_be_retried_without_limit() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit(max_retries=-1)
        for _ in range(10):
            cluster.died(cluster.placed(id), id)
            cluster.later(BACKOFF_US_MAX)
        cluster.placed(id)


@pytest.mark.parametrize(("max_retries", "attempt", "runs"), [(3, 0, 4), (3, 1, 3), (1, 1, 1), (1, 5, 1), (0, 0, 1)])
def test_attempts_that_were_made_before_it_was_submitted_count(max_retries: int, attempt: int, runs: int) -> None:
    with Cluster().node() as cluster:
        spec, id = cluster.spec(max_retries=max_retries), cluster.id()
        cluster.client_says(DRIVER, spec, Call(id, spec.id, b"", attempt=attempt))
        for _ in range(runs):
            cluster.later(BACKOFF_US_MAX)
            cluster.died(cluster.placed(id), id)
        message, tried = cluster.told(id).message, f"It was run {attempt + runs} times; max_retries is {max_retries}."
        assert tried in message or (attempt + runs == 1 and "It was run" not in message)
        cluster.released(id)
        assert cluster.is_clean()


def test_the_references_of_a_dead_process_are_released() -> None:
    with Cluster().node() as cluster:
        parent = cluster.submit()
        executor = cluster.placed(parent)
        cluster.put(client=executor)
        child = cluster.submit(client=executor)
        cluster.died(executor, parent)
        cluster.told(parent)
        cluster.done(cluster.placed(child), child)
        cluster.released(parent)
        assert cluster.is_clean()


def one_has_returned_a_large_value(cluster: Cluster) -> tuple[bytes, bytes, int]:
    """Two calls of one executor: the first has returned a value at 64 in the arena, the second runs."""
    first, second = cluster.submit_many(2)
    executor = cluster.placed(first)
    cluster.returned(executor, first, Value(b"", Stored(0, 64, LARGE)))
    cluster.told(first)
    cluster.placed(second)
    return first, second, executor


def test_memory_of_a_dead_process_is_freed_unless_an_object_lies_there() -> None:
    with Cluster().node() as cluster:
        first, second, executor = one_has_returned_a_large_value(cluster)
        cluster.died(executor, second, extents=[64, 128])
        assert cluster.one(Free) == Free([128], executor)
        cluster.told(second)
        cluster.released(first)
        assert cluster.one(Free) == Free([64])


def test_memory_freed_just_before_a_death_is_not_freed_twice() -> None:
    with Cluster().node() as cluster:
        first, second, executor = one_has_returned_a_large_value(cluster)
        cluster.released(first)
        assert cluster.one(Free) == Free([64])
        cluster.died(executor, second, extents=[64])  # said before that arrived
        assert cluster.one(Free) == Free([64], executor)  # the agent frees what it has not freed since
        cluster.told(second)


def test_a_fork_that_fails_is_tried_again() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        cluster.died(executor, cause="could not be started")
        assert cluster.placed(id) != executor


def test_all_is_taken_back_from_an_executor_that_blocks_while_some_is() -> None:
    with Cluster().node(cpus=2) as cluster:
        ids = cluster.submit_many(2)
        first, second = cluster.running(*ids)
        cluster.done(second, ids[1], us=700)
        cluster.done(first, ids[0], us=700)
        cluster.forget()
        cluster.submit_many(10)
        cluster.forget()
        mine, theirs = (list(cluster.state.executors[executor].assigned) for executor in (first, second))
        cluster.done(second, *theirs, us=700)
        asked = [effect for _, _, effect in cluster.recorded if isinstance(effect, TakeBack)]
        cluster.forget()
        assert asked == [TakeBack(first, len(mine) // 2)]
        cluster.blocked(first, mine[1])
        cluster.nothing()
        cluster.taken_back(first, *mine[len(mine) - asked[0].count :])
        assert cluster.one(TakeBack) == TakeBack(first, len(mine) - asked[0].count - 1)
        cluster.forget()


def test_a_call_that_waits_for_a_copy_does_not_stand_behind_a_blocked_one() -> None:
    with Cluster().head().node(cpus=1) as cluster:
        far = cluster.put(size=100_000, rank=0)
        ids = [cluster.submit(), cluster.submit()]
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        cluster.told(ids[0])
        cluster.placed(ids[1])
        staged = cluster.submit(far)
        cluster.one(Fetch)
        cluster.blocked(executor, staged)
        assert cluster.state.objects[staged].task.executor.id != executor  # type: ignore[union-attr]
        cluster.rank_says(Fetched(1, far, 0))
        assert cluster.placed(staged) != executor


def test_nothing_is_taken_back_twice() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 2)
        cluster.blocked(executor, ids[1])
        cluster.one(TakeBack)
        cluster.unblocked(executor)
        cluster.blocked(executor, ids[1])
        cluster.nothing()
        cluster.taken_back(executor, ids[1])
        cluster.placed(ids[1])


def test_calls_that_stand_behind_a_call_again_when_it_wakes_are_looked_after() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 2)
        cluster.blocked(executor)
        assert cluster.one(TakeBack) == TakeBack(executor, 1)
        cluster.later(2 * STUCK_US)
        assert cluster.scheduler.deadline() is None
        cluster.unblocked(executor)  # the calls that are being taken back have not come
        assert cluster.scheduler.deadline() == cluster.now + STUCK_US
        cluster.taken_back(executor)
        cluster.done(executor, *ids)
        cluster.forget()


def test_the_error_has_the_cause_that_an_executor_gave_before_it_ended_itself() -> None:
    with Cluster().node() as cluster:
        executor, ids = with_calls_in_hand(cluster, 1)
        cluster.client_says(executor, Dying("ended because its scheduler was killed"))
        cluster.died(executor, ids[0])
        assert "ended because its scheduler was killed" in cluster.told(ids[0]).message
        cluster.forget()

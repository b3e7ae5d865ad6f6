"""Cancelling: what becomes of a call in each state, and of those around it."""

from mpi_runtime.scheduler.protocol.effects import Cancel, Fetch, Free, StopFetch, TakeBack
from mpi_runtime.scheduler.protocol.events import ActorSpec, Call, CancelRequested, Released, RetrySpec
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.questions import Statistics
from mpi_runtime.scheduler.protocol.rank_events import Fetched
from tests.builders import DRIVER, LARGE, Cluster


def cancel(cluster: Cluster, id: bytes, force: bool = False, recursive: bool = False, client: int = DRIVER) -> None:
    cluster.client_says(client, CancelRequested(id, force, recursive))


def is_cancelled(cluster: Cluster, *ids: bytes) -> bool:
    """Whether the driver was told so of all of these."""
    return all(cluster.told(id).code == "TaskCancelledError" for id in ids)


def child(cluster: Cluster, parent: bytes, client: int, number: int = 1) -> bytes:
    """Submit a task as the client's running call does: its id derives from the call's."""
    spec, id = cluster.spec(), prefix_of(parent, 0) + number.to_bytes(6, "big")
    cluster.client_says(client, spec, Call(id, spec.id, b""))
    return id


def assigned(cluster: Cluster, number: int) -> tuple[int, list[bytes]]:
    """An executor with so many calls of a short function: the one that it runs and those behind."""
    known = cluster.submit()
    executor = cluster.placed(known)
    cluster.done(executor, known)
    cluster.told(known)
    calls = cluster.submit_many(number)
    assert cluster.running(*calls) == [executor] * number
    return executor, calls


def test_a_call_that_waits_for_an_argument_is_dropped() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        waiting = cluster.submit(first)
        cancel(cluster, waiting)
        assert is_cancelled(cluster, waiting)
        cluster.done(executor, first)
        cluster.told(first)
        cluster.nothing()
        cluster.released(first, waiting)
        assert cluster.is_clean()


def test_a_call_that_is_queued_is_dropped_and_those_behind_it_are_not() -> None:
    with Cluster().node() as cluster:
        running, queued, behind = cluster.submit(), cluster.submit(), cluster.submit()
        executor = cluster.placed(running)
        cancel(cluster, queued)
        assert is_cancelled(cluster, queued)
        cluster.done(executor, running)
        cluster.told(running)
        assert cluster.placed(behind) == executor


def test_a_cancelled_call_is_dropped_without_a_look_at_all_others() -> None:
    """It stays in its place until half of the queue is like it, or it is the first."""
    with Cluster().node() as cluster:
        busy = cluster.submit()
        executor = cluster.placed(busy)
        queued = cluster.submit_many(10)
        (queue,) = cluster.state.queues.values()
        ready = queue.ready
        for id in (queued[4], queued[1], queued[0]):
            cancel(cluster, id)
        assert queue.ready is ready
        assert [task.id for task in ready] == queued[2:]  # those at the front are gone
        assert cluster.ask(Statistics()).ready == 7
        for id in queued[5:9]:
            cancel(cluster, id)
        assert [task.id for task in queue.ready] == [queued[2], queued[3], queued[9]]
        assert is_cancelled(cluster, *queued[:2], *queued[4:9])
        cluster.done(executor, busy)
        cluster.forget()


def test_a_call_whose_argument_is_being_fetched_is_dropped() -> None:
    with Cluster().head().node() as cluster:
        far = cluster.put(size=LARGE)
        call = cluster.submit(far)
        cluster.forget()
        cancel(cluster, call)
        assert is_cancelled(cluster, call)
        assert cluster.one(StopFetch, to=1) == StopFetch(far)
        cluster.rank_says(Fetched(1, far, 0, order=1))  # it was there already
        assert cluster.one(Free, to=1) == Free([0])
        assert cluster.state.nodes[1].free == cluster.state.nodes[1].total


def test_a_call_behind_another_is_taken_back_and_not_queued_again() -> None:
    with Cluster().node() as cluster:
        executor, (running, behind) = assigned(cluster, 2)
        cancel(cluster, behind)
        assert cluster.one(Cancel) == Cancel(executor, behind, False)
        assert cluster.one(TakeBack) == TakeBack(executor, 1)
        cluster.taken_back(executor, behind)
        assert is_cancelled(cluster, behind)
        cluster.done(executor, running)
        cluster.told(running)


def test_a_call_that_is_cancelled_while_others_are_taken_back_does_not_wait_for_the_one_before_it() -> None:
    with Cluster().node(cpus=2) as cluster:
        known = cluster.submit_many(2)
        executors = cluster.running(*known)
        for executor, id in zip(executors, known, strict=True):
            cluster.done(executor, id, us=1000)
        cluster.submit_many(5)
        cluster.forget()
        hands = {executor: list(cluster.state.executors[executor].assigned) for executor in executors}
        quick, slow = sorted(executors, key=lambda executor: len(hands[executor]))
        _, behind, last = hands[slow]
        cluster.done(quick, *hands[quick], us=1000)
        assert cluster.one(TakeBack) == TakeBack(slow, 1)
        cluster.forget()
        cancel(cluster, behind)
        assert cluster.one(Cancel) == Cancel(slow, behind, False)
        cluster.taken_back(slow, last)
        assert cluster.one(TakeBack) == TakeBack(slow, 1)
        cluster.taken_back(slow, behind)
        assert is_cancelled(cluster, behind)
        cluster.placed(last)


def test_what_stands_behind_a_cancelled_call_is_run() -> None:
    with Cluster().node() as cluster:
        executor, (running, behind, third) = assigned(cluster, 3)
        cancel(cluster, behind)
        cluster.one(Cancel)
        cluster.one(TakeBack)
        cluster.taken_back(executor, behind, third)
        assert is_cancelled(cluster, behind)
        assert cluster.placed(third) == executor
        cluster.done(executor, running, third)
        cluster.told(running)
        cluster.told(third)


def test_cancelling_behind_a_call_gives_up_too_what_is_still_fetched_for() -> None:
    with Cluster().head().node() as cluster:
        known = cluster.submit()
        executor = cluster.placed(known)
        far = cluster.put(size=LARGE)
        spec, ids = cluster.spec(), [cluster.id() for _ in range(3)]
        staged = ids[2]
        cluster.client_says(DRIVER, *(Call(id, spec.id, b"", (far,) if id == staged else ()) for id in ids))
        cluster.done(executor, known)
        cluster.forget()
        assert [*cluster.state.executors[executor].assigned] == ids
        cancel(cluster, ids[1])
        cluster.one(Cancel)
        cluster.one(TakeBack)
        assert [*cluster.state.executors[executor].assigned] == ids[:2]
        cluster.done(executor, *ids[:2])  # the other was too late
        cluster.told(ids[0])
        cluster.told(ids[1])
        cluster.rank_says(Fetched(1, far, 0))
        assert cluster.placed(staged) == executor


def test_a_running_call_is_interrupted_and_not_run_again() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=3, retry=RetrySpec())
        executor = cluster.placed(call)
        cancel(cluster, call)
        assert cluster.one(Cancel) == Cancel(executor, call, False)
        cluster.nothing()
        cluster.raised(executor, call, b"cancelled")
        assert cluster.told(call).data == b"cancelled"
        cluster.released(call)
        assert cluster.is_clean()


def test_a_call_that_has_a_value_before_it_hears_keeps_it() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        cancel(cluster, call)
        cluster.one(Cancel)
        cluster.done(executor, call, data=b"7")
        assert cluster.told(call).data == b"7"
        cancel(cluster, call)
        cancel(cluster, cluster.put())
        cancel(cluster, cluster.id())
        cluster.nothing()


def test_a_blocked_call_is_interrupted() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        inner = child(cluster, call, executor)
        cluster.blocked(executor, inner)
        other = cluster.placed(inner)
        cancel(cluster, call)
        assert cluster.one(Cancel) == Cancel(executor, call, False)
        cluster.unblocked(executor)
        cluster.raised(executor, call)
        cluster.told(call)
        cluster.done(other, inner)  # nobody said recursive
        cluster.told(inner, to=executor)


def test_what_a_call_has_submitted_is_cancelled_with_it() -> None:
    with Cluster().node(cpus=3) as cluster:
        call, stranger = cluster.submit(), cluster.submit()
        executor, elsewhere = cluster.running(call, stranger)
        inner = child(cluster, call, executor)
        worker = cluster.placed(inner)
        innermost = child(cluster, inner, worker)
        queued = child(cluster, call, executor, 2)
        cancel(cluster, call, recursive=True)
        sent = {(effect.executor, effect.id) for effect in cluster.take(Cancel, 2)}
        assert sent == {(executor, call), (worker, inner)}
        assert cluster.told(queued, to=executor).code == "TaskCancelledError"
        assert cluster.told(innermost, to=worker).code == "TaskCancelledError"
        cluster.done(elsewhere, stranger)
        cluster.told(stranger)


def test_an_actor_that_a_cancelled_call_has_created_lives_on() -> None:
    with Cluster().node(cpus=2) as cluster:
        call = cluster.submit()
        executor = cluster.placed(call)
        spec, id = cluster.spec("Actor", kind=ActorSpec), prefix_of(call, 0) + bytes(6)
        cluster.client_says(executor, spec, Call(id, spec.id, b""))
        home = cluster.placed(id)
        needed = child(cluster, id, home)  # by its constructor
        cancel(cluster, call, recursive=True)
        assert cluster.one(Cancel).id == call
        cluster.blocked(home, needed)
        worker = cluster.placed(needed)
        cluster.done(worker, needed)
        cluster.told(needed, to=home)
        cluster.unblocked(home)
        cluster.done(home, id)
        cluster.told(id, to=executor)


def test_a_method_that_was_not_sent_is_dropped() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        first, second, third = (cluster.method(actor) for _ in range(3))
        cancel(cluster, second, force=True)
        assert is_cancelled(cluster, second)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        assert [call.id for call in cluster.take(Call, 2, to=executor)] == [first, third]
        cluster.forget()


def test_the_methods_behind_one_that_waits_for_an_argument_follow_when_it_is_cancelled() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor()
        cluster.done(cluster.placed(actor), actor)
        cluster.told(actor)
        slow = cluster.submit()
        cluster.placed(slow)
        waiting, behind = cluster.method(actor, slow), cluster.method(actor)
        cluster.nothing()
        cancel(cluster, waiting)
        assert is_cancelled(cluster, waiting)
        cluster.placed(behind)


def test_a_method_whose_argument_is_being_fetched_is_dropped_and_the_next_is_sent() -> None:
    with Cluster().head().node() as cluster:
        actor = cluster.actor()
        cluster.done(cluster.placed(actor), actor)
        cluster.told(actor)
        far = cluster.put(size=LARGE)
        call, behind = cluster.method(actor, far), cluster.method(actor)
        cluster.one(Fetch, to=1)
        cancel(cluster, call)
        assert is_cancelled(cluster, call)
        cluster.placed(behind)
        cluster.one(StopFetch, to=1)
        cluster.rank_says(Fetched(1, far, 0, order=1))
        cluster.one(Free, to=1)
        cluster.nothing()


def test_a_method_that_was_sent_is_left_to_its_executor_and_never_killed() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_restarts=1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        running, behind, kept = (cluster.method(actor, max_retries=2) for _ in range(3))
        cluster.running(running, behind, kept)
        for call in (running, behind):
            cancel(cluster, call, force=True)
            assert cluster.one(Cancel) == Cancel(executor, call, False)
        cluster.nothing()  # an actor's calls are not taken back
        cluster.died(executor, running=running)
        assert is_cancelled(cluster, running, behind)
        again = cluster.placed(actor)
        cluster.done(again, actor)
        cluster.told(actor)
        assert cluster.placed(kept) == again


def test_by_force_the_executor_of_a_task_is_killed() -> None:
    with Cluster().node() as cluster:
        executor, (running, behind) = assigned(cluster, 2)
        cancel(cluster, running, force=True)
        assert cluster.one(Cancel) == Cancel(executor, running, True)
        cluster.taken_back(executor, behind)  # the agent does so unasked
        assert cluster.placed(behind) == executor
        cluster.died(executor, running=running)
        assert is_cancelled(cluster, running)
        assert cluster.placed(behind) != executor


def test_a_call_that_is_taken_back_before_it_is_to_be_killed_is_dropped() -> None:
    with Cluster().node() as cluster:
        executor, (running, behind) = assigned(cluster, 2)
        cancel(cluster, behind, force=True)
        assert cluster.one(Cancel).force
        cluster.one(TakeBack)
        cluster.taken_back(executor, behind)
        assert is_cancelled(cluster, behind)
        cluster.taken_back(executor)
        cluster.done(executor, running)
        cluster.told(running)


def test_a_cancelled_call_whose_executor_dies_is_not_retried() -> None:
    with Cluster().node() as cluster:
        executor, (running, behind) = assigned(cluster, 2)
        for call in (running, behind):
            cancel(cluster, call)
        cluster.forget()
        cluster.died(executor, running=running)
        assert is_cancelled(cluster, running, behind)


def test_cancelling_for_nobody_leaves_nothing() -> None:
    with Cluster().node() as cluster:
        running, queued = cluster.submit(), cluster.submit()
        executor = cluster.placed(running)
        cluster.client_says(DRIVER, Released([queued]), CancelRequested(queued, False, True))
        cluster.client_says(DRIVER, CancelRequested(running, False, True), Released([running]))
        cluster.one(Cancel)
        cluster.raised(executor, running)
        cluster.nothing()
        assert cluster.is_clean()

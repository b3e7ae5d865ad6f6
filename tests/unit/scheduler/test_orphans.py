"""What becomes of calls whose submitter's process has died."""

from typing import Any

from mpi_runtime.scheduler.protocol.effects import Cancel
from mpi_runtime.scheduler.protocol.events import ActorSpec, Call, CancelRequested, MethodSpec
from mpi_runtime.scheduler.protocol.ids import prefix_of
from mpi_runtime.scheduler.protocol.limits import BACKOFF_US_MAX
from mpi_runtime.scheduler.protocol.questions import Statistics
from tests.builders import DRIVER, Cluster


def child_of(
    cluster: Cluster, parent: bytes, number: int, *arguments: bytes, attempt: int = 0, actor: bytes = b"", **fields: Any
) -> bytes:
    """A call that a running call submits, with an id as clients make them."""
    task = cluster.state.objects[parent].task
    assert task is not None
    assert task.executor is not None
    spec = cluster.spec("child", **fields)
    id = prefix_of(parent, attempt) + number.to_bytes(6, "big")
    cluster.client_says(task.executor.id, spec, Call(id, spec.id, b"", arguments, actor=actor))
    return id


def running_parent(cluster: Cluster, **fields: Any) -> tuple[bytes, int]:
    parent = cluster.submit(**fields)
    return parent, cluster.placed(parent)


def test_children_of_an_attempt_that_died_are_cancelled() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent, executor = running_parent(cluster, max_retries=1)
        runs = child_of(cluster, parent, 1)
        worker = cluster.placed(runs)
        waits = child_of(cluster, parent, 2, runs)
        queued = child_of(cluster, parent, 3)
        cluster.died(executor, parent)
        assert cluster.one(Cancel).id == runs
        assert waits not in cluster.state.objects
        assert queued not in cluster.state.objects
        assert cluster.ask(Statistics()).abandoned == 3
        again = cluster.placed(parent)
        cluster.done(worker, runs)
        cluster.done(again, parent)
        cluster.told(parent)


def test_a_child_that_somebody_else_wants_goes_on() -> None:
    with Cluster().node(cpus=3) as cluster:
        parent, executor = running_parent(cluster, max_retries=1)
        wanted = child_of(cluster, parent, 1)
        worker = cluster.placed(wanted)
        cluster.held(DRIVER, wanted)
        cluster.died(executor, parent)
        cluster.done(worker, wanted)
        assert cluster.state.objects[wanted].data == b"value"
        cluster.forget()


def test_what_a_call_left_behind_that_has_ended_goes_on() -> None:
    with Cluster().node() as cluster:
        first, executor = running_parent(cluster)
        left = child_of(cluster, first, 1)
        cluster.done(executor, first)
        cluster.told(first)
        assert cluster.placed(left) == executor
        cluster.died(executor)  # with a call that it had not started
        assert cluster.placed(left) != executor


def test_calls_of_itself_that_end_with_an_actor_are_not_cancelled_as_well() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        running = cluster.method(actor)
        assert cluster.placed(running) == executor
        waits = cluster.submit(name="never")
        behind = child_of(cluster, running, 1, waits, actor=actor, kind=MethodSpec, cpu=0)
        cluster.forget()
        cluster.died(executor, running)
        assert cluster.told(running).code == "ActorDiedError"
        assert behind not in cluster.state.objects
        assert cluster.ask(Statistics()).abandoned == 0
        cluster.forget()


def test_grandchildren_are_cancelled_too() -> None:
    with Cluster().node(cpus=4) as cluster:
        parent, executor = running_parent(cluster, max_retries=0)
        child = child_of(cluster, parent, 1)
        cluster.placed(child)
        grandchild = child_of(cluster, child, 1)
        cluster.placed(grandchild)
        cluster.died(executor, parent)
        assert [effect.id for effect in cluster.take(Cancel, 2)] == [child, grandchild]
        assert cluster.told(parent).code == "WorkerCrashedError"


def test_a_child_that_is_cancelled_already_is_not_cancelled_again() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent, executor = running_parent(cluster, max_retries=0)
        child = child_of(cluster, parent, 1)
        worker = cluster.placed(child)
        cluster.client_says(executor, CancelRequested(child, force=False, recursive=False))
        assert cluster.one(Cancel).id == child
        cluster.died(executor, parent)
        cluster.told(parent)
        cluster.nothing()
        assert cluster.ask(Statistics()).abandoned == 0
        cluster.done(worker, child)


def test_children_of_an_actor_end_with_its_process_and_its_actors_with_their_handles() -> None:
    with Cluster().node(cpus=4) as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        call = cluster.method(actor)
        cluster.placed(call)
        child = child_of(cluster, call, 1)
        cluster.placed(child)
        cluster.done(executor, call)
        cluster.told(call)
        other = cluster.actor(client=executor)
        cluster.held(DRIVER, other)
        cluster.placed(other)
        cluster.died(executor)
        assert cluster.one(Cancel).id == child
        assert other in cluster.state.actors


def test_what_a_task_left_behind_does_not_end_with_the_actor_that_has_its_process_next() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, executor = running_parent(cluster)
        left = child_of(cluster, first, 1)
        worker = cluster.placed(left)
        cluster.done(executor, first)
        cluster.told(first)
        actor = cluster.actor()
        assert cluster.placed(actor) == executor
        cluster.done(executor, actor)
        cluster.told(actor)
        cluster.died(executor)
        cluster.take(Cancel, 0)
        cluster.done(worker, left)


def test_a_method_that_runs_is_not_interrupted() -> None:
    with Cluster().node(cpus=4) as cluster:
        actor = cluster.actor()
        keeper = cluster.placed(actor)
        cluster.done(keeper, actor)
        cluster.told(actor)
        parent, executor = running_parent(cluster, max_retries=0)
        cluster.held(executor, actor)
        called = child_of(cluster, parent, 1, actor=actor, cpu=0, kind=MethodSpec)
        assert cluster.placed(called) == keeper
        cluster.died(executor, parent)
        cluster.told(parent)
        cluster.nothing()
        assert cluster.ask(Statistics()).abandoned == 0


def test_an_actor_that_is_being_created_ends_with_its_last_handle_and_not_as_a_cancelled_call() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent, executor = running_parent(cluster, max_retries=0)
        actor = child_of(cluster, parent, 1, kind=ActorSpec)
        keeper = cluster.placed(actor)
        cluster.died(executor, parent)
        cluster.told(parent)
        assert cluster.ask(Statistics()).abandoned == 0
        cluster.forget()
        cluster.done(keeper, actor)
        cluster.forget()
        cluster.died(keeper)


def test_the_children_of_the_next_attempt_are_others() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent, executor = running_parent(cluster, max_retries=2)
        for attempt in (0, 1):
            child = child_of(cluster, parent, 1, attempt=attempt)
            cluster.forget()
            cluster.died(executor, parent)
            cluster.later(BACKOFF_US_MAX)
            task = cluster.state.objects[parent].task
            assert task is not None
            assert task.executor is not None
            executor = task.executor.id
        assert prefix_of(parent, 1) == child[:10]
        cluster.forget()

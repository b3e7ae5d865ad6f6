"""Actors: created once, called in order for each caller, ended when the last handle goes."""

from typing import Any

from mpi_runtime.scheduler.effects import Fetch, Ready, ReadyError, StartExecutor, StopExecutor
from mpi_runtime.scheduler.events import Call, Fetched, Killed, Value
from mpi_runtime.scheduler.limits import ACTOR_CALLS_MAX
from tests.builders import DRIVER, LARGE, UNIT, Cluster


def created(cluster: Cluster, **fields: Any) -> tuple[bytes, int]:
    """An actor that lives, and its executor."""
    actor = cluster.actor(**fields)
    executor = cluster.placed(actor)
    cluster.done(executor, actor)
    cluster.told(actor)
    return actor, executor


def test_an_actor_is_created_and_called() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        call = cluster.method(actor)
        executor = cluster.placed(actor)
        cluster.nothing()  # calls wait for the creation
        cluster.done(executor, actor)
        cluster.told(actor)
        assert cluster.placed(call) == executor
        cluster.done(executor, call, data=b"7")
        assert cluster.told(call) == Ready(call, b"7")


def test_an_actor_keeps_only_part_of_its_cpu() -> None:
    with Cluster().node() as cluster:
        created(cluster, held_cpu=UNIT // 4)
        assert cluster.state.nodes[0].free.cpu == UNIT * 3 // 4
        cluster.placed(cluster.submit(cpu=0.75))


def test_the_calls_of_one_caller_stay_in_order() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster)
        late = cluster.submit()
        worker = cluster.placed(late)
        first, second = cluster.method(actor, late), cluster.method(actor)
        cluster.nothing()
        cluster.done(worker, late)
        cluster.told(late)
        assert [call.id for call in cluster.take(Call, 2, to=executor)] == [first, second]
        cluster.forget()


def test_a_slow_argument_of_one_caller_does_not_hold_up_others() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster)
        slow = cluster.submit()
        worker = cluster.placed(slow)
        cluster.method(actor, slow)
        cluster.held(worker, actor)
        other = cluster.method(actor, client=worker)
        assert cluster.placed(other) == executor


def test_a_call_whose_argument_is_fetched_is_not_overtaken() -> None:
    with Cluster().head().node() as cluster:
        actor, executor = created(cluster)
        far = cluster.put(size=LARGE, rank=0)
        first, second = cluster.method(actor, far), cluster.method(actor)
        assert cluster.one(Fetch, to=1).id == far
        cluster.nothing()
        cluster.rank_says(Fetched(1, far, 0))
        assert [call.id for call in cluster.take(Call, 2, to=executor)] == [first, second]
        cluster.forget()


def test_callers_take_turns_when_an_actor_is_full() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster)
        task = cluster.submit()
        worker = cluster.placed(task)
        cluster.held(worker, actor)
        mine = [cluster.method(actor) for _ in range(ACTOR_CALLS_MAX + 5)]
        theirs = cluster.method(actor, client=worker)
        cluster.forget()
        cluster.done(executor, mine[0])
        assert cluster.one(Call).id in (theirs, mine[ACTOR_CALLS_MAX])
        cluster.done(executor, mine[1])
        sent = {*cluster.state.executors[executor].in_hand}
        assert theirs in sent
        assert mine[ACTOR_CALLS_MAX] in sent
        cluster.forget()


def test_an_actor_ends_with_its_last_handle() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, held_cpu=UNIT)
        call = cluster.method(actor)
        cluster.placed(call)
        cluster.released(actor, call)
        cluster.nothing()  # the call holds it
        cluster.done(executor, call)
        assert cluster.one(StopExecutor) == StopExecutor(executor, False)
        assert cluster.state.nodes[0].free.cpu == 0  # only when its process is gone
        cluster.died(executor, cause="exited with code 0")
        assert cluster.is_clean()


def test_a_killed_actor_fails_its_calls() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster)
        running = cluster.method(actor)
        cluster.placed(running)
        cluster.client_says(DRIVER, Killed(actor))
        assert cluster.one(StopExecutor).force
        late = cluster.method(actor)
        assert "was killed by kill()" in cluster.told(late).message
        cluster.died(executor, running)
        assert cluster.told(running).code == "ActorDiedError"
        cluster.released(actor, running, late)
        assert cluster.is_clean()


def test_an_actor_can_be_killed_before_it_is_placed() -> None:
    with Cluster().node() as cluster:
        cluster.placed(cluster.submit())
        actor = cluster.actor()
        call = cluster.method(actor)
        cluster.client_says(DRIVER, Killed(actor))
        assert cluster.told(actor).code == "ActorDiedError"
        assert cluster.told(call).code == "ActorDiedError"


def test_an_actor_that_dies_says_why() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster)
        running = cluster.method(actor)
        cluster.placed(running)
        cluster.died(executor, running, cause="was killed by signal 11")
        message = cluster.told(running).message
        assert "died: was killed by signal 11. It may have been running." in message
        assert "It was not started." in cluster.told(cluster.method(actor)).message


def test_a_constructor_that_raises_gives_its_error_to_all_calls() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        early = cluster.method(actor)
        executor = cluster.placed(actor)
        cluster.returned(executor, actor, Value(b"boom", is_error=True), raised=True)
        cluster.one(StopExecutor)
        assert cluster.told(actor) == ReadyError(actor, b"boom")
        assert cluster.told(early) == ReadyError(early, b"boom")
        late = cluster.method(actor)
        assert cluster.told(late) == ReadyError(late, b"boom")
        cluster.died(executor)
        cluster.released(actor, early, late)
        assert cluster.is_clean()


def test_an_actor_that_no_node_can_hold_fails_its_calls() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(cpu=9)
        assert cluster.told(actor).code == "InfeasibleResourceError"
        failed = cluster.told(cluster.method(actor))
        assert failed.code == "ActorDiedError"
        assert "could not be created: Actor asks for 9 CPU" in failed.message


def test_an_actor_whose_argument_fails_fails_its_calls() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        actor = cluster.actor(first)
        call = cluster.method(actor)
        cluster.raised(cluster.placed(first), first, b"boom")
        assert [cluster.told(id).data for id in (first, actor, call)] == [b"boom"] * 3


def test_an_actor_whose_argument_cannot_be_brought_fails_its_calls() -> None:
    with Cluster().head().node() as cluster:
        actor = cluster.actor(cluster.put(size=LARGE, rank=0))
        call = cluster.method(actor)
        fetch, executor = cluster.one(Fetch), cluster.one(StartExecutor).executor
        cluster.rank_says(Fetched(1, fetch.id, -1, "no room"))
        assert cluster.told(actor).code == "ObjectStoreFullError"
        assert cluster.told(call).code == "ActorDiedError"
        assert cluster.one(StopExecutor).executor == executor
        cluster.died(executor)
        assert cluster.state.nodes[1].free == cluster.state.nodes[1].total


def test_a_constructor_is_not_run_again_for_an_exception() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(max_retries=3, retry_exceptions=True)
        cluster.raised(cluster.placed(actor), actor)
        cluster.told(actor)
        cluster.one(StopExecutor)


def test_a_blocked_actor_lends_what_it_keeps() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, held_cpu=UNIT)
        call = cluster.method(actor)
        cluster.placed(call)
        child = cluster.submit(client=executor)
        cluster.nothing()
        cluster.blocked(executor, child)
        cluster.placed(child)

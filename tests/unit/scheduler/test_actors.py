"""Actors: created once, called in order for each caller, ended when the last handle goes."""

from typing import Any

from mpi_runtime.scheduler.protocol.effects import Fetch, Ready, ReadyError, StartExecutor, StopExecutor
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    Held,
    KillRequested,
    Released,
    RetrySpec,
    Spec,
    Stored,
    Value,
)
from mpi_runtime.scheduler.protocol.limits import ACTOR_CALLS_MAX, ACTOR_PATIENCE_US, AT_ONCE_US, BACKOFF_US_MAX
from mpi_runtime.scheduler.protocol.questions import Statistics
from mpi_runtime.scheduler.protocol.rank_events import Fetched
from tests.builders import DRIVER, LARGE, UNIT, Cluster


def created(cluster: Cluster, *arguments: bytes, **fields: Any) -> tuple[bytes, int]:
    """An actor that lives, and its executor."""
    actor = cluster.actor(*arguments, **fields)
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


def test_an_actor_that_holds_no_cpu_waits_for_a_free_one_for_a_short_time_only() -> None:
    """All may be held for good: by a call that waits for this actor in a loop, or by a placement group."""
    with Cluster().node() as cluster:
        call = cluster.submit()
        worker = cluster.placed(call)
        first, second, holding = cluster.actor(), cluster.actor(), cluster.actor(held_cpu=UNIT)
        cluster.nothing()
        cluster.later(ACTOR_PATIENCE_US)
        executor = cluster.placed(first)
        cluster.nothing()  # the second has a time of its own
        cluster.later(ACTOR_PATIENCE_US)
        cluster.placed(second)
        cluster.done(executor, first)
        cluster.told(first)
        assert cluster.state.nodes[0].free.cpu == 0
        cluster.later(ACTOR_PATIENCE_US)
        cluster.nothing()
        cluster.done(worker, call)
        cluster.told(call)
        cluster.placed(holding)


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


def test_a_call_whose_argument_fails_does_not_hold_up_later_ones() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster)
        argument = cluster.submit()
        worker = cluster.placed(argument)
        spoilt, later = cluster.method(actor, argument), cluster.method(actor)
        cluster.raised(worker, argument, b"boom")
        assert cluster.told(argument).data == cluster.told(spoilt).data == b"boom"
        assert cluster.placed(later) == executor
        lost, last = cluster.method(actor, cluster.id()), cluster.method(actor)
        assert cluster.told(lost).code == "ObjectLostError"
        assert cluster.placed(last) == executor
        crashing = cluster.submit(max_retries=0)
        worker = cluster.placed(crashing)
        spoilt, later = cluster.method(actor, crashing), cluster.method(actor)
        cluster.died(worker, running=crashing)
        assert {cluster.told(crashing).code, cluster.told(spoilt).code} == {"WorkerCrashedError"}
        assert cluster.placed(later) == executor


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
        sent = {*cluster.state.executors[executor].assigned}
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
        cluster.client_says(DRIVER, KillRequested(actor))
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
        cluster.client_says(DRIVER, KillRequested(actor))
        assert cluster.told(actor).code == "ActorDiedError"
        assert cluster.told(call).code == "ActorDiedError"


def test_an_actor_that_dies_says_why() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster)
        running = cluster.method(actor)
        cluster.placed(running)
        cluster.died(executor, running, cause="was killed by signal 11")
        message = cluster.told(running).message
        assert "died: was killed by signal 11. This call may have been running." in message
        assert "This call was not started." in cluster.told(cluster.method(actor)).message


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
        actor = cluster.actor(max_retries=3, retry=RetrySpec())
        cluster.raised(cluster.placed(actor), actor)
        cluster.told(actor)
        cluster.one(StopExecutor)


def test_a_blocked_actor_keeps_the_cpu_that_it_holds() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, held_cpu=UNIT)
        call = cluster.method(actor)
        cluster.placed(call)
        child = cluster.submit(client=executor)
        cluster.blocked(executor, child)
        cluster.nothing()  # it would use the CPU twice when it goes on


def test_a_constructor_that_waits_lends_what_the_actor_will_not_hold() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(held_cpu=UNIT // 4)
        executor = cluster.placed(actor)
        child = cluster.submit(client=executor, cpu=0.75)
        cluster.nothing()
        cluster.blocked(executor, child)
        cluster.placed(child)
        assert cluster.state.nodes[0].free.cpu == 0
        cluster.done(executor, actor)  # a thread of it waits still
        cluster.told(actor)
        assert cluster.state.nodes[0].free.cpu == 0


def test_an_actor_is_created_again_and_goes_on_with_what_it_had_not_started() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, max_restarts=1)
        running, behind, retried = cluster.method(actor), cluster.method(actor), cluster.method(actor, max_retries=1)
        cluster.running(running, behind, retried)
        cluster.died(executor, running=running)
        assert cluster.told(running).code == "ActorUnavailableError"
        again = cluster.placed(actor)
        assert again != executor
        cluster.nothing()
        cluster.done(again, actor)
        cluster.told(actor)
        calls = cluster.take(Call, 2, to=again)
        assert [(call.id, call.attempt) for call in calls] == [(behind, 0), (retried, 0)]
        cluster.forget()
        cluster.died(again, running=retried)  # `behind` had ended too, but nobody had been told
        assert {cluster.told(behind).code, cluster.told(retried).code} == {"ActorDiedError"}


def test_a_killed_actor_may_be_created_again() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, max_restarts=1)
        cluster.client_says(DRIVER, KillRequested(actor, no_restart=False))
        assert cluster.one(StopExecutor) == StopExecutor(executor, force=True)
        call = cluster.method(actor)
        cluster.nothing()
        cluster.died(executor)
        again = cluster.placed(actor)
        cluster.done(again, actor)
        cluster.told(actor)
        assert cluster.placed(call) == again


def test_a_creation_that_was_not_started_is_no_restart() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        cluster.died(cluster.placed(actor))
        cluster.done(cluster.placed(actor), actor)
        cluster.told(actor)
        assert cluster.ask(Statistics()).restarted == 0


def test_what_the_creation_needs_is_kept_for_as_long_as_it_may_be_created_again() -> None:
    with Cluster().node() as cluster:
        value = cluster.put()
        actor, executor = created(cluster, value, max_restarts=1)
        cluster.released(value)
        assert value in cluster.state.objects
        cluster.died(executor)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        cluster.died(executor)
        assert value not in cluster.state.objects


def test_an_actor_that_a_task_has_created_is_created_again_while_the_task_runs() -> None:
    with Cluster().node(cpus=2) as cluster:
        task = cluster.submit()
        client = cluster.placed(task)
        actor = cluster.actor(client=client, max_restarts=1)
        for _ in range(2):
            executor = cluster.placed(actor)
            cluster.done(executor, actor)
            cluster.told(actor, to=client)
            cluster.died(executor)
        cluster.done(client, task)
        cluster.told(task)


def test_the_creation_of_an_actor_that_takes_several_calls_at_a_time_is_no_restart_if_it_was_not_started() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor(concurrency={"": 2})
        cluster.died(cluster.placed(actor))
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        calls = [cluster.method(actor) for _ in range(2)]
        cluster.running(*calls)
        cluster.died(executor)  # it says of none that it runs, but any of them may
        assert {cluster.told(call).code for call in calls} == {"ActorDiedError"}


def test_what_a_restart_does_not_run_again_of_an_actor_that_takes_several_calls_at_a_time() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, max_restarts=1, concurrency={"": 2})
        first, second = cluster.method(actor), cluster.method(actor, max_retries=1)
        cluster.running(first, second)
        cluster.died(executor, running=first)
        assert cluster.told(first).code == "ActorUnavailableError"
        again = cluster.placed(actor)
        cluster.done(again, actor)
        cluster.told(actor)
        (call,) = cluster.take(Call, 1, to=again)
        assert (call.id, call.attempt) == (second, 1)
        cluster.forget()


def test_a_group_that_is_full_does_not_hold_up_another() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, concurrency={"": 1, "io": 1})
        waiting = [cluster.method(actor) for _ in range(ACTOR_CALLS_MAX + 2)]
        cluster.forget()
        needed = cluster.method(actor, group="io")
        assert cluster.placed(needed) == executor
        cluster.nothing()
        cluster.done(executor, needed)
        cluster.told(needed)
        cluster.nothing()  # room in one group is none in another
        cluster.done(executor, waiting[0])
        assert cluster.placed(waiting[ACTOR_CALLS_MAX]) == executor
        cluster.told(waiting[0])


def test_a_call_that_need_not_wait_its_turn_overtakes_one_that_waits_for_an_argument() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster, out_of_order=True)
        slow = cluster.submit()
        worker = cluster.placed(slow)
        first, second = cluster.method(actor, slow), cluster.method(actor)
        assert cluster.placed(second) == executor
        cluster.done(worker, slow)
        cluster.told(slow)
        assert cluster.placed(first) == executor


def test_calls_that_need_not_wait_their_turn_start_in_order_if_they_are_ready() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster, out_of_order=True)
        calls = [cluster.method(actor, max_retries=retries) for retries in (0, 1, 0, 1)]
        assert [call.id for call in cluster.take(Call, 4, to=executor)] == calls
        cluster.forget()


def test_a_call_that_raised_what_a_large_argument_is_is_not_run_again() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor, executor = created(cluster)
        argument = cluster.submit()
        worker = cluster.placed(argument)
        cluster.returned(worker, argument, Value(b"", Stored(0, 0, LARGE), is_error=True), raised=True)
        cluster.told(argument)
        fields: dict[str, Any] = {"max_retries": -1, "retry": RetrySpec()}
        task, method = cluster.submit(argument, **fields), cluster.method(actor, argument, **fields)
        cluster.running(task, method)
        cluster.raised(worker, task, b"boom")
        cluster.raised(executor, method, b"boom")
        assert cluster.told(task).data == cluster.told(method).data == b"boom"


def test_a_pending_actor_ends_with_the_last_process_that_has_a_handle() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=0)
        maker = cluster.placed(call)
        actor = cluster.actor(client=maker)
        cluster.died(maker, running=call)
        assert cluster.told(call).code == "WorkerCrashedError"
        assert actor not in cluster.state.actors
        cluster.nothing()
        cluster.placed(cluster.submit())  # whose place it does not take


def test_a_pending_actor_lives_on_with_another_handle() -> None:
    with Cluster().node() as cluster:
        call = cluster.submit(max_retries=0)
        maker = cluster.placed(call)
        actor = cluster.actor(client=maker)
        cluster.held(DRIVER, actor)
        cluster.died(maker, running=call)
        assert cluster.told(call).code == "WorkerCrashedError"
        cluster.placed(actor)


def test_a_handle_that_goes_and_comes_back_in_one_frame_keeps_the_actor() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster)
        cluster.client_says(DRIVER, Released([actor]), Held([actor]))
        cluster.nothing()
        assert cluster.placed(cluster.method(actor)) == executor


def test_the_spec_of_a_method_comes_before_its_first_call() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster)
        call = cluster.method(actor)
        kinds = [type(effect) for _, to, effect in cluster.recorded if to == executor]
        assert kinds == [Spec, Call]
        assert cluster.placed(call) == executor
        cluster.method(actor)
        (again,) = cluster.take(Call, 1, to=executor)
        assert again.actor == actor


def test_restarts_are_counted() -> None:
    with Cluster().node() as cluster:
        actor, executor = created(cluster, max_restarts=2)
        for number in (1, 2):
            cluster.later(AT_ONCE_US)
            cluster.died(executor)
            cluster.later(BACKOFF_US_MAX)
            executor = cluster.placed(actor)
            cluster.done(executor, actor)
            cluster.forget()
            assert cluster.ask(Statistics()).restarted == number


def test_an_actor_without_handles_that_waits_to_be_created_is_not_created() -> None:
    with Cluster().node() as cluster:
        running = cluster.submit()
        worker = cluster.placed(running)
        ready = [cluster.actor() for _ in range(50)]
        waiting = cluster.actor(running)
        cluster.released(waiting, *ready)
        assert not cluster.state.actors
        cluster.done(worker, running)
        cluster.told(running)
        cluster.released(running)
        assert cluster.is_clean()


def test_actors_that_are_dropped_at_once_fork_no_process() -> None:
    with Cluster().node() as cluster:
        spec, ids = cluster.spec(kind=ActorSpec), [cluster.id() for _ in range(5000)]
        cluster.client_says(DRIVER, spec, *(Call(id, spec.id, b"") for id in ids), Released(ids))
        assert not cluster.state.executors
        assert cluster.is_clean()


def test_an_actor_that_was_called_is_created_for_its_calls() -> None:
    with Cluster().node() as cluster:
        running = cluster.submit()
        worker = cluster.placed(running)
        actor = cluster.actor()
        call = cluster.method(actor)
        cluster.released(actor)
        cluster.done(worker, running)
        cluster.told(running)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        assert cluster.placed(call) == executor
        cluster.done(executor, call)
        cluster.told(call)
        assert cluster.one(StopExecutor).executor == executor

"""A rank is gone: what becomes of its executors, of what lay in its memory, and of its node."""

from __future__ import annotations

import pytest

from mpi_runtime.gpu.device import Device
from mpi_runtime.scheduler.losses import rebuilding
from mpi_runtime.scheduler.protocol.effects import (
    RANK_LOST,
    Fetch,
    Free,
    ReadyElsewhere,
    StartExecutor,
    StopFetch,
)
from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    RefusedError,
    Stored,
    Value,
    Where,
)
from mpi_runtime.scheduler.protocol.limits import UNREACHED_US
from mpi_runtime.scheduler.protocol.questions import ClusterResources, Nodes
from mpi_runtime.scheduler.protocol.rank_events import (
    ExecutorDied,
    Fetched,
    MemoryReported,
    RankJoined,
    RankLost,
    TakenBack,
)
from mpi_runtime.scheduler.values import lineage
from tests.builders import LARGE, UNIT, Cluster


def losing() -> Cluster:
    """A cluster in a job that continues without ranks that die."""
    cluster = Cluster()
    cluster.begin(survives_losses=True)
    return cluster


def on(number: int) -> Where:
    """Only on the node with this number."""
    return Where(node=f"{number:032x}")


def rank_of(cluster: Cluster, executor: int) -> int:
    return cluster.state.executors[executor].rank.number


def lose(cluster: Cluster, rank: int) -> str:
    """A rank is killed; what the user is told."""
    cluster.rank_says(RankLost(rank, "was killed"))
    return [note.text for note in cluster.said if note.event == RANK_LOST][-1]


def large(cluster: Cluster, *arguments: bytes, node: int, offset: int = 64, soft: bool = False) -> bytes:
    """A call that has made a large value on a node; elsewhere it may run only if that is `soft`."""
    id = cluster.submit(*arguments, where=Where(node=f"{node:032x}", soft=soft), max_retries=3)
    executor = cluster.placed(id)
    cluster.returned(executor, id, Value(b"", Stored(rank_of(cluster, executor), offset, LARGE)))
    cluster.forget()
    return id


def test_what_ran_is_run_again_at_the_cost_of_a_retry_and_what_waited_at_none() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        first = cluster.submit(where=on(1), max_retries=1)
        cluster.done(cluster.placed(first), first, us=10)
        cluster.forget()
        soft = Where(node=f"{1:032x}", soft=True)
        running = cluster.submit(where=soft, max_retries=1, name="g")
        executor = cluster.placed(running)
        text = lose(cluster, rank_of(cluster, executor))
        assert text == "rank 1 on host1 was killed, and 1 executor with it. 0 objects had no other copy: " + (
            "calls run again for them: 0, lost for good: 0."
        )
        again = cluster.placed(running)
        assert rank_of(cluster, again) == 2
        behind = cluster.submit(where=soft, max_retries=1, name="g")
        cluster.done(again, running)
        assert cluster.placed(behind) == again
        assert cluster.state.retried == 1
        cluster.forget()


def test_a_call_that_may_run_once_is_not_run_again() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        lose(cluster, rank_of(cluster, executor))
        failed = cluster.told(id)
        assert failed.code == "WorkerCrashedError"
        assert "died when rank 1 on host1 was killed" in failed.message
        cluster.released(id)
        assert cluster.is_clean()


def test_calls_after_the_loss_of_the_last_rank_that_runs_calls_say_so() -> None:
    with losing().head().node() as cluster:
        id = cluster.submit(max_retries=1, name="g")
        actor = cluster.actor(cpu=0, max_restarts=1)
        method = cluster.method(actor)
        cluster.placed(actor)
        lose(cluster, 1)
        assert any("its executor (starting, rank 1, host1) died" in note.text for note in cluster.said)
        why = "cannot run: all ranks that run calls have died, and rank 0 runs none. Start the job with more ranks"
        assert cluster.told(id).message == f"g {why}."
        assert f"could not be created: Actor {why}. This call was not started." in cluster.told(method).message
        assert cluster.told(cluster.submit(where=on(1))).message.endswith(f"{why}.")
        cluster.forget()


def test_a_call_that_was_not_sent_yet_has_not_run() -> None:
    """Its argument has come in the same moment in which its rank is found to be gone."""
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        value = cluster.put(size=LARGE, rank=0)
        id = cluster.submit(value, where=Where(node=f"{1:032x}", soft=True))
        order = cluster.one(Fetch, to=1)
        cluster.rank_says(Fetched(1, value, 64, order=order.order), RankLost(1, "was killed"))
        again = cluster.one(Fetch, to=2)
        cluster.rank_says(Fetched(2, value, 64, order=again.order))
        cluster.done(cluster.placed(id), id)
        assert cluster.state.retried == 0
        cluster.forget()


def test_what_the_dead_have_said_comes_too_late() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit(max_retries=1)
        executor = cluster.placed(id)
        value = cluster.put(size=LARGE, rank=0)
        lose(cluster, 1)
        again = cluster.placed(id)
        cluster.done(executor, id)
        cluster.rank_says(
            TakenBack(executor, [id]), ExecutorDied(executor, id, "x"), Fetched(1, value, 0), MemoryReported(1, True),
            RankLost(1, "again"),
        )  # fmt: skip
        cluster.nothing()
        cluster.done(again, id)
        cluster.told(id)
        assert [node.id for node in cluster.ask(Nodes())] == [f"{0:032x}", f"{2:032x}"]


def test_rank_0_and_ranks_that_never_were_are_not_lost() -> None:
    with losing().node(cpus=1) as cluster:
        for rank in (0, 7):
            with pytest.raises(RefusedError):
                cluster.scheduler.handle_rank(RankLost(rank), cluster.now)


def test_a_node_with_another_rank_goes_on_with_all_that_it_has() -> None:
    with losing().head().node(cpus=2, ranks=2, memory=1 << 30, disk=1) as cluster:
        before = cluster.ask(ClusterResources())
        lose(cluster, 1)
        assert cluster.ask(ClusterResources()) == before
        ids = cluster.submit_many(2, memory=1 << 20)
        assert {rank_of(cluster, executor) for executor in cluster.running(*ids)} == {2}


def test_gpus_that_only_the_lost_rank_could_use_are_given_to_nobody() -> None:
    with losing().head() as cluster:
        for rank in (1, 2):
            device = Device(f"GPU-{rank}", "A", memory=1 << 30)
            cluster.join(RankJoined(rank, 1, "host1", [rank], -1, 0, 0, {}, 1 << 30, devices=[device]))
        waiting = cluster.submit(cpu=0, gpu=1)
        executor = cluster.placed(waiting)
        lost = rank_of(cluster, executor)
        other = cluster.submit(cpu=0, gpu=1, max_retries=1)
        assert rank_of(cluster, cluster.placed(other)) == 3 - lost
        both = cluster.submit(cpu=0, gpu=1, name="g")
        lose(cluster, lost)
        assert cluster.told(waiting).code == "WorkerCrashedError"
        assert cluster.ask(ClusterResources())["GPU"] == 1
        assert "only rank" in cluster.notes[-1]
        cluster.nothing()
        cluster.released(both)


def test_an_object_with_another_copy_lives_on() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = large(cluster, node=1)
        user = cluster.submit(id, where=on(2))
        assert cluster.one(Fetch, to=2) == Fetch(id, 1, 64, LARGE, 1)
        cluster.rank_says(Fetched(2, id, 128))
        cluster.done(cluster.placed(user), user)
        cluster.forget()
        lose(cluster, 1)
        cluster.nothing()
        cluster.subscribed(DRIVER, id)
        assert cluster.one(Fetch, to=0) == Fetch(id, 2, 128, LARGE, 2)


def test_a_lost_value_is_made_again_by_its_call() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit(max_retries=3)
        cluster.returned(cluster.placed(id), id, Value(b"", Stored(1, 64, LARGE)))
        cluster.forget()
        assert lose(cluster, 1).endswith("1 object had no other copy: calls run again for them: 1, lost for good: 0.")
        again = cluster.placed(id)
        assert rank_of(cluster, again) == 2
        cluster.subscribed(DRIVER, id)
        cluster.returned(again, id, Value(b"", Stored(2, 0, LARGE)))
        cluster.one(Fetch, to=0)
        cluster.rank_says(Fetched(0, id, 0))
        assert cluster.told(id).offset == 0
        assert "the object was to be rebuilt (rank 1 on host1 was killed)" in cluster.explain(id).story
        cluster.released(id)
        cluster.take(Free, 2)
        assert cluster.is_clean()


def test_values_that_are_gone_are_made_again_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has let go of the first value of a chain; the last needs it. Two calls in a row are just allowed."""
    monkeypatch.setattr(rebuilding, "LINEAGE_DEPTH_MAX", 2)
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        seed = cluster.put()
        first = cluster.submit(seed, max_retries=3)
        one = cluster.placed(first)
        cluster.returned(one, first, Value(b"", Stored(1, 0, LARGE)))
        last = cluster.submit(first, max_retries=3)
        cluster.returned(cluster.placed(last), last, Value(b"", Stored(1, 64, LARGE)))
        cluster.released(first, seed)
        cluster.forget()
        assert first not in cluster.state.objects
        lose(cluster, 1)
        again = cluster.placed(first)
        cluster.returned(again, first, Value(b"", Stored(2, 0, LARGE)))
        cluster.returned(cluster.placed(last), last, Value(b"", Stored(2, 64, LARGE)))
        cluster.forget()
        assert first not in cluster.state.objects
        cluster.released(last)
        cluster.one(Free, to=2)
        assert cluster.is_clean()


def test_put_values_and_those_of_calls_that_may_run_once_are_lost_with_their_story() -> None:
    with losing().head().node(cpus=2).node(cpus=2) as cluster:
        putting = cluster.submit()
        executor = cluster.placed(putting)
        put = cluster.put(client=executor, size=LARGE, rank=1, offset=64)
        cluster.held(DRIVER, put)
        once = cluster.submit(name="once", where=on(1))
        other = cluster.placed(once)
        assert rank_of(cluster, other) == 1
        cluster.returned(other, once, Value(b"", Stored(1, 0, LARGE)))
        cluster.forget()
        lose(cluster, 1)
        cluster.forget()
        for id in (put, once):
            cluster.subscribed(DRIVER, id)
            failed = cluster.told(id)
            assert failed.code == "ObjectLostError"
            assert "is lost: rank 1 on host1 was killed, which had its only copy. Only what a task" in failed.message
        needing = cluster.submit(put)
        assert cluster.told(needing).code == "ObjectLostError"


def test_retries_are_used_up_by_making_a_value_again() -> None:
    with losing().head().node(cpus=1).node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit(max_retries=1)
        for rank in (1, 2):
            cluster.returned(cluster.placed(id), id, Value(b"", Stored(rank, 64, LARGE)))
            cluster.forget() if rank == 2 else None
            lose(cluster, rank)
        cluster.forget()
        cluster.subscribed(DRIVER, id)
        assert "f, which made it, has used up its retries (max_retries is 1)" in cluster.told(id).message


@pytest.mark.parametrize("has_let_go", [False, True])
def test_what_no_node_can_make_any_more_is_lost_and_says_so(has_let_go: bool) -> None:
    """The call could run only on the host that is lost; another one had used its value."""
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        first = large(cluster, node=1, offset=0)
        last = cluster.submit(first, max_retries=3, name="g")
        cluster.returned(cluster.placed(last), last, Value(b"", Stored(1, 64, LARGE)))
        if has_let_go:
            cluster.released(first)
        cluster.forget()
        assert lose(cluster, 1).endswith(f"calls run again for them: 0, lost for good: {1 if has_let_go else 2}.")
        cluster.forget()
        cluster.subscribed(DRIVER, last)
        failed = cluster.told(last)
        assert failed.code == "ObjectLostError"
        assert "f, which made it, cannot be run again: f is to run on a node with 'ray.io/node-id' = " in failed.message
        cluster.released(last, *() if has_let_go else (first,))
        assert cluster.is_clean()


def test_what_was_made_in_a_group_that_is_removed_is_lost_and_says_so() -> None:
    with losing().head().node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group({"cpu": 2})
        id = cluster.submit(where=Where(group=group), max_retries=3)
        executor = cluster.placed(id)
        cluster.returned(executor, id, Value(b"", Stored(rank_of(cluster, executor), 64, LARGE)))
        cluster.remove_group(group)
        cluster.died(executor)
        cluster.forget()
        assert lose(cluster, 1).endswith("lost for good: 1.")
        cluster.forget()
        cluster.subscribed(DRIVER, id)
        assert "cannot be run again: f was to run in placement group" in cluster.told(id).message


@pytest.mark.parametrize(("survives_losses", "records"), [(False, 0), (True, 2)])
def test_calls_are_remembered_only_where_a_value_can_be_lost_alone(survives_losses: bool, records: int) -> None:
    with Cluster().head().node(cpus=1) as cluster:
        cluster.begin(survives_losses=survives_losses)
        small = cluster.put()
        first = large(cluster, small, node=1)
        large(cluster, first, node=1, offset=64 + LARGE)
        cluster.released(small)
        assert len(cluster.state.lineages) == records
        assert (cluster.state.lineage_bytes > 0, small in cluster.state.objects) == (survives_losses, survives_losses)


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "LINEAGE_BYTES_MAX", 2000)
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        old, *new = (large(cluster, node=1, offset=64 * number) for number in range(3))
        assert list(cluster.state.lineages) == new
        lose(cluster, 1)
        cluster.forget()
        cluster.subscribed(DRIVER, old)
        assert "How it was made is not known any more" in cluster.told(old).message


def test_chains_are_made_again_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "LINEAGE_DEPTH_MAX", 2)
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        ids = [large(cluster, node=1, offset=0, soft=True)]
        for number in range(1, 4):
            ids.append(large(cluster, ids[-1], node=1, offset=number * 64, soft=True))
        cluster.released(*ids[:-1])
        cluster.forget()
        lose(cluster, 1)
        cluster.forget()
        cluster.subscribed(DRIVER, ids[-1])
        assert "More than 2 calls in a row would have to be run again" in cluster.told(ids[-1]).message


def test_calls_wait_again_for_an_argument_that_is_lost() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit(max_retries=3)
        cluster.returned(cluster.placed(id), id, Value(b"", Stored(1, 64, LARGE)))
        busy = cluster.submit(where=on(2))
        cluster.placed(busy)
        queued = cluster.submit(id, where=on(2))
        cluster.forget()
        lose(cluster, 1)
        assert cluster.explain(queued).state == "waiting"
        cluster.done(2, busy)
        again = cluster.placed(id)
        cluster.returned(again, id, Value(b"", Stored(2, 0, LARGE)))
        assert cluster.placed(queued) == again
        cluster.forget()


def test_a_copy_that_was_on_its_way_comes_from_elsewhere() -> None:
    """Of the first source nothing is known any more: what comes from it after all is freed."""
    with losing().head().node(cpus=1).node(cpus=1).node(cpus=1) as cluster:
        id = large(cluster, node=1)
        user = cluster.submit(id, where=on(2))
        cluster.rank_says(Fetched(2, id, 128))
        cluster.done(cluster.placed(user), user)
        cluster.forget()
        late = cluster.submit(id, where=on(3))
        assert cluster.one(Fetch, to=3).rank == 1
        lose(cluster, 1)
        assert cluster.one(Fetch, to=3).rank == 2
        cluster.rank_says(Fetched(3, id, 0, order=2))
        assert cluster.one(Free, to=3) == Free([0])
        cluster.rank_says(Fetched(3, id, 64, order=3))
        cluster.placed(late)
        cluster.take(StartExecutor, 0)


def test_nobody_is_told_of_a_copy_that_cannot_be_had_before_it_is_clear_why() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        id = cluster.submit(max_retries=3)
        cluster.returned(cluster.placed(id), id, Value(b"", Stored(1, 64, LARGE)))
        assert cluster.told(id) == ReadyElsewhere(id)
        cluster.subscribed(DRIVER, id)
        cluster.forget()
        cluster.rank_says(Fetched(0, id, -1, "rank 1 cannot be reached", is_lost=True, order=1))
        cluster.nothing()
        cluster.later(UNREACHED_US // 2)
        lose(cluster, 1)
        cluster.one(StopFetch, to=0)
        again = cluster.placed(id)
        cluster.later(UNREACHED_US)
        cluster.nothing()
        cluster.done(again, id)
        assert cluster.told(id).data == b"value"


def test_a_copy_goes_to_another_rank_of_the_host_whose_first_is_lost() -> None:
    with losing().head().node(cpus=1).node(cpus=2, ranks=2) as cluster:
        id = large(cluster, node=1)
        cluster.submit(id, where=on(2))
        cluster.one(Fetch, to=2)
        cluster.forget()
        lose(cluster, 2)
        assert cluster.one(Fetch, to=3) == Fetch(id, 1, 64, LARGE, 2)
        cluster.forget()


def test_a_call_that_waits_for_a_copy_gets_what_its_host_has_lost_from_elsewhere() -> None:
    """One of its arguments was in the arena of another rank of its host."""
    with losing().head().node(cpus=1).node(cpus=2, ranks=2) as cluster:
        calls = [cluster.submit(where=on(2), max_retries=3) for _ in range(2)]
        beside, other = (cluster.placed(one) for one in calls)
        assert (rank_of(cluster, beside), rank_of(cluster, other)) == (2, 3)
        here = calls[1]
        cluster.returned(other, here, Value(b"", Stored(3, 64, LARGE)))
        user = cluster.submit(here, where=on(1))
        cluster.rank_says(Fetched(1, here, 128, order=1))
        cluster.done(cluster.placed(user), user)
        there = large(cluster, node=1, offset=128 + LARGE)
        blocker = cluster.submit(where=on(2))  # so that the next call runs beside the rank that stays
        assert rank_of(cluster, cluster.placed(blocker)) == 3
        cluster.done(beside, calls[0])
        cluster.forget()
        late = cluster.submit(here, there, where=on(2))
        first = cluster.one(Fetch, to=2)
        assert first.id == there
        lose(cluster, 3)
        assert cluster.told(blocker).code == "WorkerCrashedError"
        second = cluster.one(Fetch, to=2)
        assert (second.id, second.rank) == (here, 1)
        cluster.rank_says(Fetched(2, there, 64, order=first.order), Fetched(2, here, 64 + LARGE, order=second.order))
        cluster.placed(late)


def test_an_actor_is_created_elsewhere_and_keeps_its_name_and_calls() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        actor = cluster.actor(max_restarts=1)
        cluster.done(cluster.placed(actor), actor)
        once, twice = cluster.method(actor), cluster.method(actor, max_retries=1)
        cluster.forget()
        lose(cluster, 1)
        assert cluster.told(once).code == "ActorUnavailableError"
        again = cluster.placed(actor)
        assert rank_of(cluster, again) == 2
        cluster.done(again, actor)
        cluster.forget()
        cluster.done(again, twice)
        cluster.told(twice)


def test_an_actor_that_is_not_started_again_dies() -> None:
    with losing().head().node(cpus=1).node(cpus=1) as cluster:
        actor = cluster.actor()
        cluster.done(cluster.placed(actor), actor)
        call = cluster.method(actor)
        cluster.forget()
        lose(cluster, 1)
        failed = cluster.told(call)
        assert failed.code == "ActorDiedError"
        assert "died when rank 1 on host1 was killed" in failed.message


def test_bundles_of_a_lost_node_are_placed_elsewhere_and_others_stay() -> None:
    with losing().head().node(cpus=2).node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group({"cpu": 2}, {"cpu": 2}, strategy="STRICT_SPREAD")
        cluster.told(group)
        assert cluster.nodes_of(group) == [1, 2]
        waiting = cluster.submit(where=Where(group=group, bundle=0), max_retries=1)
        cluster.placed(waiting)
        lose(cluster, 1)
        assert sorted(cluster.nodes_of(group)) == [2, 3]
        assert rank_of(cluster, cluster.placed(waiting)) == 3


def test_a_group_that_can_be_placed_nowhere_any_more_is_removed() -> None:
    with losing().head().node(cpus=2).node(cpus=2) as cluster:
        group = cluster.group({"cpu": 2}, {"cpu": 2}, strategy="STRICT_SPREAD")
        cluster.told(group)
        call = cluster.submit(where=Where(group=group, bundle=1), max_retries=1)
        executor = cluster.placed(call)
        lose(cluster, rank_of(cluster, executor))
        assert cluster.told(call).code == "PlacementGroupRemovedError"
        assert any("what remains has no room for it" in note.text for note in cluster.said)
        assert not cluster.state.groups


def test_what_no_node_can_serve_any_more_fails() -> None:
    with losing().head().node(cpus=4).node(cpus=1) as cluster:
        running, queued = cluster.submit(cpu=4, max_retries=1), cluster.submit(cpu=3)
        pinned = cluster.submit(where=on(1))
        cluster.placed(running)
        lose(cluster, 1)
        for id in (running, queued, pinned):
            assert cluster.told(id).code == "InfeasibleResourceError"


def test_what_is_told_of_resources_is_what_is_left() -> None:
    with losing().head().node(cpus=4).node(cpus=1) as cluster:
        lose(cluster, 1)
        assert cluster.ask(ClusterResources())["CPU"] == 1
        assert cluster.state.nodes[2].free.cpu == UNIT

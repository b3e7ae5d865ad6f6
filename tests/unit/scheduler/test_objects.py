"""Objects: who is told, who keeps them, where their bytes lie."""

import pytest

from mpi_runtime.scheduler.protocol.effects import (
    Fetch,
    Free,
    Ready,
    ReadyElsewhere,
    ReadyFailed,
    ReadyStored,
    StopFetch,
)
from mpi_runtime.scheduler.protocol.events import BroadcastRequested, Stored, Value, Where
from mpi_runtime.scheduler.protocol.limits import PUSH_BYTES_MAX, UNREACHED_US
from mpi_runtime.scheduler.protocol.rank_events import Fetched
from mpi_runtime.scheduler.records.lifecycle import INLINE, REBUILDING
from tests.builders import DRIVER, LARGE, Cluster


def test_a_put_value_is_not_sent_back() -> None:
    with Cluster().node() as cluster:
        id = cluster.put()
        cluster.nothing()
        cluster.subscribed(DRIVER, id)
        assert cluster.told(id) == Ready(id, b"value")
        cluster.released(id)
        assert cluster.is_clean()


def test_larger_results_are_not_sent_unasked() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        data = bytes(PUSH_BYTES_MAX + 1)
        cluster.done(cluster.placed(id), id, data=data)
        assert cluster.told(id) == ReadyElsewhere(id)
        cluster.subscribed(DRIVER, id)
        assert cluster.told(id) == Ready(id, data)


def test_subscribers_are_told_once_it_is_ready() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.submit(), cluster.submit()
        one, two = cluster.running(first, second)
        cluster.held(two, first)
        cluster.subscribed(two, first, fetch=False)
        cluster.nothing()
        cluster.done(one, first)
        assert cluster.told(first, to=two) == cluster.told(first) == Ready(first, b"value")


def test_a_subscription_ends_with_the_references_of_its_process() -> None:
    """Else each task that looks at a value which is never made would leave one."""
    with Cluster().node(cpus=3) as cluster:
        first, *others = cluster.submit_many(3)
        one, two, three = cluster.running(first, *others)
        cluster.held(two, first)
        cluster.subscribed(two, first)
        for _ in range(10):
            cluster.held(three, first)
            cluster.subscribed(three, first, fetch=False)
            assert cluster.state.objects[first].subscribers == {two: True, three: False}
            cluster.released(first, client=three)
            assert cluster.state.objects[first].subscribers == {two: True}
        cluster.nothing()
        cluster.done(one, first)
        assert cluster.told(first, to=two) == Ready(first, b"value")
        assert cluster.told(first) == Ready(first, b"value")
        cluster.nothing()


def test_a_subscription_ends_with_its_process() -> None:
    with Cluster().node(cpus=2) as cluster:
        first, second = cluster.submit(), cluster.submit(max_retries=0)
        _, two = cluster.running(first, second)
        cluster.held(two, first)
        cluster.subscribed(two, first)
        cluster.died(two, second)
        assert not cluster.state.objects[first].subscribers
        cluster.forget()


def test_processes_that_are_gone_do_not_know_a_value() -> None:
    """A value that is read by one process after another, for as long as the job lasts."""
    with Cluster().node() as cluster:
        id = cluster.put(size=LARGE)
        for _ in range(20):
            task = cluster.submit(holds=[id], max_retries=0)
            executor = cluster.placed(task)
            cluster.held(executor, id)
            cluster.subscribed(executor, id)
            known = cluster.state.objects[id].known_by or {}
            assert executor in known
            assert DRIVER in known
            assert len(known) <= 5, "the driver, one executor, and as many that are gone"
            cluster.died(executor, task)
            cluster.forget()


def test_an_object_that_is_gone_is_said_to_be_lost() -> None:
    with Cluster().node() as cluster:
        id = cluster.put()
        cluster.released(id)
        cluster.subscribed(DRIVER, id)
        told = cluster.told(id)
        assert isinstance(told, ReadyFailed)
        assert told.code == "ObjectLostError"
        assert "last counted reference is gone" in told.message


def test_a_stored_value_is_freed_with_its_last_reference() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        cluster.returned(executor, id, Value(b"", Stored(0, 64, LARGE)))
        assert cluster.told(id) == ReadyStored(id, 0, 64, LARGE)
        cluster.held(executor, id)
        cluster.released(id)
        cluster.nothing()
        cluster.released(id, client=executor)
        assert cluster.one(Free) == Free([64])
        assert cluster.is_clean()


def test_a_stored_value_that_nobody_wants_is_freed_at_once() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        cluster.released(id)
        cluster.returned(cluster.placed(id), id, Value(b"", Stored(0, 64, LARGE)))
        assert cluster.one(Free) == Free([64])
        assert cluster.is_clean()


def test_a_value_keeps_the_references_inside_it() -> None:
    with Cluster().node() as cluster:
        inside = cluster.put()
        box = cluster.put(holds=[inside])
        outer = cluster.put(holds=[box])
        cluster.released(inside, box)
        assert len(cluster.state.objects) == 3
        cluster.released(outer)
        assert cluster.is_clean()


def test_a_reference_found_inside_is_held_on_its_own() -> None:
    with Cluster().node() as cluster:
        inside = cluster.put()
        box = cluster.put(holds=[inside])
        executor = cluster.placed(cluster.submit(box))
        cluster.held(executor, inside, inside)
        cluster.released(box, inside)
        assert inside in cluster.state.objects
        cluster.forget()


def test_a_copy_is_fetched_once_for_all_who_want_it() -> None:
    with Cluster().head().node(cpus=2) as cluster:
        one, two = cluster.running(*cluster.submit_many(2))
        id = cluster.put(size=LARGE, rank=0, offset=128)
        for executor in (one, two):
            cluster.held(executor, id)
            cluster.subscribed(executor, id)
        assert cluster.one(Fetch, to=1) == Fetch(id, 0, 128, LARGE, 1)
        cluster.rank_says(Fetched(1, id, 512))
        for executor in (one, two):
            assert cluster.told(id, to=executor) == ReadyStored(id, 1, 512, LARGE)
            cluster.released(id, client=executor)
        cluster.released(id)
        assert [(to, effect) for _, to, effect in cluster.recorded] == [(0, Free([128])), (1, Free([512]))]
        cluster.forget()


def test_a_fetch_keeps_what_it_fetches() -> None:
    with Cluster().head().node(cpus=2) as cluster:
        id = cluster.put(size=LARGE, rank=0)
        waiting = cluster.submit(id)
        cluster.one(Fetch)
        cluster.released(id)
        cluster.rank_says(Fetched(1, id, 64))
        cluster.done(cluster.placed(waiting), waiting)
        assert [effect.offsets for effect in cluster.take(Free, 2)] == [[0], [64]]
        assert not cluster.state.objects.keys() & {id}
        cluster.forget()


@pytest.mark.parametrize("how", ["lets go", "dies"])
def test_what_only_a_process_wanted_that_wants_it_no_more_is_not_brought(how: str) -> None:
    with Cluster().head().node() as cluster:
        executor = cluster.placed(cluster.submit())
        id = cluster.put(size=LARGE, rank=0)
        cluster.held(executor, id)
        cluster.subscribed(executor, id)
        cluster.one(Fetch)
        if how == "dies":
            cluster.died(executor)
        else:
            cluster.released(id, client=executor)
        assert StopFetch(id) in [effect for _, _, effect in cluster.recorded]
        assert cluster.state.fetching == {}
        cluster.forget()
        cluster.rank_says(Fetched(1, id, 64, order=1))  # it had come before it was stopped
        assert cluster.one(Free).offsets == [64]
        cluster.released(id)
        assert id not in cluster.state.objects
        cluster.forget()


def test_what_is_brought_ahead_of_use_is_stopped_when_nobody_can_use_it_any_more() -> None:
    with Cluster().head().node().node() as cluster:
        id = cluster.put(size=LARGE, rank=0)
        cluster.client_says(DRIVER, BroadcastRequested([id]))
        assert len(cluster.state.fetching[id]) == 2
        cluster.forget()
        cluster.released(id)
        assert {to for _, to, effect in cluster.recorded if isinstance(effect, StopFetch)} == {1, 2}
        assert id not in cluster.state.objects
        assert cluster.state.fetching == {}
        cluster.forget()


def test_a_copy_that_cannot_be_had_fails_those_who_want_it() -> None:
    with Cluster().head().node(cpus=2) as cluster:
        executor = cluster.placed(cluster.submit())
        id = cluster.put(size=LARGE, rank=0)
        cluster.held(executor, id)
        cluster.subscribed(executor, id)
        waiting = cluster.submit(id)
        cluster.forget()
        cluster.rank_says(Fetched(1, id, -1, "no room on host1"))
        assert cluster.told(id, to=executor).message == "no room on host1"
        assert cluster.told(waiting).code == "ObjectStoreFullError"


def test_a_value_whose_host_cannot_be_reached_is_lost_until_it_is_found_again() -> None:
    with Cluster().head().node(cpus=2).node(cpus=2) as cluster:
        id = cluster.put(size=LARGE, rank=2)
        waiting = cluster.submit(id, cpu=1, where=Where(node=f"{1:032x}"))
        cluster.subscribed(DRIVER, id)
        cluster.forget()
        cluster.rank_says(Fetched(1, id, -1, "rank 2 was lost while it sent the object", is_lost=True))
        cluster.nothing()
        cluster.later(UNREACHED_US)
        failed = cluster.told(waiting)
        assert failed.code == "ObjectLostError"
        assert failed.message == f"object {id.hex()} cannot be had: rank 2 was lost while it sent the object."
        assert cluster.explain(id).state == "lost"
        assert "the object was lost (rank 2 was lost" in cluster.explain(id).story
        cluster.rank_says(Fetched(0, id, -1, "rank 2, which has it, cannot be reached", is_lost=True))
        cluster.later(UNREACHED_US)
        told = cluster.told(id)
        assert told.code == "ObjectLostError"
        before = "2 s ago the object was lost (rank 2 was lost while it sent the object)"
        assert told.message.endswith(f" What had happened before: {before}.")
        again = cluster.submit(id, cpu=1, where=Where(node=f"{1:032x}"))
        cluster.one(Fetch, to=1)
        cluster.rank_says(Fetched(1, id, 64))
        cluster.placed(again)
        assert cluster.explain(id).state == "stored"
        assert "the object was found again (rank 1 has got a copy)" in cluster.explain(id).story
        cluster.forget()


def test_the_handles_of_an_actor_that_is_created_again_wait_for_it() -> None:
    with Cluster().node(cpus=2) as cluster:
        actor = cluster.actor(max_restarts=1)
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        cluster.died(executor)
        found = cluster.state.objects[actor]
        assert found.state == REBUILDING
        cluster.subscribed(DRIVER, actor)
        cluster.done(cluster.placed(actor), actor)
        assert found.state == INLINE
        cluster.take(Ready, 2, to=DRIVER)


def test_what_is_wanted_only_by_name_is_not_fetched() -> None:
    with Cluster().head().node() as cluster:
        executor = cluster.placed(cluster.submit())
        id = cluster.put(size=LARGE, rank=0)
        cluster.held(executor, id)
        cluster.subscribed(executor, id, fetch=False)
        assert cluster.told(id, to=executor) == ReadyElsewhere(id)


def test_an_error_keeps_the_references_inside_it_when_it_is_passed_on() -> None:
    with Cluster().node() as cluster:
        inside = cluster.put()
        first = cluster.submit(holds=[inside])
        second = cluster.submit(first)
        cluster.released(inside)
        cluster.returned(cluster.placed(first), first, Value(b"boom", None, [inside], True), raised=True)
        cluster.told(first)
        cluster.told(second)
        cluster.released(first)
        assert inside in cluster.state.objects
        cluster.released(second)
        assert cluster.is_clean()

"""Calls that yield: each item once, to who made the call, and freed when nobody wants it."""

from typing import Any

from mpi_runtime.scheduler.protocol.effects import Demand, Free, Item, Ready, ReadyStored
from mpi_runtime.scheduler.protocol.events import STREAMING, Consumed, MethodSpec, Stored, Value, Yielded
from tests.builders import DRIVER, Cluster

PLACE = Stored(0, 64, 1 << 20)
ALL = 1 << 62
"""What clients say who take no more."""


def stream(cluster: Cluster, backpressure: int = 0, **fields: Any) -> tuple[bytes, int]:
    """A call that streams, and its executor."""
    call = cluster.submit(name="g", num_returns=STREAMING, backpressure=backpressure, **fields)
    return call, cluster.placed(call)


def gives(cluster: Cluster, executor: int, call: bytes, index: int, stored: Stored | None = None) -> bytes:
    """The call yields; the item's id."""
    id = cluster.id()
    cluster.client_says(executor, Yielded(call, index, id, Value(b"" if stored else b"item", stored)))
    return id


def stream_run_again(cluster: Cluster) -> tuple[bytes, int]:
    """A call whose first attempt has yielded one item, which fills its limit, and died; and its new executor."""
    call, executor = stream(cluster, backpressure=1, max_retries=1)
    gives(cluster, executor, call, 0)
    cluster.forget()
    cluster.died(executor, running=call)
    return call, cluster.placed(call)


def test_an_item_is_told_before_the_call_has_ended() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster)
        for index in range(2):
            id = gives(cluster, executor, call, index)
            assert cluster.one(Item, to=DRIVER) == Item(call, id)
            assert cluster.told(id) == Ready(id, b"item")
        cluster.done(executor, call)
        cluster.told(call)


def test_a_large_item_and_the_references_in_it() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster)
        inner, id = cluster.put(), cluster.id()
        cluster.client_says(executor, Yielded(call, 0, id, Value(b"", PLACE, [inner])))
        cluster.released(inner)
        cluster.one(Item)
        assert isinstance(cluster.told(id), ReadyStored)
        assert inner in cluster.state.objects
        cluster.released(id)
        assert cluster.one(Free) == Free([64])
        assert inner not in cluster.state.objects


def test_of_a_second_attempt_only_what_is_new_is_told() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster, max_retries=1)
        gives(cluster, executor, call, 0)
        cluster.forget()
        cluster.died(executor, running=call)
        executor = cluster.placed(call)
        gives(cluster, executor, call, 0, PLACE)
        assert cluster.one(Free) == Free([64])
        id = gives(cluster, executor, call, 1)
        assert cluster.one(Item) == Item(call, id)
        cluster.told(id)


def test_items_that_nobody_wants_are_freed() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster, backpressure=1)
        cluster.released(call)
        gives(cluster, executor, call, 0, PLACE)
        assert cluster.one(Free) == Free([64])
        assert cluster.one(Demand, to=executor) == Demand(call, 1)
        cluster.done(executor, call)
        assert cluster.is_clean()


def test_items_of_a_client_that_has_died_are_freed() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent = cluster.submit(max_retries=0)
        outer = cluster.placed(parent)
        call = cluster.submit(name="g", num_returns=STREAMING, client=outer)
        executor = cluster.placed(call)
        gives(cluster, executor, call, 0)
        cluster.died(outer, running=parent)
        cluster.forget()
        gives(cluster, executor, call, 1, PLACE)
        assert cluster.one(Free) == Free([64])
        assert len(cluster.state.objects) == 2  # what the driver has of the parent, and the call


def test_a_call_does_not_wait_for_a_client_that_has_died() -> None:
    with Cluster().node(cpus=2) as cluster:
        parent = cluster.submit(max_retries=0)
        outer = cluster.placed(parent)
        call = cluster.submit(name="g", num_returns=STREAMING, backpressure=1, client=outer)
        executor = cluster.placed(call)
        cluster.died(outer, running=parent)
        assert cluster.one(Demand, to=executor) == Demand(call, ALL)
        cluster.told(parent)


def test_an_item_of_a_call_that_was_given_up_is_freed() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster, max_retries=0)
        cluster.done(executor, call)
        cluster.told(call)
        gives(cluster, executor, call, 0, PLACE)
        assert cluster.one(Free) == Free([64])


def test_who_takes_items_is_heard_by_who_yields_them() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster, backpressure=2)
        cluster.client_says(DRIVER, Consumed(call, 3))
        assert cluster.one(Demand, to=executor) == Demand(call, 3)
        cluster.done(executor, call)
        cluster.told(call)
        cluster.client_says(DRIVER, Consumed(call, 4))
        cluster.nothing()


def test_what_an_attempt_yields_again_counts_as_taken() -> None:
    with Cluster().node() as cluster:
        call, executor = stream_run_again(cluster)
        gives(cluster, executor, call, 0)
        assert cluster.one(Demand, to=executor) == Demand(call, 1)


def test_methods_stream_too() -> None:
    with Cluster().node() as cluster:
        actor = cluster.actor()
        executor = cluster.placed(actor)
        cluster.done(executor, actor)
        cluster.told(actor)
        spec = cluster.spec("Actor.g", cpu=0, kind=MethodSpec, num_returns=STREAMING)
        call = cluster.call(spec, actor=actor)
        assert cluster.placed(call) == executor
        id = gives(cluster, executor, call, 0)
        assert cluster.one(Item) == Item(call, id)
        cluster.told(id)


def test_who_takes_no_more_is_heard_by_an_attempt_that_starts_later() -> None:
    with Cluster().node() as cluster:
        call, executor = stream(cluster, backpressure=1, max_retries=1)
        gives(cluster, executor, call, 0)
        cluster.client_says(DRIVER, Consumed(call, ALL))  # it keeps the reference to the call
        cluster.forget()
        cluster.died(executor, running=call)
        executor = cluster.placed(call)
        gives(cluster, executor, call, 0)
        assert cluster.one(Demand, to=executor) == Demand(call, ALL)


def test_who_takes_no_more_before_the_call_starts_is_heard_when_it_yields() -> None:
    with Cluster().node() as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        call = cluster.submit(name="g", num_returns=STREAMING, backpressure=1)
        cluster.client_says(DRIVER, Consumed(call, ALL))
        cluster.done(executor, first)
        cluster.told(first)
        executor = cluster.placed(call)
        id = gives(cluster, executor, call, 0)
        assert cluster.one(Demand, to=executor) == Demand(call, ALL)
        cluster.one(Item)
        cluster.told(id)


def test_what_an_attempt_yields_again_takes_nothing_back_of_what_is_wanted() -> None:
    with Cluster().node() as cluster:
        call, executor = stream_run_again(cluster)
        cluster.client_says(DRIVER, Consumed(call, ALL))
        assert cluster.one(Demand, to=executor) == Demand(call, ALL)
        gives(cluster, executor, call, 0)
        assert cluster.one(Demand, to=executor) == Demand(call, ALL)

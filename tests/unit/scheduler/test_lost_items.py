"""A rank is gone with items of calls that yield: they are yielded again, or are lost."""

from __future__ import annotations

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch, Free, Item
from mpi_runtime.scheduler.protocol.events import (
    DRIVER,
    STREAMING,
    CancelRequested,
    Stored,
    Value,
    Where,
    Yielded,
)
from mpi_runtime.scheduler.records.lifecycle import OBJECT_STATE_NAMES
from mpi_runtime.scheduler.values import items as stream_items
from tests.builders import LARGE, Cluster
from tests.unit.scheduler.test_losses import lose, on, rank_of


def streamed(cluster: Cluster, count: int) -> tuple[bytes, int, list[bytes]]:
    """A call on node 1, or elsewhere, that has yielded so many large values; its executor; their ids."""
    where = Where(node=f"{1:032x}", soft=True)
    call = cluster.submit(name="g", num_returns=STREAMING, max_retries=3, where=where)
    executor = cluster.placed(call)
    items = [yields(cluster, executor, call, index) for index in range(count)]
    cluster.forget()
    return call, executor, items


def yields(cluster: Cluster, executor: int, call: bytes, index: int) -> bytes:
    """A call yields a large value; the id that its executor gives it."""
    id, offset = cluster.id(), 64 + index * LARGE
    cluster.client_says(
        executor, Yielded(call, index, id, Value(b"", Stored(rank_of(cluster, executor), offset, LARGE)))
    )
    return id


def states(cluster: Cluster, items: list[bytes]) -> list[str]:
    return [OBJECT_STATE_NAMES[cluster.state.objects[id].state] for id in items]


def test_items_of_a_call_that_runs_again_are_yielded_again() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        call, _, items = streamed(cluster, 3)
        cluster.released(items[1])
        user = cluster.submit(items[2], where=on(2), cpu=0)
        cluster.one(Fetch, to=2)
        assert lose(cluster, 1).endswith("2 objects had no other copy: calls run again for them: 0, lost for good: 0.")
        again = cluster.placed(call)
        for index in range(4):
            yields(cluster, again, call, index)
        assert [one.offsets for one in cluster.take(Free, 1, to=2)] == [[64 + LARGE]]
        cluster.placed(user)
        cluster.one(Item)
        assert states(cluster, [items[0], items[2]]) == ["stored", "stored"]
        cluster.done(again, call)
        cluster.forget()


@pytest.mark.parametrize("passed", [0, 1, 3])
def test_items_that_the_running_attempt_has_passed_are_lost_for_good(passed: int) -> None:
    """The first attempt came to three, on a rank that is lost when the second has come so far elsewhere."""
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        blocker = cluster.submit(where=on(2))
        there = cluster.placed(blocker)
        call = cluster.submit(name="g", num_returns=STREAMING, max_retries=3)
        executor = cluster.placed(call)
        items = [yields(cluster, executor, call, index) for index in range(3)]
        cluster.submit(where=on(1), priority=1)
        cluster.died(executor, running=call)  # the other call is next there
        cluster.done(there, blocker)
        again = cluster.placed(call)
        assert rank_of(cluster, again) == 2
        cluster.forget()
        for index in range(passed):
            yields(cluster, again, call, index)
        lose(cluster, 1)
        assert states(cluster, items) == ["failed"] * passed + ["rebuilding"] * (3 - passed)
        cluster.forget()


def test_items_that_are_not_yielded_again_are_lost_when_their_call_ends() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        call, _, items = streamed(cluster, 2)
        lose(cluster, 1)
        cluster.subscribed(DRIVER, *items)
        again = cluster.placed(call)
        yields(cluster, again, call, 0)
        cluster.done(again, call)
        assert states(cluster, items) == ["stored", "failed"]
        failed = cluster.told(items[1])
        assert failed.code == "ObjectLostError"
        assert "is lost: g, which was to yield it again, ended before that." in failed.message
        cluster.released(*items, call)
        cluster.forget()
        assert cluster.is_clean()


def test_items_of_a_call_that_is_cancelled_or_may_run_once_are_lost() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        call, _, items = streamed(cluster, 1)
        lose(cluster, 1)
        again = cluster.placed(call)
        cluster.client_says(DRIVER, CancelRequested(call, True, False))
        cluster.died(again, running=call)
        assert states(cluster, items) == ["failed"]
        cluster.forget()
    with Cluster().head().node(cpus=1).node(cpus=1) as cluster:
        call, _, items = streamed(cluster, 1)
        task = cluster.state.objects[call].task
        assert task is not None
        task.retries = 0
        lose(cluster, 1)
        assert states(cluster, items) == ["failed"]
        cluster.forget()


def test_an_item_that_is_lost_twice_is_yielded_a_third_time() -> None:
    with Cluster().head().node(cpus=1).node(cpus=1).node(cpus=1) as cluster:
        call, _, items = streamed(cluster, 2)
        lose(cluster, 1)
        again = cluster.placed(call)
        yields(cluster, again, call, 0)
        lose(cluster, rank_of(cluster, again))
        assert states(cluster, items) == ["rebuilding", "rebuilding"]
        cluster.later(1_000_000)
        again = cluster.placed(call)
        for index in range(2):
            yields(cluster, again, call, index)
        assert states(cluster, items) == ["stored", "stored"]
        cluster.done(again, call)
        cluster.forget()


def test_items_to_which_there_is_no_reference_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_items, "LOOK_EACH", 4)
    with Cluster().head().node(cpus=1) as cluster:
        call, executor, items = streamed(cluster, 4)
        cluster.released(*items[1:])
        last = yields(cluster, executor, call, 4)
        task = cluster.state.objects[call].task
        assert task is not None
        assert task.stream is not None
        assert task.stream.items == {0: items[0], 4: last}
        cluster.forget()

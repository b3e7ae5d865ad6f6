"""Who may still use a place in an arena that is to be used again."""

from types import SimpleNamespace
from typing import Any, cast

from mpi_runtime.scheduler.nodes import spilling
from mpi_runtime.scheduler.protocol.effects import Fetch, Forget, Free, ReadyStored, Restore, RoomAnswer, Spill
from mpi_runtime.scheduler.protocol.events import DRIVER, Forgotten, Stored, Value, Where
from mpi_runtime.scheduler.protocol.limits import READ_PAST_US
from mpi_runtime.scheduler.protocol.rank_events import RoomWanted, Spilled
from mpi_runtime.scheduler.records.state import Client, Object, State
from tests.builders import LARGE, Cluster

ID = bytes(16)


def told_after(told: dict[int, int], asked: int, forgets: bool) -> dict[int, int] | None:
    """Whom the scheduler takes to know a place after client 7 has answered the question with this number."""
    state = State()
    found = state.objects[ID] = Object(ID, -1, 1)
    found.known_by = told
    client = cast(Client, SimpleNamespace(id=7, node=SimpleNamespace(is_full=False)))
    spilling.forgotten(state, client, cast(Any, Forgotten(asked, [ID], [ID] if forgets else [])), 0)
    return found.known_by


def test_who_forgets_a_place_is_not_known_to_use_it() -> None:
    assert told_after({7: 3, 8: 0}, asked=3, forgets=True) == {8: 0}


def test_who_looks_at_a_value_keeps_it_and_may_be_asked_again() -> None:
    assert told_after({7: 3}, asked=3, forgets=False) == {7: 0}


def test_an_answer_that_has_crossed_a_new_telling_does_not_count() -> None:
    assert told_after({7: 0}, asked=3, forgets=True) == {7: 0}
    assert told_after({7: 4}, asked=3, forgets=True) == {7: 4}


def on(number: int) -> Where:
    """Only on the node with this number."""
    return Where(node=f"{number:032x}")


def test_a_process_that_got_a_value_as_argument_and_holds_a_reference_is_asked_before_its_place_is_used_again() -> None:
    with Cluster().node(cpus=1) as cluster:
        id = cluster.put(size=LARGE, offset=64)
        call = cluster.submit(holds=[id])
        executor = cluster.placed(call)
        cluster.held(executor, id)
        cluster.done(executor, call)
        call = cluster.submit(id)
        assert cluster.placed(call) == executor
        cluster.done(executor, call)
        cluster.forget()
        cluster.rank_says(RoomWanted(0, LARGE, [0]))
        assert id in cluster.one(Forget, to=executor).ids
        cluster.forget()


def test_of_calls_that_wait_for_copies_the_oldest_keeps_what_is_there() -> None:
    with Cluster().head().node(cpus=2).node(cpus=1) as cluster:
        ids = []
        for offset, node in enumerate((1, 2, 1, 2)):
            ids.append(cluster.submit(where=on(node)))
            cluster.returned(cluster.placed(ids[-1]), ids[-1], Value(b"", Stored(node, offset * LARGE, LARGE)))
        cluster.forget()
        for pair in (ids[:2], ids[2:]):
            cluster.submit(*pair, where=on(1))
        assert {fetch.id for fetch in cluster.take(Fetch, 2, to=1)} == {ids[1], ids[3]}
        assert spilling.pinned(cluster.state, cluster.state.nodes[1]) == set(ids[:2])
        cluster.forget()


def test_what_is_kept_of_the_disk_is_used_only_for_copies_for_which_nobody_waits_with_a_new_value() -> None:
    with Cluster().node() as cluster:
        ids = [cluster.put(size=LARGE, offset=64 + number * LARGE) for number in range(2)]
        cluster.rank_says(RoomWanted(0, LARGE, [0]))
        assert not any(one.for_copies for one in cluster.take(Spill, 2))
        cluster.forget()
        cluster.rank_says(*(Spilled(0, id, -1, "the disk is full") for id in ids))
        cluster.rank_says(RoomWanted(0, LARGE, [0]))
        answer = cluster.one(RoomAnswer)
        assert not answer.is_coming
        assert f"2.0 MiB object {ids[0].hex()} (kept by driver)" in answer.reason
        cluster.rank_says(RoomWanted(0, LARGE, []))  # now only a copy waits
        assert all(one.for_copies for one in cluster.take(Spill, 2))
        assert cluster.one(RoomAnswer).is_coming
        cluster.forget()
        cluster.rank_says(*(Spilled(0, id, -1, "the disk is full") for id in ids))
        cluster.rank_says(RoomWanted(0, LARGE, []))
        assert not cluster.one(RoomAnswer).is_coming
        assert not cluster.state.spilling.rooms[0].writing
        cluster.forget()


def test_a_value_on_disk_is_read_there_if_memory_stays_full() -> None:
    with Cluster().node() as cluster:
        id = cluster.put(size=LARGE, offset=64)
        cluster.rank_says(RoomWanted(0, LARGE, [0]))
        cluster.rank_says(Spilled(0, id, 4096, file="/proc/1/fd/9"))
        cluster.client_says(DRIVER, Forgotten(1, [id], [id]))
        cluster.forget()
        cluster.subscribed(DRIVER, id)
        assert cluster.one(Restore, to=0).offset == 4096
        cluster.rank_says(RoomWanted(0, LARGE, []))
        assert not cluster.one(RoomAnswer).is_coming
        assert not [one for _, _, one in cluster.recorded if isinstance(one, ReadyStored)], "room may come soon"
        cluster.later(READ_PAST_US)
        cluster.rank_says(RoomWanted(0, LARGE, []))
        assert cluster.told(id) == ReadyStored(id, 0, 4096, LARGE, file="/proc/1/fd/9")
        assert not cluster.state.fetching
        cluster.forget()


def test_while_memory_is_full_calls_are_not_sent_ahead() -> None:
    """Each executor has one: those that wait behind it would keep their arguments in memory."""
    with Cluster().node() as cluster:
        first = cluster.submit()
        executor = cluster.placed(first)
        cluster.done(executor, first)
        cluster.told(first)
        cluster.rank_says(RoomWanted(0, LARGE, [0]))
        cluster.forget()
        ids = cluster.submit_many(3)
        assert cluster.placed(ids[0]) == executor
        cluster.nothing()
        cluster.rank_says(RoomWanted(0, 0, []))
        cluster.done(executor, ids[0])
        cluster.told(ids[0])
        assert cluster.running(*ids[1:]) == [executor] * 2


def test_copies_leave_first_and_are_not_written() -> None:
    """Of two values one is on another host too: that one makes room."""
    with Cluster().node().node() as cluster:
        alone = cluster.put(size=LARGE, offset=64)
        double = cluster.put(size=LARGE, offset=64 + LARGE)
        cluster.state.objects[double].copies[1] = Stored(1, 64, LARGE)  # type: ignore[index]
        cluster.state.extents[1, 64] = double
        cluster.state.ranks[1].stored = LARGE
        cluster.state.objects[double].known_by = {}
        cluster.state.nodes[0].arena = 16
        cluster.rank_says(RoomWanted(0, LARGE - 1, [0]))
        assert cluster.one(Free, to=0).offsets == [64 + LARGE]
        assert alone not in {one.id for _, _, one in cluster.recorded if isinstance(one, Spill)}
        cluster.forget()

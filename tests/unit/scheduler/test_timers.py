"""Alarms: one for each subject, the earliest wins."""

from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.scheduler.records.timers import Alarms
from tests.builders import Cluster


def test_alarms_come_in_order_and_once() -> None:
    alarms = Alarms()
    alarms.set("b", 20)
    alarms.set("a", 10)
    assert alarms.next_us() == 10
    assert alarms.due(9) == []
    assert alarms.due(20) == ["a", "b"]
    assert alarms.due(30) == []
    assert alarms.next_us() is None


def test_the_earlier_of_two_alarms_counts() -> None:
    alarms = Alarms()
    alarms.set("a", 30)
    alarms.set("a", 10)
    alarms.set("a", 20)
    assert "a" in alarms
    assert alarms.due(10) == ["a"]
    assert "a" not in alarms
    assert alarms.due(100) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans()), max_size=40))
def test_alarms_are_like_a_table_of_earliest_times(steps: list[tuple[str, int, bool]]) -> None:
    alarms, table, now = Alarms(), dict[str, int](), 0
    for subject, us, looks in steps:
        if looks:
            now = max(now, us)
            due = [name for _, name in sorted((at, name) for name, at in table.items() if at <= now)]
            assert sorted(map(str, alarms.due(now))) == sorted(due)
            table = {name: at for name, at in table.items() if at > now}
        else:
            alarms.set(subject, us)
            table[subject] = min(us, table.get(subject, us))
        assert alarms.next_us() == min(table.values(), default=None)


def test_an_idle_cluster_wants_to_sleep() -> None:
    with Cluster().node() as cluster:
        id = cluster.submit()
        executor = cluster.placed(id)
        assert cluster.scheduler.deadline() is None
        cluster.done(executor, id)
        cluster.told(id)
        assert cluster.scheduler.deadline() is None


def test_a_call_that_waits_for_long_wakes_nobody() -> None:
    with Cluster().node() as cluster:
        ids = cluster.submit_many(3)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        cluster.forget()
        cluster.blocked(executor, ids[2])
        cluster.taken_back(executor, ids[2])
        cluster.forget()
        cluster.later(10_000)
        assert cluster.scheduler.deadline() is None

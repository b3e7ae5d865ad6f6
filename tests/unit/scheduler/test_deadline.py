"""The end of the job's time: what cannot finish before it waits, and the others go on."""

from typing import Any

import pytest

from mpi_runtime.scheduler.dispatch import backfill
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.effects import Fetch, TakeBack
from mpi_runtime.scheduler.protocol.events import CancelRequested, Where
from mpi_runtime.scheduler.protocol.rank_events import Fetched, RankJoined
from tests.builders import LARGE, UNIT, Cluster

S = 1_000_000


def ending(in_s: float, cpus: int = 1) -> Cluster:
    """A cluster of one host in a job whose time ends so many seconds from now."""
    cluster = Cluster()
    return cluster.join(
        RankJoined(0, 0, "host0", list(range(cpus)), -1, 0, 0, {}, 1 << 30, end_us=cluster.now + int(in_s * S))
    )


def test_a_call_that_cannot_finish_waits_and_others_go_on() -> None:
    with ending(300) as cluster:
        long, short = cluster.submit(name="fit", limit_us=600 * S), cluster.submit(name="look")
        executor = cluster.placed(short)
        cluster.nothing()
        why = cluster.explain(long)
        assert (why.state, why.name) == ("ready", "fit")
        assert why.why.startswith(
            "It is not started: it may take 600 s (its time_limit), and the job's time ends in 300 s."
        )
        cluster.done(executor, short)
        cluster.forget()
        assert cluster.state.nodes[0].free.cpu == UNIT
        assert not cluster.state.waiting


def test_the_user_is_told_once_for_each_function() -> None:
    with ending(300) as cluster:
        cluster.submit_many(3, name="fit", limit_us=600 * S)
        cluster.submit_many(3, name="fit", limit_us=700 * S)
        cluster.submit(name="fit", limit_us=600 * S)
        cluster.submit(name="eval", limit_us=301 * S)
        ends = "the job's time ends in 300 s. Have the job requeued, or start one with more time."
        assert cluster.notes == [
            f"calls of fit, each of which may take 600 s (its time_limit), are not started any more: {ends}",
            f"calls of eval, each of which may take 301 s (its time_limit), are not started any more: {ends}",
        ]


def test_one_that_just_can_is_started() -> None:
    with ending(300) as cluster:
        cluster.placed(cluster.submit(limit_us=300 * S))


def test_where_no_end_is_known_a_limit_means_nothing() -> None:
    with Cluster().node() as cluster:
        first, second = cluster.submit(name="a", limit_us=10**15), cluster.submit(name="b")
        cluster.placed(first)
        assert cluster.explain(second).why.startswith("It needs 1 CPU.")


def test_time_runs_out_while_it_waits_for_room() -> None:
    """What is kept for it is given up, even if nothing else happens."""
    with ending(300, cpus=2) as cluster:
        running = cluster.placed(cluster.submit(name="small"))
        large = cluster.submit(name="large", cpu=2, limit_us=299 * S)
        behind = cluster.submit(name="small")
        assert cluster.state.nodes[0].reserved_for is not None
        cluster.nothing()
        cluster.later(2 * S)
        assert cluster.state.nodes[0].reserved_for is None
        assert cluster.placed(behind) != running
        assert cluster.explain(large).why.startswith("It is not started")


def test_calls_in_hand_that_have_not_begun_are_taken_back() -> None:
    with ending(300) as cluster:
        ids = cluster.submit_many(4, limit_us=299 * S)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        assert cluster.running(*ids[1:]) == [executor] * 3
        cluster.forget()
        more = cluster.submit_many(400, limit_us=299 * S)
        cluster.forget()
        cluster.now += 2 * S
        cluster.decide()
        count = cluster.one(TakeBack).count
        assert count == len(cluster.state.executors[executor].assigned) - 1 == 2
        assigned = list(cluster.state.executors[executor].assigned)
        cluster.taken_back(executor, *assigned[1:])
        cluster.done(executor, assigned[0])
        cluster.forget()
        assert cluster.state.nodes[0].free.cpu == UNIT
        assert cluster.explain(more[-1]).state == cluster.explain(ids[2]).state == "ready"


@pytest.mark.parametrize(
    "fields", [{}, {"cpu": 2, "alternatives": (Request(cpu=UNIT),)}], ids=["one request", "an alternative"]
)
def test_a_call_whose_argument_is_on_its_way_when_time_runs_out_is_not_sent(fields: dict[str, Any]) -> None:
    with Cluster().head().node(cpus=2) as cluster:
        cluster.state.end_us = cluster.now + 300 * S
        cluster.placed(cluster.submit(name="running"))
        value = cluster.put(size=LARGE)
        call = cluster.submit(value, limit_us=299 * S, **fields)
        assert cluster.one(Fetch, to=1).id == value
        cluster.forget()
        assert cluster.explain(call).state == "staging"
        cluster.later(2 * S)
        cluster.rank_says(Fetched(1, value, 0))
        cluster.nothing()
        assert cluster.explain(call).why.startswith("It is not started")
        assert cluster.state.nodes[1].free.cpu == UNIT


def test_calls_in_hand_are_taken_back_though_none_is_ready() -> None:
    with ending(300) as cluster:
        ids = cluster.submit_many(4, limit_us=299 * S)
        executor = cluster.placed(ids[0])
        cluster.done(executor, ids[0])
        cluster.forget()
        cluster.now += 2 * S
        cluster.decide()
        assert cluster.one(TakeBack).count == 2
        cluster.taken_back(executor, *ids[2:])
        cluster.forget()
        assert cluster.explain(ids[3]).why.startswith("It is not started")


def test_what_is_expected_counts_in_place_of_a_generous_limit() -> None:
    """Until calls have ended: then their mean does, also if it is longer than what was expected."""
    with ending(300) as cluster:
        short, other, long = (cluster.submit(name="fit", limit_us=3600 * S, expect_us=s * S) for s in (20, 20, 301))
        executor = cluster.placed(short)
        cluster.later(100 * S)
        cluster.done(executor, short, us=100 * S)
        assert cluster.placed(other) == executor
        cluster.later(101 * S)
        cluster.done(executor, other, us=101 * S)
        cluster.forget()
        late = cluster.submit(name="fit", limit_us=3600 * S, expect_us=20 * S)
        cluster.nothing()
        assert cluster.explain(late).why.startswith("It is not started: it may take 100.1 s (as earlier calls did)")
        assert cluster.explain(long).why.startswith("It is not started: it may take 301 s (as expected)")
        assert cluster.notes == [
            "calls of fit, each of which may take 301 s (as expected), are not started any more: the job's time ends "
            "in 300 s. Have the job requeued, or start one with more time."
        ]


def test_what_is_expected_counts_for_backfilling() -> None:
    """A large call waits for a node; what is expected to end before it begins runs there in spite of its limit."""
    with Cluster().node(cpus=2) as cluster:
        running = cluster.submit(name="running", limit_us=60 * S)
        cluster.placed(running)
        large = cluster.submit(name="large", cpu=2)
        cluster.submit(name="long", limit_us=3600 * S)
        cluster.nothing()
        short = cluster.submit(name="short", limit_us=3600 * S, expect_us=20 * S)
        cluster.placed(short)
        assert cluster.explain(large).state == "ready"
        cluster.forget()


def test_a_limit_that_is_expected_counts_until_calls_have_ended_and_always_for_backfilling() -> None:
    with ending(100) as cluster:
        first, second = (cluster.submit(name="f", limit_us=60 * S, expect_us=60 * S) for _ in range(2))
        function = next(iter(cluster.state.functions.values()))
        assert (function.quickest_us, function.may_take_us, function.has_fixed_length) == (60 * S, 60 * S, True)
        executor = cluster.placed(first)
        cluster.now += 5 * S
        cluster.done(executor, first, us=5 * S)
        assert (function.quickest_us, function.may_take_us, function.has_fixed_length) == (5 * S, 60 * S, True)
        cluster.now += 80 * S
        assert cluster.placed(second) == executor
        cluster.done(executor, second, us=5 * S)
        cluster.forget()


def test_calls_that_turn_out_shorter_elsewhere_run_on_a_reserved_node_at_once() -> None:
    """Inner calls of the same function have shown it. Their executor gets the next of them, so nothing becomes free."""
    fit: dict[str, Any] = {"name": "fit", "limit_us": 3600 * S, "expect_us": 3000 * S}
    with Cluster().node(cpus=2).node() as cluster:
        first = Where(node=f"{0:032x}")
        running, other = (cluster.submit(name=name, where=first, limit_us=60 * S) for name in ("running", "other"))
        cluster.placed(running)
        ending_now = cluster.placed(other)
        parent = cluster.placed(cluster.submit(name="parent", cpu=0))
        inner = cluster.submit(client=parent, **fit)
        elsewhere = cluster.placed(inner)
        cluster.submit(name="large", cpu=2)
        cluster.done(ending_now, other)
        cluster.forget()
        outer, next_inner = cluster.submit(**fit), cluster.submit(client=parent, **fit)
        cluster.nothing()
        assert cluster.state.nodes[0].reserved_for is not None
        cluster.done(elsewhere, inner, us=20 * S)
        assert cluster.placed(next_inner) == elsewhere
        assert cluster.placed(outer) == ending_now
        cluster.forget()
        backfill.look_again(cluster.state, cluster.now)
        assert not cluster.state.freed, "nothing has changed: nothing is served again"


def test_what_was_measured_counts_where_no_limit_is_said() -> None:
    with ending(100) as cluster:
        slow, quick, slow2 = (cluster.submit(name=name) for name in ("slow", "quick", "slow"))
        executor = cluster.placed(slow)
        cluster.now += 60 * S
        cluster.done(executor, slow, us=60 * S)
        assert cluster.placed(quick) == executor
        cluster.done(executor, quick, us=5 * S)
        why = cluster.explain(slow2).why
        assert why.startswith(
            "It is not started: it may take 60 s (as earlier calls did), and the job's time ends in 40 s."
        )
        last = cluster.submit(name="quick")
        assert cluster.placed(last) == executor
        cluster.forget()


def test_calls_that_end_sooner_than_thought_let_others_start() -> None:
    with ending(100, cpus=2) as cluster:
        first, second, third = (cluster.submit(name="f") for _ in range(3))
        one, other = cluster.running(first, second)
        cluster.now += 55 * S
        cluster.done(one, first, us=55 * S)
        assert cluster.explain(third).state == "ready"
        cluster.done(other, second, us=1 * S)  # the mean is 48 s, and 45 s are left
        assert cluster.explain(third).state == "ready"
        cluster.state.end_us = cluster.now + 50 * S
        cluster.placed(cluster.submit(name="other", cpu=0))
        fourth = cluster.submit(name="f")
        cluster.running(third, fourth)
        cluster.forget()


def test_late_calls_can_be_cancelled() -> None:
    with ending(10) as cluster:
        late = cluster.submit(limit_us=20 * S)
        cluster.client_says(0, CancelRequested(late, False, False))
        cluster.forget()
        cluster.released(late)
        cluster.forget()
        assert cluster.is_clean()

"""In which order calls start: gaps before reservations, longest paths, priorities, accounts; in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.makespan import bound_us, first_come_us, ours_us
from benchmarks.workloads import all_workloads
from mpi_runtime.scheduler.dispatch import backfill
from mpi_runtime.scheduler.protocol.limits import RESERVATION_US
from mpi_runtime.scheduler.records.grant_sources import NOTHING
from mpi_runtime.whatif.virtual_cluster import Ran, Shape, VirtualCluster, Work, asked

S = 1_000_000
ONE = Shape(1)


def run(nodes: Sequence[Shape], *steps: Sequence[Work]) -> dict[str, list[Ran]]:
    """What has run, by name: the first step is submitted at once, each other one when a call of it before has ended."""
    left = list(steps)

    def ended(_: Ran) -> None:
        if left:
            cluster.submit(left.pop(0))

    cluster = VirtualCluster(nodes, ended)
    cluster.submit(left.pop(0))
    found: dict[str, list[Ran]] = {}
    for ran in cluster.run():
        found.setdefault(ran.work.name, []).append(ran)
    return found


def timed(name: str, shape: Shape, seconds: float, priority: int = 0, path_us: int = 0) -> Work:
    """A call that says how long it takes."""
    return Work(name, asked(shape, round(seconds * S), priority), round(seconds * S), path_us)


def starts(rans: Sequence[Ran]) -> list[float]:
    return [ran.start_us / S for ran in rans]


# Gaps before reservations

LARGE = timed("large", Shape(4), 10)


def gap(*fillers: Work) -> dict[str, list[Ran]]:
    """A node with 4 CPUs where one of them is in use until 100 s and three until 10 s, when a call waits for all."""
    begin = [timed("long", ONE, 100), timed("short", Shape(3), 10)]
    return run([Shape(4)], [*begin, LARGE, *fillers])


def test_what_ends_before_a_reservation_fills_its_gap() -> None:
    found = gap(*[timed("filler", ONE, 30)] * 9)
    assert starts(found["large"]) == [100]
    assert starts(found["filler"]) == [10] * 3 + [40] * 3 + [70] * 3


def test_what_would_end_after_it_waits() -> None:
    found = gap(timed("filler", ONE, 91))
    assert starts(found["large"]) == [100]
    assert starts(found["filler"]) == [110]


def test_what_may_take_any_time_waits() -> None:
    found = gap(Work("filler", asked(ONE), S))
    assert starts(found["large"]) == [100]
    assert starts(found["filler"]) == [110]


@dataclass(eq=False)
class Length:
    """A function, as far as its length is concerned."""

    may_take_us: int


@pytest.mark.parametrize(
    ("may_take_us", "end_us"), [([5, 100], 115), ([0, 100], 110), ([-1, 100], 50), ([100, -1], 50), ([5], 50)]
)
def test_an_executor_ends_after_all_that_it_has_in_hand_and_any_time_if_one_call_is_unknown(
    may_take_us: list[int], end_us: int
) -> None:
    tasks = {index: SimpleNamespace(function=Length(us)) for index, us in enumerate(may_take_us)}
    assert backfill.ends_us(cast(Any, SimpleNamespace(progress_us=10, assigned=tasks)), {}, now=50) == end_us


def queue_of(may_take_us: int | None, takes_us: int = NOTHING) -> Any:
    """A queue whose function may take this long; None: it has no estimate of that."""
    function = SimpleNamespace(may_take_us=may_take_us)
    return SimpleNamespace(is_timed=may_take_us is not None, function=function, takes_us=takes_us)


def family_of(queue: SimpleNamespace, *reserved: SimpleNamespace) -> SimpleNamespace:
    """A family of one queue that waits."""
    return SimpleNamespace(has_limits=False, by_order=[queue], reserved=reserved, request=None)


def test_the_next_call_of_a_queue_takes_as_long_as_its_function_may() -> None:
    for known_us, takes_us in [(0, 0), (7, 7), (-1, NOTHING)]:
        queue = queue_of(known_us)
        backfill.look_again(cast(Any, SimpleNamespace(waiting=[family_of(queue)], freed=False)), 50)
        assert queue.takes_us == takes_us


@pytest.mark.parametrize(
    ("known_us", "begins_in_us", "is_served"), [(7, 0, True), (9, 10, False), (9, 0, True), (10, 10, False)]
)
def test_what_waits_is_served_again_where_there_is_more_room_before_a_claimant(
    known_us: int, begins_in_us: int, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "comes_free_in_us", lambda source, request, now: 10)
    source = SimpleNamespace(begins_in_us=begins_in_us)
    large = family_of(queue_of(None), source)
    small = family_of(queue_of(known_us, takes_us=9))
    state = cast(Any, SimpleNamespace(waiting=[small, large], freed=False))
    backfill.look_again(state, 50)
    assert state.freed == is_served
    assert source.begins_in_us == 10


def test_a_measured_duration_counts_as_much_as_a_stated_one() -> None:
    long, measured = timed("long", ONE, 200), Work("measured", asked(ONE), 30 * S)
    found = run([Shape(4)], [long, measured, *[timed("short", ONE, 40)] * 2], [LARGE, *[measured] * 3])
    assert starts(found["large"]) == [200]
    assert starts(found["measured"]) == [0, 30, 40, 40]


def test_a_reservation_is_for_the_node_that_is_free_first() -> None:
    begin = [timed("long", Shape(4), 100), timed("short", Shape(4), 20)]
    found = run([Shape(4), Shape(4)], [*begin, LARGE, *[timed("filler", ONE, 50)] * 4])
    assert starts(found["large"]) == [20]


@pytest.mark.parametrize("takes_s", [15, 100, 1000])
def test_a_large_call_is_served_in_the_end_while_small_ones_of_unknown_length_come_and_come(takes_s: int) -> None:
    """At most so long after it was submitted: about eight times as long as they take."""
    small = Work("small", asked(ONE), takes_s * S)
    nodes, most = [Shape(2)], 8 * takes_s * S + 4 * RESERVATION_US

    def ended(ran: Ran) -> None:
        if cluster.now < 3 * most:
            cluster.submit([small])

    cluster = VirtualCluster(nodes, ended)
    cluster.submit([Work("first", asked(ONE), 1 * S), small])
    cluster.submit([small] * 4 + [Work("large", asked(Shape(2)), S)] + [small] * 4)
    large = next(ran for ran in cluster.run() if ran.work.name == "large")
    assert large.start_us <= most


# Paths and priorities


def test_the_longest_path_goes_first() -> None:
    works = [timed(f"path {path}", ONE, 1, path_us=path * S) for path in (1, 8, 4, 2)]
    found = run([ONE], [timed("begin", ONE, 1)], works)
    assert sorted(found, key=lambda name: found[name][0].start_us) == ["begin", "path 8", "path 4", "path 2", "path 1"]


def test_priority_goes_before_the_longest_path() -> None:
    low, high = timed("low", ONE, 1, path_us=100 * S), timed("high", ONE, 1, path_us=1, priority=1)
    found = run([ONE], [timed("begin", ONE, 1)], [low, high])
    assert starts(found["high"]) == [1]
    assert starts(found["low"]) == [2]


def test_nothing_of_a_lower_priority_starts_while_a_higher_one_waits() -> None:
    works = [timed(f"priority {number % 4}", ONE, 1 + number % 7, priority=number % 4) for number in range(200)]
    cluster = VirtualCluster([Shape(4), Shape(4)])
    cluster.submit(works)
    rans = cluster.run()
    for ran in rans:
        later = [one.work.asked.priority for one in rans if one.start_us > ran.start_us]
        assert max(later, default=0) <= ran.work.asked.priority


# Accounts


def test_accounts_share_by_their_weights() -> None:
    two = [Work(name, asked(ONE, account=(name, weight, 0)), S) for name, weight in (("a", 1), ("b", 3))]
    works = two * 300
    found = run([Shape(8)], works)
    end_us = max(ran.end_us for ran in found["b"])
    ratio = len(found["b"]) / sum(ran.end_us <= end_us for ran in found["a"])
    assert 2.8 <= ratio <= 3.2, "while both have work"
    assert max(ran.end_us for ran in found["a"]) == 600 / 8 * S, "and no CPU idles"


def test_an_account_that_wants_gpus_and_one_that_wants_cpus_do_not_hold_up_each_other() -> None:
    """What counts is the largest share of a resource: half of the GPUs is as much as half of the CPUs."""
    works = []
    for _ in range(100):
        works.append(Work("gpus", asked(Shape(1, 1), account=("gpus", 1, 0)), S))
        works.append(Work("cpus", asked(ONE, account=("cpus", 1, 0)), S))
    found = run([Shape(16, 4)], works)
    assert max(ran.end_us for ran in found["gpus"]) <= 28 * S, "25 s is the least"


def test_no_more_calls_of_an_account_run_than_may() -> None:
    few, others = Work("few", asked(ONE, account=("few", 1, 3)), S), Work("others", asked(ONE), S)
    found = run([Shape(8)], [few] * 12 + [others] * 20)
    for ran in found["few"]:
        assert sum(one.start_us <= ran.start_us < one.end_us for one in found["few"]) <= 3
    assert max(ran.end_us for ran in found["others"]) <= 4 * S, "those without an account go first"
    assert max(ran.end_us for ran in found["few"]) <= 7 * S


# Makespans


def test_makespans_are_within_a_tenth_of_the_bound_where_first_come_first_served_is_far_off() -> None:
    rows = [(bound_us(one), ours_us(one), first_come_us(one)) for one in all_workloads()]
    ours = sum(own / bound for bound, own, _ in rows) / len(rows)
    first_come = sum(other / bound for bound, _, other in rows) / len(rows)
    assert ours <= 1.10
    assert first_come >= 1.30
    assert all(own >= bound for bound, own, _ in rows), "the bound is one"

"""Many time limits: what starts is what one would start who tries every queue, and few queues are tried."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.dispatch import queues
from mpi_runtime.scheduler.records.records import Family
from mpi_runtime.scheduler.records.state import State
from mpi_runtime.whatif.virtual_cluster import Ran, Shape, VirtualCluster, Work, asked
from tests.checks import executors as invariants

S = 1_000_000
NODE = Shape(8, 2, 64 << 30)
SHAPES = [Shape(1), Shape(4), Shape(1, 1), Shape(2, 0, 16 << 30), Shape(8), Shape(0, 0.5)]
OPEN = ("", 1.0, 0)
ACCOUNTS = [("a", 1.0, 0), ("b", 3.0, 5)]


def works(seed: int, count: int, limits: int, accounts: bool = False) -> list[Work]:
    """Calls of all shapes: as many limits as stated, most of them longer than what is done."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        limit_us = dice.randrange(1, limits + 1) * 600 * S // limits
        done_us = round(limit_us * dice.choice([1, 1, 0.7, 0.1]))
        account = dice.choice(ACCOUNTS) if accounts else OPEN
        stated_us = limit_us if dice.random() < 0.9 else 0
        found.append(Work("call", asked(dice.choice(SHAPES), stated_us, dice.randrange(2), account), done_us))
    return found


def starts(nodes: int, batches: list[list[Work]]) -> list[tuple[Work, int, int]]:
    """Which call began where and when. Each batch is submitted two minutes after the one before."""
    cluster = VirtualCluster([NODE] * nodes)
    for number, batch in enumerate(batches):
        cluster.later(120 * S * number, lambda batch=batch: cluster.submit(batch))  # type: ignore[misc]
    rans: list[Ran] = cluster.run()
    return [(ran.work, ran.node, ran.start_us) for ran in rans]


def try_all(self: queues.Turns, family: Family) -> None:
    """As `Turns.begin`, by one who skips nothing."""
    for queue in family.by_order:
        self.push(queue)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_starts_as_if_every_queue_were_tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [works(10 * seed + part, 60, (5, 1000)[seed % 2]) for part in range(3)]
    found = starts(2 + seed, batches)
    monkeypatch.setattr(queues.Turns, "begin", try_all)
    assert found == starts(2 + seed, batches)
    assert len(found) == 180


@pytest.mark.parametrize("accounts", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_waits_that_could_start(seed: int, accounts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = core.Scheduler.decide
    checked = 0

    def decide_and_check(self: core.Scheduler, now: int) -> object:
        nonlocal checked
        effects = decide(self, now)
        invariants.check(self.state)
        checked += 1
        return effects

    monkeypatch.setattr(core.Scheduler, "decide", decide_and_check)
    starts(3, [works(seed + part, 40, (5, 1000)[seed % 2], accounts) for part in (0, 100)])
    assert checked > 50


def count_calls(counts: Counter[str], name: str, function: Callable[..., object]) -> Callable[..., object]:
    def counted(*args: object) -> object:
        counts[name] += 1
        return function(*args)

    return counted


def work_for(count: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How much is looked at for so many calls, each with a time limit of its own."""
    counts: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for module, name in [(core, "serve"), (queues, "longest_us")]:
            patch.setattr(module, name, count_calls(counts, name, getattr(module, name)))
        sources = core.dispatch.reserve.__globals__["sources"]
        patch.setitem(core.dispatch.reserve.__globals__, "sources", count_calls(counts, "sources", sources))
        starts(5, [works(3, count, 1 << 20)])
    return counts


def test_many_time_limits_cost_each_call_as_little_as_few_do(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = work_for(200, monkeypatch), work_for(800, monkeypatch)
    for name in ("serve", "longest_us", "sources"):
        assert 0 < many[name] <= 1.5 * 4 * few[name], (name, few, many)


def test_one_source_is_kept_for_the_first_call_whatever_the_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    look_again = core.backfill.look_again

    def count_kept(state: State, now: int) -> None:
        kept.append(sum(node.reserved_for is not None for node in state.nodes.values()))
        look_again(state, now)

    monkeypatch.setattr(core.backfill, "look_again", count_kept)
    small = [Work("small", asked(Shape(1), 50 * S), 50 * S) for _ in range(80)]
    large = [Work("large", asked(Shape(8), (100 + number) * S), 100 * S) for number in range(20)]
    found = starts(5, [small, large])
    assert max(kept) == 1
    times = [at for work, _, at in found if work.name == "large"]
    assert len(times) == 20
    order = sorted(found, key=lambda one: (one[2], one[0].asked.time_limit or 0.0))
    assert [one[0] for one in order if one[0].name == "large"] == large

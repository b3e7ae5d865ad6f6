"""Several drivers in virtual time: seeds, a floor on what they explore, and bugs that are planted and found."""

from collections import Counter
from collections.abc import Callable

import pytest

from mpi_runtime.scheduler.protocol.effects import Fetch, ReadyError, StopFetch
from tests.simulation.drivers.planted import BUGS
from tests.simulation.drivers.run import FailedError, simulate
from tests.simulation.drivers.world import CANCELLED, Made, World

SEEDS = 48
FLOORS = {
    "drivers": 180, "kills of drivers": 70, "drivers with views": 12, "drivers that left something detached": 60,
    "detached actors": 100, "detached groups": 28, "OwnerDiedError": 40, "ActorDiedError": 100, "taken back": 1000,
    "deaths": 18, "copies": 15, "fair": 6, "runs": 5000,
}  # fmt: skip
FIRST: dict[str, int] = {}
"""For bugs that other seeds do not show: the first that does."""


@pytest.mark.timeout(600)
def test_what_belongs_to_a_driver_ends_with_it_and_nothing_else_does() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += simulate(seed)
    assert {name: total[name] for name, least in FLOORS.items() if total[name] < least} == {}


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate(3) == simulate(3)


# What no seed above reaches


def test_memory_may_be_free_under_a_copy_that_the_head_has_stopped() -> None:
    world, order = World(0, hosts=2, cpus=1), Fetch(b"object" + bytes(10), 1, 64, 8, order=5)
    agent = world.agents[0]
    agent.note(order)
    agent.obey(order)
    with pytest.raises(AssertionError, match="memory that is free"):
        world.run(lambda: False, 100_000)
    agent.obey(order)
    agent.note(StopFetch(order.id))
    assert world.run(lambda: world.counters["copies too late"] == 1, 200_000)


def test_only_what_may_end_is_cancelled_before_it_begins() -> None:
    world = World(0, hosts=1, cpus=1)
    world.made[b"parent"] = Made(1, 1, is_actor=True)
    world.made[b"call"] = Made(1, 1, parent=b"parent")
    with pytest.raises(AssertionError, match="is cancelled"):
        world.check_value(b"call", ReadyError(b"call", CANCELLED), 0)
    world.made[b"parent"].has_died = True
    world.check_value(b"call", ReadyError(b"call", CANCELLED), 0)
    with pytest.raises(AssertionError, match="is cancelled"):
        world.check_value(b"call", ReadyError(b"call", b"another error"), 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    first = FIRST.get(bug.__name__, 0)

    def all_seeds() -> None:
        for seed in range(first, first + 20):
            simulate(seed)

    with pytest.raises(FailedError, match="seed"):
        all_seeds()

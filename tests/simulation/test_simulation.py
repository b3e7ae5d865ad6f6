"""Fixed seeds, and a floor on what they explore: a simulation that meets no faults finds none."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.helpers import ROOT
from tests.simulation.options import large_options, random_options
from tests.simulation.run import Result, simulate

SEEDS = range(120)
FLOORS = {
    "runs": 2000, "forks": 500, "deaths": 60, "blocks": 400, "take backs": 50, "calls taken back": 100, "fetches": 60,
    "batched results": 40, "stops": 150, "kills": 3, "refused": 4, "spoilt": 15, "groups removed": 10, "removals": 10,
    "cancels": 120, "cancelled": 50, "interrupts": 15, "refusals of cancelled calls": 4, "kills of cancelled calls": 4,
    "calls beside others": 80, "deaths with several calls": 8, "items": 200, "items again": 15, "back-pressure": 100,
    "streams given up": 20, "killers": 30, "ends that were not told": 5,
    "GPUs of a type": 60, "shares of described GPUs": 30, "bytes of GPUs": 60, "several described GPUs": 13,
    "GPUs that not all ranks can use": 10, "faults of GPUs": 20, "quarantines": 10, "instances of MIG": 5,
    "exclusive GPUs": 10,
    "calls held back": 30, "calls of actors held back": 2, "calls of actors that say how long": 20,
}  # fmt: skip


@cache
def result(seed: int) -> Result:
    return simulate(random_options(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_world_goes_well(seed: int) -> None:
    assert result(seed).counters["runs"] > 0


@pytest.mark.timeout(300)
def test_the_seeds_explore_enough() -> None:
    counters: Counter[str] = Counter()
    for seed in SEEDS:
        counters.update(result(seed).counters)
    assert {name: counters[name] for name, floor in FLOORS.items() if counters[name] < floor} == {}


def test_the_same_seed_makes_the_same_run() -> None:
    assert simulate(random_options(3)) == simulate(random_options(3))
    assert simulate(random_options(3)).trace != simulate(random_options(4)).trace


def test_no_decision_hangs_on_the_order_of_a_set() -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--seeds", "0:5", "-v"]
    printed = {
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert "trace" in printed.pop()


def test_nothing_is_started_that_cannot_end_before_the_job_does() -> None:
    counters: Counter[str] = Counter()
    for seed in SEEDS[::2]:
        counters.update(simulate(replace(random_options(seed), end_us=60_000)).counters)
    assert counters["calls held back"] > 50
    assert counters["calls of actors held back"] > 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2])
def test_a_large_world_goes_well(seed: int) -> None:
    counters = simulate(large_options(seed)).counters
    assert counters["runs"] > 20_000
    assert counters["deaths"] > 5

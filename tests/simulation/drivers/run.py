"""Run simulations of several drivers: `python -m tests.simulation.drivers.run [--seed N | --seeds A:B] [-v]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from mpi_runtime.scheduler.protocol.events import ActorSpec, MethodSpec, TaskSpec
from tests.simulation.drivers.processes import Driver, Executor, Program
from tests.simulation.drivers.world import GONE_US, SLOW_US, World
from tests.simulation.require import require

DRIVERS_MAX = 9
HOUR_US = 3_600_000_000
FAIR = 0.7
"""The least part of an equal share that a driver with waiting calls gets."""


class FailedError(AssertionError):
    """A simulation went wrong. The text says how."""


def simulate(seed: int) -> Counter[str]:
    """Run one simulation.

    Raises:
        FailedError: the scheduler did something wrong, or nothing any more.
    """
    world = World(seed, hosts=1 + seed % 2, cpus=3 + seed % 3)
    world.new_executor = Executor
    try:
        KINDS.get(seed % 6, busy)(world)
    except Exception as error:
        last = "\n  ".join(one[:300] for one in world.last)
        text = f"seed {seed}: {type(error).__name__}: {error}\nat {world.now} us; the last messages:\n  {last}"
        raise FailedError(text) from error
    return world.counters


def busy(world: World) -> None:
    """Drivers come and go, with all that they may have."""
    rng = world.rng
    to_come = rng.randint(3, DRIVERS_MAX)
    for _ in range(to_come):
        world.at(rng.randint(0, 3_000_000), lambda: begin(world, program))
    see_off(world, to_come)


def see_off(world: World, to_come: int) -> None:
    """Let all drivers come and leave, end what they have detached, and look for what is left."""
    world.run(lambda: world.counters["drivers"] == to_come, HOUR_US)
    require(world.counters["drivers"] == to_come, f"drivers wait for ever: {why_stuck(world)}")
    world.run(lambda: False, world.now + GONE_US + 5_000_000)
    for id, made in list(world.made.items()):
        if made.is_actor and not made.owner:
            world.end_detached(id)
    world.run(lambda: False, world.now + 2 * GONE_US)
    problems = world.left_over()
    require(not problems, f"left when all had left: {'; '.join(problems)}")


def begin(world: World, what_it_does: Callable[[Driver], Program]) -> None:
    """A driver joins."""
    Driver(world, what_it_does)


def program(driver: Driver) -> Program:
    """What a driver does until it leaves, is killed, or has nothing more to do."""
    rng, world = driver.rng, driver.world
    if rng.random() < 0.5:
        world.counters["kills of drivers"] += 1
        world.at(rng.choice((100, 5_000, 100_000, 2_000_000)), driver.leave)
    for _ in range(rng.randint(5, 60)):
        if len(world.made) > world.most:
            break
        chance = rng.random()
        if chance < 0.6:
            driver.submit()
        elif chance < 0.7:
            driver.put()
        elif chance < 0.8:
            driver.share()
        elif chance < 0.85:
            driver.group()
        elif chance < 0.93:
            driver.drop()
        elif driver.refs:
            wanted = [id for id in driver.refs if not world.made[id].is_value]
            if wanted:
                yield rng.sample(wanted, 1)
        if rng.random() < 0.3:
            yield rng.choice((10, 1_000, 50_000))


def crowd(world: World) -> None:
    """Drivers send many calls ahead to an actor of one of them, over slow lines, and leave while it has them."""
    world.line_us = SLOW_US
    rng = world.rng
    guests = rng.randint(3, DRIVERS_MAX)
    shared: list[bytes] = []

    def host(driver: Driver) -> Program:
        shared.append(driver.call(driver.spec(ActorSpec(0), 1), ()))
        yield shared
        for _ in range(100):
            call(driver)
            yield rng.choice((1_000, 20_000))
        world.at(1_000_000, driver.leave)
        yield HOUR_US

    def guest(driver: Driver) -> Program:
        driver.take(shared[0])
        for _ in range(rng.randint(2, 10)):
            call(driver)
            yield rng.choice((10, 5_000))

    def call(driver: Driver) -> None:
        driver.call(driver.spec(MethodSpec(), 0), (), actor=shared[0])

    Driver(world, host)
    for _ in range(guests):
        world.at(rng.randint(50_000, 1_000_000), lambda: begin(world, guest))
    see_off(world, 1 + guests)


def calm(world: World) -> None:
    """Drivers with more calls than there is room for: each gets its share."""
    world.is_calm = True
    rng = world.rng
    world.durations = (20_000, 40_000)
    count = 2 + world.rng.randrange(2)

    def flood(driver: Driver) -> Program:
        number = len(world.drivers)
        if number == 1:  # actors that hold nothing when they are created
            made = [driver.call(driver.spec(ActorSpec(0), 1), ()) for _ in range(20)]
            yield made
        for _ in range(500):
            spec = driver.spec(TaskSpec(), 1, priority=number if number % 2 else 0, max_retries=-1)
            driver.call(spec, ())
        yield HOUR_US

    drivers: list[Any] = []
    for index in range(count):
        world.at(index * rng.randint(0, 300_000), lambda: drivers.append(Driver(world, flood)))
    world.run(lambda: len(drivers) == count, 2_000_000)
    world.run(lambda: all(driver.count >= 500 for driver in drivers), 2_000_000)
    world.run(lambda: False, world.now + 200_000)
    used: Counter[int] = Counter()

    def look() -> None:
        for agent in world.agents.values():
            used.update(one.home for one in agent.executors.values() if one.running is not None)
        world.at(5_000, look)

    look()
    world.run(lambda: False, world.now + 1_500_000)
    waiting = {
        one.function.driver.number for one in world.scheduler.state.queues.values() if one.ready and one.function.driver
    }
    require(len(waiting) == count, "a flood was too small")
    least, whole = min(used[driver.number] for driver in drivers), sum(used.values())
    require(least > FAIR * whole / count, f"of {whole} samples drivers have {dict(used)}")
    world.counters["fair"] += 1
    for driver in drivers:
        driver.leave()
    world.run(lambda: False, world.now + GONE_US)
    problems = world.left_over()
    require(not problems, f"left when all had left: {'; '.join(problems)}")


KINDS = {1: crowd, 5: calm}
"""Kinds of simulations, by the remainder of the seed. Others are busy."""


def why_stuck(world: World) -> str:
    """What drivers wait for."""
    waits = {
        driver.number: [id.hex() for id in driver.waits] for driver in world.drivers.values() if not driver.has_left
    }
    return f"{waits}"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drivers.run")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:100", help="from A up to B: A:B")
    parser.add_argument("-v", "--verbose", action="store_true")
    chosen = parser.parse_args(arguments)
    first, last = (int(part) for part in chosen.seeds.split(":"))
    seeds = range(first, last) if chosen.seed is None else range(chosen.seed, chosen.seed + 1)
    total: Counter[str] = Counter()
    failed, start_s = 0, time.perf_counter()
    for seed in seeds:
        try:
            found = simulate(seed)
        except FailedError as error:
            failed += 1
            print(error, flush=True)
            continue
        total += found
        if chosen.verbose:
            print(f"seed {seed}: {dict(sorted(found.items()))}")
    print(f"{len(seeds)} seeds, {failed} failed; {dict(sorted(total.items()))}")
    print(f"in {time.perf_counter() - start_s:.1f} s", file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())

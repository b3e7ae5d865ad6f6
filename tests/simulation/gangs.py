"""Calls on gangs beside small calls, with the real scheduler and virtual agents, in a world of their own.

Members die, raise while others wait for them for ever, are cancelled, and lose their rank. The checks look from
outside: at what is sent, at what processes use, and at what the driver gets. The same seed makes the same run.

    .venv/bin/python -m tests.simulation.gangs --seeds 0:200
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import msgspec

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import (
    STREAMING,
    ActorSpec,
    GangSpec,
    Spec,
    TaskSpec,
    Where,
)
from tests.simulation.gang_nodes import World
from tests.simulation.options import UNIT
from tests.simulation.require import require

LIMIT_US = 2_000_000_000
"""By then all calls have ended: many times what they need one after the other."""
SETTLE_US = 60_000_000
"""By then gangs that idle have been ended."""


def spec_of(world: World, number: int) -> Spec:
    """A function: most are small, the others run on gangs that fit into the hosts."""
    rng = world.rng
    retries = rng.choice((0, 1, 3))
    if rng.random() < 0.5:
        small = Request(rng.choice((UNIT // 2, UNIT)))
        return Spec(number, TaskSpec(), f"small{number}", b"code", small, max_retries=retries)
    own = rng.choice((UNIT // 2, UNIT, UNIT))
    most = sum(cpu // own for cpu in world.cpus.values())
    ranks = rng.randint(1, max(1, min(6, most)))
    spread = Where(spread=True) if rng.random() < 0.3 else None
    gang = GangSpec(ranks, reuse=rng.random() < 0.8)
    return Spec(
        number, TaskSpec(), f"gang{number}", b"code", Request(own), max_retries=retries, gang=gang, where=spread,
        priority=rng.choice((0, 0, 1)), num_returns=rng.choice((1, 1, STREAMING)),
    )  # fmt: skip


def simulate(seed: int, check_inside: bool = True) -> Counter[str]:
    """Run one world to its end, and check that nothing is left.

    Raises:
        WrongError: the scheduler has done what it must not, or leaves something undone.
    """
    world = World(seed, check_inside)
    rng = world.rng
    world.decide()
    functions = [spec_of(world, number + 1) for number in range(rng.choice((2, 4, 8)))]
    for _ in range(rng.choice((5, 20, 60))):
        spec = rng.choice(functions)

        def submit(spec: Spec = spec) -> None:
            id = world.submit(spec)
            if rng.random() < 0.1:
                world.at(rng.choice((0, 3_000, 500_000)), lambda: world.cancel(id, rng.random() < 0.3))

        world.at(rng.choice((0, 1_000, 1_000_000)), submit)
    gangs = [spec for spec in functions if spec.ranks]
    for spec in gangs[: rng.choice((0, 1, 2))]:
        actor = msgspec.structs.replace(
            spec,
            id=spec.id + 100,
            kind=ActorSpec(spec.asks.cpu, spec.max_retries),
            max_retries=0,
            num_returns=1,
        )
        world.at(rng.choice((0, 500_000)), lambda actor=actor: world.act(actor))  # type: ignore[misc]
    if len(world.ranks) > 1 and rng.random() < 0.3:
        rank = rng.choice(world.ranks).rank
        world.at(rng.randint(0, 2_000_000), lambda: world.lose(rank))
    world.at(1_000_001, lambda: None)  # all calls have been submitted
    world.run(lambda: world.now > 1_000_000, LIMIT_US)
    over = world.run(lambda: len(world.got) == len(world.submitted), LIMIT_US)
    missing = [spec.name for id, spec in world.submitted.items() if not world.got[id]]
    require(over, f"calls never end: {missing}")
    world.run(lambda: False, world.now + SETTLE_US)
    check_end(world)
    world.counters["calls"] += len(world.submitted)
    world.counters["calls on gangs"] += sum(spec.ranks > 0 for spec in world.submitted.values())
    return world.counters


def check_end(world: World) -> None:
    """Nothing is used, held or running."""
    state = world.scheduler.state
    for node in state.nodes.values():
        require(node.free == node.total, f"node {node.number} has {node.free} of {node.total}")
        require(node.reserved_for is None, f"node {node.number} is reserved for nothing")
    alive = [process.number for process in world.processes.values() if process.alive and process.gang]
    require(not alive, f"members live on: {alive}")
    require(not state.objects and not state.waiting and not state.idle_gangs, "something is remembered")
    ended = state.finished + state.failed
    require(state.submitted == ended, f"{state.submitted} submitted, {ended} ended")


def attempt(seed: int, check_inside: bool = True) -> tuple[Counter[str], str]:
    """Run one world. Returns what it has explored, and what was wrong; empty: nothing."""
    try:
        return simulate(seed, check_inside), ""
    except Exception as error:
        return Counter(), f"{type(error).__name__}: {error}"


def main(arguments: list[str] | None = None) -> int:
    """Run seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.gangs")
    parser.add_argument("--seeds", default="0:100", help="from A up to B: A:B")
    first, last = map(int, parser.parse_args(arguments).seeds.split(":"))
    counters: Counter[str] = Counter()
    failed = 0
    for seed in range(first, last):
        found, problem = attempt(seed)
        counters.update(found)
        if problem:
            failed += 1
            print(f"seed {seed} FAILED: {problem}", flush=True)
    print(f"{last - first} seeds, {failed} failed; {dict(sorted(counters.items()))}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())

"""Run simulations: `python -m tests.simulation.run [--seed N | --seeds A:B | --random N] [--hosts N --calls N]
[--first] [-v]`.

Each seed makes one cluster, one program and one course of faults; the same seed makes the same run, message by message.
Prints one line for all, or for each seed with -v; for a seed that fails what was wrong, the last messages, and the
command that repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from mpi_runtime.core.transport import codec
from mpi_runtime.scheduler import core
from mpi_runtime.scheduler.actors import calls as actor_calls
from mpi_runtime.scheduler.answers import why_waiting
from mpi_runtime.scheduler.dispatch import deadline
from mpi_runtime.scheduler.losses import cancel, time_limits
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.rank_events import JobBegan
from mpi_runtime.scheduler.values import spreading
from tests.simulation import losses, quality
from tests.simulation.agents import Agent, plan_kills
from tests.simulation.checkers import Checker
from tests.simulation.custodians import VirtualLines, custodian
from tests.simulation.driver import Driver
from tests.simulation.grouped import write
from tests.simulation.journals import ANNOUNCED_US, CutError, journal_options
from tests.simulation.options import (
    UNIT,
    Options,
    calm_options,
    dropping_options,
    large_options,
    link_options,
    losing_options,
    random_options,
    spilling_options,
    tree_options,
)
from tests.simulation.require import WrongError
from tests.simulation.steps import ACTOR, GATHER_US, TASK, Function
from tests.simulation.world import Head, World, joined

LIMIT_US = 900_000_000
"""Virtual time in which everything must have ended: many times what the slowest program needs when run serially."""
SETTLE_US = 120_000_000
"""Virtual time after the driver's end in which all calls that nobody looks at must end, and all memory be freed."""
IDLE_US = 30_000_000
"""By then the executors that idle have been stopped."""


class FailedError(AssertionError):
    """A simulation went wrong. The text says how, and how to repeat it."""


@dataclass
class Result:
    """What one simulation explored."""

    trace: int
    """Hash of all messages with their times."""
    counters: Counter[str]
    happened: int


def simulate(options: Options) -> Result:
    """Run one simulation.

    Raises:
        FailedError: the scheduler did something wrong, or nothing any more.
    """
    world = World(options)
    play(world)
    return Result(world.trace, world.counters, world.happened)


def simulate_again(seed: int) -> Result:
    """Run one simulation with a journal, cut it, and run its program again until it is at its end.

    Raises:
        FailedError: something went wrong, or nothing any more.
    """
    options, again, cut_us = journal_options(seed)
    first, second = World(options), World(again)
    first.at(cut_us, cut)
    if seed % 3 == 0:
        assert first.journal is not None
        first.journal.announced_us = max(1, cut_us - ANNOUNCED_US)
    with contextlib.suppress(CutError):
        play(first)
    assert first.journal is not None
    assert second.journal is not None
    second.journal.begin(first.journal)
    second.counters["recorded"] += len(first.journal.own)
    play(second)
    return Result(second.trace, second.counters, second.happened)


def cut() -> None:
    """The job is killed."""
    raise CutError


@contextlib.contextmanager
def limits(options: Options) -> Iterator[None]:
    """With the limits of the scheduler that a world has."""
    calls_max, actor_calls.ACTOR_CALLS_MAX = actor_calls.ACTOR_CALLS_MAX, options.actor_calls_max
    grace_us, cancel.INTERRUPT_GRACE_US = time_limits.INTERRUPT_GRACE_US, options.grace_us
    time_limits.INTERRUPT_GRACE_US = options.grace_us
    sizes = spreading.SHARED_BYTES, spreading.PIPELINED_BYTES, spreading.HOP_BYTES
    if options.part_bytes:
        spreading.SHARED_BYTES = spreading.PIPELINED_BYTES = options.part_bytes
        spreading.HOP_BYTES = options.part_bytes // 2
    long_us, core.LONG_US, deadline.LONG_US = core.LONG_US, options.long_us, options.long_us
    try:
        yield
    finally:
        actor_calls.ACTOR_CALLS_MAX = calls_max
        spreading.SHARED_BYTES, spreading.PIPELINED_BYTES, spreading.HOP_BYTES = sizes
        core.LONG_US = deadline.LONG_US = long_us
        cancel.INTERRUPT_GRACE_US = time_limits.INTERRUPT_GRACE_US = grace_us


def play(world: World) -> None:
    """Let everything happen in a world."""
    try:
        with limits(world.options):
            _play(world, Head(world))
    except Exception as error:
        last = "\n  ".join(f"{at_us:>9} {sender}: {messages}"[:400] for at_us, sender, messages in world.last)
        raise FailedError(
            f"{type(error).__name__}: {error}\nat {world.now} us; the last messages:\n  {last}\n"
            f"repeat with: python -m tests.simulation.run --seed {world.options.seed} {world.options.kind} -v"
        ) from error


def _play(world: World, head: Head) -> None:
    options = world.options
    events = joined(options)
    work = write(options)
    if options.accounts:
        work.functions = [with_account(function, options.accounts) for function in work.functions]
    if options.alternatives:
        work.functions = [with_alternatives(function, options) for function in work.functions]
    if options.end_us:
        work.functions = [timed(function, options.end_us) for function in work.functions]
        world.at(options.end_us, head.put_off_end)
    if options.limit_us:
        work.functions = [limited(function, options.limit_us) for function in work.functions]
    world.checker = Checker(world, work, events)
    agents: dict[int, Agent] = {}
    for event in events:
        agents[event.rank] = Agent(world, head, event.rank, event.host, agents)
        for decoded in codec.between_ranks.decode(codec.encode([event])):
            head.scheduler.handle_rank(decoded, 0)  # type: ignore[arg-type]
    journal = world.journal
    recalls = journal is not None and bool(journal.earlier)
    began = JobBegan(None, journal is not None, recalls, options.survives_losses)
    head.scheduler.handle_rank(began, 0)
    head.custodian = custodian(agents[0], head.hear_direct)
    if options.direct_lines:
        head.direct = VirtualLines(world, head, agents)
    driver = Driver(world, head, agents[0])
    losses.plan(world, head, agents)
    plan_kills(world, agents)
    world.at(0, driver.start)
    if journal is not None and journal.announced_us:
        world.at(journal.announced_us, head.announce_end)
    if not world.run(lambda: driver.finished, LIMIT_US):
        if head.scheduler.state.is_ending:  # what is left is for the next run
            raise CutError
        raise WrongError(why_stuck(head, driver))
    for settle_us in (SETTLE_US, IDLE_US):  # nothing is left, and nothing comes back when executors that idle go
        world.run(lambda: False, world.now + settle_us)
        problems = left_over(head, agents) + driver.left_over()
        if problems:
            raise WrongError("left when all had ended: " + "; ".join(problems))
    world.counters["calls abandoned"] += head.scheduler.state.totals.abandoned
    world.checker.finish()
    assert world.counters["runs"] == sum(world.checker.runs.values())


def with_account(function: Function, accounts: int) -> Function:
    """A task, on one of so many accounts or on nobody's."""
    number = function.number % (accounts + 1)
    if function.kind != TASK:
        return function
    function = replace(
        function,
        path_us=1000 << function.number % 4,
        time_limit_us=(20_000 + 100 * function.number) * (function.number % 2),
        expect_us=5_000 * (function.number % 4 == 1),
        gather_us=GATHER_US * (function.number % 3 == 0),
    )
    if number == accounts:
        return function
    return replace(function, account=f"account{number}", weight=1.0 + number, account_limit=2 * (not number))


def with_alternatives(function: Function, options: Options) -> Function:
    """A task; if it may run anywhere and is one of three, with one alternative, or one more that no host has."""
    is_free = function.kind == TASK and function.feasible and not (function.spread or function.node or function.zone)
    if not is_free or function.number % 3:
        return function
    found = [Request(cpu=UNIT // 2 if function.number % 2 else 0)]
    if function.memory or function.custom or function.gpu:  # it waits for nothing: what it has nobody needs meanwhile
        shape = options.hosts[function.number % len(options.hosts)]
        custom = tuple(sorted(shape.custom.items()))[: function.number % 2]
        found = [Request(cpu=found[0].cpu, memory=shape.memory // 2, custom=custom)]
    if function.number % 6 == 0:
        found.insert(0, Request(cpu=1000 * UNIT))
    return replace(function, alternatives=tuple(found))


def limited(function: Function, limit_us: int) -> Function:
    """Some functions, with a time limit that is enforced."""
    if function.kind == ACTOR or function.number % 3:
        return function
    limit_us = function.time_limit_us or limit_us
    again = function.retry_exceptions and function.max_retries >= 0 and function.number % 2 == 0
    return replace(function, time_limit_us=limit_us, enforces_limit=True, retries_timeouts=again)


def timed(function: Function, end_us: int) -> Function:
    """The function; if it is every other task or method, one that says that it takes a good part of the job's time.

    Every fourth task has a limit beyond the job's time, and is expected to be short: it runs all the same.
    """
    if function.kind == TASK and function.number % 4 == 3:
        return replace(function, time_limit_us=2 * end_us, expect_us=end_us // 8)
    return replace(function, time_limit_us=end_us // 2) if function.kind != ACTOR and function.number % 2 else function


def why_stuck(head: Head, driver: Driver) -> str:
    """What the scheduler itself says about what the driver waits for."""
    state = head.scheduler.state
    ids = driver.pause.ids if driver.pause is not None else ()
    answers = [f"{id.hex()}: {why_waiting.explain(state, id, head.world.now)}" for id in ids if id not in driver.values]
    answers += [
        f"{task.id.hex()}: {why_waiting.explain(state, task.id, head.world.now)}"
        for found in state.objects.values()
        if (task := found.task) is not None
    ][:10]
    return "the driver waits for ever: " + "; ".join(answers)


def left_over(head: Head, agents: dict[int, Agent]) -> list[str]:
    """What is still there, in the scheduler and outside."""
    state = head.scheduler.state
    problems = [f"object {id.hex()} with {found.references} references" for id, found in state.objects.items()]
    problems += [f"actor {id.hex()}" for id in state.actors]
    problems += [f"placement group {id.hex()}" for id in (*state.groups, *state.waiting_groups)]
    problems += [f"name {key} of a placement group" for key in state.group_names]
    problems += [f"extent {place}" for place in state.extents]
    problems += [f"part of a file {place}" for place in state.spilling.on_disk]
    problems += [f"written object {id.hex()}" for room in state.spilling.rooms.values() for id in room.writing]
    problems += [f"fetch {id.hex()} to {sorted(fetches)}" for id, fetches in state.fetching.items()]
    problems += [f"in a circle: {circle}" for circle in head.passing.circles(state)]
    problems += [f"lineage of {id.hex()}" for id in state.lineages]
    problems += [f"{state.lineage_bytes} bytes of lineage"] * bool(state.lineage_bytes)
    for node in state.nodes.values():
        if msgspec.to_builtins(node.free) != msgspec.to_builtins(node.total):
            problems.append(f"node {node.number}: free {node.free} of {node.total}")
        problems += [f"bundle {bundle.index} of group {bundle.group.hex()}" for bundle in node.bundles]
        if node.reserved_for is not None:
            problems.append(f"node {node.number} is reserved")
    problems += [f"{len(queue.ready)} calls ready" for queue in state.queues.values() if queue.ready]
    problems += [f"executor {one.id} with calls" for one in state.executors.values() if one.assigned]
    problems += [f"a queue of executor {one.id}" for one in state.executors.values() if one.queue is not None]
    problems += [f"waiting calls for {family.request}" for family in state.waiting]
    if state.submitted != state.finished + state.failed:
        problems.append(f"{state.submitted} submitted, {state.finished} finished, {state.failed} failed")
    for agent in agents.values():
        if not agent.alive:
            continue  # nobody frees what lies there
        problems += [f"memory of rank {agent.rank} at {offset}" for offset in agent.arena.contents]
        problems += [f"file of rank {agent.rank} at {offset}" for offset in agent.file]
        living = [*agent.custodian._lines, *(head.custodian._lines if agent.rank == 0 else ())]
        problems += [
            f"memory of dead executor {number}"
            for number, left in agent.extents.items()
            if left and number not in living
        ]
    for one_custodian in (head.custodian, *(agent.custodian for agent in agents.values() if agent.alive)):
        lines = one_custodian._lines.values()
        problems += [f"calls with executor {one.number}" for one in lines if one.custody.ids]
    return problems[:10]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="this one")
    which.add_argument("--seeds", default="0:100", help="from A up to B: A:B")
    which.add_argument("--random", type=int, metavar="N", help="N that nobody has tried")
    parser.add_argument("--hosts", type=int, default=0, help="a large world with so many")
    parser.add_argument("--calls", type=int, default=20_000, help="calls in a large world")
    parser.add_argument("--calm", action="store_true", help="without faults: then places of calls are judged too")
    parser.add_argument("--losses", action="store_true", help="ranks die too")
    parser.add_argument("--journal", action="store_true", help="each is cut and run again with its journal")
    parser.add_argument("--spills", action="store_true", help="arenas have little room; in some worlds ranks die too")
    parser.add_argument("--trees", action="store_true", help="trees of calls that wait for each other, and much dies")
    parser.add_argument("--links", action="store_true", help="short calls that need each other's values")
    parser.add_argument("--drops", action="store_true", help="actors are let go of before they are created")
    parser.add_argument("--first", action="store_true", help="stop at the first that fails")
    parser.add_argument("-v", "--verbose", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    elif chosen.random:
        first = time.time_ns() % (1 << 40)
        seeds = range(first, first + chosen.random)
    else:
        first, last = (int(part) for part in chosen.seeds.split(":"))
        seeds = range(first, last)
    counters: Counter[str] = Counter()
    failed = happened = 0
    start_s = time.perf_counter()
    for seed in seeds:
        make = calm_options if chosen.calm else losing_options if chosen.losses else random_options
        make = spilling_options if chosen.spills else dropping_options if chosen.drops else make
        make = link_options if chosen.links else make
        make = tree_options if chosen.trees else make
        options = make(seed)
        if chosen.hosts:
            options = large_options(seed, chosen.hosts, chosen.calls)
        try:
            result = simulate_again(seed) if chosen.journal else simulate(options)
        except FailedError as error:
            failed += 1
            print(f"seed {seed} FAILED: {error}", flush=True)
            if chosen.first:
                break
            continue
        counters.update(result.counters)
        happened += result.happened
        if chosen.verbose:
            explored = dict(sorted(result.counters.items()))
            print(f"seed {seed}: trace {result.trace:08x}, {result.happened} events, {explored}")
    print(f"{len(seeds)} seeds, {failed} failed; {happened} events; {dict(sorted(counters.items()))}")
    worse = quality.judge(counters) if chosen.calm else []
    for line in worse:
        print(f"FAILED: {line}")
    print(f"in {time.perf_counter() - start_s:.1f} s", file=sys.stderr)
    return min(failed + len(worse), 1)


if __name__ == "__main__":
    sys.exit(main())

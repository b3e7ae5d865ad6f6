"""The verb `top`: shows a running job in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting
from mpi_runtime.scheduler.protocol.entries import ActorEntry, DriverEntry
from mpi_runtime.scheduler.protocol.window_questions import FunctionEntry
from mpi_runtime.show.command_line import add_job
from mpi_runtime.show.estimates import Estimate
from mpi_runtime.show.facts import Facts, driver_state, failures_first, how_often, on_terminal, time_left, waits
from mpi_runtime.show.live_picture import live_picture
from mpi_runtime.show.numbers import bar, clock, count, plural, seconds, short_ids, size, three
from mpi_runtime.show.terminal import visible

PAUSE_S = 2.0
ROWS = 20
ERRORS = 5


def top(words: Sequence[str]) -> int:
    """Show a running job, and return the exit code."""
    options = top_parser().parse_args(words)
    job = Watching(inspecting.chosen(options.job, "top"))
    if options.watch and sys.stdin.isatty() and (live := live_picture(sys.stdout, is_screen=True)) is not None:
        from mpi_runtime.cli import top_screen  # not at the top: it needs rich

        if top_screen.is_possible(live.console):
            return top_screen.Screen(job).run(live)
    while True:
        print("\n".join(in_lines(job.facts)), flush=True)
        if not options.watch:
            return 0
        time.sleep(PAUSE_S)
        if not job.sample():
            print("the job has ended" if job.facts.state == "ended" else "the job was killed")
            return 0


def in_lines(facts: Facts) -> list[str]:
    """A job in lines for people."""
    facts = on_terminal(facts)
    glance = facts.glance
    counts, total, free = glance.counts, glance.total, glance.free
    words = [
        (counts.ended, "ended"),
        (counts.failed, "of them failed"),
        (counts.cancelled, "cancelled"),
        (counts.running, "running"),
        (counts.waiting, "waiting"),
        (counts.retried, "run again"),
    ]
    calls = ", ".join(f"{count(number)} {word}" for number, word in words if number) or "none yet"
    rate = facts.rates.get("", 0.0)
    lines = [
        f"{visible(inspecting.command_of(facts.pid)[:100])} (pid {facts.pid}), {seconds(facts.now_s - facts.begin_s)}",
        f"calls: {calls}; {plural(counts.actors, 'actor')}, {plural(counts.executors, 'process')}"
        + (f"; {three(rate)} end each second" if rate else ""),
        "; ".join(filter(None, (_used(what, total, free) for what in sorted(total)))),
        *([f"waiting: {waits(facts)}"] if facts.waits else []),
        *_when(facts),
        *(f"search {one.name}: {one.progress}" for one in facts.searches),
    ]
    if glance.nodes_in_all > 1:
        lines += [
            f"  {one.name}: {three(one.cpus_used)} of {three(one.cpus)} CPUs, {plural(one.executors, 'process')}"
            for one in glance.nodes[:ROWS]
        ]
        lines += _hidden(glance.nodes_in_all - len(glance.nodes[:ROWS]), "node")
    lines += [_driver(one, facts.now_s) for one in glance.drivers[:ROWS]]
    lines += _hidden(glance.drivers_in_all - len(glance.drivers[:ROWS]), "driver")
    functions = sorted(glance.functions, key=lambda one: not (one.running or one.waiting or one.failed))
    lines += [_function(one, facts.estimates.get(one.name)) for one in functions[:ROWS]]
    lines += _hidden(glance.functions_in_all - ROWS, "function")
    ids = short_ids(one.actor_id for one in facts.actors.rows)
    lines += [_actor(one, one.title or ids[one.actor_id]) for one in facts.actors.rows[:ROWS]]
    lines += _hidden(facts.actors.count - ROWS, "actor")
    errors = failures_first(glance.errors)[:ERRORS]
    lines += [f"  error {one.function}: {one.text}  ({how_often(one)})" for one in errors]
    lines += _hidden(len(glance.errors) - ERRORS, "kind of error", "kinds of errors")
    for busy in glance.running[:ROWS]:
        where = f"on {busy.host}, rank {busy.rank}, pid {busy.pid}"
        whose = f"driver {busy.driver}, " if busy.driver else ""
        lines.append(f"  {busy.doing:5} {busy.title}  for {seconds(busy.for_us / 1e6)}  {whose}{where}")
    hidden = counts.running - len(glance.running[:ROWS])
    return [*lines, *([f"  and {hidden} more run"] if hidden > 0 else [])]


def _hidden(number: int, noun: str, nouns: str = "") -> list[str]:
    return [f"  and {count(number)} more {noun if number == 1 else nouns or f'{noun}s'}"] if number > 0 else []


def _when(facts: Facts) -> list[str]:
    done, found = "", facts.estimates.get("")
    if found is not None:
        between = f"between {clock(found.low_s)} and {clock(found.high_s)}"
        done = f"done about {clock(found.end_s)}, {between}, if no more are submitted"
    return list(filter(None, (done, time_left(facts))))


def _function(one: FunctionEntry, end: Estimate | None) -> str:
    share = bar(one.done, one.failed, one.running, one.submitted)
    mean = f", {seconds(one.mean_us / 1e6)} each" if one.mean_us >= 0 else ""
    counts = (
        *((one.running, "running"), (one.waiting, "waiting"), (one.done, "done")),
        *((one.failed, "failed"), (one.cancelled, "cancelled")),
    )
    words = [f"{count(number)} {word}" for number, word in counts if number]
    ends = f", ends about {clock(end.end_s)}" if end is not None else ""
    return f"  [{share}] {one.name}: {', '.join(words)}{mean}{ends}"


def _driver(one: DriverEntry, now_s: float) -> str:
    words = [
        (one.running_calls, plural(one.running_calls, "call") + (" runs" if one.running_calls == 1 else " run")),
        (one.open_calls - one.running_calls, f"{count(one.open_calls - one.running_calls)} waiting"),
        (one.actors, plural(one.actors, "actor")),
        (one.detached_actors, plural(one.detached_actors, "detached actor")),
    ]
    has = ", ".join(text for number, text in words if number > 0) or "nothing runs"
    return f"  driver {one.driver} {visible(one.program)} (pid {one.pid}), {driver_state(one, now_s)}: {has}"


def _actor(one: ActorEntry, name: str) -> str:
    more = f", {plural(one.num_restarts, 'restart')}" if one.num_restarts else ""
    more += f", of driver {one.driver}" if one.driver else ""
    waiting = f"{plural(one.pending_calls, 'call')} waiting"
    return f"  actor {name} ({one.short_class}): {one.state.lower()}, {waiting}{more}"


def _used(what: str, total: dict[str, float], free: dict[str, float]) -> str:
    if what.startswith("node:"):
        return ""
    used, whole = total[what] - free.get(what, 0.0), total[what]
    if what in ("memory", "object_store_memory", "gpu_memory"):
        return f"{size(used)} of {size(whole)} of {what.replace('_', ' ')}" if used >= 1 << 20 else ""
    return f"{used:g} of {whole:g} {what}{'s' if what in ('CPU', 'GPU') else ''} in use"


def top_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime top`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime top",
        description="Show a running job of this user: functions with their progress, running calls, actors, errors, "
        "resources in use. `mpi-runtime view` shows more, in a browser.",
        epilog="In a bar # is done, ! failed, > running. The time of a call counts from the last message of its "
        "process, so a call that submits others counts from there. Start it on the host of rank 0. On a terminal with "
        "rich installed, --watch has keys: q ends it, s sorts, / filters, d shows details, arrows move.",
    )
    add_job(parser)
    parser.add_argument("--watch", action="store_true", help="again and again, until the job has ended")
    return parser

"""The verbs `list`, `logs`, `stack` and `timeline`: parts of a running job."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from mpi_runtime.core.api.timeline import events
from mpi_runtime.core.head import inspecting
from mpi_runtime.errors import LaunchError
from mpi_runtime.files.writing import replace_file
from mpi_runtime.scheduler.protocol.entries import dictionaries
from mpi_runtime.scheduler.protocol.past import Past, PastMove
from mpi_runtime.scheduler.protocol.questions import A, Question
from mpi_runtime.scheduler.protocol.window_questions import (
    FirstActors,
    FirstDrivers,
    FirstGroups,
    FirstNodes,
    FirstObjects,
    FirstTasks,
    Glance,
    Listed,
    MovesFrom,
    Output,
    RunsFrom,
)
from mpi_runtime.show import stacks
from mpi_runtime.show.command_line import add_job
from mpi_runtime.show.numbers import clock, count, plural, seconds, size
from mpi_runtime.show.sections import lines_of
from mpi_runtime.show.tables import aligned
from mpi_runtime.show.terminal import visible

KINDS: dict[str, tuple[Question[Listed[Any]], tuple[str, ...]]] = {
    "actors": (
        FirstActors(),
        ("actor_id", "name", "class_name", "state", "pid", "node_id", "pending_calls", "num_restarts", "driver"),
    ),
    "tasks": (FirstTasks(), ("task_id", "name", "type", "state", "attempt_number", "worker_pid", "node_id", "driver")),
    "objects": (FirstObjects(), ("object_id", "state", "object_size", "reference_count", "is_spilled")),
    "nodes": (FirstNodes(), ("NodeID", "NodeName", "executors", "Resources", "Available")),
    "drivers": (
        FirstDrivers(),
        ("driver", "program", "pid", "state", "open_calls", "running_calls", "actors", "detached_actors", "executors"),
    ),
    "groups": (FirstGroups(), ("placement_group_id", "name", "state", "strategy", "bundles")),
}
"""The question for each list, and its columns."""
SHORT = {"actor_id", "task_id", "object_id", "node_id", "NodeID", "placement_group_id"}
PAUSE_S = 0.5


def list_(words: Sequence[str]) -> int:
    """Print a list, and return the exit code."""
    options = list_parser().parse_intermixed_args(words)  # `list KIND --json JOB`
    question, names = KINDS[options.kind]
    found = _ask(inspecting.chosen(options.job, f"list {options.kind}"), question)
    entries = dictionaries(found.rows)
    if options.json:
        print(json.dumps(entries, indent=1))
        return 0
    if not any(row.get("driver") for row in entries):  # no session
        names = tuple(name for name in names if name != "driver")
    rows = [[_text(name, row.get(name)) for name in names] for row in entries]
    for line in aligned([names, *rows]) if rows else []:
        print(line)
    hidden = found.count - len(rows)
    print(f"and {count(hidden)} more" if hidden > 0 else plural(len(rows), options.kind[:-1]))
    return 0


def list_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime list`."""
    parser = _parser(
        "list", "List the actors, calls, objects, nodes, placement groups or drivers of a running job: at most 200."
    )
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    add_job(parser)
    parser.add_argument("--json", action="store_true", help="print the entries as JSON, with all fields and whole ids")
    return parser


def _text(name: str, value: object) -> str:
    if value is None or value == "":
        return "-"
    if name in SHORT:
        return str(value)[-12:].lstrip("0") or "0"
    if name == "object_size" and isinstance(value, int):
        return size(value)
    if isinstance(value, dict):
        amounts = cast("dict[str, float]", value)
        plain = {key: amount for key, amount in amounts.items() if not key.startswith("node:")}
        return ", ".join(f"{key} {size(one) if 'memory' in key else f'{one:g}'}" for key, one in plain.items()) or "-"
    if isinstance(value, list):
        parts: list[object] = value  # pyright: ignore[reportUnknownVariableType]
        return "; ".join(_text("", one) for one in parts)
    return str(visible(str(value)))


def logs(words: Sequence[str]) -> int:
    """Print the last lines of output, and return the exit code."""
    options = logs_parser().parse_args(words)
    pid, number = inspecting.chosen(options.job, "logs"), 0
    while (found := inspecting.ask(pid, Output(number))) is not None:
        for line in reversed(lines_of(found.pieces)):
            if options.grep.lower() in f"{line.writer} {line.text}".lower():
                mark = {2: " (stderr)", 30: " WARNING", 40: " ERROR"}.get(line.level, "")
                print(f"{clock(line.time_s)} {line.writer}{mark}: {visible(line.text.expandtabs())}", flush=True)
        number = found.count
        if not options.follow:
            return 0
        time.sleep(PAUSE_S)
    if number:
        return 0
    raise inspecting.gone(pid)


def logs_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime logs`."""
    parser = _parser("logs", "Print the last lines of output of a running job, with the call and rank that wrote them.")
    add_job(parser)
    parser.add_argument("--follow", "-f", action="store_true", help="and new lines, until the job ends")
    parser.add_argument("--grep", default="", metavar="TEXT", help="only lines with this text, or of this call or rank")
    return parser


def stack(words: Sequence[str]) -> int:
    """Print stacks, and return the exit code."""
    options = stack_parser().parse_args(words)
    job = inspecting.chosen(options.job, "stack")
    glance = _ask(job, Glance())
    busy = {(one.host, one.pid): one for one in glance.running if options.pid in (None, one.pid)}
    if options.pid is not None and not busy:
        raise LaunchError(f"no call of the job runs in process {options.pid}")
    for (host, pid), one in busy.items():
        if host == os.uname().nodename:
            text = stacks.stack(pid)
        else:
            text = stacks.elsewhere(partial(inspecting.ask, job), host, pid)
        print(f"{one.name}, for {seconds(one.for_us / 1e6)}, rank {one.rank} on {host}, pid {pid}\n{text}\n")
    if not busy:
        print("no call runs")
    return 0


def stack_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime stack`."""
    parser = _parser(
        "stack", "Print the stacks of the processes that run calls, or of one of them, on all hosts. Needs py-spy."
    )
    add_job(parser)
    parser.add_argument("--pid", type=int, help="only this process; `mpi-runtime top` lists them")
    return parser


def timeline(words: Sequence[str]) -> int:
    """Write the timeline, and return the exit code."""
    options = timeline_parser().parse_args(words)
    pid = inspecting.chosen(options.job, "timeline")
    found = _ask(pid, RunsFrom(0))
    runs = found.runs
    while (newer := inspecting.ask(pid, RunsFrom(found.dropped + len(runs)))) is not None and newer.runs:
        runs += newer.runs
    moves: list[PastMove] = []
    dropped = 0
    while (further := inspecting.ask(pid, MovesFrom(dropped + len(moves)))) is not None and further.moves:
        moves, dropped = moves + further.moves, dropped if moves else further.moves_dropped
    text = json.dumps(events(Past(found.wall_us, found.dropped, runs, dropped, moves)))
    if options.output == "-":
        print(text)
        return 0
    try:
        replace_file(options.output, text)
    except OSError as error:
        raise LaunchError(f"{options.output} cannot be written: {error.strerror}") from error
    print(f"{options.output}: {plural(len(runs), 'call')}", file=sys.stderr)
    return 0


def timeline_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime timeline`."""
    parser = _parser(
        "timeline",
        "Write when and where the calls of a running job ran, for https://ui.perfetto.dev and chrome://tracing: the "
        "last 100 000 that have ended, with copies and spills of large values, as ray.timeline() in the program does.",
    )
    add_job(parser)
    parser.add_argument(
        "-o", "--output", default="timeline.json", metavar="FILE", help="default: timeline.json; - prints it"
    )
    return parser


def _ask(pid: int, question: Question[A]) -> A:
    try:
        found = inspecting.ask(pid, question)
    except LookupError as error:
        raise LaunchError(f"job {pid} cannot answer: {error}") from error
    if found is None:
        raise inspecting.gone(pid)
    return found


def _parser(verb: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"mpi-runtime {verb}", description=about, epilog="Start it on the host of rank 0.", allow_abbrev=False
    )

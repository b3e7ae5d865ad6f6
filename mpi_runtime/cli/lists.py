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
from mpi_runtime.show import stacks
from mpi_runtime.show.command_line import add_job
from mpi_runtime.show.numbers import clock, count, plural, seconds, size
from mpi_runtime.show.sections import lines_of
from mpi_runtime.show.tables import aligned
from mpi_runtime.show.terminal import visible

KINDS = {
    "actors": ("actor_id", "name", "class_name", "state", "pid", "node_id", "pending_calls", "num_restarts"),
    "tasks": ("task_id", "name", "type", "state", "attempt_number", "worker_pid", "node_id"),
    "objects": ("object_id", "state", "object_size", "reference_count", "is_spilled"),
    "nodes": ("NodeID", "NodeName", "executors", "Resources", "Available"),
    "groups": ("placement_group_id", "name", "state", "strategy", "bundles"),
}
"""The columns of each list."""
SHORT = {"actor_id", "task_id", "object_id", "node_id", "NodeID", "placement_group_id"}
PAUSE_S = 0.5


def list_(words: Sequence[str]) -> int:
    """Print a list, and return the exit code."""
    parser = _parser(
        "list", "List the actors, calls, objects, nodes or placement groups of a running job: at most 200."
    )
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    add_job(parser)
    parser.add_argument("--json", action="store_true", help="print the entries as JSON, with all fields and whole ids")
    options = parser.parse_args(words)
    found = _ask(inspecting.chosen(options.job, f"list {options.kind}"), "list", options.kind)
    if options.json:
        print(json.dumps(found["rows"], indent=1))
        return 0
    names = KINDS[options.kind]
    rows = [[_text(name, row.get(name)) for name in names] for row in found["rows"]]
    for line in aligned([names, *rows]) if rows else []:
        print(line)
    hidden = found["count"] - len(rows)
    print(f"and {count(hidden)} more" if hidden > 0 else plural(len(rows), options.kind[:-1]))
    return 0


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
    parser = _parser("logs", "Print the last lines of output of a running job, with the call and rank that wrote them.")
    add_job(parser)
    parser.add_argument("--follow", "-f", action="store_true", help="and new lines, until the job ends")
    parser.add_argument("--grep", default="", metavar="TEXT", help="only lines with this text, or of this call or rank")
    options = parser.parse_args(words)
    pid, number = inspecting.chosen(options.job, "logs"), 0
    while (found := inspecting.ask(pid, "output", number)) is not None:
        for _, time_s, level, who, text, _ in reversed(lines_of(found["pieces"])):
            if options.grep.lower() in f"{who} {text}".lower():
                mark = {2: " (stderr)", 30: " WARNING", 40: " ERROR"}.get(level, "")
                print(f"{clock(time_s)} {who}{mark}: {visible(text.expandtabs())}", flush=True)
        number = found["count"]
        if not options.follow:
            return 0
        time.sleep(PAUSE_S)
    if number:
        return 0
    raise inspecting.gone(pid)


def stack(words: Sequence[str]) -> int:
    """Print stacks, and return the exit code."""
    parser = _parser(
        "stack", "Print the stacks of the processes that run calls, or of one of them, on all hosts. Needs py-spy."
    )
    add_job(parser)
    parser.add_argument("--pid", type=int, help="only this process; `mpi-runtime top` lists them")
    options = parser.parse_args(words)
    job = inspecting.chosen(options.job, "stack")
    glance = _ask(job, "glance", None)
    busy = {(one[3], one[5]): one for one in glance["running"] if options.pid in (None, one[5])}
    if options.pid is not None and not busy:
        raise LaunchError(f"no call of the job runs in process {options.pid}")
    for (host, pid), (name, _, _, _, rank, _, for_us, *_) in busy.items():
        if host == os.uname().nodename:
            text = stacks.stack(pid)
        else:
            text = stacks.elsewhere(partial(inspecting.ask, job), host, pid)
        print(f"{name}, for {seconds(for_us / 1e6)}, rank {rank} on {host}, pid {pid}\n{text}\n")
    if not busy:
        print("no call runs")
    return 0


def timeline(words: Sequence[str]) -> int:
    """Write the timeline, and return the exit code."""
    parser = _parser(
        "timeline",
        "Write when and where the calls of a running job ran, for https://ui.perfetto.dev and chrome://tracing: the "
        "last 100 000 that have ended, with copies and spills of large values, as ray.timeline() in the program does.",
    )
    add_job(parser)
    parser.add_argument(
        "-o", "--output", default="timeline.json", metavar="FILE", help="default: timeline.json; - prints it"
    )
    options = parser.parse_args(words)
    pid = inspecting.chosen(options.job, "timeline")
    found = _ask(pid, "history", 0)
    runs: list[Any] = found["runs"]
    while (answer := inspecting.ask(pid, "history", found["dropped"] + len(runs))) is not None and answer["runs"]:
        runs += answer["runs"]
    moves: list[Any] = []
    dropped = 0
    while (answer := inspecting.ask(pid, "moves", dropped + len(moves))) is not None and answer["moves"]:
        moves, dropped = moves + answer["moves"], dropped if moves else answer["moves_dropped"]
    found["moves"] = moves
    text = json.dumps(events(found))
    if options.output == "-":
        print(text)
        return 0
    try:
        replace_file(options.output, text)
    except OSError as error:
        raise LaunchError(f"{options.output} cannot be written: {error.strerror}") from error
    print(f"{options.output}: {len(runs)} calls", file=sys.stderr)
    return 0


def _ask(pid: int, what: str, argument: object) -> Any:
    try:
        found = inspecting.ask(pid, what, argument)
    except LookupError as error:
        raise LaunchError(f"job {pid} cannot answer: {error}") from error
    if found is None:
        raise inspecting.gone(pid)
    return found


def _parser(verb: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"mpi-runtime {verb}", description=about, epilog="Start it on the host of rank 0.", allow_abbrev=False
    )

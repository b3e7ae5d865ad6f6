"""The sections of a job's page: functions, nodes, actors, objects, timeline, output, calls."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from mpi_runtime.scheduler.protocol.entries import ActorEntry
from mpi_runtime.scheduler.protocol.window_questions import ErrorEntry, Piece
from mpi_runtime.show import charts
from mpi_runtime.show.charts import DONE, FAILED, RUNNING, Ran, use
from mpi_runtime.show.facts import Facts
from mpi_runtime.show.numbers import clock, clock_on, count, moment, plural, short_ids, size
from mpi_runtime.show.page import Block, Column, table

CALLS_MAX = 20_000
"""The most rows in the table of calls: the last."""
ENDINGS = ("done", "failed", "failed: its process died", "cancelled", "ended its actor")
KINDS = ("task", "actor", "method")
LINES_MAX = 1000
TIMELINE_S = 600.0
"""How much of the past the timeline of a running job shows."""
_PREFIX = re.compile(r"^\((?P<who>.*?)(?: pid=\d+)?(?:, rank (?P<rank>\d+), (?P<host>[^)]*))?\) $")


def warnings(facts: Facts) -> list[list[Any]]:
    """The last warnings in the log of the job."""
    found = [[one.time_s, one.text, ""] for one in facts.output if one.level >= 30]
    return found[-5:][::-1]


def functions(facts: Facts) -> Block:
    """A row for each function."""
    took: dict[str, list[int]] = {}
    for run in facts.runs:
        took.setdefault(run.name, []).append(run.duration_us)
    errors = {one.function for one in facts.glance.errors}
    has_cancelled = any(one.cancelled for one in facts.glance.functions)
    rows, details = [], {}
    for one in facts.glance.functions:
        name, times = one.name, took.get(one.name, [])
        end = facts.estimates.get(name)
        median = statistics.median(times) / 1e6 if times else one.mean_us / 1e6 if one.mean_us >= 0 else None
        mean = clock_on(end.end_s, facts.now_s, False) if end is not None and not facts.is_over else ""
        bar = [one.done, one.failed, one.running, one.submitted, name, mean, one.cancelled]
        row = [name, name, one.needs, bar, one.waiting, one.running, one.done, one.failed]
        row += [one.cancelled, median] if has_cancelled else [median]
        rows.append([*row, max(times) / 1e6 if times else None, facts.rates.get(name, 0.0)])
        if facts.is_over and name in errors:
            details[name] = error_blocks(
                facts.errors.get(name) or [e for e in facts.glance.errors if e.function == name]
            )
    columns: list[Column] = [("function", "fn", {"w": 1}), ("needs", "text"), ("progress", "meter", {"w": 1})]
    columns += [("waiting", "count"), ("running", "count"), ("done", "count"), ("failed", "count", {"bad": 1})]
    columns += [("cancelled", "count")] if has_cancelled else []
    columns += [("median", "time", {"help": "of the ended calls that are known"}), ("longest", "time")]
    if not facts.is_over:
        columns.append(("calls/s", "num", {"help": "ends a second in the last minute"}))
    else:
        rows = [row[:-1] for row in rows]
    in_all = facts.glance.functions_in_all
    more: dict[str, Any] = {"search": "function" if len(rows) > 8 else "", "sort": 6 if facts.is_over else 3}
    if in_all > len(rows):
        more["said"] = f"{count(len(rows))} of {count(in_all)}: rather those that run, wait or have failed"
    more |= {"live": not facts.is_over, "details": details, "empty": "The program has submitted no call yet."}
    return table("functions", "Functions", columns, rows, open=True, down=True, **more)


def error_blocks(errors: Sequence[ErrorEntry]) -> list[Block]:
    """Blocks that show errors with their tracebacks."""
    shown = []
    for one in errors:
        parts = [f"{plural(one.failed, 'call')} failed"] if one.failed else []
        parts += [f"{plural(one.retried, 'attempt')} failed and ran again"] if one.retried else []
        where = f"last at {moment(one.last_us / 1e6)}" + (f" on {one.host}, rank {one.rank}" if one.host else "")
        shown.append({"text": one.text, "where": f"{', '.join(parts)}; {where}", "trace": one.trace})
    return [{"kind": "errors", "errors": shown, "open": len(shown) < 4}] if shown else []


def ran_of(facts: Facts) -> list[Ran]:
    """The calls that have run, and those that run, for charts."""
    found = [
        Ran(
            host=run.host,
            start=run.start_us / 1e6,
            end=run.end_us / 1e6,
            name=run.name,
            ending=FAILED if run.outcome else DONE,
            cpus=run.cpus,
            gpus=run.gpus,
            gpu_ids=run.gpu_ids,
        )
        for run in facts.runs
    ]
    if not facts.is_over:
        now_s = facts.now_s
        found += [Ran(one.host, now_s - one.for_us / 1e6, now_s, one.name, RUNNING) for one in facts.glance.running]
    return found


def use_over_time(facts: Facts, ran: list[Ran]) -> list[Block]:
    """The CPUs and GPUs that were given to calls."""
    total = facts.glance.total
    begin_s = min((one.start for one in ran), default=facts.begin_s)
    end_s = max((one.end for one in ran), default=begin_s)
    said = "given to calls"
    if facts.ran > len(facts.runs):
        said += f"; only the last {count(len(facts.runs))} of {count(facts.ran)} calls are kept"
    return use(ran, begin_s, end_s, (total.get("CPU", 0.0), total.get("GPU", 0.0)), said)


def timeline(facts: Facts, ran: list[Ran]) -> Block:
    """What ran where and when."""
    if facts.is_over:
        begin_s = min((one.start for one in ran), default=facts.begin_s)
        end_s = max((one.end for one in ran), default=facts.now_s)
        said = "what ran where"
    else:
        begin_s = max(facts.begin_s, facts.now_s - TIMELINE_S, min((one.end for one in ran), default=0.0) - 1.0)
        end_s = facts.now_s
        said = "the last calls"
        ran = [one for one in ran if one.end > begin_s]
        if facts.ran > len(facts.runs):
            said += f", {count(len(facts.runs))} of {count(facts.ran)}"
    block = charts.timeline(ran, begin_s, end_s, said)
    if block["hidden"]:
        block["said"] += f"; {count(block['hidden'])} more lanes are not shown"
    return block


def drivers(facts: Facts) -> list[Block]:
    """The programs that use a session, if it is one."""
    rows: list[list[Any]] = []
    for one in facts.glance.drivers:
        row: list[Any] = [
            str(one.driver),
            one.program,
            str(one.driver),
            one.state,
            one.pid,
            moment(one.joined_ms / 1e3) + (f", away since {clock(one.away_ms / 1e3)}" if one.away_ms else ""),
        ]
        rows.append([*row, one.open_calls, one.running_calls, one.actors + one.detached_actors, one.groups])
    if not rows:
        return []
    columns: list[Column] = [("program", "mono", {"w": 1}), ("driver", "text"), ("state", "pill"), ("pid", "text")]
    columns += [("connected", "text"), ("calls", "count"), ("running", "count"), ("actors", "count")]
    columns.append(("groups", "count"))
    return [table("drivers", "Programs", columns, rows, count=facts.glance.drivers_in_all, sort=2, open=True)]


def actors(facts: Facts) -> list[Block]:
    """The actors, if there are any."""
    rows, ids = [], short_ids(one.actor_id for one in facts.actors.rows)
    for one in facts.actors.rows:
        title = one.title or ids[one.actor_id]
        where = facts.host_of(one)
        row = [one.actor_id, title, one.short_class, _state_of(facts, one), where, one.pid, one.pending_calls]
        rows.append([*row, one.num_restarts, facts.sizes.get((where, one.pid or 0)), one.death_cause or ""])
    if not rows:
        return []
    states = [_state_of(facts, one) for one in facts.actors.rows]
    said = f"{count(facts.actors.count)}: " + ", ".join(
        f"{count(states.count(state))} {state.lower().replace('_', ' ')}" for state in dict.fromkeys(states)
    )
    columns: list[Column] = [("name", "mono", {"w": 1}), ("class", "mono"), ("state", "pill"), ("node", "mono")]
    columns += [("pid", "text"), ("waiting", "count"), ("restarts", "count")]
    columns += [("memory", "bytes", {"help": "resident, with what it shares with others"}), ("cause of death", "text")]
    more = {"count": facts.actors.count, "search": "name, class, state" if len(rows) > 8 else ""}
    return [table("actors", "Actors", columns, rows, said=said, sort=5, down=True, open=not facts.is_over, **more)]


def _state_of(facts: Facts, actor: ActorEntry) -> str:
    """The state of an actor. With the job the last ones have ended."""
    return "ENDED" if facts.is_over and actor.state != "DEAD" else actor.state


def store(facts: Facts) -> list[Block]:
    """The object store, if it holds anything."""
    store = facts.store
    if store is None or not (store.used or store.on_disk):
        return []
    said = f"{plural(store.count, 'object')}, {size(store.used)} of {size(store.capacity)}"
    said += f"; {size(store.on_disk)} spilled to disk" if store.on_disk else ""
    largest = sorted(((made_by(name), amount) for name, amount in store.by_function.items()), key=lambda one: -one[1])
    by_function = [[name, amount, name] for name, amount in largest[:6]]
    by_node = [[one.hostname, one.used] for one in store.nodes if one.used][:6]
    halves = [
        {"title": "The largest, by the function that made them", "form": "bytes", "rows": by_function},
        {"title": "By node", "form": "bytes", "rows": by_node},
    ]
    rows = []
    for one in store.largest:
        id, made = one.object_id, made_by(one.made_by)
        state = " and ".join(["in memory"] * one.in_memory + ["on disk"] * one.on_disk) or "moves"
        rows.append([id, id[-12:], made, one.hostname, state, one.held_by, one.size])
    columns = [("largest", "mono", {"w": 1}), ("made by", "fn"), ("node", "mono"), ("state", "text")]
    columns += [("held by", "text", {"clip": 1}), ("size", "bytes")]
    return [
        {"id": "objects", "kind": "bars", "title": "Objects", "said": said, "halves": halves},
        table("largest", "", columns, rows, noun="objects", sort=5, down=True, limit=8),
    ]


def made_by(text: str) -> str:
    """What made a value, in short: a function, or the line of a `put`."""
    name = text.partition(" (")[0]
    return f"put at {os.path.basename(name.partition(' in ')[0])}" if " in " in name else name or "put"


class Line(NamedTuple):
    """A line of output, as pages have it."""

    number: int
    time_s: float
    level: int
    writer: str
    text: str
    function: str | None


def lines_of(pieces: Sequence[Piece]) -> list[Line]:
    """Lines of output, the newest first."""
    lines: list[Line] = []
    for piece in pieces:
        found = _PREFIX.match(piece.writer)
        who, name = piece.writer.strip(), None
        if found is not None:
            name = found["who"]
            who = name + (f", rank {found['rank']}" if found["rank"] else "")
        texts = piece.text.rstrip("\n").split("\n")
        lines += [Line(piece.number, piece.time_s, piece.level, who, text[:2000], name) for text in texts]
    return lines[-LINES_MAX:][::-1]


def output(facts: Facts) -> Block:
    """The last lines of output."""
    rows = lines_of(facts.output)
    return {"id": "output", "kind": "log", "title": "Output", "rows": rows, "count": len(rows)}


def calls(facts: Facts) -> Block:
    """A row for each attempt of a call that has ended."""
    begin_s = min(run.start_us for run in facts.runs) / 1e6
    rows = []
    for number, run in enumerate(facts.runs[-CALLS_MAX:]):
        title = run.title if run.kind else run.name  # a process may have become an actor only since then
        row = [str(number), title, ENDINGS[run.outcome], run.host, run.rank, run.pid, ",".join(map(str, run.gpu_ids))]
        row += [round(max(0, run.waited_us) / 1e6, 6), round(run.start_us / 1e6 - begin_s, 4)]
        rows.append([*row, run.duration_us / 1e6, run.attempt + 1, KINDS[run.kind]])
    columns = [("call", "mono", {"w": 1}), ("ending", "pill"), ("host", "mono"), ("rank", "text"), ("pid", "text")]
    columns += [("GPUs", "text"), ("waited", "time"), ("start", "time"), ("took", "time")]
    columns += [("attempt", "count"), ("kind", "text")]
    said = plural(len(rows), "attempt")
    said = f"the last {count(len(rows))} of {plural(facts.ran, 'attempt')}" if facts.ran > len(rows) else said
    return table("calls", "Calls", columns, rows, said=said, sort=7, search="name, host, ending, took>1", limit=50)

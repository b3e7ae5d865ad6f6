"""The page of a batch, while it runs and when it has ended."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from typing import Any

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.history.batch_history import RUN, Began, Ended, History
from mpi_runtime.batch.history.outputs import tail
from mpi_runtime.batch.history.results import shortened
from mpi_runtime.batch.show.overview import Overview, overview
from mpi_runtime.show.charts import DONE, FAILED, RUNNING, Ran, colours, timeline, use
from mpi_runtime.show.numbers import clock_on, count, moment, plural, seconds, three
from mpi_runtime.show.page import Block, Document, card, table

TAILS_MAX = 200
"""How many failed commands are shown with the last lines of their output."""
TAIL_LINES = 20
RATE_S = 60.0
OPEN_MAX = 3
"""How many of them are open at first."""
_COMMAND = ("command", "mono", {"clip": 1, "w": 1})


def document(name: str, directory: str, history: History, now: float, is_running: bool) -> Document:
    """Make the page about a batch with this output directory; `now` in seconds since 1970."""
    found = overview(history, now, is_running)
    groups = _groups(history)
    ran = [_ran(ended, groups) for ended in history.all_ends]
    if is_running:
        commands = {one.name: one for one in history.commands()}
        ran += [_runs(one, commands[one.name], groups, now) for one in found.running if one.host]
    begin_s = min((one.start for one in ran), default=found.begin_s)
    end_s = max((one.end for one in ran), default=begin_s)
    nodes = history.nodes()
    runs = sum(run.role == RUN for run in history.runs)
    meta = [os.path.abspath(directory), plural(runs, "run"), f"last started {moment(found.begin_s)}"]
    jobs = list(dict.fromkeys(run.job for run in history.session()))
    if jobs:
        meta.insert(0, jobs[0] if len(jobs) == 1 else plural(len(jobs), "job"))
    capacity = (sum(one.cpus for one in nodes), sum(one.gpus for one in nodes))
    blocks: list[Block] = [{"id": "answers", "kind": "cards", "cards": _cards(found, history, groups, now, is_running)}]
    if found.failed:
        blocks.append(_failures(directory, found.failed))
    blocks += [
        _functions(history, found, groups),
        *use(ran, begin_s, end_s, capacity, "assigned to commands"),
        timeline(ran, begin_s, end_s, "what ran where"),
        _commands(history, found, begin_s, now),
    ]
    idle = "Not finished" if found.is_finished is False else "Not running"
    pill = ["run live", "Running"] if is_running else ["hollow", idle]
    return {
        "name": name,
        "pill": pill,
        "meta": meta,
        "colours": colours(dict.fromkeys(groups.values())),
        "blocks": blocks,
    }


def _groups(history: History) -> dict[str, str]:
    """For each command what it is one of: its array, or its program."""
    found = {}
    for planned in history.plan.values():
        for command in planned.commands:
            words = command.text.split(maxsplit=1)
            found[command.name] = planned.name if planned.is_array else os.path.basename(words[0]) if words else "?"
    return found


def _cards(
    found: Overview, history: History, groups: dict[str, str], now: float, is_running: bool
) -> list[dict[str, Any]]:
    seen = [began for began in found.running if began.host]
    kinds = Counter(groups.get(began.name, began.name) for began in seen).most_common(4)
    ended = found.done + len(found.failed)
    if is_running:
        rows = [[name, count(number), name] for name, number in kinds]
        doing = card("What is it doing?", count(len(seen)), "commands run", rows)
        recent = sum(one.result.end > now - RATE_S for one in history.all_ends)
        if recent and not seen:
            rate = recent / max(1.0, min(RATE_S, now - found.begin_s))
            doing |= {"big": three(rate), "small": "commands end each second", "note": "They are too short to be seen."}
        rows = [["ready, or about to run", count(len(found.running) - len(seen))]]
        waits = card("What waits?", count(found.waiting + len(found.running) - len(seen)), "commands wait", rows)
    else:
        rows = [["failed", count(len(found.failed))], ["not run", count(found.waiting)]]
        rows += [["skipped", count(found.skipped)]] if found.skipped else []
        doing = card("What did it do?", count(found.done), f"of {plural(found.total, 'command')} done", rows)
        rows = [["CPU time", seconds(sum(one.result.cpu_time for one in history.all_ends))]]
        waits = card("Where did the time go?", f"{found.cpu_use:.0%}", "of the CPUs were assigned", rows)
    if found.gpu_use:
        waits["rows"].append(["of the GPUs", f"{found.gpu_use:.0%}"])
    endings = Counter(one.result.ending() for one in found.failed).most_common(4)
    failed = {
        "q": "What failed?",
        "big": count(len(found.failed)),
        "small": f"of {plural(ended, 'ended command')}",
        "bad": bool(found.failed),
        "rows": [[ending, count(number)] for ending, number in endings],
    }
    if found.failed:
        failed.update(note="Their output", link="#failures", finds="failures")
    when: dict[str, Any] = {
        "q": "When is it done?" if is_running else "When did it end?",
        "meter": [found.done, len(found.failed), len(seen), found.total],
        "said": f"{count(ended)} of {count(found.total)} ended",
    }
    if is_running:
        left_s = found.left_s
        when["big"] = clock_on(now + left_s, now, left_s < 600) if left_s is not None else "\u2013"
        when["small"] = f"about, in {seconds(left_s)}" if left_s is not None else "no command has ended"
    else:
        when |= {"big": clock_on(found.end_s, found.begin_s), "small": f"after {seconds(found.end_s - found.begin_s)}"}
    return [doing, waits, failed, when]


def _failures(directory: str, failed: list[Ended]) -> Block:
    rows, details = [], {}
    for number, ended in enumerate(failed):
        one = ended.result
        rows.append([str(number), one.name, one.ending(), one.host, one.attempts, shortened(one.command)])
        if number < TAILS_MAX:
            lines = "\n".join(tail(directory, one, ended.packed, TAIL_LINES))
            details[str(number)] = [{"kind": "pre", "text": lines or "It has written nothing."}]
    columns = [("name", "mono", {"w": 1}), ("ending", "pill"), ("host", "mono"), ("starts", "count"), _COMMAND]
    said = count(len(failed)) + (f", the first {TAILS_MAX} with their output" if len(failed) > TAILS_MAX else "")
    more = {"details": details, "opens": list(details)[:OPEN_MAX], "limit": 10, "noun": "failures"}
    search = "name, host, ending" if len(rows) > 10 else ""
    return table("failures", "Failures", columns, rows, said=said, open=True, **more, search=search)


def _functions(history: History, found: Overview, groups: dict[str, str]) -> Block:
    names = Counter(groups.values())
    failed = {one.result.name for one in found.failed}
    running = Counter(groups.get(one.name) for one in found.running if one.host)
    ends = {name: [one for key, one in history.ends.items() if groups.get(key) == name] for name in names}
    rows = []
    for name, whole in names.items():
        bad = sum(one.result.name in failed for one in ends[name])
        done = len(ends[name]) - bad - sum(one.result.name in history.began for one in ends[name])
        times = [one.result.end - one.result.start for one in ends[name]]
        bar = [done, bad, running[name], whole, name, ""]
        row = [name, name, bar, whole - done - bad - running[name], running[name], done, bad]
        peak = max((one.result.peak_memory for one in ends[name]), default=None)
        rows.append([*row, statistics.median(times) if times else None, max(times, default=None), peak])
    columns = [("commands", "fn", {"w": 1}), ("progress", "meter", {"w": 1}), ("not run", "count")]
    columns += [("running", "count"), ("done", "count"), ("failed", "count", {"bad": 1})]
    columns += [("median", "time"), ("longest", "time"), ("most memory", "bytes")]
    return table("functions", "By array or program", columns, rows, sort=5, down=True)


def _commands(history: History, found: Overview, begin_s: float, now: float) -> Block:
    rows = []
    for ended in history.all_ends:
        one = ended.result
        ending = "done" if one.is_success else one.ending()
        row: list[Any] = [f"{one.name}/{ended.number}", one.name, ending, one.host, ",".join(map(str, one.gpu_ids))]
        row += [round(one.start - begin_s, 3), round(one.end - one.start, 3), round(one.cpu_time, 3)]
        rows.append([*row, one.peak_memory, one.attempts, shortened(one.command)])
    texts = {command.name: command.text for command in history.commands()} if found.running else {}
    for began in found.running:
        name, state = began.name, "running" if began.host else "waiting"
        times = [round(began.time_s - begin_s, 3), round(now - began.time_s, 3)]
        nothing = [None, None, None]  # CPU time, memory, starts
        rows.append([f"{name}/now", name, state, began.host, "", *times, *nothing, shortened(texts.get(name, ""))])
    columns = [("name", "mono", {"w": 1}), ("ending", "pill"), ("host", "mono"), ("GPUs", "text"), ("start", "time")]
    columns += [("took", "time"), ("CPU time", "time"), ("memory", "bytes"), ("starts", "count"), _COMMAND]
    more = {"noun": "commands", "search": "name, host, ending, took>10", "sort": 4, "limit": 50}
    return table("commands", "Commands", columns, rows, said=plural(len(history.all_ends), "end"), **more)


def _runs(began: Began, command: Command, groups: dict[str, str], now: float) -> Ran:
    cpus, gpus = command.ranks * command.num_cpus, command.ranks * command.num_gpus
    return Ran(began.host, began.time_s, now, groups.get(began.name, began.name), RUNNING, cpus, gpus)


def _ran(ended: Ended, groups: dict[str, str]) -> Ran:
    result = ended.result
    name = groups.get(result.name, result.name)
    ending = DONE if result.is_success else FAILED
    return Ran(result.host, result.start, result.end, name, ending, ended.cpus, ended.gpus, result.gpu_ids)

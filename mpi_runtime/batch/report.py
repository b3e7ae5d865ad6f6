"""The report of a batch: one HTML file with everything in it, which no network is needed to look at."""

from __future__ import annotations

import heapq
import html
import json
from collections.abc import Iterable
from typing import Any

from mpi_runtime.batch.outputs import tail
from mpi_runtime.batch.overview import duration, overview
from mpi_runtime.batch.past import Ended, History
from mpi_runtime.batch.report_page import PAGE

TAILS_MAX = 200
"""Of how many failed commands the last lines of the output are shown."""
STEPS = 400
"""Into how many parts the time is divided for the lines of utilisation."""


def report(name: str, directory: str, history: History, now: float, is_running: bool) -> str:
    """Make the page.

    Args:
        name: of the batch.
        directory: of its output.
        history: what it remembers.
        now: seconds since 1970.
        is_running: whether it still runs.
    """
    found = overview(history, now, is_running)
    begin_s = min((ended.result.start for ended in history.all_ends), default=found.begin_s)
    nodes = history.runs[-1].nodes if history.runs else []
    content: dict[str, Any] = {
        "name": name,
        "begin": begin_s,
        "end": max((ended.result.end for ended in history.all_ends), default=begin_s),
        "lanes": _lanes(history.all_ends, begin_s),
        "rows": [_row(ended, begin_s) for ended in history.all_ends],
        "use": [
            {"name": "CPUs", "most": sum(one.cpus for one in nodes), "steps": _use(history.all_ends, begin_s, "cpus")},
            {"name": "GPUs", "most": sum(one.gpus for one in nodes), "steps": _use(history.all_ends, begin_s, "gpus")},
        ],
    }
    content["use"] = [one for one in content["use"] if any(one["steps"])]
    summary = f"{found.done} of {found.total} done, {len(found.failed)} failed, {found.waiting} not run"
    if is_running:
        summary += f", {len(found.running)} running"
    busy_s = sum(ended.result.cpu_time for ended in history.all_ends)
    facts = [
        ("runs", str(len(history.runs))),
        ("first start to last end", duration(content["end"] - begin_s)),
        ("CPU time", duration(busy_s)),
        ("CPUs used in the last run", f"{found.cpu_use:.0%}"),
        *([("GPUs used in the last run", f"{found.gpu_use:.0%}")] if found.gpu_use else []),
    ]
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return (
        PAGE.replace("@NAME@", html.escape(name))
        .replace("@SUMMARY@", html.escape(summary))
        .replace("@FACTS@", "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts))
        .replace("@FAILURES@", _failures(directory, found.failed))
        .replace("@DATA@", data)
    )


def _row(ended: Ended, begin_s: float) -> list[Any]:
    result = ended.result
    return [
        result.name,
        "done" if result.is_success else result.ending(),
        result.host,
        ",".join(map(str, result.gpu_ids)),
        round(result.start - begin_s, 3),
        round(result.end - result.start, 3),
        round(result.cpu_time, 3),
        result.peak_memory,
        result.attempts,
        result.command,
    ]


def _lanes(ends: Iterable[Ended], begin_s: float) -> list[dict[str, Any]]:
    """The rows of the Gantt chart: as many for each host as commands ran at a time, and one for each GPU."""
    lanes: dict[tuple[str, str, int], list[int]] = {}
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[float, int]]] = {}
    for number, ended in sorted(enumerate(ends), key=lambda one: one[1].result.start):
        result = ended.result
        host = result.host or "lost"
        mine, others = free.setdefault(host, []), busy.setdefault(host, [])
        while others and others[0][0] <= result.start:
            heapq.heappush(mine, heapq.heappop(others)[1])
        lane = heapq.heappop(mine) if mine else len(others)
        heapq.heappush(others, (result.end, lane))
        lanes.setdefault((host, "", lane), []).append(number)
        for gpu in result.gpu_ids:
            lanes.setdefault((host, "GPU", gpu), []).append(number)
    return [
        {"name": f"{host} GPU {lane}" if kind else host, "isFirst": lane == 0 or bool(kind), "rows": numbers}
        for (host, kind, lane), numbers in sorted(lanes.items())
    ]


def _use(ends: list[Ended], begin_s: float, what: str) -> list[float]:
    """How much was in use on the average, in each of STEPS parts of the time."""
    end_s = max((ended.result.end for ended in ends), default=begin_s)
    step_s = (end_s - begin_s) / STEPS
    if step_s <= 0:
        return []
    # Of each command only its first and last part are looked at; what lies between is a sum over changes.
    changes = [0.0] * (STEPS + 1)
    parts = [0.0] * (STEPS + 1)
    for ended in ends:
        amount = getattr(ended, what)
        if not amount:
            continue
        first, last = (ended.result.start - begin_s) / step_s, (ended.result.end - begin_s) / step_s
        here, there = min(int(first), STEPS - 1), min(int(last), STEPS - 1)
        if here == there:
            parts[here] += amount * (last - first)
            continue
        parts[here] += amount * (here + 1 - first)
        parts[there] += amount * (last - there)
        changes[here + 1] += amount
        changes[there] -= amount
    level = 0.0
    for step in range(STEPS):
        level += changes[step]
        parts[step] = round(parts[step] + level, 3)
    return parts[:STEPS]


def _failures(directory: str, failed: list[Ended]) -> str:
    shown = []
    for number, ended in enumerate(failed[:TAILS_MAX]):
        is_open = " open" if number < 5 else ""
        result = ended.result
        lines = "\n".join(tail(directory, result, ended.packed, 20))
        shown.append(
            f"<details{is_open}><summary><b>{html.escape(result.name)}</b>: {html.escape(result.ending())} "
            f"<span>{html.escape(result.host)}</span></summary><code>{html.escape(result.command)}</code>"
            f"<pre>{html.escape(lines)}</pre></details>"
        )
    if len(failed) > TAILS_MAX:
        shown.append(f"<p>and {len(failed) - TAILS_MAX} more have failed</p>")
    return "".join(shown) or "<p>none</p>"

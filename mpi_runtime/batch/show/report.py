"""The report of a batch: one HTML file that loads nothing."""

from __future__ import annotations

import html
from typing import Any

from mpi_runtime.batch.memory.outputs import tail
from mpi_runtime.batch.memory.past import RUN, Ended, History
from mpi_runtime.batch.show.overview import duration, overview
from mpi_runtime.show.page import DONE, ENDING, HOST, NAME, START, TEXT, TOOK, Column, Ran, page

TAILS_MAX = 200
"""How many failed commands are shown with the last lines of their output."""
COLUMNS = (
    Column("name", NAME), Column("ending", ENDING), Column("host", HOST), Column("GPUs", 6),
    Column("start", START, "time"), Column("took", TOOK, "time"), Column("CPU time", 7, "time"),
    Column("memory", 8, "size"), Column("tries", 9, "count"), Column("command", TEXT),
)  # fmt: skip


def report(name: str, directory: str, history: History, now: float, is_running: bool) -> str:
    """Make the page about a batch with this output directory; `now` in seconds since 1970."""
    found = overview(history, now, is_running)
    begin_s = min((ended.result.start for ended in history.all_ends), default=found.begin_s)
    end_s = max((ended.result.end for ended in history.all_ends), default=begin_s)
    nodes = history.nodes()
    jobs = {run.job for run in history.session()}
    summary = f"{found.done} of {found.total} done, {len(found.failed)} failed, {found.waiting} not run"
    if is_running:
        summary += f", {len(found.running)} running"
    busy_s = sum(ended.result.cpu_time for ended in history.all_ends)
    facts = [
        ("runs", str(sum(run.role == RUN for run in history.runs))),
        *([("jobs of the last run", str(len(jobs)))] if len(jobs) > 1 else []),
        ("first start to last end", duration(end_s - begin_s)),
        ("CPU time", duration(busy_s)),
        ("CPUs used in the last run", f"{found.cpu_use:.0%}"),
        *([("GPUs used in the last run", f"{found.gpu_use:.0%}")] if found.gpu_use else []),
    ]
    return page(
        name,
        summary,
        facts,
        _failures(directory, found.failed),
        "commands",
        COLUMNS,
        [_row(ended, begin_s) for ended in history.all_ends],
        [_ran(ended) for ended in history.all_ends],
        (sum(one.cpus for one in nodes), sum(one.gpus for one in nodes)),
    )


def _row(ended: Ended, begin_s: float) -> list[Any]:
    result = ended.result
    return [
        result.name,
        DONE if result.is_success else result.ending(),
        round(result.start - begin_s, 3),
        round(result.end - result.start, 3),
        result.host,
        result.command,
        ",".join(map(str, result.gpu_ids)),
        round(result.cpu_time, 3),
        result.peak_memory,
        result.attempts,
    ]


def _ran(ended: Ended) -> Ran:
    result = ended.result
    return Ran(result.host, result.start, result.end, ended.cpus, ended.gpus, result.gpu_ids)


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
    return "".join(shown)

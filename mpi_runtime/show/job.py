"""The report of a job, which `init(report="job.html")` writes when the job ends."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from mpi_runtime.show.page import DONE, ENDING, HOST, NAME, START, TEXT, TOOK, Column, Ran, page

COLUMNS = (
    Column("name", NAME), Column("ending", ENDING), Column("host", HOST), Column("GPUs", 6),
    Column("process", 7, "count"), Column("waited", 8, "time"), Column("start", START, "time"),
    Column("took", TOOK, "time"), Column("attempt", 9, "count"), Column("kind", TEXT),
)  # fmt: skip
_KINDS = {"NORMAL_TASK": "task", "ACTOR_CREATION_TASK": "creation of an actor", "ACTOR_TASK": "method"}


def write(path: str, found: dict[str, Any], nodes: Sequence[dict[str, Any]]) -> None:
    """Write the page.

    Args:
        path: of the file. An existing file is replaced as a whole.
        found: the scheduler's answer: see `scheduler/log/history.py`.
        nodes: of the job.

    Raises:
        OSError: it cannot be written.
    """
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(job_page(os.path.basename(sys.argv[0]) or "job", found, nodes))
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def job_page(name: str, found: dict[str, Any], nodes: Sequence[dict[str, Any]]) -> str:
    """Make the page; see `write`."""
    runs, wall_us = found["runs"], found["wall_us"]
    ran = [_ran(run, asked, wall_us) for run, asked in zip(runs, found["asked"], strict=True)]
    begin_s = min((one.start for one in ran), default=0.0)
    counts, dropped = found["counts"], found["dropped"]
    cpus, gpus = (sum(node["Resources"].get(what, 0.0) for node in nodes) for what in ("CPU", "GPU"))
    took_s = max((one.end for one in ran), default=0.0) - begin_s
    busy_s = sum(one.cpus * (one.end - one.start) for one in ran)
    facts = [
        ("first start", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin_s)) if ran else "nothing has run"),
        ("first start to last end", f"{took_s:.1f} s"),
        ("nodes", str(len(nodes))),
        ("actors", f"{found['actors']}, restarted {found['restarted']} times"),
    ]
    if cpus * took_s and not dropped:
        facts.append(("CPUs that calls had", f"{min(1.0, busy_s / (cpus * took_s)):.0%}"))
    if dropped:
        facts.append(("not shown", f"the first {dropped} calls: only the last {len(runs)} are kept"))
    summary = f"{counts['ended']} calls have ended, {counts['failed']} failed, {counts['retried']} were run again"
    rows = [_row(run, one, begin_s, wall_us) for run, one in zip(runs, ran, strict=True)]
    return page(name, summary, facts, _failures(rows), "calls", COLUMNS, rows, ran, (cpus, gpus))


def _ran(run: Sequence[Any], asked: Sequence[Any], wall_us: int) -> Ran:
    _, start_us, duration_us = run[7]
    start_s = (wall_us + start_us) / 1e6
    return Ran(run[6][1], start_s, start_s + duration_us / 1e6, asked[0], asked[1], asked[2])


def _row(run: Sequence[Any], ran: Ran, begin_s: float, wall_us: int) -> list[Any]:
    _, name, kind, attempt, _, (_, pid, actor, _), (_, host), (submitted_us, _, duration_us), error = run
    return [
        f"{actor}: {name}" if actor and actor not in name else name,
        error or DONE,
        round(ran.start - begin_s, 4),
        round(duration_us / 1e6, 6),
        host,
        _KINDS[kind],
        ",".join(map(str, ran.gpu_ids)),
        pid,
        round(max(0.0, ran.start - (wall_us + submitted_us) / 1e6), 4),
        attempt + 1,
    ]


def _failures(rows: Sequence[Sequence[Any]]) -> str:
    """One line for each function and kind of end."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row[ENDING] != DONE:
            found.setdefault((row[NAME], row[ENDING]), []).append(row[HOST])
    lines = []
    for (name, ending), hosts in sorted(found.items(), key=lambda one: -len(one[1])):
        where = ", ".join(f"{host} {hosts.count(host)}" for host in dict.fromkeys(hosts))
        text = f"{ending}, {len(hosts)} times: {where}"
        lines.append(f"<p><b>{html.escape(name)}</b>: {html.escape(text)}</p>")
    return "".join(lines)

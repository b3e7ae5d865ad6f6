"""The document of a job: while it runs for the live page, and when it has ended for `init(report="job.html")`.

Both are made of the same facts, the answers of the job's window (`scheduler/protocol/window_questions.py`).
"""

from __future__ import annotations

from typing import Any

from mpi_runtime.scheduler.protocol.window_questions import FunctionEntry, JobCounts
from mpi_runtime.show import node_sections, sections
from mpi_runtime.show.charts import colours
from mpi_runtime.show.facts import Facts, failures_first
from mpi_runtime.show.numbers import clock_on, count, moment, plural, seconds, size, three
from mpi_runtime.show.page import Block, Document, card

PILLS = {
    "running": ["run live", "Running"],
    "ended": ["hollow", "Ended"],
    "killed": ["bad", "Killed"],
    "lost": ["warn", "No answer"],
}
"""The look and the word of each state."""


def document(facts: Facts) -> Document:
    """Make the document."""
    glance = facts.glance
    rest = facts.now_s - facts.begin_s
    meta = [
        f"{facts.host}, {plural(glance.nodes_in_all, 'node')}",
        f"pid {facts.pid}",
        f"started {moment(facts.begin_s)}",
        f"{'took' if facts.is_over else 'elapsed'} {seconds(rest)}",
    ]
    looks = {"killed": "bad", "lost": "warn"}
    ran = sections.ran_of(facts)
    wall = _wall(facts)
    blocks: list[Block] = [{"id": "answers", "kind": "cards", "cards": _cards(facts), "join": bool(wall)}, *wall]
    if facts.curves:
        blocks.append(_tiles(facts))
    if rows := sections.warnings(facts):
        blocks.append({"id": "warnings", "kind": "warns", "rows": rows})
    blocks.append(sections.functions(facts))
    if facts.is_over:
        blocks += sections.use_over_time(facts, ran)
    blocks += [
        *sections.drivers(facts),
        node_sections.nodes(facts),
        *sections.actors(facts),
        *sections.store(facts),
        sections.timeline(facts, ran),
        sections.output(facts),
    ]
    if facts.is_over and facts.runs:
        blocks.append(sections.calls(facts))
    return {
        "name": facts.name,
        "pill": PILLS[facts.state],
        "meta": meta,
        "banner": [looks[facts.state], facts.cause] if facts.state in looks and facts.cause else None,
        "colours": colours(one.name for one in glance.functions),
        "blocks": blocks,
    }


# The four answers


def _cards(facts: Facts) -> list[dict[str, Any]]:
    counts = facts.glance.counts
    ended = counts.ended
    when = _when(facts, counts, ended)
    return [
        _doing(facts, counts, facts.glance.functions, ended),
        _went(facts) if facts.is_over else _waits(facts, counts),
        _failed(facts, counts, ended),
        {**when, "rows": [*([f"search {one.name}", one.progress] for one in facts.searches), *when["rows"]]},
    ]


def _doing(facts: Facts, counts: JobCounts, functions: list[FunctionEntry], ended: int) -> dict[str, Any]:
    shown = [(one.name, one.done if facts.state == "ended" else one.running) for one in functions]
    top = sorted((one for one in shown if one[1]), key=lambda one: -one[1])[:4]
    rows = [[name, count(number), name] for name, number in top]
    if facts.state == "ended":
        return card("What did it do?", count(ended), "call ended" if ended == 1 else "calls ended", rows)
    running, is_one = count(counts.running), counts.running == 1
    if facts.state == "killed":
        return card("What was it doing?", running, f"{'call' if is_one else 'calls'} ran when it was killed", rows)
    rate = facts.rates.get("", 0.0)
    small = ("call runs" if is_one else "calls run") + (f", {three(rate)} end each second" if rate else "")
    if not counts.submitted:
        rows = [["The program has submitted no call yet.", ""]]
    link = {"note": "All functions", "link": "#functions"} if functions else {}
    return card("What is it doing?", running, small, rows, **link)


def _waits(facts: Facts, counts: JobCounts) -> dict[str, Any]:
    small = "call waits" if counts.waiting == 1 else "calls wait"
    rows = [[f"{one.function}: {one.reason}", count(one.calls), one.function] for one in facts.waits[:4]]
    return card("What waits, and why?", count(counts.waiting), small, rows)


def _went(facts: Facts) -> dict[str, Any]:
    """Where the time went: of the runs that are known."""
    runs, total = facts.runs, facts.glance.total
    cpus = _share(sum(run.duration_us * run.cpus for run in runs), total.get("CPU", 0.0), facts.known_s)
    gpus = _share(sum(run.duration_us * run.gpus for run in runs), total.get("GPU", 0.0), facts.known_s)
    rows = [["waited longest", seconds(max((run.waited_us for run in runs), default=0) / 1e6)]]
    if gpus:
        rows.append(["of the GPU time", f"{gpus:.0%}"])
    rows.append(["calls added up", seconds(sum(run.duration_us for run in runs) / 1e6)])
    if facts.glance.counts.retried:
        rows.append(["attempts run again", count(facts.glance.counts.retried)])
    note = "" if len(runs) >= facts.ran else f"of the last {count(len(runs))} calls"
    return card("Where did the time go?", f"{cpus:.0%}", "of the CPU time was given", rows, note=note)


def _share(given_us: float, whole: float, took_s: float) -> float:
    """The part of the time of `whole` devices that was given to calls."""
    return min(1.0, given_us / 1e6 / (whole * took_s or 1.0))


def _failed(facts: Facts, counts: JobCounts, ended: int) -> dict[str, Any]:
    errors = failures_first(facts.glance.errors)
    rows = [[one.text, count(one.failed), one.function] for one in errors[:4] if one.failed]
    small = f"of {plural(ended, 'ended call')}"
    if errors and counts.failed:
        small += f", last at {clock_on(max(one.last_us for one in errors) / 1e6, facts.now_s, False)}"
    if retried := sum(one.retried for one in errors):
        rows = [*rows[:3], ["attempts that failed and ran again", count(retried)]]
    if counts.cancelled:
        rows = [*rows[:3], ["calls that were cancelled", count(counts.cancelled)]]
    link = {"note": "Errors and tracebacks", "link": "#functions", "find": "failed>0"} if errors else {}
    link["finds"] = "functions"
    return card("What failed?", count(counts.failed), small, rows, bad=bool(counts.failed), **link)


def _when(facts: Facts, counts: JobCounts, ended: int) -> dict[str, Any]:
    open_calls = counts.running + counts.waiting
    if facts.is_over:
        rows = [["calls done", count(counts.finished)], ["calls not done", count(open_calls + counts.failed)]]
        rows += [["calls cancelled", count(counts.cancelled)]] if counts.cancelled else []
        q = "When was it done?" if facts.state == "ended" else "When did it end?"
        is_killed = facts.state == "killed"
        small = f"{'killed' if is_killed else ''} after {seconds(facts.now_s - facts.begin_s)}"
        return card(q, clock_on(facts.now_s, facts.begin_s), small, rows, bad=is_killed)
    whole = ended + open_calls
    known: dict[str, Any] = {
        "meter": [counts.finished, counts.failed, counts.running, whole, counts.cancelled],
        "said": f"{count(ended)} of {count(whole)} ended",
    }
    found = facts.estimates.get("")
    if not open_calls:
        return card("When is it done?", "\u2013", "no call is open", **known)
    if found is None:
        return card("When is it done?", **_not_before(facts), **known)
    late_s = found.end_s - facts.end_s if facts.end_s else 0.0
    small, rows = f"about, in {seconds(max(0.0, found.end_s - facts.now_s))}", []
    if late_s > 0:
        small = f"about, {seconds(late_s)} after the job's time"
        late = facts.open_at_end()
        rows = [["calls open at its end", count(late.pop("", 0))]]
        rows += [[f"{name}, open at the end", count(number), name] for name, number in late.items()][:3]
    fine = found.high_s - facts.now_s < 600
    low, high, end = (clock_on(one, facts.now_s, fine) for one in (found.low_s, found.high_s, found.end_s))
    note = f"{low} to {high}, if no more are submitted"
    return card("When is it done?", end, small, rows, note=note, bad=late_s > 0, **known)


def _not_before(facts: Facts) -> dict[str, Any]:
    """What is known of the end while most open calls are of functions of which too few have ended."""
    ends = {name: one.end_s for name, one in facts.estimates.items() if name}
    last = max(ends, key=lambda name: ends[name], default=None)
    unknown = sorted(facts.unknown.items(), key=lambda one: -one[1])
    rows = [[f"{name}: too few have ended", count(number), name] for name, number in unknown[:3]]
    if last is None:
        return {"big": "\u2013", "small": "no estimate yet", "rows": rows}
    is_late, big = bool(facts.end_s) and ends[last] > facts.end_s, f"> {clock_on(ends[last], facts.now_s, False)}"
    return {"big": big, "small": f"when {last} may be done", "rows": rows, "bad": is_late}


def _wall(facts: Facts) -> list[Block]:
    """The time of the job, if that is known and it runs."""
    if facts.is_over or not facts.end_s:
        return []
    found = facts.estimates.get("")
    span = {} if found is None else {"estimate": found.end_s, "low": found.low_s, "high": found.high_s}
    return [{"id": "wall", "kind": "wall", "begin": facts.begin_s, "now": facts.now_s, "end": facts.end_s, **span}]


def _tiles(facts: Facts) -> Block:
    counts, total, free = facts.glance.counts, facts.glance.total, facts.glance.free
    curves = facts.curves
    failed = count(counts.failed)
    tiles = [
        _tile("Running", count(counts.running), curves["running"]),
        _tile("Waiting", count(counts.waiting), curves["waiting"]),
        _tile("Done", count(counts.finished), _risen(curves["done"])),
        _tile("Failed", failed, _risen(curves["failed"]), small=f"of {count(counts.ended)}", bad=bool(counts.failed)),
        _tile("Calls a second", three(facts.rates.get("", 0.0)), curves["rate"]),
    ]
    for what, label in (("CPU", "CPUs given"), ("GPU", "GPUs given")):
        if whole := total.get(what):
            used = max(0.0, whole - free.get(what, 0.0))
            tiles.append(_tile(label, three(used), curves[what], small=f"of {three(whole)}", max=whole))
    whole = total.get("object_store_memory", 0.0)
    used = whole - free.get("object_store_memory", 0.0)
    tiles.append(_tile("Object store", size(used), curves["store"], small=f"of {size(whole)}", max=whole))
    if len(tiles) < 8 and facts.cpu_use is not None:
        name = "CPU use, the host" if len(facts.measured) == 1 else "CPU use, all hosts"
        tiles.append(_tile(name, f"{facts.cpu_use:.0%}", curves["CPU use"], max=1))
    return {"id": "tiles", "kind": "tiles", "tiles": tiles}


def _tile(label: str, value: str, curve: list[float], **more: Any) -> dict[str, Any]:
    return {"label": label, "value": value, "curve": curve, **more}


def _risen(values: list[float]) -> list[float]:
    return [value - values[0] for value in values]

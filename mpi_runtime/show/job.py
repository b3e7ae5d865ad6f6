"""The document of a job: while it runs for the live page, and when it has ended for `init(report="job.html")`.

Both are made of the same facts, the answers of the job's window (`scheduler/answers/look.py`).
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from mpi_runtime.show.charts import DONE, FAILED, RUNNING, Ran, colours, lanes, use
from mpi_runtime.show.estimates import Estimate
from mpi_runtime.show.numbers import clock, count, plural, seconds, size, three
from mpi_runtime.show.page import Block, Document, table

CALLS_MAX = 20_000
"""The most rows in the table of calls: the last."""
ENDINGS = ("done", "raised", "died")
KINDS = ("task", "actor", "method")
FEW_NODES = 8
PASSED_ON = "an argument is "
"""Errors with these words are not the first of their kind: see `scheduler/values/endings.py`."""
LINES_MAX = 1000
TIMELINE_S = 600.0
"""How much of the past the timeline of a running job shows."""
PILLS = {
    "running": ["run live", "Running"], "ended": ["hollow", "Ended"], "killed": ["bad", "Killed"],
    "lost": ["warn", "No answer"],
}  # fmt: skip
_PREFIX = re.compile(r"^\((?P<who>.*?)(?: pid=\d+)?(?:, rank (?P<rank>\d+), (?P<host>[^)]*))?\) $")


class Facts(msgspec.Struct, kw_only=True):
    """All that is known about a job."""

    name: str
    pid: int
    host: str
    state: str = "running"
    cause: str = ""
    begin_s: float
    now_s: float
    glance: dict[str, Any]
    runs: Sequence[Sequence[Any]] = ()
    """The last calls that have ended: see `scheduler/log/history.py`, `short`."""
    ran: int = 0
    """The number of calls that have ended."""
    actors: dict[str, Any] = {}
    store: dict[str, Any] = {}
    output: Sequence[Sequence[Any]] = ()
    errors: dict[str, list[dict[str, Any]]] = {}
    """With tracebacks, by function. The live page asks for them on a click."""
    curves: dict[str, list[float]] = {}
    rates: dict[str, float] = {}
    """Ends a second in the last minute, by function; "": of all."""
    estimates: dict[str, Estimate] = {}
    """By function; "": of the job."""
    waits: list[tuple[str, int, str]] = []
    """Why calls wait: reason, count, function."""
    samples_s: float = 1.0
    """Seconds between the points of the curves."""
    measured: dict[str, Any] = {}
    """What this host shows: CPU use, memory, memory of processes by pid."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, one way or another."""
        return self.state in ("ended", "killed")


def document(facts: Facts) -> Document:
    """Make the document."""
    glance = facts.glance
    functions = glance["functions"]
    rest = facts.now_s - facts.begin_s
    meta = [
        f"{facts.host}, {plural(glance['nodes_in_all'], 'node')}",
        f"pid {facts.pid}",
        f"started {clock(facts.begin_s)}",
        f"{'took' if facts.is_over else 'elapsed'} {seconds(rest)}",
    ]
    ran = _ran(facts)
    blocks: list[Block] = [{"id": "answers", "kind": "cards", "cards": _cards(facts), "join": _has_wall(facts)}]
    if _has_wall(facts):
        blocks.append(_wall(facts))
    if facts.curves:
        blocks.append(_tiles(facts))
    if rows := _warnings(facts):
        blocks.append({"id": "warnings", "kind": "warns", "rows": rows})
    blocks.append(_functions(facts))
    if facts.is_over:
        blocks += _use(facts, ran)
    blocks += [_nodes(facts), *_actors(facts), *_store(facts), _timeline(facts, ran), _output(facts)]
    if facts.is_over and facts.runs:
        blocks.append(_calls(facts))
    return {
        "name": facts.name,
        "pill": PILLS[facts.state],
        "meta": meta,
        "banner": _banner(facts),
        "colours": colours(one["name"] for one in functions),
        "blocks": blocks,
    }


def _banner(facts: Facts) -> list[str] | None:
    looks = {"killed": "bad", "lost": "warn"}
    return [looks[facts.state], facts.cause] if facts.state in looks and facts.cause else None


# The four answers


def _cards(facts: Facts) -> list[dict[str, Any]]:
    counts, functions = facts.glance["counts"], facts.glance["functions"]
    ended = counts["finished"] + counts["failed"]
    return [
        _doing(facts, counts, functions, ended),
        _went(facts, ended) if facts.is_over else _waits(facts, counts),
        _failed(facts, counts, ended),
        _when(facts, counts, ended),
    ]


def _doing(facts: Facts, counts: dict[str, Any], functions: list[dict[str, Any]], ended: int) -> dict[str, Any]:
    key = "done" if facts.state == "ended" else "running"
    top = sorted((one for one in functions if one[key]), key=lambda one: -one[key])[:4]
    card: dict[str, Any] = {"rows": [[one["name"], count(one[key]), one["name"]] for one in top]}
    if facts.state == "ended":
        return {**card, "q": "What did it do?", "big": count(ended), "small": "calls ended"}
    if facts.state == "killed":
        return {**card, "q": "What was it doing?", "big": count(counts["running"]), "small": "calls ran, and were lost"}
    rate = facts.rates.get("", 0.0)
    small = "call runs" if counts["running"] == 1 else "calls run"
    small += f", {three(rate)} end each second" if rate else ""
    if not counts["submitted"]:
        card["rows"] = [["The program has submitted no call yet.", ""]]
    link = {"note": "All functions", "link": "#functions"} if functions else {}
    return {**card, "q": "What is it doing?", "big": count(counts["running"]), "small": small, **link}


def _waits(facts: Facts, counts: dict[str, Any]) -> dict[str, Any]:
    small = "call waits" if counts["waiting"] == 1 else "calls wait"
    rows = [[f"{name}: {why}", count(number), name] for why, number, name in facts.waits[:4]]
    return {"q": "What waits, and why?", "big": count(counts["waiting"]), "small": small, "rows": rows}


def _went(facts: Facts, ended: int) -> dict[str, Any]:
    """Where the time went: of the runs that are known."""
    runs, took_s = facts.runs, _known_s(facts)
    given = {
        what: sum(run[8] * run[place] for run in runs) / 1e6 / (facts.glance["total"].get(what, 0.0) * took_s or 1.0)
        for what, place in (("CPU", 11), ("GPU", 12))
    }
    rows = [["waited longest", seconds(max((run[7] - run[6] for run in runs), default=0) / 1e6)]]
    if given["GPU"]:
        rows.append(["of the GPU time", f"{min(1.0, given['GPU']):.0%}"])
    rows.append(["calls added up", seconds(sum(run[8] for run in runs) / 1e6)])
    if facts.glance["counts"]["retried"]:
        rows.append(["attempts run again", count(facts.glance["counts"]["retried"])])
    note = "" if len(runs) >= facts.ran else f"of the last {count(len(runs))} calls"
    return {
        "q": "Where did the time go?", "big": f"{min(1.0, given['CPU']):.0%}", "small": "of the CPU time was given",
        "rows": rows, "note": note,
    }  # fmt: skip


def failures_first(errors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kinds of errors, those with most failed calls first, and last those of calls whose arguments have failed."""
    return sorted(errors, key=lambda one: (PASSED_ON in one["text"], -one["failed"], -one["retried"]))


def _known_s(facts: Facts) -> float:
    """How long the time is in which all calls are known: that of the job, or of its last calls."""
    if len(facts.runs) >= facts.ran:
        return max(1e-9, facts.now_s - facts.begin_s)
    return max(1e-9, max(run[7] + run[8] for run in facts.runs) / 1e6 - min(run[7] for run in facts.runs) / 1e6)


def _failed(facts: Facts, counts: dict[str, Any], ended: int) -> dict[str, Any]:
    errors = failures_first(facts.glance["errors"])
    rows = [[one["text"], count(one["failed"]), one["function"]] for one in errors[:4] if one["failed"]]
    small = f"of {plural(ended, 'ended call')}"
    if errors and counts["failed"]:
        small += f", last at {clock(max(one['last_us'] for one in errors) / 1e6, with_seconds=False)}"
    card = {
        "q": "What failed?", "big": count(counts["failed"]), "small": small, "rows": rows, "bad": bool(counts["failed"])
    }  # fmt: skip
    if retried := sum(one["retried"] for one in errors):
        card["rows"] = [*rows[:3], ["attempts that failed and ran again", count(retried)]]
    if errors:
        card.update(note="Errors and tracebacks", link="#functions")
    return card


def _when(facts: Facts, counts: dict[str, Any], ended: int) -> dict[str, Any]:
    open_calls = counts["running"] + counts["waiting"]
    if facts.is_over:
        rows = [["calls done", count(counts["finished"])], ["calls not done", count(open_calls + counts["failed"])]]
        how = "killed" if facts.state == "killed" else ""
        return {
            "q": "When was it done?" if facts.state == "ended" else "When did it end?", "big": clock(facts.now_s),
            "small": f"{how} after {seconds(facts.now_s - facts.begin_s)}", "rows": rows, "bad": facts.state == "killed",
        }  # fmt: skip
    known = {"q": "When is it done?", "meter": [counts["finished"], counts["failed"], counts["running"], ended + open_calls]}
    known["said"] = f"{count(ended)} of {count(ended + open_calls)} ended"
    found = facts.estimates.get("")
    if not open_calls:
        return {**known, "big": "\u2013", "small": "no call is open"}
    if found is None:
        return {**known, "big": "\u2013", "small": "no estimate before 20 calls have ended", "rows": []}
    end_us = facts.glance["end_us"]
    late_s = found.end_s - end_us / 1e6 if end_us else 0.0
    small = f"about, in {seconds(max(0.0, found.end_s - facts.now_s))}"
    rows = []
    if late_s > 0:
        small = f"about, {seconds(late_s)} after the job's time"
        rows = [
            [f"{name}, open at the end", count(one.open_at(end_us / 1e6, facts.now_s)), name]
            for name, one in facts.estimates.items()
            if name and one.end_s > end_us / 1e6
        ][:3]
    note = f"{clock(found.low_s, False)} to {clock(found.high_s, False)}, if no more are submitted"
    return {**known, "big": clock(found.end_s, with_seconds=found.end_s - facts.now_s < 600), "small": small, "rows": rows,
            "note": note, "bad": late_s > 0}  # fmt: skip


def _has_wall(facts: Facts) -> bool:
    return not facts.is_over and bool(facts.glance["end_us"])


def _wall(facts: Facts) -> Block:
    found = facts.estimates.get("")
    span = {} if found is None else {"estimate": found.end_s, "low": found.low_s, "high": found.high_s}
    end_s = facts.glance["end_us"] / 1e6
    return {"id": "wall", "kind": "wall", "begin": facts.begin_s, "now": facts.now_s, "end": end_s, **span}


def _tiles(facts: Facts) -> Block:
    counts, total, free = facts.glance["counts"], facts.glance["total"], facts.glance["free"]
    ended = counts["finished"] + counts["failed"]
    curves = facts.curves
    tiles: list[dict[str, Any]] = [
        {"label": "Running", "value": count(counts["running"]), "curve": curves["running"]},
        {"label": "Waiting", "value": count(counts["waiting"]), "curve": curves["waiting"]},
        {"label": "Done", "value": count(counts["finished"]), "curve": _risen(curves["done"])},
        {"label": "Failed", "value": count(counts["failed"]), "small": f"of {count(ended)}",
         "curve": _risen(curves["failed"]), "bad": bool(counts["failed"])},
        {"label": "Calls a second", "value": three(facts.rates.get("", 0.0)), "curve": curves["rate"]},
    ]  # fmt: skip
    for what, label in (("CPU", "CPUs given"), ("GPU", "GPUs given")):
        if whole := total.get(what):
            used = whole - free.get(what, 0.0)
            tiles.append({"label": label, "value": three(max(0.0, used)), "small": f"of {three(whole)}",
                          "curve": curves[what], "max": whole})  # fmt: skip
    whole = total.get("object_store_memory", 0.0)
    used = whole - free.get("object_store_memory", 0.0)
    tiles.append({"label": "Object store", "value": size(used), "small": f"of {size(whole)}", "curve": curves["store"],
                  "max": whole})  # fmt: skip
    if len(tiles) < 8 and facts.measured:
        tiles.append({"label": "CPU use, this host", "value": f"{facts.measured['cpu']:.0%}", "curve": curves["cpu_use"],
                      "max": 1})  # fmt: skip
    return {"id": "tiles", "kind": "tiles", "tiles": tiles}


def _risen(values: list[float]) -> list[float]:
    return [value - values[0] for value in values]


def _warnings(facts: Facts) -> list[list[Any]]:
    found = [[one[1], one[4], ""] for one in facts.output if one[2] >= 30]
    return found[-5:][::-1]


# Sections


def _functions(facts: Facts) -> Block:
    took: dict[str, list[int]] = {}
    for run in facts.runs:
        took.setdefault(run[0], []).append(run[8])
    errors = {one["function"] for one in facts.glance["errors"]}
    rows, details = [], {}
    for one in facts.glance["functions"]:
        name, times = one["name"], took.get(one["name"], [])
        end = facts.estimates.get(name)
        median = statistics.median(times) / 1e6 if times else one["mean_us"] / 1e6 if one["mean_us"] >= 0 else None
        mean = clock(end.end_s, False) if end is not None and not facts.is_over else ""
        bar = [one["done"], one["failed"], one["running"], one["submitted"], name, mean]
        row = [name, name, one["needs"], bar, one["waiting"], one["running"], one["done"], one["failed"], median]
        rows.append([*row, max(times) / 1e6 if times else None, facts.rates.get(name, 0.0)])
        if facts.is_over and name in errors:
            details[name] = error_blocks(facts.errors.get(name) or [e for e in facts.glance["errors"] if e["function"] == name])
    columns = [
        ("function", "fn", {"w": 1}), ("needs", "text"), ("progress", "meter", {"w": 1}), ("waiting", "count"),
        ("running", "count"), ("done", "count"), ("failed", "count", {"bad": 1}),
        ("median", "time", {"help": "of the ended calls that are known"}), ("longest", "time"),
    ]  # fmt: skip
    if not facts.is_over:
        columns.append(("calls/s", "num", {"help": "ends a second in the last minute"}))
    else:
        rows = [row[:-1] for row in rows]
    return table(
        "functions", "Functions", columns, rows, open=True, live=not facts.is_over, details=details,
        search="function" if len(rows) > 8 else "", empty="The program has submitted no call yet.", sort=6 if facts.is_over else 3, down=True,
    )  # fmt: skip


def error_blocks(errors: Sequence[dict[str, Any]]) -> list[Block]:
    """Blocks that show errors with their tracebacks."""
    shown = []
    for one in errors:
        parts = [f"{plural(one['failed'], 'call')} failed"] if one["failed"] else []
        parts += [f"{plural(one['retried'], 'attempt')} failed and ran again"] if one["retried"] else []
        where = f"last at {clock(one['last_us'] / 1e6)}" + (f" on {one['host']}, rank {one['rank']}" if one["host"] else "")
        shown.append({"text": one["text"], "where": f"{', '.join(parts)}; {where}", "trace": one["trace"]})
    return [{"kind": "errors", "errors": shown, "open": len(shown) < 4}] if shown else []


def _ran(facts: Facts) -> list[Ran]:
    found = [
        Ran(run[2], run[7] / 1e6, (run[7] + run[8]) / 1e6, run[0], FAILED if run[9] else DONE, run[11], run[12], run[13])
        for run in facts.runs
    ]
    if not facts.is_over:
        found += [
            Ran(run[3], facts.now_s - run[6] / 1e6, facts.now_s, run[0], RUNNING) for run in facts.glance["running"]
        ]
    return found


def _use(facts: Facts, ran: list[Ran]) -> list[Block]:
    total = facts.glance["total"]
    begin_s = min((one.start for one in ran), default=facts.begin_s)
    end_s = max((one.end for one in ran), default=begin_s)
    series = use(ran, begin_s, end_s, (total.get("CPU", 0.0), total.get("GPU", 0.0)))
    said = "given to calls"
    if facts.ran > len(facts.runs):
        said += f"; only the last {count(len(facts.runs))} of {count(facts.ran)} calls are kept"
    return [{"id": "use", "kind": "areas", "title": "Use over time", "said": said, "from": begin_s, "to": end_s,
             "clock": True, "series": series}] if series else []  # fmt: skip


def _timeline(facts: Facts, ran: list[Ran]) -> Block:
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
    found = lanes(ran, begin_s, end_s)
    if found["hidden"]:
        said += f"; {count(found['hidden'])} more lanes are not shown"
    return {"id": "timeline", "kind": "lanes", "title": "Timeline", "said": said, "clock": True, **found}


def _nodes(facts: Facts) -> Block:
    nodes, in_all = facts.glance["nodes"], facts.glance["nodes_in_all"]
    store = {one["hostname"]: one for one in facts.store.get("nodes", [])}
    closed = [one for one in nodes if one["is_closed"] or one["problems"]]
    said = f"{count(in_all)}, {'all well' if not closed else plural(len(closed), 'of them needs a look')}"
    if len(nodes) > FEW_NODES:
        return {"id": "nodes", "kind": "heat", "title": "Nodes", "said": said, **_heat(nodes, store)}
    if facts.is_over:
        return _nodes_after(facts, nodes, store)
    has_gpus = any(one["gpus"] for one in nodes)
    rows = []
    for number, one in enumerate(nodes):
        kept = store.get(one["name"], {})
        row = [f"{number}", one["name"], _state_of(one), _share(one["cpus_used"], one["cpus"], three)]
        row += [_share(one["gpus_used"], one["gpus"], three)] if has_gpus else []
        row += [_share(one["memory_used"], one["memory"], size), _share(kept.get("used", 0), one["arena"], size)]
        rows.append([*row, kept.get("on_disk", 0), one["executors"]])
    wide = {"w": 1, "l": 1}
    columns = [("node", "mono", {"w": 1}), ("state", "pill"), ("CPUs given", "share", wide)]
    columns += [("GPUs given", "share", wide)] if has_gpus else []
    columns += [("memory given", "share", wide), ("object store", "share", wide), ("on disk", "bytes")]
    columns += [("processes", "count")]
    return table("nodes", "Nodes", columns, rows, said=said, sort=0)


def _nodes_after(facts: Facts, nodes: list[dict[str, Any]], store: dict[str, Any]) -> Block:
    """The nodes of a job that has ended: what they have done."""
    took_s = _known_s(facts)
    rows = []
    for number, one in enumerate(nodes):
        runs = [run for run in facts.runs if run[2] == one["name"]]
        busy_s = sum(run[8] * run[11] for run in runs) / 1e6
        failed = sum(run[9] != 0 for run in runs)
        kept = store.get(one["name"], {})
        rows.append([f"{number}", one["name"], one["cpus"], _share(busy_s, one["cpus"] * took_s, seconds), len(runs), failed,
                     kept.get("used", 0), kept.get("on_disk", 0)])  # fmt: skip
    columns = [
        ("node", "mono", {"w": 1}), ("CPUs", "num"), ("CPU time given", "share", {"w": 1, "l": 1}), ("attempts", "count"),
        ("failed", "count", {"bad": 1}), ("object store", "bytes"), ("on disk", "bytes"),
    ]  # fmt: skip
    return table("nodes", "Nodes", columns, rows, said=count(facts.glance["nodes_in_all"]), sort=0)


def _share(used: float, whole: float, form: Any) -> list[Any]:
    return [used, whole, f"{form(used)} of {form(whole)}"]


def _state_of(node: dict[str, Any]) -> str:
    return "full" if node["is_closed"] else "lost GPU" if node["problems"] else "runs"


def _heat(nodes: list[dict[str, Any]], store: dict[str, Any]) -> dict[str, Any]:
    metrics = [{"key": "cpus", "name": "CPUs given"}, {"key": "memory", "name": "Memory given"}, {"key": "store", "name": "Store"}]
    if any(one["gpus"] for one in nodes):
        metrics.insert(1, {"key": "gpus", "name": "GPUs given"})
    cells = []
    for one in nodes:
        kept = store.get(one["name"], {})
        values = {key: one[f"{key}_used"] / (one[key] or 1) for key in ("cpus", "gpus", "memory")}
        flag = "its memory is nearly used up: no new call" if one["is_closed"] else "; ".join(one["problems"])
        facts = [
            ["CPUs", f"{three(one['cpus_used'])} of {three(one['cpus'])} given"],
            ["GPUs", f"{three(one['gpus_used'])} of {three(one['gpus'])} given"],
            ["memory", f"{size(one['memory_used'])} of {size(one['memory'])} given"],
            ["object store", f"{size(kept.get('used', 0))} of {size(one['arena'])}"],
            ["on disk", size(kept.get("on_disk", 0))],
        ]
        values["store"] = kept.get("used", 0) / (one["arena"] or 1)
        cells.append({"id": one["name"], "values": values, "flag": flag, "facts": facts,
                      "said": plural(one["executors"], "process").replace("processs", "processes")})  # fmt: skip
    return {"metrics": metrics, "nodes": cells}


def _actors(facts: Facts) -> list[Block]:
    rows = []
    memory = facts.measured.get("memory_of", {})
    hosts = {f"{number:032x}": one["name"] for number, one in enumerate(facts.glance["nodes"])}
    for one in facts.actors.get("rows", []):
        title = one["name"] or one["repr_name"] or one["actor_id"][:8]
        where = hosts.get(one["node_id"], "") if one["node_id"] else ""
        rows.append([one["actor_id"], title, one["class_name"], one["state"], where, one["pid"], one["pending_calls"],
                     one["num_restarts"], memory.get(one["pid"]), one["death_cause"] or ""])  # fmt: skip
    if not rows:
        return []
    states = [row[3] for row in rows]
    said = f"{count(facts.actors['count'])}: " + ", ".join(
        f"{count(states.count(state))} {state.lower().replace('_', ' ')}" for state in dict.fromkeys(states)
    )
    columns = [
        ("name", "mono", {"w": 1}), ("class", "mono"), ("state", "pill"), ("node", "mono"), ("pid", "text"),
        ("waiting", "count"), ("restarts", "count"), ("memory", "bytes", {"help": "of actors on this host"}),
        ("cause of death", "text"),
    ]  # fmt: skip
    return [table("actors", "Actors", columns, rows, said=said, count=facts.actors["count"], sort=5, down=True,
                  open=not facts.is_over, search="name, class, state" if len(rows) > 8 else "")]  # fmt: skip


def _store(facts: Facts) -> list[Block]:
    store = facts.store
    if not store or not (store["used"] or store["on_disk"]):
        return []
    said = f"{plural(store['count'], 'object')}, {size(store['used'])} of {size(store['capacity'])}"
    said += f"; {size(store['on_disk'])} spilled to disk" if store["on_disk"] else ""
    by_function = sorted(((made_by(name), amount) for name, amount in store["by_function"].items()), key=lambda one: -one[1])[:6]
    fullest = [one for one in store["nodes"] if one["used"]][:6]
    halves = [
        {"title": "The largest, by the function that made them", "form": "bytes",
         "rows": [[name, amount, name] for name, amount in by_function]},
        {"title": "By node", "form": "bytes", "rows": [[one["hostname"], one["used"]] for one in fullest]},
    ]  # fmt: skip
    rows = []
    for one in store["largest"]:
        held = one["held_by"]
        held = ", ".join(map(str, held)) if isinstance(held, (list, tuple)) else str(held)
        made = made_by(one["made_by"])
        state = " and ".join(["in memory"] * one["in_memory"] + ["on disk"] * one["on_disk"]) or "moves"
        rows.append([one["object_id"], one["object_id"][-12:], made, one["hostname"], state, held, one["size"]])
    columns = [("largest", "mono", {"w": 1}), ("made by", "fn"), ("node", "mono"), ("state", "text"),
               ("held by", "text", {"clip": 1}), ("size", "bytes")]  # fmt: skip
    return [
        {"id": "objects", "kind": "bars", "title": "Objects", "said": said, "halves": halves},
        table("largest", "", columns, rows, noun="objects", sort=5, down=True, limit=8),
    ]


def made_by(text: str) -> str:
    """What made a value, in short: a function, or the line of a `put`."""
    name = text.partition(" (")[0]
    return f"put at {os.path.basename(name.partition(' in ')[0])}" if " in " in name else name or "put"


def lines_of(pieces: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Lines of output, the newest first: number, time, level, writer, text, function."""
    lines: list[list[Any]] = []
    for number, time_s, level, prefix, text in pieces:
        found = _PREFIX.match(prefix)
        who, name = prefix.strip(), None
        if found is not None:
            name = found["who"]
            who = name + (f", rank {found['rank']}" if found["rank"] else "")
        lines += [[number, time_s, level, who, one[:2000], name] for one in text.rstrip("\n").split("\n")]
    return lines[-LINES_MAX:][::-1]


def _output(facts: Facts) -> Block:
    rows = lines_of(facts.output)
    return {"id": "output", "kind": "log", "title": "Output", "rows": rows, "count": len(rows)}


def _calls(facts: Facts) -> Block:
    begin_s = min(run[7] for run in facts.runs) / 1e6
    rows = []
    for number, run in enumerate(facts.runs[-CALLS_MAX:]):
        name, kind, host, rank, pid, actor, submitted_us, start_us, duration_us, outcome, attempt, _, _, gpus = run
        title = f"{actor}: {name}" if actor and actor not in name else name
        rows.append([str(number), title, ENDINGS[outcome], host, rank, pid, ",".join(map(str, gpus)),
                     round(max(0, start_us - submitted_us) / 1e6, 6), round(start_us / 1e6 - begin_s, 4),
                     duration_us / 1e6, attempt + 1, KINDS[kind]])  # fmt: skip
    columns = [
        ("call", "mono", {"w": 1}), ("ending", "pill"), ("host", "mono"), ("rank", "text"), ("pid", "text"), ("GPUs", "text"),
        ("waited", "time"), ("start", "time"), ("took", "time"), ("attempt", "count"), ("kind", "text"),
    ]  # fmt: skip
    said = f"the last {count(len(rows))} of {count(facts.ran)}" if facts.ran > len(rows) else count(len(rows))
    return table("calls", "Calls", columns, rows, said=f"{said} attempts", sort=7, search="name, host, ending, took>1", limit=50)

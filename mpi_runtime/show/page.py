"""Builds the HTML page of a report: charts, failures, and a table. The page loads no other files."""

from __future__ import annotations

import heapq
import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

STEPS = 400
"""Number of parts of the time in the lines of utilisation."""
NAME, ENDING, START, TOOK, HOST, TEXT = range(6)
"""Positions in each row. Further columns may follow."""
DONE = "done"
"""The ending of a success."""


class Ran(msgspec.Struct, frozen=True):
    """One thing that has run, as the charts need it."""

    host: str
    start: float
    """In seconds since 1970."""
    end: float
    cpus: float = 0.0
    gpus: float = 0.0
    gpu_ids: Sequence[int] = ()


class Column(msgspec.Struct, frozen=True, array_like=True):
    """One column of the table."""

    title: str
    index: int
    """Its position in a row."""
    form: str = ""
    """Its form: a "time" in seconds, a "size" in bytes, a "count", or empty for text."""


def page(
    name: str,
    summary: str,
    facts: Sequence[tuple[str, str]],
    failures: str,
    noun: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    ran: Sequence[Ran],
    capacity: tuple[float, float],
) -> str:
    """Make the page.

    Args:
        name: its title.
        summary: one line on top.
        facts: lines below that: title and text.
        failures: HTML.
        noun: a name for the rows, in the plural.
        columns: of the table.
        rows: of the table: see `NAME` and its neighbours; `START` counts from the first start.
        ran: the rows for the charts, in the same order.
        capacity: the numbers of CPUs and GPUs.
    """
    begin_s = min((one.start for one in ran), default=0.0)
    end_s = max((one.end for one in ran), default=begin_s)
    cpus, gpus = ([(one, one.cpus) for one in ran], [(one, one.gpus) for one in ran])
    use = [
        {"name": "CPUs", "most": capacity[0], "steps": _use(cpus, begin_s, end_s)},
        {"name": "GPUs", "most": capacity[1], "steps": _use(gpus, begin_s, end_s)},
    ]
    content = {
        "name": name,
        "noun": noun,
        "begin": begin_s,
        "end": end_s,
        "lanes": _lanes(ran),
        "columns": msgspec.to_builtins(columns),
        "rows": rows,
        "use": [one for one in use if any(one["steps"])],  # type: ignore[arg-type]
    }
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return (
        PAGE.replace("@NAME@", html.escape(name))
        .replace("@NOUN@", html.escape(noun))
        .replace("@TITLE@", html.escape(noun.capitalize()))
        .replace("@SUMMARY@", html.escape(summary))
        .replace("@FACTS@", "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts))
        .replace("@FAILURES@", failures or "<p>none</p>")
        .replace("@DATA@", data)
    )


def _lanes(ran: Iterable[Ran]) -> list[dict[str, Any]]:
    """The lanes of the Gantt chart: for each host as many as ran at a time, and one for each GPU."""
    lanes: dict[tuple[str, str, int], list[int]] = {}
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[float, int]]] = {}
    for number, one in sorted(enumerate(ran), key=lambda one: one[1].start):
        host = one.host or "lost"
        mine, others = free.setdefault(host, []), busy.setdefault(host, [])
        while others and others[0][0] <= one.start:
            heapq.heappush(mine, heapq.heappop(others)[1])
        lane = heapq.heappop(mine) if mine else len(others)
        heapq.heappush(others, (one.end, lane))
        lanes.setdefault((host, "", lane), []).append(number)
        for gpu in one.gpu_ids:
            lanes.setdefault((host, "GPU", gpu), []).append(number)
    return [
        {"name": f"{host} GPU {lane}" if kind else host, "isFirst": lane == 0 or bool(kind), "rows": numbers}
        for (host, kind, lane), numbers in sorted(lanes.items())
    ]


def _use(amounts: Iterable[tuple[Ran, float]], begin_s: float, end_s: float) -> list[float]:
    """The average use in each of STEPS parts of the time."""
    step_s = (end_s - begin_s) / STEPS
    if step_s <= 0:
        return []
    # Each run touches only its first and last part; a running sum of changes covers the parts between.
    changes = [0.0] * (STEPS + 1)
    parts = [0.0] * (STEPS + 1)
    for one, amount in amounts:
        if not amount:
            continue
        first, last = (one.start - begin_s) / step_s, (one.end - begin_s) / step_s
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


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@NAME@</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --line: #d8dee4; --page: #fff; --well: #2c7fb8;
  --bad: #d7301f; --part: #f3f5f7 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4ae; --line: #30363d; --page: #0d1117;
  --part: #161b22; --well: #58a6d6; --bad: #ff7b72 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1200px; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif }
h1 { margin: 0; font-size: 1.5rem } h2 { margin: 2rem 0 .5rem; font-size: 1.1rem }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; margin: .8rem 0 }
dt { color: var(--soft) } dd { margin: 0 }
canvas { display: block; width: 100% }
.scroll { max-height: 480px; overflow: auto; border: 1px solid var(--line) }
input { width: 100%; padding: .4rem .6rem; font: inherit; color: inherit; background: var(--part);
  border: 1px solid var(--line) }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th { position: sticky; top: 0; background: var(--part); text-align: left; cursor: pointer; user-select: none;
  white-space: nowrap }
th, td { padding: .2rem .5rem; border-bottom: 1px solid var(--line) }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.c { font-family: monospace; overflow-wrap: anywhere }
tr.bad td:nth-child(2) { color: var(--bad) }
details { margin: .5rem 0; padding: .4rem .6rem; background: var(--part) } summary span { color: var(--soft) }
code { overflow-wrap: anywhere } pre { margin: .4rem 0 0; overflow: auto; max-height: 20rem }
#tip { position: fixed; padding: .2rem .5rem; background: var(--ink); color: var(--page); font-size: 12px;
  pointer-events: none; display: none; max-width: 40rem; overflow-wrap: anywhere }
#count { color: var(--soft) }
</style>
<h1>@NAME@</h1>
<p id="summary">@SUMMARY@</p>
<dl>@FACTS@</dl>
<h2>Use over time</h2><div id="use"></div>
<h2>What ran where</h2><div class="scroll"><canvas id="gantt"></canvas></div>
<h2>Failures</h2><div id="failures">@FAILURES@</div>
<h2>@TITLE@</h2>
<input id="search" type="search" placeholder="search: parts of names, hosts, commands or endings"
  aria-label="search @NOUN@">
<p id="count"></p>
<div class="scroll"><table><thead><tr id="head"></tr></thead><tbody id="body"></tbody></table></div>
<div id="tip"></div>
<script id="data" type="application/json">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const span = Math.max(data.end - data.begin, 1e-3), rows = data.rows;
const by = id => document.getElementById(id), style = name => getComputedStyle(document.body).getPropertyValue(name);
const NAME = 0, ENDING = 1, START = 2, TOOK = 3, HOST = 4, TEXT = 5;
const LABEL = 170, LANE = 12, SHOWN = 1000;
function time(s) {
  if (s < 1) return Math.round(s * 1000) + " ms";
  if (s < 100) return s.toFixed(s < 10 ? 2 : 1) + " s";
  if (s < 6000) return (s / 60).toFixed(1) + " min";
  return (s / 3600).toFixed(2) + " h";
}
function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return bytes.toFixed(unit ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}
function drawing(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 1100;
  canvas.style.height = height + "px"; canvas.width = width * scale; canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale); pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
  return [pen, width];
}
function axis(pen, width, y) {
  pen.fillStyle = style("--soft");
  for (let i = 0; i <= 4; i++) {
    pen.textAlign = i === 4 ? "right" : i ? "center" : "left";
    pen.fillText(time(span * i / 4), LABEL + (width - LABEL) * i / 4, y);
  }
}
function gantt() {
  const height = data.lanes.length * LANE + 22, [pen, width] = drawing(by("gantt"), height);
  data.lanes.forEach((lane, number) => {
    const y = number * LANE;
    if (lane.isFirst) {
      pen.fillStyle = style("--line"); pen.fillRect(0, y, width, 1);
      pen.fillStyle = style("--soft"); pen.textAlign = "left"; pen.fillText(lane.name, 2, y + LANE / 2 + 1, LABEL - 8);
    }
    for (const index of lane.rows) {
      const row = rows[index], x = LABEL + (width - LABEL) * row[START] / span;
      pen.fillStyle = row[ENDING] === "done" ? style("--well") : style("--bad");
      pen.globalAlpha = index % 2 ? .75 : 1;
      pen.fillRect(x, y + 2, Math.max(.6, (width - LABEL) * row[TOOK] / span - .4), LANE - 3);
    }
    pen.globalAlpha = 1;
  });
  axis(pen, width, height - 10);
}
by("gantt").addEventListener("mousemove", event => {
  const box = by("gantt").getBoundingClientRect(), lane = data.lanes[Math.floor((event.clientY - box.top) / LANE)];
  const at = (event.clientX - box.left - LABEL) / (box.width - LABEL) * span, near = span / (box.width - LABEL);
  const found = lane && lane.rows.map(index => rows[index])
    .find(row => row[START] - near <= at && at <= row[START] + row[TOOK] + near);
  by("tip").style.display = found ? "block" : "none";
  if (found) {
    by("tip").textContent = found[NAME] + ", " + time(found[TOOK]) + ", " + found[ENDING] + ": " + found[TEXT];
    by("tip").style.left = Math.min(event.clientX + 12, innerWidth - 320) + "px";
    by("tip").style.top = event.clientY + 14 + "px";
  }
});
by("gantt").addEventListener("mouseleave", () => { by("tip").style.display = "none"; });
function use() {
  by("use").textContent = "";
  for (const one of data.use) {
    const canvas = by("use").appendChild(document.createElement("canvas")), [pen, width] = drawing(canvas, 90);
    const most = Math.max(one.most, ...one.steps, 1e-9), step = (width - LABEL) / one.steps.length;
    pen.fillStyle = style("--soft"); pen.textAlign = "left";
    pen.fillText(one.name + (one.most ? ", of " + one.most : ""), 2, 35);
    pen.fillStyle = style("--part"); pen.fillRect(LABEL, 5, width - LABEL, 60);
    pen.fillStyle = style("--well");
    one.steps.forEach((used, number) => pen.fillRect(LABEL + number * step, 65 - 60 * used / most, step + .3,
      60 * used / most));
    axis(pen, width, 78);
  }
}
const forms = { time, size, count: String };
const columns = data.columns.map(([name, index, form]) => [name, index, forms[form]]);
let sorted = START, isDown = false;
function table() {
  const words = by("search").value.toLowerCase().split(/\\s+/).filter(word => word);
  const found = rows.filter(row => {
    const text = (row[NAME] + " " + row[ENDING] + " " + row[HOST] + " " + row[TEXT]).toLowerCase();
    return words.every(word => text.includes(word));
  });
  const order = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(b, undefined, { numeric: true });
  found.sort((a, b) => order(a[sorted], b[sorted]) * (isDown ? -1 : 1));
  const body = document.createDocumentFragment();
  for (const row of found.slice(0, SHOWN)) {
    const line = body.appendChild(document.createElement("tr"));
    if (row[ENDING] !== "done") line.className = "bad";
    for (const [, index, shown] of columns) {
      const cell = line.appendChild(document.createElement("td"));
      cell.textContent = shown ? shown(row[index]) : row[index];
      cell.className = shown ? "n" : index === TEXT ? "c" : "";
    }
  }
  by("body").replaceChildren(body);
  by("count").textContent = found.length + " of " + rows.length + " ends of " + data.noun
    + (found.length > SHOWN ? "; the first " + SHOWN + " are shown" : "");
  for (const head of by("head").children) {
    const mine = Number(head.dataset.index) === sorted;
    head.textContent = head.dataset.name + (mine ? isDown ? " \\u25bc" : " \\u25b2" : "");
    head.setAttribute("aria-sort", mine ? isDown ? "descending" : "ascending" : "none");
  }
}
for (const [name, index] of columns) {
  const head = by("head").appendChild(document.createElement("th"));
  head.dataset.name = name; head.dataset.index = index;
  head.addEventListener("click", () => { isDown = sorted === index && !isDown; sorted = index; table(); });
}
by("search").addEventListener("input", table);
function draw() { gantt(); use(); }
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw(); table();
document.body.dataset.ready = "yes";
</script>
</html>
"""

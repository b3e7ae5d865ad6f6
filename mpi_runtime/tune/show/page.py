"""One HTML page about an experiment: curves, rungs, parallel coordinates, a table. It loads nothing."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from mpi_runtime.show.tables import in_html
from mpi_runtime.tune.show.plots import place, table
from mpi_runtime.tune.trial import flat

POINTS_MAX = 200
"""The most points of a curve."""
RUNGS = 12
"""The most rows in the table of ends."""
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb")
WIDTH, HEIGHT = 900, 320


def page(results: Any) -> str:
    """The whole page."""
    metric = results.metric
    parts = [f"<p>{len(results)} trials, {results.num_terminated} ended, {results.num_errors} failed.</p>"]
    if metric is not None and any(metric in result.metrics for result in results):
        if results.mode is not None:
            best = results.get_best_result()
            parts.append(
                f"<p>Best {in_html(metric)}: {best.metrics[metric]:.6g} in trial {best.trial_id}, with "
                f"<code>{in_html(json.dumps(best.config, default=repr))}</code></p>"
            )
        parts += [f"<h2>{in_html(metric)}, report by report</h2>", _curves(results, metric), _rungs(results)]
        parts += ["<h2>Parameters and result</h2>", _coordinates(results, metric)]
    parts += ["<h2>Trials</h2><p>A click on a title sorts.</p>", _table(results)]
    title = in_html(results.experiment_path.rstrip("/").rpartition("/")[2])
    return PAGE.replace("TITLE", title).replace("BODY", "\n".join(parts))


def _curves(results: Any, metric: str) -> str:
    curves = []
    for result in results:
        points = [(one["training_iteration"], one[metric]) for one in result.history if _is_finite(one.get(metric))]
        curves.append((result.trial_id, _thinned(points)))
    all_points = [point for _, points in curves for point in points]
    if not all_points:
        return "<p>No report has a number.</p>"
    right = max(x for x, _ in all_points)
    low, high = min(y for _, y in all_points), max(y for _, y in all_points)
    lines = []
    for number, (trial_id, points) in enumerate(curves):
        text = " ".join(
            f"{60 + (WIDTH - 80) * x / max(1, right):.1f},{HEIGHT - 30 - (HEIGHT - 50) * _part(y, low, high):.1f}"
            for x, y in points
        )
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<polyline points="{text}" stroke="{colour}"><title>trial {trial_id}</title></polyline>')
    labels = (
        f'<text x="5" y="25">{high:.4g}</text><text x="5" y="{HEIGHT - 30}">{low:.4g}</text>'
        f'<text x="60" y="{HEIGHT - 8}">0</text><text x="{WIDTH - 60}" y="{HEIGHT - 8}">{right}</text>'
    )
    marks = "".join(
        f'<line class="rung" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{HEIGHT - 30}"/>'
        for x in (60 + (WIDTH - 80) * at / max(1, right) for at, _, _ in rungs(results)[:-1])
    )
    return f'<svg id="curves" viewBox="0 0 {WIDTH} {HEIGHT}">{labels}{marks}{"".join(lines)}</svg>'


def rungs(results: Any) -> list[tuple[int, int, int]]:
    """Ends of trials: the number of reports, the trials that reached it, and those that continued.

    At most `RUNGS` of them: those where most trials have ended, and the last.
    """
    ends = Counter(int(result.metrics.get("training_iteration", 0)) for result in results)
    common = [at for at, _ in ends.most_common(RUNGS - 1)]
    chosen = sorted({*common, max(ends, default=0)} - {0})
    reached = {at: sum(count for end, count in ends.items() if end >= at) for at in chosen}
    return [(at, reached[at], reached[at] - ends[at]) for at in chosen]


def _rungs(results: Any) -> str:
    rows = "".join(f"<tr><td>{at}</td><td>{there}</td><td>{on}</td></tr>" for at, there, on in rungs(results))
    heads = "<th>reports</th><th>trials that reached it</th><th>continued</th>"
    return f'<table id="rungs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _coordinates(results: Any, metric: str) -> str:
    names, rows, values = table(results, metric)
    if not rows:
        return "<p>No trial has ended with a number.</p>"
    columns = [place(column) for column in [*zip(*rows, strict=True), values]]
    across = [40 + (WIDTH - 140) * number / max(1, len(columns) - 1) for number in range(len(columns))]
    lines = []
    for index in range(len(values)):
        text = " ".join(
            f"{x:.1f},{HEIGHT - 40 - (HEIGHT - 70) * column[index]:.1f}"
            for x, column in zip(across, columns, strict=True)
        )
        hue = 240 - 240 * columns[-1][index]
        lines.append(f'<polyline points="{text}" stroke="hsl({hue:.0f} 70% 45%)"/>')
    axes = "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{HEIGHT - 40}"/>'
        f'<text x="{x - 30:.1f}" y="{HEIGHT - 15}">{in_html(name)}</text>'
        for x, name in zip(across, [*names, metric], strict=True)
    )
    return f'<svg id="coordinates" viewBox="0 0 {WIDTH} {HEIGHT}">{axes}{"".join(lines)}</svg>'


def _table(results: Any) -> str:
    configs = [flat(result.config) for result in results]
    parameters = list(dict.fromkeys(name for config in configs for name in config))
    metrics = [results.metric] if results.metric else []
    head = ["trial", "status", "reports", "seconds", *parameters, *metrics]
    rows = []
    for result, config in zip(results, configs, strict=True):
        cells: list[Any] = [result.trial_id, result.status, result.metrics.get("training_iteration", 0)]
        cells.append(round(result.metrics.get("time_total_s", 0.0), 3))
        cells += [config.get(name, "") for name in parameters]
        cells += [result.metrics.get(name, "") for name in metrics]
        rows.append("".join(f"<td>{in_html(str(cell))}</td>" for cell in cells))
    heads = "".join(f"<th>{in_html(name)}</th>" for name in head)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<table id="trials"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _thinned(points: list[Any]) -> list[Any]:
    """About `POINTS_MAX` points, with the last. A single one is repeated, or it would not be painted."""
    chosen = points[:: max(1, len(points) // POINTS_MAX)]
    return chosen if len(points) > 1 and chosen[-1] == points[-1] else [*chosen, *points[-1:]]


def _part(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title><style>
body { font: 15px sans-serif; margin: 2em auto; max-width: 60em; }
svg { width: 100%; background: #fafafa; font-size: 12px; }
svg polyline { fill: none; stroke-width: 1.2; stroke-linecap: round; opacity: 0.7; }
svg polyline:hover { stroke-width: 4; opacity: 1; }
svg line { stroke: #999; } svg line.rung { stroke-dasharray: 3 4; }
table { border-collapse: collapse; } td, th { border: 1px solid #ccc; padding: 3px 8px; } th { cursor: pointer; }
</style></head><body><h1>TITLE</h1>
BODY
<script>
document.querySelectorAll("#trials th").forEach(function (head, column) {
  head.addEventListener("click", function () {
    var body = document.querySelector("#trials tbody"), rows = Array.from(body.rows);
    var sign = head.dataset.sign === "1" ? -1 : 1;
    head.dataset.sign = String(sign);
    rows.sort(function (a, b) {
      var x = a.cells[column].textContent, y = b.cells[column].textContent;
      var numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return sign * (numbers ? x - y : x.localeCompare(y));
    });
    rows.forEach(function (row) { body.appendChild(row); });
  });
});
</script></body></html>
"""

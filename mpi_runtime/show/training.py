"""The page about a training of `mpi-runtime rl train`, from the files in its directory: returns, figures of updates."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from mpi_runtime.show.numbers import count, moment, plural, seconds, three
from mpi_runtime.show.page import Block, Document, card, table

T = TypeVar("T")
Result = dict[str, Any]
"""Of an iteration: what the algorithm has reported, by name."""
RESULTS = "result.json"
"""A line of JSON for each iteration."""
PARAMETERS = "params.json"
POINTS_MAX = 400
"""The most points of a curve."""
ROWS_MAX = 500
SILENT_S = 30.0
"""A training that has written nothing for this time and five iterations counts as ended."""


def newest(directory: Path) -> Path | None:
    """Return the directory of a training: this one or the newest in it, or None without a training."""
    found = [directory / PARAMETERS, *directory.glob(f"*/{PARAMETERS}")]
    if found[0].is_file():
        return directory
    return max((path for path in found[1:]), key=os.path.getmtime).parent if found[1:] else None


def document(directory: Path) -> Document:
    """Make the document of a training.

    Raises:
        OSError: its files cannot be read.
        ValueError: they are not those of a training.
    """
    parameters = json.loads((directory / PARAMETERS).read_text())
    rows = _results(directory / RESULTS)
    written_s = max(os.path.getmtime(directory / name) for name in os.listdir(directory) if name.endswith(".json"))
    pause_s = time.time() - written_s
    each_s = statistics.median(row["time_this_iter_s"] for row in rows) if rows else 60.0
    is_running = pause_s < SILENT_S + 5 * each_s
    blocks: list[Block] = [{"id": "answers", "kind": "cards", "cards": _cards(rows, each_s, pause_s, is_running)}]
    if rows:
        blocks.append(_returns(rows))
        blocks += _updates(rows)
        blocks.append(_table(rows))
    facts = [[name, str(value)] for name, value in parameters.items() if value not in (None, "", [])]
    blocks.append({"id": "parameters", "kind": "kv", "title": "Parameters", "rows": facts})
    saved = sorted(directory.glob("checkpoint_*"), key=lambda one: one.stat().st_mtime)
    begin_s = os.path.getmtime(directory / PARAMETERS)
    meta = [os.fspath(directory), f"started {moment(begin_s)}", f"last written {moment(written_s)}"]
    meta.append(f"last checkpoint {saved[-1].name}" if saved else "no checkpoint")
    return {
        "name": f"{parameters.get('algorithm', 'training')} on {parameters.get('env', '?')}",
        "pill": ["run live", "Running"] if is_running else ["hollow", "Not running"],
        "meta": meta,
        "colours": {},
        "blocks": blocks,
    }


def _results(path: Path) -> list[Result]:
    """The results, without a last line that is not complete yet."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [row for row in map(json.loads, lines) if "episode_reward_mean" in row]


def _cards(rows: Sequence[Result], each_s: float, pause_s: float, is_running: bool) -> list[Result]:
    if not rows:
        return [card("What is it doing?", "\u2013", "no iteration has ended yet")]
    last = rows[-1]
    known = [row for row in rows if _is_number(row["episode_reward_mean"])]
    best = max(known, key=lambda row: row["episode_reward_mean"], default=None)
    good = card("How good is it?", "\u2013", "no episode has ended yet")
    if best is not None:
        now = known[-1]
        results = [
            ["best mean", f"{three(best['episode_reward_mean'])} in iteration {best['training_iteration']}"],
            ["least and most", f"{three(now['episode_reward_min'])}, {three(now['episode_reward_max'])}"],
            ["length of episodes", three(now["episode_len_mean"])],
        ]
        small = "mean return of the last 100 episodes"
        good = card("How good is it?", three(now["episode_reward_mean"]), small, results)
    speed = [
        ["steps", count(last["timesteps_total"])],
        ["steps a second", three(statistics.median(row["steps_per_s"] for row in rows[-20:]))],
        ["an iteration", seconds(each_s)],
    ]
    small = "iteration" if last["training_iteration"] == 1 else "iterations"
    doing = "What is it doing?" if is_running else "What did it do?"
    slow = sum(row["sample_time_s"] for row in rows) / (sum(row["time_this_iter_s"] for row in rows) or 1.0)
    parts = [["samples", seconds(last["sample_time_s"])], ["learns", seconds(last["learn_time_s"])]]
    where = "in the last iteration"
    lost = last["sampler_restarts"]
    fate = "sampler died and was replaced" if lost == 1 else "samplers died and were replaced"
    times = [["time of training", seconds(last["time_total_s"])], ["last result", f"{seconds(pause_s)} ago"]]
    return [
        good,
        card(doing, count(last["training_iteration"]), small, speed),
        card("Where does the time go?", f"{slow:.0%}", "of it samples, the rest learns", parts, note=where),
        card("What failed?", count(lost), fate, times, bad=bool(lost)),
    ]


def _returns(rows: Sequence[Result]) -> Block:
    points = [
        [row["timesteps_total"], row["episode_reward_mean"], row["episode_reward_min"], row["episode_reward_max"]]
        for row in rows
        if _is_number(row["episode_reward_mean"])
    ]
    line = {"x": "steps", "name": "return", "height": 280, "points": _thinned(points)}
    said = "mean, least and most of the last 100 episodes"
    return {"id": "returns", "kind": "line", "title": "Return", "said": said, **line}


def _updates(rows: Sequence[Result]) -> list[Block]:
    """A small chart for each figure of the updates."""
    names = [name for name, value in rows[-1]["info"].items() if isinstance(value, (int, float))]
    charts = []
    for name in names[:8]:
        found = [[row["timesteps_total"], row["info"].get(name)] for row in rows]
        points = _thinned([point for point in found if _is_number(point[1])])
        if points:
            head = name.replace("_", " ")
            charts.append({"kind": "line", "head": head, "name": head, "x": "steps", "height": 160, "points": points})
    return [{"id": "updates", "kind": "half", "title": "Updates", "blocks": charts}] if charts else []


def _table(rows: Sequence[Result]) -> Block:
    shown = []
    for row in rows[-ROWS_MAX:]:
        number, steps = row["training_iteration"], row["timesteps_total"]
        means = [row[name] if _is_number(row[name]) else None for name in ("episode_reward_mean", "episode_len_mean")]
        times = [row["steps_per_s"], row["time_this_iter_s"], row["sample_time_s"]]
        shown.append([str(number), number, steps, *means, *times])
    columns = [("iteration", "count"), ("steps", "count"), ("mean return", "num"), ("length of episodes", "num")]
    columns += [("steps/s", "num"), ("took", "time"), ("of it samples", "time")]
    said = f"the last {len(shown)} of {count(len(rows))}" if len(rows) > len(shown) else plural(len(rows), "iteration")
    return table("iterations", "Iterations", columns, shown, said=said, sort=0, down=True, limit=15)


def _thinned(points: list[T]) -> list[T]:
    """About `POINTS_MAX` points, with the last."""
    step = max(1, -(-len(points) // POINTS_MAX))
    return points[::-step][::-1]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)

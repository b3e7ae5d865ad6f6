"""The page about an experiment: best values, curves, parallel coordinates, rungs, and a table of trials."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mpi_runtime.show.numbers import clock_on, count, moment, plural, seconds, three
from mpi_runtime.show.page import Block, Column, Document, card, table
from mpi_runtime.tune.counting import OF_EACH_REPORT
from mpi_runtime.tune.show.plots import importances
from mpi_runtime.tune.show.shown import EARLY, Experiment, Running, ShownTrial, first_line, state_word, stopped_early
from mpi_runtime.tune.trial import Config, Report, flat, sign_of
from mpi_runtime.tune.trials.json_values import written

T = TypeVar("T")
Row = dict[str, Any]
"""A trial, as the scripts of the page read it."""
POINTS_MAX = 100
"""The most points of a curve."""
RUNGS = 12
"""The most rows in the table of ends."""
IMPORTANCE_MIN = 30
"""Fewer trials do not show what matters."""
TOP_SHARE = 0.1
AXES_MAX = 12
ENDED = ("TERMINATED", "ERROR")
FIGURES_MAX = 8
"""The most curves of a training."""


def document(results: Experiment, job: str = "") -> Document:
    """Make the document of an experiment; `job` runs it, in words."""
    metric, mode = results.metric or _only_metric(results), results.mode
    trials = _trials(results, metric)
    known = _ranked(trials, mode)
    for trial in known[: max(1, math.ceil(TOP_SHARE * len(known)))] if mode else []:
        trial["top"] = True
    best = known[0]["id"] if known and mode else None
    shared = {"trials": trials, "metric": metric or "", "mode": mode, "best": best}
    running = results if job and isinstance(results, Running) else None
    cards = _cards(results, trials, known, metric, running)
    blocks: list[Block] = [{"id": "answers", "kind": "cards", "cards": cards}]
    if known and metric:
        ones = sum(len(one["ys"]) == 1 for one in known)
        goal = {"min": ", lower is better", "max": ", higher is better"}.get(mode or "", "")
        said = f"{metric}{goal}; {ones} of {plural(len(known), 'trial')} have one report: rings"
        ends = [at for at, _, _ in rungs(results)]
        charts = [
            {"kind": "progress", "head": "Best so far, by time", **shared},
            {"kind": "reports", "head": "Every trial, by number of reports", "rungs": ends, **shared},
        ]
        blocks.append({"id": "progress", "kind": "half", "title": "Progress", "said": said, "blocks": charts})
        axes, drawn = _axes(results, known, metric)
        if len(axes) > 1:
            title, said = "Parameters and result", "drag along an axis to choose a range"
            lines = {**shared, "axes": axes, "trials": drawn}
            blocks.append({"id": "parallel", "kind": "parallel", "title": title, "said": said, **lines})
            blocks.append(_importance(results, metric, len(known)))
        blocks.append(_rungs(results, known))
    elif len(trials) == 1:
        blocks += _figures(results[0])
    blocks.append(_table(results, trials, metric, mode))
    name = results.experiment_path.rstrip("/").rpartition("/")[2]
    meta = [results.experiment_path, *_dates(results), *([f"run by {job}"] if job else [])]
    pill = ["run live", "Running"] if job else ["hollow", "Not running"]
    return {"name": name, "pill": pill, "meta": meta, "colours": {}, "blocks": blocks}


def _only_metric(results: Experiment) -> str | None:
    """A reported number, if the trials have just one of their own and none was named."""
    names = _reported(results)
    return names[0] if len(names) == 1 else None


def _reported(results: Experiment) -> list[str]:
    """The numbers that trials report themselves."""
    return _numbers(results)


def _numbers(results: Iterable[ShownTrial]) -> list[str]:
    names = {name for result in results for name, value in result.metrics.items() if _finite(value) is not None}
    return sorted(names - OF_EACH_REPORT)


def _trials(results: Experiment, metric: str | None) -> list[Row]:
    """One entry for each trial, as the charts need it."""
    begin_s = min((_begin_s(result) for result in results if result.history), default=0.0)
    found = []
    early = stopped_early((one.trial_id, one.status, one.is_halted, _reports(one)) for one in results)
    for result in results:
        history = result.history
        points = [(one["training_iteration"], _finite(one.get(metric or ""))) for one in history]
        points = [point for point in points if point[1] is not None]
        took_s = _finite(result.metrics.get("time_total_s")) or 0.0
        end_s = round((_time_s(history[-1]) if history else begin_s) - begin_s, 3)
        one: Row = {
            "id": result.trial_id,
            "status": result.status,
            "word": state_word(EARLY if result.trial_id in early else result.status),
            "value": _finite(result.metrics.get(metric or "")),
        }
        one |= {"ys": _thinned(points), "end": end_s, "took": took_s}
        found.append({**one, "reports": len(history), "error": first_line(result.error)})
    return found


def _begin_s(result: ShownTrial) -> float:
    """When a trial with reports began, on the clock of `_time_s`. A trial that has paused began earlier than this."""
    last_s, took_s = _time_s(result.history[-1]), _finite(result.metrics.get("time_total_s")) or 0.0
    return min(_time_s(result.history[0]), last_s - took_s)


def _reports(result: ShownTrial) -> int:
    return int(result.history[-1]["training_iteration"]) if result.history else 0


def _dates(results: Experiment) -> list[str]:
    """When the first trial began, and when the last report was made."""
    found = []
    for one in results:
        made_s = _finite(one.history[-1].get("timestamp")) if one.history else None
        if made_s:
            found.append((made_s - (_time_s(one.history[-1]) - _begin_s(one)), made_s))
    ended = [one for one in results if one.history]
    if not found and ended and (written_s := _written_s(results.experiment_path)):
        # Reports of a training have no time of their own.
        begin_s = min(map(_begin_s, ended))
        found = [(written_s - (max(_time_s(one.history[-1]) for one in ended) - begin_s), written_s)]
    if not found:
        return []
    begin_s, end_s = min(begin for begin, _ in found), max(end for _, end in found)
    return [f"started {moment(begin_s)}", f"last report {moment(end_s)}"]


def _written_s(directory: str) -> float:
    """When the experiment was written last; 0: it is not here."""
    return max((one.stat().st_mtime for one in Path(directory).glob("*.journal")), default=0.0)


def _noun(results: Experiment) -> str:
    return "training" if getattr(results, "is_training", False) else "trial"


def _figures(only: ShownTrial) -> list[Block]:
    """A curve for each number that an only trial has reported, such as a training without a metric."""
    charts = []
    for name in _numbers([only])[:FIGURES_MAX]:
        found = [[one["training_iteration"], _finite(one.get(name))] for one in only.history]
        points = _thinned([point for point in found if point[1] is not None])
        charts.append({"kind": "line", "head": name, "name": name, "x": "reports", "height": 160, "points": points})
    return [{"id": "figures", "kind": "half", "title": "Reports", "blocks": charts}] if charts else []


def _ranked(trials: list[Row], mode: str | None) -> list[Row]:
    """Trials with a number, the best first."""
    sign = sign_of(mode) if mode else 1
    return sorted((one for one in trials if one["value"] is not None), key=lambda one: -sign * one["value"])


def _cards(
    results: Experiment, trials: list[Row], known: list[Row], metric: str | None, running: Running | None
) -> list[Row]:
    states = Counter(one["status"] for one in trials)
    failed, ended = states["ERROR"], sum(states[state] for state in ENDED)
    best = known[0] if known and results.mode else None
    config = flat(written(results[[one["id"] for one in trials].index(best["id"])].config)) if best else {}
    values = [[name, _text(value)] for name, value in list(config.items())[:4]]
    which = "no mode is known: min or max?" if known else "no trial has reported a number"
    which = f"trial {best['id']}, after {plural(best['reports'], 'report')}" if best else which
    value = three(best["value"]) if best else "\u2013"
    best_card = card(f"What is the best {metric or 'result'}?", value, which, values)
    if not metric and len(trials) == 1 and trials[0]["reports"]:
        best_card = _last(results[0])
    by_state = [[word, count(number)] for word, number in Counter(one["word"] for one in trials).most_common()]
    unknown = sum(one["value"] is None and bool(one["reports"]) for one in trials) if metric else 0
    by_state += [["without a finite number", count(unknown)]] if unknown else []
    left, noun = len(trials) - ended, _noun(results)
    doing = card("What did it do?", count(len(trials)), noun if len(trials) == 1 else f"{noun}s", by_state)
    if running is not None:
        words = f"{noun} runs or waits" if left == 1 else f"{noun}s run or wait"
        doing = card("What is it doing?", count(left), words, by_state)
    errors = Counter(one["error"] for one in trials if one["error"]).most_common(4)
    rows = [[text, count(number)] for text, number in errors]
    link = {"note": "Errors and tracebacks", "link": "#trials", "find": "failed"} if failed else {}
    of = f"of {plural(ended, f'ended {noun}')}"
    failure = card("What failed?", count(failed), of, rows, bad=bool(failed), finds="trials", **link)
    return [best_card, doing, failure, _when(running, trials, ended, failed, noun)]


def _last(only: ShownTrial) -> Block:
    """What an only trial has reported last, with the extremes: without a metric and a mode none of it is the best."""
    rows = []
    for name in _numbers([only])[:4]:
        values = [value for one in only.history if (value := _finite(one.get(name))) is not None]
        rows.append([f"{name}, lowest and highest", f"{three(min(values))}, {three(max(values))}"])
    first = next(iter(_numbers([only])), "")
    big = three(_finite(only.metrics.get(first)) or 0.0) if first else "\u2013"
    return card("What did it report last?", big, f"{first}, report {len(only.history)}".lstrip(", "), rows)


def _when(running: Running | None, trials: list[Row], ended: int, failed: int, noun: str) -> Block:
    took = seconds(max((one["end"] for one in trials), default=0.0))
    span = "from the start to the last report"
    whole = len(trials) if running is None else max(len(trials), running.most or 0)
    rows = [["trials added up", seconds(sum(one["took"] for one in trials))]] if len(trials) > 1 else []
    meter = [ended - failed, failed, len(trials) - ended, whole]
    known: Block = {"said": f"{count(ended)} of {plural(whole, noun)} ended", "meter": meter}
    if running is None:
        return card("How long did it take?", took, span, rows, **known)
    rows, left = [[span, took], *rows], running.remaining()
    if left is None:
        return card("When is it done?", "\u2013", "not known", rows, **known)
    end = clock_on(time.time() + left.seconds, time.time(), left.seconds < 600)
    return card("When is it done?", end, f"{left.how}, in {seconds(left.seconds)}", rows, note=left.basis, **known)


def _axes(results: Experiment, known: list[Row], metric: str) -> tuple[list[Row], list[Row]]:
    """The axes of parallel coordinates, and the trials with a value for each."""
    by_id = {result.trial_id: flat(written(result.config)) for result in results}
    names = list(dict.fromkeys(name for one in known for name in by_id[one["id"]]))
    columns = {name: [by_id[one["id"]].get(name) for one in known] for name in names}
    chosen = [name for name in names if len({repr(value) for value in columns[name]}) > 1][: AXES_MAX - 1]
    axes = [_axis(name, columns[name]) for name in chosen] + [_axis(metric, [one["value"] for one in known])]
    drawn = []
    for index, one in enumerate(known):
        values = [columns[name][index] for name in chosen] + [one["value"]]
        at = [_text(value) if "words" in axis else value for value, axis in zip(values, axes, strict=True)]
        drawn.append({**one, "ys": one["ys"][-1:], "at": at})
    return axes, drawn


def _axis(name: str, values: Sequence[object]) -> Block:
    numbers = [_finite(value) for value in values]
    if any(value is None for value in numbers):
        return {"name": name, "words": sorted({_text(value) for value in values})}
    low, high = min(numbers), max(numbers)  # type: ignore[type-var]
    few = sorted(set(numbers))  # type: ignore[type-var]
    # Half of the values of a uniform distribution are below its middle; of a logarithmic one, below the geometric mean.
    middle = statistics.median(numbers)  # type: ignore[type-var]
    is_log = low > 0 and high / low > 20 and middle < (low + high) / 4  # type: ignore[operator]
    axis: Block = {"name": name, "log": is_log}
    return axis | ({"values": few} if len(few) <= 6 and len(few) < len(numbers) else {})


def _importance(results: Experiment, metric: str, known: int) -> Block:
    shares = sorted(importances(results, metric).items(), key=lambda one: -one[1]) if known >= IMPORTANCE_MIN else []
    half = {
        "title": f"Share of the differences of {metric} that a parameter explains alone",
        "form": "percent",
        "max": 1,
        "rows": [list(one) for one in shares],
        "empty": f"It takes {IMPORTANCE_MIN} trials with a number to know it.",
        "note": f"From {plural(known, 'trial')}, each by its last report.",
    }
    return {"id": "importance", "kind": "bars", "title": "What matters", "halves": [half]}


def rungs(results: Experiment) -> list[tuple[int, int, int]]:
    """Ends of trials: the number of reports, the trials that reached it, and those that continued.

    At most `RUNGS` of them: those where most trials have ended, and the last.
    """
    ends = Counter(int(result.metrics.get("training_iteration", 0)) for result in results)
    common = [at for at, _ in ends.most_common(RUNGS - 1)]
    chosen = sorted({*common, max(ends, default=0)} - {0})
    reached = {at: sum(count for end, count in ends.items() if end >= at) for at in chosen}
    return [(at, reached[at], reached[at] - ends[at]) for at in chosen]


def _rungs(results: Experiment, known: list[Row]) -> Block:
    sign = sign_of(results.mode) if results.mode else 1
    rows = []
    for at, there, on in rungs(results):
        values = [value for one in known for step, value in one["ys"] if step == at]
        best = max(values, key=lambda value: sign * value) if values and results.mode else None
        rows.append([str(at), at, [on, there, f"{on} of {there}"], there, on, best])
    columns = [("reports", "count"), ("continued", "share", {"w": 1, "l": 1}), ("trials that reached it", "count")]
    columns += [("continued after it", "count"), ("best there", "num")]
    return table("rungs", "Where trials ended", columns, rows, sort=0, limit=RUNGS)


def _table(results: Experiment, trials: list[Row], metric: str | None, mode: str | None) -> Block:
    configs = [flat(written(result.config)) for result in results]
    parameters = list(dict.fromkeys(name for config in configs for name in config))
    metrics = [] if metric else _reported(results)[:6]
    rows, details = [], {}
    for result, config, one in zip(results, configs, trials, strict=True):
        row: list[object] = [one["id"], one["id"], *([one["value"]] if metric else []), [y for _, y in one["ys"]]]
        row += [one["reports"], one["word"], one["took"], *(_cell(config.get(name)) for name in parameters)]
        rows.append([*row, *(_finite(result.metrics.get(name)) for name in metrics), one["error"] or None])
        details[one["id"]] = _details(result, one, config)
    columns: list[Column] = [("trial", "mono", {"w": 1}), *([(metric, "value")] if metric else []), ("curve", "curve")]
    columns += [("reports", "count"), ("status", "pill"), ("time", "time")]
    columns += [(name, "value") for name in (*parameters, *metrics)]
    if any(one["error"] for one in trials):
        columns.append(("error", "text", {"clip": 1}))
    else:
        rows = [row[:-1] for row in rows]
    said = f"{count(len(trials))}{', the best first' if metric and mode else ''}"
    more = {"search": "failed, adam, lr<0.01", "limit": 15, "empty": "No trial has begun.", "details": details}
    sort = 1 if metric else 0
    title = "Training" if _noun(results) == "training" else "Trials"
    return table("trials", title, columns, rows, said=said, open=True, sort=sort, down=mode == "max", **more)


def _details(result: ShownTrial, one: Row, config: Config) -> list[Block]:
    facts = [[name, repr(value) if isinstance(value, float) else _text(value)] for name, value in config.items()]
    facts += [["ended after", f"{plural(one['reports'], 'report')}, {seconds(one['took'])}"], ["files", result.path]]
    if result.checkpoint is not None:
        facts.append(["checkpoint", str(result.checkpoint.path)])
    facts += [[f"reported {name}", _text(value)] for name, value in result.metrics.items() if name not in config]
    blocks: list[Block] = [{"kind": "kv", "rows": facts}]
    if result.error is not None:
        shown = {"text": one["error"], "where": f"trial {one['id']}", "trace": str(result.error)[-6000:]}
        blocks.insert(0, {"kind": "errors", "errors": [shown], "open": True})
    return blocks


def _cell(value: object) -> object:
    return value if isinstance(value, (int, float, str, type(None))) and not isinstance(value, bool) else _text(value)


def _text(value: object) -> str:
    if isinstance(value, float):
        return three(value)
    return value if isinstance(value, str) else repr(value)[:200]


def _thinned(points: list[T]) -> list[T]:
    """About `POINTS_MAX` points, with the last."""
    chosen = points[:: max(1, len(points) // POINTS_MAX)]
    return chosen if not points or chosen[-1] == points[-1] else [*chosen, points[-1]]


def _time_s(report: Report) -> float:
    """When it was made; 0 if the trial has reported something else by this name."""
    return _finite(report.get("time_s")) or 0.0


def _finite(value: object) -> float | None:
    """A number that can be drawn; None for all other values."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value

"""Plots of an experiment, as matplotlib axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.show.shown import Experiment, Finished
from mpi_runtime.tune.trial import flat, number_in
from mpi_runtime.tune.trials.json_values import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(results: Finished, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Curves of a metric over reports, one for each trial; the best trial's is thick."""
    name, axes = _metric(results, metric), _axes(ax)
    best = results.get_best_result(name, results.mode or "max").trial_id
    for result in results:
        points = [(one["training_iteration"], one[name]) for one in result.history if number_in(one, name) is not None]
        style: dict[str, object] = {"color": "C0", "linewidth": 0.7, "alpha": 0.5}
        if result.trial_id == best:
            style = {"color": "C3", "linewidth": 2, "label": f"trial {best} (best)"}
        marker = "o" if len(points) == 1 else None
        axes.plot([at for at, _ in points], [value for _, value in points], marker=marker, **style)
    axes.set_xlabel("report")
    axes.set_ylabel(name)
    axes.legend()
    return axes


def parallel(results: Experiment, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Parallel coordinates: a line through its parameters and its last value for each trial, coloured by that value."""
    name, axes = _metric(results, metric), _axes(ax)
    parameters, rows, values = table(results, name)
    if not rows:
        raise ValueError(f"no trial has a number as its last {name!r}, so there is nothing to draw")
    columns = [place(column) for column in [*zip(*rows, strict=True), values]]
    from matplotlib import colormaps

    for index in range(len(values)):
        heights = [column[index] for column in columns]
        axes.plot(range(len(heights)), heights, color=colormaps["viridis"](heights[-1]), alpha=0.7)
    axes.set_xticks(range(len(columns)), [*parameters, name], rotation=30)
    axes.set_yticks([0, 1], ["lowest", "highest"])
    return axes


def importance(results: Experiment, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Bars: the share of the metric's variance that each parameter explains, by bins of its values."""
    name, axes = _metric(results, metric), _axes(ax)
    shares = importances(results, name)
    names = sorted(shares, key=lambda one: shares[one])
    axes.barh(names, [shares[one] for one in names])
    axes.set_xlabel(f"share of the variance of {name}")
    axes.set_xlim(0, 1)
    return axes


def importances(results: Experiment, metric: str) -> dict[str, float]:
    """The correlation ratio of each parameter: variance between bins of its values, of the whole variance."""
    parameters, rows, values = table(results, metric)
    scores = np.array(values)
    whole = float(((scores - scores.mean()) ** 2).sum()) if len(scores) else 0.0
    found = {}
    for number, parameter in enumerate(parameters):
        bins = np.array(place([row[number] for row in rows]))
        numbers = np.minimum((bins * max(2, math.isqrt(len(rows)))).astype(int), max(2, math.isqrt(len(rows))) - 1)
        between = 0.0
        for one in set(numbers.tolist()):
            inside = scores[numbers == one]
            between += len(inside) * float(inside.mean() - scores.mean()) ** 2
        found[parameter] = between / whole if whole else 0.0
    return found


def table(results: Experiment, metric: str) -> tuple[list[str], list[list[object]], list[float]]:
    """Names of parameters, their values and the last value of the metric, of all trials that have reported it."""
    known = [
        (flat(written(result.config)), value)
        for result in results
        if (value := number_in(result.metrics, metric)) is not None and math.isfinite(value)
    ]
    names = list(dict.fromkeys(name for config, _ in known for name in config))
    names = [name for name in names if len({repr(config.get(name)) for config, _ in known}) > 1]
    return names, [[config.get(name) for name in names] for config, _ in known], [value for _, value in known]


def place(values: Sequence[object]) -> list[float]:
    """Values between 0 and 1: numbers by their size, or its logarithm if they span much, others by their order."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        if min(numbers) > 0 and max(numbers) / min(numbers) > 100:
            numbers = [math.log(value) for value in numbers]
    else:
        order = {text: float(number) for number, text in enumerate(sorted({repr(value) for value in values}))}
        numbers = [order[repr(value)] for value in values]
    low, high = min(numbers), max(numbers)
    return [(value - low) / (high - low) if high > low else 0.5 for value in numbers]


def _metric(results: Experiment, metric: str | None) -> str:
    name = metric or results.metric
    if name is None:
        raise ValueError("no metric is known: pass one, or set it in TuneConfig")
    return name


def _axes(ax: Axes | None) -> Axes:
    return load("a plot", "matplotlib.pyplot", "matplotlib").subplots()[1] if ax is None else ax

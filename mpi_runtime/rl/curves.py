"""Learning curves over seeds: interquartile means, bootstrap intervals, and a plot.

Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical precipice", has these statistics.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_runtime.errors.optional import load
from mpi_runtime.rl.parts.weights import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


POINTS = 51
"""Of a plotted curve."""
RESAMPLES = 2000
"""Of the bootstrap."""


def curve_of(run: str | os.PathLike[str] | Iterable[Mapping[str, Any]]) -> tuple[Array, Array]:
    """Return steps and mean returns of a run: the directory that `rl train` has written, or results of `train()`."""
    if isinstance(run, (str, os.PathLike)):
        path = Path(run).expanduser()
        path = path / "result.json" if path.is_dir() else path
        rows: list[Mapping[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = list(run)
    found = np.array([(one["timesteps_total"], one["episode_reward_mean"]) for one in rows], np.float64).reshape(-1, 2)
    found = found[np.isfinite(found[:, 1])]
    if not len(found):
        raise ValueError("no episode has ended in this run: there is no return to plot")
    return found[:, 0], found[:, 1]


def interquartile_mean(values: Array) -> Array:
    """Return the mean of the middle half of the rows of (S, ...), as `scipy.stats.trim_mean(values, 0.25)`."""
    cut = len(values) // 4
    mean: Array = np.sort(values, axis=0)[cut : len(values) - cut].mean(0)
    return mean


def interval(values: Array, confidence: float = 0.95) -> Array:
    """Return the bootstrap interval (2, ...) of the interquartile mean of (S, ...): resampled by percentiles."""
    rng = np.random.default_rng(0)
    means = [interquartile_mean(values[rng.integers(0, len(values), len(values))]) for _ in range(RESAMPLES)]
    bounds: Array = np.percentile(means, [50 * (1 - confidence), 50 * (1 + confidence)], axis=0)
    return bounds


def plot_learning_curve(
    groups: Mapping[str, Sequence[Any]],
    path: str | os.PathLike[str] = "",
    *,
    confidence: float = 0.95,
    axes: Axes | None = None,
) -> Axes:
    """Plot the mean return against steps of environments: for each group a line, and an interval over its runs.

    The line is the interquartile mean of the runs, the band its bootstrap interval.

    Args:
        groups: runs by label; a run is a directory that `rl train` has written, or a list of results of `train()`.
        path: where the picture is written: .png, .svg or .pdf; "": nowhere.
        confidence: of the interval, between 0 and 1.
        axes: axes of matplotlib to draw on; None: those of a new figure.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: a group has no runs, a run has no episode, or `confidence` is out of bounds.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence!r}")
    figure = load("plot_learning_curve", "matplotlib.figure", "matplotlib")
    own = figure.Figure(figsize=(6, 4), layout="constrained").subplots() if axes is None else axes
    for label, runs in groups.items():
        if not len(runs):
            raise ValueError(f"group {label!r} has no runs")
        curves = [curve_of(run) for run in runs]
        grid = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), POINTS)
        values = np.stack([np.interp(grid, steps, returns) for steps, returns in curves])
        (drawn,) = own.plot(grid, interquartile_mean(values), label=f"{label} ({len(runs)})")
        if len(runs) > 1:
            own.fill_between(grid, *interval(values, confidence), color=drawn.get_color(), alpha=0.2, linewidth=0)
    own.set_xlabel("steps of environments")
    own.set_ylabel("mean return")
    own.legend()
    if path:
        own.figure.savefig(Path(path).expanduser())
    return own

"""Learning curves over seeds: the statistics beside their definitions, the plot, and what cannot be plotted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.rl_curves import ratio
from mpi_runtime.rl import plot_learning_curve
from mpi_runtime.rl.curves import curve_of, interquartile_mean, interval


def run(seed: int, count: int = 20) -> list[dict[str, Any]]:
    """Results of a training; no episode has ended in the first."""
    means = [math.nan, *(10.0 * at + seed for at in range(1, count))]
    return [{"timesteps_total": 100 * (at + 1), "episode_reward_mean": mean} for at, mean in enumerate(means)]


def test_interquartile_means_leave_out_the_ends() -> None:
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0, "of three seeds none is left out"
    rows = np.array([[1.0, 8.0], [2.0, 6.0], [3.0, 4.0], [40.0, -2.0]])
    assert interquartile_mean(rows).tolist() == [2.5, 5.0]


def test_intervals_hold_the_mean_and_shrink_with_seeds() -> None:
    rng = np.random.default_rng(0)
    few, many = (interval(rng.normal(5.0, 1.0, size)) for size in (5, 80))
    assert few[0] < 5.0 < few[1]
    assert many[0] < 5.0 < many[1]
    assert many[1] - many[0] < 0.7 * (few[1] - few[0])
    middle, low, high = ratio(rng.normal(10, 0.5, 40), rng.normal(5, 0.25, 40))
    assert 1.9 < low < middle < high < 2.1


def test_a_plot_of_directories_and_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    written: list[Path] = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda _, path: written.append(path))  # drawing leaves fonts open
    (tmp_path / "result.json").write_text("".join(json.dumps(one) + "\n" for one in run(3)))
    groups: dict[str, list[Any]] = {"ours": [run(0), run(2), run(4)], "theirs": [tmp_path]}
    axes = plot_learning_curve(groups, "~/curve.svg", confidence=0.9)
    assert written == [Path.home() / "curve.svg"]
    ours, theirs = axes.get_lines()
    assert ours.get_xdata()[[0, -1]].tolist() == [200.0, 2000.0], "from the first return on"
    assert ours.get_ydata()[[0, -1]] == pytest.approx([12.0, 192.0])
    assert theirs.get_ydata()[-1] == 193.0
    assert [one.get_text() for one in axes.get_legend().get_texts()] == ["ours (3)", "theirs (1)"]
    assert len(axes.collections) == 1, "a single run has no interval"


def test_what_cannot_be_plotted() -> None:
    with pytest.raises(ValueError, match="no episode has ended"):
        curve_of(run(0, 1))
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, not 95"):
        plot_learning_curve({"a": [run(0)]}, confidence=95)
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="group 'a' has no runs"):
        plot_learning_curve({"a": []})

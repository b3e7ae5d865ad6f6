"""Our schedulers beside those of Ray Tune and syne-tune, on the same reports, decision by decision.

What theirs decided was recorded by `record_ray.py` and `record_syne_tune.py`. Where ours differ, and why, is said in
`docs/decisions/0803-where-schedulers-differ.md`; each difference is looked for here, too.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from mpi_runtime.tune.schedulers.base import CONTINUE, STOP, rungs
from mpi_runtime.tune.schedulers.hyperband import table
from mpi_runtime.tune.trial import Trial
from tests.tune.record_ray import SEEDS, SLOTS, figures, rows_of

HERE = Path(__file__).parent
RAY = json.loads((HERE / "ray.json").read_text())
SYNE = json.loads((HERE / "syne_tune.json").read_text())
CURVES = json.loads((HERE / "curves.json").read_text())


def compared(scheduler: TrialScheduler, recorded: dict[str, Any]) -> list[tuple[int, float, float, str, str]]:
    """The reports about which the two did not agree: trial, time, score, theirs, ours."""
    sign = -1.0 if recorded["arguments"].get("mode") == "min" else 1.0
    trials = [Trial(f"{number:05d}", number, {}) for number in range(1 + max(one[0] for one in recorded["reports"]))]
    for trial in trials:
        scheduler.on_trial_add(trial)
    if recorded.get("brackets") and isinstance(scheduler, ASHAScheduler):
        for trial, place in zip(trials, recorded["brackets"], strict=False):
            scheduler._bracket_of[trial.trial_id] = scheduler._brackets[place]
    differ = []
    for number, time, value, theirs in recorded["reports"]:
        score = -math.inf if value is None else sign * value
        ours = scheduler.on_trial_result(trials[number], float(time), score).get(trials[number].trial_id, CONTINUE)
        if str(ours)[0] != theirs:
            differ.append((number, time, score, theirs, str(ours)[0]))
    return differ


def asha(name: str) -> tuple[ASHAScheduler, dict[str, Any]]:
    recorded = RAY["asha"][name]
    return ASHAScheduler("t", "v", **{"mode": "max", **recorded["arguments"]}), recorded


def stops(recorded: dict[str, Any]) -> int:
    return sum(verdict == "S" for *_, verdict in recorded["reports"])


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "the least, with other rungs",
        "a factor that is no integer",
        "ties",
        "brackets",
        "no end",
        "no end, and jumps",
    ],
)
def test_asha_stops_whom_ray_stops(name: str) -> None:
    scheduler, recorded = asha(name)
    assert compared(scheduler, recorded) == []
    assert stops(recorded) > 40, "there was something to decide"
    assert [[rung.milestone for rung in bracket] for bracket in scheduler._brackets] == recorded["rungs"]


def test_ray_notes_a_later_report_at_a_rung_that_was_jumped_over() -> None:
    """With an end, Ray puts the report after a jump into the rungs below too; without one it does not, nor do we."""
    scheduler, recorded = asha("jumps")
    assert compared(scheduler, recorded) != []
    assert stops(RAY["asha"]["no end, and jumps"]) > 40  # compared above: there they agree


def test_a_value_that_is_not_a_number_counts_as_the_worst() -> None:
    """In Ray such a trial continues, and the others are compared without it."""
    scheduler, recorded = asha("not a number")
    differ = compared(scheduler, recorded)
    for _, _, score, theirs, ours in differ:
        assert (theirs, ours) == (("C", "S") if score == -math.inf else ("S", "C"))
    assert any(score == -math.inf for _, _, score, _, _ in differ)
    assert all(verdict == "C" for _, time, value, verdict in recorded["reports"] if value is None and time < 27)


def test_ray_loses_the_highest_rung_to_a_logarithm() -> None:
    scheduler, recorded = asha("powers of ten")
    assert recorded["rungs"] == [[1, 10, 100]]
    assert [rung.milestone for rung in scheduler._brackets[0]] == [1, 10, 100, 1000]


# --- the median rule ---


def median(name: str) -> tuple[MedianStoppingRule, dict[str, Any]]:
    recorded = RAY["median"][name]
    return MedianStoppingRule("t", "v", **{"mode": "max", "grace_period": 2, **recorded["arguments"]}), recorded


@pytest.mark.parametrize("name", ["plain", "the least", "ties", "jumps"])
def test_the_median_rule_stops_whom_rays_stops(name: str) -> None:
    scheduler, recorded = median(name)
    assert compared(scheduler, recorded) == []
    assert stops(recorded) >= 5, "there was something to decide"


def test_a_mean_with_what_is_no_number_counts_as_the_worst() -> None:
    """In Ray a trial that once reported NaN is no longer compared with others, nor others with it."""
    scheduler, recorded = median("not a number")
    assert compared(scheduler, recorded) != []


def test_ray_counts_the_last_report_of_a_trial_that_was_stopped_twice() -> None:
    plain, ends = RAY["median"]["plain"], RAY["median"]["told of ends"]
    assert compared(*median("told of ends")) == [] or plain != ends


# --- HyperBand ---

PAPER = {
    81: [[81, 1], [27, 3], [9, 9], [3, 27], [1, 81]],
    34: [[34, 3], [11, 9], [3, 27], [1, 81]],
    15: [[15, 9], [5, 27], [1, 81]],
    8: [[8, 27], [2, 81]],
    5: [[5, 81]],
}
"""Table 1 of the paper, by rows that are brackets: how many trials continue to which time."""


def halvings(place: int, max_t: int) -> list[list[float]]:
    """What a bracket of ours does: how many trials are compared at each milestone."""
    scheduler = HyperBandScheduler("t", "v", "max", max_t=max_t)
    sizes = [size for size, _ in table(max_t, 3)]
    trials = [Trial(f"{number:05d}", number, {}) for number in range(sum(sizes[: place + 1]))]
    for trial in trials:
        scheduler.on_trial_add(trial)
    members = [one.trial_id for one in trials[sum(sizes[:place]) :]]
    found = []
    for milestone in table(max_t, 3)[place][1]:
        found.append([len(members), milestone])
        verdicts: dict[str, Any] = {}
        for trial in trials:
            if trial.trial_id in members:
                verdicts.update(scheduler.on_trial_result(trial, milestone, trial.index))
        stopped = {one for one, verdict in verdicts.items() if verdict == STOP}
        members = [one for one in members if one not in stopped]
    return found


def test_hyperband_is_the_table_of_the_paper() -> None:
    assert [size for size, _ in table(81, 3)] == list(PAPER)
    for place, rows in enumerate(PAPER.values()):
        assert halvings(place, 81) == rows


def test_ray_begins_with_the_same_brackets_in_the_other_order_and_rounds_up() -> None:
    recorded = RAY["hyperband"]["81"]
    assert [bracket[0] for bracket in recorded] == [rows[0] for rows in reversed(PAPER.values())]
    assert recorded[3] == [[34, 3], [12, 9], [4, 27], [2, 81]], "the paper rounds down: 34, 11, 3, 1"
    assert recorded[4] == PAPER[81]
    assert recorded[0] == PAPER[5]


def test_ray_cuts_milestones_to_integers_and_rounds_the_number_of_brackets() -> None:
    """The paper has neither: with 50 epochs it has four brackets, and the largest begins with 27 trials."""
    ours, theirs = table(100, 3), RAY["hyperband"]["100"]
    assert [bracket[0][0] for bracket in theirs] == [size for size, _ in reversed(ours)]
    assert [bracket[0][1] for bracket in theirs] == [int(times[0]) for _, times in reversed(ours)]
    assert [size for size, _ in table(50, 3)] == [27, 12, 6, 4]
    assert [bracket[0] for bracket in RAY["hyperband"]["50"]] == [[5, 50], [8, 16], [15, 5], [34, 1]]


# --- population based training ---


def test_the_worst_and_the_best_are_rays() -> None:
    for scores, fraction, ended, worst, best in RAY["quantiles"]:
        scheduler = PopulationBasedTraining("t", quantile_fraction=fraction, hyperparam_mutations={"x": [1]})
        for number, score in enumerate(scores):
            trial = Trial(f"{number:05d}", number, {}, point="there")
            scheduler.on_trial_add(trial)
            scheduler._scores[trial.trial_id] = score
            if number in ended:
                scheduler.on_trial_end(trial)
        ours = [[int(one) for one in part] for part in scheduler._quantiles()]
        assert ours == [worst, best]


def test_values_become_what_they_become_in_ray() -> None:
    for value, listed, expected in RAY["neighbours"]:
        mutation = listed or tune.uniform(0, 100)
        scheduler = PopulationBasedTraining("t", hyperparam_mutations={"x": mutation}, resample_probability=0.0)
        seen = {scheduler._explored({"x": value}, np.random.default_rng(seed))["x"] for seed in range(100)}
        assert sorted(seen) == expected
        assert {type(one) for one in seen} == {type(value)}


# --- learning curves ---


def steps(config: dict[str, Any], checkpoint: int | None) -> Any:
    network = CURVES[config["row"]]
    for epoch in range(checkpoint or 0, len(network["losses"])):
        loss = network["losses"][epoch]
        yield network["seconds"], {"v": math.nan if loss is None else loss / 1e4, "row": config["row"]}, epoch + 1


def searched(scheduler: TrialScheduler, seed: int) -> list[float | int | None]:
    """Our search in the table: how many epochs it took, how many to a loss within 1 % of the best, its best loss."""
    rows = rows_of(seed, len(CURVES))
    reports: list[tuple[int, int, float]] = []

    def note(trial_id: str, result: dict[str, Any]) -> bool:
        reports.append((result["row"], result["training_iteration"], result["v"]))
        return False

    config = tune.TuneConfig("v", "min", scheduler=scheduler)
    space = {"row": tune.grid_search(rows)}
    done = tune.simulate(
        steps, param_space=space, tune_config=config, run_config=tune.RunConfig(stop=note), slots=SLOTS
    )
    assert done.reports == len(reports)
    goal = min(loss for row in rows for loss in CURVES[row]["losses"] if loss is not None) / 1e4
    return figures(reports, goal)


def both(name: str, make: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each seed epochs, epochs until near the best (all of them, if never), and the best loss: ours and Ray's."""
    ours = [searched(make(), seed) for seed in range(SEEDS)]
    parts = (ours, RAY["searches"][name])
    found = [np.array([[all_, near or all_, best] for all_, near, best in part], dtype=float) for part in parts]
    return found[0], found[1]


def test_asha_spends_the_epochs_that_rays_spends_on_real_curves() -> None:
    ours, theirs = both("asha", lambda: ASHAScheduler(max_t=81, reduction_factor=3))
    assert np.array_equal(ours, theirs), "in every one of the searches"


def test_the_median_rule_spends_the_epochs_that_rays_spends() -> None:
    """But for a trial that comes as far as one that was stopped: Ray counts the last report of that one twice."""
    ours, theirs = both("median", lambda: MedianStoppingRule("training_iteration", grace_period=3))
    assert (ours[:, 0] == theirs[:, 0]).sum() >= 25
    assert np.array_equal(ours[:, 2], theirs[:, 2]), "the same best network is found"
    assert abs(ours[:, :2].mean() / theirs[:, :2].mean() - 1) < 0.001


def test_hyperband_spends_what_the_paper_says_and_ray_more() -> None:
    ours, theirs = both("hyperband", lambda: HyperBandScheduler(max_t=81))
    spent = sum(count * (later - sooner) for rows in PAPER.values() for count, sooner, later in legs(rows))
    assert set(ours[:, 0]) == {spent} == {1581}
    assert set(theirs[:, 0]) == {1767}, "it rounds up"
    assert abs(ours[:, 2].mean() / theirs[:, 2].mean() - 1) < 0.05


def legs(rows: list[list[int]]) -> list[tuple[int, int, int]]:
    return [(count, before, at) for (count, at), before in zip(rows, [0, *(at for _, at in rows)], strict=False)]


def test_promotion_finds_as_good_a_network_with_fewer_epochs() -> None:
    ours, theirs = both("asha", lambda: ASHAScheduler(max_t=81, reduction_factor=3, type="promotion"))
    assert ours[:, 0].mean() < 0.8 * theirs[:, 0].mean()
    assert ours[:, 2].mean() < 1.05 * theirs[:, 2].mean()


# --- syne-tune ---


@pytest.mark.parametrize("name", SYNE["asha"])
def test_syne_tune_differs_only_where_one_trial_more_or_less_decides(name: str) -> None:
    """It counts the trial itself among those at the rung, and takes ranks where Ray and we take a quantile."""
    recorded = SYNE["asha"][name]
    arguments = {"mode": "max", "reduction_factor": 4, **recorded["arguments"]}
    differ = compared(ASHAScheduler("t", "v", **arguments), recorded)
    assert {(theirs, ours) for *_, theirs, ours in differ} <= {("C", "S"), ("S", "C")}
    assert 0 < len(differ) < 0.1 * len(recorded["reports"])
    for number, time, score, _, _ in differ:
        others = scores_before(recorded, arguments, number, time)
        better = sum(one > score for one in others)
        assert abs(better - len(others) / arguments["reduction_factor"]) <= 1


def scores_before(recorded: dict[str, Any], arguments: dict[str, Any], number: int, time: float) -> list[float]:
    """What others had at the highest rung that this report has come to, before it."""
    sign = -1.0 if arguments["mode"] == "min" else 1.0
    at = max(
        rung for rung in rungs(arguments.get("grace_period", 1), 1e9, arguments["reduction_factor"]) if rung <= time
    )
    seen: dict[int, float] = {}
    for other, then, value, _ in recorded["reports"]:
        if (other, then) == (number, time):
            break
        if other != number and then >= at:
            seen.setdefault(other, sign * value)
    return list(seen.values())

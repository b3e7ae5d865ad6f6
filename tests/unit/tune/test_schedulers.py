"""Schedulers of trials against the tables and the pseudo-code of their sources."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    TrialScheduler,
)
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE, STOP, rungs
from mpi_runtime.tune.schedulers.hyperband import table
from mpi_runtime.tune.trial import Trial

NAN = float("nan")


def trial(number: int) -> Trial:
    return Trial(f"{number:05d}", number, {})


def verdict(scheduler: TrialScheduler, number: int, time: float, score: float) -> Any:
    return scheduler.on_trial_result(trial(number), time, score).get(f"{number:05d}", CONTINUE)


def with_trials(scheduler: TrialScheduler, count: int) -> TrialScheduler:
    for number in range(count):
        scheduler.on_trial_add(trial(number))
    return scheduler


def epochs(
    count: int, score: Callable[[dict[str, Any], int], float] = lambda config, epoch: config["x"] + epoch
) -> Any:
    """Trials of `count` epochs of a second, with checkpoints."""

    def steps(config: dict[str, Any], checkpoint: int | None) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(checkpoint or 0, count):
            yield 1.0, {"score": score(config, epoch)}, epoch + 1

    return steps


def run(scheduler: TrialScheduler, count: int, slots: int, max_t: int, **more: Any) -> tune.Simulated:
    config = tune.TuneConfig("score", "max", scheduler=scheduler, num_samples=count, **more)
    return tune.simulate(epochs(max_t), param_space={"x": tune.uniform(0, 1)}, tune_config=config, slots=slots)


def test_rungs_are_products() -> None:
    assert rungs(1, 1000, 10) == [1, 10, 100, 1000]
    assert rungs(1, 81, 3) == [1, 3, 9, 27, 81]
    assert rungs(2, 15, 2) == [2, 4, 8]


# --- ASHA, the form that stops ---


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-5, 5)), max_size=60))
def test_stopping_compares_with_a_percentile_of_the_others(reports: list[tuple[int, float]]) -> None:
    """The rule in plain words, with numpy's percentile: only the highest rung reached counts, once for a trial."""
    scheduler = with_trials(ASHAScheduler(max_t=100, grace_period=1, reduction_factor=3), 6)
    recorded: dict[int, dict[int, float]] = {1: {}, 3: {}, 9: {}, 27: {}, 81: {}}
    times = [0] * 6
    for number, score in reports:
        times[number] += 2
        rung = max((at for at in recorded if at <= times[number]), default=None)
        expected = CONTINUE
        if rung is not None and number not in recorded[rung]:
            others = list(recorded[rung].values())
            if others and score < np.percentile(others, 100 * (1 - 1 / 3)) - 1e-12:
                expected = STOP
            recorded[rung][number] = score
        if times[number] >= 100:
            expected = STOP
        got = verdict(scheduler, number, times[number], score)
        close = others and rung is not None and abs(score - np.percentile(others, 100 * (1 - 1 / 3))) < 1e-9
        assert got == expected or close


def test_a_value_that_is_not_a_number_is_worst() -> None:
    scheduler = with_trials(ASHAScheduler(max_t=9, reduction_factor=3), 4)
    assert verdict(scheduler, 0, 1, -math.inf) == CONTINUE  # no other trial to compare with
    assert verdict(scheduler, 1, 1, -math.inf) == STOP
    assert verdict(scheduler, 2, 1, -1e9) == CONTINUE
    assert verdict(scheduler, 3, 1, -math.inf) == STOP


def test_an_infinite_score_is_best() -> None:
    scheduler = with_trials(ASHAScheduler(max_t=9, reduction_factor=2), 4)
    for number in range(4):
        assert verdict(scheduler, number, 1, math.inf) == CONTINUE
    assert verdict(with_trials(ASHAScheduler(max_t=9, type="promotion"), 1), 0, 1, math.inf) == PAUSE


def test_a_report_that_jumps_over_rungs_counts_for_the_highest_only() -> None:
    scheduler = with_trials(ASHAScheduler(max_t=100, reduction_factor=2), 3)
    assert verdict(scheduler, 0, 4, 10.0) == CONTINUE
    assert verdict(scheduler, 1, 1, 1.0) == CONTINUE  # the rung at 1 is empty
    assert verdict(scheduler, 2, 4, 1.0) == STOP


def test_trials_end_at_max_t_unless_told_otherwise() -> None:
    assert verdict(with_trials(ASHAScheduler(max_t=5), 1), 0, 5, 1.0) == STOP
    assert verdict(with_trials(ASHAScheduler(max_t=5, stop_last_trials=False), 1), 0, 5, 1.0) == CONTINUE


def test_later_brackets_have_fewer_rungs_and_fewer_trials() -> None:
    scheduler = ASHAScheduler(max_t=27, reduction_factor=3, brackets=3)
    with_trials(scheduler, 3000)
    sizes = [0, 0, 0]
    for number in range(3000):
        sizes[scheduler._brackets.index(scheduler._bracket_of[f"{number:05d}"])] += 1
    weights = np.exp([4, 3, 2])
    assert np.allclose(np.array(sizes) / 3000, weights / weights.sum(), atol=0.03)


# --- ASHA, the form of the paper ---


def get_job(seen: list[dict[str, float]], promoted: list[list[str]], eta: int) -> tuple[str, int] | None:
    """Algorithm 2 of the paper: whom to promote from which rung, or None for a new one."""
    for rung in reversed(range(len(seen) - 1)):
        top = sorted(seen[rung], key=lambda name: -seen[rung][name])[: len(seen[rung]) // eta]
        waiting = [name for name in top if name not in promoted[rung]]
        if waiting:
            promoted[rung].append(waiting[0])
            return waiting[0], rung + 1
    return None


@pytest.mark.parametrize("eta", [2, 3])
def test_promotion_is_the_papers_for_all_orders_of_small_cases(eta: int) -> None:
    for scores in itertools.permutations(range(6)):
        scheduler = with_trials(ASHAScheduler(max_t=eta**2, reduction_factor=eta, type="promotion"), 6)
        seen: list[dict[str, float]] = [{}, {}, {}]
        promoted: list[list[str]] = [[], [], []]
        for number, score in enumerate(scores):
            seen[0][f"{number:05d}"] = score
            assert verdict(scheduler, number, 1, score) == PAUSE
            while (job := get_job(seen, promoted, eta)) is not None:
                name, rung = job
                assert scheduler.choose_paused() == name
                seen[rung][name] = scores[int(name)]
                expected = STOP if rung == 2 else PAUSE
                assert verdict(scheduler, int(name), eta**rung, scores[int(name)]) == expected
            assert scheduler.choose_paused() is None


def test_promotion_spends_most_on_the_best() -> None:
    done = run(ASHAScheduler(max_t=27, reduction_factor=3, type="promotion"), 81, 4, 27)
    ranking = sorted(done.trials, key=lambda trial: -trial.config["x"])
    assert all(trial.status == Trial.TERMINATED for trial in done.trials)
    assert ranking[0].last_result["training_iteration"] == 27
    assert done.reports < 81 * 27 / 4
    assert [trial.iteration for trial in ranking[41:]] == [1] * 40  # the worse half never passes the lowest rung


# --- HyperBand ---


def test_the_table_of_the_paper() -> None:
    assert table(81, 3) == [(81, [1, 3, 9, 27, 81]), (34, [3, 9, 27, 81]), (15, [9, 27, 81]), (8, [27, 81]), (5, [81])]


@pytest.mark.parametrize("slots", [1, 3, 200])
def test_a_bracket_is_halved_exactly_with_any_number_of_slots(slots: int) -> None:
    done = run(HyperBandScheduler(max_t=81), 81 + 34, slots, 81)
    first = sorted(done.trials[:81], key=lambda trial: -trial.config["x"])
    assert [trial.iteration for trial in first] == [81] + [27] * 2 + [9] * 6 + [3] * 18 + [1] * 54
    second = sorted(done.trials[81:], key=lambda trial: -trial.config["x"])
    assert [trial.iteration for trial in second] == [81] + [27] * 2 + [9] * 8 + [3] * 23


def test_a_bracket_that_is_never_full_is_halved_too() -> None:
    done = run(HyperBandScheduler(max_t=9), 5, 2, 9)
    ranking = sorted(done.trials, key=lambda trial: -trial.config["x"])
    assert [trial.iteration for trial in ranking] == [9, 1, 1, 1, 1]


def test_a_trial_that_fails_is_not_waited_for() -> None:
    def steps(config: dict[str, Any], checkpoint: int | None) -> Iterator[tuple[float, dict[str, Any], Any]]:
        if config["n"] == 4:
            raise OSError("broken")
        yield from epochs(9, lambda config, epoch: config["n"])(config, checkpoint)

    config = tune.TuneConfig("score", "max", scheduler=HyperBandScheduler(max_t=9))
    done = tune.simulate(steps, param_space={"n": tune.grid_search(range(9))}, tune_config=config, slots=3)
    assert [trial.status for trial in done.trials].count("ERROR") == 1
    assert [trial.iteration for trial in done.trials] == [1, 1, 1, 1, 0, 1, 3, 3, 9]


# --- the median rule ---


@pytest.mark.parametrize("step", [1, 0.3])
def test_the_median_rule_in_plain_words(step: float) -> None:
    """Random reports: the best of a trial against the median of the means of those that came as far."""
    rng = random.Random(5)
    scheduler = MedianStoppingRule("t", grace_period=2, min_samples_required=2)
    history: dict[int, list[tuple[float, float]]] = {}
    running = list(range(7))
    stopped = 0
    for _ in range(600):
        place = rng.randrange(7)
        number = running[place]
        score = place / 10 + rng.uniform(0, 0.3)
        reports = history.setdefault(number, [])
        time = (reports[-1][0] if reports else 0) + rng.choice([1, 1, 2]) * step  # some jump over a time
        reports.append((time, score))
        others = [
            float(np.mean(scores))
            for other, own in history.items()
            if other != number and own[-1][0] >= time >= 2
            for scores in [[s for t, s in own if 2 <= t <= time]]
            if scores
        ]
        is_worse = time >= 2 and len(others) >= 2 and max(s for _, s in reports) < float(np.median(others)) - 1e-12
        assert (verdict(scheduler, number, time, score) == STOP) == is_worse
        if is_worse:
            stopped += 1
            running[place] = max(running) + 1  # another takes its place; what the old one had counts further
    assert stopped > 5


def test_paused_trials_go_on_when_nothing_else_runs() -> None:
    rule = MedianStoppingRule("training_iteration", grace_period=1, min_samples_required=1, hard_stop=False)
    config = tune.TuneConfig("score", "max", scheduler=rule)
    space = {"x": tune.grid_search([3, 2, 1])}
    done = tune.simulate(epochs(4), param_space=space, tune_config=config, slots=1)
    assert [trial.iteration for trial in done.trials] == [4, 4, 4]
    assert done.reports == 12
    assert done.seconds == 12


# --- population based training ---


def toy(config: dict[str, Any], theta: tuple[float, float] | None) -> Iterator[tuple[float, dict[str, Any], Any]]:
    """The paper's: 1.2 - |theta|^2 is to be maximal, but only what is weighted by h has a gradient."""
    first, second = theta or (0.9, 0.9)
    while True:
        first -= 0.1 * 2 * config["h0"] * first
        second -= 0.1 * 2 * config["h1"] * second
        yield 1.0, {"q": 1.2 - first**2 - second**2}, (first, second)


def toy_result(scheduler: TrialScheduler | None) -> tune.Simulated:
    first = [{"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 1.0}]
    search = tune.search.BasicVariantGenerator(points_to_evaluate=first)
    config = tune.TuneConfig("q", "max", scheduler=scheduler, search_alg=search, num_samples=2, seed=1)
    stop = tune.RunConfig(stop={"training_iteration": 200})
    return tune.simulate(toy, param_space={"h0": 0, "h1": 0}, tune_config=config, run_config=stop, slots=2)


def test_two_workers_solve_the_toy_of_the_paper_and_grid_search_does_not() -> None:
    explore = {"h0": tune.uniform(0, 1), "h1": tune.uniform(0, 1)}
    scheduler = PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=4,
        hyperparam_mutations=explore,
        quantile_fraction=0.5,
        resample_probability=1.0,
    )
    assert max(trial.best_score for trial in toy_result(scheduler).trials) > 1.19
    assert max(trial.best_score for trial in toy_result(None).trials) < 0.4


def population(**more: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining("t", perturbation_interval=2, **more)


def test_the_worst_go_on_from_a_checkpoint_of_the_best() -> None:
    scheduler = population(hyperparam_mutations={"lr": [1, 2, 3], "w": tune.uniform(0, 1)}, resample_probability=0.0)
    trials = [Trial(f"{n:05d}", n, {"lr": 2, "w": 1.0, "name": n}, point=f"of {n}") for n in range(4)]
    for one in trials:
        scheduler.on_trial_add(one)
    assert scheduler.on_trial_result(trials[0], 1, 9.0) == {}  # the interval is not over
    for one in trials[1:]:
        assert scheduler.on_trial_result(one, 2, float(one.index))[one.trial_id] == "YIELD" or one.index == 0
    exploit = scheduler.on_trial_result(trials[0], 2, 0.0)["00000"]
    assert not isinstance(exploit, str)
    assert exploit.source is trials[3]
    assert exploit.config["lr"] in (1, 3)
    assert exploit.config["w"] in (0.8, 1.2)
    assert exploit.config["name"] == 3
    assert trials[3].config == {"lr": 2, "w": 1.0, "name": 3}, "that of the source is not changed"


def test_parameters_that_the_space_lacks_get_a_first_value() -> None:
    scheduler = population(hyperparam_mutations={"lr": tune.choice([5]), "deep": {"w": lambda: 7}, "kept": [1]})
    one = Trial("00000", 0, {"kept": 3})
    scheduler.on_trial_add(one)
    assert one.config == {"kept": 3, "lr": 5, "deep": {"w": 7}}


def test_a_population_larger_than_the_slots_takes_turns() -> None:
    scheduler = PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    )
    config = tune.TuneConfig("score", "max", scheduler=scheduler, num_samples=8)
    stop = tune.RunConfig(stop={"training_iteration": 10})
    done = tune.simulate(
        epochs(100), param_space={"x": tune.uniform(0, 1)}, tune_config=config, run_config=stop, slots=2
    )
    assert [trial.status for trial in done.trials] == [Trial.TERMINATED] * 8
    assert [trial.iteration for trial in done.trials] == [10] * 8


# --- all of them ---

ALL: list[Callable[[], TrialScheduler]] = [
    lambda: ASHAScheduler(max_t=9, reduction_factor=3),
    lambda: ASHAScheduler(max_t=9, reduction_factor=3, brackets=3, type="promotion"),
    lambda: HyperBandScheduler(max_t=9),
    lambda: MedianStoppingRule("training_iteration", grace_period=2),
    lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
    lambda: PopulationBasedTraining(
        "training_iteration", perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    ),
]


@pytest.mark.parametrize("make", ALL)
@given(
    st.integers(1, 25),
    st.integers(1, 12),
    st.integers(0, 1000),
    st.sampled_from([None, 3, 7]),
    st.sampled_from([None, 1, 5]),
)
def test_every_experiment_ends_whatever_fails(
    make: Callable[[], TrialScheduler], count: int, slots: int, seed: int, failing: int | None, limit: int | None
) -> None:
    """Trials fail, report nonsense, and there may be hardly a slot: all end, and twice the same."""

    def steps(config: dict[str, Any], checkpoint: int | None) -> Iterator[tuple[float, dict[str, Any], Any]]:
        kind = int(config["x"] * 1e6)
        for epoch in range(checkpoint or 0, 12):
            if failing and (kind + epoch) % failing == 0 and epoch % 4 == 2:
                raise OSError("broken")
            yield 0.5 + kind % 7, {"score": NAN if kind % 5 == 0 else config["x"] * epoch}, epoch + 1

    def once() -> list[tuple[Any, ...]]:
        search: tune.search.Searcher = tune.search.BasicVariantGenerator()
        if limit is not None:
            search = tune.search.ConcurrencyLimiter(search, limit)
        config = tune.TuneConfig("score", "max", scheduler=make(), search_alg=search, num_samples=count, seed=seed)
        run = tune.RunConfig(failure_config=tune.FailureConfig(max_failures=1))
        done = tune.simulate(
            steps, param_space={"x": tune.uniform(0, 1)}, tune_config=config, run_config=run, slots=slots
        )
        assert len(done.trials) == count
        assert {trial.status for trial in done.trials} <= {Trial.TERMINATED, "ERROR"}
        return [(t.config, t.status, t.iteration, t.failures, t.time_total_s) for t in done.trials]

    assert once() == once()


@pytest.mark.parametrize("make", ALL)
def test_one_scheduler_serves_one_experiment_after_another(make: Callable[[], TrialScheduler]) -> None:
    scheduler = make()
    first, second = run(scheduler, 12, 3, 12), run(scheduler, 12, 3, 12)
    assert [trial.last_result for trial in first.trials] == [trial.last_result for trial in second.trials]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ASHAScheduler(mode="best"), 'must be "min" or "max"'),
        (lambda: ASHAScheduler(grace_period=5, max_t=4), "grace_period <= max_t"),
        (lambda: ASHAScheduler(reduction_factor=1), "above 1"),
        (lambda: ASHAScheduler(max_t=4, brackets=3), "at most as many brackets as rungs"),
        (lambda: ASHAScheduler(type="sync"), 'choose "stopping" or "promotion"'),
        (lambda: HyperBandScheduler(max_t=0), "at least 1"),
        (lambda: HyperBandScheduler(reduction_factor=1), "above 1"),
        (lambda: MedianStoppingRule(min_samples_required=0), "at least 1"),
        (lambda: PopulationBasedTraining(), "Nothing can change"),
        (lambda: population(hyperparam_mutations={"a": 1}), "pass a domain, a list or a function"),
        (lambda: population(hyperparam_mutations={"a": [1]}, quantile_fraction=0.6), "0 to 0.5"),
    ],
)
def test_arguments_without_a_meaning_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_trial_that_pauses_without_a_checkpoint_starts_from_scratch() -> None:
    def steps(config: dict[str, Any], checkpoint: None) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(1, 12):
            yield 1.0, {"score": epoch * config["x"]}, None

    for stops, most in ((True, 9), (False, 11)):
        scheduler = HyperBandScheduler(max_t=9, stop_last_trials=stops)
        config = tune.TuneConfig("score", "max", scheduler=scheduler, num_samples=9)
        done = tune.simulate(steps, param_space={"x": tune.uniform(0, 1)}, tune_config=config, slots=3)
        assert max(trial.iteration for trial in done.trials) == most
        assert done.reports > sum(trial.iteration for trial in done.trials), "some was repeated"
    population = PopulationBasedTraining("score", perturbation_interval=0.1, hyperparam_mutations={"x": [1]})
    (trial,) = tune.simulate(steps, tune_config=tune.TuneConfig("score", "max", scheduler=population)).trials
    assert (trial.status, "no checkpoint" in str(trial.error)) == ("ERROR", True)


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("values", [[10, 20, 40, 30], [40, 30, 20, 10]])
def test_a_population_that_waits_is_compared_at_once(slots: int, values: list[int]) -> None:
    """Whatever the order and the room, the worst is replaced by the best in each interval."""
    scheduler = PopulationBasedTraining(
        "training_iteration", perturbation_interval=1, hyperparam_mutations={"c": lambda: 1}, synch=True
    )
    found = tune.simulate(
        epochs(4),
        param_space={"x": tune.grid_search(values), "c": 1},
        tune_config=tune.TuneConfig("score", "max", scheduler=scheduler),
        slots=slots,
    )
    assert [one.config["x"] for one in found.trials] == [40] * 4
    assert {one.status for one in found.trials} == {Trial.TERMINATED}
    assert [(one.at, one.source_at) for one in scheduler.exploits] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_population_that_waits_goes_on_when_others_fail() -> None:
    def score(config: dict[str, Any], epoch: int) -> float:
        if config["x"] == 2 and epoch == 1:
            raise ArithmeticError("on purpose")
        return float(config["x"])

    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 1, hyperparam_mutations={"c": [1]}, quantile_fraction=0.0, synch=True
    )
    found = tune.simulate(
        epochs(3, score),
        param_space={"x": tune.grid_search([1, 2, 3]), "c": 1},
        tune_config=tune.TuneConfig(scheduler=scheduler),
        slots=2,
    )
    assert [one.status for one in found.trials] == [Trial.TERMINATED, Trial.ERROR, Trial.TERMINATED]


def test_reports_without_the_metric_are_not_compared_if_they_may_lack_it() -> None:
    def steps(config: dict[str, Any], checkpoint: int | None) -> Iterator[tuple[float, dict[str, Any], Any]]:
        for epoch in range(3):
            yield 1.0, {"other": 1} if epoch != 1 else {"score": 1, "other": 1}, epoch

    for is_strict, status in ((True, Trial.ERROR), (False, Trial.TERMINATED)):
        scheduler = PopulationBasedTraining(
            "training_iteration", "score", "max", 1, hyperparam_mutations={"c": [1]}, require_attrs=is_strict
        )
        config = tune.TuneConfig(scheduler=scheduler, num_samples=2)
        found = tune.simulate(steps, param_space={"c": 1}, tune_config=config, slots=2)
        assert {one.status for one in found.trials} == {status}


def test_a_replay_follows_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.txt"
    lines = [
        ["7", "8", 2, 2, {"x": 9}, {"x": 8}],  # overwritten by the next
        ["2", "3", 2, 2, {"x": 1}, {"x": 3}],
        ["1", "2", 4, 5, {"x": 1}, {"x": 2}],
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    replay = PopulationBasedTrainingReplay(policy_file=str(file))
    assert replay.config == {"x": 1}
    config = tune.TuneConfig("score", "max", scheduler=replay)
    [one] = tune.simulate(epochs(7), param_space={"x": 0}, tune_config=config).trials
    assert one.config == {"x": 2}
    for text, words in (("{}", "not have the schedule"), ("nothing", "no JSON")):
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            PopulationBasedTrainingReplay(str(file))
    with pytest.raises(ValueError, match="no file"):
        PopulationBasedTrainingReplay(str(tmp_path / "other"))

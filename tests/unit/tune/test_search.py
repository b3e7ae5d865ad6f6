"""Searchers: grids and random values, and the wrappers that limit and repeat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, TuneBOHB
from mpi_runtime.tune.study.study import Study


class Numbers(Searcher):
    """Suggests numbers, and notes the trials of which it receives results."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.told: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self.number += 1
        return {"n": self.number}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append((trial_id, result))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, result, error))


def variants(space: dict[str, Any], num_samples: int, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    searcher = BasicVariantGenerator(**more)
    searcher.set_search_properties(None, None, space, seed=seed, num_samples=num_samples)
    count = searcher.trials(num_samples)
    assert count is not None
    return [searcher.suggest("") for _ in range(count)]


def test_each_sample_has_the_whole_grid() -> None:
    found = variants({"g": tune.grid_search([1, 2, 3]), "x": tune.uniform(0, 1)}, 2)
    assert [one["g"] for one in found] == [1, 2, 3, 1, 2, 3]
    assert len({one["x"] for one in found}) == 6


def test_random_values_may_be_the_same_for_the_whole_grid() -> None:
    found = variants({"g": tune.grid_search([1, 2, 3]), "x": tune.uniform(0, 1)}, 2, constant_grid_search=True)
    assert [one["x"] for one in found] == [found[0]["x"]] * 3 + [found[3]["x"]] * 3
    assert found[0]["x"] != found[3]["x"]


def test_the_seed_decides() -> None:
    space = {"x": tune.uniform(0, 1)}
    assert variants(space, 5, seed=1) == variants(space, 5, seed=1) != variants(space, 5, seed=2)
    assert variants(space, 5, seed=1, random_state=9) == variants(space, 5, seed=2, random_state=9)
    assert variants(space, 9)[:5] == variants(space, 5), "more samples do not change the first ones"


def test_points_to_evaluate_come_first_and_count_as_samples() -> None:
    space = {"x": tune.uniform(0, 1), "deep": {"y": 1, "z": tune.uniform(5, 6)}, "g": tune.grid_search([1, 2])}
    found = variants(space, 2, points_to_evaluate=[{"x": 7, "deep": {"z": 8}, "g": 9}])
    assert found[0] == {"x": 7, "deep": {"y": 1, "z": 8}, "g": 9}
    assert [one["g"] for one in found] == [9, 1, 2]


def test_samples_without_an_end() -> None:
    searcher = BasicVariantGenerator()
    searcher.set_search_properties(None, None, {}, seed=0)
    assert searcher.trials(-1) is None
    assert Numbers().trials(-1) is None


def test_a_limiter_waits_for_an_end() -> None:
    inner = Numbers()
    limiter = ConcurrencyLimiter(inner, 2)
    assert [limiter.suggest(name) for name in "abc"] == [{"n": 1}, {"n": 2}, None]
    limiter.on_trial_result("a", {"x": 1})
    limiter.on_trial_complete("a", {"x": 2})
    assert limiter.suggest("c") == {"n": 3}
    assert limiter.suggest("d") is None
    assert inner.told == [("a", {"x": 1}), ("a", {"x": 2}, False)]


def test_a_limiter_may_wait_for_a_batch() -> None:
    inner = Numbers()
    limiter = ConcurrencyLimiter(inner, 2, batch=True)
    assert [limiter.suggest(name) for name in "ab"] == [{"n": 1}, {"n": 2}]
    limiter.on_trial_complete("b", {"x": 2})
    assert limiter.suggest("c") is None
    assert inner.told == []
    limiter.on_trial_complete("a", None, True)
    assert inner.told == [("b", {"x": 2}, False), ("a", None, True)]
    assert limiter.suggest("c") == {"n": 3}


def test_a_searcher_that_sees_to_the_limit_itself_is_not_limited() -> None:
    class Own(Numbers):
        def set_max_concurrency(self, max_concurrent: int) -> bool:
            self.most = max_concurrent
            return True

    inner = Own()
    limiter = ConcurrencyLimiter(inner, 2, batch=True)
    assert [limiter.suggest(name) for name in "abc"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    limiter.on_trial_complete("b", {"x": 2})
    assert [inner.most, inner.told] == [2, [("b", {"x": 2}, False)]]
    assert limiter.set_max_concurrency(5)
    assert inner.most == 5


def test_a_limited_experiment_runs_no_more_at_a_time() -> None:
    def steps(config: dict[str, Any], checkpoint: None) -> Any:
        yield 1.0, {"x": 1}, None

    search = ConcurrencyLimiter(BasicVariantGenerator(), 2)
    done = tune.simulate(steps, tune_config=tune.TuneConfig(search_alg=search, num_samples=8), slots=8)
    assert done.seconds == 4


def test_repetitions_are_told_as_one_with_their_mean() -> None:
    inner = Numbers()
    repeater = Repeater(inner, 3)
    repeater.set_search_properties("x", "min", {})
    assert [repeater.suggest(name) for name in "abcd"] == [
        {"n": 1, "__trial_index__": 0},
        {"n": 1, "__trial_index__": 1},
        {"n": 1, "__trial_index__": 2},
        {"n": 2, "__trial_index__": 0},
    ]
    repeater.on_trial_complete("b", {"x": 1.0})
    repeater.on_trial_complete("d", {"x": 100.0})
    repeater.on_trial_complete("a", None, True)
    assert inner.told == []
    repeater.on_trial_complete("c", {"x": 4.0})
    assert inner.told == [("a", {"x": 2.5}, False)]


def test_repetitions_that_all_fail_are_an_error() -> None:
    inner = Numbers()
    repeater = Repeater(inner, 2, set_index=False)
    repeater.set_search_properties("x", "min", {})
    assert [repeater.suggest(name) for name in "ab"] == [{"n": 1}, {"n": 1}]
    repeater.on_trial_complete("a", None, True)
    repeater.on_trial_complete("b", None, True)
    assert inner.told == [("a", None, True)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ConcurrencyLimiter(Numbers(), 0), "at least 1"),
        (lambda: ConcurrencyLimiter(3, 1), "takes a Searcher, not 3"),  # type: ignore[arg-type]
        (lambda: Repeater(Numbers(), 0), "at least 1"),
        (lambda: Repeater(BasicVariantGenerator(), 2), "set num_samples"),
    ],
)
def test_wrappers_refuse_what_makes_no_sense(make: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_a_searcher_may_limit_how_many_trials_run() -> None:
    def study(most: int | None) -> Study:
        config = tune.TuneConfig(search_alg=BasicVariantGenerator(max_concurrent=2), max_concurrent_trials=most)
        return Study({}, config, tune.RunConfig(), 8)

    assert study(None).slots == study(2).slots == 2
    with pytest.raises(ValueError, match="choose one"):
        study(3)


def test_a_limit_passes_on_batches_and_ignores_strangers() -> None:
    numbers = Numbers()
    limiter = ConcurrencyLimiter(numbers, 2, batch=True)
    limiter.suggest("a")
    limiter.suggest("b")
    limiter.on_trial_complete("stranger", {"score": 1})
    limiter.on_trial_complete("a", {"score": 1})
    assert limiter.suggest("c") is None
    assert (limiter.live_trials, set(limiter.cached_results), numbers.told) == ({"a", "b"}, {"a"}, [])
    limiter.on_trial_complete("b", {"score": 2})
    assert [one[0] for one in numbers.told] == ["a", "b"]
    assert limiter.suggest("c") == {"n": 3}


def test_wrappers_of_an_earlier_version_can_be_read() -> None:
    limiter, repeater = ConcurrencyLimiter.__new__(ConcurrencyLimiter), Repeater.__new__(Repeater)
    limiter.__setstate__({"searcher": Numbers(), "_is_batch": True, "max_concurrent": 2})
    repeater.__setstate__({"searcher": Numbers(), "_repeat": 3})
    assert (limiter.batch, repeater.repeat) == (True, 3)


def test_a_model_goes_on_in_another_searcher(tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1)}
    first = TuneBOHB(space, metric="score", mode="max")
    for name in ("1", "a_2", "not_completed"):
        first.suggest(name)
    first.on_trial_complete("1", {"score": 0.5, "training_iteration": 1})
    first.save_to_dir(str(tmp_path))
    second = TuneBOHB()
    second.restore_from_dir(str(tmp_path))
    assert second.set_search_properties("score", "max", {"y": tune.uniform(0, 1)}, seed=3)
    assert second.suggest("3") == first.suggest("3")
    second.on_trial_complete("a_2", {"score": 0.25, "training_iteration": 1})
    assert not list(tmp_path.glob(".new*"))


def test_a_searcher_without_a_state_leaves_no_file(tmp_path: Path) -> None:
    Numbers().save_to_dir(str(tmp_path))
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="no state of a searcher"):
        Numbers().restore_from_dir(str(tmp_path))


def test_goals_of_several_metrics_are_checked() -> None:
    goal: Any = Searcher(["a", "b"], ["max", "min"]).metric  # type: ignore[arg-type]
    assert goal == ["a", "b"]
    with pytest.raises(ValueError, match="a list as long"):
        Searcher(["a", "b"], ["max"])  # type: ignore[arg-type]

"""The state machine of an experiment: which orders follow which events, and what is refused."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE
from mpi_runtime.tune.search import BasicVariantGenerator, Searcher
from mpi_runtime.tune.show.remaining import Remaining, remaining_of
from mpi_runtime.tune.study.callback import notify
from mpi_runtime.tune.study.events import (
    Continue,
    Crashed,
    Ended,
    Fail,
    Failed,
    Halt,
    Moved,
    Reported,
    Revived,
    Sized,
    Skipped,
    Start,
    Woken,
)
from mpi_runtime.tune.study.stoppers import Stopper
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Trial


class Told(Searcher):
    """Suggests numbers, and notes the results that it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return {"n": int(trial_id)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append((trial_id, result.get("x")))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append((trial_id, result and result.get("x"), "error" if error else "end"))


def study(count: int = 3, slots: int = 2, *, stop: Any = None, **more: Any) -> Study:
    failure = {name: more.pop(name) for name in list(more) if name in tune.FailureConfig.__dataclass_fields__}
    more["search_alg"] = more.pop("searcher", None) or Told()
    run = tune.RunConfig(stop=stop, failure_config=tune.FailureConfig(**failure))
    return Study({}, tune.TuneConfig(num_samples=count, **more), run, slots)


def searched(space: dict[str, Any], searcher: Searcher | None = None, **more: Any) -> Study:
    return Study(space, tune.TuneConfig(search_alg=searcher, **more), tune.RunConfig())


def test_trials_start_as_there_is_room_and_end() -> None:
    machine = study()
    assert machine.begin(0.0) == [Start("00000", {"n": 0}, None), Start("00001", {"n": 1}, None)]
    assert machine.handle(Reported("00000", {"x": 1}), 1.0) == [Continue("00000")]
    assert machine.handle(Ended("00001"), 2.0) == [Start("00002", {"n": 2}, None)]
    assert machine.handle(Ended("00000"), 3.0) == []
    assert not machine.is_done
    assert machine.handle(Ended("00002"), 3.0) == []
    assert machine.is_done
    assert [trial.status for trial in machine.trials.values()] == [Trial.TERMINATED] * 3


def test_reports_are_completed() -> None:
    machine = study(1)
    machine.begin(10.0)
    machine.handle(Reported("00000", {"x": 1}), 12.0)
    machine.handle(Reported("00000", {"x": 2}), 15.0)
    result = machine.trials["00000"].last_result
    assert result == {
        "x": 2,
        "training_iteration": 2,
        "time_this_iter_s": 3.0,
        "time_total_s": 5.0,
        "time_since_restore": 5.0,
        "iterations_since_restore": 2,
        "config": {"n": 0},
        "done": False,
        "trial_id": "00000",
    }
    machine.handle(Ended("00000"), 16.0)
    assert machine.trials["00000"].last_result["done"]


class Lost:
    """A checkpoint in memory, whose process has died."""

    number = 0

    def opened(self, _: str) -> object:
        raise tune.TuneError("lost")


def test_a_checkpoint_that_is_lost_before_a_callback_hears_of_it_ends_no_search() -> None:
    class Notes(tune.Callback):
        heard: tuple[str, ...] = ()

        def on_checkpoint(self, *_: object, **__: object) -> None:
            self.heard += ("checkpoint",)

        def on_trial_save(self, *_: object, **__: object) -> None:
            self.heard += ("save",)

    machine, notes = study(1), Notes()
    machine.begin(0.0)
    for point in ("state", Lost()):
        event = Reported("00000", {"x": 1}, point)
        machine.handle(event, 1.0)
        notify([notes], 1, machine, event, [])
    assert notes.heard == ("checkpoint", "save", "save")


@pytest.mark.parametrize("stop", [{"x": 5, "training_iteration": 9}, lambda _, result: result["x"] >= 5])
def test_the_last_report_of_a_stopped_trial_reaches_the_searcher_once(stop: Any) -> None:
    machine = study(1, stop=stop)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 4}), 1.0)
    assert machine.handle(Reported("00000", {"x": 5}), 1.0) == [Halt("00000")]
    assert isinstance(machine.searcher, Told)
    assert machine.searcher.told == [("00000", 4), ("00000", 5, "end")]


def test_a_report_that_says_done_is_the_last() -> None:
    machine = study(1)
    machine.begin(0.0)
    assert machine.handle(Reported("00000", {"x": 4, "done": True}), 1.0) == [Halt("00000")]


def test_a_trial_that_raised_goes_on_from_its_checkpoint_as_often_as_allowed() -> None:
    machine = study(1, max_failures=1)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}, checkpoint="first"), 1.0)
    machine.handle(Reported("00000", {"x": 2}), 2.0)
    assert machine.handle(Failed("00000", "oops"), 3.0) == [Start("00000", {"n": 0}, "first")]
    machine.handle(Reported("00000", {"x": 2}), 4.0)
    assert machine.trials["00000"].last_result["training_iteration"] == 2, "it has forgotten what came later"
    assert machine.trials["00000"].last_result["time_total_s"] == 2.0
    assert machine.handle(Failed("00000", "again"), 4.0) == []
    assert machine.trials["00000"].status == Trial.ERROR
    assert machine.trials["00000"].error == "again"
    assert isinstance(machine.searcher, Told)
    assert machine.searcher.told[-1] == ("00000", None, "error")


def test_crashes_are_counted_apart() -> None:
    machine = study(1, max_failures=0, max_crashes=2)
    machine.begin(0.0)
    for _ in range(2):
        assert machine.handle(Crashed("00000", "killed"), 1.0) == [Start("00000", {"n": 0}, None)]
    assert machine.handle(Crashed("00000", "killed"), 1.0) == []
    assert machine.trials["00000"].status == Trial.ERROR


def test_a_trial_that_succeeds_at_last_has_no_error() -> None:
    machine = study(1, max_failures=-1)
    machine.begin(0.0)
    machine.handle(Failed("00000", "oops"), 1.0)
    machine.handle(Ended("00000"), 2.0)
    assert machine.trials["00000"].error is None
    assert machine.trials["00000"].failures == 1


def test_the_first_failure_may_end_all() -> None:
    machine = study(3, fail_fast=True)
    machine.begin(0.0)
    assert machine.handle(Failed("00001", "oops"), 1.0) == [Halt("00000")]
    assert machine.is_done
    assert len(machine.trials) == 2


def test_time_ends_all() -> None:
    machine = study(3, time_budget_s=10.0)
    machine.begin(5.0)
    assert machine.deadline == 15.0
    assert machine.handle(Woken(), 14.0) == []
    assert machine.handle(Woken(), 15.0) == [Halt("00000"), Halt("00001")]
    assert machine.is_done
    assert study(stop=tune.CombinedStopper(tune.TimeoutStopper(3))).begin(0.0)


def test_a_stopper_may_end_all() -> None:
    class All(Stopper):
        seen = 0

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.seen += 1
            return False

        def stop_all(self) -> bool:
            return self.seen == 2

    machine = study(3, stop=All())
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}), 1.0)
    assert machine.handle(Reported("00000", {"x": 1}), 1.0) == [Continue("00000"), Halt("00000"), Halt("00001")]


def test_the_best_report_is_kept_and_nan_is_worst() -> None:
    machine = study(1, metric="x", mode="min")
    machine.begin(0.0)
    for value in (float("nan"), 3, 1, 2):
        machine.handle(Reported("00000", {"x": value}), 1.0)
    assert machine.trials["00000"].best_result["x"] == 1


def test_the_trial_gets_a_copy_of_its_configuration() -> None:
    machine = searched({"deep": {"x": 1}})
    (order,) = machine.begin(0.0)
    assert isinstance(order, Start)
    order.config["deep"]["x"] = 2
    assert machine.trials["00000"].config == {"deep": {"x": 1}}


def test_a_searcher_leaves_the_rest_to_the_space() -> None:
    class Half(Told):
        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"deep": {"a": 1}}

    machine = searched({"deep": {"a": tune.uniform(5, 6), "b": 2}, "c": tune.randint(7, 8)}, Half())
    assert machine.begin(0.0) == [Start("00000", {"deep": {"a": 1, "b": 2}, "c": 7}, None)]


def test_a_searcher_may_have_no_more() -> None:
    class Few(Told):
        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return {} if trial_id == "00000" else self.FINISHED

    machine = study(-1, searcher=Few())
    machine.begin(0.0)
    assert machine.handle(Ended("00000"), 1.0) == []
    assert machine.is_done


@pytest.mark.parametrize(("answer", "words"), [(None, "could wait for"), (3, "not a configuration")])
def test_a_wrong_suggestion_is_refused(answer: Any, words: str) -> None:
    class Silent(Told):
        def suggest(self, trial_id: str) -> Any:
            return answer

    with pytest.raises((ValueError, TypeError), match=words):
        study(1, searcher=Silent()).begin(0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"metric": "x", "mode": "best"}, "mode must be"),
        ({"scheduler": ASHAScheduler()}, "AsyncHyperBandScheduler compares trials, but by what"),
        ({"scheduler": ASHAScheduler(metric="x")}, "metric='x' and mode=None"),
        ({"scheduler": ASHAScheduler(metric="y", mode="max"), "metric": "x"}, "set it once"),
        ({"count": 0}, "at least 1"),
        ({"slots": 0}, "never start"),
    ],
)
def test_wrong_settings_are_refused_before_the_first_trial(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study(**arguments)


def test_a_metric_is_one_name_and_a_mode_one_of_two() -> None:
    makers: list[Any] = [Searcher, lambda metric, mode: ASHAScheduler(metric=metric, mode=mode)]
    for make in makers:
        with pytest.raises(ValueError, match='mode must be "min" or "max", not \'minimum\''):
            make("x", "minimum")
        with pytest.raises(TypeError, match="name of one reported value"):
            make(["x", "y"], "min")
    with pytest.raises(TypeError, match="name of one reported value"):
        study(metric=["x", "y"], mode="min")


def test_the_metric_of_a_searcher_is_that_of_the_study() -> None:
    class Names(Told):
        def __init__(self) -> None:
            super().__init__()
            self.metric, self.mode = "x", "min"

    machine = study(searcher=Names())
    machine.begin(0.0)
    assert (machine.metric, machine.mode) == ("x", "min")
    [fail] = machine.handle(Reported("00000", {"y": 1}), 1.0)
    assert isinstance(fail, Fail)
    assert "metric 'x' is not in the report" in fail.why


def test_a_mode_without_a_metric_compares_bare_numbers() -> None:
    machine = study(2, mode="max")
    machine.begin(0.0)
    machine.handle(Reported("00000", {"_metric": 1}), 1.0)
    machine.handle(Reported("00001", {"x": 1}), 1.0)
    assert [trial.best_score for trial in machine.trials.values()] == [1.0, float("-inf")]


def test_timesteps_are_summed_from_the_checkpoint() -> None:
    machine = study(1, max_failures=1)
    machine.begin(0.0)
    seen = []
    for checkpoint in ("a", None):
        machine.handle(Reported("00000", {"timesteps_this_iter": 10}, checkpoint), 1.0)
        seen.append(machine.trials["00000"].last_result["timesteps_total"])
    machine.handle(Failed("00000", "oops"), 1.0)
    machine.handle(Reported("00000", {"timesteps_this_iter": 5}), 1.0)
    seen.append(machine.trials["00000"].last_result["timesteps_total"])
    assert seen == [10, 20, 15]
    machine.handle(Reported("00000", {"x": 1}), 1.0)
    result = machine.trials["00000"].last_result
    assert [result[name] for name in ("timesteps_total", "timesteps_since_restore")] == [15, 5]


def test_what_a_trial_reports_itself_wins_where_it_does_in_ray() -> None:
    machine = study(1)
    machine.begin(0.0)
    own = {"time_this_iter_s": 7.0, "time_total_s": 1.0, "trial_id": "me", "config": {}, "iterations_since_restore": 9}
    for count in (1, 2):
        machine.handle(Reported("00000", {**own, "timesteps_total": 3, "episodes_this_iter": 2}), 2.0)
        result = machine.trials["00000"].last_result
        assert (result["trial_id"], result["config"], result["timesteps_total"]) == ("00000", {"n": 0}, 3)
        assert (result["time_this_iter_s"], result["time_total_s"], result["episodes_total"]) == (
            7.0,
            7 * count,
            2 * count,
        )
        assert result["iterations_since_restore"] == count


def test_counts_since_a_restore_begin_again() -> None:
    machine = study(1, max_failures=1)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}, "a"), 3.0)
    machine.handle(Reported("00000", {"x": 2}), 4.0)
    machine.handle(Failed("00000", "oops"), 5.0)
    machine.handle(Reported("00000", {"x": 3}), 6.0)
    result = machine.trials["00000"].last_result
    names = ("training_iteration", "iterations_since_restore", "time_total_s", "time_since_restore")
    assert [result[name] for name in names] == [2, 1, 4.0, 1.0]


def test_a_trial_that_is_moved_has_the_timesteps_of_that_checkpoint() -> None:
    machine = study(1)
    machine.begin(0.0)
    trial = machine.trials["00000"]
    machine.handle(Reported("00000", {"timesteps_this_iter": 10}, "a"), 1.0)
    first = trial.checkpoint_at
    machine.handle(Reported("00000", {"timesteps_this_iter": 100}, "b"), 1.0)
    machine.handle(Moved("00000", "a", first), 1.0)
    machine.handle(Reported("00000", {"timesteps_this_iter": 100}), 1.0)
    assert trial.last_result["timesteps_total"] == 110, "steps are not equally long"


def test_grids_are_refused_where_they_cannot_be_searched() -> None:
    with pytest.raises(ValueError, match="Told cannot search grids"):
        searched({"x": tune.grid_search([1])}, Told())
    searched({"x": tune.grid_search([1])}, BasicVariantGenerator(), scheduler=FIFOScheduler())


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([{"losss": 1}], r"metric 'loss' is not in the report of trial 00000, which has .*'losss'"),
        ([{"loss": "low"}], "which is not a number"),
        ([{"loss": 1}], "time_attr 't' is not in the report"),
        ([{"loss": 1, "t": 3}, {"loss": 1, "t": 2}], "t of trial 00000 went from 3.0 to 2.0"),
        ([{"loss": 1, "t": float("nan")}], "to nan"),
    ],
)
def test_a_trial_whose_report_cannot_be_compared_fails(reports: list[dict[str, Any]], words: str) -> None:
    machine = study(1, scheduler=ASHAScheduler("t", "loss", "min"))
    machine.begin(0.0)
    for report in reports:
        orders = machine.handle(Reported("00000", report), 1.0)
    [fail] = orders
    assert isinstance(fail, Fail)
    assert re.search(words, fail.why)
    assert machine.trials["00000"].status == Trial.RUNNING, "until it has ended"
    assert machine.handle(Failed("00000", fail.why), 1.0) == []
    assert machine.trials["00000"].status == Trial.ERROR


def test_time_may_go_back_after_a_failure() -> None:
    machine = study(1, scheduler=ASHAScheduler("t", "loss", "min"), max_failures=1)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"loss": 1, "t": 3}), 1.0)
    machine.handle(Failed("00000", "oops"), 1.0)
    assert machine.handle(Reported("00000", {"loss": 1, "t": 1}), 1.0) == [Continue("00000")]


def test_states_have_no_way_back_from_the_end() -> None:
    trial = Trial("00000", 0, {})
    trial.moved(Trial.RUNNING)
    trial.moved(Trial.TERMINATED)
    assert trial.is_finished()
    with pytest.raises(RuntimeError, match="it is TERMINATED"):
        trial.moved(Trial.RUNNING)


def test_a_trial_that_is_moved_runs_again_from_there_and_nothing_is_counted() -> None:
    machine = study(1)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}, checkpoint="first"), 1.0)
    assert machine.handle(Moved("00000", "older"), 2.0) == [Start("00000", {"n": 0}, "older")]
    trial = machine.trials["00000"]
    assert (trial.failures, trial.crashes, trial.iteration) == (0, 0, 0)


def test_a_trial_that_has_failed_for_good_can_be_revived() -> None:
    machine = study(1, max_failures=1)
    machine.begin(0.0)
    machine.handle(Failed("00000", "oops"), 1.0)
    machine.handle(Failed("00000", "oops"), 1.0)
    assert machine.is_done
    assert machine.handle(Revived("00000"), 2.0) == [Start("00000", {"n": 0}, None)]
    assert machine.handle(Failed("00000", "oops"), 3.0) == [Start("00000", {"n": 0}, None)], "it may fail once more"
    with pytest.raises(RuntimeError, match="cannot be revived"):
        machine.handle(Revived("00000"), 4.0)


def test_a_study_may_grow() -> None:
    machine = study(5, slots=1)
    machine.begin(0.0)
    assert [order.trial_id for order in machine.handle(Sized(3), 1.0)] == ["00001", "00002"]


def test_changes_of_states_are_noted() -> None:
    machine = study(2, slots=2)
    machine.begin(0.0)
    machine.changed.clear()
    machine.handle(Ended("00001"), 1.0)
    assert {name: trial.status for name, trial in machine.changed.items()} == {"00001": Trial.TERMINATED}


def test_after_the_first_failure_a_revived_trial_runs_and_so_does_the_rest() -> None:
    searcher = Told()
    machine = study(2, slots=1, searcher=searcher, fail_fast=True)
    machine.begin(0.0)
    assert machine.handle(Failed("00000", "oops"), 1.0) == []
    assert machine.is_done
    assert machine.handle(Revived("00000"), 2.0) == [Start("00000", {"n": 0}, None)]
    machine.handle(Reported("00000", {"x": 5}), 3.0)
    assert machine.handle(Ended("00000"), 4.0) == [Start("00001", {"n": 1}, None)]
    assert searcher.told == [("00000", None, "error")], "the searcher receives the end once"


def test_who_takes_the_place_of_one_that_is_at_its_end_ends_there_with_its_checkpoint() -> None:
    """Its last report is its own, from before: it has made none since."""
    scheduler = PopulationBasedTraining("training_iteration", "x", "max", 3, 9, hyperparam_mutations={"n": [0, 1]})
    machine = study(2, scheduler=scheduler)
    machine.begin(0.0)
    for trial_id, name, last in (("00000", "first", 12), ("00001", "second", 8)):
        for iteration in range(1, last + 1):
            assert machine.handle(Reported(trial_id, {"x": 1.0}, f"{name} {iteration}"), 1.0) == [Continue(trial_id)]
    halt, start = machine.handle(Reported("00001", {"x": 0.0}, "second 9"), 1.0)
    assert (halt, start.trial_id, start.checkpoint) == (Halt("00001"), "00001", "first 12")  # type: ignore[union-attr]
    machine.handle(Ended("00001"), 2.0)
    worst = machine.trials["00001"]
    assert (worst.status, worst.checkpoint, worst.checkpoint_at.iteration) == (Trial.TERMINATED, "first 12", 12)
    assert worst.last_result["training_iteration"] == 9


@pytest.mark.parametrize(
    ("scheduler", "first", "second"),
    [
        (FIFOScheduler(), (80.0, "about"), (55.0, "about")),
        (ASHAScheduler(metric="x", mode="max"), (80.0, "at most"), (70.0, "at most")),
    ],
)
def test_the_rest_takes_as_long_as_the_trials_before(
    scheduler: Any, first: tuple[float, str], second: tuple[float, str]
) -> None:
    machine = study(5, 2, scheduler=scheduler)
    machine.begin(0.0)
    assert remaining_of(machine, 1.0) is None, "no trial has ended"
    machine.handle(Reported("00000", {"x": 1}), 40.0)
    machine.handle(Failed("00001", "at once"), 40.0)
    assert remaining_of(machine, 40.0) is None, "a trial that has failed says nothing"
    machine.handle(Ended("00000"), 40.0)
    found = remaining_of(machine, 40.0)
    assert found is not None
    assert (found.seconds, found.how) == first
    machine.handle(Reported("00002", {"x": 2}), 110.0)
    machine.handle(Ended("00002"), 110.0)
    found = remaining_of(machine, 110.0)
    assert found is not None
    assert (found.seconds, found.how) == second, "the median, or the longest"


def test_a_time_budget_ends_an_experiment_at_the_latest() -> None:
    machine = study(-1, 2, time_budget_s=100.0)
    machine.begin(0.0)
    assert remaining_of(machine, 30.0) == Remaining(70.0, "at most", "then its time ends")
    assert str(remaining_of(machine, 30.0)) == "at most 70 s left"
    machine = study(4, 2, time_budget_s=100.0)
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}), 40.0)
    machine.handle(Ended("00000"), 40.0)
    assert str(remaining_of(machine, 40.0)) == "about 40 s left", "two more, one of which is nearly done"
    assert remaining_of(machine, 80.0) == Remaining(20.0, "at most", "then its time ends"), "both outlast the first"
    machine.handle(Ended("00001"), 85.0)
    assert str(remaining_of(machine, 90.0)) == "at most 10 s left"
    machine.handle(Woken(), 100.0)
    assert remaining_of(machine, 95.0) is None, "it is over"


def test_the_line_of_an_experiment_that_continues_counts_the_trials_of_earlier_runs() -> None:
    machine = study(3, 1, metric="x", mode="max")
    machine.begin(0.0)
    machine.handle(Reported("00000", {"x": 1}), 2.0)
    machine.handle(Ended("00000"), 2.0)
    reporter = tune.CLIReporter()
    reporter.setup(driver=SimpleNamespace(study=machine, now=lambda: 3.0, where={}))
    assert reporter.summary() == "2 of 3 trials after 3 s: 1 running, 1 done; best x 1 in trial 00000; about 3 s left"


def test_trials_may_be_left_out_of_a_resume() -> None:
    """Those that ran or waited end, and those of a grid that had not begun never run."""
    found = study(5, 2, searcher=BasicVariantGenerator())
    found.begin(0.0)
    found.handle(Reported("00000", {"score": 1}, "point"), 1.0)
    found.handle(Failed("00001", "on purpose"), 2.0)
    assert found.handle(Skipped(), 3.0) == []
    assert [one.status for one in found.trials.values()] == ["TERMINATED", "ERROR", *["TERMINATED"] * 3]
    assert found.is_done
    orders = found.handle(Revived("00001"), 4.0)
    assert [type(one).__name__ for one in orders] == ["Start"]


def test_a_trial_that_pauses_again_and_again_without_a_checkpoint_fails() -> None:
    """It would begin anew for ever. One that was killed once while it saved comes further."""

    class Pauses(FIFOScheduler):
        is_passive = False

        def on_trial_result(self, trial: Trial, time: float, score: float) -> dict[str, Any]:
            return {trial.trial_id: PAUSE if time >= 2 else CONTINUE}

        def on_idle(self) -> dict[str, Any]:
            return {"00000": CONTINUE}

    once = itertools.chain([None] * 4, itertools.count(1))  # the second time it reports checkpoints
    for points, status in (
        (itertools.repeat(None), Trial.ERROR),
        (itertools.count(1), Trial.TERMINATED),
        (once, Trial.TERMINATED),
    ):

        def steps(config: dict[str, Any], start: int | None, points: Any = points) -> Any:
            for epoch in range(start or 0, 4):
                yield 1.0, {"score": epoch}, next(points)

        [trial] = tune.simulate(steps, tune_config=tune.TuneConfig(scheduler=Pauses())).trials
        assert trial.status == status
    assert trial.iteration == 4

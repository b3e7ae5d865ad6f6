"""Search: schedulers with an algorithm, by hand and as base classes; directories of trials; settings without meaning."""

import os
import pickle
import tempfile
import threading
from unittest.mock import MagicMock

from ray import tune
from ray.tune import Checkpoint, Experiment, PlacementGroupFactory
from ray.tune.result import DEBUG_METRICS
from ray.tune.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.variant_generator import format_vars
from ray.tune.stopper import ExperimentPlateauStopper

from tests.ray_docs.helpers import raised

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


class _Trial:
    """What schedulers need of a trial that is asked about by hand."""

    def __init__(self, number):
        self.trial_id, self.config = f"t{number}", {}


def _ask(scheduler, trial, time, score):
    result = {"time_total_s": time, "training_iteration": int(time), "score": score}
    return scheduler.on_trial_result(MagicMock(), trial, result)


def _end(scheduler, trial, time, score):
    scheduler.on_trial_complete(
        MagicMock(), trial, {"time_total_s": time, "training_iteration": int(time), "score": score}
    )


def _two(scheduler, adds=True):
    """Two trials that have reported: one grows, and one stays."""
    first, second = _Trial(1), _Trial(2)
    for trial in (first, second) if adds else ():
        scheduler.on_trial_add(None, trial)
    words = [_ask(scheduler, first, time, time * 100) for time in range(10)]
    words += [_ask(scheduler, second, time, 450) for time in range(5)]
    print(sorted(set(words)))
    return first, second


def asha_by_hand():
    """A program may ask the scheduler itself: trials are compared at its rungs, also with those that have ended."""
    scheduler = AsyncHyperBandScheduler(metric="score", mode="max", max_t=10, brackets=1)
    _, second = _two(scheduler)
    third = _Trial(3)
    scheduler.on_trial_add(None, third)
    _end(scheduler, third, 10, 1000)
    print(_ask(scheduler, second, 101, 0))


def asha_has_mercy_at_first():
    """Before the first rung no trial is stopped."""
    scheduler = AsyncHyperBandScheduler(metric="score", mode="max", grace_period=2.5, reduction_factor=3, brackets=1)
    for trial in _two(scheduler):
        _end(scheduler, trial, 10, 1000)
    third = _Trial(3)
    scheduler.on_trial_add(None, third)
    print([_ask(scheduler, third, time, 10) for time in (1, 2, 3)])


def the_median_rule_by_hand():
    """A trial whose best value is below the median of the means of the others is stopped."""
    scheduler = MedianStoppingRule(metric="score", mode="max", grace_period=0, min_samples_required=1)
    first, second = _two(scheduler, adds=False)
    _end(scheduler, first, 10, 1000)
    print([_ask(scheduler, second, time, score) for time, score in ((5, 450), (6, 0), (10, 450))])


def the_median_rule_has_mercy_at_first():
    """Before the grace period no trial is stopped."""
    scheduler = MedianStoppingRule(metric="score", mode="max", grace_period=2.5, min_samples_required=1)
    for trial in _two(scheduler, adds=False):
        _end(scheduler, trial, 10, 1000)
    third = _Trial(3)
    print([_ask(scheduler, third, time, 10) for time in (1, 2, 3)])


def the_median_rule_may_pause():
    """Instead of stopping a trial."""
    scheduler = MedianStoppingRule(metric="score", mode="max", grace_period=0, min_samples_required=1, hard_stop=False)
    for trial in _two(scheduler, adds=False):
        _end(scheduler, trial, 10, 1000)
    third = _Trial(3)
    print([_ask(scheduler, third, time, 260) for time in (1, 2)])


def the_state_of_asha():
    """It can be written to a file, and read again."""
    scheduler = AsyncHyperBandScheduler(metric="score", mode="max", grace_period=1, reduction_factor=2, max_t=10)
    _two(scheduler)
    third = _Trial(3)
    scheduler.on_trial_add(None, third)
    with tempfile.TemporaryDirectory() as folder:
        scheduler.save(f"{folder}/state")
        again = AsyncHyperBandScheduler()
        again.restore(f"{folder}/state")
        print(_ask(scheduler, third, 1, 1), _ask(again, third, 1, 1))
        for one in (FIFOScheduler(), HyperBandScheduler(), MedianStoppingRule()):
            print(raised(lambda one=one: one.save(f"{folder}/other"), "NotImplementedError"))


def _saves(config):
    for step in range(1, 5):
        with tempfile.TemporaryDirectory() as folder:
            tune.report({"step": step, "score": step * config["x"]}, checkpoint=Checkpoint.from_directory(folder))


def classes_derive_from_algorithms():
    """They hear what the algorithm hears, and its decision is theirs unless they return another one."""
    mutations = {"hyperparam_mutations": {"x": [1, 2]}}
    for kind, more in ((ASHAScheduler, {}), (MedianStoppingRule, {}), (PopulationBasedTraining, mutations)):

        class Own(kind):
            heard = []

            def on_trial_add(self, tune_controller, trial):
                self.heard.append("add")
                super().on_trial_add(tune_controller, trial)

            def on_trial_result(self, tune_controller, trial, result):
                self.heard.append("result")
                return super().on_trial_result(tune_controller, trial, result)

            def on_trial_complete(self, tune_controller, trial, result):
                self.heard.append("complete")
                super().on_trial_complete(tune_controller, trial, result)

        tuning = tune.TuneConfig(scheduler=Own(metric="score", mode="max", **more))
        with tempfile.TemporaryDirectory() as folder:
            settings = tune.RunConfig(storage_path=folder, verbose=0)
            results = tune.Tuner(_saves, param_space={"x": 1}, tune_config=tuning, run_config=settings).fit()
            print(results[0].metrics["step"], results.num_errors, {word: Own.heard.count(word) for word in Own.heard})


def a_class_decides_against_its_algorithm():
    """What it returns counts."""

    class Own(ASHAScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            super().on_trial_result(tune_controller, trial, result)
            return self.STOP if result["step"] == 3 else self.CONTINUE

    tuning = tune.TuneConfig(scheduler=Own(metric="score", mode="max"))
    with tempfile.TemporaryDirectory() as folder:
        settings = tune.RunConfig(storage_path=folder, verbose=0)
        space = {"x": tune.grid_search([1, 2])}
        results = tune.Tuner(_saves, param_space=space, tune_config=tuning, run_config=settings).fit()
        print([one.metrics["step"] for one in results])


def directories_tell_what_was_drawn():
    """The directory of a trial has the name of the function and its parameters, if the program gives it none."""

    def trial(config):
        tune.report({"done_here": 1})

    with tempfile.TemporaryDirectory() as folder:
        settings = tune.RunConfig(storage_path=folder, verbose=0)
        space = {"t": tune.grid_search([1, 2]), "deep": {"lr": tune.choice([0.5])}, "fixed": 3}
        results = tune.Tuner(trial, param_space=space, run_config=settings).fit()
        for one in results:
            name = os.path.basename(one.path)
            print(name.startswith("trial_"), f"_lr=0.5000,t={one.config['t']}" in name, "fixed" in name)


def resources_in_a_report():
    """They are those of the trial."""

    def trial(config):
        tune.report({"resources": tune.get_context().get_trial_resources()})

    with tempfile.TemporaryDirectory() as folder:
        wanted = PlacementGroupFactory([{"CPU": 1}])
        [found] = tune.run(trial, resources_per_trial=wanted, storage_path=folder, verbose=0).trials
        print(found.last_result["resources"] == found.placement_group_factory == wanted)


def several_experiments_at_once():
    """`run` takes a list of them, and its analysis has the trials of all."""

    def trial(config):
        tune.report({"score": config["x"]})

    with tempfile.TemporaryDirectory() as folder:
        spaces = {"one": tune.grid_search([1, 2]), "two": 5, "three": tune.grid_search([3, 4])}
        several = [Experiment(name, trial, config={"x": x}, storage_path=folder) for name, x in spaces.items()]
        found = tune.run(several, metric="score", mode="max", verbose=0)
        print(sorted(one.config["x"] for one in found.trials), found.best_config, sorted(os.listdir(folder)))
        print(sorted(one["score"] for one in found.results.values()), len(found.get_all_configs()))
        print(found.get_best_config("score", "min"), found.best_result["score"])


def tags_of_values():
    """Values by the last part of their paths, without what names of files cannot have."""
    print(format_vars({("a", "b", "c"): 8.1234567, ("a", "b", "d"): [7, 8], ("a", "b", "e"): [[[3, 4]]]}))
    print(format_vars({("a", "c"): 8.1234567, "env": 3, "run": 4}))
    print(format_vars({("a", "b c?x"): True, ("z",): "q/w"}), [format_vars({})])


def settings_that_are_asserted():
    """Some settings without meaning raise AssertionError."""
    for make in (
        lambda: ASHAScheduler(max_t=0),
        lambda: ASHAScheduler(grace_period=200),
        lambda: ASHAScheduler(grace_period=0),
        lambda: ASHAScheduler(reduction_factor=1),
        lambda: ASHAScheduler(brackets=0),
        lambda: ASHAScheduler(metric="a", mode="x"),
        lambda: HyperBandScheduler(max_t=0),
        lambda: HyperBandScheduler(metric="a", mode="x"),
        lambda: MedianStoppingRule(metric="a", mode="x"),
        lambda: PopulationBasedTraining(metric="a", mode="x", hyperparam_mutations={"x": [1]}),
        lambda: ConcurrencyLimiter(Searcher(), max_concurrent=0),
        lambda: ConcurrencyLimiter(Searcher(), max_concurrent="2"),
        lambda: Searcher(metric="a", mode="x"),
        lambda: Searcher(metric=["a", "b"], mode=["min"]),
        lambda: Searcher(metric=["a", "b"], mode=["min", "x"]),
        lambda: Searcher(metric=["a", "b"], mode="min"),
    ):
        print(raised(make, "AssertionError"))


def a_plateau_has_a_width():
    """A stopper at plateaus refuses a deviation of 0."""
    for std in (0.0, -1.0, "0"):
        print(raised(lambda std=std: ExperimentPlateauStopper("score", std=std), "ValueError"))


def a_stop_of_another_kind():
    """Is refused."""
    for stop in (3, "x", [{"step": 1}]):
        print(raised(lambda stop=stop: tune.run(_saves, stop=stop, verbose=0), "ValueError"))


def trainables_that_cannot_be_sent():
    """Are refused where the experiment is made."""
    lock = threading.Lock()

    def trial(config):
        with lock:
            tune.report({"x": 1})

    print(raised(lambda: tune.Tuner(trial), "TypeError"), raised(lambda: tune.run(trial), "TypeError"))


def analyses_of_trials():
    """Numbers of all reports, without the configuration and what says where and when. They can be pickled."""

    def trial(config):
        for score in (5, 4, 4, 4, 4, 4, 0):
            tune.report({"score": score, "deep": {"er": score}, "word": "a"})

    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(trial, config={"x": 1}, stop={"score": 9}, storage_path=folder, verbose=0)
        [one] = found.trials
        print(sorted({*one.metric_analysis} - {"done"}), one.metric_analysis["score"]["last-5-avg"])
        print({name: list(values) for name, values in one.metric_n_steps["score"].items()})
        print([name for name in DEBUG_METRICS if name in one.metric_analysis])
        again = pickle.loads(pickle.dumps(found))
        print(again.get_best_config("score", "max"), again.get_best_trial("score", "max").last_result["score"])

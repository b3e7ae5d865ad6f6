"""Search: what a trial is, spaces, what ends trials and experiments, and what trials are given."""

import contextlib
import os
import random
import tempfile
import time

import numpy as np
import ray
from ray import tune
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter
from ray.tune.search.searcher import Searcher
from ray.tune.stopper import (
    CombinedStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)

from tests.ray_docs.helpers import raised

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


@contextlib.contextmanager
def _fitted(trainable, space=None, run=None, **config):
    """The results of an experiment, whose files are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        settings = tune.RunConfig(storage_path=folder, verbose=0, **(run or {}))
        yield tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


def _values(space, names, run=None, **config):
    """These values of the configurations of all trials, in order."""

    def trial(config):
        tune.report({"done_here": 1})

    with _fitted(trial, space, run, **config) as results:
        return [tuple(one.config[name] for name in names) for one in results]


# What a trial is.


def function_reports_many_times():
    """A function reports intermediate metrics; the result has the last ones."""

    def trial(config):
        for x in range(5):
            tune.report({"score": config["a"] * x})

    with _fitted(trial, {"a": 2}) as results:
        print(len(results), results[0].metrics["score"], results[0].metrics["training_iteration"])


def function_returns_its_final_metrics():
    """A function may return a dictionary instead."""

    def trial(config):
        return {"score": config["a"] + 1}

    with _fitted(trial, {"a": 2}) as results:
        print(results[0].metrics["score"], results[0].metrics["training_iteration"])


def class_makes_steps():
    """A class has `setup` and `step`; `stop` says how many steps."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.x = 0
            self.a = config["a"]

        def step(self):
            self.x += 1
            return {"score": self.a * self.x, "own": self.iteration}

    with _fitted(Steps, {"a": 2}, {"stop": {"training_iteration": 4}}) as results:
        print(results[0].metrics["score"], results[0].metrics["own"], results[0].metrics["training_iteration"])


def class_that_says_done_ends():
    """`done` in what `step` returns ends the trial."""

    class Steps(tune.Trainable):
        def step(self):
            return {"score": self.iteration, "done": self.iteration == 2}

    with _fitted(Steps) as results:
        print(results[0].metrics["training_iteration"], results[0].metrics["done"])


def large_values_come_by_with_parameters():
    """Functions get them by keyword, classes in `setup`; each trial sees the same."""

    def trial(config, data, times=1):
        tune.report({"sum": float(data.sum()) * times})

    class Steps(tune.Trainable):
        def setup(self, config, data):
            self.sum = float(data.sum())

        def step(self):
            return {"sum": self.sum, "done": True}

    data = np.ones(100_000)
    with _fitted(tune.with_parameters(trial, data=data, times=2), num_samples=2) as results:
        print([one.metrics["sum"] for one in results])
    with _fitted(tune.with_parameters(Steps, data=data)) as results:
        print([one.metrics["sum"] for one in results])


def context_knows_the_trial():
    """Names and resources of a trial are in its context."""

    def trial(config):
        context = tune.get_context()
        tune.report(
            {
                "experiment": context.get_experiment_name(),
                "is_there": os.path.isdir(context.get_trial_dir()),
                "id": len(context.get_trial_id()) > 0,
                "name": context.get_trial_name(),
                "resources": dict(context.get_trial_resources().required_resources),
            }
        )

    with tempfile.TemporaryDirectory() as folder:
        found = tune.Tuner(
            tune.with_resources(trial, {"cpu": 2}),
            tune_config=tune.TuneConfig(trial_name_creator=lambda trial: "mine"),
            run_config=tune.RunConfig(name="exp", storage_path=folder, verbose=0),
        ).fit()[0]
        names = ("experiment", "is_there", "id", "name", "resources")
        print([found.metrics[name] for name in names])


def trainable_has_a_name():
    """`register_trainable` lets `run` take text."""

    def trial(config):
        tune.report({"x": config["a"]})

    tune.register_trainable("registered", trial)
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run("registered", config={"a": 3}, storage_path=folder, verbose=0)
        print([one.last_result["x"] for one in analysis.trials])


def object_serves_several_trials():
    """With `reuse_actors` and `reset_config` an object serves one trial after another."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.a, self.served = config["a"], 0

        def step(self):
            return {"a": self.a, "served": self.served, "done": True}

        def reset_config(self, new_config):
            self.a = new_config["a"]
            self.served += 1
            return True

    space = {"a": tune.grid_search([1, 2, 3])}
    with _fitted(Steps, space, reuse_actors=True, max_concurrent_trials=1) as results:
        print([one.metrics["a"] for one in results], all(one.metrics["served"] < 3 for one in results))


def what_is_no_trainable_is_refused():
    """A number is no trainable, and a name that nobody has registered is none."""
    with tempfile.TemporaryDirectory() as folder:
        run = tune.RunConfig(storage_path=folder, verbose=0)
        for wrong in (5, "nobody knows it"):
            print(raised(lambda wrong=wrong: tune.Tuner(wrong, run_config=run).fit(), "Exception"))


# Spaces.


def one_trial_is_the_default():
    """Without `num_samples` and grids there is one trial."""
    print(_values({"a": 2, "b": {"c": "text"}}, ["a", "b"]))


def grids_are_combined():
    """Every combination, and `num_samples` times all of them."""
    space = {"x": tune.grid_search([1, 2, 3]), "y": tune.grid_search(["a", "b"])}
    print(sorted(_values(space, "xy")))
    print(len(_values(space, "xy", num_samples=3)))


def grids_come_in_order():
    """Which combination is the first, and which the second."""
    space = {"y": tune.grid_search(["a", "b"]), "x": tune.grid_search([1, 2, 3]), "z": {"w": tune.grid_search([7, 8])}}
    print(_values(space, "xyz"))


def grids_may_be_in_lists():
    """Two layers, each with its own grid."""
    space = {"layers": [tune.grid_search([16, 64]), tune.grid_search([16, 64])]}
    print(sorted(_values(space, ["layers"])))


def grids_and_draws_together():
    """Each point of the grid draws for itself."""
    space = {"a": tune.uniform(0, 1), "g": tune.grid_search([1, 2, 3])}
    found = _values(space, "ag", num_samples=2)
    print(sorted(g for _, g in found), len({a for a, _ in found}))


def functions_see_other_values():
    """`sample_from` gets a `spec`, whose `config` has the other values as attributes and as keys."""
    space = {
        "a": tune.uniform(100, 200),
        "b": tune.sample_from(lambda spec: spec.config.a * 2),
        "c": tune.sample_from(lambda spec: spec.config["a"] * 3),
        "d": tune.sample_from(lambda spec: 4),
        "n": {"e": tune.sample_from(lambda spec: spec.config.n.f + 1), "f": tune.choice([5])},
    }
    print([(b == 2 * a, c == 3 * a, d, n) for a, b, c, d, n in _values(space, "abcdn", num_samples=2)])


def conditional_range():
    """A range that depends on another value."""
    space = {"a": tune.randint(5, 10), "b": tune.sample_from(lambda spec: np.random.randint(0, spec.config.a))}
    print(all(0 <= b < a for a, b in _values(space, "ab", num_samples=10)))


def all_domains():
    """Each kind has its type, its bounds and its steps."""
    space = {
        "uniform": tune.uniform(-5, -1),
        "quniform": tune.quniform(3.2, 5.4, 0.2),
        "loguniform": tune.loguniform(1e-4, 1e-1),
        "qloguniform": tune.qloguniform(1e-4, 1e-1, 5e-5),
        "randn": tune.randn(10, 2),
        "qrandn": tune.qrandn(10, 2, 0.2),
        "randint": tune.randint(-9, 15),
        "qrandint": tune.qrandint(-21, 12, 3),
        "lograndint": tune.lograndint(1, 10),
        "qlograndint": tune.qlograndint(2, 10, 2),
        "choice": tune.choice(["a", "b", "c"]),
    }
    names = list(space)
    found = list(zip(*_values(space, names, num_samples=12), strict=True))
    bounds = {"uniform": (-5, -1), "quniform": (3.2, 5.4), "loguniform": (1e-4, 1e-1), "qloguniform": (1e-4, 1e-1)}
    bounds |= {"randint": (-9, 14), "qrandint": (-21, 12), "lograndint": (1, 9), "qlograndint": (2, 10)}
    steps = {"quniform": 0.2, "qloguniform": 5e-5, "qrandn": 0.2, "qrandint": 3, "qlograndint": 2}
    for name, values in zip(names, found, strict=True):
        low, high = bounds.get(name, (None, None))
        step = steps.get(name)
        print(
            name,
            isinstance(values[0], str) or isinstance(values[0], (int, np.integer)),
            low is None or all(low - 1e-9 <= one <= high + 1e-9 for one in values),
            step is None or all(abs(one / step - round(one / step)) < 1e-6 for one in values),
        )


def inner_spaces():
    """Nested dictionaries have domains too; a value of a choice may be one."""
    space = {"a": {"x": tune.uniform(0, 10), "y": {"z": tune.choice([1])}}, "b": tune.choice([1, 2, 3])}
    print([(0 <= a["x"] <= 10, a["y"], b in (1, 2, 3)) for a, b in _values(space, "ab", num_samples=3)])


def given_points_come_first():
    """`points_to_evaluate` counts among the samples; what a point leaves open is drawn."""
    search = BasicVariantGenerator(points_to_evaluate=[{"a": 0.5}, {"a": 0.25, "b": 1}])
    found = _values({"a": tune.uniform(0, 1), "b": tune.choice([1])}, "ab", search_alg=search, num_samples=4)
    print(found[:2], len(found))


def same_draws_for_a_whole_grid():
    """With `constant_grid_search` all points of a grid have the same draws."""
    search = BasicVariantGenerator(constant_grid_search=True)
    found = _values({"a": tune.uniform(0, 1), "g": tune.grid_search([1, 2, 3])}, "ag", search_alg=search, num_samples=2)
    print(len(found), len({a for a, _ in found}))


def the_same_seed_gives_the_same_trials():
    """Seeds of the global generators make an experiment the same twice."""
    found = []
    for _ in range(2):
        random.seed(1234)
        np.random.seed(1234)
        found.append(_values({"a": tune.randint(0, 1000), "b": tune.uniform(0, 1)}, "ab", num_samples=5))
    print(found[0] == found[1])


def spaces_without_meaning():
    """Bounds that no logarithm or no step fits are refused."""
    print(raised(lambda: tune.loguniform(0, 1), "ValueError"))
    print(raised(lambda: tune.quniform(0, 1, 0.3), "ValueError"))


def searcher_of_ones_own():
    """A `Searcher` suggests configurations, and hears of reports and of the end."""

    class Mine(Searcher):
        def __init__(self):
            super().__init__("score", "max")
            self.heard = []

        def suggest(self, trial_id):
            return {"a": len(self.heard)}

        def on_trial_result(self, trial_id, result):
            pass

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.heard.append((result["score"], error))

    def trial(config):
        tune.report({"score": config["a"] * 10})

    search = ConcurrencyLimiter(Mine(), max_concurrent=1)
    with _fitted(trial, {}, search_alg=search, num_samples=3) as results:
        print([one.metrics["score"] for one in results], search.searcher.heard)


# What ends them.


def _endless():
    def trial(config):
        i = 1
        while True:
            tune.report({"mean_accuracy": min(i / 10, 1.0)})
            i += 1

    return trial


def a_dictionary_stops():
    """Whatever is reached first."""
    for stop in ({"training_iteration": 10, "mean_accuracy": 0.8}, {"training_iteration": 3, "mean_accuracy": 0.8}):
        with _fitted(_endless(), run={"stop": stop}) as results:
            print(results[0].metrics["training_iteration"], results[0].metrics["mean_accuracy"])


def a_function_stops():
    """It is asked with the id of the trial and its report."""

    def stop(trial_id, result):
        return result["mean_accuracy"] >= 0.8 or result["training_iteration"] >= 10

    with _fitted(_endless(), run={"stop": stop}) as results:
        print(results[0].metrics["training_iteration"])


def a_stopper_stops_all():
    """`stop_all` ends all trials and lets none begin."""

    class Stops(Stopper):
        def __init__(self):
            self.should_stop = False

        def __call__(self, trial_id, result):
            if not self.should_stop and result["mean_accuracy"] >= 0.5:
                self.should_stop = True
            return self.should_stop

        def stop_all(self):
            return self.should_stop

    with _fitted(_endless(), run={"stop": Stops()}, num_samples=5, max_concurrent_trials=1) as results:
        print([one.metrics.get("training_iteration") for one in results if one.metrics])


def stoppers_of_the_box():
    """A number of iterations, a function, a plateau, and any of several."""
    stoppers = [
        MaximumIterationStopper(4),
        FunctionStopper(lambda trial_id, result: result["mean_accuracy"] > 0.55),
        TrialPlateauStopper("mean_accuracy", std=0.001, num_results=3, grace_period=3),
        CombinedStopper(MaximumIterationStopper(9), FunctionStopper(lambda _, result: result["mean_accuracy"] >= 0.3)),
    ]
    for stopper in stoppers:
        with _fitted(_endless(), run={"stop": stopper}) as results:
            print(results[0].metrics["training_iteration"])


def time_ends_it():
    """A trial that has run long enough, an experiment that has, and a stopper that says so."""

    def trial(config):
        while True:
            time.sleep(0.1)
            tune.report({"x": 1})

    for run, config in (
        ({"stop": {"time_total_s": 0.5}}, {}),
        ({}, {"time_budget_s": 3.0}),
        ({"stop": TimeoutStopper(3.0)}, {}),
    ):
        with _fitted(trial, run=run, **config) as results:
            print(0 < results[0].metrics["training_iteration"] < 60, results[0].error)


def the_first_failure_ends_it():
    """With `fail_fast` no other trial goes on."""

    def trial(config):
        if config["fails"]:
            raise RuntimeError("on purpose")
        time.sleep(30)
        tune.report({"x": 1})

    run = {"failure_config": tune.FailureConfig(fail_fast=True)}
    with _fitted(trial, {"fails": tune.grid_search([True, False])}, run) as results:
        print([one.metrics.get("x") for one in results if "x" in one.metrics], results.num_errors)


# What they are given.


def _most_at_a_time(trainable_of, resources=None, **config):
    """How many trials ran at a time, at most."""
    with tempfile.TemporaryDirectory() as folder:

        def trial(config):
            mine = os.path.join(folder, tune.get_context().get_trial_id())
            most = 0
            open(mine, "w").close()
            for _ in range(10):
                time.sleep(0.05)
                most = max(most, len(os.listdir(folder)))
            os.unlink(mine)
            tune.report({"most": most})

        trainable = trial if resources is None else tune.with_resources(trial, resources)
        with _fitted(trainable_of(trainable), **config) as results:
            return max(one.metrics["most"] for one in results)


def resources_limit_how_many_run():
    """Four processors: four trials of one each, two of two, and no more at a time than asked."""
    same = lambda trainable: trainable  # noqa: E731
    print(_most_at_a_time(same, num_samples=8) <= 4)
    print(_most_at_a_time(same, {"cpu": 2}, num_samples=6) <= 2)
    print(_most_at_a_time(same, {"cpu": 4}, num_samples=3))
    print(_most_at_a_time(same, {"cpu": 1, "custom_resources": {"special": 2}}, num_samples=3))
    print(_most_at_a_time(same, num_samples=4, max_concurrent_trials=1))


def resources_depend_on_the_configuration():
    """A function of the config may say what a trial needs."""

    def trial(config):
        tune.report({"cpus": tune.get_context().get_trial_resources().required_resources.get("CPU")})

    trainable = tune.with_resources(trial, lambda config: {"cpu": 2 if config["large"] else 1})
    with _fitted(trainable, {"large": tune.grid_search([True, False])}) as results:
        print([float(one.metrics["cpus"]) for one in results])


def a_class_says_what_it_needs():
    """By `default_resource_request`."""

    class Steps(tune.Trainable):
        @classmethod
        def default_resource_request(cls, config):
            return tune.PlacementGroupFactory([{"CPU": config["n"]}])

        def step(self):
            return {"cpus": ray.get_runtime_context().get_assigned_resources()["CPU"], "done": True}

    with _fitted(Steps, {"n": tune.grid_search([1, 3])}) as results:
        print([one.metrics["cpus"] for one in results])


def trials_start_tasks_in_their_bundles():
    """The first bundle is the trial's own; tasks run in the others."""

    def trial(config):
        @ray.remote(num_cpus=1)
        def square(x):
            return x * x

        tune.report({"sum": sum(ray.get([square.remote(x) for x in range(4)]))})

    wanted = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}], strategy="PACK")
    print(wanted.required_resources, wanted.head_cpus)
    with _fitted(tune.with_resources(trial, wanted), num_samples=2) as results:
        print([one.metrics["sum"] for one in results])


def references_may_be_parameters():
    """Models that were put are searched over by their references."""

    def trial(config):
        tune.report({"x": ray.get(config["model"])["id"]})

    refs = [ray.put({"id": 1}), ray.put({"id": 2})]
    with _fitted(trial, {"model": tune.grid_search(refs)}) as results:
        print([one.metrics["x"] for one in results])

"""Search: ends, callbacks, bounds, trainables as functions, metrics, errors, and names of modules."""

import contextlib
import importlib
import os
import tempfile
import warnings

import ray
from ray import tune
from ray.tune import Callback, Experiment, TuneError
from ray.tune.experiment import Trial
from ray.tune.logger import LoggerCallback
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from ray.tune.search.sample import Categorical, Float, Integer
from ray.tune.search.searcher import Searcher
from ray.tune.stopper import TimeoutStopper

from tests.ray_docs.helpers import raised

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


@contextlib.contextmanager
def _fitted(trainable, space=None, run=None, **config):
    """The results of an experiment, whose files are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = tune.RunConfig(storage_path=folder, verbose=0, **(run or {}))
        yield tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


def _counts(config):
    for step in range(1, 6):
        tune.report({"step": step, "score": config.get("x", 1) * step, "deep": {"er": step}})


# Ends.


def a_function_that_reports_done_ends():
    """At that report, as by `stop`, with and without a scheduler."""

    def trial(config):
        for step in range(1, 23):
            tune.report({"step": step, "done": step == 2})

    for scheduler in (None, ASHAScheduler(metric="step", mode="max")):
        with _fitted(trial, scheduler=scheduler) as results:
            print(results[0].metrics["step"], results[0].metrics["training_iteration"], results.num_terminated)


def a_class_that_returns_done_ends():
    """And its next step is not made."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.x = 0

        def step(self):
            self.x += 1
            return {"x": self.x, "done": self.x >= 2}

        def save_checkpoint(self, checkpoint_dir):
            pass

    with _fitted(Steps, num_samples=2) as results:
        print([one.metrics["x"] for one in results], results.num_errors)


def a_stop_key_that_is_not_reported():
    """The trial runs to its end."""
    with _fitted(_counts, run={"stop": {"nothing": 3}}) as results:
        print(results[0].metrics["step"], results.num_errors)


def a_stop_key_in_a_dictionary():
    """By its path."""
    with _fitted(_counts, run={"stop": {"deep/er": 3}}) as results:
        print(results[0].metrics["step"])


def timesteps_are_summed():
    """From `timesteps_this_iter`, and `stop` may name the sum."""

    class Steps(tune.Trainable):
        def step(self):
            return {"timesteps_this_iter": 10}

        def save_checkpoint(self, checkpoint_dir):
            pass

    with _fitted(Steps, run={"stop": {"timesteps_total": 35}}) as results:
        print(results[0].metrics["timesteps_total"], results[0].metrics["training_iteration"])


def time_is_over_outside_of_an_experiment():
    """A `TimeoutStopper` counts from the first question."""
    print(TimeoutStopper(60).stop_all(), TimeoutStopper(0).stop_all())


# Callbacks and searchers are called by name.


def callbacks_take_what_they_need():
    """By name: other arguments are in `info`."""
    found = []

    class Few(Callback):
        def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
            found.append(("setup", num_samples, total_num_samples))

        def on_step_end(self, trials, **info):
            found.append("step")

        def on_trial_start(self, trial, **info):
            found.append("start")

        def on_trial_result(self, result, trial, **info):
            found.append(result["step"])

        def on_trial_complete(self, *, trial, **info):
            found.append("complete")

        def on_experiment_end(self, trials, **info):
            found.append(len(trials))

    with _fitted(_counts, {"x": tune.grid_search([1, 2])}, {"callbacks": [Few()]}, max_concurrent_trials=1):
        pass
    print([one for one in found if one != "step"], "step" in found)


def searchers_learn_by_name():
    """Of ends: with the id, the last report, and whether there was an error."""
    found = []

    class Few(Searcher):
        def suggest(self, trial_id):
            return {"x": len(found)}

        def on_trial_complete(self, trial_id, **info):
            found.append((info["result"]["score"], info["error"]))

    with _fitted(_counts, {"x": 1}, search_alg=Few(metric="score", mode="max"), num_samples=2, max_concurrent_trials=1):
        pass
    print(found)


def loggers_have_a_directory():
    """That of the trial exists when they are called, and they need no constructor of the class above."""
    found = []

    class Own(LoggerCallback):
        def __init__(self):
            self.count = 0

        def log_trial_start(self, trial):
            found.append(os.path.isdir(trial.local_path))

        def log_trial_result(self, iteration, trial, result):
            self.count += 1

        def log_trial_end(self, trial, failed=False):
            found.append((self.count, trial.status in (Trial.RUNNING, Trial.TERMINATED), failed))

    with _fitted(_counts, run={"callbacks": [Own()]}):
        pass
    print(found)


# Spaces.


def bounds_of_integers():
    """The upper bound is excluded, unless values are multiples of more than one."""
    for domain in (
        tune.randint(1, 4), tune.lograndint(1, 4), tune.qrandint(1, 10, 3), tune.qrandint(1, 4), tune.qrandint(2, 9, 2),
        tune.qlograndint(1, 10, 3), tune.qlograndint(4, 20, 4), tune.qrandint(-5, 5, 5),
    ):  # fmt: skip
        print(sorted({int(one) for one in domain.sample(size=2000, random_state=1)}))


def multiples_are_drawn_evenly():
    """Those at the bounds too."""
    values = tune.qrandint(0, 20, 10).sample(size=9000, random_state=3)
    print([2700 < values.count(one) < 3300 for one in (0, 10, 20)])


def no_multiple_between():
    """Is an error, when a value is drawn at the latest."""
    print(raised(lambda: tune.qrandint(4, 5, 10).sample(), "ValueError"))
    print(raised(lambda: tune.quniform(0, 1, 0.3), "ValueError"))


def domains_are_objects():
    """With bounds and methods."""
    print(Float(1, 2).loguniform().is_valid(1.5), Float(0, 1).uniform().lower, Integer(1, 5).uniform().upper)
    print(Categorical(["a", "b"]).uniform().categories, len(tune.choice([1, 2, 3])), tune.choice([1, 2]).is_valid(3))
    print(Float(0, 1).quantized(0.5).sample() in (0.0, 0.5, 1.0), Integer(0, 10).quantized(5).sample() in (0, 5, 10))
    print(1 <= tune.uniform(1, 2).sample() <= 2, tune.randint(0, 3).sample(size=2, random_state=1) is not None)
    print(tune.sample_from(lambda c: 3).is_function(), tune.uniform(0, 1).is_function())


# Trainables are functions and classes.


def a_function_with_parameters_can_be_called():
    """And made remote; a reference is a value too."""

    def trial(config, data, times=1):
        return {"sum": sum(data) * times}

    made = tune.with_parameters(trial, data=[1, 2, 3], times=2)
    print(made({}), ray.get(ray.remote(made).remote({})), made.__name__)
    made = tune.with_parameters(trial, data=ray.put([4, 5]))
    print(made({}))
    with _fitted(made) as results:
        print(results[0].metrics["sum"])


def a_function_with_resources_can_be_called():
    """And has parameters besides."""

    def trial(config, data):
        return {"sum": sum(data)}

    made = tune.with_resources(tune.with_parameters(trial, data=[1, 2]), {"cpu": 2})
    print(made({}))
    with _fitted(made) as results:
        print(results[0].metrics["sum"])
    other = tune.with_parameters(tune.with_resources(trial, {"cpu": 2}), data=[3])
    print(other({}))


def a_class_with_parameters_is_a_class():
    """It can be made by hand, and an actor."""

    class Steps(tune.Trainable):
        def setup(self, config, data):
            self.data = data

        def step(self):
            return {"sum": sum(self.data)}

        def save_checkpoint(self, checkpoint_dir):
            pass

    made = tune.with_resources(tune.with_parameters(Steps, data=[1, 2, 3]), {"cpu": 1})
    print(issubclass(made, tune.Trainable), made({}).step()["sum"], made.__name__)
    print(ray.get(ray.remote(made).remote({}).train.remote())["sum"])
    with _fitted(made, run={"stop": {"training_iteration": 1}}) as results:
        print(results[0].metrics["sum"])


def what_cannot_be_wrapped():
    """Is refused."""
    print(raised(lambda: tune.with_parameters(5, a=1), "ValueError"))
    print(raised(lambda: tune.with_resources(5, {"cpu": 1}), "ValueError"))

    class Plain:
        pass

    print(raised(lambda: tune.with_parameters(Plain, a=1), "ValueError"))


def checkpoints_of_functions_are_their_own():
    """`checkpoint_frequency` and `checkpoint_at_end` are refused."""
    for settings in ({"checkpoint_frequency": 2}, {"checkpoint_at_end": True}):

        def fit(settings=settings):
            with _fitted(_counts, run={"checkpoint_config": tune.CheckpointConfig(**settings)}):
                pass

        print(raised(fit, "ValueError"))


# Metrics.


def a_number_is_the_metric():
    """A function may return or yield a number, and needs no metric."""

    def returns(config):
        return config["x"] ** 2

    def yields(config):
        for step in range(1, 4):
            yield config["x"] * step

    for trial in (returns, yields):
        with _fitted(trial, {"x": tune.grid_search([1, 3, 2])}, mode="max") as results:
            best = results.get_best_result()
            print(best.config["x"], best.metrics["_metric"], best.metrics["training_iteration"])


def a_number_for_a_scheduler():
    """A scheduler compares it too."""

    def yields(config):
        for step in range(1, 10):
            yield config["x"] * step

    scheduler = ASHAScheduler(max_t=9, reduction_factor=3)
    space = {"x": tune.grid_search([5, 4, 6, 1])}
    with _fitted(yields, space, mode="max", scheduler=scheduler, max_concurrent_trials=1) as results:
        print([one.metrics["training_iteration"] for one in results])


def a_metric_without_a_mode():
    """Runs; a scheduler needs the mode."""
    with _fitted(_counts, {"x": tune.grid_search([1, 2])}, metric="score") as results:
        print(
            len(results), results.get_best_result(mode="min").config["x"], raised(results.get_best_result, "ValueError")
        )

    def fit():
        with _fitted(_counts, metric="score", scheduler=ASHAScheduler()) as results:
            print(results.num_errors)

    print(raised(fit, "ValueError"))


def one_trial_is_the_best():
    """Without a metric."""
    with _fitted(_counts) as results:
        print(results.get_best_result().metrics["step"])


def no_trial_is_the_best():
    """If none has reported the metric."""
    with _fitted(_counts, {"x": tune.grid_search([1, 2])}) as results:
        print(raised(lambda: results.get_best_result("nothing", "min"), "RuntimeError", "ValueError"))


def means_of_the_last_reports():
    """Scopes of the best result."""

    def trial(config):
        for value in config["values"]:
            tune.report({"score": value})

    space = {"values": tune.grid_search([[9] * 5 + [1] * 5, [0] * 5 + [5] * 5, [4] * 10])}
    with _fitted(trial, space, metric="score", mode="max") as results:
        for scope in ("last", "avg", "last-5-avg", "last-10-avg", "all"):
            print(scope, results.get_best_result(scope=scope).config["values"][0])


def wrong_modes_are_refused():
    """By everyone who takes one."""
    print(raised(lambda: Searcher(metric="a", mode="minimum"), "Exception"))
    print(raised(lambda: ASHAScheduler(metric="a", mode="minimum"), "Exception"))
    print(
        raised(lambda: tune.Tuner(_counts, tune_config=tune.TuneConfig(metric="a", mode="minimum")).fit(), "Exception")
    )


def a_searcher_may_have_a_metric_of_its_own():
    """Another than the experiment."""

    class Own(Searcher):
        def suggest(self, trial_id):
            return {}

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    def fit():
        with _fitted(_counts, {"x": 1}, search_alg=Own(metric="step", mode="max"), metric="score", mode="max"):
            pass

    print(raised(fit, "ValueError"))


# Errors.


def errors_keep_their_class():
    """And their traceback."""

    class OwnError(ValueError):
        pass

    def trial(config):
        raise OwnError("on purpose")

    with _fitted(trial) as results:
        error = results.errors[0]
        print(isinstance(error, ray.exceptions.RayTaskError), isinstance(error, ValueError), len(results.errors))
        print("on purpose" in str(error), "in trial" in str(error), results[0].error is not None, results.num_errors)


def the_first_error_is_raised():
    """With `fail_fast="raise"`, as it was raised."""

    def trial(config):
        raise KeyError("on purpose")

    def fit():
        with _fitted(trial, run={"failure_config": tune.FailureConfig(fail_fast="raise")}):
            pass

    print(raised(fit, "KeyError"))


def unknown_trainables():
    """Are an error of Tune."""
    with tempfile.TemporaryDirectory() as folder:

        def fit(wrong):
            try:
                tune.run(wrong, storage_path=folder, verbose=0)
            except TuneError:
                return "TuneError"
            return "nothing"

        print(fit("nobody knows it"), fit(5))


# Experiments by their older names.


def experiments_are_objects():
    """Or dictionaries."""
    with tempfile.TemporaryDirectory() as folder:
        one = Experiment(
            "first", _counts, stop={"step": 2}, config={"x": tune.grid_search([1, 2])}, storage_path=folder
        )
        print([trial.last_result["step"] for trial in tune.run_experiments(one, verbose=0)])
        two = {"second": {"run": _counts, "stop": {"step": 3}, "storage_path": folder}}
        print([trial.last_result["step"] for trial in tune.run_experiments(two, verbose=0)])
        third = Experiment("third", _counts, num_samples=2, storage_path=folder)
        print(len(tune.run(third, verbose=0).trials))


def experiments_need_something_to_run():
    """A dictionary without `run` is refused."""
    try:
        tune.run_experiments({"wrong": {"stop": {"a": 1}}}, verbose=0)
    except TuneError:
        print("TuneError")


def states_have_names():
    """Those of a trial."""
    print(Trial.PENDING, Trial.RUNNING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR)


def populations_take_log_config():
    """It may be switched off."""
    made = PopulationBasedTraining(metric="a", mode="max", hyperparam_mutations={"x": [1, 2]}, log_config=False)
    print(type(made).__name__)


# Modules.


def modules_have_their_names():
    """Those that programs import."""
    for path in (
        "tune.analysis.ExperimentAnalysis", "tune.callback.Callback", "tune.context.get_context", "tune.error.TuneError",
        "tune.execution.placement_groups.PlacementGroupFactory", "tune.experiment.Trial", "tune.experiment.trial.Trial",
        "tune.experiment.Experiment", "tune.logger.CSVLoggerCallback", "tune.logger.LoggerCallback",
        "tune.progress_reporter.CLIReporter", "tune.registry.register_trainable", "tune.result.DEFAULT_METRIC",
        "tune.result.TRAINING_ITERATION", "tune.result.DONE", "tune.result_grid.ResultGrid", "tune.schedulers.pb2.PB2",
        "tune.schedulers.async_hyperband.ASHAScheduler", "tune.schedulers.trial_scheduler.TrialScheduler",
        "tune.search.BasicVariantGenerator", "tune.search.grid_search", "tune.search.sample.Domain",
        "tune.search.optuna.OptunaSearch", "tune.search.variant_generator.grid_search", "tune.search.repeater.Repeater",
        "tune.stopper.TrialPlateauStopper", "tune.stopper.timeout.TimeoutStopper", "tune.trainable.Trainable",
        "tune.trainable.util.with_parameters", "tune.tune.run", "tune.tune.run_experiments", "tune.tune_config.TuneConfig",
        "tune.tuner.Tuner", "tune.utils.flatten_dict", "tune.utils.util.merge_dicts", "tune.utils.wait_for_gpu",
    ):  # fmt: skip
        module, _, name = path.rpartition(".")
        print(path, hasattr(importlib.import_module(f"ray.{module}"), name))


def utilities_for_dictionaries():
    """Flat names and merging."""
    from ray.tune.utils import deep_update, flatten_dict, merge_dicts, unflattened_lookup

    print(flatten_dict({"a": {"b": 1, "c": {"d": 2}}, "e": {}}))
    print(merge_dicts({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}}), unflattened_lookup("a/b", {"a": {"b": 4}}))
    print(raised(lambda: deep_update({"a": 1}, {"b": 2}), "Exception"), deep_update({"a": 1}, {"b": 2}, True))


# Names instead of objects.


def schedulers_and_searchers_by_name():
    """In `TuneConfig`, and made by functions."""
    print(type(tune.create_scheduler("pbt", hyperparam_mutations={"x": [1, 2]}, metric="a", mode="max")).__name__)
    print(
        type(tune.create_scheduler("async_hyperband", max_t=5)).__name__,
        raised(lambda: tune.create_scheduler("a"), "ValueError"),
    )
    print(type(tune.create_searcher("random")).__name__, raised(lambda: tune.create_searcher("a"), "ValueError"))
    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(
            _counts, metric="score", mode="max", search_alg="random", scheduler="async_hyperband", storage_path=folder,
            verbose=0,
        )  # fmt: skip
        print(found.best_result["score"])


def several_stoppers():
    """In a list; one of them suffices."""
    from ray.tune.stopper import MaximumIterationStopper, NoopStopper

    with _fitted(_counts, run={"stop": [NoopStopper(), MaximumIterationStopper(3), TimeoutStopper(60)]}) as results:
        print(results[0].metrics["step"])


def the_configuration_is_in_each_report():
    """For callbacks, stoppers and results."""
    seen = []

    def stop(trial_id, result):
        seen.append(result["config"]["x"])
        return result["step"] >= 2

    with _fitted(_counts, {"x": 5}, run={"stop": stop}) as results:
        print(seen, results[0].metrics["config"], results[0].config)


# What cannot be judged.


def an_error_of_a_stopper():
    """A stopper that raises ends the experiment."""

    def stop(trial_id, result):
        raise ValueError("on purpose")

    def fit():
        with _fitted(_counts, run={"stop": stop}) as results:
            print(results.num_errors)

    print(raised(fit, "Exception"), _is_tune_error(fit))


def a_metric_that_is_not_reported():
    """It ends the experiment, unless a variable of the environment says that this is not checked."""

    def fit():
        with _fitted(_counts, metric="nothing", mode="max") as results:
            print(results.num_errors, results[0].metrics["step"])

    print(_is_tune_error(fit))
    os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = "1"
    try:
        print(_is_tune_error(fit))
    finally:
        del os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"]


def a_trial_has_a_directory():
    """Each result has a directory, also if nothing was written to it."""
    with _fitted(_counts, num_samples=2) as results:
        print([os.path.isdir(one.path) for one in results])


def a_checkpoint_that_was_just_reported():
    """The checkpoint of a trial after a report."""

    def trial(config):
        found = []
        for step in range(2):
            with tempfile.TemporaryDirectory() as folder:
                tune.report({"found": found}, checkpoint=tune.Checkpoint.from_directory(folder))
            last = tune.get_checkpoint()
            found = [*found, last is not None and os.path.basename(last.path)]
        tune.report({"found": found})

    with _fitted(trial) as results:
        print(results[0].metrics["found"])


def _is_tune_error(call):
    try:
        call()
    except TuneError:
        return "TuneError"
    except Exception as error:
        return type(error).__name__
    return "nothing"


def a_searcher_keeps_its_goal():
    """A subclass of `Searcher` reads and sets `self._metric` and `self._mode`; `metric` and `mode` show them."""

    class Own(Searcher):
        def set_search_properties(self, metric, mode, config, **spec):
            if self._metric or self._mode:
                return False
            self._metric, self._mode = metric, mode
            return True

    own = Own()
    print(own.metric, own.mode, own._metric, own._mode)
    print(own.set_search_properties("loss", "min", {}), own.metric, own.mode)
    print(own.set_search_properties("other", "max", {}), own.metric, own.mode)
    given = Own(metric="score", mode="max")
    print(given.metric, given.mode, given._metric, given._mode)

"""Search: checkpoints, failures, what is logged and heard, results, and schedulers."""

import contextlib
import csv
import json
import os
import tempfile
import time
from pathlib import Path

import ray
from ray import tune
from ray.tune import Checkpoint
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback
from ray.tune.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
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


def _trains(fails_at=()):
    """A trial of five epochs that saves each, goes on from a checkpoint, and raises at these epochs the first time."""

    def trial(config):
        first = 0
        checkpoint = tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder, open(os.path.join(folder, "epoch")) as file:
                first = int(file.read()) + 1
        for epoch in range(first, config.get("epochs", 5)):
            if epoch in fails_at and first < epoch:
                raise RuntimeError("on purpose")
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "epoch"), "w") as file:
                    file.write(str(epoch))
                score = config.get("scale", 1) * (epoch if epoch % 2 == 0 else -epoch)
                metrics = {"epoch": epoch, "first": first, "score": score}
                tune.report(metrics, checkpoint=Checkpoint.from_directory(folder))

    return trial


def _epoch(checkpoint):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, "epoch")) as file:
        return int(file.read())


# Checkpoints.


def last_checkpoint_is_in_the_result():
    """And all of them are in `best_checkpoints`, with what was reported."""
    with _fitted(_trains()) as results:
        print(_epoch(results[0].checkpoint), [(_epoch(one), m["epoch"]) for one, m in results[0].best_checkpoints])


def checkpoints_now_and_then():
    """A report without one is a report."""

    def trial(config):
        for epoch in range(1, 13):
            if epoch % 3 == 0:
                with tempfile.TemporaryDirectory() as folder:
                    tune.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(folder))
            else:
                tune.report({"epoch": epoch})

    with _fitted(trial) as results:
        print(len(results[0].best_checkpoints), results[0].metrics["training_iteration"])


def the_best_are_kept():
    """So many, by a metric; the last one stays besides."""
    keep = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max")
    with _fitted(_trains(), run={"checkpoint_config": keep}) as results:
        result = results[0]
        print(sorted(_epoch(one) for one, _ in result.best_checkpoints), _epoch(result.checkpoint))
        print(_epoch(result.get_best_checkpoint("score", "max")))


def class_saves_every_so_many_steps():
    """`checkpoint_frequency` and `checkpoint_at_end` are for classes."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.x = 0

        def step(self):
            self.x += 1
            return {"x": self.x}

        def save_checkpoint(self, checkpoint_dir):
            with open(os.path.join(checkpoint_dir, "epoch"), "w") as file:
                file.write(str(self.x))

        def load_checkpoint(self, checkpoint_dir):
            with open(os.path.join(checkpoint_dir, "epoch")) as file:
                self.x = int(file.read())

    for settings in ({"checkpoint_at_end": False}, {"checkpoint_at_end": True}, {}):
        run = {
            "stop": {"training_iteration": 5},
            "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2, **settings),
        }
        with _fitted(Steps, run=run) as results:
            print(_epoch(results[0].checkpoint))


def class_may_ask_for_a_checkpoint():
    """By `should_checkpoint` in what `step` returns."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.x = 0

        def step(self):
            self.x += 1
            return {"x": self.x, "should_checkpoint": self.x == 3}

        def save_checkpoint(self, checkpoint_dir):
            with open(os.path.join(checkpoint_dir, "epoch"), "w") as file:
                file.write(str(self.x))

        def load_checkpoint(self, checkpoint_dir):
            pass

    run = {"stop": {"training_iteration": 5}, "checkpoint_config": tune.CheckpointConfig(checkpoint_at_end=False)}
    with _fitted(Steps, run=run) as results:
        print(_epoch(results[0].checkpoint))


def checkpoints_have_metadata():
    """Besides their files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_text("text")
        checkpoint = Checkpoint.from_directory(folder)
        checkpoint.set_metadata({"a": 1})
        checkpoint.update_metadata({"b": 2})
        print(checkpoint.get_metadata(), checkpoint.path == folder)
        copy = checkpoint.to_directory()
        print(Path(copy, "file").read_text())
        with checkpoint.as_directory() as there:
            print(sorted(os.listdir(there)) != [], Path(there, "file").exists())


def next_experiment_begins_with_a_checkpoint():
    """The best checkpoint of one experiment is a parameter of the next."""

    def goes_on(config):
        with config["start"].as_directory() as folder, open(os.path.join(folder, "epoch")) as file:
            tune.report({"from": int(file.read()), "n": config["n"]})

    with _fitted(_trains(), {"scale": tune.grid_search([1, 2])}, metric="score", mode="max") as results:
        start = results.get_best_result().checkpoint
        with _fitted(goes_on, {"start": start, "n": tune.grid_search([4, 5])}) as more:
            print([(one.metrics["from"], one.metrics["n"]) for one in more])


# Failures.


def failed_trial_goes_on_from_its_checkpoint():
    """As often as `max_failures` says."""
    run = {"failure_config": tune.FailureConfig(max_failures=3)}
    with _fitted(_trains(fails_at=(2, 4)), run=run) as results:
        print(results[0].metrics["epoch"], results[0].metrics["first"], results[0].error)


def failed_trial_does_not_stop_others():
    """`fit` returns; the errors are in the results."""

    def trial(config):
        if config["fails"]:
            raise ValueError("on purpose")
        tune.report({"x": 1})

    with _fitted(trial, {"fails": tune.grid_search([True, False])}) as results:
        print(results.num_errors, results.num_terminated, len(results.errors), "on purpose" in str(results.errors[0]))
        print([one.error is None for one in results])
        print(raised(lambda: results.get_best_result("x", "max"), "RuntimeError"), "x" in results[1].metrics)


def run_raises_if_a_trial_failed():
    """`run` raises TuneError, unless told not to."""

    def trial(config):
        raise ValueError("on purpose")

    with tempfile.TemporaryDirectory() as folder:
        try:
            tune.run(trial, storage_path=folder, verbose=0)
        except tune.TuneError:
            print("TuneError")
        print(len(tune.run(trial, storage_path=folder, name="b", verbose=0, raise_on_failed_trial=False).trials))


def an_experiment_is_restored():
    """A failed trial is resumed from its checkpoint, or begins anew; one that has ended stays as it is."""
    for how in ({"resume_errored": True}, {"restart_errored": True}, {}):
        with tempfile.TemporaryDirectory() as folder:
            flag = os.path.join(folder, "flag")
            open(flag, "w").close()

            def trial(config, flag=flag):
                first = 0
                checkpoint = tune.get_checkpoint()
                if checkpoint:
                    with checkpoint.as_directory() as place, open(os.path.join(place, "epoch")) as file:
                        first = int(file.read()) + 1
                for epoch in range(first, 4):
                    if epoch == 2 and os.path.exists(flag) and config["n"] == 1:
                        raise RuntimeError("on purpose")
                    with tempfile.TemporaryDirectory() as place:
                        with open(os.path.join(place, "epoch"), "w") as file:
                            file.write(str(epoch))
                        metrics = {"epoch": epoch, "first": first}
                        tune.report(metrics, checkpoint=Checkpoint.from_directory(place))

            run = tune.RunConfig(name="exp", storage_path=folder, verbose=0)
            path = os.path.join(folder, "exp")
            print(tune.Tuner.can_restore(path))
            tune.Tuner(trial, param_space={"n": tune.grid_search([0, 1])}, run_config=run).fit()
            os.unlink(flag)
            print(tune.Tuner.can_restore(path))
            results = tune.Tuner.restore(path, trial, **how).fit()
            print(sorted((one.metrics["epoch"], one.metrics["first"]) for one in results), results.num_errors)


# What is logged and heard.


def callbacks_hear():
    """A `Callback` is told of starts, reports and ends."""

    class Hears(tune.Callback):
        def __init__(self):
            self.heard = []

        def setup(self, *args, **info):
            self.heard.append("setup")

        def on_trial_start(self, iteration, trials, trial, **info):
            self.heard.append("start")

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.heard.append(f"result {result['metric']}")

        def on_trial_complete(self, iteration, trials, trial, **info):
            self.heard.append("complete")

        def on_experiment_end(self, trials, **info):
            self.heard.append("end")

    def trial(config):
        for i in range(3):
            tune.report({"metric": i})

    hears = Hears()
    with _fitted(trial, run={"callbacks": [hears]}):
        print(hears.heard)


def loggers_of_the_box():
    """`result.json` has a line for each report, `params.json` the configuration, `progress.csv` a row for each."""

    def trial(config):
        for i in range(3):
            tune.report({"metric": i, "inner": {"value": i * config["a"]}})

    with _fitted(trial, {"a": 2}, {"callbacks": [JsonLoggerCallback(), CSVLoggerCallback()]}) as results:
        path = Path(results[0].path)
        lines = [json.loads(line) for line in path.joinpath("result.json").read_text().splitlines()]
        print([(line["metric"], line["inner"], line["config"]) for line in lines])
        print(json.loads(path.joinpath("params.json").read_text()))
        with path.joinpath("progress.csv").open() as file:
            print([(row["metric"], row["inner/value"]) for row in csv.DictReader(file)])


def logger_of_ones_own():
    """Subclass `LoggerCallback`; a trial is a key, and knows its directory."""

    class Logs(LoggerCallback):
        def __init__(self):
            super().__init__()
            self.files, self.paths = {}, []

        def log_trial_start(self, trial):
            os.makedirs(trial.local_path, exist_ok=True)
            self.paths.append(os.path.join(trial.local_path, "log.txt"))
            self.files[trial] = open(self.paths[-1], "w")

        def log_trial_result(self, iteration, trial, result):
            self.files[trial].write(f"{result['metric']}\n")

        def log_trial_end(self, trial, failed=False):
            self.files.pop(trial).close()

    def trial(config):
        for i in range(3):
            tune.report({"metric": i})

    logs = Logs()
    with _fitted(trial, run={"callbacks": [logs]}, num_samples=2):
        print([Path(path).read_text().split() for path in logs.paths], logs.files)


def metrics_that_come_by_themselves():
    """Each report has these besides."""

    def trial(config):
        tune.report({"x": 1})

    names = ("config", "date", "done", "hostname", "iterations_since_restore", "node_ip", "pid", "time_since_restore",
             "time_this_iter_s", "time_total_s", "timestamp", "training_iteration", "trial_id")  # fmt: skip
    with _fitted(trial, {"a": 1}) as results:
        print([name for name in names if name in results[0].metrics])


# Results.


def _three():
    def trial(config):
        for value in config["values"]:
            tune.report({"score": value})

    return trial, {"values": tune.grid_search([[1, 5, 2], [4, 3, 3], [2, 2, 4]])}


def the_best_result():
    """By the last report, or by the best one; metric and mode as in TuneConfig, or as given."""
    with _fitted(*_three(), metric="score", mode="max") as results:
        print(results.get_best_result().config["values"], results.get_best_result().metrics["score"])
        print(results.get_best_result("score", "min").config["values"])
        print(results.get_best_result(scope="all").config["values"])
        print(results.get_best_result(scope="avg", mode="min").config["values"])


def the_best_of_what():
    """Without metric and mode nothing is best."""
    with _fitted(*_three()) as results:
        print(raised(results.get_best_result, "ValueError"))
        print(results.get_best_result("score", "max").config["values"])


def results_are_a_sequence():
    """Of results with config, metrics, path and error."""
    with _fitted(*_three()) as results:
        print(len(results), [one.metrics["score"] for one in results], results[2].config["values"])
        print(os.path.isdir(results.experiment_path), results[0].path.startswith(results.experiment_path))


def analysis_of_run():
    """`run` returns an analysis: best configuration, best result, last results."""
    trial, space = _three()
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(trial, config=space, metric="score", mode="max", storage_path=folder, verbose=0)
        print(analysis.best_config, analysis.best_result["score"], len(analysis.trials))
        print(analysis.get_best_config("score", "min"), analysis.get_best_trial("score", "max", "all").config)
        print(sorted(one["score"] for one in analysis.results.values()))


def metric_in_a_dictionary():
    """A metric may be inside of another: `a/b`."""

    def trial(config):
        tune.report({"a": {"b": config["x"]}})

    with _fitted(trial, {"x": tune.grid_search([1, 3, 2])}, metric="a/b", mode="max") as results:
        print(results.get_best_result().config)


# Schedulers.


def _counted(scheduler, xs, epochs=9, **config):
    """How many reports each trial made, one trial after another."""

    def trial(config):
        for epoch in range(1, epochs + 1):
            tune.report({"score": config["x"] * epoch, "epoch": epoch})

    space = {"x": tune.grid_search(xs)}
    settings = {"metric": "score", "mode": "max", "max_concurrent_trials": 1, **config}
    with _fitted(trial, space, scheduler=scheduler, **settings) as results:
        print([one.metrics["training_iteration"] for one in results])


def asha_stops_the_worse():
    """At each rung, beside those that came before."""
    _counted(ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3), [5, 4, 6, 1, 7, 5.5])
    _counted(AsyncHyperBandScheduler(time_attr="epoch", max_t=9, grace_period=3, reduction_factor=2), [5, 4, 6, 1, 7])
    _counted(ASHAScheduler(max_t=5, grace_period=2, reduction_factor=4), [1, 2, 3, 4, 5])


def fifo_stops_none():
    """Nor does no scheduler."""
    _counted(FIFOScheduler(), [5, 4, 3])
    _counted(None, [5, 4, 3])


def the_median_rule_stops_the_worse():
    """After its grace period, when enough others have come as far."""
    _counted(
        MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2), [5, 4, 1, 3, 6, 4.2]
    )


def scheduler_has_metric_and_mode():
    """They may be the scheduler's own; named twice they are refused."""
    own = ASHAScheduler(metric="score", mode="max", max_t=9, reduction_factor=3)
    _counted(own, [5, 4, 6, 1], metric=None, mode=None)
    print(raised(lambda: _counted(ASHAScheduler(metric="score", mode="max"), [1], mode="min"), "Exception"))


def hyperband_runs_all():
    """With checkpoints, and no more reports than `max_t`."""
    trial = _trains()
    space = {"scale": tune.grid_search([1, 2, 3, 4]), "epochs": 9}
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    with _fitted(trial, space, metric="score", mode="max", scheduler=scheduler) as results:
        print(results.num_errors, max(one.metrics["training_iteration"] for one in results))


def population_goes_on_from_the_best():
    """A bad trial gets a configuration near that of a good one, or a new value."""

    def trial(config):
        first, value = 0, 0.0
        checkpoint = tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder, open(os.path.join(folder, "state")) as file:
                first, value = json.load(file)
        for step in range(first + 1, 13):
            time.sleep(0.22 if config["lr"] < 3 else 0.2)  # side by side: one that has ended lends nothing
            value += config["lr"]
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "state"), "w") as file:
                    json.dump([step, value], file)
                tune.report({"score": value, "step": step}, checkpoint=Checkpoint.from_directory(folder))

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations={"lr": [1.0, 2.0, 3.0, 4.0]},
        quantile_fraction=0.5, resample_probability=0.0,
    )  # fmt: skip
    space = {"lr": tune.grid_search([1.0, 4.0])}
    with _fitted(trial, space, metric="score", mode="max", scheduler=scheduler) as results:
        print([one.metrics["step"] for one in results], results.num_errors)
        print([one.config["lr"] in (3.0, 4.0) for one in results], results[0].metrics["score"] > 12.0)


def schedulers_need_a_meaning():
    """Arguments that contradict each other are refused."""
    print(raised(lambda: ASHAScheduler(mode="best"), "Exception"))
    print(raised(lambda: ASHAScheduler(max_t=1, grace_period=5), "Exception"))
    print(raised(lambda: PopulationBasedTraining(), "Exception"))
    print(raised(lambda: PopulationBasedTraining(hyperparam_mutations={"a": [1]}, quantile_fraction=0.9), "Exception"))


def trials_share_an_object():
    """What was put is seen by each trial, and an actor counts all of them."""

    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    counter = Counter.remote()

    def trial(config):
        tune.report({"count": ray.get(config["counter"].add.remote())})

    with _fitted(trial, {"counter": counter}, num_samples=3) as results:
        print(sorted(one.metrics["count"] for one in results))


def an_analysis_is_asked():
    """Best trials by what the values mean, flat configurations, checkpoints by a metric."""

    def trial(config):
        for step in range(2):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "step").write_text(f"{config['a']} {step}")
                value = float("inf") if config["a"] == 1 else 1.0
                report = {"score": config["a"] * (2 - step), "odd": value}
                tune.report(report, checkpoint=Checkpoint.from_directory(folder))

    with tempfile.TemporaryDirectory() as folder:
        space = {"a": tune.grid_search([1, 2]), "deep": {"z": 3}}
        grid = tune.Tuner(trial, param_space=space, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
        analysis = tune.ExperimentAnalysis(grid.experiment_path, default_metric="score", default_mode="max")
        print(sorted(str(one) for one in analysis.get_all_configs(prefix=True).values()))
        print(analysis.get_best_trial("odd", "max").config["a"])
        print(analysis.get_best_trial("odd", "max", filter_nan_and_inf=False).config["a"])
        print(Path(analysis.get_last_checkpoint().path, "step").read_text())
        print(Path(analysis.get_last_checkpoint(metric="score", mode="min").path, "step").read_text())
        first = analysis.trials[0]
        print(Path(analysis.get_best_checkpoint(first, "score", "max").path, "step").read_text())
        for ask in (
            lambda: tune.ExperimentAnalysis(os.path.join(folder, "not")),
            lambda: tune.ExperimentAnalysis(grid.experiment_path, default_metric="score", default_mode="most"),
            lambda: tune.ExperimentAnalysis(grid.experiment_path).best_config,
            lambda: analysis.get_best_trial("score", "most"),
            lambda: analysis.get_best_trial("score", "max", scope="most"),
            lambda: grid.get_dataframe(filter_mode="max"),
            lambda: grid.get_best_result(metric="score"),
            lambda: grid.get_best_result("nothing", "max"),
        ):
            print(raised(ask, "ValueError", "RuntimeError"))

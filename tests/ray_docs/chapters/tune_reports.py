"""Search: what each report has beside the values of the trial, and which of both wins."""

import csv
import datetime
import json
import os
import socket
import tempfile
from pathlib import Path

import ray
from ray import tune
from ray.tune import Callback
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


def _fitted(trainable, space=None, run=None, **config):
    """The results of an experiment."""
    folder = tempfile.mkdtemp()
    settings = tune.RunConfig(storage_path=folder, verbose=0, **(run or {}))
    return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


def _reports(config):
    for step in range(3):
        tune.report({"step": step, "deep": {"er": step}})


class _Steps(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"n": self.n, "done": self.n == 3}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


class _Heard(Callback):
    """What callbacks get of each report."""

    def __init__(self):
        self.results = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.results.append(dict(result))


def names_of_a_report():
    """The names that a result has beside those that were reported."""
    [result] = _fitted(_reports, {"x": 1})
    print(sorted(result.metrics))


def names_for_callbacks():
    """The names that callbacks get with each report, and values of some."""
    heard = _Heard()
    _fitted(_reports, {"x": 1}, {"callbacks": [heard]})
    for one in heard.results:
        print(sorted(one))
        print(one["training_iteration"], one["iterations_since_restore"], one["done"], one["config"])


def names_of_a_class():
    """The same for a class with steps."""
    heard = _Heard()
    [result] = _fitted(_Steps, {"x": 1}, {"callbacks": [heard]})
    print(sorted(result.metrics))
    print([(one["training_iteration"], one["iterations_since_restore"], one["done"]) for one in heard.results])


def kinds_of_values():
    """The kinds of the values, and that they agree with each other."""
    [result] = _fitted(_reports, {"x": 1})
    one = result.metrics
    print({name: type(one[name]).__name__ for name in sorted(one)})
    date = datetime.datetime.strptime(one["date"], "%Y-%m-%d_%H-%M-%S")
    print(abs(date.timestamp() - one["timestamp"]) <= 1, one["hostname"] == socket.gethostname())
    print(one["node_ip"] == ray.util.get_node_ip_address(), one["time_since_restore"] == one["time_total_s"])
    print(one["experiment_tag"], one["trial_id"] in result.path)


def tags_of_trials():
    """The tag of an experiment has the number of the trial and what was sampled."""
    space = {"fixed": 3, "x": tune.grid_search([1, 2]), "deep": {"y": tune.choice(["a"])}}
    results = _fitted(_reports, space)
    print(sorted(one.metrics["experiment_tag"] for one in results))
    results = _fitted(_reports, {"fixed": 3})
    print([one.metrics["experiment_tag"] for one in results])
    results = _fitted(_reports, {"x": tune.choice([0.123456789])})
    print([one.metrics["experiment_tag"] for one in results])
    results = _fitted(_reports, {"fixed": 3}, num_samples=2)
    print(sorted(one.metrics["experiment_tag"] for one in results))


def own_values_of_these_names():
    """A trial that reports values of these names itself."""

    def trial(config):
        for step in range(2):
            tune.report({
                "score": step, "time_total_s": 70.0, "time_this_iter_s": 5.0, "pid": 1, "hostname": "mine", "date": "now",
                "timestamp": 7, "node_ip": "8", "trial_id": "me", "experiment_tag": "tag", "time_since_restore": 9.0,
                "iterations_since_restore": 10, "config": {"z": 1},
            })  # fmt: skip

    heard = _Heard()
    [result] = _fitted(trial, {"x": 1}, {"callbacks": [heard]})
    for one in heard.results:
        print([one[name] == own for name, own in (("pid", 1), ("hostname", "mine"), ("date", "now"), ("node_ip", "8"))])
        print([one["timestamp"] == 7, one["trial_id"] == "me"], one["experiment_tag"], one["config"])
        names = ("time_total_s", "time_this_iter_s", "time_since_restore", "iterations_since_restore")
        print([one[name] for name in names])
    print(result.metrics["config"], result.config)


def own_done():
    """A report with `done` ends the trial."""

    def trial(config):
        for step in range(3):
            tune.report({"step": step, "done": step == 1})

    [result] = _fitted(trial, {"x": 1})
    print(result.metrics["step"], result.metrics["done"], result.metrics["training_iteration"])


def own_training_iteration():
    """A report with `training_iteration`."""

    def trial(config):
        for step in range(3):
            tune.report({"step": step, "training_iteration": 10 * step + 10})

    heard = _Heard()
    [result] = _fitted(trial, {"x": 1}, {"callbacks": [heard]})
    print([one["training_iteration"] for one in heard.results])
    print([one["iterations_since_restore"] for one in heard.results])


def own_timesteps():
    """Reports with `timesteps_this_iter`, `timesteps_total`, and episodes."""

    def trial(config):
        for step in range(3):
            tune.report({"timesteps_this_iter": 10, "episodes_this_iter": 2})

    heard = _Heard()
    _fitted(trial, {"x": 1}, {"callbacks": [heard]})
    names = ("timesteps_total", "timesteps_since_restore", "episodes_total")
    print([[one.get(name) for name in names] for one in heard.results])

    def other(config):
        for step in range(3):
            tune.report({"timesteps_total": 10 * step, "episodes_total": 3})

    heard = _Heard()
    _fitted(other, {"x": 1}, {"callbacks": [heard]})
    names = (
        "timesteps_total",
        "timesteps_this_iter",
        "episodes_total",
        "episodes_this_iter",
        "timesteps_since_restore",
    )
    print([[one.get(name) for name in names] for one in heard.results])


def since_a_restore():
    """After a failure, counts since the restore begin again, others continue."""

    def trial(config):
        checkpoint = tune.get_checkpoint()
        first = 0
        if checkpoint:
            with checkpoint.as_directory() as folder:
                first = int(Path(folder, "step").read_text()) + 1
        for step in range(first, 4):
            if step == 2 and first == 0:
                raise RuntimeError("on purpose")
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "step").write_text(str(step))
                tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(folder))

    heard = _Heard()
    failures = tune.FailureConfig(max_failures=1)
    [result] = _fitted(trial, {"x": 1}, {"callbacks": [heard], "failure_config": failures})
    print([(one["step"], one["training_iteration"], one["iterations_since_restore"]) for one in heard.results])
    print(result.metrics["time_total_s"] > result.metrics["time_since_restore"])
    print(result.metrics["checkpoint_dir_name"], [one.get("checkpoint_dir_name") for one in heard.results])


def checkpoints_of_some_reports():
    """The name of the checkpoint's directory is in reports that have one."""

    def trial(config):
        for step in range(3):
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = tune.Checkpoint.from_directory(folder) if step == 1 else None
                tune.report({"step": step}, checkpoint=checkpoint)

    heard = _Heard()
    [result] = _fitted(trial, {"x": 1}, {"callbacks": [heard]})
    print([one.get("checkpoint_dir_name", "none") for one in heard.results])


def names_in_files():
    """The names in the lines of `result.json` and in the head of `progress.csv`."""
    callbacks = [JsonLoggerCallback(), CSVLoggerCallback()]
    [result] = _fitted(_reports, {"x": 1, "deep": {"y": 2}}, {"callbacks": callbacks})
    for line in Path(result.path, "result.json").read_text().splitlines():
        print(sorted(json.loads(line)))
    with open(Path(result.path, "progress.csv")) as file:
        print(sorted(next(csv.reader(file))))


def stops_at_values_beside():
    """`stop` may name values that were not reported."""
    for name, bound in (("training_iteration", 2), ("iterations_since_restore", 2), ("time_total_s", 0.0)):
        [result] = _fitted(_reports, {"x": 1}, {"stop": {name: bound}})
        print(name, result.metrics["step"], result.metrics["done"])


def functions_that_stop_see_them():
    """A function of `stop` gets them too."""
    seen = []

    def stop(trial_id, result):
        seen.append((trial_id == result["trial_id"], "date" in result, "pid" in result, "node_ip" in result))
        seen.append(("experiment_tag" in result, "done" in result, "config" in result))
        return False

    _fitted(_reports, {"x": 1}, {"stop": stop})
    print(seen[:2])


def searchers_see_them():
    """A searcher gets them at the end of a trial."""
    seen = []

    class Searcher(tune.search.Searcher):
        def suggest(self, trial_id):
            return {"x": 1}

        def on_trial_result(self, trial_id, result):
            seen.append(sorted(result))

        def on_trial_complete(self, trial_id, result=None, error=False):
            seen.append(sorted(result))

    _fitted(_reports, search_alg=Searcher(metric="step", mode="max"), num_samples=1)
    print(seen[0])
    print(seen[-1])


def values_of_a_trial_for_callbacks():
    """The last result of a trial, its metrics and its resources, in a callback at its end."""
    seen = []

    class Ends(Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            seen.append((sorted(trial.last_result), trial.experiment_tag, trial.config, trial.evaluated_params))
            seen.append((trial.trainable_name, trial.last_result["done"], type(trial.is_finished()).__name__))

    _fitted(_reports, {"x": tune.grid_search([1])}, {"callbacks": [Ends()]})
    for one in seen:
        print(one)


def results_by_hand():
    """`train` of a class that is used by hand returns them as well."""
    steps = _Steps({"x": 1})
    one = steps.train()
    print(sorted(one))
    two = steps.train()
    print(two["training_iteration"], two["iterations_since_restore"], two["done"], two["config"])
    print(steps.iteration, steps.training_iteration)
    steps.stop()

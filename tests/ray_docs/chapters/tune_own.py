"""Search: files and working directories of trials, schedulers of a program's own, the order of arguments."""

import os
import sys
import tempfile
from pathlib import Path

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tests.ray_docs.helpers import raised

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


def _fitted(trainable, space=None, run=None, **config):
    """The results of an experiment."""
    folder = tempfile.mkdtemp()
    settings = tune.RunConfig(storage_path=folder, verbose=0, **(run or {}))
    return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


def _reports(config):
    for step in range(5):
        tune.report({"step": step, "score": config.get("x", 1) * step})


def a_trial_runs_in_a_directory_of_its_own():
    """The working directory of a trial is not that of the program, and files that it writes do not collide."""
    here = os.getcwd()

    def trial(config):
        Path("note").write_text(str(config["x"]))
        tune.report(
            {"moved": os.getcwd() != here, "name": os.path.basename(os.getcwd()), "note": Path("note").read_text()}
        )

    results = _fitted(trial, {"x": tune.grid_search([1, 2])})
    print([(one.metrics["moved"], one.metrics["note"]) for one in results])
    print([os.path.basename(one.path) == one.metrics["name"] for one in results])
    print(os.getcwd() == here, Path("note").exists())


def a_class_runs_in_a_directory_of_its_own():
    """The same for a class."""
    here = os.getcwd()

    class Steps(tune.Trainable):
        def setup(self, config):
            self.folder = os.getcwd()

        def step(self):
            return {"moved": self.folder != here, "same": self.folder == os.getcwd(), "done": True}

        def save_checkpoint(self, checkpoint_dir):
            return {}

    [result] = _fitted(Steps)
    print(result.metrics["moved"], result.metrics["same"])


def output_of_trials_in_files():
    """`log_to_file` copies what a trial prints into files of its working directory."""

    def trial(config):
        sys.stdout.write("an output\n")
        sys.stderr.write("an error\n")
        sys.stdout.flush()
        sys.stderr.flush()
        found = {path.name: path.read_text() for path in Path().iterdir() if path.name in ("stdout", "stderr", "all")}
        tune.report({"found": repr([("an output" in text, "an error" in text) for _, text in sorted(found.items())])})

    for chosen in (True, "all", ("stdout", "all"), False):
        [result] = _fitted(trial, run={"log_to_file": chosen})
        print(chosen, result.metrics["found"])


def wrong_names_of_output_files():
    """`log_to_file` takes a name or two."""
    for wrong in (("a", "b", "c"), 7):
        print(raised(lambda wrong=wrong: _fitted(_reports, run={"log_to_file": wrong}), "ValueError"))


def settings_by_position():
    """The order of the arguments of settings."""
    one = tune.TuneConfig("max", "score")
    print(one.mode, one.metric)
    folder = tempfile.mkdtemp()
    two = tune.RunConfig("name", folder)
    print(two.name, two.storage_path == folder)
    three = tune.FailureConfig(2)
    print(three.max_failures)
    four = tune.CheckpointConfig(3, "score", "min")
    print(four.num_to_keep, four.checkpoint_score_attribute, four.checkpoint_score_order)


class _Stops(FIFOScheduler):
    """Stops trials at their third report."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_trial_add(self, tune_controller, trial):
        self.heard.append(("add", trial.config["x"]))

    def on_trial_result(self, tune_controller, trial, result):
        self.heard.append(("result", trial.config["x"], result["step"]))
        return TrialScheduler.STOP if result["step"] == 2 else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller, trial, result):
        self.heard.append(("complete", trial.config["x"], result["step"]))


def a_scheduler_that_stops():
    """A scheduler of the program's own gets the controller, the trial and the result."""
    scheduler = _Stops()
    results = _fitted(_reports, {"x": tune.grid_search([1, 2])}, scheduler=scheduler, max_concurrent_trials=1)
    print([one.metrics["step"] for one in results])


def what_a_scheduler_hears():
    """Which events reach a scheduler, in which order."""
    heard = []

    class Hears(FIFOScheduler):
        def on_trial_add(self, tune_controller, trial):
            heard.append(("add", trial.config["x"]))

        def on_trial_result(self, tune_controller, trial, result):
            heard.append(("result", result["step"], trial.trial_id == result["trial_id"]))
            return "STOP" if result["step"] == 2 else "CONTINUE"

        def on_trial_complete(self, tune_controller, trial, result):
            heard.append(("complete", result["step"]))

        def on_trial_remove(self, tune_controller, trial):
            heard.append(("remove",))

        def on_trial_error(self, tune_controller, trial):
            heard.append(("error",))

    def fails(config):
        tune.report({"step": 0})
        if config["x"] == 2:
            raise RuntimeError("on purpose")

    _fitted(_reports, {"x": tune.grid_search([1])}, scheduler=Hears())
    print(heard)
    heard.clear()
    _fitted(fails, {"x": tune.grid_search([1, 2])}, scheduler=Hears(), max_concurrent_trials=1)
    print(sorted(heard))


def a_scheduler_knows_all_trials():
    """The controller has the trials, and the scheduler chooses by them."""
    seen = []

    class Median(TrialScheduler):
        def __init__(self):
            super().__init__()
            self.best = {}

        def set_search_properties(self, metric, mode, **spec):
            seen.append((metric, mode))
            return super().set_search_properties(metric, mode, **spec)

        def on_trial_add(self, tune_controller, trial):
            pass

        def on_trial_error(self, tune_controller, trial):
            pass

        def on_trial_result(self, tune_controller, trial, result):
            self.best[trial.trial_id] = result[self._metric]
            others = [one for one in tune_controller.get_trials() if one.trial_id != trial.trial_id]
            worse = [one for one in others if self.best.get(one.trial_id, 0) > result["score"]]
            return TrialScheduler.STOP if worse and result["step"] > 0 else TrialScheduler.CONTINUE

        def on_trial_complete(self, tune_controller, trial, result):
            pass

        def on_trial_remove(self, tune_controller, trial):
            pass

        def choose_trial_to_run(self, tune_controller):
            for trial in tune_controller.get_trials():
                if trial.status == "PENDING":
                    return trial
            return None

        def debug_string(self):
            return "mine"

    space = {"x": tune.grid_search([3, 1, 2])}
    results = _fitted(_reports, space, metric="score", mode="max", scheduler=Median(), max_concurrent_trials=1)
    print(seen, sorted((one.config["x"], one.metrics["step"]) for one in results))


def a_scheduler_that_pauses():
    """A paused trial continues from its checkpoint when the scheduler chooses it."""

    def trial(config):
        first = 0
        checkpoint = tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                first = int(Path(folder, "step").read_text()) + 1
        for step in range(first, 4):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "step").write_text(str(step))
                tune.report({"step": step, "first": first}, checkpoint=tune.Checkpoint.from_directory(folder))

    class Pauses(FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            return TrialScheduler.PAUSE if result["step"] == 1 and result["first"] == 0 else TrialScheduler.CONTINUE

    results = _fitted(trial, {"x": tune.grid_search([1, 2])}, scheduler=Pauses(), max_concurrent_trials=1)
    print([(one.metrics["step"], one.metrics["first"]) for one in results])


def names_of_decisions():
    """Schedulers return these words."""
    print(TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP, TrialScheduler.NOOP)
    print(isinstance(FIFOScheduler(), TrialScheduler), FIFOScheduler().supports_buffered_results)


def directories_have_names_of_the_program():
    """`trial_dirname_creator` names the directory of each trial, and results, checkpoints and a restore find it."""

    def trial(config):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "x").write_text(str(config["x"]))
            tune.report({"x": config["x"]}, checkpoint=tune.Checkpoint.from_directory(folder))

    results = _fitted(trial, {"x": tune.grid_search([1, 2])}, trial_dirname_creator=lambda one: f"of {one.config['x']}")
    print(sorted(os.path.basename(one.path) for one in results))
    print([os.path.dirname(one.checkpoint.path) == one.path for one in results])
    again = tune.Tuner.restore(results.experiment_path, trial).get_results()
    print(sorted(os.path.basename(one.path) for one in again), [bool(one.checkpoint) for one in again])
    print(raised(lambda: _fitted(trial, {"x": 1}, trial_dirname_creator=lambda one: "a/b"), "ValueError"))


def a_scheduler_that_pauses_a_class():
    """A class is saved when it pauses, so it continues, whatever the settings of checkpoints are."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.count = 0

        def step(self):
            self.count += 1
            return {"count": self.count, "done": self.count == 3}

        def save_checkpoint(self, checkpoint_dir):
            return {"count": self.count}

        def load_checkpoint(self, checkpoint):
            self.count = checkpoint["count"]

    class Pauses(FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            return TrialScheduler.PAUSE

    results = _fitted(Steps, {"x": tune.grid_search([1, 2])}, scheduler=Pauses(), max_concurrent_trials=1)
    print([(one.metrics["count"], one.metrics["training_iteration"]) for one in results])


def a_scheduler_that_hears_of_ends():
    """It may override `on_trial_complete` alone. A report at which a trial is stopped is not one to decide about."""
    ended, judged = [], []

    class Hears(FIFOScheduler):
        def on_trial_complete(self, tune_controller, trial, result):
            ended.append((trial.config["x"], result["step"]))

    class Judges(Hears):
        def on_trial_result(self, tune_controller, trial, result):
            judged.append(result["step"])
            return TrialScheduler.CONTINUE

    _fitted(_reports, {"x": tune.grid_search([1, 2])}, scheduler=Hears(), max_concurrent_trials=1)
    _fitted(_reports, {"x": 3}, {"stop": {"step": 2}}, scheduler=Judges())
    print(ended, judged)


def a_limit_of_the_searcher():
    """`BasicVariantGenerator` may limit how many trials run, and two different limits are an error."""
    from ray.tune.search import BasicVariantGenerator

    results = _fitted(_reports, {"x": 1}, num_samples=2, search_alg=BasicVariantGenerator(max_concurrent=1))
    print(len(results))


def bounds_that_are_equal():
    """A domain may have one value."""
    print([one.sample() for one in (tune.uniform(3, 3), tune.quniform(2, 2, 2), tune.qrandint(4, 4, 2))])


def a_class_that_stands_for_a_function():
    """`wrap_function` makes a class that runs as a trial."""
    from ray.tune.trainable import wrap_function

    [result] = _fitted(wrap_function(_reports), {"x": 2})
    print(result.metrics["score"], issubclass(wrap_function(_reports), tune.Trainable))


def trials_end_without_a_report():
    """A trial that reports nothing is done."""
    [trial] = tune.run(lambda config: None, storage_path=tempfile.mkdtemp(), verbose=0).trials
    print(trial.last_result["done"], trial.status)


def checkpoints_of_trials():
    """The trials of `tune.run` have their checkpoints."""

    def trial(config):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "note").write_text("here")
            tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_directory(folder))

    [one] = tune.run(trial, storage_path=tempfile.mkdtemp(), verbose=0).trials
    print(Path(one.checkpoint.path, "note").read_text(), one.has_checkpoint())

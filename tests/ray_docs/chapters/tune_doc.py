"""Search: what programs of Ray Tune's documentation use besides, and what its tests say of resources and classes."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import ray
from ray import tune

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
KINDS = ("TuneError", "ValueError", "TypeError", "NotImplementedError", "AttributeError", "RuntimeError")


def _fitted(trainable, space=None, run=None, **config):
    """The results of an experiment."""
    folder = tempfile.mkdtemp()
    settings = tune.RunConfig(storage_path=folder, verbose=0, **(run or {}))
    return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**config), run_config=settings).fit()


def _kinds(call):
    """The kind of error, also of Ray Tune's own."""
    try:
        call()
    except tune.TuneError:
        return "TuneError"
    except Exception as error:
        return " ".join(name for name in KINDS if name in {kind.__name__ for kind in type(error).__mro__})
    return "nothing"


def _score(config):
    tune.report({"score": config.get("x", 1)})


class _Steps(tune.Trainable):
    """Counts its steps, and what was made of it."""

    def setup(self, config):
        self.at, self.resets = 0, 0

    def step(self):
        self.at += 1
        return {"at": self.at, "resets": self.resets, "pid": os.getpid(), "x": self.config.get("x")}

    def reset_config(self, new_config):
        self.config, self.at, self.resets = new_config, 0, self.resets + 1
        return True

    def save_checkpoint(self, folder):
        Path(folder, "at").write_text(str(self.at))

    def load_checkpoint(self, folder):
        self.at = int(Path(folder, "at").read_text())


def seeds_make_searches_repeatable():
    """The same seed of numpy gives the same configurations."""
    found = []
    for _ in range(2):
        np.random.seed(1234)
        search = tune.search.BasicVariantGenerator()
        results = _fitted(_score, {"x": tune.randint(0, 1000)}, num_samples=4, search_alg=search)
        found.append(sorted(one.config["x"] for one in results))
    print(found[0] == found[1], len(set(found[0])) > 1)


def grids_inside_lists():
    """Each grid counts."""
    space = {"layers": [tune.grid_search([16, 64]), tune.grid_search([1, 2])], "fixed": "asd"}
    print(sorted(one.config["layers"] for one in _fitted(_score, space)))


def values_that_depend_on_others():
    """`sample_from` sees what was drawn, as attributes and as keys."""
    space = {
        "a": tune.randint(5, 10),
        "b": tune.sample_from(lambda spec: spec.config.a * 10),
        "c": tune.sample_from(lambda config: config["a"] + 1),
    }
    print(
        [
            (one.config["b"] // 10 == one.config["a"], one.config["c"] - one.config["a"])
            for one in _fitted(_score, space)
        ]
    )


def resources_of_functions():
    """As a dictionary, as bundles, as a function of the configuration."""

    def trial(config):
        resources = tune.get_context().get_trial_resources()
        tune.report(
            {
                "bundles": [dict(sorted(one.items())) for one in resources.bundles],
                "required": dict(sorted(resources.required_resources.items())),
            }
        )

    for wanted in (
        {"cpu": 2, "custom_resources": {"special": 1}},
        {"CPU": 1, "special": 1},
        tune.PlacementGroupFactory([{"CPU": 1, "special": 1}, {"CPU": 1}], strategy="PACK"),
        lambda config: {"CPU": 2} if config["large"] else {"CPU": 1},
    ):
        [result] = _fitted(tune.with_resources(trial, wanted), {"large": True})
        print(result.metrics["bundles"], result.metrics["required"])


def data_of_functions():
    """A large value, by reference, and the number of rounds."""

    def trial(config, rounds=1, data=None):
        for turn in range(rounds):
            tune.report({"turn": turn, "sum": float(data.sum())})

    [result] = _fitted(tune.with_parameters(trial, rounds=2, data=np.ones(1_000_000)))
    print(result.metrics["turn"], result.metrics["sum"])


def a_checkpoint_in_the_space():
    """Another experiment starts from the best checkpoint of one."""

    def first(config):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").write_text(str(config["x"]))
            tune.report({"score": config["x"]}, checkpoint=tune.Checkpoint.from_directory(folder))

    def second(config):
        with config["start"].as_directory() as folder:
            tune.report({"score": config["x"] + int(Path(folder, "model").read_text())})

    settings = {"metric": "score", "mode": "max"}
    best = _fitted(first, {"x": tune.grid_search([1, 2, 3])}, **settings).get_best_result()
    results = _fitted(second, {"x": tune.grid_search([10, 20]), "start": best.checkpoint}, **settings)
    print(results.get_best_result().metrics["score"])


def a_report_that_asks_for_a_checkpoint():
    """`should_checkpoint` in the result of a class."""

    class Asks(_Steps):
        def step(self):
            return {**super().step(), "should_checkpoint": self.at == 2}

    [result] = _fitted(Asks, run={"stop": {"training_iteration": 4}})
    print(Path(result.checkpoint.path, "at").read_text() if result.checkpoint else None)


def what_saving_returns():
    """A class returns the directory, a dictionary or nothing; the path of a file in it is an error."""

    def kind(returned):
        class Saves(tune.Trainable):
            def step(self):
                return {"done": self.iteration == 1}

            def save_checkpoint(self, folder):
                Path(folder, "file").write_text("text")
                return returned(folder)

            def load_checkpoint(self, given):
                pass

        return Saves

    settings = {"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)}
    for returned in (
        lambda folder: folder,
        lambda folder: {"a": 1},
        lambda folder: None,
        lambda folder: f"{folder}/file",
    ):
        results = _fitted(kind(returned), run=settings)
        print([one.checkpoint is not None for one in results], len(results.errors))


def conditions_on_nested_values():
    """By their names with slashes."""

    def trial(config):
        for step in range(10):
            tune.report({"info": {"step": step}})

    [result] = _fitted(trial, run={"stop": {"info/step": 3}})
    print(result.metrics["info"]["step"])


def two_statements_of_resources():
    """Those of the class, and those of the run."""

    class Asks(_Steps):
        @classmethod
        def default_resource_request(cls, config):
            return tune.PlacementGroupFactory([{"CPU": 1}])

    settings = {"stop": {"training_iteration": 1}, "storage_path": tempfile.mkdtemp(), "verbose": 0}
    print(_kinds(lambda: tune.run(Asks, resources_per_trial={"cpu": 2}, **settings)))
    print(
        _kinds(lambda: tune.run(Asks, **settings)),
        _kinds(lambda: tune.run(_Steps, resources_per_trial={"cpu": 2}, **settings)),
    )


def a_function_as_a_class():
    """`wrap_function`, and its steps by hand."""
    from ray.tune.trainable import wrap_function

    def trial(config):
        for step in range(2):
            tune.report({"step": step})

    made = wrap_function(trial)
    print(issubclass(made, tune.Trainable), made.__name__)
    print([one.metrics["step"] for one in _fitted(made)])


def the_generator_of_trials():
    """`SearchGenerator` stands around a searcher."""
    from ray.tune.search import Searcher, SearchGenerator

    class Fixed(Searcher):
        def suggest(self, trial_id):
            return {"x": 5}

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    search = SearchGenerator(Fixed(metric="score", mode="max"))
    print([one.metrics["score"] for one in _fitted(_score, search_alg=search, num_samples=2)])


def results_of_an_experiment():
    """Best values, paths, tables."""
    results = _fitted(_score, {"x": tune.grid_search([3, 1, 2])}, metric="score", mode="min")
    best = results.get_best_result()
    print(
        best.config, best.metrics["score"], Path(best.path).is_dir(), best.checkpoint, len(results), results.num_errors
    )
    print(json.loads(json.dumps(best.config)), results.num_terminated, [one.error for one in results])
    print(ray.is_initialized())


def a_trial_that_exits_has_failed():
    """It runs once, whatever the code is, and does not count as a process that has died."""
    folder = tempfile.mkdtemp()

    def leaves(config):
        Path(folder, f"{config['code']}-{os.getpid()}-{os.urandom(4).hex()}").touch()
        tune.report({"score": 1})
        raise SystemExit(config["code"])

    results = _fitted(leaves, {"code": tune.grid_search([0, 3])})
    print(len(os.listdir(folder)), results.num_errors, [isinstance(one.error, Exception) for one in results])

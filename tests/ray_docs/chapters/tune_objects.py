"""Tuning: domains, stoppers, searchers, schedulers, reporters and loggers, made and asked by hand."""

import tempfile
import time

import numpy as np
from ray import tune
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher

from tests.ray_docs.helpers import raised

KINDS = ("ValueError", "TypeError")


def domains_draw_several_values():
    """`sample(size=...)` gives a list, and one value without it."""
    for domain in (tune.uniform(0, 1), tune.randint(0, 5), tune.choice(["a"]), tune.loguniform(1, 10), tune.randn()):
        values = domain.sample(size=3)
        print(type(values).__name__, len(values), np.ndim(domain.sample()))


def domains_draw_with_a_seed():
    """The same seed gives the same values."""
    domain = tune.uniform(0, 1)
    print(list(domain.sample(size=4, random_state=5)) == list(domain.sample(size=4, random_state=5)))
    print(domain.sample(random_state=np.random.RandomState(3)) == domain.sample(random_state=np.random.RandomState(3)))


def domains_know_their_values():
    """Which lie in it."""
    print([tune.uniform(0, 2).is_valid(value) for value in (0, 1.5, 2, 3, -1)])
    print([tune.randint(0, 5).is_valid(value) for value in (0, 4, 6, -1)])
    print([tune.choice([1, "a"]).is_valid(value) for value in (1, "a", 2)])


def domains_cast_values():
    """Text becomes a number of the domain."""
    print(repr(tune.uniform(0, 2).cast("1.5")), repr(tune.randint(0, 5).cast("3")), repr(tune.choice(["1"]).cast("1")))


def domains_show_themselves():
    """With their bounds, as text."""
    print(tune.uniform(0, 2).domain_str, tune.randint(1, 5).domain_str, tune.choice([1, 2]).domain_str)
    print(len(tune.choice([1, 2])), tune.choice([1, 2])[1], tune.choice([1, 2]).categories)
    print(tune.uniform(0, 2).lower, tune.uniform(0, 2).upper, tune.randint(1, 5).lower, tune.randint(1, 5).upper)


def draws_are_multiples():
    """Of the quantum, within the bounds."""
    for domain, quantum in (
        (tune.quniform(0, 1, 0.25), 0.25),
        (tune.qloguniform(5, 100, 5), 5),
        (tune.qrandint(3, 21, 3), 3),
        (tune.qlograndint(4, 64, 4), 4),
        (tune.qrandn(0, 10, 2), 2),
    ):
        values = domain.sample(size=200)
        print({abs(value / quantum - round(value / quantum)) < 1e-9 for value in values}, type(values[0]).__name__)


def bounds_without_meaning():
    """Are refused where the domain is made."""
    for make in (
        lambda: tune.loguniform(0, 1),
        lambda: tune.loguniform(-1, 1),
        lambda: tune.lograndint(0, 5),
        lambda: tune.uniform(0, float("inf")),
        lambda: tune.qloguniform(0, 1, 0.1),
    ):
        print(raised(make, *KINDS))


def domains_are_compared_and_copied():
    """A copy draws the same."""
    import copy
    import pickle

    domain = tune.loguniform(1, 10)
    for made in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
        print(made.sample(random_state=1) == domain.sample(random_state=1), made.lower, made.upper)


def draws_of_functions():
    """`sample_from` gets the configuration, by attributes or by keys."""
    seen = []

    def trial(config):
        return {"x": config["x"], "y": config["y"]}

    space = {"x": tune.grid_search([1, 2]), "y": tune.sample_from(lambda spec: spec.config.x * 10),
             "z": tune.sample_from(lambda config: config["x"])}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(trial, param_space=space, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
        seen = [(one.config["x"], one.config["y"], one.config["z"]) for one in results]
    print(sorted(seen))


def stoppers_count_reports():
    """`MaximumIterationStopper` counts those of each trial."""
    stopper = tune.stopper.MaximumIterationStopper(2)
    print([stopper("a", {}) for _ in range(3)], stopper("b", {}), stopper.stop_all())


def stoppers_find_plateaus():
    """Of a trial: the last values hardly differ."""
    stopper = tune.stopper.TrialPlateauStopper("x", std=0.1, num_results=3, grace_period=3)
    values = [1, 2, 3, 3, 3, 3]
    print([stopper("a", {"x": value, "training_iteration": n}) for n, value in enumerate(values)], stopper.stop_all())
    stopper = tune.stopper.TrialPlateauStopper("x", num_results=2, grace_period=2, metric_threshold=2, mode="min")
    print([stopper("a", {"x": value}) for value in (5, 5, 5, 1, 1)])
    print(raised(lambda: tune.stopper.TrialPlateauStopper("x", metric_threshold=2), *KINDS))
    print(raised(lambda: tune.stopper.TrialPlateauStopper("x", metric_threshold=2, mode="most"), *KINDS))


def stoppers_find_plateaus_of_experiments():
    """The best values of all trials hardly differ."""
    stopper = tune.stopper.ExperimentPlateauStopper("x", std=0.01, top=2, mode="max", patience=1)
    found = []
    for value in (1, 5, 5, 5, 5):
        stopper("a", {"x": value})
        found.append(stopper.stop_all())
    print(found)
    for given in ({"top": 0}, {"mode": "most"}, {"patience": -1}, {"std": -1}):
        print(raised(lambda given=given: tune.stopper.ExperimentPlateauStopper("x", **given), *KINDS))


def stoppers_join():
    """One of several suffices."""
    stopper = tune.stopper.CombinedStopper(
        tune.stopper.MaximumIterationStopper(3), tune.stopper.FunctionStopper(lambda trial_id, result: result["x"] > 1)
    )
    print([stopper("a", {"x": value}) for value in (0, 1, 2)], stopper("b", {"x": 0}), stopper.stop_all())
    print(tune.stopper.NoopStopper()("a", {}), tune.stopper.NoopStopper().stop_all())
    print(raised(lambda: tune.stopper.FunctionStopper(5), *KINDS))


def stoppers_know_the_time():
    """After it everything stops."""
    import datetime

    for limit in (0.05, datetime.timedelta(milliseconds=50)):
        stopper = tune.stopper.TimeoutStopper(limit)
        before = stopper.stop_all()
        time.sleep(0.1)
        print(before, stopper.stop_all(), stopper("a", {}))
    print(raised(lambda: tune.stopper.TimeoutStopper("x"), *KINDS))


class _Counts(Searcher):
    def __init__(self, most=100, metric="x", mode="max"):
        super().__init__(metric=metric, mode=mode)
        self.most, self.seen, self.number = most, [], 0

    def suggest(self, trial_id):
        if self.number == self.most:
            return Searcher.FINISHED
        self.number += 1
        return {"n": self.number}

    def on_trial_result(self, trial_id, result):
        self.seen.append(("result", trial_id, result))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.seen.append((trial_id, result, error))


def searchers_are_limited():
    """At most so many suggestions wait for their results."""
    searcher = ConcurrencyLimiter(_Counts(), max_concurrent=2)
    print(searcher.suggest("a"), searcher.suggest("b"), searcher.suggest("c"))
    searcher.on_trial_complete("b", {"x": 1})
    print(searcher.suggest("d"), searcher.suggest("e"))
    searcher.on_trial_complete("a", error=True)
    print(searcher.suggest("f"), searcher.searcher.seen)


def searchers_are_limited_in_batches():
    """With `batch=True` all wait for all."""
    searcher = ConcurrencyLimiter(_Counts(), max_concurrent=2, batch=True)
    print(searcher.suggest("a"), searcher.suggest("b"), searcher.suggest("c"))
    searcher.on_trial_complete("b", {"x": 1})
    print(searcher.suggest("d"), len(searcher.searcher.seen))
    searcher.on_trial_complete("a", {"x": 2})
    print(searcher.suggest("e"), len(searcher.searcher.seen))


def searchers_repeat():
    """Each suggestion is tried several times, and its mean is learnt."""
    searcher = Repeater(_Counts(), repeat=2)
    print([searcher.suggest(name)["n"] for name in "abcd"])
    for name, value in (("a", 1), ("b", 3)):
        searcher.on_trial_complete(name, {"x": value})
    print([(result, error) for _, result, error in searcher.searcher.seen])


def searchers_end():
    """A searcher that has finished gives no more trials."""
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            lambda config: {"x": config["n"]},
            tune_config=tune.TuneConfig(search_alg=_Counts(3), num_samples=10, metric="x", mode="max"),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        print(sorted(one.config["n"] for one in results), results.get_best_result().config)


def searchers_have_a_goal():
    """A metric and one of two modes."""
    print(raised(lambda: _Counts(mode="most"), "AssertionError", *KINDS) != "nothing")
    searcher = _Counts(metric=None, mode=None)
    print(searcher.metric, searcher.mode)


def points_come_first():
    """`BasicVariantGenerator` tries given points, and then draws."""
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            lambda config: {"x": config["a"]},
            param_space={"a": tune.uniform(0, 1), "b": tune.choice([1, 2])},
            tune_config=tune.TuneConfig(
                search_alg=BasicVariantGenerator(points_to_evaluate=[{"a": 5, "b": 1}, {"a": 6}]), num_samples=3
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        print([one.config["a"] for one in results][:2], len(results), results[0].config)


def schedulers_refuse_what_makes_no_sense():
    """Where they are made."""
    schedulers = tune.schedulers
    for make in (
        lambda: schedulers.ASHAScheduler(max_t=0),
        lambda: schedulers.ASHAScheduler(grace_period=0),
        lambda: schedulers.ASHAScheduler(max_t=5, grace_period=10),
        lambda: schedulers.ASHAScheduler(reduction_factor=1),
        lambda: schedulers.ASHAScheduler(brackets=0),
        lambda: schedulers.ASHAScheduler(mode="most"),
        lambda: schedulers.HyperBandScheduler(max_t=0),
        lambda: schedulers.HyperBandScheduler(mode="most"),
        lambda: schedulers.PopulationBasedTraining(),
        lambda: schedulers.PopulationBasedTraining(hyperparam_mutations={"a": 5}),
        lambda: schedulers.PopulationBasedTraining(hyperparam_mutations={"a": [1]}, quantile_fraction=0.6),
        lambda: schedulers.PopulationBasedTraining(hyperparam_mutations={"a": [1]}, perturbation_interval=0),
        lambda: schedulers.PopulationBasedTraining(hyperparam_mutations={"a": [1]}, perturbation_factors=(1,)),
    ):
        print(raised(make, *KINDS, "AssertionError") != "nothing")


def settings_of_experiments_have_defaults():
    """Those of a tuner."""
    config, run = tune.TuneConfig(), tune.RunConfig()
    print(config.metric, config.mode, config.search_alg, config.scheduler, config.num_samples)
    print(config.max_concurrent_trials, config.time_budget_s, bool(config.reuse_actors), config.trial_name_creator)
    print(run.name, run.stop, run.failure_config.max_failures, run.failure_config.fail_fast)
    print(run.checkpoint_config.num_to_keep, run.checkpoint_config.checkpoint_frequency, run.progress_reporter)


def failures_have_one_setting():
    """`fail_fast` and `max_failures` contradict each other."""
    for given in ({"fail_fast": True, "max_failures": 1}, {"fail_fast": "other"}, {"fail_fast": "raise"},
                  {"max_failures": -1}):  # fmt: skip
        print(given, raised(lambda given=given: tune.FailureConfig(**given), *KINDS))


def bundles_of_trials():
    """`PlacementGroupFactory` has bundles and a strategy, and adds them up."""
    one = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}], strategy="SPREAD")
    print(
        one.bundles == [{"CPU": 1}, {"CPU": 2, "GPU": 0.5}],
        one.strategy,
        {name: value for name, value in sorted(one.required_resources.items()) if value},
    )
    same = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}], strategy="SPREAD")
    print(one == same, hash(one) == hash(same), one == tune.PlacementGroupFactory([{"CPU": 1}]))
    print(raised(lambda: tune.PlacementGroupFactory([]), *KINDS))
    print(one.head_cpus if hasattr(one, "head_cpus") else one.bundles[0]["CPU"])


def reporters_have_columns():
    """Added by name, once."""
    reporter = tune.CLIReporter(metric_columns=["a"])
    reporter.add_metric_column("b")
    print(raised(lambda: reporter.add_metric_column("a"), *KINDS))
    reporter = tune.CLIReporter(parameter_columns={"x": "iks"})
    reporter.add_parameter_column("y")
    print(raised(lambda: reporter.add_parameter_column("x"), *KINDS))


def names_are_registered():
    """A name stands for a function or a class, and something else is refused."""
    tune.register_trainable("of_a_name", lambda config: {"x": 1})
    with tempfile.TemporaryDirectory() as folder:
        print(tune.run("of_a_name", storage_path=folder, verbose=0).trials[0].last_result["x"])
    print(raised(lambda: tune.register_trainable("other", 5), "Exception"))
    print(raised(lambda: tune.register_trainable("other", "text"), "Exception"))


def names_of_trials():
    """Made by a function from the trial."""

    def named(trial):
        return f"n{trial.config['x']}"

    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(
            lambda config: {"y": 1}, config={"x": tune.grid_search([1, 2])}, trial_name_creator=named,
            storage_path=folder, verbose=0,
        )  # fmt: skip
        print(sorted(str(trial) for trial in found.trials))


def results_of_no_trial():
    """A metric that nobody has reported, and one with values that are not finite."""
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            lambda config: {"x": [1.0, float("nan"), float("inf")][config["n"]]},
            param_space={"n": tune.grid_search([0, 1, 2])},
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
    print(results.get_best_result("x", "max").config, results.get_best_result("x", "min").config)
    print(results.get_best_result("x", "max", filter_nan_and_inf=False).config["n"] in (1, 2))
    print(raised(lambda: results.get_best_result("y", "max"), "RuntimeError", *KINDS))
    print(raised(lambda: results.get_best_result("x", "most"), "RuntimeError", "AssertionError", *KINDS) != "nothing")
    print(raised(lambda: results.get_best_result("x", "max", scope="some"), "AssertionError", *KINDS) != "nothing")
    print(results.num_errors, results.num_terminated, len(results))


def analyses_know_the_best():
    """By metric, mode and scope."""

    def trial(config):
        for value in config["values"]:
            tune.report({"x": value})

    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(
            trial, config={"values": tune.grid_search([[5, 1], [2, 3], [4, 2]])}, storage_path=folder, verbose=0,
            metric="x", mode="max",
        )  # fmt: skip
        for scope in ("last", "all", "avg", "last-5-avg"):
            print(scope, found.get_best_trial("x", "max", scope).config["values"], found.get_best_config(scope=scope))
        print(found.best_config, found.best_result["x"], len(found.results), len(found.trials))
        print(found.default_metric, found.default_mode)


def results_of_older_functions():
    """`ResultGrid` takes what `run` returns; `env` of an experiment goes into its configuration."""
    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(lambda config: {"x": config["n"]}, config={"n": tune.grid_search([1, 2])}, storage_path=folder)
        results = tune.ResultGrid(found)
        print(len(results), results.get_best_result("x", "max").config)
        [trial] = tune.run_experiments({"e": {"run": lambda config: {"x": 1}, "env": "Pole", "storage_path": folder}})
        print(trial.config, trial.status, trial.has_checkpoint())


def trials_have_the_name_of_their_function():
    """And their id, if no function names them."""

    def measured(config):
        tune.report({"named": tune.get_context().get_trial_name()})

    with tempfile.TemporaryDirectory() as folder:
        [trial] = tune.run(measured, storage_path=folder, resources_per_trial={"cpu": 1}).trials
    print(str(trial) == f"measured_{trial.trial_id}" == trial.last_result["named"], trial.trainable_name)
    print(trial.placement_group_factory.bundles == [{"CPU": 1}])


def runs_continue_by_words():
    """Failed trials only by the word for them; without an experiment of the name a new one begins."""

    def fails_once(config):
        marker = f"{config['folder']}/{config['n']}"
        try:
            open(marker, "x").close()
        except FileExistsError:
            return {"x": config["n"]}
        if config["n"]:
            raise RuntimeError
        return {"x": 0}

    with tempfile.TemporaryDirectory() as folder:
        for resume in (True, "AUTO", "AUTO+RESTART_ERRORED"):
            trials = tune.run(
                fails_once, name="e", config={"n": tune.grid_search([0, 1]), "folder": folder}, resume=resume,
                storage_path=folder + "/s", raise_on_failed_trial=False, verbose=0,
            ).trials  # fmt: skip
            print(resume, sorted(trial.status for trial in trials))
        for word in ("ERRORED_ONLY", "AUTO+SOME"):
            print(raised(lambda w=word: tune.run(fails_once, name="e", resume=w), "DeprecationWarning", "ValueError"))


def states_that_were_saved_stay():
    """Whatever later steps change."""

    class Steps(tune.Trainable):
        def setup(self, config):
            self.state = {"n": 0, "all": []}

        def step(self):
            self.state["n"] += 1
            self.state["all"].append(self.state["n"])
            return {"n": self.state["n"]}

        def save_checkpoint(self, checkpoint_dir):
            return self.state

        def load_checkpoint(self, checkpoint):
            self.state = checkpoint

    steps = Steps()
    first = steps.save()
    steps.train()
    second = steps.save()
    for saved in (first, second, first, second):
        steps.restore(saved)
        print(steps.state, steps.step(), first != second)


def names_find_classes():
    """Arguments that the class does not know have no effect."""
    found = tune.create_scheduler("async_hyperband", metric="x", mode="max", other=1)
    print(type(found).__name__, raised(lambda: tune.create_scheduler("other"), *KINDS))
    print(type(tune.create_searcher("random", other=1)).__name__)


def a_report_as_text():
    """`pretty_print` shows a report as YAML, without its configuration."""
    from ray.tune.logger import pretty_print

    report = {"score": 4, "loss": 0.5, "done": True, "none": None, "config": {"a": 1}, "date": "2026-11-30_00-02-10"}
    nested = {"nested": {"b": [1, 2.5], "c": {}}, "text": "x: y", "list": [{"a": 1}, [2, 3]], "number": "123"}
    others = {"float": np.float32(1.5), "array": np.arange(2), "small": 1e-05, "not": float("nan"), "id": "63f62_00000"}
    print(pretty_print({**report, **nested, **others}))
    print(pretty_print(report, exclude={"score", "date"}))

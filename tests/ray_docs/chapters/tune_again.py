"""Search: states of searchers and callbacks, what a resume does with each trial, populations that wait, reporters."""

import json
import os
import pickle
import tempfile
import time
from pathlib import Path

from ray import tune
from ray.tune import Callback, Checkpoint, CLIReporter, PlacementGroupFactory, ProgressReporter, ResumeConfig
from ray.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher

from tests.ray_docs.helpers import raised

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"


class _Counts(Searcher):
    """Suggests 1, 2, 3."""

    def __init__(self):
        super().__init__(metric="score", mode="max")
        self.count, self.told = 0, []

    def suggest(self, trial_id):
        self.count += 1
        return {"x": self.count}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, None if result is None else float(result["score"])))

    def save(self, checkpoint_path):
        Path(checkpoint_path).write_text(str(self.count))

    def restore(self, checkpoint_path):
        self.count = int(Path(checkpoint_path).read_text())


def a_searcher_saves_its_state():
    """Another one goes on from there, also behind a limit and with repetitions."""
    with tempfile.TemporaryDirectory() as folder:
        first = _Counts()
        print(first.suggest("a"), first.suggest("b"))
        first.save(f"{folder}/own")
        second = _Counts()
        second.restore(f"{folder}/own")
        print(second.suggest("c"))
        for around in (ConcurrencyLimiter(_Counts(), 2), Repeater(_Counts(), repeat=2)):
            around.restore(f"{folder}/own")
            print(around.searcher.count)
            around.save(f"{folder}/around")
        first.save_to_dir(folder)
        third = _Counts()
        third.restore_from_dir(folder)
        print(third.count)
    with tempfile.TemporaryDirectory() as folder:
        print(raised(lambda: _Counts().restore_from_dir(folder), "RuntimeError"))


def what_a_searcher_must_have():
    """The rest may be missing."""
    one = Searcher()
    for name, given in (("suggest", "a"), ("save", "a"), ("restore", "a"), ("set_state", {})):
        print(name, raised(lambda name=name, given=given: getattr(one, name)(given), "NotImplementedError"))
    print(raised(one.get_state, "NotImplementedError"), one.set_max_concurrency(2))
    print(raised(lambda: one.add_evaluated_point({}, 1.0), "NotImplementedError"))
    print(Searcher(metric=["a", "b"], mode=["max", "min"]).metric)


def a_limit_knows_its_trials():
    """Which have a suggestion, and with batches whose results wait."""
    one = ConcurrencyLimiter(_Counts(), 2, batch=True)
    print(one.suggest("a"), one.suggest("b"), one.suggest("c"), sorted(one.live_trials))
    one.on_trial_complete("a", {"score": 1})
    one.on_trial_complete("unknown", {"score": 1})
    print(sorted(one.live_trials), sorted(one.cached_results), one.searcher.told)
    one.on_trial_complete("b", {"score": 2})
    print(sorted(one.live_trials), one.searcher.told)
    print(one.set_max_concurrency(3), one.max_concurrent)
    again = ConcurrencyLimiter(_Counts(), 2)
    again.set_state(one.get_state())
    print(again.max_concurrent, again.batch)


def _scores(config):
    tune.report({"score": config["x"]})


def an_experiment_leaves_the_state_of_its_searcher():
    """From its directory another searcher goes on."""
    with tempfile.TemporaryDirectory() as folder:
        tune.run(_scores, name="one", search_alg=_Counts(), num_samples=3, storage_path=folder, verbose=0)
        later = _Counts()
        later.restore_from_dir(f"{folder}/one")
        print(later.count >= 3)


def _step(config):
    """Reports one and two more than its checkpoint has, and fails between them while the file is there."""
    count, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            count = json.loads(Path(folder, "count").read_text())
    for last in (False, True):
        count += 1
        if last and config["marker"] and os.path.exists(config["marker"]):
            raise RuntimeError("on purpose")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "count").write_text(json.dumps(count))
            tune.report({"count": count}, checkpoint=Checkpoint.from_directory(folder))


def _resumed(**arguments):
    """How trials stand that are resumed, in any order: the first had ended, the second failed."""
    with tempfile.TemporaryDirectory() as folder:
        marker = Path(folder, "marker")
        marker.touch()
        settings = {"name": "one", "storage_path": folder, "verbose": 0, "raise_on_failed_trial": False}
        space = {"marker": tune.grid_search([None, str(marker)])}
        tune.run(_step, config=space, **settings)
        marker.unlink()
        found = tune.run(_step, config=space, **settings, **arguments)
        return sorted((trial.status, trial.last_result["count"]) for trial in found.trials)


def trials_go_on_by_their_states():
    """Which continue, which begin anew, and which stay as they are."""
    kind = ResumeConfig.ResumeType
    print(ResumeConfig().finished.name, ResumeConfig().unfinished.name, ResumeConfig().errored.name)
    print(_resumed(resume_config=ResumeConfig(errored=kind.RESUME)))
    print(_resumed(resume_config=ResumeConfig(finished=kind.RESUME, errored=kind.RESTART)))


def words_for_a_resume():
    """The failed ones alone, and words that are none."""
    print(_resumed(resume="AUTO+RESTART_ERRORED_ONLY"))
    for word in ("LOCAL+ERRORED", "AUTO+nothing"):
        print(raised(lambda word=word: _resumed(resume=word), "DeprecationWarning", "ValueError"))


class _Loads(tune.Trainable):
    def setup(self, config):
        self.count, self.tally, self.is_restored = 0, Path(config["tally"]), False

    def step(self):
        if self.count == 2 and not self.is_restored:
            raise RuntimeError("on purpose")
        self.count += 1
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir):
        return {"count": self.count}

    def load_checkpoint(self, checkpoint):
        self.is_restored = True
        tries = int(self.tally.read_text()) + 1
        self.tally.write_text(str(tries))
        if tries < 3:
            raise RuntimeError("on purpose")
        self.count = checkpoint["count"]


def loading_is_tried_again():
    """As often as a variable says; without it the trial fails."""
    for tries in ("0", "2"):
        os.environ["TUNE_RESTORE_RETRY_NUM"] = tries
        try:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "tally").write_text("0")
                settings = tune.RunConfig(
                    storage_path=folder,
                    verbose=0,
                    stop={"training_iteration": 4},
                    failure_config=tune.FailureConfig(max_failures=1),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
                )
                tuner = tune.Tuner(_Loads, param_space={"tally": f"{folder}/tally"}, run_config=settings)
                print(tries, tuner.fit()[0].metrics["count"])
        finally:
            del os.environ["TUNE_RESTORE_RETRY_NUM"]


class _Thing:
    def __init__(self, name):
        self.name = name


def a_restored_space_may_have_other_objects():
    """Trials get those of the new space in the place of the earlier ones; other parameters are refused."""

    def names(config):
        tune.report({"name": config["thing"].name})
        if config["thing"].name == "old":
            raise RuntimeError("on purpose")

    with tempfile.TemporaryDirectory() as folder:
        settings = tune.RunConfig(name="one", storage_path=folder, verbose=0)
        old, new = ({"thing": tune.grid_search([_Thing(name)])} for name in ("old", "new"))
        print(tune.Tuner(names, param_space=old, run_config=settings).fit().num_errors)
        path = f"{folder}/one"
        print(raised(lambda: tune.Tuner.restore(path, names, param_space={"other": 1}), "ValueError"))
        [result] = tune.Tuner.restore(path, names, param_space=new, resume_errored=True).fit()
        print(result.error, result.metrics["name"], result.config["thing"].name)


def _learns(config):
    """Its score grows by one with each report, from its parameter on."""
    step, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            step = pickle.loads(Path(folder, "step").read_bytes())
    while True:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_bytes(pickle.dumps(step))
            time.sleep(config["a"] / 100)
            tune.report({"score": step + config["a"]}, checkpoint=Checkpoint.from_directory(folder))


def populations_may_wait_for_each_other():
    """Then the slowest trial, which is the best, is copied in each interval, and all end alike."""
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 1, hyperparam_mutations={"c": lambda: 1}, synch=True
    )
    with tempfile.TemporaryDirectory() as folder:
        found = tune.run(
            _learns,
            config={"a": tune.grid_search([10, 20, 40]), "c": 1},
            scheduler=scheduler,
            stop={"training_iteration": 3},
            storage_path=folder,
            verbose=0,
        )
        print({trial.last_result["score"] for trial in found.trials})


class _Adds(tune.Trainable):
    def setup(self, config):
        self.sum = 0

    def step(self):
        self.sum += self.config["a"]
        return {"score": self.sum}

    def save_checkpoint(self, checkpoint_dir):
        return {"sum": self.sum}

    def load_checkpoint(self, checkpoint):
        self.sum = checkpoint["sum"]


def schedules_are_in_files():
    """A file for all, and one for each trial that was changed, which a replay follows."""
    scheduler = PopulationBasedTraining(
        "training_iteration",
        "score",
        "max",
        2,
        hyperparam_mutations={"c": [1, 2, 3]},
        quantile_fraction=0.5,
        synch=True,
    )
    more = {"stop": {"training_iteration": 4}, "verbose": 0}
    with tempfile.TemporaryDirectory() as folder:
        space = {"a": tune.grid_search([0, 1]), "c": 1}
        found = tune.run(_Adds, name="one", config=space, scheduler=scheduler, storage_path=folder, **more)
        place = Path(folder, "one")
        line = json.loads(Path(place, "pbt_global.txt").read_text().splitlines()[0])
        print([type(one).__name__ for one in line], line[2], line[4]["a"])
        [file] = place.glob("pbt_policy_*.txt")
        print(file.name == f"pbt_policy_{found.trials[0].trial_id}.txt", json.loads(file.read_text()) == line)
        replay = PopulationBasedTrainingReplay(str(file))
        print(replay.config["a"])
        again = tune.run(_Adds, name="two", scheduler=replay, storage_path=folder, **more)
        print(again.trials[0].last_result["training_iteration"], again.trials[0].last_result["score"])
    print(raised(lambda: PopulationBasedTrainingReplay("/nowhere/policy.txt"), "ValueError"))


def callbacks_hear_of_checkpoints():
    """And of a failure before the trial starts again."""
    heard = []

    class Hears(Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            heard.append("start")

        def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
            heard.append("checkpoint")

        def on_trial_save(self, iteration, trials, trial, **info):
            heard.append("save")

        def on_trial_recover(self, iteration, trials, trial, **info):
            heard.append("recover")

    with tempfile.TemporaryDirectory() as folder:
        marker = Path(folder, "marker")
        marker.touch()

        class Once(tune.Trainable):
            def setup(self, config):
                self.count = 0

            def step(self):
                self.count += 1
                if self.count == 2 and marker.exists():
                    marker.unlink()
                    raise RuntimeError("on purpose")
                return {"count": self.count}

            def save_checkpoint(self, checkpoint_dir):
                return {"count": self.count}

            def load_checkpoint(self, checkpoint):
                self.count = checkpoint["count"]

        settings = tune.RunConfig(
            storage_path=folder,
            verbose=0,
            callbacks=[Hears()],
            stop={"training_iteration": 2},
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        )
        tune.Tuner(Once, run_config=settings).fit()
    print(heard)
    print(Callback().get_state(), Callback().set_state({}))


def reporters_of_a_programs_own():
    """They say when, and show what they want."""
    seen = []

    class Last(CLIReporter):
        def should_report(self, trials, done=False):
            return done

        def report(self, trials, done, *sys_info):
            seen.append((len(trials), done))

    class Bare(ProgressReporter):
        def setup(self, start_time=None, total_samples=None, metric=None, mode=None, **more):
            seen.append((total_samples, metric, mode))

        def should_report(self, trials, done=False):
            return done

        def report(self, trials, done, *sys_info):
            seen.append([trial.status for trial in trials])

    given = {"total_samples": 2, "max_progress_rows": 5, "infer_limit": 2, "max_error_rows": 3, "sort_by_metric": True}
    for reporter in (Last(metric_columns=["score"], **given), Bare()):
        with tempfile.TemporaryDirectory() as folder:
            tune.run(
                _scores,
                config={"x": tune.grid_search([1, 2])},
                metric="score",
                mode="max",
                progress_reporter=reporter,
                storage_path=folder,
                verbose=1,
            )
    print(seen)


def settings_can_be_changed():
    """Until they are used."""
    for one, name in (
        (tune.TuneConfig(), "num_samples"),
        (tune.RunConfig(), "name"),
        (tune.FailureConfig(), "max_failures"),
        (tune.CheckpointConfig(), "num_to_keep"),
    ):
        setattr(one, name, 3)
        print(getattr(one, name))
    print(raised(lambda: tune.CheckpointConfig(checkpoint_frequency=-1), "ValueError"))


def bundles_are_tidied():
    """Amounts are numbers, zeros are left out, and an empty first bundle is that of a trial without resources."""
    one = PlacementGroupFactory([{"CPU": 1, "GPU": 0}, {"CPU": 2}])
    print(one.bundles, one.head_bundle_is_empty, one.required_resources)
    two = PlacementGroupFactory([{}, {"CPU": 1}])
    print(two.bundles, two.head_bundle_is_empty, two.head_cpus)
    with tempfile.TemporaryDirectory() as folder:
        settings = tune.RunConfig(storage_path=folder, verbose=0)
        [result] = tune.Tuner(tune.with_resources(_scores, two), param_space={"x": 1}, run_config=settings).fit()
        print(result.error, result.metrics["score"])


def names_of_schedulers_take_any_goal():
    """Those that do not compare ignore it."""
    print(type(tune.create_scheduler("fifo", metric="a", mode="max")).__name__)
    print(type(tune.create_searcher("random", metric="a", mode="max")).__name__)


def numbers_of_a_trial():
    """The extremes and means of what it has reported."""

    def trial(config):
        for value in (3, 1, 2):
            tune.report({"score": value})

    with tempfile.TemporaryDirectory() as folder:
        [found] = tune.run(trial, metric="score", mode="max", storage_path=folder, verbose=0).trials
        print({name: float(value) for name, value in sorted(found.metric_analysis["score"].items())})
        print(found.num_failures, found.error_file, found.local_experiment_path == os.path.dirname(found.local_path))

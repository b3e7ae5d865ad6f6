"""Runs experiments, and resumes them: `Tuner`.

An experiment has a directory: `tuner.pickle` (its definition), a journal, and a directory for each trial that has
files. To resume, `Tuner` replays the journal into a new study and continues from there.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle

import mpi_runtime
import mpi_runtime.tune.experiment.driver as study_driver
import mpi_runtime.tune.experiment.resuming as resuming
from mpi_runtime import slurm
from mpi_runtime.config import IN_DIRECTORY, NO_FILES, NOT_DATED, NOT_STRICT, RESTORES, environment
from mpi_runtime.core import published
from mpi_runtime.errors import JournalError
from mpi_runtime.extend import first_version
from mpi_runtime.files import private
from mpi_runtime.files.writing import make_new_directory, replace_file
from mpi_runtime.show import log
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.by_name import with_objects
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints
from mpi_runtime.tune.experiment.results import ResultGrid
from mpi_runtime.tune.experiment.states import States
from mpi_runtime.tune.local_paths import folder, local_path
from mpi_runtime.tune.show.loggers import LOGGERS
from mpi_runtime.tune.show.progress import ProgressReporter, StopKeyWarning, shown_by
from mpi_runtime.tune.study.callback import Callback, checked, notify
from mpi_runtime.tune.study.events import Event
from mpi_runtime.tune.study.settings import ResumeConfig, RunConfig, TuneConfig, names_of
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Config, Trial, TuneError
from mpi_runtime.tune.trials.bundles import slots_for
from mpi_runtime.tune.trials.runner import RunSettings
from mpi_runtime.tune.trials.trainable import Prepared, Trainable, prepared
from mpi_runtime.tune.unsupported import WrongKindError

FILE = "tuner.pickle"
AS_RAY = "mpi_runtime.as_ray.install"
"""The module whose import makes `import ray` give this runtime."""
WARN_S = 120.0
"""How long before the end of a Slurm job trials must stop at their next report."""


@published("mpi_runtime.tune")
@dataclass
class Made:
    """The definition of an experiment: the content of its file."""

    space: Config
    tune: TuneConfig
    run: RunConfig
    trainable: Prepared
    prefix: str = ""
    """The beginning of the ids of its trials. Experiments of earlier versions have none."""


@published("mpi_runtime.tune")
class Tuner:
    """Runs trials of a function or a class with different parameters.

    def train(config):
        for epoch in range(10):
            tune.report({"loss": config["lr"] / (epoch + 1)})

    tuner = tune.Tuner(train, param_space={"lr": tune.loguniform(1e-4, 1.0)},
                       tune_config=tune.TuneConfig("loss", "min", num_samples=20))
    print(tuner.fit().get_best_result().config)
    """

    def __init__(
        self,
        trainable: object,
        *,
        param_space: Mapping[str, object] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        """Define an experiment.

        Args:
            trainable: a function of a config, a subclass of `Trainable`, the name of a registered one, or the result of
                `with_parameters` or `with_resources`.
            param_space: values and domains by name; nested dictionaries and lists may have domains too.
            tune_config: metric, searcher and scheduler.
            run_config: stops, failures, files and output.
        """
        self._prepared = prepared(trainable)
        if not isinstance(run_config, RunConfig | None):
            raise WrongKindError(f"run_config must be a RunConfig, not {run_config!r}")
        self._given, self._run = with_objects(tune_config or TuneConfig()), run_config or RunConfig()
        self._tune = _fresh(self._given)
        """An unused copy, for resumes."""
        self._space = checked_space(param_space, "param_space")
        if self._prepared.as_class is None:
            self._run.checkpoint_config.check_function()
        if culprit := _culprit({"trainable": self._prepared.target}):
            raise TypeError(f"The trainable cannot be serialised, so no trial can have it: {culprit}")
        self._folder()  # an error if it cannot be one
        self._callbacks = [checked(callback) for callback in self._run.callbacks]
        try:
            copy.deepcopy(self._space)
        except TypeError as error:
            why = _culprit(self._space) or error
            raise TypeError(f"The space cannot be copied, so trials cannot have it: {why}") from error
        self._directory: Path | None = None
        self._prefix = ""
        """The beginning of the ids of its trials."""
        self._study(1)  # checks the settings before the first trial
        self._how = ResumeConfig()
        self._results: ResultGrid | None = None
        self._kept: KeptCheckpoints | None = None
        self._lines = 0
        """The number of lines in the journal."""
        self._superseded: list[str] = []
        """The checkpoints that the last run was about to remove."""

    _is_training = False
    """Whether it is that of a trainer: its only trial has the directory of the experiment."""

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: object = None,
        *,
        param_space: Mapping[str, object] | None = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        storage_filesystem: object = None,
    ) -> Tuner:
        """An interrupted experiment: `fit` continues it.

        Args:
            path: its directory, in a `storage_filesystem` as of `RunConfig`.
            trainable: the same function or class, perhaps with a fix; None: the earlier one.
            param_space: the same space. Needed if it has references to objects or actors: they ended with their job,
                and the new ones replace them. So do other objects that are no numbers, texts, lists or dictionaries.
            resume_unfinished: whether running trials continue from their last checkpoints; else they end there, and
                trials of a grid or of random values that have not begun do not run.
            resume_errored: whether failed trials continue from their last checkpoints.
            restart_errored: whether failed trials start from scratch, unless `resume_errored` is True.

        Raises:
            JournalError: the directory has no experiment.
            PermissionError: another user may write to the directory, or it has symbolic links: loading could run code.
            ValueError: the trainable or the space differs.
        """
        directory = local_path(path, storage_filesystem).resolve()
        if not (directory / FILE).is_file():
            raise JournalError(f"{directory} has no experiment to restore: there is no {FILE} in it")
        made = _made(directory)
        name, again = made.trainable.name, made.trainable if trainable is None else prepared(trainable)
        if again.target is None:
            raise ValueError(f"{name} was made by with_parameters, and its values ended with the job: pass it again")
        if again.name != name:
            raise ValueError(
                f"The experiment {directory} was made for {name!r}, not for {again.name!r}. Pass the same "
                "function or class."
            )
        if param_space is not None and (differs := resuming.difference(made.space, dict(param_space))):
            raise ValueError(f"The experiment {directory} has another space: {differs}. Omit param_space.")
        space = made.space if param_space is None else param_space
        tuner = cls(again, param_space=space, tune_config=made.tune, run_config=made.run)
        tuner._directory, tuner._prefix = directory, made.prefix
        kind = ResumeConfig.ResumeType
        errored = kind.RESUME if resume_errored else kind.RESTART if restart_errored else kind.SKIP
        tuner._how = ResumeConfig(unfinished=kind.RESUME if resume_unfinished else kind.SKIP, errored=errored)
        return tuner

    @staticmethod
    def can_restore(path: str | os.PathLike[str], storage_filesystem: object = None) -> bool:
        """Whether a directory has an experiment. `storage_filesystem`: see `RunConfig`."""
        return local_path(path, storage_filesystem).joinpath(FILE).is_file()

    def get_results(self) -> ResultGrid:
        """The results of `fit`, or of a restored experiment so far.

        Raises:
            RuntimeError: there are none yet.
        """
        if self._results is None and self._directory is None:
            raise RuntimeError("there are no results yet: call fit()")
        if self._results is None:
            self._results = ResultGrid.of(self._replayed(1)[0], self._home, self._kept)
        return self._results

    def fit(self) -> ResultGrid:
        """Run all trials, and return their results. Starts a job if none runs.

        If the directory of `RunConfig(name=...)` has an experiment, this one gets a directory with a number after that
        name, and a line is logged.

        Raises:
            InfeasibleResourceError: no node is large enough for a trial.
            JournalError: another program runs this experiment.
            TuneError: a trial has failed, and FailureConfig has fail_fast="raise"; or in each trial the metric is
                missing, or `stop` raises.
        """
        run, slots = self._run, self._slots()  # first: where the job starts, other ranks become workers
        if self._directory is None and run.on_walltime == "requeue":
            found = self._folder() / str(run.name)
            if self.can_restore(found):  # this job was requeued
                self._directory, self._prefix = found, _made(found).prefix
        is_new = self._directory is None
        if self._directory is None:
            self._directory = self._made_directory()
            self._prefix = f"{os.urandom(3).hex()[:5]}_"  # people name trainings and files by the ids of trials
        study, passed = (self._study(slots, self._given), 0.0) if is_new else self._replayed(slots)
        header = journal.header_of(self._prepared.name, study, run.checkpoint_config)
        log = journal.Journal(self._directory, self._lines, header)
        try:
            if is_new:
                self._write()
            self._drive(study, log, passed, slots)
        finally:
            log.close()
        self._results = ResultGrid.of(study, self._home, self._kept)
        if run.failure_config.fail_fast == "raise" and self._results.errors:
            raise self._results.errors[0]
        if study.hopeless:
            raise TuneError(study.hopeless)
        return self._results

    @property
    def _home(self) -> Path:
        """The directory of the experiment, once it is known."""
        assert self._directory is not None
        return self._directory

    def _drive(self, study: Study, log: journal.Journal, passed: float, slots: int) -> None:
        run = self._run
        callbacks = [*self._callbacks, *self._loggers()]
        callbacks += shown_by(run.progress_reporter, run.verbose)
        if isinstance(run.stop, Mapping):
            callbacks.append(StopKeyWarning(run.stop))
        plan = self._plan(study, callbacks)
        driver = study_driver.Driver(study, plan, log, passed)
        known = {"total_samples": study.most, "metric": study.metric, "mode": study.mode, "start_time": time.time()}
        for callback in callbacks:
            callback.setup(
                stop=run.stop,
                num_samples=self._tune.num_samples,
                total_num_samples=study.most,
                path=os.fspath(self._home),
                driver=driver,
                **(known if isinstance(callback, ProgressReporter) else {}),
            )
        first: list[Event] = []
        driver.states = states = States(study.searcher, self._callbacks, self._home)
        if self._lines:
            states.restore()
            self._replay_for(callbacks)
            most = self._tune.max_concurrent_trials
            slots = min(slots, most) if most else slots
            driver.remove(self._superseded)
            first = resuming.resumed(study, plan.kept, slots, self._how)
        try:
            with _at_walltime(driver, run.on_walltime):
                driver.run(first)
        finally:
            for callback in callbacks:
                callback.on_experiment_end(trials=study.created)
            states.end()

    def _loggers(self) -> list[Callback]:
        """The loggers of `RunConfig(files=...)`. Under Ray's name it has two, unless the program has its own."""
        files = self._run.files
        if not files and AS_RAY in sys.modules and environment().get(NO_FILES, "0") != "1" and not self._is_training:
            files = ("csv", "json")
        return [LOGGERS[name]() for name in files if not any(type(one) is LOGGERS[name] for one in self._callbacks)]

    def _plan(self, study: Study, callbacks: Sequence[Callback]) -> study_driver.Plan:
        config, checkpoints = self._tune, self._run.checkpoint_config
        self._kept = self._kept or KeptCheckpoints(checkpoints, self._home, is_training=self._is_training)
        frequency = checkpoints.checkpoint_frequency or int(study.scheduler.needs_checkpoints)
        saves, cls = checkpoints.checkpoint_at_end, self._prepared.as_class
        can_save = cls is not None and cls.save_checkpoint is not Trainable.save_checkpoint
        if saves is None:
            saves = can_save
        elif can_save and not saves and not study.scheduler.judges_last:
            frequency = frequency or 1  # a scheduler written for Ray may pause at any report
        # What memory loses is lost for good: of those that a score ranks, also the best of hours ago.
        is_ray = AS_RAY in sys.modules  # Ray writes each, and programs read those that are kept
        persist_s = 0.0 if is_ray or checkpoints.checkpoint_score_attribute is not None else checkpoints.persist_s
        in_directory = is_ray and environment().get(IN_DIRECTORY, "1") != "0"
        settings = RunSettings(
            config.seed,
            config.reuse_actors is True,
            persist_s,
            frequency,
            saves,
            in_directory,
            names_of(self._run.log_to_file),
            int(environment().get(RESTORES, "0")),
        )
        return study_driver.Plan(self._prepared, config, settings, self._home, self._kept, callbacks, self._again())

    def _again(self) -> str:
        """How its user continues it, in words."""
        return "continue it with Tuner.restore(directory, trainable).fit()"

    def _replay_for(self, callbacks: Sequence[Callback]) -> None:
        """Send loggers the events of earlier runs, so that their files have all of them once."""
        again = [callback for callback in callbacks if callback.replays]
        if not again:
            return
        study = self._study(1)
        for line in resuming.replayed(study, self._home):
            changed, study.changed, study.configs = study.changed, {}, {}
            notify(again, line.number, study, line.event, changed.values())

    def _replayed(self, slots: int) -> tuple[Study, float]:
        """The study after its journal, and how long it had run."""
        study = self._study(slots)
        self._kept = KeptCheckpoints(self._run.checkpoint_config, self._home, True, self._is_training)
        now = 0.0
        for line in resuming.replayed(study, self._home):
            now, self._lines = line.now, line.number + 1
            for trial_id, config in line.configs.items():
                resuming.check_config(study, trial_id, config)
            changed, study.changed, study.configs = study.changed, {}, {}
            self._kept.follow(line.event, study.trials, changed.values())
        self._superseded = self._kept.replayed()
        return study, now

    def _study(self, slots: int, tune: TuneConfig | None = None) -> Study:
        space, settings = copy.deepcopy(self._space), replace(tune) if tune else _fresh(self._tune)
        if AS_RAY in sys.modules and settings.trial_dirname_creator is None:
            settings.trial_dirname_creator = trial_dirname
        place, is_strict = str(self._directory or ""), environment().get(NOT_STRICT, "0") == "0"
        is_function = self._prepared.as_class is None and not self._is_training
        return Study(
            space, settings, self._run, slots, place, self._prefix, self._is_training, is_strict, self._prepared.name,
            is_function,
        )  # fmt: skip

    def _slots(self) -> int:
        wanted = self._prepared.resources
        nodes = [node for node in mpi_runtime.nodes() if node["Alive"]]
        if callable(wanted) or (wanted is None and self._prepared.as_class is not None):
            return max(1, sum(int(node["Resources"].get("CPU", 1)) for node in nodes))
        return slots_for(self._prepared.request({}), nodes)

    def _made_directory(self) -> Path:
        date = "" if environment().get(NOT_DATED) == "1" else time.strftime("_%Y-%m-%d_%H-%M-%S")
        name = self._run.name or self._prepared.name + date
        wanted = directory = self._folder() / name
        is_taken = self._run.name is not None and self.can_restore(wanted)
        try:
            if self._run.name is None or is_taken:
                directory = make_new_directory(wanted, 0o700)  # others may begin in the same second
            private.make_directory(directory)
        except OSError as error:
            raise journal.unwritable(error, directory) from error
        if is_taken:
            text = (
                f"There is an experiment in {wanted} already, so this one is in {directory}. To continue the earlier "
                "one: Tuner.restore(path, trainable).fit()."
            )
            log.say(log.line(log.WARNING, log.EXPERIMENT, text), quiet=False)
        return directory

    def _folder(self) -> Path:
        return folder(self._run.storage_path, self._run.storage_filesystem)

    def _write(self) -> None:
        run = replace(self._run, progress_reporter=None)
        # The values of `with_parameters` are references, which end with the job.
        kept = Prepared(None, name=self._prepared.name) if self._prepared.parameters else self._prepared
        try:
            data = cloudpickle.dumps(Made(self._space, self._tune, run, kept, self._prefix))
        except (TypeError, pickle.PicklingError) as error:
            parts = {**self._space, "trainable": self._prepared, "tune_config": self._tune, "run_config": run}
            raise TypeError(f"The experiment cannot be serialised: {_culprit(parts) or error}") from error
        replace_file(os.fspath(self._home / FILE), data)


def checked_space(space: object, name: str) -> Config:
    """Return a copy of a space; None becomes an empty one. TypeError: it is not a dictionary."""
    if not isinstance(space, Mapping | None):
        raise WrongKindError(f"{name} must be a dictionary of values and domains by name, not {space!r}")
    return dict(space or {})


def trial_dirname(trial: Trial) -> str:
    """The name of a trial's directory under Ray's name: that of the trial, and what was drawn for it."""
    return f"{trial}_{trial.experiment_tag}"


def _made(directory: Path) -> Made:
    """The definition of the experiment in a directory. PermissionError: loading it could run another user's code."""
    private.check(directory)
    made: Made = first_version.loads((directory / FILE).read_bytes())
    return made


def _culprit(parts: Mapping[str, object]) -> str:
    """The first of these that cannot be serialised, with the error."""
    for name, value in parts.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:  # noqa: PERF203
            return f"{name}: {error}"
    return ""


def _fresh(tune: TuneConfig) -> TuneConfig:
    """The settings with copies of the searcher and the scheduler."""
    return replace(tune, search_alg=copy.deepcopy(tune.search_alg), scheduler=copy.deepcopy(tune.scheduler))


@contextlib.contextmanager
def _at_walltime(driver: study_driver.Driver, what: str | None) -> Iterator[None]:
    """Before the job's time ends, stop trials at their next report, and perhaps requeue the job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if what is None and not slurm.allocation().system:
        yield  # this job has no time limit
        return
    is_near = threading.Event()

    def leave() -> None:
        is_near.set()
        driver.leave()

    slurm.before_walltime(WARN_S, leave)
    yield
    if is_near.is_set() and what == "requeue":
        slurm.requeue()

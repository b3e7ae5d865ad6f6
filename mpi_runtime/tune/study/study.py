"""An experiment as a state machine: events go in, orders come out. It has no clock and does nothing itself.

A search for hyper-parameters runs *trials*: the same function with different *configurations*. Each trial reports a
metric from time to time. Three parts decide, and users bring their own: a *searcher* suggests configurations, a
*scheduler* compares reports and stops, pauses or changes trials, a *stopper* ends trials or all of it. The study is
what is between them, and the only code that changes the status of a trial.

    events: Reported, Ended, Failed, Crashed, Woken ...  -->  Study.handle(event, now)  -->  Start, Continue, Halt

            PENDING --Start--> RUNNING --> TERMINATED or ERROR
               ^                  |
               |                  v
               +------------- PAUSED        (also from RUNNING, when it fails and may run again)

The idea: the caller performs the orders. `experiment/` does so with processes, `simulate` in virtual time. The same
seed and the same order of events make the same decisions. So a journal of events restores a study, and a test of a
scheduler takes milliseconds.

What always holds:

- No trial starts while `slots` trials run. A trial that has reported waits until it gets `Continue` or `Halt`.
- A searcher learns the end of each trial once, also if the trial is revived.
- A higher score is better: the study turns the sign for `mode="min"`. What is not a number is minus infinity.
- Random numbers of trial n come from the seed and n, not from a common stream: that would depend on which is faster.

Not obvious: one report may decide about other trials, which are paused then (`_apply`). Trials that run again go before
paused ones that the scheduler promotes, those before new ones (after them, if it `prefers_new`), and last come trials
that gave way (`_next`). If nothing runs and trials are paused, the scheduler is asked once more (`on_idle`); those that
it does not promote end.
"""

from __future__ import annotations

import copy
import datetime
import math
import numbers
import re
from collections import deque
from collections.abc import Callable, Mapping

from mpi_runtime.tune.counting import begun, completed, folder_of, leaves, tag
from mpi_runtime.tune.schedulers.base import (
    CONTINUE,
    PAUSE,
    STOP,
    YIELD,
    Exploit,
    FIFOScheduler,
    TrialScheduler,
    Verdict,
    Verdicts,
)
from mpi_runtime.tune.schedulers.controlled import Controlled, is_controlled
from mpi_runtime.tune.search.base import DRAWS, BasicVariantGenerator, Searcher
from mpi_runtime.tune.space.variants import has_grid, resolve, rng_of, sampled
from mpi_runtime.tune.space.variants import merged as merged_space
from mpi_runtime.tune.study import events
from mpi_runtime.tune.study.events import Continue, Event, Fail, Halt, Order, Start
from mpi_runtime.tune.study.settings import RunConfig, TuneConfig
from mpi_runtime.tune.study.stoppers import CombinedStopper, as_stopper, ends_all, time_limit
from mpi_runtime.tune.trial import (
    DEFAULT_METRIC,
    Config,
    Report,
    ReportError,
    Trial,
    as_number,
    check_goal,
    count_in,
    flat,
    has_value,
    is_number,
    named_in,
    required,
    sign_of,
    text,
    trial_id_of,
)

NAME_MAX = 200
"""The most bytes of a name of a directory that the program gives. File systems have 255."""
RESERVED = re.compile(r".*\.(journal|pickle|pkl|txt|html)|owner-\d+", re.DOTALL)
"""Names of files that an experiment has itself."""
LOSSES_MAX = 2
"""How often in a row a trial may pause where it has paused before, without a checkpoint."""
ASKED_MAX = 1000
"""How often a searcher that suggests nothing is asked again if no trial runs."""


class Study:
    """The trials of one experiment. `begin` and `handle` return orders for the driver."""

    recall: Callable[[str, Config], Config] | None = None
    """While a journal is replayed: makes of a drawn configuration the one that the trial had."""

    def __init__(
        self,
        space: Mapping[str, object],
        tune: TuneConfig,
        run: RunConfig,
        slots: int = 1,
        directory: str = "",
        prefix: str = "",
        is_training: bool = False,
        is_strict: bool = True,
        trainable_name: str = "",
        is_function: bool = False,
    ) -> None:
        """Check the settings before the first trial. `slots` trials have room, of which `tune` may allow fewer.

        The `directory` of the experiment is empty in virtual time. Ids of trials have the `prefix` before their number.
        The only trial of a training has the directory of the experiment. If it is not strict, a report without the
        metric is not compared. Names of trials have the name of their function or class. Reports of a function name
        the directories of their checkpoints, as in Ray Tune.
        """
        _check_types(tune)
        self.space, self.directory, self.seed = dict(space), directory, tune.seed
        self._prefix, self.is_training, self._is_strict = prefix, is_training, is_strict
        self.trainable_name, self.is_function = trainable_name, is_function
        self._folder_of, self._folders = tune.trial_dirname_creator, set[str]()
        self.unjudged: dict[str, str] = {}
        """By trial: why its last report could not be judged."""
        self.searcher: Searcher = tune.search_alg or BasicVariantGenerator()  # type: ignore[assignment]
        self.scheduler = _scheduler_of(tune)
        self.stopper = as_stopper(copy.deepcopy(run.stop))  # it counts, and a resume replays this experiment
        self.failure = run.failure_config
        self.slots = _slots(slots, tune, self.searcher)
        """The number of trials that may run at a time."""
        budget = tune.time_budget_s
        budget_s = budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget
        self.time_limit_s = min(math.inf if budget_s is None else budget_s, time_limit(self.stopper))
        """The seconds after which it ends; infinity: no limit."""
        self._agree_on_goal(tune)
        self._check(tune)
        self.scheduler.begin(self.seed)
        self.searcher.set_search_properties(
            self.metric, self.mode, self.space, seed=self.seed, num_samples=tune.num_samples
        )
        self.trials: dict[str, Trial] = {}
        self.created: list[Trial] = []
        """The same, for callbacks: a list of them for each event would cost too much."""
        self.deadline = math.inf
        """The time at which it ends, by the event `Woken`."""
        self.most = self.searcher.trials(tune.num_samples)
        """The number of trials; None: unlimited."""
        self._running: dict[str, Trial] = {}
        self._paused: dict[str, Trial] = {}
        self._again: deque[Trial] = deque()
        """Trials that run again before new ones."""
        self._yielded: deque[Trial] = deque()
        """Paused trials that gave way to others."""
        self._searched: set[str] = set()
        """Ended trials, reported to the searcher: once each, even if one is revived."""
        self._is_closed = False
        self._orders: list[Order] = []
        self.known: Mapping[str, str] | None = None
        """While the journal of a training is replayed: the states after this event. Earlier runs may have had other
        settings of failures and stops, and what they decided stays."""
        self.known_folders: Mapping[str, str] | None = None
        """While a journal is replayed: the folders of new trials, if they are not their ids."""
        self.changed: dict[str, Trial] = {}
        """Trials whose status changed since the driver last cleared this."""
        self.configs: dict[str, Config] = {}
        """The configurations of trials that are new or have a new one, since then."""

    def _check(self, tune: TuneConfig) -> None:
        """Refuse grids that the searcher cannot have, and numbers without a meaning."""
        if has_grid(self.space) and not self.searcher.takes_grids:
            name = type(self.searcher).__name__
            raise ValueError(f"{name} cannot search grids, and the space has grid_search. Use choice instead.")
        if (tune.num_samples < 1 and tune.num_samples != -1) or tune.num_samples % 1:
            raise ValueError(
                f"num_samples={tune.num_samples}: it must be a whole number, at least 1, or -1 for no limit"
            )
        if self.slots < 1:
            raise ValueError(f"max_concurrent={self.slots} would never start a trial")

    def _agree_on_goal(self, tune: TuneConfig) -> None:
        """Find metric and mode: of the experiment, its scheduler, or its searcher."""
        self.metric = _agreed("metric", tune.metric, self.scheduler)
        self.mode = _agreed("mode", tune.mode, self.scheduler)
        if self.metric is None and self.mode is None:
            self.metric, self.mode = getattr(self.searcher, "metric", None), getattr(self.searcher, "mode", None)
            if isinstance(self.metric, list | tuple):  # the searcher compares by several, and nothing else compares
                self.metric = self.mode = None
        check_goal(self.metric, self.mode)
        self._is_named = self.metric is not None
        if self.metric is None and self.mode is not None:
            self.metric = DEFAULT_METRIC
        self._sign = sign_of(self.mode or "max")
        if self.scheduler.needs_metric and (self.metric is None or self.mode is None):
            name = type(self.scheduler.own).__name__
            raise ValueError(
                f"{name} compares trials, but by what? Pass metric and mode to it, or to TuneConfig, not "
                f"metric={self.metric!r} and mode={self.mode!r}."
            )

    @property
    def is_done(self) -> bool:
        """Whether no trial runs, nor will any."""
        return not self._running

    @property
    def hopeless(self) -> str:
        """Why no trial could be judged; empty: at least one was. A training has an error of its own."""
        if self.is_training or not self.unjudged or len(self.unjudged) < len(self.trials):
            return ""
        return f"No report of any trial could be judged. {next(iter(self.unjudged.values()))}"

    @property
    def is_passive(self) -> bool:
        """Whether every report is followed by `Continue`, unless it has `done`."""
        has_stopper = not isinstance(self.stopper, CombinedStopper) or bool(self.stopper.stoppers)
        return self.scheduler.is_passive and not has_stopper

    def begin(self, now: float) -> list[Order]:
        """Start the first trials. `now` counts seconds from any moment."""
        self.deadline = now + self.time_limit_s
        return self._filled(now)

    def handle(self, event: Event, now: float) -> list[Order]:
        """Handle an event, and return orders to be performed in this order."""
        match event:
            case events.Reported():
                why = self._reported(self._running[event.trial_id], event, now)
                if why:
                    return [Fail(event.trial_id, why)]  # nothing is decided; `Failed` follows
            case events.Judged():
                self._validated(self.trials[event.trial_id], event)
            case events.Ended():
                self._finish(self._running[event.trial_id], Trial.TERMINATED, is_halted=False)
            case events.Failed():
                trial = self._running[event.trial_id]
                trial.failures += 1
                self._broken(trial, event.error, trial.failures, self.failure.max_failures)
            case events.Crashed():
                trial = self._running[event.trial_id]
                trial.crashes += 1
                self._broken(trial, event.error, trial.crashes, self.failure.max_crashes)
            case events.Moved():
                self._moved(self.trials[event.trial_id], event)
            case events.Revived():
                self._revived(self.trials[event.trial_id])
            case events.Skipped():
                self._skip()
            case events.Sized():
                self.slots = event.slots
            case events.Woken():
                pass
        if self.known is None and (now >= self.deadline or ends_all(self.stopper)):
            self._close()
        return self._filled(now)

    def _validated(self, trial: Trial, event: events.Judged) -> None:
        if trial.checkpoint_at.iteration == trial.iteration and getattr(trial.point, "number", -1) == event.number:
            trial.reported = {**trial.reported, **event.metrics}  # no later report has replaced it

    def _moved(self, trial: Trial, event: events.Moved) -> None:
        trial.point, trial.checkpoint_at = event.checkpoint, event.at
        if trial.status == Trial.RUNNING:
            self._run_again(trial)

    def _revived(self, trial: Trial) -> None:
        if not trial.is_finished():
            raise RuntimeError(f"trial {trial.trial_id} cannot be revived: it is {trial.status}")
        trial.error, trial.failures, trial.crashes = None, 0, 0
        self._is_closed = False  # by `fail_fast`: what has not begun may begin
        self._move(trial, Trial.PENDING)
        self.scheduler.on_trial_add(trial)
        self._again.append(trial)

    def _skip(self) -> None:
        """End all trials that have not ended."""
        while self.searcher.takes_grids and self.most is not None and self._new() is not None:
            pass
        self._again.clear()
        self._yielded.clear()
        for trial in self.created:
            if not trial.is_finished():
                self._finish(trial, Trial.TERMINATED)

    def _move(self, trial: Trial, status: str) -> None:
        trial.moved(status)
        self.changed[trial.trial_id] = trial

    def _reported(self, trial: Trial, event: events.Reported, now: float) -> str:
        """Decide about a report. Returns why it cannot be judged; empty: it was."""
        result = named_in(completed(trial, event.metrics, now), self.metric)
        if self.is_function:
            result["checkpoint_dir_name"] = folder_of(event.checkpoint)
        if event.checkpoint is not None:
            trial.point, trial.checkpoint_at = event.checkpoint, trial.progress
        trial.last_result, trial.reported = result, dict(event.metrics)
        try:
            _check_counts(trial, event.metrics)
            verdicts = self._judged(trial, result)
            if verdicts[trial.trial_id] == PAUSE:
                _check_progress(trial, self.scheduler)
        except ReportError as error:
            self.unjudged[trial.trial_id] = str(error)
            return str(error)
        self.unjudged.pop(trial.trial_id, None)
        self._perform(trial, verdicts.pop(trial.trial_id))
        self._apply(verdicts)
        return ""

    def _judged(self, trial: Trial, result: Report) -> Verdicts:
        """The decisions that follow from a report, about its trial and others. ReportError: it cannot be judged."""
        is_compared = self._can_compare(result)
        time, score = self._compared(trial, result) if is_compared else (float(trial.iteration), -math.inf)
        if self.mode is not None and self.metric in result and (score > trial.best_score or not trial.best_result):
            trial.best_score, trial.best_result = score, result
        is_stopped = self._is_stopped(trial, result)
        is_heard = is_compared and (self.scheduler.judges_last or not is_stopped)
        verdicts = self.scheduler.on_trial_result(trial, time, score) if is_heard else {}
        if is_stopped:
            verdicts[trial.trial_id] = STOP
        if verdicts.setdefault(trial.trial_id, CONTINUE) != STOP and trial.trial_id not in self._searched:
            self.searcher.on_trial_result(trial_id=trial.trial_id, result=flat(result))
        return verdicts

    def _can_compare(self, result: Report) -> bool:
        """Whether to compare a report. One without the metric is an error then, unless that does not matter."""
        if self.metric is None or has_value(result, self.metric):
            return self.scheduler.is_strict or has_value(result, self.scheduler.time_attr)
        return self._is_strict and self.scheduler.is_strict

    def _is_stopped(self, trial: Trial, result: Report) -> bool:
        try:
            is_stopped = bool(self.stopper(trial.trial_id, result) or result["done"])
            return is_stopped if self.known is None else self.known.get(trial.trial_id) == Trial.TERMINATED
        except ReportError:
            raise
        except Exception as error:  # of a function that reads the report
            raise ReportError(
                f"`stop` cannot judge report {trial.iteration} of trial {trial.trial_id}: it raised {text(error)}. "
                f"The report has {sorted(map(str, result))}. Report what `stop` reads, or have it read less."
            ) from error

    def _compared(self, trial: Trial, result: Report) -> tuple[float, float]:
        """The time and the score of a report for the scheduler; a higher score is better."""
        score = -math.inf
        if self.metric is not None and (self._is_named or self.metric in result or self.scheduler.needs_metric):
            value = _number("metric", self.metric, trial, result)
            score = -math.inf if math.isnan(value) else self._sign * value
        own = getattr(self.searcher, "metric", None)
        for wanted in own if isinstance(own, list | tuple) else [own]:
            if wanted is not None and wanted != self.metric:
                required(result, wanted, f"metric {wanted!r} of {type(self.searcher).__name__}", _where(trial))
        if not self.scheduler.needs_metric:
            return float(trial.iteration), score
        name = self.scheduler.time_attr
        time = _number("time_attr", name, trial, result)
        if math.isnan(time) or (trial.last_time is not None and time < trial.last_time):
            raise ReportError(
                f"{name} of trial {trial.trial_id} went from {trial.last_time} to {time}. The scheduler measures "
                "progress by it, so it must not decrease. Choose another time_attr, or report one that grows."
            )
        trial.last_time = time
        return time, score

    def _perform(self, trial: Trial, verdict: Verdict) -> None:
        """Apply the decision about the trial that has reported."""
        if verdict == STOP:
            self._orders.append(Halt(trial.trial_id))
            self._finish(trial, Trial.TERMINATED)
            return
        if verdict == YIELD:
            other = self._next()
            if other is not None:
                self._again.appendleft(other)
                self._pause(trial)
                self._yielded.append(trial)
                return
        if isinstance(verdict, Exploit):
            self._exploit(trial, verdict)
        elif verdict == PAUSE:
            self._pause(trial)
        else:
            self._orders.append(Continue(trial.trial_id))

    def _apply(self, verdicts: Verdicts) -> None:
        """Apply decisions about paused trials."""
        for trial_id, verdict in verdicts.items():
            trial = self._paused.get(trial_id)
            if trial is None:
                continue  # it ended at the report that led to this decision
            if verdict == STOP:
                self._finish(trial, Trial.TERMINATED)
            elif isinstance(verdict, Exploit):
                self._exploit(trial, verdict)
            else:
                self._run_again(trial)

    def _exploit(self, trial: Trial, verdict: Exploit) -> None:
        """Let a trial continue from another one. `Halt`: what it may still save at its end is not its own any more."""
        trial.config = self.configs[trial.trial_id] = verdict.config
        trial.point, trial.checkpoint_at = verdict.source.point, verdict.source.checkpoint_at
        self._orders.append(Halt(trial.trial_id))
        self._run_again(trial)

    def _pause(self, trial: Trial) -> None:
        has_saved = trial.checkpoint_at.iteration == trial.iteration
        self._orders.append(Halt(trial.trial_id, None if has_saved else trial.progress))
        del self._running[trial.trial_id]
        self._move(trial, Trial.PAUSED)
        self._paused[trial.trial_id] = trial

    def _run_again(self, trial: Trial) -> None:
        self._running.pop(trial.trial_id, None)
        self._paused.pop(trial.trial_id, None)
        self._move(trial, Trial.PENDING)
        self._again.append(trial)

    def _broken(self, trial: Trial, error: object, count: int, most: int) -> None:
        trial.error = error
        runs_again = most == -1 or count <= most
        if runs_again if self.known is None else self.known.get(trial.trial_id) != Trial.ERROR:
            self._run_again(trial)
            return
        self._finish(trial, Trial.ERROR)
        if self.failure.fail_fast:
            self._close()

    def _finish(self, trial: Trial, status: str, is_halted: bool = True) -> None:
        """End a trial for good, and inform the searcher and the scheduler. `is_halted`: see `Trial`."""
        trial.is_halted = is_halted and status == Trial.TERMINATED and not trial.reported.get("done")
        self._running.pop(trial.trial_id, None)
        self._paused.pop(trial.trial_id, None)
        self._move(trial, status)
        if trial.last_result:
            trial.last_result |= {"done": True, "experiment_tag": trial.experiment_tag}
        is_error = status == Trial.ERROR
        if not is_error:
            trial.error = None
        result = None if is_error or not trial.last_result else flat(trial.last_result)
        if trial.trial_id not in self._searched:
            self._searched.add(trial.trial_id)
            self.searcher.on_trial_complete(trial_id=trial.trial_id, result=result, error=is_error)
        self._apply(self.scheduler.on_trial_end(trial))
        if not trial.last_result and status == Trial.TERMINATED and not trial.is_halted:
            trial.last_result = {"done": True, "trial_id": trial.trial_id, "config": trial.config}

    def _close(self) -> None:
        """End all trials; no further one starts."""
        self._is_closed = True
        for trial in list(self._running.values()):
            self._orders.append(Halt(trial.trial_id))
            self._finish(trial, Trial.TERMINATED)
        self._end_paused()

    def _end_paused(self) -> None:
        while self._paused:  # the end of one may change the others
            self._finish(next(iter(self._paused.values())), Trial.TERMINATED)

    def _filled(self, now: float) -> list[Order]:
        """Start trials, and return the orders."""
        self._start(now)
        while not self._running and self._paused and not self._is_closed:
            self._apply(self.scheduler.on_idle())
            self._start(now)
            if not self._running:
                self._end_paused()  # nothing can promote them
                self._start(now)  # a searcher that waited for their ends may continue
        orders, self._orders = self._orders, []
        return orders

    def _start(self, now: float) -> None:
        while not self._is_closed and len(self._running) < self.slots:
            trial = self._next()
            if trial is None:
                return
            self._move(trial, Trial.RUNNING)
            begun(trial, now)
            trial.last_time = None
            self._running[trial.trial_id] = trial
            self._orders.append(Start(trial.trial_id, copy.deepcopy(trial.config), trial.point))

    def _next(self) -> Trial | None:
        """The trial to run next, PENDING: a known or a new one."""
        if self._again:
            return self._again.popleft()
        if self.scheduler.prefers_new and (first := self._new()) is not None:
            return first
        while (trial_id := self.scheduler.choose_paused()) is not None:
            if trial_id in self._paused:  # unless a stopper ended it at the report at which it paused
                trial = self._paused.pop(trial_id)
                self._move(trial, Trial.PENDING)
                return trial
        new = self._new()
        if new is not None:
            return new
        while self._yielded:
            trial = self._yielded.popleft()
            if self._paused.pop(trial.trial_id, None) is not None:
                self._move(trial, Trial.PENDING)
                return trial
        return None

    def _new(self) -> Trial | None:
        index = len(self.trials)
        if self.most is not None and index >= self.most:
            return None
        trial_id = trial_id_of(self._prefix, index)
        config = None
        for _ in range(ASKED_MAX):
            config = self.searcher.suggest(trial_id)
            if config is not None or self._running or self._paused:
                break
        if config == Searcher.FINISHED:
            self.most = index
            return None
        if config is None:
            if not self._running and not self._paused:
                raise ValueError(
                    f"{type(self.searcher).__name__}.suggest({trial_id!r}) returned None {ASKED_MAX} times, but no "
                    "trial runs that it could wait for. Return a configuration, or Searcher.FINISHED."
                )
            return None
        if not isinstance(config, dict):
            raise TypeError(
                f"{type(self.searcher).__name__}.suggest({trial_id!r}) returned {config!r}, which is not a "
                "configuration. Return a dictionary, None to wait, or Searcher.FINISHED."
            )
        suggested = config
        if not self.searcher.takes_grids:
            config = resolve(merged_space(self.space, config), {}, rng_of(self.seed, index, DRAWS))
        if self.recall is not None:
            config = self.recall(trial_id, config)
        trial = self.trials[trial_id] = Trial(trial_id, index, config, trainable_name=self.trainable_name)
        self.configs[trial_id] = config
        if self.searcher.takes_grids:
            drawn = sampled(self.space, config)
            trial.experiment_tag = tag(index, drawn)
        else:
            drawn = leaves(suggested)
            trial.experiment_tag = tag(index + 1, leaves(config))
        trial.evaluated_params = {"/".join(map(str, path)): value for path, value in drawn.items()}
        trial.folder = "" if self.is_training else self._named_folder(trial)
        if self.directory:
            trial.local_path = self.directory if self.is_training else f"{self.directory}/{trial.folder}"
        self.created.append(trial)
        self.scheduler.on_trial_add(trial)
        return trial

    def _named_folder(self, trial: Trial) -> str:
        """The name of the directory of a new trial: its id, or the one that the program gives it."""
        if self.known_folders is not None:
            found = self.known_folders.get(trial.trial_id, trial.trial_id)
            self._folders.add(found)
            return found
        if self._folder_of is None:
            return trial.trial_id
        name = str(self._folder_of(trial))
        if "/" in name or name.strip(".") == "":
            raise ValueError(f"trial_dirname_creator returned {name!r} for trial {trial.trial_id}: it must be a name")
        name = re.sub(r'[()<>:"\\|?*\0]', "_", name).encode()[:NAME_MAX].decode(errors="ignore")
        is_taken = name in self._folders or RESERVED.fullmatch(name)
        found = f"{name}_{trial.trial_id}" if is_taken else name
        self._folders.add(found)
        return found


def _slots(slots: int, tune: TuneConfig, searcher: Searcher) -> int:
    """The number of trials that may run at a time, by the settings and the searcher."""
    own: int = getattr(searcher, "max_concurrent", 0)
    if own and tune.max_concurrent_trials not in (None, own):
        raise ValueError(
            f"max_concurrent_trials={tune.max_concurrent_trials}, and {type(searcher).__name__} has "
            f"max_concurrent={own}: choose one"
        )
    return min(one for one in (slots, tune.max_concurrent_trials, own or None) if one is not None)


def _scheduler_of(tune: TuneConfig) -> TrialScheduler:
    own: TrialScheduler = tune.scheduler or FIFOScheduler()  # type: ignore[assignment]
    return Controlled(own, tune.metric, tune.mode) if is_controlled(type(own)) else own


def _check_types(tune: TuneConfig) -> None:
    if tune.scheduler is not None and not isinstance(tune.scheduler, TrialScheduler):
        raise TypeError(f"scheduler must be a TrialScheduler such as ASHAScheduler(), not {tune.scheduler!r}")
    if tune.search_alg is not None and not isinstance(tune.search_alg, Searcher):
        raise TypeError(f"search_alg must be a Searcher, or None for grids and random values, not {tune.search_alg!r}")
    if not isinstance(tune.seed, numbers.Integral) or tune.seed < 0:
        raise TypeError(f"seed must be a whole number, 0 or more, not {tune.seed!r}")


def _agreed(name: str, value: str | None, scheduler: TrialScheduler) -> str | None:
    """The metric or mode of the experiment and its scheduler, if they do not contradict each other."""
    own: str | None = getattr(scheduler, name)
    if value is not None and own is not None and value != own:
        raise ValueError(
            f"{name} is {value!r} for the experiment and {own!r} for {type(scheduler).__name__}: set it once"
        )
    return value if own is None else own


def _number(role: str, name: str, trial: Trial, result: Mapping[str, object]) -> float:
    """A reported value as a number. `role` is its purpose, for errors."""
    value = required(result, name, f"{role} {name!r}", _where(trial))
    try:
        return as_number(value)
    except Exception as error:  # code of its class
        raise _no_number(role, name, trial, value, isinstance(error, OverflowError)) from None


def _check_counts(trial: Trial, metrics: Mapping[str, object]) -> None:
    for name in ("training_iteration", "timesteps_this_iter"):
        if metrics.get(name) is not None and count_in(metrics, name) is None:
            raise _no_number("count", name, trial, metrics[name], is_number(metrics[name]))


def _check_progress(trial: Trial, scheduler: TrialScheduler) -> None:
    """Refuse to pause a trial where it has paused before, if it had to start from scratch: that would never end.

    Once may be an accident: a process that is killed while it saves leaves no checkpoint either.
    """
    trial.losses = trial.losses + 1 if trial.point is None and trial.iteration <= trial.lost_at else 0
    trial.lost_at = trial.iteration if trial.point is None else 0
    if trial.losses > LOSSES_MAX:
        own = type(scheduler.own).__name__
        raise ReportError(
            f"{own} pauses trial {trial.trial_id} at report {trial.iteration} again, and it never has a checkpoint, so "
            "it would start from scratch for ever. A class needs save_checkpoint and load_checkpoint, a function "
            "report(metrics, checkpoint=...)."
        )


def _no_number(role: str, name: str, trial: Trial, value: object, is_large: bool) -> ReportError:
    shown = repr(value) if type(value) is str else text(value)
    why = "is too large" if is_large else "is not a number"
    return ReportError(f"The {role} {name!r} of trial {trial.trial_id} is {shown:.100}, which {why}. Report one.")


def _where(trial: Trial) -> str:
    return f"the report of trial {trial.trial_id}"

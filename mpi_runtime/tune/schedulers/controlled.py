"""Schedulers written for Ray Tune: each gets a controller, the trial and its report, and returns a word."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mpi_runtime.tune.schedulers.base import (
    CONTINUE,
    NOOP,
    PAUSE,
    STOP,
    FIFOScheduler,
    NamesOfRay,
    TrialScheduler,
    Verdicts,
    word_of,
)
from mpi_runtime.tune.schedulers.controller import Controller
from mpi_runtime.tune.trial import Trial, flat

EVENTS = ("on_trial_complete", "on_trial_error", "on_trial_remove", "choose_trial_to_run")
"""What only schedulers written for Ray override."""
PLAIN = (TrialScheduler, FIFOScheduler)
"""The classes of schedulers without an algorithm."""


def is_controlled(scheduler: type) -> bool:
    """Whether a class of schedulers takes a controller first, as in Ray, where ours take the trial."""
    if any(getattr(scheduler, event) is not getattr(NamesOfRay, event) for event in EVENTS):
        return True
    judges: Callable[..., object] = scheduler.on_trial_result  # type: ignore[attr-defined]
    adds: Callable[..., object] = scheduler.on_trial_add  # type: ignore[attr-defined]
    _, *names = inspect.signature(judges).parameters
    return names[:1] not in ([], ["trial"]) or len(inspect.signature(adds).parameters) == len(
        ("self", "controller", "trial")
    )


class Controlled(TrialScheduler):
    """Asks a scheduler written for Ray Tune. It must decide by what it gets, or a resumed experiment would differ."""

    def __init__(self, own: TrialScheduler, metric: str | None, mode: str | None) -> None:
        """Ask `own`, in an experiment with this metric and mode. It may derive from a scheduler with an algorithm."""
        bases = [one for one in type(own).__mro__ if issubclass(one, TrialScheduler) and one not in PLAIN]
        self._has_algorithm = not all(map(is_controlled, bases))
        source = own if self._has_algorithm else _WITHOUT
        super().__init__(source.time_attr, source.metric, source.mode)
        self.needs_metric, self.needs_checkpoints = source.needs_metric, source.needs_checkpoints
        self.is_strict, self.judges_last, self.prefers_new = source.is_strict, source.judges_last, source.prefers_new
        self._own, self._controller = own, Controller()
        self._goal = metric, mode

    @property
    def own(self) -> TrialScheduler:
        """The scheduler of the program."""
        return self._own

    def begin(self, seed: int) -> None:
        """Reset its algorithm, if it has one."""
        self.own.begin(seed)

    def _begin(self) -> None:
        """Pass on the goal of the experiment."""
        metric, mode = self._goal
        if not self.own.set_search_properties(metric, mode):
            raise ValueError(
                f"metric={metric!r} and mode={mode!r} were passed to the experiment, and {type(self.own).__name__} has "
                "a goal of its own: set it once"
            )

    def on_trial_add(self, trial: Trial) -> None:
        """Pass on a new trial, or one that runs again after its end."""
        if not self._controller._trials:
            self._begin()  # not earlier: settings are tried with copies
        if trial not in self._controller._trials:
            self._controller._trials.append(trial)
        self._heard("on_trial_add", trial)

    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Ask for a decision about the trial that has reported."""
        if type(self.own).on_trial_result is TrialScheduler.on_trial_result:  # it only hears of ends
            return self._stops()
        self._controller.measured = time, score
        method: Any = self.own.on_trial_result
        word = method(self._controller, trial, flat(trial.last_result)) or CONTINUE
        if word not in (CONTINUE, PAUSE, STOP, NOOP):
            raise ValueError(f"{type(self.own).__name__}.on_trial_result() returned {word!r}, which is not a decision")
        verdicts = self._controller.taken()
        if word != word_of(verdicts.get(trial.trial_id)):  # it does not follow its algorithm
            verdicts[trial.trial_id] = CONTINUE if word == NOOP else word
        return {**verdicts, **self._stops()}

    def on_trial_end(self, trial: Trial) -> Verdicts:
        """Pass on the end of a trial."""
        if trial.status == Trial.ERROR:
            self._heard("on_trial_error", trial)
        elif not trial.last_result:
            self._heard("on_trial_remove", trial)
        else:
            self._heard("on_trial_complete", trial, flat(trial.last_result))
        return {**self.own.on_trial_end(trial), **self._stops()}

    def on_idle(self) -> Verdicts:
        """Ask its algorithm, if it has one."""
        return self.own.on_idle()

    def choose_paused(self) -> str | None:
        """Ask which trial runs next. None: a new one, or none."""
        if type(self.own).choose_trial_to_run is NamesOfRay.choose_trial_to_run and self._has_algorithm:
            return self.own.choose_paused()
        if not any(trial.status == Trial.PAUSED for trial in self._controller.get_trials()):
            return None
        chosen: Trial | None = self.own.choose_trial_to_run(self._controller)
        return chosen.trial_id if chosen is not None and chosen.status == Trial.PAUSED else None

    def _heard(self, event: str, *about: object) -> None:
        """Call the method for an event, if the program has its own."""
        if getattr(type(self.own), event) not in [getattr(kind, event) for kind in PLAIN]:
            getattr(self.own, event)(self._controller, *about)

    def _stops(self) -> Verdicts:
        stopped, self._controller._stopped = self._controller._stopped, set()
        running = {one.trial_id for one in self._controller.get_live_trials() if one.status == Trial.RUNNING}
        self._controller._stopped |= stopped & running
        return dict.fromkeys(sorted(stopped), STOP)


class _Without(TrialScheduler):
    """The settings of a scheduler that has no algorithm of ours."""

    needs_metric = False
    judges_last = False
    prefers_new = True


_WITHOUT = _Without()

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
)
from mpi_runtime.tune.trial import Trial, flat


class Controller:
    """The part of Ray's controller that schedulers use."""

    def __init__(self) -> None:
        self._trials: list[Trial] = []
        self._stopped: set[str] = set()

    def get_trials(self) -> list[Trial]:
        """All trials so far, in the order of their creation."""
        return self._trials

    def get_live_trials(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self._trials if not trial.is_finished()]

    def stop_trial(self, trial: Trial) -> None:
        """End a trial: at once if it is paused, else at its next report."""
        self._stopped.add(trial.trial_id)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the controller has no {name!r} here: a scheduler may call get_trials(), get_live_trials() and "
            "stop_trial(trial), and returns its decision about the trial that has reported"
        )


EVENTS = ("on_trial_complete", "on_trial_error", "on_trial_remove", "choose_trial_to_run")
"""What only schedulers written for Ray override."""
PLAIN = (TrialScheduler, FIFOScheduler)
"""The classes of schedulers from which those written for Ray derive."""


def is_controlled(scheduler: type) -> bool:
    """Whether a class of schedulers takes a controller first, as in Ray, where ours take the trial."""
    method: Callable[..., object] | None = getattr(scheduler, "on_trial_result", None)
    names = [*inspect.signature(method).parameters][1:2] if method is not None else []
    hears = any(getattr(scheduler, event, None) is not getattr(NamesOfRay, event) for event in EVENTS)
    return names not in ([], ["trial"]) or (hears and method is TrialScheduler.on_trial_result)


class Controlled(TrialScheduler):
    """Asks a scheduler written for Ray Tune. It must decide by what it gets, or a resumed experiment would differ."""

    needs_metric = False
    judges_last = False
    prefers_new = True

    def __init__(self, own: Any, metric: str | None, mode: str | None) -> None:
        """Ask `own`, in an experiment with this metric and mode.

        Raises:
            TypeError: `own` derives from a scheduler with an algorithm.
        """
        algorithm = next((one for one in type(own).__mro__ if not is_controlled(one) and one not in PLAIN), None)
        if algorithm is not None and issubclass(algorithm, TrialScheduler):
            raise TypeError(
                f"{type(own).__name__} takes a controller, as in Ray, but derives from {algorithm.__name__}, which "
                "takes scores: derive it from TrialScheduler or FIFOScheduler"
            )
        super().__init__("training_iteration", None, None)
        self.own, self._controller = own, Controller()
        self._goal = metric, mode

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
        word = self.own.on_trial_result(self._controller, trial, flat(trial.last_result)) or CONTINUE
        if word not in (CONTINUE, PAUSE, STOP, NOOP):
            raise ValueError(f"{type(self.own).__name__}.on_trial_result() returned {word!r}, which is not a decision")
        verdicts = self._stops()
        if verdicts.get(trial.trial_id) != STOP:
            verdicts[trial.trial_id] = CONTINUE if word == NOOP else word
        return verdicts

    def on_trial_end(self, trial: Trial) -> Verdicts:
        """Pass on the end of a trial."""
        if trial.status == Trial.ERROR:
            self._heard("on_trial_error", trial)
        elif not trial.last_result:
            self._heard("on_trial_remove", trial)
        else:
            self._heard("on_trial_complete", trial, flat(trial.last_result))
        return self._stops()

    def choose_paused(self) -> str | None:
        """Ask which trial runs next. None: a new one, or none."""
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

"""The interface of schedulers of trials, and the default: first in, first out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mpi_runtime.core import published
from mpi_runtime.tune.schedulers.controller import Controller
from mpi_runtime.tune.trial import Config, Report, Trial, check_goal, number_in, sign_of

CONTINUE = "CONTINUE"
STOP = "STOP"
PAUSE = "PAUSE"
NOOP = "NOOP"
"""In Ray: do nothing yet. Here it continues."""
YIELD = "YIELD"
"""Pause if another trial waits for room, continue otherwise."""
TIME_MAX = 1e300
"""No time of a trial is longer: whole numbers beyond cannot be divided as floats."""


@dataclass(frozen=True)
class Exploit:
    """Continue from the last checkpoint of another trial, with a new configuration."""

    source: Trial
    config: Config


Verdict = str | Exploit
Verdicts = dict[str, Verdict]
"""By trial id: the decision about the trial that reported, and about paused trials."""


M = TypeVar("M", bound=Callable[..., object])


def word_of(verdict: Verdict | None) -> str:
    """A decision as a word of Ray."""
    words = {STOP: STOP, PAUSE: PAUSE, CONTINUE: CONTINUE, YIELD: CONTINUE, None: CONTINUE}
    return PAUSE if isinstance(verdict, Exploit) else words[verdict]


def either(method: M) -> M:
    """Let a method of an algorithm be called as Ray's too, with a controller before the trial.

    So classes written for Ray may derive from schedulers with an algorithm, and programs may ask these by hand. For a
    report it returns a word then.
    """

    @functools.wraps(method)
    def called(self: TrialScheduler, *given: Any) -> object:
        if len(given) < 2 or isinstance(given[0], Trial):
            return method(self, *given)
        controller, trial, *report = given
        if not report:
            return method(self, trial)
        is_ours = isinstance(controller, Controller)
        verdicts: Any = method(self, trial, *(controller.measured if is_ours else self.measured(report[0])))
        if is_ours:
            controller.keep(verdicts)
        return word_of(verdicts.get(trial.trial_id))

    return called  # type: ignore[return-value]


class NamesOfRay:
    """What schedulers written for Ray Tune override or use: those that take a controller first (`controlled.py`)."""

    CONTINUE, PAUSE, STOP, NOOP = CONTINUE, PAUSE, STOP, NOOP
    _metric: str | None = None
    _mode: str | None = None

    needs_metric: bool
    on_trial_result: Any

    supports_buffered_results = True
    """Without effect: reports are not kept back."""

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: object) -> bool:
        """Get the goal of the experiment. False: the scheduler has a goal of its own."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        return True

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial has failed."""

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Report) -> None:
        """A trial has ended without an error. For an algorithm that is asked by hand it is one more report."""
        if self.needs_metric and not isinstance(tune_controller, Controller):
            judged: Any = self.on_trial_result
            judged(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial has ended without a report."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Choose the paused trial to run when there is room and no new trial; None: none."""
        return next((trial for trial in tune_controller.get_trials() if trial.status == Trial.PAUSED), None)

    def save(self, checkpoint_path: str) -> None:
        """Write its state to a file. Few schedulers can, and an experiment needs none: its journal is the state."""
        raise NotImplementedError

    def restore(self, checkpoint_path: str) -> None:
        """Take the state from a file that `save` has written."""
        raise NotImplementedError

    def debug_string(self) -> str:
        """A few words about its state."""
        return type(self).__name__


@published("mpi_runtime.tune.schedulers")
class TrialScheduler(NamesOfRay):
    """Decides which trials continue. Each subclass is one algorithm, and receives scores: higher is better."""

    needs_metric = True
    needs_checkpoints = False
    """Whether it pauses trials, or lets them continue from checkpoints of others."""
    is_passive = False
    """Whether it never decides about a report."""
    is_strict = True
    """Whether a report without the metric or `time_attr` is an error. It is not compared otherwise."""
    judges_last = True
    """Whether it receives a report at which something else ends the trial."""
    prefers_new = False
    """Whether new trials start before paused ones."""

    def __init__(
        self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None
    ) -> None:
        """Compare trials by `metric`, at equal values of `time_attr`.

        Raises:
            TypeError: `metric` is not a name.
            ValueError: `mode` is neither "min" nor "max".
        """
        check_goal(metric, mode)
        self.time_attr = time_attr
        self.metric = metric
        self.mode = mode

    @property
    def own(self) -> TrialScheduler:
        """The scheduler of the program, if this one asks it."""
        return self

    def measured(self, result: Mapping[str, object]) -> tuple[float, float]:
        """The time and the score of a report, for programs that ask by hand."""
        time, value = number_in(result, self.time_attr), number_in(result, self._metric or self.metric)
        score = -math.inf if value is None else sign_of(self._mode or self.mode or "max") * value
        return -math.inf if time is None else time, score

    def begin(self, seed: int) -> None:
        """Reset for a new experiment."""

    @either
    def on_trial_add(self, trial: Trial) -> None:
        """A trial was created. It has not run yet."""

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """A trial has reported. A value that is not a number has the score minus infinity."""
        return {}

    def on_trial_end(self, trial: Trial) -> Verdicts:
        """A trial has ended, for any reason."""
        return {}

    def on_idle(self) -> Verdicts:
        """Nothing runs and nothing new can start: decide about paused trials. Those without a decision end."""
        return {}

    def choose_paused(self) -> str | None:
        """The paused trial to run before a new one; None if there is none. It counts as started."""
        return None


@published("mpi_runtime.tune.schedulers")
class FIFOScheduler(TrialScheduler):
    """Runs trials in the order of their creation, and stops none."""

    needs_metric = False
    is_passive = True

    def __init__(self) -> None:
        super().__init__("training_iteration", None, None)


def rungs(lowest: float, highest: float, factor: float) -> list[float]:
    """`lowest` times the powers of the factor, up to `highest`. Multiplied: logarithms can lose the top one."""
    found = [lowest]
    while found[-1] * factor <= highest * (1 + 1e-12):
        found.append(found[-1] * factor)
    return found

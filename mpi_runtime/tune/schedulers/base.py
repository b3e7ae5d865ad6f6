"""The interface of schedulers of trials, and the default: first in, first out."""

from __future__ import annotations

from dataclasses import dataclass

from mpi_runtime.core import published
from mpi_runtime.tune.trial import Config, Trial, check_goal

CONTINUE = "CONTINUE"
STOP = "STOP"
PAUSE = "PAUSE"
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


@published("mpi_runtime.tune.schedulers")
class TrialScheduler:
    """Decides which trials continue. Each subclass is one algorithm, and receives scores: higher is better."""

    needs_metric = True
    needs_checkpoints = False
    """Whether it pauses trials, or lets them continue from checkpoints of others."""
    is_passive = False
    """Whether it never decides about a report."""

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        """Compare trials by `metric`, at equal values of `time_attr`.

        Raises:
            TypeError: `metric` is not a name.
            ValueError: `mode` is neither "min" nor "max".
        """
        check_goal(metric, mode)
        self.time_attr = time_attr
        self.metric = metric
        self.mode = mode

    def begin(self, seed: int) -> None:
        """Reset for a new experiment."""

    def on_trial_add(self, trial: Trial) -> None:
        """A trial was created. It has not run yet."""

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

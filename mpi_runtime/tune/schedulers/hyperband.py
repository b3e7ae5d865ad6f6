"""HyperBand: brackets of successive halving, from many trials with little time to few with all of it.

Source: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter
Optimization", JMLR 18 (2018), algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mpi_runtime.core import published
from mpi_runtime.tune.schedulers.base import CONTINUE, PAUSE, STOP, TIME_MAX, TrialScheduler, Verdicts, either, rungs
from mpi_runtime.tune.trial import Trial
from mpi_runtime.tune.unsupported import BadSettingError


def table(max_t: float, factor: float) -> list[tuple[int, list[float]]]:
    """For each bracket the number of its trials, and the times at which they are compared; the last is `max_t`."""
    top = len(rungs(1, max_t, factor)) - 1
    return [
        (math.ceil((top + 1) / (s + 1) * factor**s - 1e-9), [max_t / factor**left for left in range(s, -1, -1)])
        for s in range(top, -1, -1)
    ]


@dataclass
class _Bracket:
    size: int
    milestones: list[float]
    members: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    """The scores of the members that have reached the milestone."""
    rung: int = 0
    joined: int = 0

    @property
    def is_full(self) -> bool:
        return self.joined == self.size

    def decide(self, factor: float) -> Verdicts:
        """Halve, if all members have reached the milestone."""
        if not self.members or not self.is_full or len(self.scores) < len(self.members):
            return {}
        # As many as the paper keeps at this rung, even if other trials have ended meanwhile.
        kept = max(1, int(self.size / factor ** (self.rung + 1) + 1e-9))
        # The order is stable: of equal scores the first is better.
        ranking = sorted(self.members, key=lambda trial_id: -self.scores[trial_id])
        verdicts: Verdicts = {trial_id: CONTINUE if place < kept else STOP for place, trial_id in enumerate(ranking)}
        self.members = ranking[:kept]
        self.scores = {}
        self.rung += 1
        return verdicts


@published("mpi_runtime.tune.schedulers")
class HyperBandScheduler(TrialScheduler):
    """Compares the trials of a bracket when all of them have reached its milestone, and continues the best of them.

    Trials pause at a milestone. They continue from their checkpoints, or without one from scratch. There may be fewer
    slots than a bracket has trials. With `max_t=81` and `reduction_factor=3`, brackets have 81, 34, 15, 8 and 5 trials,
    which are first compared at 1, 3, 9, 27 and 81. When all brackets are full, the first one starts again.
    """

    needs_checkpoints = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        """Compare trials by `metric` at milestones of `time_attr`.

        Args:
            time_attr: the reported value that measures the progress of a trial; it must not decrease.
            metric: the reported value to compare; None: that of `TuneConfig`.
            mode: whether it is to be "min" or "max"; None: that of `TuneConfig`.
            max_t: the time at which a trial ends; at least 1.
            reduction_factor: one in `reduction_factor` trials continues at each milestone.
            stop_last_trials: whether trials end at `max_t`.
        """
        super().__init__(time_attr, metric, mode)
        if not 1 <= max_t <= TIME_MAX:
            raise BadSettingError(f"max_t={max_t}: it must be at least 1, and finite")
        if not reduction_factor > 1:
            raise BadSettingError(f"reduction_factor={reduction_factor} would stop no trial: it must be above 1")
        self._factor, self._stops_last = reduction_factor, stop_last_trials
        self._table = table(max_t, reduction_factor)
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._brackets: list[_Bracket] = []
        self._bracket_of: dict[str, _Bracket] = {}
        self._resumable: list[str] = []

    @either
    def on_trial_add(self, trial: Trial) -> None:
        if not self._brackets or self._brackets[-1].is_full:
            size, milestones = self._table[len(self._brackets) % len(self._table)]
            self._brackets.append(_Bracket(size, milestones))
        bracket = self._brackets[-1]
        bracket.members.append(trial.trial_id)
        bracket.joined += 1
        self._bracket_of[trial.trial_id] = bracket

    @either
    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Note its score at the milestone; the last member to reach it triggers the halving."""
        bracket = self._bracket_of[trial.trial_id]
        if time < bracket.milestones[bracket.rung]:
            return {}
        if bracket.rung == len(bracket.milestones) - 1:
            return {trial.trial_id: STOP if self._stops_last else CONTINUE}
        bracket.scores[trial.trial_id] = score
        return {trial.trial_id: PAUSE, **self._queued(bracket.decide(self._factor), trial.trial_id)}

    def on_trial_end(self, trial: Trial) -> Verdicts:
        bracket = self._bracket_of.pop(trial.trial_id)
        if trial.trial_id not in bracket.members:
            return {}  # the halving has ended it
        bracket.members.remove(trial.trial_id)
        bracket.scores.pop(trial.trial_id, None)
        return self._queued(bracket.decide(self._factor))

    def on_idle(self) -> Verdicts:
        """No trial will join the last bracket: halve what it has."""
        bracket = self._brackets[-1]
        bracket.size = bracket.joined
        return self._queued(bracket.decide(self._factor))

    def choose_paused(self) -> str | None:
        """The trial that was promoted first."""
        return self._resumable.pop(0) if self._resumable else None

    def _queued(self, verdicts: Verdicts, running: str | None = None) -> Verdicts:
        """Queue the paused trials that continue; return the other verdicts."""
        self._resumable += [one for one, verdict in verdicts.items() if verdict == CONTINUE and one != running]
        return {one: verdict for one, verdict in verdicts.items() if verdict == STOP or one == running}


@published("mpi_runtime.tune.schedulers")
class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand for `TuneBOHB`: trials pause while the largest bracket fills. Every HyperBand does so here."""

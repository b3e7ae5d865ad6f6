"""Repeats a schedule of population based training: one trial, with the same changes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from mpi_runtime.tune.absent import advised
from mpi_runtime.tune.schedulers.base import Exploit, TrialScheduler, Verdicts
from mpi_runtime.tune.trial import Trial


@advised
class PopulationBasedTrainingReplay(TrialScheduler):
    """Changes the parameters of a trial by a schedule, `ResultGrid.policy(trial_id)` of an earlier experiment.

    Each report at which they change needs a checkpoint. Ray Tune reads the schedule from a file instead.
    """

    needs_metric = False
    needs_checkpoints = True

    def __init__(self, policy: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Follow a schedule: pairs of a number of reports and the configuration from then on, the first one at 0.

        Raises:
            ValueError: it is empty, or does not begin at 0.
        """
        super().__init__("training_iteration", None, None)
        if not isinstance(policy, list | tuple) or not all(
            isinstance(one, list | tuple) and len(one) == 2 for one in policy
        ):
            raise TypeError(f"the policy must be a list of pairs, as from ResultGrid.policy(...), not {policy!r}")
        if not policy or policy[0][0] != 0:
            raise ValueError("the policy must begin with the configuration at 0 reports: take ResultGrid.policy(...)")
        self._policy = [(int(at), dict(config)) for at, config in policy]
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._next: dict[str, int] = {}

    def on_trial_add(self, trial: Trial) -> None:
        trial.config = copy.deepcopy(self._policy[0][1])
        self._next[trial.trial_id] = 1

    def on_trial_result(self, trial: Trial, time: float, score: float) -> Verdicts:
        """Change its parameters at the reports of the schedule."""
        place = self._next[trial.trial_id]
        if place == len(self._policy) or time < self._policy[place][0]:
            return {}
        if trial.checkpoint is None or trial.checkpoint_iteration != trial.iteration:
            raise ValueError(
                f"The parameters of trial {trial.trial_id} change at report {time:g}, but that has no checkpoint to "
                "continue from. Use report(metrics, checkpoint=...) as in the experiment that is replayed."
            )
        self._next[trial.trial_id] = place + 1
        return {trial.trial_id: Exploit(trial, copy.deepcopy(self._policy[place][1]))}

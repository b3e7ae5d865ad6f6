"""Files of the schedules that population based training finds, as Ray Tune writes them."""

from __future__ import annotations

import json
from pathlib import Path

from mpi_runtime.tune.schedulers.base import TrialScheduler
from mpi_runtime.tune.schedulers.pbt import Exploited, PopulationBasedTraining
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trials.json_values import written

ALL = "pbt_global.txt"
"""Every time that a trial continued from another one."""
OF_TRIAL = "pbt_policy_{}.txt"
"""Those that led to the configuration of one trial, also those of the trials from which it comes."""


class PolicyFiles:
    """Adds a line for each time that a trial continues from another one. The first call rewrites the files."""

    def __init__(self, study: Study, directory: Path) -> None:
        self._study, self._directory = study, directory
        self._count = 0
        self._lines: dict[str, list[str]] = {}
        """By trial: the lines of its file."""

    def follow(self, scheduler: TrialScheduler) -> None:
        """Write what is new."""
        if not isinstance(scheduler, PopulationBasedTraining) or not scheduler.logs_config:
            return
        new = scheduler.exploits[self._count :]
        if not new:
            return
        lines = [self._line(one) for one in new]
        for one, line in zip(new, lines, strict=True):
            self._lines[one.trial] = [*self._lines.get(one.source, []), line]
        for trial_id in {one.trial for one in new}:
            (self._directory / OF_TRIAL.format(trial_id)).write_text("".join(self._lines[trial_id]))
        with (self._directory / ALL).open("a" if self._count else "w") as file:
            file.writelines(lines)
        self._count = len(scheduler.exploits)

    def _line(self, one: Exploited) -> str:
        tags = [str(self._study.trials[name].index) for name in (one.trial, one.source)]
        return json.dumps([*tags, one.at, one.source_at, written(one.source_config), written(one.config)]) + "\n"

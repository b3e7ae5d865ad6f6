"""An experiment as its journal shows it, for the live page: nothing is unpickled, and no code of the user is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpi_runtime.tune.experiment.log as study_log
from mpi_runtime.tune.study.events import Crashed, Failed, Reported
from mpi_runtime.tune.trial import named_in


@dataclass
class WatchedTrial:
    """A trial in the journal, with the attributes of a `Result`."""

    trial_id: str
    config: dict[str, Any]
    path: str
    status: str = "PENDING"
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    error: Exception | None = None
    checkpoint: None = None
    began_s: float = 0.0

    @property
    def metrics(self) -> dict[str, Any]:
        """Its last report, with the time since its start."""
        if not self.history:
            return {}
        return {"time_total_s": self.history[-1]["time_s"] - self.began_s, **self.history[-1]}


class Watched(Sequence[WatchedTrial]):
    """The trials of an experiment, in the order of their creation, with the attributes of a `ResultGrid`."""

    def __init__(self, directory: Path) -> None:
        """Read the journal.

        Raises:
            JournalError: the directory has no experiment.
        """
        header = study_log.header(directory)
        self.metric: str | None = header.get("metric") or None
        self.mode: str | None = header.get("mode") or None
        self.experiment_path = os.fspath(directory)
        self._trials: dict[str, WatchedTrial] = {}
        for line in study_log.read(directory):
            for trial_id, config in line.configs.items():
                path = os.path.join(directory, trial_id)
                self._trials[trial_id] = WatchedTrial(trial_id, config, path, began_s=line.now)
            for trial_id, status in line.states.items():
                self._trials[trial_id].status = status
            event = line.event
            if isinstance(event, Reported):
                trial = self._trials[event.trial_id]
                metrics = named_in(dict(event.metrics), self.metric)
                trial.history.append({"training_iteration": len(trial.history) + 1, "time_s": line.now, **metrics})
            elif isinstance(event, (Failed, Crashed)):
                self._trials[event.trial_id].error = RuntimeError(str(event.error))

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, index: Any) -> Any:
        return list(self._trials.values())[index]

    def __iter__(self) -> Iterator[WatchedTrial]:
        return iter(self._trials.values())

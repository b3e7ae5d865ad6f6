"""Decides which checkpoints of each trial are kept: the best n, and always the last."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi_runtime.tune.study.events import Moved, Reported
from mpi_runtime.tune.study.settings import CheckpointConfig
from mpi_runtime.tune.trial import Progress, Trial, value_in
from mpi_runtime.tune.trials.checkpoint import Saved


@dataclass(eq=False)
class Kept:
    """A checkpoint of a trial with its report."""

    saved: Saved
    metrics: dict[str, Any]
    score: float
    at: Progress


class KeptCheckpoints:
    """The checkpoints of all trials of an experiment."""

    def __init__(self, config: CheckpointConfig, directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._of: dict[str, list[Kept]] = {}
        self._counts: dict[str, int] = {}
        self._sources: dict[str, str] = {}
        """By trial: the path of another trial's checkpoint from which it continues, until it has one of its own."""

    def count(self, trial_id: str) -> int:
        """The number of the next checkpoint of a trial."""
        return self._counts.get(trial_id, 0)

    def of(self, trial_id: str) -> list[Kept]:
        """The checkpoints of a trial, oldest first."""
        return list(self._of.get(trial_id, ()))

    def note(self, trial: Trial, event: Reported | Moved) -> list[str]:
        """Note a checkpoint of a trial, or where a known one is now, and return the paths that are no longer needed."""
        saved, entries = event.checkpoint, self._of.setdefault(trial.trial_id, [])
        if isinstance(event, Moved):
            if not saved.path.startswith(trial.trial_id + os.sep):
                return []  # it continues from that of another trial
            for known in entries:
                if known.saved.number == saved.number:
                    known.saved = saved
                    return []
        self._counts[trial.trial_id] = saved.number + 1
        self._sources.pop(trial.trial_id, None)
        entries.append(Kept(saved, dict(trial.last_result), self._score(trial), trial.progress))
        most = self._config.num_to_keep
        if most is None:
            doomed = [one for one in entries[:-1] if not one.saved.path]  # of those in memory the last suffices
        else:
            ranking = sorted(entries[:-1], key=lambda one: one.score, reverse=True)
            doomed = ranking[most - 1 :]
        in_use = set(self._sources.values())
        doomed = [one for one in doomed if not one.saved.path or one.saved.path not in in_use]
        self._of[trial.trial_id] = [one for one in entries if one not in doomed]
        return [one.saved.path for one in doomed if one.saved.path]

    def uses(self, trial_id: str, saved: Saved | None) -> None:
        """A trial continues from this checkpoint, which may be another trial's."""
        if saved is not None and saved.path:
            self._sources[trial_id] = saved.path

    def found(self, trial_id: str) -> Saved | None:
        """The last checkpoint of a trial on disk, reported or not."""
        folder = self._directory / trial_id
        names = sorted(one.name for one in folder.glob("checkpoint_*")) if folder.is_dir() else []
        if not names:
            return None
        number = int(names[-1].rpartition("_")[2])
        self._counts[trial_id] = max(self._counts.get(trial_id, 0), number + 1)
        return Saved(number, os.path.join(trial_id, names[-1]))

    def _score(self, trial: Trial) -> float:
        name = self._config.checkpoint_score_attribute
        if name is None:
            return float(self._counts[trial.trial_id])
        try:
            value = value_in(trial.last_result, name)
        except KeyError:
            return -math.inf
        if not isinstance(value, (int, float)) or math.isnan(value):
            return -math.inf
        return -value if self._config.checkpoint_score_order == "min" else float(value)

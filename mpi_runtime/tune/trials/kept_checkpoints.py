"""Decides which checkpoints of each trial stay: the best n, and always the last."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi_runtime.tune.study.settings import CheckpointConfig
from mpi_runtime.tune.trial import Trial, value_in
from mpi_runtime.tune.trials.checkpoint import Saved


@dataclass
class Kept:
    """A checkpoint of a trial with the report that it came with."""

    saved: Saved
    metrics: dict[str, Any]
    score: float
    iteration: int
    time_s: float


class KeptCheckpoints:
    """The checkpoints of all trials of an experiment."""

    def __init__(self, config: CheckpointConfig, directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._of: dict[str, list[Kept]] = {}
        self._counts: dict[str, int] = {}
        self._sources: dict[str, str] = {}
        """Of trials that go on from a checkpoint of another one: its path, until they have one of their own."""

    def count(self, trial_id: str) -> int:
        """The number of the next checkpoint of a trial."""
        return self._counts.get(trial_id, 0)

    def of(self, trial_id: str) -> list[Kept]:
        """What there is of a trial, in the order in which it was made."""
        return list(self._of.get(trial_id, ()))

    def add(self, trial: Trial, saved: Saved) -> list[str]:
        """A trial has made a checkpoint; the paths that nobody needs any more."""
        self._counts[trial.trial_id] = saved.number + 1
        self._sources.pop(trial.trial_id, None)
        entry = Kept(saved, dict(trial.last_result), self._score(trial), trial.iteration, trial.time_total_s)
        entries = self._of.setdefault(trial.trial_id, [])
        entries.append(entry)
        most = self._config.num_to_keep
        if most is None:
            doomed = [one for one in entries[:-1] if not one.saved.path]  # of those in memory the last will do
        else:
            ranking = sorted(entries[:-1], key=lambda one: one.score, reverse=True)
            doomed = ranking[most - 1 :] if most > 0 else ranking
        in_use = set(self._sources.values())
        doomed = [one for one in doomed if one.saved.path not in in_use or not one.saved.path]
        gone = {id(one) for one in doomed}
        self._of[trial.trial_id] = [one for one in entries if id(one) not in gone]
        return [one.saved.path for one in doomed if one.saved.path]

    def uses(self, trial_id: str, saved: Saved | None) -> None:
        """A trial goes on from this, which may be another trial's."""
        if saved is not None and saved.path:
            self._sources[trial_id] = saved.path

    def found(self, trial_id: str) -> Saved | None:
        """The last checkpoint of a trial on the disk, also one that it has not reported."""
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

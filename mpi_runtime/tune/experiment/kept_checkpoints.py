"""Decides which checkpoints of each trial are kept: the best n, and always the last."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mpi_runtime.tune.study.events import Event, Judged, Moved, Reported, Sized
from mpi_runtime.tune.study.settings import CheckpointConfig
from mpi_runtime.tune.trial import Progress, Report, Trial, has_value, score_in
from mpi_runtime.tune.trials.checkpoint import Saved

T = TypeVar("T")


@dataclass(eq=False)
class Kept:
    """A checkpoint of a trial with its report."""

    saved: Saved
    metrics: Report
    score: float
    at: Progress
    is_judged_later: bool = False
    """Whether its score is not known yet, so it stays."""


class KeptCheckpoints:
    """The checkpoints of all trials of an experiment."""

    def __init__(
        self, config: CheckpointConfig, directory: Path, replays: bool = False, is_training: bool = False
    ) -> None:
        """Begin with none. `replays`: the events until `replayed` are those of a journal."""
        self._config, self._is_training = config, is_training
        self._directory = directory
        self._of: dict[str, list[Kept]] = {}
        self._counts: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        """By folder: the trial that has it."""
        self._sources: dict[str, str] = {}
        """By trial: the path of another trial's checkpoint from which it continues, until it has one of its own."""
        self._has_warned = False
        self._there: set[str] | None = None
        """While a journal is replayed: the paths on disk. Files that are gone take no place among the best.

        Earlier versions kept fewer, and users remove some.
        """
        if replays and config.num_to_keep is not None:
            self._there = {os.path.relpath(place, directory) for one in ("*", "*/*") for place in directory.glob(one)}
        self._noted: set[str] = set()
        """Those of them that the journal names."""

    def count(self, trial_id: str) -> int:
        """The number of the next checkpoint of a trial."""
        return self._counts.get(trial_id, 0)

    def of(self, trial_id: str) -> list[Kept]:
        """The checkpoints of a trial, oldest first."""
        return list(self._of.get(trial_id, ()))

    def follow(self, event: Event, trials: Mapping[str, Trial], changed: Iterable[Trial]) -> list[str]:
        """Note what an event has brought, and return the paths of checkpoints that are no longer needed.

        `changed`: the trials whose status it has changed.
        """
        if isinstance(event, Sized):
            self._forget_memory()
        if isinstance(event, Judged):
            return self._judged(event)
        doomed = [path for trial in changed for path in self._uses(trial)]
        if isinstance(event, Reported | Moved) and event.checkpoint is not None:
            doomed += self._note(trials[event.trial_id], event)
        return doomed

    def replayed(self) -> list[str]:
        """The journal has ended: return the paths of checkpoints that its last run was about to remove."""
        self._forget_memory()
        there, self._there = self._there or set(), None
        kept = {one.saved.path for entries in self._of.values() for one in entries}
        return sorted((there & self._noted) - kept)

    def ranked(self, found: Sequence[tuple[T, Report]]) -> list[tuple[T, Report]]:
        """The best of these checkpoints of a training, and the best one last."""
        config = self._config
        return ranked(found, config.checkpoint_score_attribute, config.checkpoint_score_order, config.num_to_keep)

    def has(self, path: str) -> bool:
        """Whether a checkpoint with this path stays."""
        folder = os.path.dirname(path)
        of = [self._of.get(self._ids.get(folder, ""), [])] if folder else self._of.values()
        return any(one.saved.path == path for entries in of for one in entries)

    def _forget_memory(self) -> None:
        """A run has ended, and with it the checkpoints in memory, and the functions that judge them."""
        for trial_id, entries in self._of.items():
            for one in entries:
                one.is_judged_later = False
            self._of[trial_id] = [one for one in entries if one.saved.path]

    def is_there(self, saved: Saved) -> bool:
        """Whether a checkpoint is on disk."""
        return bool(saved.path) and (self._directory / saved.path).is_dir()

    def back(self, trial_id: str) -> Moved:
        """A trial has lost the checkpoint from which it continues: move it to its last on disk, or to its start."""
        for one in reversed(self._of.get(trial_id, [])):
            if self.is_there(one.saved):
                return Moved(trial_id, Saved(one.saved.number, one.saved.path), one.at)
        return Moved(trial_id)

    def _uses(self, trial: Trial) -> list[str]:
        """Note from which checkpoint a trial would continue: one of another trial must stay meanwhile."""
        saved, before = trial.point, self._sources.pop(trial.trial_id, "")
        if saved is not None and saved.path and not saved.is_of(trial.folder):
            self._sources[trial.trial_id] = saved.path
        released = before and before != self._sources.get(trial.trial_id)
        return self._pruned(self._ids.get(before.partition(os.sep)[0], "")) if released else []

    def _note(self, trial: Trial, event: Reported | Moved) -> list[str]:
        """Note a checkpoint of a trial, or where a known one is now."""
        saved, entries, known = event.checkpoint, self._of.setdefault(trial.trial_id, []), None
        self._ids[trial.folder] = trial.trial_id
        doomed = self._uses(trial)
        if isinstance(event, Moved):
            if not saved.is_of(trial.folder):
                return doomed  # it continues from that of another trial
            known = next((one for one in entries if one.saved.number == saved.number), None)
        self._counts[trial.trial_id] = max(self.count(trial.trial_id), saved.number + 1)
        if self._there is not None and saved.path:
            if saved.path not in self._there:
                return doomed
            self._noted.add(saved.path)
        if known is not None:
            known.saved = saved
        else:
            if entries and entries[-1].saved.path:
                entries[-1].saved = replace(entries[-1].saved, ref=None)  # its memory is free: the file suffices
            entries[:] = [one for one in entries if not saved.path or one.saved.path != saved.path]  # it is replaced
            report = trial.reported if self._is_training else trial.last_result
            is_judged_later = isinstance(event, Reported) and event.is_judged_later
            score = self._score_of(report, saved) if is_judged_later else self._score(trial, saved)
            entries.append(Kept(saved, dict(report), score, trial.progress, is_judged_later))
        return doomed + self._pruned(trial.trial_id)

    def _judged(self, event: Judged) -> list[str]:
        """Rank a checkpoint again, with the metrics of the function that has judged it."""
        for one in self._of.get(event.trial_id, []):
            if one.saved.number == event.number:
                one.is_judged_later = False
                one.metrics = {**one.metrics, **event.metrics}
                one.score = self._score_of(one.metrics, one.saved)
        return self._pruned(event.trial_id)

    def _pruned(self, trial_id: str) -> list[str]:
        """Drop the checkpoints of a trial that need not stay, and return the paths of those on disk."""
        entries, most = self._of.get(trial_id, []), self._config.num_to_keep
        on_disk = [one for one in entries if one.saved.path]
        # Of equal ones the newer is better, as in Ray.
        best = on_disk if most is None else sorted(entries, key=lambda one: one.score)[-most:]
        # A run that is lost continues from the last on disk, if the last is in memory.
        stay = {*best, *entries[-1:], *on_disk[-1:], *(one for one in entries if one.is_judged_later)}
        if len(stay) == len(entries):
            return []
        in_use = set(self._sources.values())
        doomed = [one for one in entries if one not in stay and one.saved.path not in in_use]
        self._of[trial_id] = [one for one in entries if one not in doomed]
        return [one.saved.path for one in doomed if one.saved.path]

    def found(self, trial: Trial) -> Saved | None:
        """The last checkpoint of a trial on disk, reported or not."""
        folder, trial_id = self._directory / trial.folder, trial.trial_id
        names = sorted(one.name for one in folder.glob("checkpoint_*")) if folder.is_dir() else []
        if not names:
            return None
        number = _number(names[-1])
        self._counts[trial_id] = max(self._counts.get(trial_id, 0), number + 1)
        return Saved(number, os.path.join(trial.folder, names[-1]))

    def _score(self, trial: Trial, saved: Saved) -> float:
        name, report = self._config.checkpoint_score_attribute, trial.last_result
        if name is None:
            return float(saved.number)
        if not self._has_warned and not has_value(report, name):
            self._has_warned = True
            warnings.warn(
                f"checkpoint_score_attribute is {name!r}, which is not in a report with a checkpoint, of trial "
                f"{trial.trial_id}: it has {sorted(report)}. Such checkpoints rank last.",
                stacklevel=2,
            )
        return self._score_of(report, saved)

    def _score_of(self, report: Report, saved: Saved) -> float:
        name = self._config.checkpoint_score_attribute
        return float(saved.number) if name is None else score_in(report, name, self._config.checkpoint_score_order)


def ranked(
    found: Sequence[tuple[T, Report]], attribute: str | None, order: str, most: int | None
) -> list[tuple[T, Report]]:
    """The best checkpoints of a training, each with its report, and the best one last. The last one may be missing."""
    if attribute is not None:
        found = sorted(found, key=lambda one: score_in(one[1], attribute, order))
    return list(found if most is None else found[-most:])


def _number(path: str) -> int:
    """The number of a checkpoint, from its path."""
    return int(path.rpartition("_")[2])

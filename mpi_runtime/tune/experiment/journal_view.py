"""An experiment as its journal shows it, for the live page: nothing is unpickled, and no code of the user is needed."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from mpi_runtime.show.numbers import count, plural
from mpi_runtime.tune.counting import begun, completed, folder_of
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.show.remaining import Remaining, remaining
from mpi_runtime.tune.study.events import Crashed, Ended, Failed, Judged, Moved, Reported
from mpi_runtime.tune.trial import Config, Report, Trial, named_in, number_of
from mpi_runtime.tune.trials.checkpoint import Saved
from mpi_runtime.tune.trials.json_values import written


@dataclass
class WatchedTrial:
    """A trial in the journal, with the attributes of a `Result`."""

    trial_id: str
    config: Config
    path: str
    status: str = "PENDING"
    history: list[Report] = field(default_factory=list[Report])
    reported: list[Report] = field(default_factory=list[Report])
    """The same as they were made."""
    error: Exception | None = None
    checkpoint: None = None
    is_halted: bool = False
    """See `Trial`."""
    kept: dict[int, tuple[int, Saved]] = field(default_factory=dict[int, tuple[int, Saved]])
    """By the numbers of its checkpoints: the index of the report in `history`, and where they are now."""
    judged: dict[int, str] = field(default_factory=dict[int, str])
    """By the number of a checkpoint: how a function of the program has judged it; empty: not yet."""
    began_s: float = 0.0
    reported_s: float = 0.0
    ran_s: float = 0.0
    """The seconds in which it ran, up to its last change of status, `since_s`."""
    since_s: float = 0.0
    counted: Trial = field(init=False)
    """The same trial as it counts its reports. The values that were drawn for it are not known."""

    def __post_init__(self) -> None:
        self.counted = Trial(self.trial_id, number_of(self.trial_id), self.config)

    def moved(self, status: str, now_s: float) -> None:
        """Note a change of status."""
        self.ran_s, self.since_s, self.status = self.ran_until(now_s), now_s, status

    def ran_until(self, now_s: float) -> float:
        """The seconds in which it has run."""
        return self.ran_s + (max(0.0, now_s - self.since_s) if self.status == Trial.RUNNING else 0.0)

    @property
    def metrics(self) -> Report:
        """Its last report."""
        return self.history[-1] if self.history else {}


class Watched(list[WatchedTrial]):
    """The trials of an experiment, in the order of their creation, with the attributes of a `ResultGrid`."""

    def __init__(self, directory: Path) -> None:
        """Read the journal. JournalError: the directory has no experiment."""
        header = journal.header(directory)
        self.name, self.metric, self.mode = header.name, header.metric or None, header.mode or None
        self.most = header.most
        """The number of trials; None: unlimited, or not known."""
        self._stops_early, self.is_training = header.stops_early, header.is_training
        self.ranking, self.is_function = header.ranking, header.is_function
        self._limit_s = math.inf if header.limit_s is None else header.limit_s
        self._now_s = 0.0
        self.directory, self.experiment_path = directory, os.fspath(directory)
        for line in journal.read(directory):
            self._now_s = line.now
            for trial_id, config in line.configs.items():
                self._configured(trial_id, written(config), line)
            event = line.event
            if isinstance(event, Reported):
                self._reported(event, line.now)
            elif isinstance(event, Moved):
                self.of(event.trial_id).counted.checkpoint_at = event.at
            for trial_id, status in line.states.items():
                trial = self.of(trial_id)
                trial.moved(status, line.now)
                if status == Trial.RUNNING:
                    begun(trial.counted, line.now)
                is_done = isinstance(event, Ended) or (isinstance(event, Reported) and event.metrics.get("done"))
                is_its_own = is_done and getattr(event, "trial_id", "") == trial_id
                trial.is_halted = status == Trial.TERMINATED and not is_its_own
            if isinstance(event, Reported | Moved) and event.checkpoint is not None:
                trial, saved = self.of(event.trial_id), event.checkpoint
                if isinstance(event, Moved) and not saved.is_of(trial.counted.folder):
                    continue  # it continues from that of another trial
                last = len(trial.history) - 1
                is_new = isinstance(event, Reported) or saved.number not in trial.kept
                trial.kept[saved.number] = last if is_new else trial.kept[saved.number][0], saved
                if isinstance(event, Reported) and event.is_judged_later:
                    trial.judged[saved.number] = ""
            elif isinstance(event, Judged):
                trial = self.of(event.trial_id)
                trial.judged[event.number] = event.status
                for values in (trial.reported, trial.history):
                    values[trial.kept[event.number][0]].update(event.metrics)
            if isinstance(event, (Failed, Crashed)):
                self.of(event.trial_id).error = RuntimeError(str(event.error))

    def _configured(self, trial_id: str, config: Config, line: journal.Line) -> None:
        """A trial is new, or has a new configuration."""
        if number_of(trial_id) < len(self):
            trial = self.of(trial_id)
            trial.config = trial.counted.config = config
            return
        folder = "" if self.is_training else line.folders.get(trial_id, trial_id)
        trial = WatchedTrial(trial_id, config, os.fspath(self.directory / folder), began_s=line.now)
        trial.counted.folder = folder
        self.append(trial)

    def _reported(self, event: Reported, now_s: float) -> None:
        trial = self.of(event.trial_id)
        made, trial.reported_s = dict(event.metrics), now_s
        trial.reported.append(made)
        counted = completed(trial.counted, made, now_s)
        if self.is_function:
            counted["checkpoint_dir_name"] = folder_of(event.checkpoint)
        if event.checkpoint is not None:
            trial.counted.checkpoint_at = trial.counted.progress
        trial.history.append(named_in({"time_s": now_s, **counted}, self.metric))

    def of(self, trial_id: str) -> WatchedTrial:
        """The trial with this id."""
        return self[number_of(trial_id)]

    def remaining(self) -> Remaining | None:
        """How long it still takes, if it runs; None: not known."""
        written_s = journal.written_s(self.directory)
        now_s = self._now_s + max(0.0, time.time() - written_s)
        trials = [(trial.status, trial.ran_until(now_s)) for trial in self]
        return remaining(trials, self.most, self._stops_early, self._limit_s - now_s)

    def in_words(self) -> str:
        """Its progress, if it runs: 12 of 100 trials ended, about 3 min 05 s left."""
        ended = sum(trial.status in (Trial.TERMINATED, Trial.ERROR) for trial in self)
        left = self.remaining()
        of = f"{count(ended)} of {plural(max(len(self), self.most or 0), 'trial')} ended"
        return of if left is None else f"{of}, {left}"


class History:
    """All reports of an experiment, read from its journal on demand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watched: Watched | None = None

    def of(self, trial_id: str) -> list[Config]:
        """The reports of a trial, in order. After those of a lost run the repeated ones follow."""
        self._watched = self._watched or Watched(self._directory)
        trial = self._watched.of(trial_id)
        return list(trial.reported if self._watched.is_training else trial.history)

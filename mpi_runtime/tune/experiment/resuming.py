"""Resumes an experiment: replays its journal into a new study, and finds where trials continue."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import cloudpickle
import numpy as np

from mpi_runtime.errors import JournalError
from mpi_runtime.tune.experiment import journal
from mpi_runtime.tune.experiment.kept_checkpoints import KeptCheckpoints
from mpi_runtime.tune.space.domains import Categorical, Domain, Function
from mpi_runtime.tune.space.variants import is_grid
from mpi_runtime.tune.study.events import Ended, Event, Fail, Moved, Revived, Sized, Skipped
from mpi_runtime.tune.study.settings import ResumeConfig
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import ADDRESS, Config, Trial
from mpi_runtime.tune.trials.json_values import written


def replayed(study: Study, directory: Path) -> Iterator[journal.Line]:
    """Send a study the events of earlier runs, and yield the line of each after that."""
    for line in journal.read(directory):
        study.known_folders, study.recall = line.folders, functools.partial(_recalled, study.space, line.configs)
        if line.number == 0 and isinstance(line.event, Sized):
            study.slots = line.event.slots
            study.begin(line.now)
        else:
            study.known = line.states if study.is_training else None
            orders = study.handle(line.event, line.now)
            failing = [orders[0].trial_id] if orders and isinstance(orders[0], Fail) else []
            for trial_id in line.states if study.is_training else failing:
                _settle(study, line, trial_id)
            study.known = None
        study.known_folders = study.recall = None
        yield line


def _settle(study: Study, line: journal.Line, trial_id: str) -> None:
    """End a trial that an earlier run has ended.

    An earlier version judged reported objects that are text in the journal, and a training may be continued without
    the stopper that ended it.
    """
    if line.states.get(trial_id) == Trial.TERMINATED and study.trials[trial_id].status == Trial.RUNNING:
        study.handle(Ended(trial_id), line.now)


def _recalled(space: object, known: Mapping[str, Config], trial_id: str, config: Config) -> Config:
    """A configuration with the values that functions of the space returned in the earlier run.

    They may have drawn from generators of their own, and would return others now.
    """
    old = known.get(trial_id)
    return config if old is None else _with_results(space, config, old)


def _with_results(space: object, value: Any, known: object) -> Any:
    choices = space["grid_search"] if is_grid(space) else [space]
    if any(isinstance(one, Function) for one in choices):
        return _as_was(value, known)
    if isinstance(value, dict) and isinstance(space, Mapping) and isinstance(known, Mapping):
        return {name: _with_results(space.get(name), one, known.get(name)) for name, one in value.items()}
    if isinstance(value, list) and isinstance(space, list) and isinstance(known, list):
        return [_with_results(*three) for three in zip(space, value, known, strict=False)]
    return value


def _as_was(value: Any, known: object) -> Any:
    """The value that was written, if the journal can tell it: numbers, text, and lists and dictionaries of them."""
    if _is_same(value, known):
        return value
    if isinstance(value, dict) and isinstance(known, dict) and value.keys() == known.keys():
        return {name: _as_was(one, known[name]) for name, one in value.items()}
    if type(value) in (list, tuple) and isinstance(known, list):
        return type(value)(map(_as_was, value, known) if len(value) == len(known) else known)
    if isinstance(value, np.generic) and isinstance(known, int | float | str):
        return type(value)(known)
    is_plain = isinstance(value, bool | int | float | str | None) and isinstance(known, bool | int | float | str | None)
    return known if is_plain else value


def check_config(study: Study, trial_id: str, config: object) -> None:
    """Raise JournalError unless a trial has its configuration of the earlier run."""
    trial = study.trials.get(trial_id)
    if trial is None or not _is_same(trial.config, config):
        raise JournalError(
            f"Trial {trial_id} had the configuration {config}, and the searcher now suggests "
            f"{trial.config if trial else 'none'}. An experiment can be resumed only if its searcher, its space and "
            "its functions give the same values for the same seed and the same reports."
        )


def _is_same(value: object, known: object) -> bool:
    """Whether this is the value that was written. The order of a set differs in each process."""
    if isinstance(value, Mapping) and isinstance(known, dict) and len(value) == len(known):
        names = written(dict.fromkeys(value)) == written(dict.fromkeys(known))
        return names and all(map(_is_same, value.values(), known.values()))
    if isinstance(value, list | tuple) and isinstance(known, list) and len(value) == len(known):
        return all(map(_is_same, value, known))
    if _is_object(value) and isinstance(known, str):
        return True  # a new space may have another one
    new, old = written(value), written(known)
    if isinstance(value, set | frozenset) and isinstance(old, list):
        return sorted(map(_without_ids, new)) == sorted(map(_without_ids, old))
    return _without_ids(new) == _without_ids(old)


def difference(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """The difference between two spaces; empty if there is none. References to objects and actors are equal."""
    if old.keys() != new.keys():
        return f"it has {sorted(old)}, and this one {sorted(new)}"
    for name, value in old.items():
        was, now = _plain(value), _plain(new[name])
        if cloudpickle.dumps(was) != cloudpickle.dumps(now) and _without_ids(was) != _without_ids(now):
            return f"{name} was {value!r}, and is {new[name]!r}"
    return ""


def _plain(value: object) -> object:
    """A part of a space with the name of its class in the place of each object."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Categorical):
        return "choice", _plain(list(value.categories))
    return type(value).__name__ if _is_object(value) else value


def _is_object(value: object) -> bool:
    """Whether a value is neither a number, a text or a time, nor a domain, a function or a container of values."""
    plain = (str, bytes, int, float, complex, NoneType, datetime.date, datetime.timedelta, datetime.time)
    others = (Mapping, list, tuple, set, frozenset, Domain, type, np.generic, np.ndarray)
    return not isinstance(value, (*plain, *others)) and not callable(value)


def _without_ids(value: object) -> str:
    """A value as text, without the ids of references and the addresses of objects."""
    return ADDRESS.sub("", re.sub(r"\b(ObjectRef\(|Actor\(\w+, )[0-9a-f]+", r"\1", repr(value)))


def resumed(study: Study, kept: KeptCheckpoints, slots: int, how: ResumeConfig) -> list[Event]:
    """Events for a study after its journal: no trial runs any more.

    Trials that wait are moved first, so that none starts before that; then trials start.
    """
    kind = ResumeConfig.ResumeType
    by_status = {Trial.TERMINATED: how.finished, Trial.ERROR: how.errored}
    waiting: list[Event] = [Skipped()] if how.unfinished is kind.SKIP else []
    starting: list[Event] = []
    for trial in study.trials.values():
        what = by_status.get(trial.status, how.unfinished)
        if what is kind.SKIP:
            continue
        saved, moved = trial.point, Moved(trial.trial_id, trial.point, trial.checkpoint_at)
        if trial.is_finished():
            starting.append(Revived(trial.trial_id))
        if what is kind.RESTART:
            moved = Moved(trial.trial_id)
        elif saved is not None and not kept.is_there(saved):
            moved = kept.back(trial.trial_id)
        if trial.status == Trial.RUNNING:
            starting.append(moved)
        elif moved.checkpoint is not saved:
            waiting.append(moved)
    return [*waiting, Sized(slots), *starting]

"""The verb `tune`: lists, shows and resumes experiments of hyper-parameter search."""

from __future__ import annotations

import json
import math
import os
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_runtime.errors import JournalError
from mpi_runtime.files.claim import living_owner_of
from mpi_runtime.show.command_line import directory_parser, on_directory, print_json
from mpi_runtime.show.numbers import plural
from mpi_runtime.tune.show.shown import EARLY, state_word, stopped_early
from mpi_runtime.tune.trial import Config

if TYPE_CHECKING:
    from mpi_runtime.tune.experiment.journal_view import Watched, WatchedTrial


def run(words: Sequence[str]) -> int:
    """Run a verb."""
    return on_directory(tune_parser(), words, VERBS)


def tune_parser() -> ArgumentParser:
    """The arguments of `mpi-runtime tune`."""
    about = "Show experiments, the directories of mpi_runtime.tune, also while they run, and resume them."
    return directory_parser("tune", about, VERBS, "of an experiment; with ls also one that holds several", ["resume"])


def list_all(directory: Path, as_json: bool) -> int:
    """Print a line for each experiment."""
    own = [directory] if list(directory.glob("*.journal")) else []
    found = own or sorted(path.parent for path in directory.glob("*/tuner.pickle"))
    if not found:
        if not directory.is_dir():
            raise JournalError(f"there is no directory {directory}")
        is_open = all(os.access(path, os.R_OK | os.X_OK) for path in (directory, *directory.iterdir()) if path.is_dir())
        raise JournalError(f"{directory} has no experiments{'' if is_open else ' that you may read'}")
    facts: list[Config] = []
    for path in found:
        seen, job = _read(path), living_owner_of(path)
        counts = Counter(trial.status for trial in seen)
        best, metric = _best(seen), seen.metric or ""
        facts.append({
            "name": path.name,
            "trials": counts,
            "metric": seen.metric,
            "mode": seen.mode,
            "best": best.trial_id if best else None,
            "value": best.metrics[metric] if best else None,
            "used_by": job,
        })  # fmt: skip
        if as_json:
            continue
        words = ", ".join(f"{count} {word}" for word, count in sorted(Counter(map(state_word, _states(seen))).items()))
        end = f", best {metric} {best.metrics[metric]:.6g} in trial {best.trial_id}" if best else ""
        left = seen.remaining() if job else None
        rest = (f"; run by {job}" if job else "") + (f", {left}" if left is not None else "")
        print(f"{path.name}: {plural(len(seen), 'trial')} ({words}){end}{rest}")
    if as_json:
        print_json(facts)
    return 0


def _seconds(trial: WatchedTrial) -> float:
    """The seconds from its start to its last report."""
    return trial.reported_s - trial.began_s if trial.history else 0.0


def _states(seen: Watched) -> list[str]:
    """The state of each trial, as the lines of a running experiment have it."""
    early = stopped_early((one.trial_id, one.status, one.is_halted, len(one.history)) for one in seen)
    return [EARLY if one.trial_id in early else one.status for one in seen]


def _facts(trial: WatchedTrial) -> Config:
    told = {"trial": trial.trial_id, "status": trial.status, "reports": len(trial.history), "seconds": _seconds(trial)}
    return {**told, "config": trial.config, "last": trial.reported[-1] if trial.reported else {}}


def show_best(directory: Path, as_json: bool) -> int:
    """Print the best trial."""
    seen = _read(directory)
    best = _best(seen)
    if best is None:
        raise JournalError(f"{directory}: no trial has reported {seen.metric or 'a metric that is compared'}")
    if as_json:
        print_json(_facts(best))
        return 0
    print(f"trial {best.trial_id}, {state_word(best.status)}, {len(best.history)} reports")
    print(f"{seen.metric}: {best.metrics[seen.metric or '']}")
    print(json.dumps(best.config, indent=2, default=repr))
    return 0


def show_trials(directory: Path, as_json: bool) -> int:
    """Print a line for each trial."""
    seen = _read(directory)
    if as_json:
        print_json([_facts(trial) for trial in seen])
        return 0
    aim = f", {seen.mode} {seen.metric}" if seen.metric else ""
    print(f"{directory.name}: trials of {seen.name}{aim}")
    for one, state in zip(seen, _states(seen), strict=True):
        value = one.metrics.get(seen.metric or "", "")
        reports, config = len(one.history), json.dumps(one.config, default=repr)
        print(
            f"{one.trial_id} {state_word(state):13} {reports:6} reports {_seconds(one):9.1f} s  {value!s:22} {config}"
        )
    return 0


def resume(directory: Path, as_json: bool) -> int:
    """Continue an experiment."""
    from mpi_runtime.tune import Tuner  # not at the top: other verbs need no runtime

    results = Tuner.restore(directory).fit()
    print(results)
    return 1 if results.num_errors else 0


def _read(directory: Path) -> Watched:
    from mpi_runtime.tune.experiment.journal_view import (
        Watched,  # not at the top: `mpi-runtime --help` needs none of it
    )

    return Watched(directory)


def _best(seen: Watched) -> WatchedTrial | None:
    from mpi_runtime.tune.trial import number_in

    sign = -1 if seen.mode == "min" else 1
    numbers = [(trial, number_in(trial.metrics, seen.metric)) for trial in seen]
    known = [(trial, value) for trial, value in numbers if value is not None and math.isfinite(value)]
    return max(known, key=lambda pair: sign * pair[1], default=(None, 0.0))[0]


VERBS: dict[str, tuple[Callable[[Path, bool], int], str]] = {
    "ls": (list_all, "print a line for each experiment: its trials, and the best so far"),
    "best": (show_best, "print the configuration of the best trial, by its last report"),
    "show": (show_trials, "print a line for each trial"),
    "resume": (resume, "continue an experiment that was interrupted"),
}

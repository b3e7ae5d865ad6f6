"""The verb `tune`: lists, shows and resumes experiments of hyper-parameter search."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpi_runtime.cli.facts import print_json
from mpi_runtime.cli.main import on_directory
from mpi_runtime.errors import JournalError
from mpi_runtime.journal.claim import living_owner_of
from mpi_runtime.show.numbers import plural


@dataclass
class Seen:
    """A trial in the journal."""

    status: str = "PENDING"
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    last: dict[str, Any] = field(default_factory=dict[str, Any])
    reports: int = 0
    began_s: float = 0.0
    seconds: float = 0.0
    """From its start to its last report."""


def run(words: Sequence[str]) -> int:
    """Run a verb."""
    about = "Show experiments, the directories of mpi_runtime.tune, also while they run, and resume them."
    return on_directory(
        "tune", words, about, VERBS, "of an experiment; with ls also one that holds several", ["resume"]
    )


def list_all(directory: Path, as_json: bool) -> int:
    """Print a line for each experiment."""
    own = [directory] if list(directory.glob("*.journal")) else []
    found = own or sorted(path.parent for path in directory.glob("*/tuner.pickle"))
    if not found:
        if not directory.is_dir():
            raise JournalError(f"there is no directory {directory}")
        is_open = all(os.access(path, os.R_OK | os.X_OK) for path in (directory, *directory.iterdir()) if path.is_dir())
        raise JournalError(f"{directory} has no experiments{'' if is_open else ' that you may read'}")
    if as_json:
        print_json([_summary(path) for path in found])
        return 0
    for path in found:
        about, trials = _read(path)
        counts = Counter(trial.status for trial in trials.values())
        words = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items()))
        best = _best(about, trials)
        end = f", best {about['metric']} {trials[best].last[about['metric']]:.6g} in trial {best}" if best else ""
        job = living_owner_of(path)
        print(f"{path.name}: {plural(len(trials), 'trial')} ({words}){end}{_run_by(path, job)}")
    return 0


def _run_by(path: Path, job: str) -> str:
    from mpi_runtime.tune.experiment.watched import Watched  # as in `_read`

    left = Watched(path).remaining() if job else None
    return (f"; run by {job}" if job else "") + (f", {left}" if left is not None else "")


def _summary(path: Path) -> dict[str, Any]:
    about, trials = _read(path)
    best = _best(about, trials)
    return {
        "name": path.name,
        "trials": Counter(trial.status for trial in trials.values()),
        "metric": about.get("metric"),
        "mode": about.get("mode"),
        "best": best or None,
        "value": trials[best].last[about["metric"]] if best else None,
        "used_by": living_owner_of(path),
    }


def _facts(trial_id: str, trial: Seen) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "status": trial.status,
        "reports": trial.reports,
        "seconds": trial.seconds,
        "config": trial.config,
        "last": trial.last,
    }


def show_best(directory: Path, as_json: bool) -> int:
    """Print the best trial."""
    about, trials = _read(directory)
    best = _best(about, trials)
    if not best:
        raise JournalError(f"{directory}: no trial has reported {about.get('metric') or 'a metric that is compared'}")
    if as_json:
        print_json(_facts(best, trials[best]))
        return 0
    print(f"trial {best}, {trials[best].status}, {trials[best].reports} reports")
    print(f"{about['metric']}: {trials[best].last[about['metric']]}")
    print(json.dumps(trials[best].config, indent=2, default=repr))
    return 0


def show_trials(directory: Path, as_json: bool) -> int:
    """Print a line for each trial."""
    about, trials = _read(directory)
    if as_json:
        print_json([_facts(trial_id, trial) for trial_id, trial in trials.items()])
        return 0
    aim = f", {about['mode']} {about['metric']}" if about.get("metric") else ""
    print(f"{directory.name}: trials of {about.get('name', '')}{aim}")
    for trial_id, trial in trials.items():
        value = trial.last.get(about.get("metric") or "", "")
        config = json.dumps(trial.config, default=repr)
        print(f"{trial_id} {trial.status:10} {trial.reports:6} reports {trial.seconds:9.1f} s  {value!s:22} {config}")
    return 0


def resume(directory: Path, as_json: bool) -> int:
    """Continue an experiment."""
    from mpi_runtime.tune import Tuner  # not at the top: other verbs need no runtime

    results = Tuner.restore(directory).fit()
    print(results)
    return 1 if results.num_errors else 0


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Seen]]:
    from mpi_runtime.tune.experiment.log import header, read  # not at the top: `mpi-runtime --help` needs none of it

    trials: dict[str, Seen] = {}
    for line in read(directory):
        for trial_id, config in line.configs.items():
            trials[trial_id] = Seen(config=config, began_s=line.now)
        for trial_id, status in line.states.items():
            trials[trial_id].status = status
        event: Any = line.event
        if (metrics := getattr(event, "metrics", None)) is not None:
            trial = trials[event.trial_id]
            trial.last, trial.reports, trial.seconds = dict(metrics), trial.reports + 1, line.now - trial.began_s
    return header(directory), trials


def _best(about: dict[str, Any], trials: dict[str, Seen]) -> str:
    metric: str = about.get("metric") or ""
    sign = -1 if about.get("mode") == "min" else 1
    values = {
        trial_id: sign * trial.last[metric]
        for trial_id, trial in trials.items()
        if isinstance(trial.last.get(metric), (int, float)) and math.isfinite(trial.last[metric])
    }
    return max(values, key=lambda trial_id: values[trial_id], default="")


VERBS: dict[str, tuple[Callable[[Path, bool], int], str]] = {
    "ls": (list_all, "print a line for each experiment: its trials, and the best so far"),
    "best": (show_best, "print the configuration of the best trial, by its last report"),
    "show": (show_trials, "print a line for each trial"),
    "resume": (resume, "continue an experiment that was interrupted"),
}

"""The values that each report has beside those of the trial, counted from report to report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mpi_runtime.tune.trial import BEGIN, Config, Point, Progress, Report, Trial, count_in, text

OF_EACH_REPORT = frozenset((
    *("training_iteration", "time_this_iter_s", "time_total_s", "time_s", "timesteps_total", "timesteps_this_iter"),
    *("episodes_total", "time_since_restore", "iterations_since_restore", "timesteps_since_restore"),
    *("done", "config", "trial_id", "experiment_tag", "checkpoint_dir_name", "timestamp"),
    *("date", "hostname", "node_ip", "pid"),
))  # fmt: skip
"""Their names, and `time_s` of `Result.history`."""

NEVER_TAGGED = ("run", "env", "resources_per_trial")
"""Names that Ray's programs may have among the paths of `format_vars`."""


def begun(trial: Trial, now: float) -> None:
    """A trial starts at its checkpoint, or without one at the beginning."""
    trial.iteration, trial.time_total_s, trial.timesteps, trial.episodes = trial.checkpoint_at
    trial.since_restore = BEGIN
    trial.last_event_at = now


def completed(trial: Trial, metrics: Mapping[str, object], now: float) -> Report:
    """A report with the values that every report has. As in Ray Tune, some of them replace those of the trial."""
    own = count_in(metrics, "time_this_iter_s")
    passed = now - trial.last_event_at if own is None else own
    steps, episodes = (count_in(metrics, name) for name in ("timesteps_this_iter", "episodes_this_iter"))
    count = count_in(metrics, "training_iteration")
    iteration = trial.iteration + 1 if count is None else count
    before = trial.since_restore
    since = Progress(before.iteration + 1, before.time_total_s + passed, before.timesteps + (steps or 0))
    trial.iteration, trial.time_total_s = int(iteration), trial.time_total_s + passed
    trial.timesteps, trial.episodes = trial.timesteps + (steps or 0), trial.episodes + (episodes or 0)
    trial.since_restore, trial.last_event_at = since, now
    unless_reported: Report = {"done": False}
    if steps is not None or trial.timesteps:
        unless_reported["timesteps_total"] = int(trial.timesteps)
    if episodes is not None or trial.episodes:
        unless_reported["episodes_total"] = int(trial.episodes)
    always: Report = {
        "training_iteration": iteration,
        "time_this_iter_s": passed,
        "time_total_s": trial.time_total_s,
        "time_since_restore": since.time_total_s,
        "iterations_since_restore": since.iteration,
        "trial_id": trial.trial_id,
        "config": trial.config,
    }
    if since.timesteps:
        always["timesteps_since_restore"] = int(since.timesteps)
    return {**unless_reported, **metrics, **always}


def folder_of(checkpoint: Point) -> str | None:
    """The name of the directory of a checkpoint; None: it has none."""
    return str(getattr(checkpoint, "path", "")).rpartition("/")[2] or None


def tag(number: int, values: Mapping[tuple[object, ...], object]) -> str:
    """The tag of an experiment: a number, and values by the last part of their paths."""
    return "_".join(filter(None, (str(number), format_vars(values))))


def format_vars(resolved_vars: Mapping[Any, object]) -> str:
    """Values by the last part of their paths, such as `lr=0.5000,x=3`."""
    paths = sorted((path for path in resolved_vars if path not in NEVER_TAGGED), key=lambda path: [*map(str, path)])
    return ",".join(f"{_word(path[-1])}={_word(resolved_vars[path])}" for path in paths)


def _word(value: object) -> str:
    """A value as a word that names of files may have."""
    if isinstance(value, float):
        return f"{value:.4f}"
    try:
        shown = str(value)
    except Exception:  # code of its class
        shown = text(value)
    return re.sub("[^a-zA-Z0-9_-]+", "_", shown).strip("_")


def leaves(values: Config, path: tuple[object, ...] = ()) -> dict[tuple[object, ...], object]:
    """The values in nested dictionaries, by their paths."""
    found: dict[tuple[object, ...], object] = {}
    for name, value in values.items():
        found.update(leaves(value, (*path, name)) if isinstance(value, dict) and value else {(*path, name): value})
    return found

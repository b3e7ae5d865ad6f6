"""The common part of callbacks for boosted trees: which values are reported, and when with a checkpoint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpi_runtime.tune.trials.checkpoint import Checkpoint
from mpi_runtime.tune.trials.reporting import report

Metrics = str | Sequence[str] | Mapping[str, str] | None


def chosen(found: Mapping[str, Any], metrics: Metrics) -> dict[str, Any]:
    """The values to report: those with these names, under the new names of a dictionary, or all."""
    if not metrics:
        return dict(found)
    names = [metrics] if isinstance(metrics, str) else metrics
    theirs = names if isinstance(names, Mapping) else {name: name for name in names}
    if missing := sorted({*theirs.values()} - found.keys()):
        raise KeyError(f"metrics has {missing}, and the library has {sorted(found)}")
    return {ours: found[name] for ours, name in theirs.items()}


@dataclass(frozen=True)
class Reports:
    """Reports evaluations with or without the model."""

    metrics: Metrics
    filename: str
    frequency: int
    saves_at_end: bool
    change: Callable[[dict[str, Any]], dict[str, Any]] | None

    def is_due(self, iteration: int) -> bool:
        """Whether the model is saved after this iteration, counted from 0."""
        return bool(self.frequency) and (iteration + 1) % self.frequency == 0

    def send(self, evaluations: Mapping[str, Mapping[str, Any]], model: Any) -> None:
        """Report the values of each data set; with the model, unless it is None."""
        values = {f"{data}-{name}": value for data, own in evaluations.items() for name, value in own.items()}
        values = chosen(values, self.metrics)
        if self.change is not None:
            values = self.change(values)
        if model is None:
            report(values)
            return
        with tempfile.TemporaryDirectory() as folder:
            model.save_model(os.path.join(folder, self.filename))
            report(values, checkpoint=Checkpoint.from_directory(folder))

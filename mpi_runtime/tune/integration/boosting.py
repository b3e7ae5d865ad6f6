"""The common part of callbacks for boosted trees: which values are reported, and when with a checkpoint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.trial import Config, Report
from mpi_runtime.tune.trials.checkpoint import Checkpoint
from mpi_runtime.tune.trials.reporting import get_context, report

Metrics = str | Sequence[str] | Mapping[str, str] | None


def chosen(found: Mapping[str, object], metrics: Metrics) -> Report:
    """The values to report: those with these names, under the new names of a dictionary, or all."""
    if not metrics:
        return dict(found)
    names = [metrics] if isinstance(metrics, str) else metrics
    theirs = names if isinstance(names, Mapping) else {name: name for name in names}
    if missing := sorted({*theirs.values()} - found.keys()):
        raise KeyError(f"metrics has {missing}, and the library has {sorted(found)}")
    return {ours: found[name] for ours, name in theirs.items()}


def report_with(values: Config, save: Callable[[str], object] | None, filename: str) -> None:
    """Report values; with a checkpoint, whose only file `save` writes, unless it is None."""
    if save is None:
        report(values)
        return
    with tempfile.TemporaryDirectory() as folder:
        save(os.path.join(folder, filename))
        report(values, checkpoint=Checkpoint.from_directory(folder))


class Reports:
    """Reports evaluations with or without the model."""

    CHECKPOINT_NAME = ""
    """The default name of the model's file."""
    library = ""
    """What the constructor must be able to import."""

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[Report], Config] | None = None,
    ) -> None:
        """Report evaluations.

        Args:
            metrics: a name or names of values, such as "valid-binary_logloss"; or a dictionary with other names for
                them; None: all.
            filename: the name of the model's file in a checkpoint, whose ending may be its format; None: "model.ubj"
                for XGBoost, "model.txt" for LightGBM.
            frequency: the number of rounds between checkpoints; 0: none.
            checkpoint_at_end: whether the last model is a checkpoint. XGBoost reports the last values again for it.
            results_postprocessing_fn: changes what is reported.

        Raises:
            ImportError: XGBoost is not installed.
        """
        if self.library:
            load(type(self).__name__, self.library)
        super().__init__()
        self._metrics, self._filename = metrics, filename or self.CHECKPOINT_NAME
        self._frequency, self._saves_at_end, self._change = frequency, checkpoint_at_end, results_postprocessing_fn

    def _is_due(self, iteration: int) -> bool:
        """Whether the model is saved after this iteration, counted from 0."""
        return bool(self._frequency) and (iteration + 1) % self._frequency == 0

    def _send(self, evaluations: Mapping[str, Mapping[str, object]], model: Any) -> None:
        """Report the values of each data set; with the model, unless it is None."""
        values = {f"{data}-{name}": value for data, own in evaluations.items() for name, value in own.items()}
        values = chosen(values, self._metrics)
        if self._change is not None:
            values = self._change(values)
        saves = model is not None and get_context().get_world_rank() == 0  # workers of a training have the same model
        report_with(values, model.save_model if saves else None, self._filename)

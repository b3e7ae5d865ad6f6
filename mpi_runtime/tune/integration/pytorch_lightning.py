"""Reports the metrics of PyTorch Lightning."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.integration.boosting import Metrics, chosen, report_with

NAMES = ("lightning.pytorch", "pytorch_lightning")
"""The library has two names, with classes of their own."""


def _base() -> type:
    """The class of callbacks: of the library that the program uses, else of one that is installed."""
    for name in sorted(NAMES, key=lambda one: one not in sys.modules):
        with contextlib.suppress(ImportError):
            return import_module(name).Callback  # type: ignore[no-any-return]
    return object


if TYPE_CHECKING:
    Base = object
else:
    Base = _base()


class TuneReportCheckpointCallback(Base):
    """`Trainer(callbacks=[this])` reports what `self.log` has logged, by default at the end of each validation."""

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        """Report metrics.

        Args:
            metrics: a name or names of logged values; or a dictionary with other names for them; None: all.
            filename: the name of the checkpoint's file.
            save_checkpoints: whether each report has a checkpoint.
            on: the hook or hooks of Lightning at which it reports, without `on_`.

        Raises:
            ImportError: Lightning is not installed.
            ValueError: there is no such hook.
        """
        if Base is object:
            load("TuneReportCheckpointCallback", "pytorch_lightning", "lightning")
        super().__init__()
        self._metrics, self._filename, self._saves = metrics, filename, save_checkpoints
        for hook in [on] if isinstance(on, str) else on:
            if not hasattr(Base, f"on_{hook}"):
                raise ValueError(f"Lightning has no hook on_{hook}")
            setattr(self, f"on_{hook}", self._report)

    def _report(self, trainer: Any, *_: Any) -> None:
        if trainer.sanity_checking or not trainer.callback_metrics:
            return
        found = {name: value.item() for name, value in trainer.callback_metrics.items()}
        values = chosen(found, self._metrics)
        report_with(values, trainer.save_checkpoint if self._saves else None, self._filename)


class TuneReportCallback(TuneReportCheckpointCallback):
    """The same without checkpoints: an old name of Ray's, which libraries use."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end") -> None:
        """Report metrics without checkpoints; see `TuneReportCheckpointCallback`."""
        super().__init__(metrics, save_checkpoints=False, on=on)

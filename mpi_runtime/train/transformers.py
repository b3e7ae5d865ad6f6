"""transformers in the function of a `TorchTrainer`: its `Trainer` finds the workers itself, and a callback reports."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mpi_runtime.errors.optional import load
from mpi_runtime.train.reporting import get_context, report
from mpi_runtime.tune import Checkpoint

__all__ = ["ReportCallback", "prepare_trainer"]

T = TypeVar("T")

if TYPE_CHECKING:
    _Callback = object
else:
    _Callback = load("mpi_runtime.train.transformers", "transformers").TrainerCallback


class ReportCallback(_Callback):
    """Reports what was logged when the trainer saves, with that checkpoint: for `trainer.add_callback`."""

    CHECKPOINT_NAME = "checkpoint"
    """The directory of the trainer's files in the checkpoint."""

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Report on all workers, with the files of rank 0."""
        values: dict[str, object] = {}
        for entry in state.log_history:
            values.update(entry)
        if get_context().get_world_rank():
            report(values)
            return
        found = max(Path(args.output_dir).glob("checkpoint-*"), key=lambda one: int(one.name.rpartition("-")[2]))
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            shutil.copytree(found, os.path.join(folder, self.CHECKPOINT_NAME))
            report(values, Checkpoint.from_directory(folder))


def prepare_trainer(trainer: T) -> T:
    """Return a trainer of transformers as it is: data sets of torch and of `datasets` need no preparation."""
    return trainer

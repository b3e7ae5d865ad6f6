"""The directory of an experiment, as a trial has it: `get_context().get_storage()`."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from mpi_runtime.errors.optional import load
from mpi_runtime.tune.trials.checkpoint import Checkpoint, check_checkpoint, keep


class Storage(str):
    """The directory of an experiment."""

    def __new__(cls, experiment: str, trial: str) -> Storage:
        """The directory of an experiment, with that of a trial."""
        made = super().__new__(cls, experiment)
        made._trial = trial
        return made

    _trial: str

    @property
    def experiment_fs_path(self) -> str:
        """The same path."""
        return str(self)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment."""
        return os.path.basename(self)

    @property
    def storage_fs_path(self) -> str:
        """The parent directory of experiments."""
        return os.path.dirname(self)

    @property
    def storage_filesystem(self) -> Any:
        """The file system of these paths as an object of pyarrow: the local one."""
        return load("a file system", "pyarrow.fs", "pyarrow").LocalFileSystem()

    def make_default_checkpoint_dir_name(self) -> str:
        """A name for a checkpoint: the time."""
        return datetime.now().strftime("checkpoint_%Y-%m-%d_%H-%M-%S.%f")

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        """The path of a checkpoint of this trial with this name."""
        return os.path.join(self._trial, checkpoint_dir_name)

    def persist_current_checkpoint(self, checkpoint: Checkpoint, checkpoint_dir_name: str) -> Checkpoint:
        """Copy the files of a checkpoint there, all or nothing. `report` of a training copies them by this method.

        Raises:
            FileNotFoundError: its directory does not exist.
        """
        check_checkpoint(checkpoint)
        place = self.build_checkpoint_path_from_name(checkpoint_dir_name)
        keep(checkpoint, str(self), os.path.relpath(place, self))
        return Checkpoint(place)

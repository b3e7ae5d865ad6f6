"""`report` of a training: as that of `tune`, and how the files of a checkpoint are saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum

from mpi_runtime import tune
from mpi_runtime.core import published
from mpi_runtime.train.validation import ValidationTaskConfig
from mpi_runtime.train.worker import BY_NUMBER, Saving, WorkerRun
from mpi_runtime.tune import Checkpoint
from mpi_runtime.tune.extend import advised, trial_run


@published("mpi_runtime.train")
class CheckpointUploadMode(Enum):
    """How `report` saves the files of a checkpoint. It always returns when they are saved."""

    SYNC = "SYNC"
    """They are copied."""
    ASYNC = "ASYNC"
    """They are copied, and their directory is deleted."""
    NO_UPLOAD = "NO_UPLOAD"
    """They are where the checkpoint shall be: a path by `get_storage().build_checkpoint_path_from_name(name)`."""


@published("mpi_runtime.train")
def get_checkpoint() -> Checkpoint | None:
    """As that of `tune`. RuntimeError: this is neither a worker of a trainer nor a trial."""
    trial_run()
    return tune.get_checkpoint()


@published("mpi_runtime.train")
def get_context() -> tune.Context:
    """As that of `tune`. RuntimeError: this is neither a worker of a trainer nor a trial."""
    trial_run()
    return tune.get_context()


@published("mpi_runtime.train")
@advised
def report(
    metrics: Mapping[str, object],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], object] | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Report values, and perhaps a checkpoint, together with all other workers. Those of rank 0 count.

    Args:
        metrics: values by name, as `mpi_runtime.tune.report` takes them.
        checkpoint: files of this worker. Those of all workers make one checkpoint.
        checkpoint_dir_name: the name of its directory, that of rank 0; None: it has its number. A checkpoint replaces
            an earlier one of the same name.
        checkpoint_upload_mode: whether the files are copied.
        delete_local_checkpoint_after_upload: whether their directory is deleted then; None: with ASYNC.
        checkpoint_upload_fn: copies the files in place of the runtime. It gets the checkpoint and the name of its
            directory, and returns the checkpoint there.
        validation: whether the function of `validation_config` validates the checkpoint, and with which arguments.

    Raises:
        RuntimeError: this is neither a worker of a trainer nor a trial.
        TypeError: a value is an array, or `checkpoint` is not a `Checkpoint`.
        ValueError: the name is that of no directory, the files are not where they shall be, or there is nothing to
            validate.
    """
    run, mode = trial_run(), CheckpointUploadMode(checkpoint_upload_mode)
    name = checkpoint_dir_name
    if name is not None and (
        not isinstance(name, str) or name.startswith(".") or os.path.basename(name) != name or not name
    ):
        raise ValueError(
            f"checkpoint_dir_name={name!r}: it must be the name of a directory in that of the training, without a dot "
            "at its beginning"
        )
    deletes = delete_local_checkpoint_after_upload
    if deletes is None:
        deletes = mode is CheckpointUploadMode.ASYNC
    is_placed = mode is CheckpointUploadMode.NO_UPLOAD
    saving = Saving(name, is_placed, deletes and not is_placed, checkpoint_upload_fn)
    if validation and checkpoint is None:
        raise ValueError("validation was requested, and there is no checkpoint: pass checkpoint=...")
    if isinstance(run, WorkerRun):
        run.report(metrics, checkpoint, saving, validation or None)
    elif saving == BY_NUMBER and not validation:
        run.report(metrics, checkpoint)
    else:
        raise TypeError("in a trial report() takes metrics and checkpoint: the rest is for the function of a trainer")

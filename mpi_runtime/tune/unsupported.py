"""Arguments of Ray Tune and Ray Train that are not here, each with what to do instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])


class AbsentArgumentError(TypeError, DeprecationWarning):
    """An argument of Ray is not here. Those that Ray Train has dropped raise DeprecationWarning there."""


class BadSettingError(ValueError, AssertionError):
    """A setting has no meaning. Of some of them Ray asserts that."""


class WrongKindError(TypeError, BadSettingError):
    """A setting is an object of another class. Ray raises ValueError, or asserts."""


_CHECKPOINTS = "pass CheckpointConfig"
_PATHS = "paths are those of a file system that all hosts share: set RunConfig(storage_path=...)"
_LOST = "processes that die are counted by FailureConfig(max_crashes=...)"
_MODEL = "the library's defaults are used; a Searcher of your own can set them"
_OWN_LOOP = "call the library's train() in train_loop_per_worker"
_UPLOAD = "checkpoints are copied below the experiment before report() returns"
ADVICE = {
    "analysis": "points_to_evaluate tries points first",
    "chdir_to_trial_dir": "tune.get_context().get_trial_dir() is the directory of a trial; with --as-ray it runs "
    "there, unless RAY_CHDIR_TO_TRIAL_DIR=0",
    "checkpoint_at_end": _CHECKPOINTS + "(checkpoint_at_end=...)",
    "checkpoint_dir_name": "directories of checkpoints have their numbers; mpi_runtime.train.report takes names",
    "checkpoint_freq": _CHECKPOINTS + "(checkpoint_frequency=...)",
    "checkpoint_score_attr": _CHECKPOINTS + "(checkpoint_score_attribute=..., checkpoint_score_order=...)",
    "checkpoint_upload_fn": _UPLOAD,
    "checkpoint_upload_mode": _UPLOAD,
    "concurrent": "experiments run one after another",
    "controller_failure_limit": _LOST,
    "dataset_config": "each worker has an equal part of each data set; make others in train_loop_per_worker",
    "delete_local_checkpoint_after_upload": _UPLOAD,
    "experiment_checkpoint_path": "pass the directory of the experiment, or a ResultGrid",
    "export_formats": "write what you want to keep into a checkpoint",
    "keep_checkpoints_num": _CHECKPOINTS + "(num_to_keep=...)",
    "label_column": _OWN_LOOP,
    "local_dir": "set storage_path",
    "log_to_file": "set RunConfig(log_to_file=...)",
    "logging_config": "init(quiet=...) chooses what the job logs",
    "max_concurrent": "set TuneConfig(max_concurrent_trials=...), or wrap the searcher in ConcurrencyLimiter",
    "max_preemption_failures": _LOST,
    "metadata": "write it into the checkpoints",
    "metrics_dataframe": "a Result reads its reports itself",
    "min_time_slice": "choose grace_period",
    "num_boost_round": _OWN_LOOP,
    "params": _OWN_LOOP,
    "patience": _MODEL,
    "preemption_grace_s": _LOST,
    "relax_collectives_on_preemption": _LOST,
    "repeat_float_precision": _MODEL,
    "restore": "pass the checkpoint in config, and open it in the function",
    "resume": "tune.run(resume=True, name=...) continues one experiment",
    "resume_from_checkpoint": "pass the checkpoint in train_loop_config, and open it in the function",
    "reuse_actors": "set TuneConfig(reuse_actors=...), or pass it to tune.run",
    "skip_duplicate": _MODEL,
    "storage": "an experiment is rebuilt from its journal",
    "storage_filesystem": _PATHS,
    "study_name": "an experiment is rebuilt from its journal",
    "sync_config": "there is nothing to synchronise: " + _PATHS,
    "topology": "there are no TPUs here",
    "trials": "pass the directory of the experiment, or a ResultGrid",
    "utility_kwargs": _MODEL,
    "verbose": _MODEL,
}
"""By the name of the argument."""


def advised(target: T) -> T:
    """Have a function or class raise TypeError with advice if it is called with an argument of Ray that is not here.

    None asks for nothing: libraries pass it on where their users did not choose.
    """
    call = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    takers = target.__mro__[:-1] if isinstance(target, type) else (target,)
    known = {name for one in takers for name in inspect.signature(one).parameters}

    @functools.wraps(call)
    def checked(*args: object, **named: object) -> object:
        for name in [one for one in named if one not in known and one in ADVICE]:
            if named.pop(name) is not None:
                raise AbsentArgumentError(f"Ray's argument {name} of {target.__name__} is not here: {ADVICE[name]}")
        return call(*args, **named)

    if not isinstance(target, type):
        return checked  # type: ignore[return-value]
    target.__init__ = checked  # type: ignore[misc]
    return target

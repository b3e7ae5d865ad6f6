"""One worker of a training: runs the function on a member of a gang, and reports with the other workers.

A report needs two meetings of all workers. Before the first each writes its files of the checkpoint. Then rank 0 sends
the report, and waits for the decision about the trial, which the others receive in the second, with the place of the
checkpoint. A worker whose function has ended takes part in a meeting too, so the others notice if they still report.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import random
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import cloudpickle

from mpi_runtime.core import published
from mpi_runtime.extend import job
from mpi_runtime.extend import member as gang_member
from mpi_runtime.files.writing import replace_file
from mpi_runtime.train.shards import Items, Parts, cut
from mpi_runtime.tune import Checkpoint, Context
from mpi_runtime.tune.extend import (
    RETURN_VALUE,
    Config,
    Ranks,
    Saved,
    StopTrial,
    TrialRun,
    TrialStart,
    check_checkpoint,
    enter_trial,
    merge,
    plain,
    seed,
    trial_run,
    trial_run_or_none,
)

if TYPE_CHECKING:
    from mpi_runtime.data import DataIterator

T = TypeVar("T")
TRAIN_DATASET_KEY = "train"
"""The name of the data set that `get_dataset_shard` returns without a name."""
TrainContext = Context
RANK = "_rank_of_training"
"""The attribute of an error with the rank of the worker that has raised it."""
CONFIG = "train_loop_config"
"""The only key that the space of a tuned trainer may have."""
_REPORTS, _WRITES, _PLACES, _ENDS, _SHARES = b"r", b"w", b"p", b"e", b"b"
_STOPS, _CONTINUES = b"s", b"c"


@dataclass(frozen=True)
class Saving:
    """How a worker saves its files of a checkpoint."""

    name: str | None = None
    """The name of the checkpoint's directory; None: it has its number."""
    is_placed: bool = False
    """Whether the files are where the checkpoint shall be."""
    deletes: bool = False
    """Whether the directory with the files is deleted when they are saved."""
    upload: Callable[[Checkpoint, str], object] | None = None
    """Saves the files in place of the runtime, and returns the checkpoint."""

    def path(self, run: TrialRun) -> str:
        """The path of the next checkpoint below the directory of the experiment."""
        return run.next_path() if self.name is None else os.path.join(run.start.folder, self.name)

    def placed(self, run: TrialRun, checkpoint: Checkpoint) -> str:
        """The path of a checkpoint that is where it shall be; empty: it is to be copied there."""
        if self.upload is not None:
            made = self.upload(checkpoint, os.path.basename(self.path(run)))
            if not isinstance(made, Checkpoint):
                raise ValueError(f"checkpoint_upload_fn must return a `ray.train.Checkpoint`, not {made!r}")
        elif self.is_placed:
            made = checkpoint
        else:
            return ""
        check_checkpoint(made)
        place = os.path.abspath(made.path)
        if os.path.dirname(place) != run.start.directory:
            raise ValueError(
                f"the checkpoint {place} is not in {run.start.directory}, where those of this training are: make its "
                "path by get_context().get_storage().build_checkpoint_path_from_name(name)"
            )
        return os.path.relpath(place, run.start.experiment)


BY_NUMBER = Saving()


@dataclass(frozen=True)
class Beside:
    """What the callbacks of a trainer get besides the report of rank 0."""

    metrics: tuple[Mapping[str, object], ...] = ()
    """What each worker has reported, by rank."""
    validation: object = None
    """How the checkpoint is validated; None: it is not."""


class Place(Protocol):
    """The place of a worker among the others."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def hosts(self) -> Sequence[int]:
        """The number of each one's node, by rank."""


class Joins(Protocol):
    """What makes a library's group of the workers."""

    def joined(self, own_gpus: float) -> AbstractContextManager[None]:
        """A context in which the group exists. `own_gpus`: the number of GPUs of this worker."""


@published("mpi_runtime.train")
@dataclass(frozen=True)
class Loop:
    """The function of a trainer, as the trial of an experiment."""

    function: Callable[..., object]
    config: Mapping[str, object]
    backend: Joins | None
    collects: bool = False
    """Whether rank 0 sends the reports of all workers to the driver."""
    validates: bool = False
    """Whether the trainer has a function that validates checkpoints."""

    def __call__(self, config: Config, /, **datasets: Items | Parts) -> None:
        """Run the function on this worker."""
        if unknown := sorted(set(config) - {CONFIG}):
            raise ValueError(f'the space of a trainer has the key "{CONFIG}" and no other: not {", ".join(unknown)}')
        own = {**self.config, **config.get(CONFIG, {})}
        trial = trial_run()
        assert gang_member.current is not None, "the function of a trainer runs on a gang"
        run = WorkerRun(trial.start, trial.persist_s, gang_member.current.place, datasets, self)
        enter_trial(run)
        for _, items in sorted(datasets.items()):
            if isinstance(items, Parts):
                items.enter(run.share, run.ranks.rank)
        own_gpus = trial.start.resources.bundles[0].get("GPU", 0)
        with self.backend.joined(own_gpus) if self.backend else contextlib.nullcontext():
            seed(random.getrandbits(32) ^ run.ranks.rank)  # not the same random numbers on each worker
            try:
                value = self.function(own) if takes_config(self.function) else self.function()
            except (Exception, SystemExit) as error:
                with contextlib.suppress(Exception):  # a class without attributes
                    setattr(error, RANK, run.ranks.rank)
                raise
            if not run.ranks.rank:
                keep_return_value(Path(run.start.directory), value)
            run.end()


def takes_config(function: Callable[..., object]) -> bool:
    """Whether the function of a trainer takes its configuration: a parameter without a default, as in Ray.

    So functions in a loop may bind its variables by defaults. TypeError: it needs more.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    is_open = any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values())
    for count in (1, 0) if is_open else (0, 1):
        with contextlib.suppress(TypeError):
            signature.bind(*[{}] * count)
            return bool(count)
    raise TypeError(f"{function!r} must take no argument or one, the configuration: a trainer passes no other")


def keep_return_value(folder: Path, value: object) -> None:
    """Write what the function returned, in place of that of an earlier attempt."""
    path = folder / RETURN_VALUE
    path.unlink(missing_ok=True)
    if value is None:
        return
    try:
        data = cloudpickle.dumps(value, 5)
    except Exception as error:  # not a failure: the training itself has ended well
        warnings.warn(
            f"the function of the trainer returned a {type(value).__name__} that cannot be pickled ({error}), so "
            "Result.return_value will be None: return plain values, arrays, or nothing",
            stacklevel=2,
        )
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(os.fspath(path), data)


class WorkerRun(TrialRun):
    """The run of a trial on one of several workers."""

    def __init__(
        self, start: TrialStart, persist_s: float, place: Place, datasets: Mapping[str, Items | Parts], loop: Loop
    ) -> None:
        own = place.hosts[place.rank]
        local = [rank for rank, host in enumerate(place.hosts) if host == own]
        ranks = Ranks(place.rank, place.size, local.index(place.rank), len(local), own)
        super().__init__(start, persist_s, ranks)
        self._datasets, self._loop = datasets, loop
        for left in Path(self.start.directory).glob(f".*.rank{place.rank}"):  # an earlier attempt ended before a report
            shutil.rmtree(left, ignore_errors=True)

    def report(
        self,
        metrics: Mapping[str, object],
        checkpoint: Checkpoint | None,
        saving: Saving = BY_NUMBER,
        validation: object = None,
    ) -> None:
        """Report with all other workers: the values of rank 0, and the files of all."""
        if validation is not None and not self._loop.validates:
            raise ValueError("validation was requested, and the trainer has no validation_config=ValidationConfig(...)")
        values, odd = plain(metrics)
        number, path = self.next_number, saving.path(self)
        parts = self._together("reports", self._write(checkpoint, path, saving))
        has_files = any(part != _REPORTS for part in parts)
        beside = self._beside(dict(metrics), checkpoint, validation)
        if self.ranks.rank:
            self.iteration += 1
            decision = b""
        else:
            saved = self._saved(checkpoint, parts, number, path)
            is_judged_later = beside is not None and beside.validation is not None
            decision = _CONTINUES if self.send(values, saved, odd, beside, is_judged_later) else _STOPS
            decision += os.fsencode(saved.path) if saved else b""
        self.next_number = number + has_files
        decided = self.exchange(decision)[0]
        if len(decided) > 1:
            self.latest = Saved(number, os.fsdecode(decided[1:]))
        if checkpoint is not None and saving.deletes and not checkpoint.is_in_memory:
            shutil.rmtree(checkpoint.path, ignore_errors=True)
        if decided.startswith(_STOPS):
            raise StopTrial

    def _beside(self, metrics: object, checkpoint: Checkpoint | None, validation: object) -> Beside | None:
        """On rank 0 what its driver gets besides: all reports, and the first validation of a checkpoint."""
        if not self._loop.collects and not self._loop.validates:
            return None
        parts = self.exchange(cloudpickle.dumps((metrics, None if checkpoint is None else (validation,)), 5))
        if self.ranks.rank:
            return None
        found = [pickle.loads(part) for part in parts]
        [chosen] = next((asked for _, asked in found if asked is not None), (None,))
        return Beside(tuple(one for one, _ in found), chosen)

    def share(self, data: T) -> T:
        """Wait for all other workers, and return the data of rank 0."""
        own = b"" if self.ranks.rank else cloudpickle.dumps(data, 5)
        first = self._together("is at a barrier or broadcast", _SHARES + own)[0]
        shared: T = pickle.loads(first[1:]) if self.ranks.rank else data
        return shared

    def end(self) -> None:
        """The function has ended on this worker."""
        self.exchange(_ENDS)

    def shard(self, name: str) -> Items | DataIterator:
        """The part of a data set."""
        if name not in self._datasets:
            raise KeyError(f"the trainer has no data set {name!r}: it has {sorted(self._datasets)}")
        return cut(self._datasets[name], self.ranks.rank, self.ranks.size)

    def _together(self, does: str, part: bytes) -> list[bytes]:
        """Meet all other workers, which must do the same, and return the parts of all."""
        parts = self.exchange(part)
        shares = part.startswith(_SHARES)
        others = [rank for rank, one in enumerate(parts) if one == _ENDS or one.startswith(_SHARES) != shares]
        if others:
            what = "has ended" if all(parts[rank] == _ENDS for rank in others) else "does something else"
            raise RuntimeError(
                f"rank {self.ranks.rank} {does}, and the function of rank(s) {', '.join(map(str, others))} {what}: all "
                "workers of a training must call report(), barrier() and broadcast_from_rank_zero() equally often, in "
                "the same order"
            )
        return parts

    def exchange(self, part: bytes) -> list[bytes]:
        """Meet all other workers, which do the same, and return the parts of all."""
        job().outbox.flush()  # calls that this worker has submitted come before those of others from now on
        assert gang_member.current is not None
        return gang_member.current.meet(part)

    def _write(self, checkpoint: Checkpoint | None, path: str, saving: Saving) -> bytes:
        """Write the files of this worker beside the checkpoint's final place, and return its part of the meeting."""
        if checkpoint is None:
            return _REPORTS
        check_checkpoint(checkpoint)
        if checkpoint.is_in_memory:
            if self.ranks.rank:
                raise ValueError(
                    "only rank 0 may report a checkpoint made by from_dict(): use from_directory() on others"
                )
            return _WRITES
        if placed := saving.placed(self, checkpoint):
            return _PLACES + os.fsencode(placed)
        part = _part(path, self.ranks.rank)
        self.storage.persist_current_checkpoint(checkpoint, os.path.basename(part))
        return _WRITES + os.fsencode(part)

    def _saved(self, checkpoint: Checkpoint | None, parts: list[bytes], number: int, path: str) -> Saved | None:
        """On rank 0: make one checkpoint of all files."""
        written = [os.fsdecode(part[1:]) for part in parts if part.startswith(_WRITES)]
        placed = sorted({os.fsdecode(part[1:]) for part in parts if part.startswith(_PLACES)})
        if len(placed) > 1:
            raise ValueError(
                f"the files of one checkpoint are in {' and '.join(placed)}: they must be in one directory"
            )
        if not written and not placed:
            return None
        if checkpoint is not None and checkpoint.is_in_memory:
            if len(written) + len(placed) > 1:
                raise ValueError("rank 0 has reported a checkpoint made by from_dict(), and other ranks have files")
            return self.save(checkpoint)
        target = placed[0] if placed else path
        merge(self.start.experiment, [*placed, *written], target)
        return Saved(number, target)


def _part(path: str, rank: int) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.rank{rank}")


@published("mpi_runtime.train")
def get_dataset_shard(dataset_name: str = TRAIN_DATASET_KEY) -> Any:
    """Return this worker's part of a data set of the trainer.

    Of a list it is a `Shard`, whose references are loaded when their items are asked for; of an array or a tensor a
    slice. Parts are consecutive, and their sizes differ by one at most.

    Args:
        dataset_name: its name in the trainer's `datasets`.

    Raises:
        RuntimeError: this is not a worker of a trainer.
        KeyError: the trainer has no data set with this name.
    """
    return worker_run("get_dataset_shard()").shard(dataset_name)


def worker_run(caller: str) -> WorkerRun:
    """The run of this worker. RuntimeError: this is not a worker of a trainer."""
    run = trial_run()
    if not isinstance(run, WorkerRun):
        raise RuntimeError(f"{caller} is for the function of a trainer, and this trial has none")
    return run


def gpus() -> float:
    """The number of GPUs of this worker; 0 outside of trainings."""
    run = trial_run_or_none()
    return float(run.start.resources.bundles[0].get("GPU", 0)) if isinstance(run, WorkerRun) else 0.0

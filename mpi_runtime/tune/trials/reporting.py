"""The functions that the code of a trial calls: `report`, `get_checkpoint`, `get_context`."""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from numbers import Complex, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.tune.trial import Config, Report, text
from mpi_runtime.tune.trials.checkpoint import Checkpoint, Saved, check_checkpoint, keep
from mpi_runtime.tune.trials.json_values import DEPTH, fits, written
from mpi_runtime.tune.trials.storage import Storage
from mpi_runtime.tune.unsupported import advised
from mpi_runtime.util import get_node_ip_address
from mpi_runtime.util.streams import emit

if TYPE_CHECKING:
    from mpi_runtime.tune.trials.bundles import PlacementGroupFactory

    References = Mapping[str, mpi_runtime.ObjectRef[Any]]
    """The values of `with_parameters`, by name: references to them."""

Items = list[tuple[object, object]]
"""The names and values of a dictionary, which may be of any class."""
SIMPLE = frozenset({int, float, str, bool, type(None)})


class StopTrial(BaseException):
    """Ends the function of a trial, from within `report`. `finally` blocks run; `except Exception` does not see it."""


@dataclass(frozen=True)
class TrialStart:
    """The arguments of a run of a trial."""

    trial_id: str
    index: int
    config: Config
    checkpoint: Saved | None
    checkpoints: int
    """The number of its earlier checkpoints."""
    iteration: int
    name: str
    experiment: str
    """The directory of the experiment."""
    resources: PlacementGroupFactory
    """The resources that it has."""
    parameters: References = field(default_factory=dict)
    """References to the values of `with_parameters`."""
    folder: str = ""
    """The directory of its files, below that of the experiment; empty: the same."""

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return os.path.join(self.experiment, self.folder) if self.folder else self.experiment


class Told(NamedTuple):
    """A report on its way from the process of a trial to the driver."""

    metrics: Report
    saved: Saved | None
    where: tuple[str, int, str] | None
    """The host and the process of the trial, and the address of the host; None: as before."""
    odd: str
    """Which of the values became text, in words."""
    beside: object = None
    """What the callbacks of a trainer get besides."""
    is_judged_later: bool = False
    """Whether a function of the program judges the checkpoint, and its metrics follow."""


class Ranks(NamedTuple):
    """The place of a process among those of its trial."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its place among the processes of its node."""
    local_size: int = 1
    node: int = 0
    """The number of its node among the nodes of the trial."""


ALONE = Ranks()


@published("mpi_runtime.tune")
class Context:
    """Names and directories of the running trial. Ray calls it `TuneContext`, and `TrainContext` in a training."""

    def __init__(self, start: TrialStart, ranks: Ranks = ALONE, storage: Storage | None = None) -> None:
        self._start = start
        self._ranks = ranks
        self._storage = Storage(start.experiment, start.directory) if storage is None else storage

    def get_trial_id(self) -> str:
        """The id of the trial: five characters of its experiment, and its number, such as `b6eb5_00003`."""
        return self._start.trial_id

    def get_trial_name(self) -> str:
        """The name of the trial."""
        return self._start.name

    def get_trial_dir(self) -> str:
        """The directory of the trial's files, created if necessary."""
        os.makedirs(self._start.directory, exist_ok=True)
        return self._start.directory

    def get_experiment_name(self) -> str:
        """The name of the experiment."""
        return os.path.basename(self._start.experiment)

    def get_storage(self) -> Storage:
        """The directory of the experiment, as text with the names that it has in Ray."""
        return self._storage

    def get_trial_resources(self) -> PlacementGroupFactory:
        """The resources of the trial: `required_resources` has the amounts by name."""
        return self._start.resources

    def get_world_size(self) -> int:
        """The number of processes: 1, or the workers of a training."""
        return self._ranks.size

    def get_world_rank(self) -> int:
        """The number of this process among them, from 0."""
        return self._ranks.rank

    def get_local_rank(self) -> int:
        """The number of this process among those of its node, from 0."""
        return self._ranks.local_rank

    def get_local_world_size(self) -> int:
        """The number of processes on this node."""
        return self._ranks.local_size

    def get_node_rank(self) -> int:
        """The number of this node among the nodes of the training, from 0."""
        return self._ranks.node


TuneContext = Context


class Outside(Context):
    """What a function of a trial gets that a program calls by hand: one process, and no names."""

    def __init__(self) -> None:
        self._ranks = ALONE

    def __getattribute__(self, name: str) -> Any:
        """Questions about the trial have the answer None."""
        found = super().__getattribute__(name)
        return _nothing if name in OF_TRIALS else found


OF_TRIALS = frozenset(
    f"get_{name}" for name in ("trial_id", "trial_name", "trial_dir", "experiment_name", "storage", "trial_resources")
)


def _nothing() -> None:
    return None


class TrialRun:
    """One run of a trial, in its process."""

    def __init__(self, start: TrialStart, persist_s: float, ranks: Ranks = ALONE) -> None:
        self.start = start
        self.ranks = ranks
        self.storage = Storage(start.experiment, start.directory)
        self.persist_s = persist_s
        """The least time between two checkpoints in memory that are written to disk."""
        self._kept_s = time.monotonic()
        self.next_number = start.checkpoints
        """The number of the next checkpoint."""
        self._has_reported = False
        self.iteration = start.iteration
        self.latest = start.checkpoint
        """The checkpoint that `get_checkpoint` returns."""
        self.saved_step: int | None = None
        """Of a class: its last step, if a checkpoint was reported with it."""

    def report(self, metrics: Mapping[str, object], checkpoint: Checkpoint | None) -> None:
        """Send a report to the driver, and wait for its decision. StopTrial: the trial ends here."""
        values, odd = plain(metrics)
        saved = self.save(checkpoint)
        self.latest = saved or self.latest
        if not self.send(values, saved, odd):
            raise StopTrial

    def send(
        self, metrics: Report, saved: Saved | None, odd: str, beside: object = None, is_judged_later: bool = False
    ) -> bool:
        """Send a report to the driver, and wait for its decision: whether the trial continues.

        `odd`: which of its values became text, in words.
        """
        where = None if self._has_reported else process()
        self._has_reported = True
        self.iteration += 1
        # After `done` too: where reports are not decided about, `emit` does not wait for the driver.
        return emit(Told(metrics, saved, where, odd, beside, is_judged_later)) and not metrics.get("done")

    def save(self, checkpoint: Checkpoint | None) -> Saved | None:
        """Store a checkpoint in shared memory, on disk, or both."""
        if checkpoint is None:
            return None
        check_checkpoint(checkpoint)
        number, relative = self.next_number, self.next_path()
        self.next_number += 1
        if not checkpoint.is_in_memory:
            keep(checkpoint, self.start.experiment, relative)
            return Saved(number, relative)
        ref = mpi_runtime.put(checkpoint.to_dict())
        now = time.monotonic()
        if now - self._kept_s < self.persist_s:
            return Saved(number, "", ref)
        self._kept_s = now
        keep(checkpoint, self.start.experiment, relative)
        return Saved(number, relative, ref)

    def next_path(self) -> str:
        """The path of the next checkpoint below the directory of the experiment."""
        return os.path.join(self.start.folder, f"checkpoint_{self.next_number:06d}")


def process() -> tuple[str, int, str]:
    """The host and the id of this process, and the address of the host."""
    return socket.gethostname(), os.getpid(), get_node_ip_address()


def of_process(hostname: str, pid: int, address: str) -> Report:
    """The values of a report that its process and the clock give."""
    now = int(time.time())
    date = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
    return {"timestamp": now, "date": date, "hostname": hostname, "node_ip": address, "pid": pid}


_run: TrialRun | None = None


def enter_trial(run: TrialRun | None) -> None:
    """Set the running trial of this process; None: there is none."""
    global _run
    _run = run


def trial_run_or_none() -> TrialRun | None:
    """The running trial; None: none runs in this process."""
    return _run


def trial_run() -> TrialRun:
    """The running trial. Outside of a trial it is an error to ask."""
    if _run is None:
        raise RuntimeError(
            "This is not a trial: report(), get_checkpoint() and get_context() work only in trials of a Tuner, and in "
            "the function of a trainer."
        )
    return _run


@published("mpi_runtime.tune")
@advised
def report(metrics: Mapping[str, object], checkpoint: Checkpoint | None = None) -> None:
    """Report values of a trial, and perhaps a checkpoint. The trial ends here if the experiment decides so.

    Args:
        metrics: values by name. Numbers of any class, and scalars of numpy and torch, become plain numbers. What
            cannot be written becomes text, with a warning.
        checkpoint: the state from which it continues after a pause or a failure.

    Outside of a trial, where a program calls its function by hand, this is a warning, and nothing else happens.

    Raises:
        TypeError: a value is an array, or `checkpoint` is not a `Checkpoint`.
    """
    if _run is None:
        _warn("report", 4)
    else:
        _run.report(metrics, checkpoint)


@published("mpi_runtime.tune")
def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint that this trial has reported, also in earlier attempts; None: it has reported none.

    In a training with several workers, one that is in memory does not count until the next attempt. Outside of a trial
    it warns, and returns None.
    """
    if _run is None:
        _warn("get_checkpoint")
        return None
    return None if _run.latest is None else _run.latest.opened(_run.start.experiment)


@published("mpi_runtime.tune")
def get_context() -> Context:
    """Names and directories of this trial; outside of one they are None, and there is a warning."""
    if _run is None:
        _warn("get_context")
        return Outside()
    return Context(_run.start, _run.ranks, _run.storage)


def _warn(name: str, level: int = 3) -> None:
    why = f"{name}() has no effect here: this is not a trial, nor the function of a trainer. It returns nothing."
    warnings.warn(why, stacklevel=level)


def plain(metrics: Mapping[str, object]) -> tuple[Report, str]:
    """The metrics as they are written, and in words one that became text. Arrays are refused."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"report() takes a dictionary of values by name, not {metrics!r}")
    found, odd = {}, ""
    for name, value in _with_numbers([*metrics.items()]).items():
        if type(name) is str and name.isascii() and (type(value) is float or (type(value) is int and fits(value))):
            found[name] = value  # most of them
            continue
        texts: list[str] = []
        [(key, whole)] = written({name: value}, texts).items()
        found[str(key)] = whole
        odd = odd or (f"{key!r} ({texts[0]})" if texts else "")
    return found, odd


def _with_numbers(items: Items, prefix: str = "", inside: tuple[int, ...] = ()) -> dict[object, object]:
    """The metrics with scalars as numbers. `inside`: the ids of the dictionaries around; one may be in itself."""
    found: dict[object, object] = {}
    for name, value in items:
        if type(value) in SIMPLE:
            found[name] = value
        elif len(inside) < DEPTH and id(value) not in inside and (own := _items(value)) is not None:
            found[name] = _with_numbers(own, f"{prefix}{text(name)}/", (*inside, id(value)))
        else:
            found[name] = _scalar(value, f"{prefix}{text(name)}")
    return found


def _items(value: object) -> Items | None:
    """The entries of a dictionary; None: it is something else."""
    try:
        return [*value.items()] if _is_mapping(value) else None
    except Exception:  # code of its class
        return None


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether it is a dictionary. Unlike `isinstance` this runs no code of its class."""
    return issubclass(type(value), Mapping)


def _scalar(value: Any, name: str) -> object:
    """A scalar of any class as a number; other values as they are. TypeError: it is an array."""
    shape = _shape(value)
    if shape is not None and math.prod(shape) != 1:
        raise TypeError(
            f"The metric {name!r} is an array of shape {shape}. Report numbers, for example its mean; arrays belong in "
            "a checkpoint."
        )
    try:
        whole = value if shape is None else value.item()
        if isinstance(whole, Enum | bool):
            return whole
        if isinstance(whole, str):
            return str.__str__(whole)
        if isinstance(whole, int):
            return int.__int__(whole)
        is_complex = isinstance(whole, Complex) and not isinstance(whole, Real)
        return float(whole) if hasattr(type(whole), "__float__") and not is_complex else whole
    except Exception:  # code of its class
        return value


def _shape(value: object) -> tuple[int, ...] | None:
    """The shape of an array; None: it has none."""
    try:
        return tuple(map(int, value.shape)) if hasattr(value, "item") and hasattr(value, "shape") else None
    except Exception:  # code of its class
        return None

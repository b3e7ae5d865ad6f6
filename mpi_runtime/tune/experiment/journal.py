"""The journal of an experiment: each event of its study, in the format of `files/segments.py`.

Each run of the experiment writes a segment of its own, so a torn tail loses only the events in it. Lines are numbered,
and lines after a missing one do not count. A new study that handles these events reaches the same state.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mpi_runtime.errors import JournalError
from mpi_runtime.files import private, segments
from mpi_runtime.files.claim import Claim
from mpi_runtime.files.segments import Began, Noted
from mpi_runtime.files.writing import is_full
from mpi_runtime.tune.study.events import Event, Moved, Reported
from mpi_runtime.tune.study.settings import CheckpointConfig
from mpi_runtime.tune.study.study import Study
from mpi_runtime.tune.trial import Config
from mpi_runtime.tune.trials.checkpoint import Saved
from mpi_runtime.tune.trials.json_values import encoder, written

LINE, HEADER = "tune", "tune header"
SYNC_S = 1.0
"""The time between two syncs."""


class Line(msgspec.Struct, array_like=True):
    """An event and its effects."""

    number: int
    now: float
    """The seconds that the experiment had run."""
    event: Event
    states: dict[str, str]
    """The new states of trials."""
    configs: Config
    """The configurations of new trials."""
    folders: dict[str, str] = {}
    """The folders of new trials, if they are not their ids."""


class Header(msgspec.Struct):
    """What those who look at an experiment must know."""

    name: str = ""
    """Of its trainable."""
    metric: str | None = None
    mode: str | None = None
    most: int | None = None
    """The number of trials; None: unlimited, or not known."""
    stops_early: bool = False
    """Whether its scheduler may stop trials."""
    limit_s: float | None = None
    is_training: bool = False
    """Whether its only trial has the directory of the experiment, and results have what it has reported alone."""
    ranking: tuple[str | None, str, int | None] = (None, "max", None)
    """Of checkpoints: the reported value, whether "min" or "max" is best, and how many are kept."""
    is_function: bool = False
    """Whether its trainable is a function."""


class _Checkpoint(msgspec.Struct):
    """What a line has of a checkpoint. Its reference is void."""

    number: int
    path: str


_decoder = msgspec.msgpack.Decoder(Line)


def read(directory: Path) -> Iterator[Line]:
    """The lines of an experiment, in order, up to the first that is missing. JournalError: there is no journal here."""
    number = 0
    for path in _paths(directory):
        with open(path, "rb") as file:
            for _, body in segments.read(file, segments.Damage()):
                if not isinstance(body, Noted) or body.kind != LINE:
                    continue
                line = _decoder.decode(body.data)
                if line.number != number:
                    continue  # after damage: a later run has written this number again
                number += 1
                event = line.event
                if isinstance(event, Reported) and not all(type(name) is str for name in event.metrics):
                    metrics = {str(name): value for name, value in event.metrics.items()}  # of an earlier version
                    line.event = event = msgspec.structs.replace(event, metrics=metrics)
                if isinstance(event, Reported | Moved) and event.checkpoint is not None:
                    known = msgspec.convert(event.checkpoint, _Checkpoint)
                    line.event = msgspec.structs.replace(event, checkpoint=Saved(known.number, known.path))
                yield line


def exists(directory: Path) -> bool:
    """Whether a directory has the journal of an experiment."""
    return bool(segments.paths(directory))


def header_of(name: str, study: Study, checkpoints: CheckpointConfig) -> Header:
    """The header of an experiment with a trainable of this name."""
    limit_s = study.time_limit_s if math.isfinite(study.time_limit_s) else None
    ranking = checkpoints.checkpoint_score_attribute, checkpoints.checkpoint_score_order, checkpoints.num_to_keep
    stops_early = not study.scheduler.is_passive
    return Header(
        name, study.metric, study.mode, study.most, stops_early, limit_s, study.is_training, ranking, study.is_function
    )


def header(directory: Path) -> Header:
    """The header of the last run that has one; or an empty one."""
    for path in reversed(_paths(directory)):
        with open(path, "rb") as file:
            for _, body in segments.read(file, segments.Damage()):
                if isinstance(body, Noted) and body.kind == HEADER:
                    return msgspec.msgpack.decode(body.data, type=Header)
    return Header()


def written_s(directory: Path) -> float:
    """When the last line was written, in seconds since 1970."""
    return _paths(directory)[-1].stat().st_mtime


def _paths(directory: Path) -> list[Path]:
    found = segments.paths(directory)
    if not found:
        raise JournalError(f"{directory} has no experiment: there is no file such as 000001{segments.SUFFIX} in it")
    return found


def unwritable(error: OSError, directory: Path) -> OSError:
    """Return the error for an experiment whose directory cannot be written to, with what to do."""
    advice = "Make room there, or choose" if is_full(error) else "Choose"
    text = f"The experiment cannot be written: {error.strerror}. {advice} RunConfig(storage_path=...)"
    return OSError(error.errno, text, str(directory))


class Journal:
    """Writes the lines of one run."""

    def __init__(self, directory: Path, first: int, header: Header) -> None:
        """Claim the experiment, and begin a segment with its header. `first` is the number of its first line."""
        self._number = first
        self._doomed: list[Callable[[], None]] = []
        try:
            self._begin(directory, header)
        except OSError as error:
            raise unwritable(error, directory) from error
        self._synced_s = time.monotonic()

    def _begin(self, directory: Path, header: Header) -> None:
        private.make_directory(directory)
        job = f"{os.path.basename(sys.argv[0])}, process {os.getpid()} on {socket.gethostname()}"
        self._claim = Claim(directory, job)
        try:
            self.path, self._file = segments.create(directory)
            segments.write_all(self._file, segments.frame(Began(sys.argv[0], job, time.time())))
            segments.write_all(self._file, segments.frame(Noted(HEADER, 0, encoder.encode(header))))
        except BaseException:
            self._claim.release()
            raise

    def add(
        self, now: float, event: Event, states: dict[str, str], configs: Config, folders: dict[str, str] | None = None
    ) -> None:
        """Write a line. It survives the end of this process at once, and that of the host after a second."""
        known = {trial_id: written(config) for trial_id, config in configs.items()}
        data = encoder.encode(Line(self._number, now, event, states, known, folders or {}))
        segments.write_all(self._file, segments.frame(Noted(LINE, self._number, data)))
        self._number += 1

    def turn(self) -> None:
        """Sync if it is due."""
        now = time.monotonic()
        if now - self._synced_s >= SYNC_S:
            self.sync()
            self._claim.beat()

    def sync(self) -> None:
        """Force all lines to the disk, then perform the actions of `after_sync`."""
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()
        doomed, self._doomed = self._doomed, []
        for one in doomed:
            one()

    def after_sync(self, action: Callable[[], None]) -> None:
        """Do this when the lines so far are on disk, for example remove files that they supersede."""
        self._doomed.append(action)

    def close(self) -> None:
        """Write the rest, and release the experiment for other programs."""
        try:
            self.sync()
        finally:
            self._file.close()
            self._claim.release()

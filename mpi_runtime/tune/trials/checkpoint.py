"""Checkpoints: a directory with files, or a dictionary that stays in shared memory until it must be kept.

Each process that runs trials loads this module, and many make no checkpoint. So modules for files are loaded on use.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

import mpi_runtime
from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.files import private
from mpi_runtime.files.writing import beside, replace_file
from mpi_runtime.tune.unsupported import advised

Content = dict[str, Any]
"""The values of a checkpoint that was made from a dictionary, or its metadata."""
DICTIONARY = "checkpoint.pickle"
"""The file of a checkpoint that is a dictionary."""
METADATA = ".metadata.json"
RETURN_VALUE = "return_value.pkl"
"""The file of what the function of a trainer has returned, in the directory of its trial."""


@published("mpi_runtime.tune")
@advised
class Checkpoint:
    """The state from which a trial continues. Made by `from_directory` or `from_dict`, and passed to `report`."""

    def __init__(
        self, path: str | os.PathLike[str], filesystem: object = None, *, data: Mapping[str, Any] | None = None
    ) -> None:
        """A checkpoint in a directory. With `data` it is in memory, and `path` is empty.

        `filesystem`: an object of pyarrow in which `path` is looked up; None: it is a path of this host.
        """
        if filesystem is not None:
            from mpi_runtime.tune.local_paths import local_path

            path = local_path(path, filesystem)
        self.path = os.fspath(path)
        """The directory; empty for one in memory."""
        self._data = data

    @property
    def filesystem(self) -> Any:
        """The file system of `path` as an object of pyarrow: the local one."""
        return load("a file system", "pyarrow.fs", "pyarrow").LocalFileSystem()

    _saved_at: int | None = None
    """The number of steps after which a `Trainable` has saved it by hand."""

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The files of a directory. `report` copies them, so the directory may be a temporary one.

        Raises:
            FileNotFoundError: there is no such directory.
        """
        if not os.path.isdir(os.fspath(path)):  # a number would be a descriptor
            raise FileNotFoundError(f"Checkpoint.from_directory({os.fspath(path)!r}): there is no such directory")
        return cls(os.path.abspath(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Checkpoint:
        """Values by name. They stay in shared memory, and are written to a file when the trial ends and now and then.

        Raises:
            TypeError: `data` is not a dictionary.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"Checkpoint.from_dict() takes a dictionary, not {data!r}")
        return cls("", data=data)

    @property
    def is_in_memory(self) -> bool:
        """Whether it was made from a dictionary and has no directory."""
        return self._data is not None

    def to_dict(self) -> Content:
        """The values of a checkpoint that was made by `from_dict`. Arrays may be read-only views of shared memory.

        Raises:
            ValueError: it was made from a directory.
            PermissionError: its file is another user's, and loading it could run code.
        """
        if self._data is not None:
            return dict(self._data)
        path = os.path.join(self.path, DICTIONARY)
        if not os.path.exists(path):
            raise ValueError(f"the checkpoint {self.path} has files, not a dictionary: use as_directory()")
        found: Content = pickle.loads(private.read_file(path))
        return found

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The path of a directory with the files, to be read within the block."""
        if self._data is None:
            yield self.path
            return
        import tempfile

        with tempfile.TemporaryDirectory(prefix="checkpoint-") as path:
            yield self.to_directory(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files into a directory, by default a new temporary one, and return its path."""
        import shutil
        import tempfile

        target = tempfile.mkdtemp(prefix="checkpoint-") if path is None else os.fspath(path)
        if self._data is None:
            shutil.copytree(self.path, target, dirs_exist_ok=True)
        else:
            os.makedirs(target, exist_ok=True)
            replace_file(os.path.join(target, DICTIONARY), cloudpickle.dumps(dict(self._data), 5))
        return target

    def get_metadata(self) -> Content:
        """The values of `set_metadata`; empty at first."""
        if self._data is not None:
            return dict(self._data.get(METADATA, {}))
        path = os.path.join(self.path, METADATA)
        if not os.path.exists(path):
            return {}
        import json

        with open(path) as file:
            found: Content = json.load(file)
        return found

    def set_metadata(self, metadata: Mapping[str, object]) -> None:
        """Replace the metadata by values that can be written as JSON."""
        if self._data is not None:
            self._data = {**self._data, METADATA: dict(metadata)}
        else:
            import json

            replace_file(os.path.join(self.path, METADATA), json.dumps(dict(metadata)).encode())

    def update_metadata(self, metadata: Mapping[str, object]) -> None:
        """Add values to the metadata."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self.path == other.path and self._data is other._data

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        in_memory = f"Checkpoint({sorted(self._data)} in memory)" if self._data is not None else ""
        return in_memory or f"Checkpoint(filesystem=local, path={self.path})"


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a trial, as driver and study pass it on."""

    number: int
    """Its number among the checkpoints of the trial, from 0."""
    path: str = ""
    """Its path below the directory of the experiment; empty: only in memory."""
    ref: mpi_runtime.ObjectRef[Content] | None = None
    """The dictionary in the object store; None: only on disk."""

    def is_of(self, folder: str) -> bool:
        """Whether it is on disk among those of the trial with this folder, or in memory.

        Others are of the trial from which it continues.
        """
        return os.path.dirname(self.path) in ("", folder)  # without a directory: of a training

    def opened(self, experiment: str) -> Checkpoint:
        """The checkpoint, from memory if possible. ObjectLostError: it was in memory only, and is lost."""
        if self.ref is not None:
            try:
                return Checkpoint("", data=mpi_runtime.get(self.ref))
            except mpi_runtime.errors.MpiRuntimeError:
                if not self.path:
                    raise
        return Checkpoint(os.path.join(experiment, self.path))


def check_checkpoint(checkpoint: object) -> None:
    """Refuse what cannot be saved."""
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint must be a Checkpoint, not {checkpoint!r}; make one with Checkpoint.from_directory(path) "
            "or Checkpoint.from_dict(values)"
        )
    if not checkpoint.is_in_memory and not os.path.isdir(checkpoint.path):
        raise FileNotFoundError(
            f"the checkpoint's directory {checkpoint.path} does not exist: report() copies it, so it must stay until "
            "report() returns, and must be a path, not an address"
        )


def keep(checkpoint: Checkpoint, experiment: str, relative: str) -> None:
    """Write a checkpoint below the directory of its experiment, all or nothing: beside, synced, then renamed."""
    import shutil
    from pathlib import Path

    target = Path(experiment, relative)
    with beside(target, is_only_writer=True) as spare:
        os.makedirs(spare)
        checkpoint.to_directory(spare)
        for folder, _, names in os.walk(spare):
            for name in names:
                _sync(os.path.join(folder, name))
            _sync(folder)
        if target.exists():
            shutil.rmtree(target)
    _sync(os.fspath(target.parent))


def merge(experiment: str, parts: list[str], relative: str) -> None:
    """Make one checkpoint of parts that `keep` has written. Of files with the same name the last one stays.

    The first part may be where the checkpoint shall be, so the others are added to it.
    """
    import shutil

    first, *others = (os.path.join(experiment, part) for part in parts)
    for other in others:
        for folder, _, names in os.walk(other):
            into = os.path.normpath(os.path.join(first, os.path.relpath(folder, other)))
            os.makedirs(into, exist_ok=True)
            for name in names:
                os.replace(os.path.join(folder, name), os.path.join(into, name))
            _sync(into)
        shutil.rmtree(other)
    target = os.path.join(experiment, relative)
    if first != target:
        shutil.rmtree(target, ignore_errors=True)
        os.rename(first, target)
    _sync(os.path.dirname(target))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

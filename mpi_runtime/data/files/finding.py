"""Finds files, and gives them an order."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence

import numpy
from msgspec import Struct

from mpi_runtime.core import published
from mpi_runtime.data.files.writing import local

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class File:
    """A file to be read, or some of its row groups."""

    def __init__(self, path: str, size: int, groups: tuple[int, ...] = ()) -> None:
        self.path = path
        self.size = size
        self.groups = groups


@published("mpi_runtime.data")
class FileShuffleConfig(Struct, frozen=True):
    """The order of files by chance."""

    seed: int | None = None
    """The same seed gives the same order; None: another one in each run."""
    reseed_after_execution: bool = True
    """Whether each run of a data set has an order of its own, which its number and the seed give."""


class Orders:
    """The orders of files, one for each run."""

    def __init__(self, config: FileShuffleConfig) -> None:
        self._config = config
        self._runs = 0

    def of(self, files: list[File]) -> list[File]:
        """The files in the order of the next run."""
        seed, run = self._config.seed, self._runs
        self._runs += self._config.reseed_after_execution
        random = numpy.random.default_rng(None if seed is None else [seed, run])
        return [files[place] for place in random.permutation(len(files))]


def find(paths: Paths, extensions: Sequence[str] | None, skips_missing: bool = False) -> list[File]:
    """The files of paths, patterns and directories, in the order of their names for each.

    Raises:
        FileNotFoundError: there is nothing.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    endings = tuple("." + one.lstrip(".").lower() for one in extensions or ())
    found: list[File] = []
    for one in given:
        path = os.path.abspath(os.path.expanduser(local(one)))
        if os.path.isdir(path):
            found += [File(name, os.path.getsize(name)) for name in _below(path, endings)]
        elif os.path.exists(path):
            found.append(File(path, os.path.getsize(path)))
        elif glob.has_magic(path):
            names = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
            found += [File(name, os.path.getsize(name)) for name in names]
        elif not skips_missing:
            raise FileNotFoundError(f"there is no file {path}")
    if not found:
        wanted = f" that end in {', '.join(endings)}" if endings else ""
        raise FileNotFoundError(f"there are no files{wanted} in {', '.join(os.fspath(one) for one in given)}")
    return found


def _below(folder: str, endings: tuple[str, ...]) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        kept = [name for name in names if name[0] not in "._" and (not endings or name.lower().endswith(endings))]
        found += [os.path.join(place, name) for name in kept]
    return sorted(found)


def only(
    files: list[File], extensions: Sequence[str] | None, chosen: Callable[[Sequence[str]], Sequence[str]] | None
) -> list[File]:
    """The files that have one of these endings, and those of them that are chosen.

    Raises:
        ValueError: there are none.
    """
    if extensions:
        endings = tuple("." + one.lstrip(".").lower() for one in extensions)
        files = [file for file in files if file.path.lower().endswith(endings)]
        if not files:
            raise ValueError(
                f"No input files found to read with the following file extensions: {list(extensions)}. "
                "Please check 'file_extensions'"
            )
    if chosen is not None:
        names = set(chosen([file.path for file in files]))
        files = [file for file in files if file.path in names]
        if not files:
            raise ValueError("No input files found to read: 'partition_filter' leaves out all of them")
    return files

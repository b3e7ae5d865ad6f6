"""Files that are there as a whole, or as they were before; directories that are new."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path


def is_full(error: OSError) -> bool:
    """Whether there is no room on the disk, or in the share that the user has of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def replace_file(path: str, content: str | bytes) -> None:
    """Write a file, which is replaced as a whole. Text is written as UTF-8. A pipe or device is written to.

    Raises:
        OSError: it cannot be written; `filename` is the path. An existing file stays.
    """
    is_replaced = os.path.isfile(path) or not os.path.exists(path)
    try:
        with beside(path) if is_replaced else contextlib.nullcontext(path) as place, open(place, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        error.filename = path  # an error of a write has none
        raise


@contextlib.contextmanager
def beside(path: str | Path, is_new: bool = False, is_only_writer: bool = False) -> Iterator[str]:
    """Yield a path beside this one. What the block writes there, a file or a directory, then gets the name as a whole.

    If the block fails, nothing of it is left. Its own name begins with a dot, so those who look for names with a
    beginning do not find it if the process is killed.

    Args:
        path: a file is replaced. A directory must not exist or be empty.
        is_new: a file is not replaced: it is an error that it exists.
        is_only_writer: nobody else writes this at the same time. What a killed process has left is removed.

    Raises:
        FileExistsError: with `is_new`, the file exists.
        OSError: the name cannot be given.
    """
    folder, name = os.path.split(path)
    spare = os.path.join(folder, f".{name}.new" if is_only_writer else f".{name}.{os.urandom(8).hex()}.new")
    if is_only_writer:
        _remove(spare)
    try:
        yield spare
        if is_new:
            os.link(spare, path)
        else:
            os.replace(spare, path)
    finally:
        _remove(spare)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    if os.path.isdir(path):
        import shutil  # not at the top: it loads compression, and few processes remove a directory

        shutil.rmtree(path, ignore_errors=True)


def make_new_directory(wanted: Path, mode: int = 0o777) -> Path:
    """Make a directory that did not exist, and return its path: this one, or one with a number behind its name.

    Others may want the same name at the same time, for example with the date and time in it.

    Raises:
        OSError: it cannot be made.
    """
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    place, number = wanted, 0
    while True:
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode)
            return place
        number += 1
        place = wanted.with_name(f"{wanted.name}_{number}")

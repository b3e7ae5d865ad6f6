"""Writes the files of people: each is there as a whole, or as it was before. Makes directories that are new."""

from __future__ import annotations

import contextlib
import errno
import os
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
    beside = f"{path}.{os.getpid()}.new" if is_replaced else path
    try:
        with open(beside, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        if is_replaced:
            os.replace(beside, path)
    except OSError as error:
        error.filename = path  # an error of a write has none
        if is_replaced:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        raise


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

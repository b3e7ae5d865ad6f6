"""Writes the files of people: each is there as a whole, or as it was before."""

from __future__ import annotations

import contextlib
import os


def replace_file(path: str, content: str) -> None:
    """Write a text file, which is replaced as a whole.

    Raises:
        OSError: it cannot be written. An existing file stays.
    """
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise

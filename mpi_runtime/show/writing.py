"""Writes the files of people: each is there as a whole, or as it was before."""

from __future__ import annotations

import contextlib
import os


def replace_file(path: str, content: str | bytes) -> None:
    """Write a file, which is replaced as a whole. Text is written as UTF-8.

    Raises:
        OSError: it cannot be written. An existing file stays.
    """
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise

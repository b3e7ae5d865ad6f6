"""Large values of a journal: a file for each, with the same bytes as in an arena."""

from __future__ import annotations

import contextlib
import os
from _blake2 import blake2b  # not by hashlib: see `scheduler/protocol/ids.py`
from collections.abc import Iterable, Iterator
from typing import Any

from mpi_runtime.files import private, segments
from mpi_runtime.files.writing import beside
from mpi_runtime.scheduler.protocol.events import Kept

FOLDER = "values"
DIGEST_BYTES = 16
BLOCK_BYTES = 1 << 22

Parts = Iterable[tuple[int, Any]]
"""Pieces of a value with their positions, as `Serialized.parts` gives them. Between them are zeros."""


class DamagedError(Exception):
    """The content of a file is not the recorded one."""


def _whole(parts: Parts) -> Iterator[memoryview]:
    at = 0
    for position, part in parts:
        yield memoryview(bytes(position - at))
        view = memoryview(part)
        yield view.cast("B") if view.nbytes else memoryview(b"")
        at = position + view.nbytes


def digest_of(parts: Parts) -> bytes:
    """Return the hash of a value."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for piece in _whole(parts):
        found.update(piece)
    return found.digest()


def write(journal: str, name: str, parts: Parts, sync: bool = False) -> tuple[str, bytes]:
    """Write a value. Return the name of its file in the journal, and its hash. `sync`: flush it to the disk.

    Raises:
        OSError: it cannot be written. Nothing of it is left.
    """
    relative = os.path.join(FOLDER, name[-2:], name)
    path, found = os.path.join(journal, relative), blake2b(digest_size=DIGEST_BYTES)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        for made in (os.path.dirname(folder), folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(made, 0o700)
                os.chmod(made, 0o700)
    with beside(path) as spare, open(private.create_file(spare), "wb", buffering=0) as file:
        for piece in _whole(parts):
            found.update(piece)
            segments.write_all(file, piece)
        if sync:
            os.fsync(file.fileno())
    return relative, found.digest()


def read(journal: str, kept: Kept) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a value with their positions. Only the end shows that the value is right.

    Raises:
        DamagedError: it is not.
        OSError: it cannot be read.
    """
    found, at = blake2b(digest_size=DIGEST_BYTES), 0
    if os.path.isabs(kept.file) or ".." in kept.file:
        raise DamagedError(f"{kept.file!r} is not the name of a value")
    with open(private.open_file(os.path.join(journal, kept.file)), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != kept.size:
            raise DamagedError(f"{kept.file} does not have {kept.size} bytes")
        while piece := file.read(min(BLOCK_BYTES, kept.size - at)):
            found.update(piece)
            yield at, piece
            at += len(piece)
    if at != kept.size or found.digest() != kept.digest:
        raise DamagedError(f"{kept.file} has other bytes than were written")


def remove(journal: str, name: str) -> None:
    """Remove a value file, if the name is one and it can be removed."""
    if name.startswith(f"{FOLDER}{os.sep}") and ".." not in name:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(journal, name))


def has_size(journal: str, kept: Kept) -> bool:
    """Whether a value exists, as far as can be seen without reading it."""
    try:
        return not kept.file or os.stat(os.path.join(journal, kept.file)).st_size == kept.size
    except OSError:
        return False


def is_whole(journal: str, kept: Kept) -> bool:
    """Whether a value is undamaged."""
    try:
        for _ in read(journal, kept) if kept.file else ():
            pass
    except (DamagedError, OSError):
        return False
    return True

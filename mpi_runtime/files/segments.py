r"""The format of a journal's segments: one file for each run, to which records are only ever added.

    "mpi_runtime journal\n" | format: u32 | hash of both: 8 bytes | records
    record: mark: 2 bytes | length of the body: u32 | hash of length and body: 8 bytes | body

Numbers are little-endian, hashes BLAKE2b. A body is a `Body` in msgpack.
After bytes that are not a record, because the file ends or is damaged, reading continues at the next mark.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from mpi_runtime.errors import JournalError
from mpi_runtime.files import private
from mpi_runtime.scheduler.protocol.effects import Checkpoint, Fresh, Record
from mpi_runtime.scheduler.protocol.ids import digest

FORMAT = 1
MAGIC = b"mpi_runtime journal\n"
SUFFIX = ".journal"
BODY_BYTES_MAX = (1 << 32) - 1
"""The most that the length of a record can state. Until 0.1.0 a reader took a record of more than 1 GiB for damage."""
_MARK = b"\xa7\x1e"
_HASH_BYTES = 8
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<2sI8s")
_BLOCK_BYTES = 1 << 20
HEADER_BYTES = len(MAGIC) + _LENGTH.size + _HASH_BYTES


class Began(msgspec.Struct, array_like=True, tag=1):
    """The first record of a segment: a run has begun."""

    program: str
    """The name of its file."""
    job: str
    """Where it runs, in words."""
    time_s: float
    """In seconds since 1970."""


class Noted(msgspec.Struct, array_like=True, tag=2):
    """An entry of another part of this package, in its own format."""

    kind: str
    number: int
    """Counted from 0, over all segments."""
    data: bytes


Body = Began | Record | Checkpoint | Fresh | Noted
BODIES = msgspec.msgpack.Decoder(Body)
_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T")


class Damage:
    """The damage that was found in segments."""

    def __init__(self) -> None:
        self.bytes = 0


def header() -> bytes:
    """Return the first bytes of a segment."""
    start = MAGIC + _LENGTH.pack(FORMAT)
    return start + digest(start, _HASH_BYTES)


def frame(body: object) -> bytes:
    """Return a record as bytes. Other files of this package have records of this form too, with bodies of their own.

    Raises:
        ValueError: it is too large.
    """
    data = _encoder.encode(body)
    if len(data) > BODY_BYTES_MAX:
        raise ValueError(f"a record of a journal has at most {BODY_BYTES_MAX} bytes, not {len(data)}")
    length = _LENGTH.pack(len(data))
    return _MARK + length + digest(length + data, _HASH_BYTES) + data


def read(file: BinaryIO, damage: Damage) -> Iterator[tuple[int, Body]]:
    """Yield the records of a segment with their positions, in order. Other bytes are counted as damage.

    Raises:
        JournalError: it is in a later format.
    """
    start = file.read(HEADER_BYTES)
    if start != header():
        own = start[:-_HASH_BYTES]
        if len(start) == HEADER_BYTES and start.startswith(MAGIC) and digest(own, _HASH_BYTES) == start[-_HASH_BYTES:]:
            later = _LENGTH.unpack_from(own, len(MAGIC))[0]
            raise JournalError(
                f"the journal file {file.name} was written by a newer mpi_runtime: its format is {later}, and this one "
                f"reads {FORMAT}. Use that version, or name another directory"
            )
        damage.bytes += file.seek(0, os.SEEK_END)
        return
    at = HEADER_BYTES
    while True:
        one = _read_one(file, BODIES)  # by itself: `body` below would have mypy expect another decoder
        body, size = one
        if body is not None:
            yield at, body
            at += size
        elif not size:
            return
        else:
            after = _next_mark(file, at + 1)
            damage.bytes += after - at
            at = after
            file.seek(at)


def read_at(file: BinaryIO, position: int) -> Body | None:
    """Return the record at a position; None: it is damaged."""
    file.seek(position)
    return _read_one(file, BODIES)[0]


def _read_one(file: BinaryIO, bodies: msgspec.msgpack.Decoder[T]) -> tuple[T | None, int]:
    """Return the record that begins here and its size; None and a size above 0: damage; None and 0: the end."""
    start = file.read(_HEAD.size)
    if len(start) < _HEAD.size:
        return None, len(start)
    mark, length, expected = _HEAD.unpack(start)
    if mark != _MARK:
        return None, len(start)
    data = file.read(length)
    if len(data) < length or digest(start[2:6] + data, _HASH_BYTES) != expected:
        return None, len(start)
    try:
        return bodies.decode(data), len(start) + length
    except msgspec.DecodeError:  # also of a kind that a later version has added
        return None, len(start)


def bodies_in(data: bytes, bodies: msgspec.msgpack.Decoder[T]) -> tuple[list[T], int]:
    """Return the bodies of the whole records at the start of these bytes, and how many bytes they take.

    What is cut off or damaged, and all behind it, is left.
    """
    found: list[T] = []
    file = io.BytesIO(data)
    at = 0
    while (one := _read_one(file, bodies))[0] is not None:
        found.append(one[0])
        at += one[1]
    return found, at


def _next_mark(file: BinaryIO, at: int) -> int:
    """Return the position of the next mark, or of the end of the file."""
    file.seek(at)
    last = b""
    while block := file.read(_BLOCK_BYTES):
        found = (last + block).find(_MARK)
        if found >= 0:
            return at - len(last) + found
        at += len(block)
        last = block[-1:]
    return at


def paths(directory: Path) -> list[Path]:
    """Return the segments of a journal, the oldest first; none if there is no such directory.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = [directory / name for name in os.listdir(directory)]  # `glob` hides that it may not be read
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(path for path in found if path.suffix == SUFFIX and path.stem.isdecimal())


def create(directory: Path) -> tuple[Path, BinaryIO]:
    """Make a segment after all others, with its header.

    Raises:
        OSError: it cannot be made.
    """
    number = max((int(path.stem) for path in paths(directory)), default=0)
    while True:
        number += 1
        path = directory / f"{number:06d}{SUFFIX}"
        with suppress(FileExistsError):
            file = open(private.create_file(path), "wb", buffering=0)  # noqa: SIM115  (the caller's)
            try:
                write_all(file, header())
            except BaseException:
                file.close()
                raise
            return path, file


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of the data to a file without a buffer, which may take several writes.

    Raises:
        OSError: it cannot be written.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]

r"""The format of a journal's segments: one file for each run, to which records are only ever added.

    "mpi_runtime journal\n" | format: u32 | hash of both: 8 bytes | records
    record: mark: 2 bytes | length of the body: u32 | hash of length and body: 8 bytes | body

Numbers are little-endian, hashes BLAKE2b. A body is a `Began`, a `Record`, a `Checkpoint` or a `Noted` in msgpack.
Where the bytes are no record, because the file ends or is damaged, reading goes on at the next mark where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from mpi_runtime.scheduler.protocol.effects import Checkpoint, Record
from mpi_runtime.scheduler.protocol.ids import digest

FORMAT = 1
MAGIC = b"mpi_runtime journal\n"
SUFFIX = ".journal"
BODY_BYTES_MAX = 1 << 30
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
    """When, since 1970."""


class Noted(msgspec.Struct, array_like=True, tag=2):
    """What another part of this package has noted, in words of its own."""

    kind: str
    number: int
    """Counted from 0, over all segments."""
    data: bytes


Body = Began | Record | Checkpoint | Noted
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Body)


class NewerFormatError(Exception):
    """A later version of this package has written the segment."""


class Place(NamedTuple):
    """Where a record stands."""

    position: int
    body: Body


class Damage:
    """What could not be read of a segment."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_header = False
        """It does not begin as segments do: nothing in it counts."""


def header() -> bytes:
    """How a segment begins."""
    start = MAGIC + _LENGTH.pack(FORMAT)
    return start + digest(start, _HASH_BYTES)


def frame(body: Body) -> bytes:
    """A record."""
    data = _encoder.encode(body)
    length = _LENGTH.pack(len(data))
    return _MARK + length + digest(length + data, _HASH_BYTES) + data


def read(file: BinaryIO, damage: Damage) -> Iterator[Place]:
    """The records of a segment, in order. What is no record is counted.

    Raises:
        NewerFormatError: it is in a later format.
    """
    start = file.read(HEADER_BYTES)
    if start != header():
        own = start[:-_HASH_BYTES]
        if len(start) == HEADER_BYTES and start.startswith(MAGIC) and digest(own, _HASH_BYTES) == start[-_HASH_BYTES:]:
            raise NewerFormatError(str(_LENGTH.unpack_from(own, len(MAGIC))[0]))
        damage.is_header = bool(start) or damage.is_header
        damage.bytes += len(start)
        return
    at = HEADER_BYTES
    while True:
        body, size = _read_one(file)
        if body is not None:
            yield Place(at, body)
            at += size
        elif not size:
            return
        else:
            after = _next_mark(file, at + 1)
            damage.bytes += after - at
            at = after
            file.seek(at)


def read_at(file: BinaryIO, position: int) -> Body | None:
    """The record at a position; None: there is none."""
    file.seek(position)
    return _read_one(file)[0]


def _read_one(file: BinaryIO) -> tuple[Body | None, int]:
    """The record that begins here and its size; without one, how many bytes there are, which is 0 at the end."""
    start = file.read(_HEAD.size)
    if len(start) < _HEAD.size:
        return None, len(start)
    mark, length, expected = _HEAD.unpack(start)
    if mark != _MARK or length > BODY_BYTES_MAX:
        return None, len(start)
    data = file.read(length)
    if len(data) < length or digest(start[2:6] + data, _HASH_BYTES) != expected:
        return None, len(start)
    try:
        return _decoder.decode(data), len(start) + length
    except msgspec.DecodeError:  # also of a kind that a later version has added
        return None, len(start)


def _next_mark(file: BinaryIO, at: int) -> int:
    """The position of the next mark; the end of the file if there is none."""
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
    """The segments of a journal, the oldest first."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if path.stem.isdecimal())


def create(directory: Path) -> tuple[Path, BinaryIO]:
    """A new segment after all others, with its header.

    Raises:
        OSError: it cannot be made.
    """
    number = max((int(path.stem) for path in paths(directory)), default=0)
    while True:
        number += 1
        path = directory / f"{number:06d}{SUFFIX}"
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115  (the caller's)
        except FileExistsError:
            continue
        file.write(header())
        return path, file

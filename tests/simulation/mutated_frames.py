"""Wrong frames, made of right ones: what a bit, a byte, a field or a header can do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from mpi_runtime.core.transport.channel import HEADER, packed

NUMBERS = (0, 1, -1, 2, 255, 65_535, 1 << 31, (1 << 62) + 1, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63))
BYTES = (b"", b"\0", bytes(16), b"\xff" * 16, b"\xc1" * 40)
TEXTS = ("", "x", "PACK", "explain", "named_actor", "nodes", "\0")
PARTS: tuple[list[Any], ...] = (
    [2],
    [1, 0, True, False],
    [2, 1, False, True, False, True, 70_000],
    [1000, True],
    [b"", True],
)
"""What parts of a spec may be that most specs lack: a gang, times, retries."""
TAGS = (*range(1, 26), *range(30, 32), *range(40, 47), *range(50, 53), *range(60, 68), *range(80, 86), *range(90, 96))


def mutated(rng: random.Random, frame: bytes, count: int, others: Sequence[bytes]) -> bytes:
    """The frame with its header, and something wrong with one of the two."""
    how = rng.randrange(10)
    if how < 5:
        return packed(in_fields(rng, frame, others), count)
    if how < 7:
        return packed(in_bytes(rng, frame), count)
    if how == 7:
        return packed(frame, rng.choice((0, 1, 2, (count + 1) % 0x10000, max(0, count - 1), 255, 0xFFFE, 0xFFFF)))
    data = packed(frame, count)
    if how == 8:
        return in_bytes(rng, data)
    length = rng.choice((0, 1, len(frame) + 1, len(frame) + (1 << 24), (1 << 32) - 1, rng.randrange(1 << 32)))
    return HEADER.pack(length, rng.choice((length ^ 0xFFFFFFFF, length, 0)), count) + frame


def in_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bits turned over, bytes written over, cut out, put in, or said twice."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(found) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif how == 1 and at < len(found):
            found[at] = rng.randrange(256)
        elif how == 2:
            del found[at : at + rng.choice((1, 2, 17, len(found)))]
        elif how == 3:
            found[at:at] = rng.randbytes(rng.choice((1, 3, 8)))
        else:
            found += found[at:]
    return bytes(found)


def in_fields(rng: random.Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    """A frame of well-formed messages that say something else."""
    messages = _decoded(frame)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change(rng, messages, others)
    try:
        return msgspec.msgpack.encode(messages)
    except (OverflowError, msgspec.MsgspecError):
        return b"\xc1"


def _decoded(frame: bytes) -> list[Any]:
    try:
        found = msgspec.msgpack.decode(frame)
    except msgspec.MsgspecError:
        return [frame]
    return found if isinstance(found, list) else [found]


def _change(rng: random.Random, messages: list[Any], others: Sequence[bytes]) -> None:
    other = _decoded(rng.choice(others))
    how = rng.randrange(8)
    if how == 0:
        messages += other  # what this client may not say, or what another has said
    elif how == 1 and messages:
        messages.append(rng.choice(messages))
    elif how == 2:
        rng.shuffle(messages)
    elif how == 3 and messages:
        del messages[rng.randrange(len(messages))]
    elif messages:
        place = rng.choice(messages)
        while isinstance(place, list) and place:
            at = rng.randrange(len(place))
            if isinstance(place[at], list) and rng.random() < 0.8:
                place = place[at]
                continue
            if how == 4:
                place[at], place[-1] = place[-1], place[at]
            elif how == 5:
                place.insert(at, place[at])
            elif how == 6 and place is not messages and at == 0:
                place[0] = rng.choice(TAGS)
            else:
                place[at] = _instead(rng, place[at], other)
            return


def _instead(rng: random.Random, value: Any, other: list[Any]) -> Any:
    """Another value, most often of the same type."""
    if rng.random() < 0.1:
        return rng.choice((None, True, 0.5, [], {}, "text", 3, b"bytes"))
    known = [one for message in other if isinstance(message, list) for one in _flat(message)]
    same = [one for one in known if type(one) is type(value)]
    if same and rng.random() < 0.5:
        return rng.choice(same)
    if value is None:
        return rng.choice((True, list(rng.choice(PARTS))))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, bytes):
        return rng.choice((*BYTES, value[:-1], value + b"\0", in_bytes(rng, value) if value else b""))
    if isinstance(value, str):
        return rng.choice((*TEXTS, value * 2))
    return value


def _flat(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found += _flat(value)
        else:
            found.append(value)
    return found

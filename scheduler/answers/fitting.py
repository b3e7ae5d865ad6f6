"""Keeps answers to those that look at the job small: they have to fit the buffer of a Unix socket (about 200 kB)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, takewhile
from typing import Any, TypeVar

import msgspec

BYTES_MAX = 150_000
"""The most bytes of one list in an answer."""
T = TypeVar("T")


def fitting(entries: Iterable[T], bytes_max: int = BYTES_MAX) -> list[T]:
    """Return the first entries, as many as fit together."""
    found = list(entries)
    sizes = accumulate(len(msgspec.msgpack.encode(one)) for one in found)
    return [one for one, _ in zip(found, takewhile(lambda size: size <= bytes_max, sizes), strict=False)]


def traced(errors: Iterable[dict[str, Any]], bytes_max: int = BYTES_MAX) -> list[dict[str, Any]]:
    """Return kinds of errors with the tracebacks of the first ones, as many as fit together."""
    found = list(errors)
    kept = len(fitting(found, bytes_max - sum(len(msgspec.msgpack.encode({**one, "trace": ""})) for one in found)))
    return [*found[:kept], *({**one, "trace": ""} for one in found[kept:])]

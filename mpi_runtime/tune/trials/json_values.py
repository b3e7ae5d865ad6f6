"""Values as the journal holds them: after writing and reading. What cannot be written is kept as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

import mpi_runtime
from mpi_runtime.tune.trial import name_of, text

LOWEST, HIGHEST = -(2**63), 2**64 - 1
"""The integers that can be written."""
DEPTH = 100
"""Dictionaries and lists nested deeper are kept as text."""

encoder = msgspec.msgpack.Encoder(enc_hook=lambda value: hooked(value, []))
_decode = msgspec.msgpack.Decoder().decode


def written(value: object, texts: list[str] | None = None, inside: tuple[int, ...] = ()) -> Any:
    """A value after writing and reading: numbers, text, bytes, times, lists, dictionaries by text or integer.

    Never raises. The classes of what becomes text, and was none, are added to `texts`. `inside`: the ids of the lists
    and dictionaries around it.
    """
    texts = [] if texts is None else texts
    kind = type(value)
    if kind is float or kind is bool or value is None:
        return value
    if kind is str:
        whole = text(value)
        if whole != value:
            texts.append("str that is not UTF-8")
        return whole
    if type(value) is int and fits(value):
        return value
    try:
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if len(inside) < DEPTH and id(value) not in inside:
                return _parts(value, texts, (*inside, id(value)))
        else:
            made = _decode(msgspec.msgpack.Encoder(enc_hook=lambda one: hooked(one, texts)).encode(value))
            return _parts(made, texts, inside) if isinstance(made, dict | list) else made
    except Exception:  # code of its class
        texts.clear()
    texts.append("int of more than 64 bits" if kind is int else name_of(kind))
    return text(value)


def _parts(value: Iterable[object], texts: list[str], inside: tuple[int, ...]) -> object:
    """The parts of a dictionary or list, each written."""
    if isinstance(value, Mapping):
        return {_key(name, texts): written(one, texts, inside) for name, one in value.items()}
    return [written(one, texts, inside) for one in value]


def _key(name: object, texts: list[str]) -> str | int:
    made = written(name, texts)
    if type(made) is int or type(made) is str:
        return made
    texts.append(name_of(type(name)))
    return text(name)


def fits(number: int) -> bool:
    """Whether an integer can be written."""
    return LOWEST <= number <= HIGHEST


def hooked(value: object, texts: list[str]) -> object:
    """A value of an unknown class as one that can be written."""
    if isinstance(value, (mpi_runtime.ObjectRef, mpi_runtime.ActorHandle)):
        return name_of(type(value))  # its id differs in each job
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        made = value.item()
        if type(made) is not type(value):  # long double numbers have no other class
            return made
    texts.append(name_of(type(value)))
    return text(value)

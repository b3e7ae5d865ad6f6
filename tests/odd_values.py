"""Values that programs report by mistake, of all kinds: for tests of searches."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import numpy


class Raising:
    """An object with methods that raise."""

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(type(self), name, self._raise)

    @staticmethod
    def _raise(*_: Any) -> Any:
        raise ArithmeticError("code of its class")


def raising(*names: str) -> Any:
    """An object of a class of its own, in which these methods raise."""
    return type("Evil", (Raising,), {})(*names)


class FalseClass:
    """It claims another class by raising."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ArithmeticError("no class")


class OddName(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise ArithmeticError("no name")


class Nameless(metaclass=OddName):
    def __repr__(self) -> str:
        raise ArithmeticError("no text")


class OddMapping(Mapping[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return iter([1, "a", None])

    def __len__(self) -> int:
        return 3


class Letter(enum.Enum):
    A = 1
    B = (1, 2)
    C = object


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


@dataclasses.dataclass(frozen=True)
class Point:
    x: int = 1
    y: Any = None


class Struct(msgspec.Struct):
    x: Any = 1


Pair = collections.namedtuple("Pair", "a b")


def recursive_list() -> Any:
    found: list[Any] = [1]
    found += [found, found]
    return found


def recursive_dictionary() -> Any:
    found: dict[Any, Any] = {"a": 1}
    found["own"] = found["again"] = found
    return found


def deep(make: Callable[[Any], Any], depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = make(found)
    return found


DTYPES: list[Any] = [
    *("?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "g", "c8", "G", "U3", "S3", "O", "M8[s]", "m8[ns]"),
    [("a", "i4"), ("b", "f8")],
]
"""Of numpy."""


def simple() -> list[Any]:
    """One of each kind."""
    methods = "__repr__ __str__ __reduce__ __reduce_ex__ __float__ __bool__ __eq__ __hash__ __len__ __iter__ __index__"
    return [
        None, True, 0, -1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**400, 10**5000, 1.5, float("nan"), float("inf"),
        -float("inf"), 5e-324, 1j, "", "text", "0.5", "nan", "caf\udce9", "\ud800" * 3, "\0", "a\r\nb,\"c",
        "x" * 200_000, "[/red]", b"", b"\xff", bytearray(b"ab"), memoryview(b"ab"), (), [], {}, set(), {1, "a"},
        frozenset([1]), range(3), slice(3), ..., NotImplemented, object, object(), len, lambda: 1, threading.Lock(),
        iter([]), threading, (1, 2),
        [1, [2, [3]]], {"a": {"b": 1}}, {1: 2}, {None: 1}, {(1, 2): 3}, {1.5: 1}, {b"k": 1}, {"\udc80": 1}, {2**70: 1},
        {Point(): 1}, {numpy.int64(3): 0.5}, {Letter.A: 1}, {Word.YES: 1}, {object(): object()}, {"": 1}, {"a/b": 1},
        decimal.Decimal("1.5"), decimal.Decimal("sNaN"), decimal.Decimal("1e999"), fractions.Fraction(1, 3),
        fractions.Fraction(10**400), datetime.datetime(2026, 1, 1), datetime.datetime.now(datetime.timezone.utc),
        datetime.date(2026, 1, 1), datetime.timedelta(1), uuid.UUID(int=1), pathlib.Path("/a"), Letter.A, Letter.B,
        Letter.C, Level.LOW, Word.YES, Text("t"), Whole(3), Real(2.5), Point(), Point(y="\udc80"), Point(y={(1, 2): 3}),
        Struct(), Struct(x=2**70), Pair(1, 2), collections.deque([1]), collections.Counter("ab"), OddMapping(),
        collections.defaultdict(list, a=[1]), collections.ChainMap({"a": 1}), MappingProxyType({"a": 1}),
        collections.OrderedDict(a=1), SimpleNamespace(a=1), MagicMock(), ValueError("x"), msgspec.msgpack.Ext(1, b"a"),
        msgspec.Raw(b"\xc1"), FalseClass(), Nameless(), recursive_list(), recursive_dictionary(),
        deep(lambda one: [one], 5000), deep(lambda one: {"a": one}, 5000), deep(lambda one: (one,), 90),
        *(raising(name) for name in methods.split()), raising(*methods.split()),
        *(numpy.zeros((), kind)[()] for kind in DTYPES), *(numpy.zeros((), kind) for kind in DTYPES),
        *(numpy.zeros(1, kind) for kind in DTYPES), *(numpy.zeros(2, kind) for kind in DTYPES),
        numpy.longdouble("1e4000"), numpy.ma.masked, numpy.random.default_rng(0), numpy.float64("nan"),
    ]  # fmt: skip


WRAPPERS: list[Callable[[Any], Any]] = [
    lambda one: one,
    lambda one: [one, 1],
    lambda one: {"a": one},
    lambda one: {"a": {"b": [one]}},
    lambda one: (one, one),
    lambda one: {one: 1},
    lambda one: Point(y=one),
    lambda one: {1: one, "1": one},
    lambda one: [{"x": [one]}, {one}],
]


def odd_values(count: int = 500, seed: int = 0) -> list[Any]:
    """Odd values, the same for the same seed."""
    rng = random.Random(seed)
    found = simple()
    kinds = [*found]
    while len(found) < count:
        wrapped = rng.choice(kinds)
        for _ in range(rng.randint(1, 2)):
            with contextlib.suppress(Exception):  # it may not be a key
                wrapped = rng.choice(WRAPPERS)(wrapped)
        found.append(wrapped)
    return found[:count]

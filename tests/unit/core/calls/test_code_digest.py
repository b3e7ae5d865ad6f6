"""The hash of a function: the same in every process and wherever it stands, another one for another function."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from mpi_runtime.core.calls.code_digest import digest_of

SOURCE = """
import math
FACTOR = 2
WORDS = {"one", "two", "three"}

def helper(x):
    return x * FACTOR

class Base:
    def scale(self, x):
        return helper(x)

class Model(Base):
    size: int = 3
    def run(self, x):
        return self.scale(x) if x in WORDS else math.sqrt(x)

def f(x, y=1, *, z=2):
    def inner():
        return Model().run(x) + y
    return [inner() for _ in range(z) if x not in {"a", "b", "c"}]
"""


def function(source: str = SOURCE, name: str = "f") -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "somewhere.py", "exec"), space)
    found: Callable[..., Any] = space[name]
    return found


KNOWN = digest_of(function())
VALUES = """
import abc, enum, pickle
from dataclasses import dataclass, field

class Colour(enum.Enum):
    RED = 1

class Shape(abc.ABC):
    pass

@dataclass
class Model(Shape):
    size: int = 3
    colours: list = field(default_factory=list)

MODEL = Model()

def f():
    return MODEL, Colour.RED, Model
"""
OF_VALUES = digest_of(function(VALUES))


def test_it_is_the_same_wherever_it_stands() -> None:
    assert len(KNOWN) == 16
    assert digest_of(function()) == KNOWN
    assert digest_of(function("\n# a comment\n" + SOURCE)) == KNOWN
    assert digest_of(cloudpickle.loads(cloudpickle.dumps(function()))) == KNOWN


def test_instances_of_classes_of_the_program() -> None:
    pickled_before = function(VALUES)
    cloudpickle.dumps(pickled_before())
    assert digest_of(pickled_before) == digest_of(function("\n" + VALUES)) == OF_VALUES != b""
    for old, new in (("RED = 1", "RED = 2"), ("size: int = 3", "size: int = 4"), ("Model()", "Model(4)")):
        assert digest_of(function(VALUES.replace(old, new))) != OF_VALUES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ('"three"', '"four"'),
        ("x * FACTOR", "x + FACTOR"),
        ("return helper(x)", "return x"),
        ("size: int = 3", "size: int = 4"),
        ("math.sqrt", "math.exp"),
        ("y=1", "y=2"),
        ("z=2", "z=3"),
        ("run(x) + y", "run(x) - y"),
        ('"c"}', '"d"}'),
        ("Model(Base)", "Model"),
    ],
)
def test_it_is_another_one_for_another_function(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(function(SOURCE.replace(old, new))) != KNOWN


def test_what_a_function_does_not_use_does_not_count() -> None:
    assert digest_of(function(SOURCE + "\nother = 5\ndef g(): return other\n")) == KNOWN


def test_functions_that_know_each_other() -> None:
    source = "def f(x): return g(x - 1) if x else 0\ndef g(x): return f(x) + 1\n"
    assert digest_of(function(source)) == digest_of(function(source)) != b""
    assert digest_of(function(source.replace("+ 1", "+ 2"))) != digest_of(function(source))


def test_other_callables() -> None:
    class Call:
        def __init__(self, x: int) -> None:
            self.x = x

        def __call__(self) -> int:
            return self.x

    assert digest_of(Call(1)) == digest_of(Call(1)) != digest_of(Call(2))
    assert digest_of(functools.partial(max, 1)) == digest_of(functools.partial(max, 1))
    assert digest_of(functools.partial(max, 1)) != digest_of(functools.partial(max, 2))
    assert digest_of(max) != digest_of(min)


def test_what_is_enclosed_counts() -> None:
    def enclosing(value: object) -> Callable[[], object]:
        return lambda: value

    assert digest_of(enclosing(1)) == digest_of(enclosing(1)) != digest_of(enclosing(2))


def test_of_what_cannot_be_known_there_is_none() -> None:
    lock = threading.Lock()
    assert digest_of(lambda: lock.locked()) == b""

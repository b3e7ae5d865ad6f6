"""`inspect_serializability`: whether it finds the culprit, wherever that hides, and says so."""

import functools
import io
import os
import threading
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.util import Failure, inspect_serializability
from tests.helpers import stable_id

LOCK = threading.Lock()
TABLE = {"inner": {"lock": LOCK}}


class Holder:
    """Something with a lock in it."""

    kind = "a plain attribute"

    def __init__(self) -> None:
        self.number = 1
        self.lock = threading.Lock()

    def work(self) -> int:
        return self.number


class Slotted:
    __slots__ = ("lock", "number")

    def __init__(self) -> None:
        self.number, self.lock = 1, threading.Lock()


class Refuses:
    def __reduce__(self) -> Any:
        raise ValueError("I stay here")


class Clean(Holder):
    def __getstate__(self) -> Any:
        return {"number": self.number}


def culprits(obj: object, **options: Any) -> tuple[list[str], str]:
    """The names of what was found, and what was printed."""
    file = io.StringIO()
    ok, failures = inspect_serializability(obj, print_file=file, **options)
    assert ok == (not failures)
    return sorted(failure.name for failure in failures), file.getvalue()


def make(value: Any) -> Any:
    """A function that has a variable of this value."""

    def use() -> Any:
        return value

    return use


@pytest.mark.parametrize(
    "obj", [1, "a", [1, {2: 3}], len, make(5), Clean(), Clean, make, os, {"a": make({})}], ids=stable_id
)
def test_what_can_be_sent(obj: Any) -> None:
    found, printed = culprits(obj, name="it")
    assert found == []
    assert printed == f"it ({type(obj).__name__}) can be serialised\n"


@pytest.mark.parametrize(
    ("obj", "names"),
    [
        (LOCK, ["it"]),
        (make(LOCK), ["value"]),
        (make([1, LOCK]), ["1"]),
        (make({"a": LOCK, "b": 1}), ["a"]),
        (Holder(), ["lock"]),
        (Slotted(), ["lock"]),
        (Refuses(), ["it"]),
        (make(Refuses()), ["value"]),
        (Holder().work, ["lock"]),
        (functools.partial(max, LOCK, key=LOCK), ["0"]),
        (functools.partial(max, key=threading.Lock()), ["key"]),
        ([threading.Lock(), threading.Lock()], ["0", "1"]),
        (mpi_runtime.RemoteFunction(make(LOCK), {}), ["value"]),
        (ValueError(LOCK), ["0"]),
    ],
    ids=stable_id,
)
def test_the_culprit_is_found(obj: Any, names: list[str]) -> None:
    found, printed = culprits(obj, name="it")
    assert found == names
    assert printed.startswith(f"it ({type(obj).__name__}) cannot be serialised: ")
    assert f"must not be part of it: {', '.join(names)}. Make such things inside the task or actor" in printed


def test_globals_of_functions_and_of_functions_within() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "lock": LOCK}
    exec("def outer():\n    def inner():\n        return lock\n    return inner\n", scope)
    assert culprits(scope["outer"])[0] == ["lock"]


def test_defaults() -> None:
    def by_position(a: Any = threading.Lock()) -> None: ...  # noqa: B008

    def by_name(*, b: Any = threading.Lock()) -> None: ...  # noqa: B008

    assert culprits(by_position)[0] == ["0"]
    assert culprits(by_name)[0] == ["b"]


def test_classes() -> None:
    lock = threading.Lock()

    class Local:
        attribute = lock

    class UsesIt:
        def method(self) -> Any:
            return lock

        @property
        def value(self) -> Any:
            return lock

        @staticmethod
        def static() -> Any:
            return lock

    assert culprits(Local)[0] == ["attribute"]
    assert culprits(UsesIt)[0] == ["lock"]
    assert culprits(mpi_runtime.remote(UsesIt), depth=4)[0] == ["lock"]
    assert culprits(Local())[0] == ["attribute"]


def test_the_tree() -> None:
    holder = Holder()

    def task() -> Any:
        return holder

    ok, failures = inspect_serializability(task, print_file=(file := io.StringIO()))
    assert not ok
    (failure,) = failures
    assert isinstance(failure, Failure)
    assert (failure.name, failure.obj, failure.parent) == ("lock", holder.lock, holder)
    assert repr(failure).startswith("Failure(lock [obj=<unlocked _thread.lock")
    assert file.getvalue().splitlines() == [
        "task (function) cannot be serialised: cannot pickle '_thread.lock' object",
        "  variable 'holder' (Holder): cannot pickle '_thread.lock' object",
        "    attribute 'lock' (lock): cannot pickle '_thread.lock' object",
        "This must not be part of it: lock. Make such things inside the task or actor that uses them, or leave them "
        "out in __getstate__().",
    ]


def test_depth() -> None:
    nested = [[[[LOCK]]]]
    assert [culprits(nested, name="it", depth=depth)[0] for depth in (0, 1, 4)] == [["it"], ["0"], ["0"]]
    file = io.StringIO()
    _, failures = inspect_serializability(nested, depth=2, print_file=file)
    assert [failure.obj for failure in failures] == [[[LOCK]]]


def test_circles_end() -> None:
    circle: list[Any] = [LOCK]
    circle.append(circle)
    assert culprits(circle)[0] == ["0"]
    one: list[Any] = []
    other = [one, [[[LOCK]]]]
    one.append(other)
    assert culprits(one, depth=2)[0] == ["1"]


def test_it_prints_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect_serializability([1, 2]) == (True, set())
    assert capsys.readouterr().out == "[1, 2] (list) can be serialised\n"


def test_an_object_without_a_text() -> None:
    class Silent:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __repr__(self) -> str:
            raise RuntimeError("no text")

    found, printed = culprits(Silent())
    assert found == ["lock"]
    assert "Silent" in printed

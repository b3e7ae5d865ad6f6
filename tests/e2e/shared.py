"""What tests of the API send into tasks and have in common: calls that wait for a file, an actor, an error."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi_runtime import cancel, get, get_runtime_context, method, remote
from mpi_runtime.errors import TaskCancelledError

LONG_S = 30.0
"""More than anything takes that waits here, unless it hangs."""


class OwnError(Exception):
    """A user's error, with more than a text, and not to be made from its text alone."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def fail(code: int) -> None:
    raise OwnError("mine", code=code)


def raised(function: Callable[..., object], *args: Any) -> BaseException:
    """Return the error that a call raises."""
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def is_open(path: str | Path) -> bool:
    """Wait until the file is there."""
    end = time.monotonic() + LONG_S
    while not os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.005)
    return True


@remote
def hold(path: str | Path) -> None:
    """Run until the file is there."""
    is_open(path)


def until_cancels_have_come(folder: Path) -> None:
    """Wait until processes of this host know what was cancelled before: they are told one after the other."""
    begun = folder / "to be cancelled"

    @remote(num_cpus=0)
    def run() -> None:
        begun.touch()
        time.sleep(LONG_S)

    ref = run.remote()
    is_open(begun)
    cancel(ref)
    try:
        get(ref)
    except TaskCancelledError:
        return
    raise AssertionError("it was not cancelled")


@remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int = 1) -> int:
        self.value += number
        return self.value

    @method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value


def note(path: Path, text: object) -> None:
    """Add a line: calls of several processes may do so at once."""
    with path.open("a") as file:
        file.write(f"{text}\n")


@remote
def square(x: Any) -> Any:
    return x * x


@remote
def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@remote
def task_id(x: object) -> str | None:
    return get_runtime_context().get_task_id()

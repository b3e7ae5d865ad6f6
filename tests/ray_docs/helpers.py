"""What the programs of the chapters use, in the driver alone."""

from __future__ import annotations

import builtins
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray


def raised(call: Callable[[], Any], *names: str) -> str:
    """Which of these kinds of error it raises: names of builtins or of `ray.exceptions`; "nothing" if it returns."""
    try:
        call()
    except BaseException as error:
        kinds: dict[str, Any] = {
            name: getattr(builtins, name, None) or getattr(ray.exceptions, name, ()) for name in names
        }
        found = [name for name, kind in kinds.items() if isinstance(error, kind)]
        return " ".join(found) or f"another: {type(error).__name__}"
    return "nothing"


@contextmanager
def tally() -> Iterator[Tally]:
    """A file in which processes count."""
    with tempfile.TemporaryDirectory() as directory:
        yield Tally(f"{directory}/tally")


class Tally:
    """Counts across processes, and goes on counting when they die."""

    def __init__(self, path: str) -> None:
        self.path = path

        def add() -> int:  # a closure, so that tasks get it by value: in Ray they cannot import the tests
            with open(path, "a") as file:
                file.write("x")
                return file.tell()

        self.add = add
        """Count one more, and return how many there are. Tasks can call it too, but not through this object."""

    @property
    def count(self) -> int:
        """How often there was something added."""
        path = Path(self.path)
        return path.stat().st_size if path.exists() else 0


def eventually(condition: Callable[[], Any], timeout: float = 15.0) -> bool:
    """Whether it becomes true."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True

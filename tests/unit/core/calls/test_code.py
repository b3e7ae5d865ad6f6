"""Functions as bytes: the errors that it may end with."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mpi_runtime.core.calls.code import dump_code
from mpi_runtime.core.calls.code_digest import digest_of


class Rings:
    """An alarm is due while this is pickled."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return Rings, ()


@pytest.mark.parametrize("use", [lambda code: dump_code(code, "f"), digest_of], ids=["bytes", "digest"])
def test_the_error_of_an_alarm_is_not_that_of_the_function(use: Callable[[object], object]) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("too late")

    value = Rings()

    def f() -> object:
        return value

    before = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(TimeoutError, match="too late"):
            use(f)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_error_of_the_function_names_it() -> None:
    value = threading.Lock()

    def f() -> object:
        return value

    with pytest.raises(
        TypeError, match=r"cannot serialise f: cannot pickle '_thread.lock' object\. Its variable 'value' refers to"
    ):
        dump_code(f, "f")

"""Functions as bytes: the errors that it may end with."""

import signal
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi_runtime.core.calls import code
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


def test_the_variable_in_an_error_is_found_without_copies_of_arrays() -> None:
    array, lock = np.ones(4_000_000), threading.Lock()

    def f() -> object:
        return array, lock

    tracemalloc.start()
    try:
        assert code._refused(f) == "lock"
        assert tracemalloc.get_traced_memory()[1] < array.nbytes / 10
    finally:
        tracemalloc.stop()

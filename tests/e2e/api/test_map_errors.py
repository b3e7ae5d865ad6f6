"""Errors of `f.map`: of single calls, of their processes, of the iterable; calls that are made again."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import remote
from mpi_runtime.errors import TaskError, WorkerCrashedError
from tests.e2e.shared import note, square
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")


def test_each_call_has_its_own_error() -> None:
    class OwnError(Exception):
        pass

    @remote
    def some(x: int) -> int:
        if x % 10 == 3:
            raise OwnError(x)
        return x

    results = some.map(range(100))
    found = results.get(return_exceptions=True)
    assert [index for index, one in enumerate(found) if isinstance(one, OwnError)] == list(range(3, 100, 10))
    assert [one for one in found if not isinstance(one, Exception)] == [x for x in range(100) if x % 10 != 3]
    error: Any = found[13]
    assert isinstance(error, TaskError)
    assert error.args == (13,)
    assert "some() failed: pid=" in str(error)
    assert "in some" in str(error)
    assert "mapping.py" not in str(error)
    with pytest.raises(OwnError, match="3"):
        results.get()
    assert results[4] == 4
    with pytest.raises(OwnError):
        results[3]


def test_iteration_goes_on_behind_an_error() -> None:
    @remote
    def odd(x: int) -> int:
        if x % 2 == 0:
            raise IndexError(x)  # of all classes the one that ends a sequence
        return x

    def read(iterator: Iterator[Any]) -> list[Any]:
        found: list[Any] = []
        with contextlib.suppress(StopIteration):
            while True:
                try:
                    found.append(next(iterator))
                except IndexError as error:  # noqa: PERF203
                    found.append(error.args)
        return found

    assert read(iter(odd.map(range(6)))) == [(0,), 1, (2,), 3, (4,), 5]
    assert read(odd.map(range(4), chunk=4).as_completed()) == [(0,), (1, 1), (2,), (3, 3)]
    pairs = odd.map(range(4), chunk=4).as_completed(return_exceptions=True)
    assert [index for index, one in pairs if isinstance(one, IndexError)] == [0, 2]


def test_a_result_that_cannot_be_serialised_is_one_error() -> None:
    @remote
    def lock(x: int) -> Any:
        return threading.Lock() if x == 2 else x

    found = lock.map(range(5), chunk=5).get(return_exceptions=True)
    assert isinstance(found.pop(2), TypeError)
    assert found == [0, 1, 3, 4]


def test_a_result_that_cannot_be_read_here_is_one_error() -> None:
    here = os.getpid()

    class Distant:
        def __init__(self, x: int) -> None:
            self.x = x

        def __setstate__(self, state: Any) -> None:
            if state["x"] == 1 and os.getpid() == here:
                raise ImportError("only there")

    @remote
    def make(x: int) -> Any:
        return Distant(x)

    for chunk in (1, 3):
        found = make.map(range(3), chunk=chunk).get(return_exceptions=True)
        assert [isinstance(one, ImportError) for one in found] == [False, True, False]


def test_the_process_of_one_call_dies(tmp_path: Path) -> None:
    @remote
    def some(x: int) -> int:
        note(tmp_path / str(x), os.getpid())
        if x == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    found = some.map(range(12), chunk=12).get(return_exceptions=True)
    error = found.pop(5)
    assert isinstance(error, WorkerCrashedError)
    assert "SIGKILL" in str(error)
    assert "run 4 times; max_retries is 3" in str(error)
    assert found == [x for x in range(12) if x != 5]
    assert len((tmp_path / "5").read_text().splitlines()) == 4, "once, and three retries"
    assert len((tmp_path / "11").read_text().splitlines()) == 1


def test_it_is_mended_when_nobody_looks(tmp_path: Path) -> None:
    @remote
    def some(x: int) -> int:
        if x == 1 and not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            os._exit(1)
        note(tmp_path / "ended", x)
        return x

    results = some.map(range(4), chunk=4)
    end = time.monotonic() + 30
    while not (tmp_path / "ended").exists() or len(set((tmp_path / "ended").read_text().split())) < 4:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert results.get() == [0, 1, 2, 3]


def test_without_retries_nothing_runs_twice(tmp_path: Path) -> None:
    @remote(max_retries=0)
    def some(x: int) -> int:
        note(tmp_path / "runs", x)
        if x == 5:
            os._exit(1)
        return x

    found = some.map(range(12)).get(return_exceptions=True)
    assert isinstance(found[5], WorkerCrashedError)
    assert [one for one in found if isinstance(one, int)] == [x for x in range(12) if x != 5]
    assert sorted(map(int, (tmp_path / "runs").read_text().split())) == list(range(12))
    together = some.map(range(4, 8), chunk=4).get(return_exceptions=True)
    assert all(isinstance(one, WorkerCrashedError) for one in together)
    assert sorted(map(int, (tmp_path / "runs").read_text().split())) == [0, 1, 2, 3, 4, 4, 5, 5, *range(6, 12)]


class OwnError(ValueError):
    """One that a call may be run again for."""


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"max_retries": 3}, 1),
        ({"retry_exceptions": True, "max_retries": 2}, 3),
        ({"retry_exceptions": True, "max_retries": 0}, 1),
        ({"retry_exceptions": [OwnError]}, 4),
        ({"retry_exceptions": (KeyError, OSError)}, 1),
    ],
    ids=str,
)
def test_errors_are_retried_call_by_call(tmp_path: Path, options: Any, runs: int) -> None:
    @remote(**options)  # type: ignore[untyped-decorator]
    def some(x: int) -> int:
        note(tmp_path / str(x), "run")
        if x == 2:
            raise OwnError(x)
        return x

    found = some.map(range(4), chunk=4).get(return_exceptions=True)
    assert isinstance(found[2], ValueError)
    assert [len((tmp_path / str(x)).read_text().splitlines()) for x in range(4)] == [1, 1, runs, 1]


def test_a_retry_may_succeed(tmp_path: Path) -> None:
    @remote(retry_exceptions=True, max_retries=-1)
    def some(x: int) -> int:
        note(tmp_path / str(x), "run")
        if len((tmp_path / str(x)).read_text().splitlines()) < 5:
            raise ValueError(x)
        return x

    assert some.map(range(4), chunk=2).get() == [0, 1, 2, 3]


def test_a_generator_that_raises() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise LookupError("from the iterable")

    with pytest.raises(LookupError, match="from the iterable"):
        square.map(numbers())


def test_a_generator_that_raises_later() -> None:
    def numbers() -> Iterator[int]:
        yield from range(60_000)
        raise LookupError("from the iterable")

    results = square.map(numbers())
    with pytest.raises(LookupError, match="from the iterable"):
        sum(results)
    assert sum(results) == sum(x * x for x in range(60_000)), "what it gave before is not lost"


def test_an_element_that_cannot_be_serialised_later() -> None:
    results = square.map((n if n < 40_000 else threading.Lock()) for n in range(40_001))
    with pytest.raises(TypeError, match="cannot serialise an argument of square"):
        sum(results)
    with pytest.raises(TypeError, match="cannot serialise an argument of square"):
        len(results)
    assert results[20_000] == 20_000**2


def test_after_the_end_of_the_job() -> None:
    program = """
import mpi_runtime as ray

@ray.remote
def same(x):
    return x

with ray.init(num_cpus=1):
    results = same.map(range(3))
    assert results.get() == [0, 1, 2]
try:
    results.get()
except ray.errors.ObjectLostError as error:
    print(error)
"""
    assert "belongs to a job that has ended" in run_program(program).expect(0).stdout


def test_the_error_of_an_alarm_is_not_that_of_the_calls() -> None:
    def late(*_: object) -> None:
        raise TimeoutError("too late")

    @remote
    def slow(n: int) -> int:
        time.sleep(1)
        return n

    results = slow.map(range(2))
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="too late"):
            list(results)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert list(results) == [0, 1]

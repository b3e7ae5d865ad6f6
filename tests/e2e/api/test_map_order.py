"""When the calls of `f.map` are made, and when their results are there."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import get, get_runtime_context, remote
from mpi_runtime.core.calls.chunks import CALLS_MAX
from mpi_runtime.errors import GetTimeoutError, TaskError
from tests.e2e.shared import is_open, slow, square, task_id
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")


def test_an_endless_iterable_is_read_as_the_results_are() -> None:
    drawn = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        while True:
            yield drawn
            drawn += 1

    results = square.map(endless())
    first = drawn
    assert first < 20 * CALLS_MAX
    assert list(itertools.islice(results, 50_000)) == [x * x for x in range(50_000)]
    assert first < drawn < 50_000 + 20 * CALLS_MAX
    index = drawn + 10
    assert results[index] == index**2
    drawn = 0
    completed = {index for index, _ in itertools.islice(square.map(endless()).as_completed(), 50_000)}
    assert len(completed) == 50_000


def test_long_calls_are_spread() -> None:
    ids = task_id.map(range(64)).get()
    assert len(set(ids)) < 64

    @remote
    def work(x: int) -> Any:
        time.sleep(0.05)
        return get_runtime_context().get_task_id()

    assert len(set(work.map(range(64)).get())) == 64, "a long call shares its task with no other"


def test_the_first_is_there_before_the_last_has_ended(gate: Path) -> None:
    @remote
    def wait_for(path: Path | None) -> bool:
        return path is not None and is_open(path)

    results = wait_for.map([None] * 8 + [gate] * 4)
    assert results[0] is False
    index, _ = next(results.as_completed())
    assert index < 8
    gate.touch()
    assert results.get() == [False] * 8 + [True] * 4


def test_timeouts() -> None:
    results = slow.map([0.0, 1.0], chunk=1)
    with pytest.raises(GetTimeoutError, match=r"Waited 0\.1 s for the results of slow\(\): result 1 is not there"):
        results.get(timeout=0.1)
    pairs = results.as_completed(timeout=0.1)
    assert next(pairs) == (0, 0.0)
    with pytest.raises(GetTimeoutError, match="1 pieces of the work"):
        next(pairs)
    assert results.get(timeout=30) == [0.0, 1.0]


def test_a_timeout_in_a_call_is_its_error() -> None:
    @remote
    def give_up(x: int) -> Any:
        return get(slow.remote(0.3), timeout=0.01)

    found = give_up.map(range(2), chunk=1).get(timeout=30, return_exceptions=True)
    assert all(isinstance(one, TaskError) and isinstance(one, GetTimeoutError) for one in found)


INTERRUPTED = """
import gc, os, signal, sys, threading, time
import mpi_runtime as ray

gc.disable()  # see `helpers.frames`
ray.init(num_cpus=2)


@ray.remote
def slow(x):
    time.sleep(x)
    return x


def interrupt():
    "Ctrl-C, when the main thread waits for the results."
    frame = None
    while frame is None:
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and "/mpi_runtime/core/client/" not in frame.f_code.co_filename:
            frame = frame.f_back
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


results = slow.map([0, 2, 0, 2])
threading.Thread(target=interrupt).start()
try:
    results.get(timeout=30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert results.get(timeout=30) == [0, 2, 0, 2]
print("done")
"""


def test_ctrl_c_while_waiting() -> None:
    assert run_program(INTERRUPTED).expect(0).stdout == "interrupted\ndone\n"

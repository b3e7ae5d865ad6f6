"""Cancelling: what waits, what runs, what waits in `get`, what it has submitted, and what depends on it."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import cancel, get, remote
from mpi_runtime.errors import TaskCancelledError, TaskError
from tests.e2e.shared import is_open, until_cancels_have_come
from tests.helpers import run_program, wait_until

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}
LONG_S = 60.0


@remote(max_retries=3)
def long(path: Path | None = None, value: Any = None) -> Any:
    """Runs for long, in Python code."""
    if path is not None:
        path.touch()
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        time.sleep(0.001)
    return value


@remote
def quick(value: Any = None) -> Any:
    return value


def is_cancelled(ref: Any) -> bool:
    with pytest.raises(TaskCancelledError):
        get(ref, timeout=20)
    return True


@pytest.mark.parametrize("text", ["import time; time.sleep(60)", "import torn_inner"])
def test_a_call_that_imports_leaves_no_half_made_modules(text: str, tmp_path: Path) -> None:
    """A module that was imported meanwhile may refer to one that was not finished: the process takes no more calls."""
    pid = tmp_path / "pid"
    begin = f"import os; os.symlink(str(os.getpid()), {str(pid)!r})"
    (tmp_path / "torn.py").write_text(f"{begin}\n{text}\nvalue = 1\n")
    (tmp_path / "torn_inner.py").write_text("import time\ntime.sleep(60)\n")

    @remote
    def imports() -> int:
        import sys

        sys.path.insert(0, str(tmp_path))
        import torn  # type: ignore[import-not-found]

        return int(torn.value)

    ref = imports.remote()
    wait_until(pid.is_symlink)
    cancel(ref)
    assert is_cancelled(ref)
    here = remote(os.getpid)
    assert int(os.readlink(pid)) not in {get(here.remote()) for _ in range(20)}


class Hangs:
    """A value that takes for ever to be pickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        self.path.touch()
        time.sleep(LONG_S)
        return Hangs, (self.path,)


class HangsAsError(Hangs, Exception):
    pass


@remote(max_retries=3)
def hang(path: Path, count: int) -> Any:
    if not count:
        raise HangsAsError(path)
    return Hangs(path) if count == 1 else [Hangs(path)] * count


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_call_that_hangs_in_the_pickling_of_its_result_or_error(count: int, force: bool, tmp_path: Path) -> None:
    refs = hang.options(num_returns=max(1, count)).remote(tmp_path / "runs", count)
    ref = refs[0] if count == 2 else refs
    wait_until((tmp_path / "runs").exists)
    started = time.monotonic()
    cancel(ref, force=force)
    assert is_cancelled(ref)
    assert time.monotonic() - started < LONG_S / 3
    assert get(quick.remote(1)) == 1


def test_a_call_that_is_queued(tmp_path: Path) -> None:
    busy = [long.remote(tmp_path / str(number)) for number in range(2)]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    queued = [long.remote(tmp_path / "never") for _ in range(20)]
    for ref in queued:
        cancel(ref)
    assert all(is_cancelled(ref) for ref in queued)
    for ref in busy:
        cancel(ref)
    assert all(is_cancelled(ref) for ref in busy)
    assert not (tmp_path / "never").exists()


def test_many_that_are_queued() -> None:
    refs = [long.remote() for _ in range(5000)]
    for ref in reversed(refs):
        cancel(ref)
    assert all(is_cancelled(ref) for ref in refs)


def test_a_call_that_waits_for_its_arguments_and_what_depends_on_it() -> None:
    first = long.remote()
    second = quick.remote(first)
    third = quick.remote(second)
    cancel(second)
    assert is_cancelled(second)
    assert is_cancelled(third)
    cancel(first)
    assert is_cancelled(first)


def test_a_call_that_has_ended_keeps_its_value() -> None:
    ref = quick.remote(7)
    assert get(ref) == 7
    cancel(ref)
    cancel(ref, force=True)
    assert get(ref) == 7


def test_a_call_that_waits_in_get_and_what_it_has_submitted(tmp_path: Path) -> None:
    @remote
    def outer() -> Any:
        return get([long.remote(tmp_path / "a"), long.remote(tmp_path / "b")])

    ref = outer.remote()
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    cancel(ref)
    assert is_cancelled(ref)
    wait_until(lambda: mpi_runtime.available_resources().get("CPU") == 2)


def test_children_are_left_alone_if_asked(tmp_path: Path, gate: Path) -> None:
    @remote
    def child() -> None:
        is_open(gate)
        (tmp_path / "ended").touch()

    @remote
    def outer() -> Any:
        ref = child.remote()
        (tmp_path / "submitted").touch()
        return get(ref)

    ref = outer.remote()
    wait_until((tmp_path / "submitted").exists)
    cancel(ref, recursive=False)
    assert is_cancelled(ref)
    gate.touch()  # of a child that is cancelled too nothing comes, as in the test above
    wait_until((tmp_path / "ended").exists)


def test_by_force(tmp_path: Path) -> None:
    @remote(max_retries=5)
    def stubborn() -> None:
        while True:
            try:
                (tmp_path / "runs").touch()
                time.sleep(LONG_S)
            except KeyboardInterrupt:  # noqa: PERF203
                (tmp_path / "asked").touch()

    ref = stubborn.remote()
    wait_until((tmp_path / "runs").exists)
    cancel(ref)
    wait_until((tmp_path / "asked").exists)
    assert mpi_runtime.wait([ref], timeout=0.2) == ([], [ref])
    cancel(ref, force=True)
    assert is_cancelled(ref)
    assert get(quick.remote(2)) == 2


def test_force_hits_no_other(tmp_path: Path) -> None:
    refs = [quick.remote(number) for number in range(500)]
    for ref in refs[::2]:
        cancel(ref, force=True)
    assert get(refs[1::2]) == list(range(1, 500, 2))
    for number, ref in enumerate(refs[::2]):
        with contextlib.suppress(TaskCancelledError):
            assert get(ref) == 2 * number


def test_methods_that_wait_do_not_run_and_one_that_runs_ends(tmp_path: Path, gate: Path) -> None:
    @remote
    class Slow:
        def __init__(self) -> None:
            self.ran: list[int] = []

        def work(self, number: int) -> int:
            (tmp_path / str(number)).touch()
            is_open(gate)
            self.ran.append(number)
            return number

        def what_ran(self) -> list[int]:
            return self.ran

    slow = Slow.remote()
    refs = [slow.work.remote(number) for number in range(4)]
    wait_until((tmp_path / "0").exists)
    for ref in (refs[0], refs[2]):
        cancel(ref)
    until_cancels_have_come(tmp_path)
    gate.touch()
    assert is_cancelled(refs[0])
    assert is_cancelled(refs[2])
    assert get(slow.what_ran.remote()) == [0, 1, 3]


def test_methods_that_run_in_threads_end_but_their_values_are_lost(tmp_path: Path, gate: Path) -> None:
    @remote(max_concurrency=2)
    class Slow:
        def work(self, number: int) -> int:
            (tmp_path / str(number)).touch()
            is_open(gate)
            return number

    slow = Slow.remote()
    refs = [slow.work.remote(number) for number in range(2)]
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    cancel(refs[0])
    until_cancels_have_come(tmp_path)
    gate.touch()
    assert is_cancelled(refs[0])
    assert get(refs[1]) == 1


def test_the_error_of_a_call_that_ran_is_one_of_a_task(tmp_path: Path) -> None:
    ref = long.remote(tmp_path / "runs")
    wait_until((tmp_path / "runs").exists)
    cancel(ref)
    with pytest.raises(TaskError, match=r"^long was cancelled by cancel\(\)\.$") as caught:
        get(ref)
    assert isinstance(caught.value, TaskCancelledError)
    assert isinstance(caught.value.cause, TaskCancelledError)
    assert is_cancelled(quick.remote(ref))


def test_a_cancelled_call_is_not_run_again(tmp_path: Path) -> None:
    @remote(max_retries=-1, retry_exceptions=True)
    def dies() -> None:
        try:
            (tmp_path / str(os.getpid())).touch()
            time.sleep(LONG_S)
        except KeyboardInterrupt:
            os._exit(1)

    ref = dies.remote()
    wait_until(lambda: list(tmp_path.iterdir()))
    cancel(ref)
    assert is_cancelled(ref)
    assert len(list(tmp_path.iterdir())) == 1


def test_from_a_task() -> None:
    @remote
    def canceller(refs: list[Any]) -> None:
        cancel(refs[0])

    ref = long.remote()
    get(canceller.remote([ref]))
    assert is_cancelled(ref)


def test_where_python_ignores_the_interrupt(tmp_path: Path, gate: Path) -> None:
    class SlowToGo:
        def __del__(self) -> None:
            try:
                gate.touch()
                time.sleep(LONG_S)
            except BaseException:
                (tmp_path / "ignored").touch()
                raise

    @remote
    def runs() -> None:
        SlowToGo()
        time.sleep(LONG_S)

    ref = runs.remote()
    wait_until(gate.exists)
    cancel(ref)
    assert is_cancelled(ref)
    assert (tmp_path / "ignored").exists()


def test_at_any_moment() -> None:
    """Cancelling meets calls in every state; each ends one way or the other, and the executors live on."""

    @remote
    def short(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    for seconds in (0.0, 0.0005, 0.002):
        refs = [short.remote(seconds) for _ in range(300)]
        for ref in refs[::3]:
            cancel(ref)
        for number, ref in enumerate(refs):
            if number % 3:
                assert get(ref) == seconds
            else:
                with contextlib.suppress(TaskCancelledError):
                    assert get(ref) == seconds
    assert get(quick.remote(1)) == 1


def test_what_is_refused() -> None:
    @remote
    class Actor:
        def run(self) -> None:
            time.sleep(1)

    actor = Actor.remote()
    with pytest.raises(TypeError, match=r"kill\(\)"):
        cancel(actor)
    ref = actor.run.remote()
    with pytest.raises(ValueError, match="not supported for actor tasks"):
        cancel(ref, force=True)
    assert get(ref) is None
    with pytest.raises(TypeError, match="object refs"):
        cancel("a ref")  # type: ignore[arg-type]


PROGRAM = """
import time
import mpi_runtime
from mpi_runtime.util.state import list_tasks

@mpi_runtime.remote
def long():
    time.sleep(60)

@mpi_runtime.remote
def outer():
    return mpi_runtime.get([long.remote() for _ in range(3)])

mpi_runtime.init()
refs = [outer.remote() for _ in range(3)]
while len(list_tasks(filters=[("name", "=", "long")])) < 6:  # of two; the third waits for a CPU
    time.sleep(0.01)
for ref in refs:
    mpi_runtime.cancel(ref, force=ref is refs[0])
for ref in refs:
    try:
        mpi_runtime.get(ref)
    except mpi_runtime.errors.TaskCancelledError:
        print("cancelled")
while mpi_runtime.available_resources().get("CPU") != mpi_runtime.cluster_resources()["CPU"]:
    time.sleep(0.01)
"""


@pytest.mark.mpi
def test_on_several_ranks() -> None:
    assert run_program(PROGRAM, ranks=3).expect().stdout == "cancelled\n" * 3


@remote
def cleans_up(directory: Path) -> None:
    """Submits a call before it is interrupted, and another one in order to clean up."""
    try:
        long.remote(directory / "child")
        (directory / "runs").touch()
        time.sleep(LONG_S)
    finally:
        get(touch.remote(directory / "cleaned"))


@remote
def touch(path: Path) -> None:
    path.touch()


def test_calls_that_clean_up_run_and_earlier_ones_are_cancelled(tmp_path: Path) -> None:
    ref = cleans_up.remote(tmp_path)
    wait_until((tmp_path / "child").exists)
    wait_until((tmp_path / "runs").exists)
    cancel(ref)
    assert is_cancelled(ref)
    assert (tmp_path / "cleaned").exists()
    assert get(occupied.options(num_cpus=2).remote(), timeout=20)  # no child holds one of the two CPUs


@remote
def occupied() -> bool:
    return True


IGNORING = """
import time
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote
def stubborn():
    print("runs", flush=True)
    end = time.monotonic() + 8
    while time.monotonic() < end:
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
    return "all the same"

ref = stubborn.remote()
while "runs" not in ray.explain(ref):
    time.sleep(0.01)
time.sleep(0.5)
ray.cancel(ref)
print(ray.get(ref))
"""


def test_a_cancel_that_is_ignored_is_said() -> None:
    completed = run_program(IGNORING).expect(0)
    assert "all the same" in completed.stdout
    assert completed.stderr.count("stubborn was cancelled 5 s ago and has not ended") == 1
    assert "cancel(ref, force=True) ends its process" in completed.stderr

"""What a program is told when user code raises, or when a process dies."""

import os
import pickle
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import exceptions, get, put, remote, wait
from mpi_runtime.errors import MpiRuntimeError, SerializationError, TaskCancelledError, TaskError, WorkerCrashedError
from tests.e2e.shared import is_open
from tests.helpers import wait_until

pytestmark = pytest.mark.usefixtures("job")


@remote
def same(value: Any) -> Any:
    return value


def runs(path: Path) -> int:
    """How often a call wrote a line there."""
    return len(path.read_text().splitlines())


# User code raises


def test_an_error_is_of_its_own_class_and_of_ours() -> None:
    class OrderError(ValueError):
        def __init__(self, text: str, number: int) -> None:
            super().__init__(text)
            self.number = number

    @remote
    def order() -> None:
        raise OrderError("too many", number=7)

    with pytest.raises(OrderError) as caught:
        get(order.remote())
    error: Any = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, TaskError)
    assert isinstance(error, MpiRuntimeError)
    assert isinstance(error, exceptions.RayTaskError)
    assert error.number == 7
    assert error.args == ("too many",)
    assert type(error.cause) is OrderError


@pytest.mark.parametrize(
    "kind", [ZeroDivisionError, KeyError, OSError, StopIteration, UnicodeDecodeError, NotImplementedError]
)
def test_builtin_errors(kind: type[Exception]) -> None:
    @remote
    def fail() -> None:
        if kind is UnicodeDecodeError:
            b"\xff".decode()
        raise kind("text")

    with pytest.raises(TaskError if kind is StopIteration else kind) as caught:
        get(fail.remote())
    assert isinstance(caught.value.cause, kind)


@pytest.mark.dies("code")
def test_the_text_shows_the_remote_traceback_and_where() -> None:
    def inner() -> None:
        raise RuntimeError("deep inside")

    @remote
    def outer() -> None:
        inner()

    with pytest.raises(RuntimeError) as caught:
        get(outer.remote())
    text = str(caught.value)
    found = re.search(r"outer\(\) failed: pid=(\d+), rank=(\d+), host=(\S+)", text)
    assert found, text
    assert int(found[1]) != os.getpid()
    assert found[2] == "0"
    assert found[3] == socket.gethostname()
    assert "in outer" in text
    assert "in inner" in text
    assert "RuntimeError: deep inside" in text
    assert "executor.py" not in text


def test_an_error_goes_through_tasks_with_each_traceback() -> None:
    @remote
    def root() -> None:
        raise LookupError("the root")

    @remote
    def middle(value: Any = None) -> Any:
        return get(root.remote())

    with pytest.raises(LookupError, match="the root") as caught:
        get(middle.remote())
    assert "root() failed" in str(caught.value)
    assert "middle() failed" in str(caught.value)
    with pytest.raises(LookupError, match="the root"):
        get(same.remote(middle.remote()))


def test_causes_are_shown() -> None:
    @remote
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    with pytest.raises(ValueError, match="second") as caught:
        get(fail.remote())
    assert "KeyError: 'first'" in str(caught.value)
    assert "direct cause" in str(caught.value)


def test_an_error_that_cannot_be_pickled() -> None:
    class LockedError(Exception):
        def __init__(self) -> None:
            super().__init__("with a lock")
            self.lock = threading.Lock()

    @remote
    def fail() -> None:
        raise LockedError

    with pytest.raises(TaskError, match="with a lock") as caught:
        get(fail.remote())
    assert isinstance(caught.value.cause, SerializationError)


def raises(*_: Any) -> Any:
    raise RuntimeError("from its own code")


def ends(*_: Any) -> Any:
    raise SystemExit(3)


def odd_class(name: str, kind: type[BaseException] = Exception, **members: Any) -> type[BaseException]:
    return type(name, (kind,), members)


def odd_errors() -> dict[str, BaseException]:
    """Errors whose own code raises when they are described or pickled, by the class that the caller must learn."""

    refusing = type("Refusing", (type,), {"__getattribute__": raises, "__hash__": raises})
    argument = type("Argument", (), {"__repr__": ends, "__reduce_ex__": ends})
    noted = odd_class("BadNotesError", __notes__=property(raises))
    found = [
        odd_class("BadGetError", __getattribute__=raises)("x"),
        odd_class("ExitGetError", __getattribute__=ends)("x"),
        odd_class("BadTextError", ValueError, __str__=raises)("x"),
        odd_class("ExitReduceError", __reduce_ex__=ends)("x"),
        odd_class("BadClassError", __class__=property(raises))("x"),
        odd_class("LyingError", __class__=property(lambda _: SystemExit))("x"),
        odd_class("BadCauseError", __cause__=property(raises))("x"),
        odd_class("BadDictError", __dict__=property(raises))("x"),
        odd_class("HiddenTracebackError", __traceback__=property(raises))("x"),
        odd_class("NoTracebackError", __traceback__=property(lambda _: None))("x"),
        odd_class("NoModuleError", __module__=None)("x"),
        odd_class("ExitSubclassError", __init_subclass__=classmethod(ends))("x"),
        refusing("BadMetaError", (Exception,), {})("x"),
        noted("x"),
        ValueError(argument()),
        SyntaxError("x", ("file", "no line", object(), 5)),  # type: ignore[arg-type]
    ]
    return {vars(type)["__name__"].__get__(type(one)): one for one in found}


@pytest.mark.parametrize("name", list(odd_errors()))
def test_code_of_an_error_that_raises_itself_hides_neither_class_nor_traceback(name: str) -> None:
    @remote(max_retries=0)
    def fail(_: int = 0) -> None:
        raise odd_errors()[name]

    @remote(max_retries=0, num_returns="dynamic")
    def give() -> Any:
        yield 1
        raise odd_errors()[name]

    *_, last = get(give.remote())
    calls: list[Callable[[], Any]] = [
        lambda: get(fail.remote()),
        lambda: list(fail.map([0], chunk=1)),
        lambda: get(last),
    ]
    for call in calls:
        with pytest.raises(TaskError) as caught:  # without `match`, which reads the notes
            call()
        text = str(caught.value).partition("\nIgnored error getting __notes__")[0]  # which Python 3.13 adds
        assert "raise odd_errors" in text
        assert name in text.splitlines()[-1]


def test_an_error_whose_code_ends_the_process_that_reads_it_does_not_end_the_caller() -> None:
    @remote
    def fail() -> None:
        here = os.getpid()
        raise odd_class(
            "FarError", __reduce__=lambda _: (lambda: ValueError("x") if os.getpid() == here else ends(), ())
        )("far away")

    with pytest.raises(TaskError, match="far away"):
        get(fail.remote())


def test_odd_codes_of_exit_end_the_process_in_every_kind_of_actor() -> None:
    class Exits:
        async def slow(self, code: Any) -> None:
            raise code

    text = type("Text", (str,), {"__str__": raises})
    odd = odd_class("OddExit", SystemExit, code=property(raises))
    for error, status in ((SystemExit(10**30), 255), (SystemExit(text("x")), 1), (odd(3), 3)):
        actor = remote(Exits).remote()
        with pytest.raises(mpi_runtime.errors.ActorDiedError, match=f"exited with code {status}"):
            get(actor.slow.remote(error), timeout=20)


def test_an_error_that_cannot_be_read_here() -> None:
    @remote
    def fail() -> None:
        here = os.getpid()

        def load(text: str) -> Exception:
            if os.getpid() != here:
                raise ImportError("no such module here")
            return ValueError(text)

        class DistantError(Exception):
            def __reduce__(self):  # type: ignore[no-untyped-def]
                return load, ("far away",)

        raise DistantError("far away")

    with pytest.raises(MpiRuntimeError, match="no such module here"):
        get(fail.remote())


def test_a_value_that_cannot_be_read_here() -> None:
    class Distant:
        def __init__(self) -> None:
            self.here = os.getpid()

        def __setstate__(self, state: Any) -> None:
            if state["here"] != os.getpid():
                raise ImportError("only there")

    @remote
    def make() -> Any:
        return Distant()

    with pytest.raises(ImportError, match="only there"):
        get(make.remote())


def test_an_argument_that_cannot_be_read_there() -> None:
    here = os.getpid()

    class Local:
        def __setstate__(self, state: Any) -> None:
            if os.getpid() != here:
                raise ImportError("only here")

        def __getstate__(self) -> Any:
            return {"a": 1}

    with pytest.raises(ImportError, match="only here"):
        get(same.remote(Local()))
    assert get(same.remote(1)) == 1


def test_errors_can_be_pickled_by_the_program() -> None:
    @remote
    def fail() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x") as caught:
        get(fail.remote())
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, ValueError)
    assert str(again) == str(caught.value)


def test_large_errors() -> None:
    @remote
    def fail() -> None:
        raise ValueError("x" * 1_000_000, bytes(1_000_000))

    with pytest.raises(ValueError, match="xxx") as caught:
        get(fail.remote())
    assert len(caught.value.args[1]) == 1_000_000


def test_keyboard_interrupt_in_a_task_is_not_ours() -> None:
    @remote
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(TaskError, match="raise KeyboardInterrupt") as caught:
        get(interrupt.remote())
    assert isinstance(caught.value, TaskCancelledError)
    assert not isinstance(caught.value, KeyboardInterrupt)


def test_an_exception_as_a_value_is_a_value() -> None:
    @remote
    def give() -> Any:
        return ValueError("just a value")

    assert get(give.remote()).args == ("just a value",)
    assert get(put(KeyError("k"))).args == ("k",)


def test_each_of_several_returns_is_the_error() -> None:
    @remote(num_returns=3)
    def fail() -> Any:
        raise ValueError("for all")

    refs = fail.remote()
    for ref in refs:
        with pytest.raises(ValueError, match="for all"):
            get(ref)


@pytest.mark.dies("code")
def test_errors_are_retried_if_asked(tmp_path: Path) -> None:
    @remote(retry_exceptions=True, max_retries=2)
    def fail(path: str, good_from: int) -> int:
        with open(path, "a") as file:
            file.write("run\n")
        number = runs(Path(path))
        if number < good_from:
            raise ValueError(f"run {number}")
        return number

    assert get(fail.remote(str(tmp_path / "a"), 3)) == 3
    with pytest.raises(ValueError, match="run 3"):
        get(fail.remote(str(tmp_path / "b"), 9))
    assert runs(tmp_path / "b") == 3
    with pytest.raises(ValueError, match="run 1"):
        get(fail.options(retry_exceptions=False).remote(str(tmp_path / "c"), 9))


# Processes die


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (f"os.kill(os.getpid(), {signal.SIGKILL})", "SIGKILL"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os._exit(3)", "exited with code 3"),
        ("sys.exit(4)", "exited with code 4"),
        ("raise SystemExit", "exited with code 0"),
    ],
)
@pytest.mark.dies("executor")
def test_a_crash_is_retried_and_then_told(how: str, text: str, tmp_path: Path) -> None:
    @remote
    def crash(path: str) -> None:
        import ctypes  # noqa: F401
        import faulthandler
        import sys  # noqa: F401

        faulthandler.disable()
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        exec(how)

    with pytest.raises(WorkerCrashedError, match=text) as caught:
        get(crash.remote(str(tmp_path / "default")), timeout=40)
    pids = (tmp_path / "default").read_text().split()
    assert len(set(pids)) == 4
    message = str(caught.value)
    assert "crash" in message
    assert "rank 0" in message
    assert socket.gethostname() in message
    assert f"pid {pids[-1]}" in message
    with pytest.raises(WorkerCrashedError, match=text):
        get(crash.options(max_retries=0).remote(str(tmp_path / "never")), timeout=40)
    assert runs(tmp_path / "never") == 1


def test_a_crash_that_happens_once_is_made_good(tmp_path: Path) -> None:
    @remote
    def crash_once(path: str, value: Any) -> Any:
        if not os.path.exists(path):
            Path(path).touch()
            os.kill(os.getpid(), 9)
        return value

    refs = [crash_once.remote(str(tmp_path / str(n)), put([n])) for n in range(5)]
    assert get(refs) == [[n] for n in range(5)]


def test_a_crash_without_limit_of_retries(tmp_path: Path) -> None:
    @remote(max_retries=-1)
    def crash(path: str) -> int:
        with open(path, "a") as file:
            file.write("run\n")
        number = runs(Path(path))
        if number < 8:
            os._exit(1)
        return number

    assert get(crash.remote(str(tmp_path / "file"))) == 8


def test_calls_around_a_crash_end_well() -> None:
    @remote(max_retries=0)
    def maybe(n: int) -> int:
        if n % 50 == 25:
            os.kill(os.getpid(), 9)
        return n

    refs = [maybe.remote(n) for n in range(300)]
    for n, ref in enumerate(refs):
        if n % 50 == 25:
            with pytest.raises(WorkerCrashedError):
                get(ref, timeout=40)
        else:
            assert get(ref, timeout=40) == n


def test_each_call_runs_once_though_others_crash(tmp_path: Path) -> None:
    @remote(max_retries=0)
    def note(path: str, n: int) -> None:
        with open(path, "a") as file:
            file.write(f"{n}\n")
        if n % 40 == 7:
            os.kill(os.getpid(), 9)

    path = tmp_path / "file"
    refs = [note.remote(str(path), n) for n in range(200)]
    wait(refs, num_returns=len(refs), timeout=40)
    assert sorted(map(int, path.read_text().split())) == list(range(200))


def test_calls_before_one_that_kills_its_process() -> None:
    """Their results may be lost with it, as often as it is run: they do not pay for it."""

    @remote(max_retries=2)
    def fragile(number: int) -> int:
        if number % 7 == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    fragile_refs = [fragile.remote(number) for number in range(40)]
    for number, ref in enumerate(fragile_refs):
        if number % 7 == 3:
            with pytest.raises(WorkerCrashedError, match=r"It was run 3 times"):
                get(ref)
        else:
            assert get(ref) == number


def test_a_crash_while_it_waits(tmp_path: Path, gate: Path) -> None:
    @remote(num_cpus=0)
    def slow() -> int:
        return int(is_open(gate))

    @remote(max_retries=1)
    def parent(path: str) -> Any:
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        return get(slow.remote())

    path = tmp_path / "file"
    ref = parent.remote(str(path))
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), timeout=20)
    cpus = mpi_runtime.cluster_resources()["CPU"]
    wait_until(lambda: mpi_runtime.available_resources().get("CPU") == cpus)  # it has lent its own
    os.kill(int(path.read_text()), 9)
    wait_until(lambda: runs(path) == 2)
    gate.touch()
    assert get(ref, timeout=40) == 1
    assert runs(path) == 2


def test_what_a_crashed_task_was_writing_is_freed() -> None:
    import numpy

    @remote(max_retries=0)
    def write_and_die() -> Any:
        refs = [put(numpy.ones(200_000)) for _ in range(4)]
        threading.Timer(0.05, os._exit, (1,)).start()
        while True:
            refs.append(put(numpy.ones(200_000)))
            del refs[0]

    with pytest.raises(WorkerCrashedError):
        get(write_and_die.remote(), timeout=40)


def test_exceptions_has_the_names() -> None:
    assert mpi_runtime.exceptions.GetTimeoutError is mpi_runtime.errors.GetTimeoutError
    from mpi_runtime.exceptions import RayActorError, RayError, RayTaskError

    assert (RayError, RayTaskError, RayActorError) == (MpiRuntimeError, TaskError, mpi_runtime.errors.ActorError)
    assert mpi_runtime.exceptions.RayError is MpiRuntimeError


def test_a_large_error_as_an_argument() -> None:
    @remote
    def fail() -> None:
        raise ValueError("large", bytes(1_000_000))

    ref = fail.remote()
    wait([ref])
    for bad in (same.remote(ref), same.remote(fail.remote())):
        with pytest.raises(ValueError, match="large"):
            get(bad)


def test_a_call_that_crashes_again_says_how_it_did_before(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    @remote(max_retries=1)
    def crash() -> None:
        is_first = not mark.exists()
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL if is_first else signal.SIGABRT)
        time.sleep(60)

    ref = crash.remote()
    with pytest.raises(WorkerCrashedError) as caught:
        get(ref)
    text = str(caught.value)
    assert "It was run 2 times; max_retries is 1. What had happened before: " in text
    assert re.search(r" s ago the call was lost \(executor \d+ \(pid \d+, rank 0, .*\) was killed by .*SIGKILL", text)
    story = mpi_runtime.explain(ref)
    assert "SIGKILL" in story
    assert "SIGABRT" in story
    assert "the call was given an error (WorkerCrashedError)" in story

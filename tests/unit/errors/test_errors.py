"""Errors keep their class, their text and their content on the way between processes."""

import builtins
import copyreg
import inspect
import json
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

import mpi_runtime
from mpi_runtime import errors, exceptions
from mpi_runtime.core.executor.actor_methods import title_of
from mpi_runtime.errors import (
    ActorDiedError,
    InternalError,
    MpiRuntimeError,
    SerializationError,
    TaskError,
    WorkerCrashedError,
    from_code,
    task_error,
)
from mpi_runtime.errors import ray as ray_errors
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.errors.remote import describe, from_bytes, make_task_error, to_bytes

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MpiRuntimeError)]
OWN = [kind for kind in CLASSES if not issubclass(kind, TaskError)]


class Plain(ValueError):
    pass


class OwnSignature(Exception):
    """Pickle would call it with `args`: one text instead of two numbers."""

    level = 0

    def __init__(self, wanted: int, found: int) -> None:
        super().__init__(f"wanted {wanted}, found {found}")
        self.wanted, self.found = wanted, found
        self.level = 7

    @property
    def missing(self) -> int:
        return self.wanted - self.found


@dataclass(frozen=True)
class Frozen(Exception):
    """Refuses every assignment."""

    code: int


class OwnNew(Exception):
    def __new__(cls, *, key: str) -> "OwnNew":
        return super().__new__(cls, key)

    def __init__(self, *, key: str) -> None:
        super().__init__(key)


class Slotted(Exception):
    __slots__ = ("code", "unset")
    code: int
    unset: int


class Final(Exception):
    def __init_subclass__(cls, **kwargs: Any) -> None:
        raise TypeError("final")


class Meddling(Exception):
    """Names of our own attributes mean something else here; its text cannot be made."""

    def __init__(self) -> None:
        super().__init__()
        self.cause = "mine"

    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def traceback_str(self) -> str:
        return "mine too"


class OwnReduce(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return OwnReduce, ("made again",)


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class OneWay(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return json.loads, ("{",)


def raised(function: Callable[[], object]) -> TaskError:
    try:
        function()
    except BaseException as error:
        return make_task_error(error, "work", pid=4242, rank=3, host="n17")
    raise AssertionError("did not raise")


def throw(error: BaseException) -> Any:
    raise error


def sent(error: TaskError) -> TaskError:
    result = from_bytes(to_bytes(error))
    assert isinstance(result, TaskError)
    return result


def failed(cause: BaseException) -> TaskError:
    return sent(raised(lambda: throw(cause)))


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: str(kind.__name__))
def test_own_error_survives_pickle_and_wire_form(kind: type[MpiRuntimeError]) -> None:
    error = kind("what happened, and what to do")
    for copy in (pickle.loads(pickle.dumps(error)), cloudpickle.loads(cloudpickle.dumps(error))):
        assert type(copy) is kind
        assert str(copy) == "what happened, and what to do"
        assert copy.args == error.args
    if kind is not MpiRuntimeError:
        made = from_code(kind.__name__, "text")
        assert type(made) is kind
        assert str(made) == "text"


def test_tree_in_the_docstring_is_the_tree() -> None:
    drawn = [line.split("+-- ")[1].split()[0] for line in str(errors.__doc__).splitlines() if "+-- " in line]
    assert sorted([*drawn, "MpiRuntimeError"]) == sorted({kind.__name__ for kind in CLASSES})
    places = [inspect.getsourcelines(getattr(errors, name))[1] for name in drawn if name in ("TaskError", *drawn)]
    assert places == sorted(places), "the classes stand in another order than the drawing"


def test_aliases_and_standard_bases() -> None:
    assert errors.RayError is MpiRuntimeError
    assert errors.RayTaskError is TaskError
    assert errors.RayActorError is errors.ActorError
    assert issubclass(errors.GetTimeoutError, TimeoutError)
    assert issubclass(errors.InfeasibleResourceError, ValueError)
    assert issubclass(ActorDiedError, errors.ActorError)
    assert "init()" in str(errors.RuntimeNotInitializedError())


def test_unknown_code_is_our_bug() -> None:
    for code in ("Nonsense", "TaskError", "MpiRuntimeError", "__doc__"):
        error = from_code(code, "text")
        assert type(error) is InternalError
        assert code in str(error)
        assert "text" in str(error)


def test_user_error_has_class_content_and_remote_traceback() -> None:
    def divide() -> float:
        return 1 / 0

    error = sent(raised(divide))
    assert isinstance(error, ZeroDivisionError)
    assert type(error.cause) is ZeroDivisionError
    assert error.args == ("division by zero",)
    text = str(error)
    assert text == error.traceback_str
    assert text.startswith("work() failed: pid=4242, rank=3, host=n17\nTraceback")
    assert "return 1 / 0" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert type(error).__name__ == "TaskError(ZeroDivisionError)"
    assert type(sent(error)) is type(error), "one class for each class of the user"


def test_the_class_need_not_be_importable() -> None:
    kind = type("Homemade", (KeyError,), {"__module__": "__main__"})
    error = failed(kind("k"))
    assert isinstance(error, KeyError)
    assert isinstance(error, kind)
    assert error.args == ("k",)


def test_a_frozen_data_class() -> None:
    error = failed(Frozen(3))
    assert isinstance(error, Frozen)
    assert error.code == 3
    assert error.args == Frozen(3).args


def test_user_error_with_an_init_of_its_own() -> None:
    error = failed(OwnSignature(5, 3))
    assert isinstance(error, OwnSignature)
    assert (error.wanted, error.found, error.missing) == (5, 3, 2)
    assert error.level == 7, "an attribute of the class must not hide that of the original"
    assert error.args == ("wanted 5, found 3",)
    assert isinstance(failed(OwnNew(key="k")), OwnNew)
    with pytest.raises(AttributeError, match="nothing"):
        _ = error.nothing


def test_fields_that_c_classes_and_slots_keep_elsewhere() -> None:
    error = failed(FileNotFoundError(2, "No such file", "/nowhere"))
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.strerror, error.filename) == (2, "No such file", "/nowhere")

    decode = failed(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert isinstance(decode, UnicodeDecodeError)
    assert (decode.encoding, decode.object, decode.start, decode.reason) == ("utf-8", b"\xff", 0, "invalid start byte")

    cause = Slotted("slots")
    cause.code = 9
    for slotted in (task_error(cause, "text"), failed(cause), failed(cause).cause):
        assert isinstance(slotted, Slotted)
        assert slotted.code == 9
        with pytest.raises(AttributeError):
            _ = slotted.unset


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration])
def test_what_would_end_the_caller_does_not(kind: type[BaseException]) -> None:
    error = failed(kind(3))
    assert type(error) is TaskError
    assert type(error.cause) is kind
    assert error.cause.args == (3,)
    if isinstance(error.cause, SystemExit):
        assert error.code == 3


@pytest.mark.skipif(not hasattr(builtins, "ExceptionGroup"), reason="exception groups came with Python 3.11")
def test_groups_of_errors() -> None:
    group: Any = getattr(builtins, "ExceptionGroup")  # noqa: B009
    own = type("Own", (group,), {"derive": lambda self, members: type(self)(self.message, members)})
    for kind in (group, own):
        error: Any = failed(kind("several", [KeyError("a"), kind("inner", [Plain("b")])]))
        assert isinstance(error, TaskError)
        assert isinstance(error, kind)
        assert error.message == "several"
        assert [type(one) for one in error.exceptions] == [KeyError, kind]
        assert "Plain: b" in str(error)
        keys, rest = error.split(KeyError)
        assert [one.args for one in keys.exceptions] == [("a",)]
        assert [type(one) for one in rest.exceptions] == [kind]

    ending = failed(getattr(builtins, "BaseExceptionGroup")("ends", [KeyboardInterrupt()]))  # noqa: B009
    assert type(ending) is TaskError
    assert isinstance(ending.exceptions[0], KeyboardInterrupt)


def test_classes_that_resist() -> None:
    final = failed(Final("no children"))
    assert type(final) is TaskError
    assert type(final.cause) is Final

    meddling = failed(Meddling())
    assert isinstance(meddling, Meddling)
    assert isinstance(meddling.cause, Meddling)
    assert "failed: pid=4242" in str(meddling)
    assert isinstance(failed(OwnReduce("first")), OwnReduce)


def test_a_reducer_that_a_library_has_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, Plain, lambda error: (RuntimeError, (*error.args, "elsewhere")))
    error = failed(Plain("one"))
    assert type(error.cause) is RuntimeError
    assert error.args == ("one", "elsewhere")


@pytest.mark.parametrize("cause", [Locked(), OneWay("one way"), Plain(lambda: None, threading.Lock())])
def test_what_cannot_be_pickled_or_unpickled_arrives_in_words(cause: Exception) -> None:
    error = failed(cause)
    assert isinstance(error, SerializationError)
    assert type(cause).__name__ in error.args[0]
    assert error.args[0].splitlines()[0] in str(error)
    assert str(error).startswith("work() failed")


def test_chain_of_tasks_keeps_the_first_cause_and_a_bounded_text() -> None:
    error: TaskError = raised(lambda: throw(Plain("at the bottom")))
    for depth in range(1, 200):
        error = sent(raised(lambda error=error: throw(error)))  # type: ignore[misc]
        assert type(error.cause) is Plain
        assert isinstance(error, Plain)
        if depth < 10:
            assert str(error).count("work() failed") == depth + 1
    assert len(pickle.dumps(error)) < 2 * remote_errors._TEXT_CHARACTERS_MAX
    assert "characters left out" in str(error)
    assert str(error).endswith("Plain: at the bottom")


def test_error_of_the_runtime_that_escapes_from_a_task_keeps_its_class() -> None:
    error = failed(WorkerCrashedError("killed by signal 9"))
    assert isinstance(error, WorkerCrashedError)
    assert type(error.cause) is WorkerCrashedError


def test_same_error_raised_twice_does_not_grow() -> None:
    error = failed(Plain("x"))
    first, second = error.as_instanceof_cause(), error.as_instanceof_cause()
    with pytest.raises(Plain):
        raise first
    assert second.__traceback__ is None
    assert isinstance(second, Plain)
    assert isinstance(TaskError(Plain("y"), "text").as_instanceof_cause(), Plain)
    assert repr(second) == "TaskError(Plain('x'))"


def test_traceback_leaves_out_our_own_frames() -> None:
    namespace: dict[str, Any] = {"throw": throw}
    ours = os.path.join(os.path.dirname(mpi_runtime.__file__), "executor", "executor.py")
    exec(compile("def run_task(error): throw(error)", ours, "exec"), namespace)
    with pytest.raises(Plain) as caught:
        namespace["run_task"](Plain("x"))
    # The test's own frame comes first: take the traceback from where our frame starts, as in an executor.
    error = caught.value
    assert error.__traceback__ is not None
    text = describe("work", 1, 0, "host", error.with_traceback(error.__traceback__.tb_next))
    assert "run_task" not in text
    assert "in throw" in text


def test_exceptions_has_what_errors_has() -> None:
    def public(module: ModuleType) -> dict[str, object]:
        return {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and isinstance(value, type) and issubclass(value, BaseException)
        }

    assert public(exceptions) == {**public(errors), **public(ray_errors)}
    assert sorted(exceptions.__all__) == sorted({**public(errors), **public(ray_errors)})


def test_an_actor_says_what_it_calls_itself(capfd: pytest.CaptureFixture[str]) -> None:
    class Plain:
        pass

    class Wordy:
        def __repr__(self) -> str:
            return "wordy\n\tand " + "long" * 100

    class Broken:
        def __repr__(self) -> str:
            raise KeyError("nothing to say")

    assert title_of(Plain()) == ""
    assert title_of(Wordy()).startswith("wordy and longlong")
    assert len(title_of(Wordy())) == 100
    assert title_of(Broken()) == ""
    assert "Broken.__repr__ raised KeyError('nothing to say')" in capfd.readouterr().err
    text = describe("Wordy.work", 4242, 3, "n17", ValueError("x"), title_of(Wordy()))
    assert text.startswith("Wordy.work() failed: pid=4242, rank=3, host=n17, repr=wordy and long")

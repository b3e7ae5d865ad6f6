"""What a traceback shows: the frames of users, here and there, and none of ours but the line of `get`."""

import builtins
import inspect
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime import get, remote
from mpi_runtime.errors import GetTimeoutError, InternalError
from mpi_runtime.errors import frames as tracebacks
from tests.helpers import run_program

pytestmark = pytest.mark.usefixtures("job")

PACKAGE = os.path.dirname(mpi_runtime.__file__)


def shown(error: BaseException) -> str:
    """What Python would print."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def frames(text: str) -> list[tuple[str, str]]:
    """The file and the function of each frame in a text."""
    return [
        (os.path.relpath(path, PACKAGE) if path.startswith(PACKAGE) else os.path.basename(path), function)
        for path, function in re.findall(r'^[ |+-]*File "([^"]+)", line \d+, in (\S+)', text, re.MULTILINE)
    ]


def caught(act: Callable[[], Any]) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def deep(value: int) -> float:
    return 1 / value


@remote
def inner(value: int) -> float:
    return deep(value)


@remote
def outer(value: int) -> Any:
    return get(inner.remote(value))


@remote
def wrapping(value: int) -> Any:
    try:
        return get(inner.remote(value))
    except ZeroDivisionError as error:
        raise LookupError("wrapped") from error


HERE = "test_tracebacks.py"


def test_both_ends_of_an_error_are_the_users() -> None:
    error = caught(lambda: get(inner.remote(0)))
    text = shown(error)
    assert frames(str(error)) == [(HERE, "inner"), (HERE, "deep")]
    local = frames(text.replace(str(error), ""))
    assert local == [(HERE, "caught"), (HERE, "<lambda>"), ("core/api/values.py", "get")], text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (outer, [(HERE, "outer"), (HERE, "inner"), (HERE, "deep")]),
        (wrapping, [(HERE, "wrapping"), (HERE, "inner"), (HERE, "deep"), (HERE, "wrapping")]),
    ],
)
def test_calls_within_calls(function: Any, expected: list[tuple[str, str]]) -> None:
    error = caught(lambda: get(function.remote(0)))
    assert frames(str(error)) == expected
    assert "direct cause" in str(error) or function is outer


def test_methods_and_constructors_and_generators_and_coroutines() -> None:
    @remote
    class Actor:
        def __init__(self, fails: bool = False) -> None:
            if fails:
                deep(0)

        def method(self) -> None:
            deep(0)

        def items(self) -> Any:
            yield 1
            deep(0)

    @remote
    class Async:
        async def method(self) -> None:
            deep(0)

    for ref, function in (
        (Actor.remote().method.remote(), "method"),
        (Actor.remote(True).method.remote(), "__init__"),
        (list(Actor.remote().items.remote())[1], "items"),
        (Async.remote().method.remote(), "method"),
    ):
        error = caught(lambda ref=ref: get(ref))  # type: ignore[misc]
        assert frames(str(error)) == [(HERE, function), (HERE, "deep")]
        assert frames(shown(error).replace(str(error), ""))[-1] == ("core/api/values.py", "get")


def test_f_map_shows_the_users_frames() -> None:
    for act, function in (
        (lambda: inner.map([1, 0])[1], "__getitem__"),
        (lambda: inner.map([1, 0]).get(), "get"),
        (lambda: list(inner.map([1, 0])), "__next__"),
    ):
        error = caught(act)
        assert frames(str(error)) == [(HERE, "inner"), (HERE, "deep")]
        assert frames(shown(error).replace(str(error), ""))[2:] == [("core/calls/mapping.py", function)]


def test_awaiting_and_futures_show_none_of_ours() -> None:
    import asyncio

    async def wait() -> Any:
        return await inner.remote(0)

    for act in (lambda: asyncio.run(wait()), lambda: inner.remote(0).future().result()):
        error = caught(act)
        ours = [one for one in frames(shown(error)) if "/" in one[0]]
        assert ours in ([], [("core/client/blocking_future.py", "result")]), shown(error)


def test_what_led_to_an_error_stays() -> None:
    """Both chains here, and groups and notes there."""

    def fails() -> None:
        try:
            raise KeyError("before")
        except KeyError:
            get(inner.remote(0))

    error = caught(fails)
    assert isinstance(error.__context__, KeyError)
    assert error.__cause__ is None

    @remote
    def noted() -> None:
        first = ValueError("first")
        if sys.version_info >= (3, 11):
            first.add_note("a note")
            group = getattr(builtins, "ExceptionGroup")  # noqa: B009  (came with Python 3.11)
            raise group("several", [first, caught(lambda: get(inner.remote(0)))])
        raise first

    if sys.version_info >= (3, 11):
        text = str(caught(lambda: get(noted.remote())))
        assert "a note" in text
        found = frames(text)
        assert (HERE, "inner") in found
        assert all(path == HERE for path, _ in found), text


def test_a_timeout_shows_none_of_ours() -> None:
    ref = remote(__import__("time").sleep).remote(0.5)
    error = caught(lambda: get(ref, timeout=0.01))
    assert isinstance(error, GetTimeoutError)
    assert frames(shown(error))[2:] == [("core/api/values.py", "get")]
    get(ref)


def test_a_bug_of_ours_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_runtime.core.client.waiting import Waiting

    for kind in (InternalError, AttributeError):

        def broken(*_: Any, kind: Any = kind) -> Any:
            raise kind("a bug")

        monkeypatch.setattr(Waiting, "get", broken)
        found = frames(shown(caught(lambda: get(inner.remote(1)))))
        monkeypatch.undo()
        assert ("core/api/values.py", "_get") in found
        assert found[-1] == (HERE, "broken")


def test_a_bug_of_ours_in_a_task_keeps_its_last_frames() -> None:
    @remote
    def use() -> None:
        tracebacks.lines(3, bool)  # type: ignore[arg-type]

    error = caught(lambda: get(use.remote()))
    assert frames(str(error)) == [(HERE, "use"), ("errors/frames.py", "lines"), ("errors/frames.py", "of")]


def test_a_check_of_ours_in_a_task_shows_the_users_line_alone() -> None:
    @remote
    def use() -> None:
        mpi_runtime.wait(3)  # type: ignore[arg-type]

    assert frames(str(caught(lambda: get(use.remote())))) == [(HERE, "use")]


APP = """
import mpi_runtime as ray

@ray.remote
def fail():
    return 1 / 0

def main():
    ray.init(num_cpus=1)
    ray.get(fail.remote())

main()
"""


@pytest.mark.parametrize("options", [(), ("-m", "mpi_runtime")])
def test_an_error_that_ends_the_program(options: tuple[str, ...]) -> None:
    """Neither runpy nor our main module stands before the program's own frames."""
    completed = run_program(APP, options=options).expect(1)
    assert frames(completed.stderr) == [
        ("app.py", "<module>"),
        ("app.py", "main"),
        ("app.py", "fail"),
    ]
    assert completed.stderr.count("Traceback") == 2


MISTAKES = {
    "ref + 1": ("get(ref) waits for the value", [("app.py", "<module>")]),
    "sum([ref])": ("get(refs) for those", [("app.py", "<module>")]),
    "len(ref)": ("get(ref) waits for the value", [("app.py", "<module>")]),
    "ref.shape": ("get(ref) waits for the value", [("app.py", "<module>")]),
    "json.dumps({'a': ref})": ("get(ref) waits for the value", [("app.py", "<module>"), *[("", "")] * 4]),
    "ray.get(total.remote([ref]))": ("inside a list", [("app.py", "<module>"), ("app.py", "total")]),
    "stream.remote()[0]": ("for ref in generator", [("app.py", "<module>")]),
    "Actor.remote()(1)": ("handle.method.remote(...)", [("app.py", "<module>")]),
    "array[0] = 1": ("get(ref, copy=True)", [("app.py", "<module>")]),
    "import ray": ("import mpi_runtime as ray", [("app.py", "<module>")]),
    "guarded.remote()": ("Its variable 'guard' refers", [("app.py", "<module>")]),
    "Guarded.remote()": ("Its variable 'guard' refers", [("app.py", "<module>")]),
    "one.remote(guard)": ("Locks, open files and sockets", [("app.py", "<module>")]),
    "one.options(num_cpus='x')": ("num_cpus", [("app.py", "<module>")]),
    "ray.init()": ("running already", [("app.py", "<module>")]),
    "signal.alarm(1); ray.get(sleeps)": ("KeyboardInterrupt", [("app.py", "<module>")]),
}
BEGINNER = """
import json, signal, threading, time
import numpy
import mpi_runtime as ray

guard = threading.Lock()

@ray.remote
def one(value=1):
    return value

@ray.remote
def total(refs):
    return sum(refs)

@ray.remote(num_returns="streaming")
def stream():
    yield 1

@ray.remote
class Actor:
    pass

@ray.remote
def guarded():
    with guard:
        return 1

@ray.remote
class Guarded:
    def use(self):
        return guard

ray.init(num_cpus=2)
signal.signal(signal.SIGALRM, signal.default_int_handler)
ref, sleeps = one.remote(), ray.remote(time.sleep).remote(100)
array = ray.get(one.remote(numpy.zeros(100_000)))
exec(MISTAKE)
"""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_beginner_ends_with_a_hint_and_without_frames_of_ours(mistake: str) -> None:
    hint, shown_frames = MISTAKES[mistake]
    source = BEGINNER.replace("exec(MISTAKE)", mistake)
    text = run_program(source).expect(-signal.SIGINT if "alarm" in mistake else 1).stderr
    assert hint in text
    assert len(frames(text)) == len(shown_frames), text
    assert PACKAGE not in text
    assert text.count("mpi_runtime: ") <= 1, "said once"
    assert not re.search(r"\b[0-9a-f]{24,}\b", text), "names of functions and variables say more than ids"


def test_what_ends_a_program_under_our_main_module() -> None:
    options = ("-m", "mpi_runtime")
    assert frames(run_program("def f(): 1 / 0\nf()", options=options).expect(1).stderr) == [
        ("app.py", "<module>"),
        ("app.py", "f"),
    ]
    broken = run_program("def f(:", options=options).expect(1).stderr
    assert "SyntaxError" in broken
    assert "mpi_runtime" not in broken
    assert "Traceback" not in broken
    own = run_program("import sys; sys.excepthook = lambda *_: print('own'); 1 / 0", options=options).expect(1)
    assert (own.stdout, own.stderr) == ("own\n", "")
    interrupted = run_program("raise KeyboardInterrupt", options=options)
    assert frames(interrupted.stderr) == [("app.py", "<module>")]


def test_all_of_a_chain_is_cleaned() -> None:
    ours = os.path.join(PACKAGE, "executor", "made_up.py")
    namespace: dict[str, Any] = {}
    source = """
    def call(function):
        try:
            function()
        except ZeroDivisionError as error:
            raise ValueError from error
    """
    exec(compile(textwrap.dedent(source), ours, "exec"), namespace)
    error = caught(lambda: namespace["call"](lambda: deep(0)))
    told = frames("".join(tracebacks.lines(error, lambda _: True)))
    assert told == [(HERE, "<lambda>"), (HERE, "deep"), (HERE, "caught"), (HERE, "<lambda>")]
    untold = frames("".join(tracebacks.lines(error, lambda _: False)))
    assert untold == [*told, (os.path.join("executor", "made_up.py"), "call")], "it is ours, and may be a bug"


def test_a_notebook_shows_such_an_error() -> None:
    ultratb = pytest.importorskip("IPython.core.ultratb")
    error = caught(lambda: get(outer.remote(0)))
    is_new = "theme_name" in inspect.signature(ultratb.VerboseTB).parameters  # IPython 9, for Python 3.11 and newer
    formatter = ultratb.VerboseTB(**({"theme_name": "nocolor"} if is_new else {"color_scheme": "NoColor"}))
    text = formatter.text(type(error), error, error.__traceback__)
    assert "waiting.py" not in text
    assert "outer() failed" in text


def test_a_notebook_shows_hints_of_mistakes() -> None:
    pytest.importorskip("IPython")
    source = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in ("import mpi_runtime as ray", "ray.init(num_cpus=1)", "ray.put(1) + 1", "1 / 0"):
    shell.run_cell(cell)
shell.run_cell("ray.shutdown(); ray.init(num_cpus=1)")
shell.run_cell("ray.put(2) + 1")
"""
    completed = run_program(source, env={"NO_COLOR": "1"}).expect()
    assert completed.stderr.count("mpi_runtime: an ObjectRef stands for a value") == 2, "once for each mistake"
    assert "ZeroDivisionError" in completed.stdout + completed.stderr

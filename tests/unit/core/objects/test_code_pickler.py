"""Functions keep the names of their files, with every version of cloudpickle; with a journal classes keep their ids."""

import functools
import linecache
import pickle
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from mpi_runtime.core.objects import code_pickler, serialize

SOURCE = """
def outer():
    def inner():
        raise ValueError("from the program")

    inner()
"""


def newer(common: Any) -> Any:
    """The reducer of cloudpickle 3.1.3, on top of the installed one."""

    def reduce(code: CodeType) -> tuple[Any, ...]:
        make, arguments = common[CodeType](code)
        return make, tuple("<dynamic-code>" if one == code.co_filename else one for one in arguments)

    return reduce


@pytest.mark.parametrize("is_newer", [False, True], ids=["as installed", "as 3.1.3"])
@pytest.mark.parametrize("how", ["code", "value"])
def test_tracebacks_of_pickled_functions_show_lines(
    is_newer: bool, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, str(path), "exec"), scope)
    if is_newer:
        monkeypatch.setattr(code_pickler, "_COMMON", {CodeType: newer(code_pickler._COMMON)})
    data = code_pickler.dumps(scope["outer"]) if how == "code" else serialize.dumps(scope["outer"]).inline()
    function = pickle.loads(data) if how == "code" else serialize.loads(data)
    linecache.clearcache()
    with pytest.raises(ValueError, match="from the program") as caught:
        function()
    text = "".join(traceback.format_exception(caught.value))
    assert f'File "{path}", line 4, in inner' in text
    assert 'raise ValueError("from the program")' in text


def test_of_two_equal_classes_each_remains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_pickler.Pickler, "reducer_override", code_pickler._reduce_with_lasting_id)

    def made() -> Any:
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec("class Same:\n    size = 1\n", scope)
        return scope["Same"]

    first, second = made(), made()
    for cls in (first, second):
        assert type(pickle.loads(code_pickler.dumps(cls()))) is cls


PROGRAM = """
import functools

@functools.lru_cache(maxsize=3)
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

@functools.singledispatch
def kind(value):
    return "other"

@kind.register
def _(value: int):
    return "int"

class Thing:
    @functools.lru_cache
    def cached(self, x):
        return 2 * x

    @functools.singledispatchmethod
    def kind(self, value):
        return "other"

    @kind.register
    def _(self, value: int):
        return "int"

    @functools.cached_property
    def answer(self):
        return 42
"""


def test_functions_with_caches_and_with_dispatch_by_type() -> None:
    """Of the program, which other processes cannot import."""
    program: dict[str, Any] = {"__name__": "__main__"}
    exec(PROGRAM, program)
    factorial, kind, thing = (
        pickle.loads(code_pickler.dumps(program[name])) for name in ("factorial", "kind", "Thing")
    )
    assert factorial(5) == 120
    assert factorial.cache_parameters() == {"maxsize": 3, "typed": False}
    assert factorial.cache_info().currsize == 3
    assert (kind(1), kind("a"), kind(1)) == ("int", "other", "int")
    one = thing()
    assert (one.cached(2), one.kind(1), one.kind(""), one.answer, one.answer) == (4, "int", "other", 42, 42)


def test_a_cached_function_of_a_library_is_pickled_by_name() -> None:
    assert pickle.loads(code_pickler.dumps(linecache.lazycache)) is linecache.lazycache
    assert pickle.loads(code_pickler.dumps(newer_cached)) is newer_cached
    assert b"newer_cached" in code_pickler.dumps(newer_cached)


@functools.lru_cache
def newer_cached(value: int) -> int:
    return value

"""Functions keep the names of their files, with every version of cloudpickle."""

import linecache
import pickle
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from mpi_runtime.objects import code_pickler, serialize

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

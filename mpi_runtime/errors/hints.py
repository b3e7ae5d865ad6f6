"""What to do about errors of Python and of libraries that come from a misunderstanding of references or handles."""

from __future__ import annotations

import re
from typing import NamedTuple


class Hint(NamedTuple):
    """What to say about errors of some classes whose texts match a pattern."""

    kinds: tuple[type[Exception], ...]
    pattern: str
    text: str


_HINTS = (
    Hint(
        (ValueError,),
        "destination is read-only|array is read-only|WRITEABLE flag|underlying array is read-only",
        "arrays that are arguments of a call, or that get() returns, are read-only, because all readers of a large "
        "value share the same memory. Write into a copy: array.copy(), or get(ref, copy=True).",
    ),
    Hint(
        (TypeError, AttributeError),
        r"\bObjectRefGenerator\b(?!\()",
        "this generator gives references, one for each value that the call yields: for ref in generator: "
        "value = get(ref).",
    ),
    Hint(
        (TypeError, AttributeError),
        r"\bObjectRef\b(?!\()",
        "an ObjectRef stands for a value that a call returns later. get(ref) waits for the value, get(refs) for those "
        "of a list. A call that gets a reference as an argument receives the value; inside a list or another object it "
        "stays a reference.",
    ),
    Hint(
        (TypeError,),
        r"\bActorHandle\b(?!\()",
        "an actor lives in a process of its own. handle.method.remote(...) calls a method of it, and returns a "
        "reference; get() gives its value.",
    ),
    Hint(
        (ModuleNotFoundError,),
        r"No module named 'ray'|No module named 'ray\.",
        "`import mpi_runtime as ray` gives the names of Ray's core. With `mpi-runtime run --as-ray app.py` an "
        "unchanged `import ray` does too, also in modules that the program imports.",
    ),
)


def hint(error: BaseException) -> str:
    """Return what to do about an error, as a line that follows its text; empty: nothing is known."""
    kinds = [one for one in _HINTS if isinstance(error, one.kinds)]
    text = str(error) if kinds else ""
    found = next((one for one in kinds if re.search(one.pattern, text)), None)
    line = f"mpi_runtime: {found.text}" if found is not None else ""
    return "" if line in text else line  # an error of a task has it already

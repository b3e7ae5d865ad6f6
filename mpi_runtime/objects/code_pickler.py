"""The pickler of cloudpickle, with file names in functions that are pickled by value.

Since 3.1.3 cloudpickle replaces the file name in code objects by a constant. Tracebacks would then show no lines.
"""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

_CONSTANT = "<dynamic-code>"
_COMMON = cloudpickle.Pickler.dispatch_table


def _reduce(code: CodeType) -> tuple[Any, ...]:
    make, arguments = _COMMON[CodeType](code)
    return make, tuple(code.co_filename if type(one) is str and one == _CONSTANT else one for one in arguments)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles anything that cloudpickle can."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce}, *_COMMON.maps)


def dumps(value: object) -> bytes:
    """Pickle a value, with functions and classes of the program by value."""
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()

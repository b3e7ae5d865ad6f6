"""Types of values, which are those of Arrow: with `--as-ray` the name of `ray.data.datatype`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_runtime.data.arrow import pa

if TYPE_CHECKING:
    import pyarrow


class _Types(type):
    def __getattr__(cls, name: str) -> Callable[..., pyarrow.DataType]:
        if name.startswith("_"):
            raise AttributeError(name)
        found: Callable[..., pyarrow.DataType] = getattr(pa, {"list": "list_", "bool": "bool_"}.get(name, name))
        return found


class DataType(metaclass=_Types):
    """`DataType.int64()` is that of Arrow; so are others."""

    @staticmethod
    def from_arrow(arrow_type: pyarrow.DataType) -> pyarrow.DataType:
        """The same type."""
        return arrow_type


__all__ = ["DataType"]

"""Types of values: of Arrow, numpy and Python. With `--as-ray` the name of `ray.data.datatype`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy

from mpi_runtime.data.arrow import pa

if TYPE_CHECKING:
    import pyarrow

    AnyType: TypeAlias = pyarrow.DataType | numpy.dtype[Any] | type

__all__ = ["DataType"]

_OF_ARROW = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string", "bool",
    "binary",
}  # fmt: skip
_LISTS = ("list", "large_list", "fixed_size_list")
_TESTS = {
    "list": _LISTS, "struct": ("struct",), "map": ("map",), "nested": (*_LISTS, "struct", "map"),
    "boolean": ("boolean",), "integer": ("integer",), "floating": ("floating",), "uint64": ("uint64",),
    "numerical": ("integer", "floating", "decimal"), "string": ("string", "large_string"), "null": ("null",),
    "binary": ("binary", "large_binary", "fixed_size_binary"), "temporal": ("temporal",),
}  # fmt: skip
"""The tests `is_..._type`, each with those of `pyarrow.types` of which one is true."""
_OF_PYTHON = {int: "int64", float: "float64", str: "string", bool: "bool_", bytes: "binary", type(None): "null"}


class _Types(type):
    def __getattr__(cls, name: str) -> Callable[..., DataType]:
        if name not in _OF_ARROW:
            raise AttributeError(f"DataType has no {name!r}: DataType.from_arrow() takes all types of Arrow")
        return lambda: DataType(getattr(pa, {"bool": "bool_"}.get(name, name))())


class DataType(metaclass=_Types):
    """A type of values: `DataType.int64()`, `DataType.from_arrow(pa.int64())`, `DataType(int)`."""

    def __init__(self, physical_dtype: AnyType) -> None:
        """TypeError: it is not a type of Arrow, numpy or Python."""
        if not isinstance(physical_dtype, type | numpy.dtype) and not isinstance(physical_dtype, pa.DataType):
            raise TypeError(f"DataType takes a type of Arrow, of numpy or of Python, not {physical_dtype!r}")
        self._physical_dtype: Any = physical_dtype

    @classmethod
    def from_arrow(cls, arrow_type: pyarrow.DataType) -> DataType:
        """That of Arrow."""
        if not isinstance(arrow_type, pa.DataType):
            raise TypeError(f"from_arrow() takes a type of Arrow, not {arrow_type!r}")
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: numpy.dtype[Any] | str) -> DataType:
        """That of numpy."""
        if not isinstance(numpy_dtype, numpy.dtype | str):
            raise TypeError(f"from_numpy() takes a type of numpy, not {numpy_dtype!r}")
        return cls(numpy.dtype(numpy_dtype))

    @classmethod
    def infer_dtype(cls, value: object) -> DataType:
        """That of a value."""
        if isinstance(value, numpy.ndarray | numpy.generic):
            return cls.from_numpy(value.dtype)
        try:
            return cls(pa.array([value]).type)
        except (pa.ArrowException, TypeError, ValueError):
            return cls(type(value))

    @classmethod
    def list(cls, value_type: DataType) -> DataType:
        """That of lists."""
        return cls(pa.list_(value_type.to_arrow_dtype()))

    @classmethod
    def large_list(cls, value_type: DataType) -> DataType:
        """That of long lists."""
        return cls(pa.large_list(value_type.to_arrow_dtype()))

    @classmethod
    def fixed_size_list(cls, value_type: DataType, list_size: int) -> DataType:
        """That of lists of one length."""
        return cls(pa.list_(value_type.to_arrow_dtype(), list_size))

    @classmethod
    def struct(cls, fields: Sequence[tuple[str, DataType]]) -> DataType:
        """That of structures."""
        return cls(pa.struct([(name, kind.to_arrow_dtype()) for name, kind in fields]))

    @classmethod
    def map(cls, key_type: DataType, value_type: DataType) -> DataType:
        """That of maps."""
        return cls(pa.map_(key_type.to_arrow_dtype(), value_type.to_arrow_dtype()))

    @classmethod
    def tensor(cls, shape: Sequence[int], dtype: DataType) -> DataType:
        """That of arrays of one shape."""
        return cls(pa.fixed_shape_tensor(dtype.to_arrow_dtype(), tuple(shape)))

    @classmethod
    def temporal(cls, temporal_type: str, unit: str | None = None, tz: str | None = None) -> DataType:
        """That of times: "timestamp", "date32", "date64", "time32", "time64" or "duration"."""
        units = {"timestamp": "us", "time32": "s", "time64": "us", "duration": "us", "date32": "", "date64": ""}
        name = temporal_type.lower()
        if name not in units:
            raise ValueError(f"temporal_type must be one of {', '.join(units)}, not {temporal_type!r}")
        arguments = [unit or units[name]] if units[name] else []
        return cls(getattr(pa, name)(*arguments, **({"tz": tz} if name == "timestamp" else {})))

    def is_arrow_type(self) -> bool:
        """Whether it is one of Arrow."""
        return isinstance(self._physical_dtype, pa.DataType)

    def is_numpy_type(self) -> bool:
        """Whether it is one of numpy."""
        return isinstance(self._physical_dtype, numpy.dtype)

    def is_python_type(self) -> bool:
        """Whether it is one of Python."""
        return isinstance(self._physical_dtype, type)

    def is_tensor_type(self) -> bool:
        """Whether it is that of arrays."""
        return isinstance(self._physical_dtype, pa.BaseExtensionType)

    def to_arrow_dtype(self, values: Sequence[object] | None = None) -> pyarrow.DataType:
        """The type of Arrow; of one of Python it is that of `values`."""
        if self.is_arrow_type():
            return self._physical_dtype
        if self.is_numpy_type():
            return pa.from_numpy_dtype(self._physical_dtype)
        if not values:
            raise AssertionError(f"{self!r}.to_arrow_dtype() needs values to find a type of Arrow")
        return pa.array(values).type

    def to_numpy_dtype(self) -> numpy.dtype[Any]:
        """The type of numpy; that of objects, if there is no other."""
        if self.is_numpy_type():
            return self._physical_dtype  # type: ignore[no-any-return]
        if self.is_arrow_type():
            try:
                return numpy.dtype(self._physical_dtype.to_pandas_dtype())  # type: ignore[no-any-return]
            except (NotImplementedError, TypeError, ValueError):
                pass
        return numpy.dtype(object)

    def to_python_type(self) -> type:
        """The type of Python. ValueError: it is another one."""
        if not self.is_python_type():
            raise ValueError(f"{self!r} is not backed by a Python type")
        return self._physical_dtype  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Callable[[], bool]:
        test = name.removeprefix("is_").removesuffix("_type")
        if test not in _TESTS or name != f"is_{test}_type":
            raise AttributeError(f"DataType has no {name!r}")
        return lambda: any(getattr(pa.types, f"is_{one}")(self._of_arrow()) for one in _TESTS[test])

    def _of_arrow(self) -> pyarrow.DataType:
        if not self.is_python_type():
            return self.to_arrow_dtype()
        if self._physical_dtype in (list, tuple):
            return pa.list_(pa.null())
        return getattr(pa, _OF_PYTHON.get(self._physical_dtype, "null"))()

    def __eq__(self, other: object) -> bool:
        mine = self._physical_dtype
        return (
            isinstance(other, DataType) and type(mine) is type(other._physical_dtype) and mine == other._physical_dtype
        )

    def __hash__(self) -> int:
        return hash((type(self._physical_dtype), self._physical_dtype))

    def __repr__(self) -> str:
        if self.is_python_type():
            return f"DataType(python:{self._physical_dtype.__name__})"
        return f"DataType({'arrow' if self.is_arrow_type() else 'numpy'}:{self._physical_dtype})"

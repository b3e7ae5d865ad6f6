"""Columns of blocks that Arrow has no type for: arrays of numpy in each row, and other objects of Python.

Loaded when pyarrow is needed, since its types derive from those of pyarrow.

Arrays of one shape and a usual type are Arrow's own `fixed_shape_tensor`, which other programs can read. Others are a
`TensorType`: bytes, shape and type of each row.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import cloudpickle
import numpy

from mpi_runtime.data.arrow import pc

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from mpi_runtime.errors import optional

    pa = optional.load("mpi_runtime.data", "pyarrow")

with contextlib.suppress(ImportError):
    # pyarrow would import it at the first conversion, and clear what the import raises: Ctrl-C would be lost.
    importlib.import_module("pandas")


class TensorType(pa.ExtensionType):  # type: ignore[misc]
    """Arrays of numpy, one in each row, of any shape and type."""

    def __init__(self) -> None:
        storage = pa.struct([("data", pa.large_binary()), ("shape", pa.list_(pa.int64())), ("dtype", pa.string())])
        super().__init__(storage, "mpi_runtime:tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> TensorType:
        return cls()


class ObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Objects of Python, pickled."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "mpi_runtime:object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> ObjectType:
        return cls()


for _type in (TensorType(), ObjectType()):
    with contextlib.suppress(pa.ArrowKeyError):  # it is registered: this module was loaded again
        pa.register_extension_type(_type)


def of_numpy(array: numpy.ndarray) -> pa.Array:
    """Make a column of an array, whose first axis is the rows."""
    if array.ndim > 1:
        return _of_tensors(array)
    if array.dtype == object or array.dtype.kind not in "biufmMUS":
        return of_values(list(array))
    if array.dtype.kind == "f":  # NaN stays NaN: pyarrow would do so too, unless it is asked for pandas
        return pa.array(array, from_pandas=False)
    return pa.array(array)


def of_values(values: Sequence[object]) -> pa.Array:
    """Make a column of values of Python, one for each row."""
    values = [numpy.asarray(value) if _is_tensor(value) else value for value in values]
    values = [value[()] if isinstance(value, numpy.ndarray) and not value.ndim else value for value in values]
    if any(isinstance(value, numpy.ndarray) for value in values):
        arrays = [numpy.asarray(value) for value in values]
        if any(array.dtype == object for array in arrays):
            return _of_objects(values)
        same = len({(array.shape, array.dtype) for array in arrays}) == 1
        return _of_tensors(numpy.stack(arrays)) if same else _of_ragged(arrays)
    plain = [value.item() if isinstance(value, numpy.generic) else value for value in values]
    try:
        return pa.array(plain)
    except OverflowError:  # such as numbers that are too large for an int64
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            return pa.array(plain, pa.uint64())
        return _of_objects(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError):
        return _of_objects(values)


def _is_tensor(value: object) -> bool:
    """Whether it becomes an array: it is one of another library, such as torch."""
    return hasattr(value, "__array__") and not isinstance(value, numpy.ndarray | numpy.generic)


def to_numpy(column: pa.ChunkedArray, zero_copy: bool = False) -> numpy.ndarray:
    """Make an array of a column."""
    kind = column.type
    if pa.types.is_dictionary(kind):  # pyarrow would give missing values the last one of the dictionary
        return to_numpy(column.cast(kind.value_type), zero_copy)
    if isinstance(kind, pa.FixedShapeTensorType):
        if column.null_count:
            return _in_array(to_values(column))
        chunks = [chunk.to_numpy_ndarray() for chunk in column.chunks if len(chunk)]
        if not chunks:
            return numpy.empty((0, *kind.shape), kind.value_type.to_pandas_dtype())
        return numpy.concatenate(chunks) if len(chunks) > 1 else numpy.asarray(chunks[0])
    if isinstance(kind, TensorType):
        values = to_values(column)
        return _in_array(values) if column.null_count else _stacked(list(map(numpy.asarray, values)))
    if isinstance(kind, ObjectType | pa.UuidType):
        return _in_array(to_values(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if _is_plain(column):
            return _of_lists(column, zero_copy)
        values = column.to_pylist()
        if None in values:
            return _in_array(values)
        return _stacked([numpy.asarray(value) for value in values])
    if column.num_chunks == 1 and zero_copy:
        return numpy.asarray(column.chunk(0).to_numpy(zero_copy_only=False))
    return numpy.asarray(column.to_numpy())


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether its lists hold nothing but numbers, none of which is missing."""
    kind = column.type.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number and not column.null_count and not any(chunk.flatten().null_count for chunk in column.chunks)


def _of_lists(column: pa.ChunkedArray, zero_copy: bool) -> numpy.ndarray:
    """An array with one more axis if all lists are of one length, else an array of arrays."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lengths = [pc.list_value_length(chunk).to_numpy() for chunk in chunks]
    flat = [chunk.flatten().to_numpy() for chunk in chunks]
    widths = {int(width) for each in lengths for width in numpy.unique(each)}
    if len(widths) == 1:
        parts = [values.reshape(len(each), *widths) for values, each in zip(flat, lengths, strict=True)]
        return parts[0] if len(parts) == 1 else numpy.concatenate(parts)
    rows: list[object] = []
    for values, each in zip(flat, lengths, strict=True):
        own = values if zero_copy else values.copy()  # those of Arrow are read-only
        rows.extend(numpy.split(own, numpy.cumsum(each)[:-1]))
    return _in_array(rows)


def _stacked(arrays: list[numpy.ndarray]) -> numpy.ndarray:
    same = len({(array.shape, array.dtype) for array in arrays}) == 1 and arrays[0].dtype != object
    return numpy.stack(arrays) if same else _in_array(arrays)


def to_values(column: pa.ChunkedArray) -> list[object]:
    """Make a list of a column's values."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType) and not column.null_count:
        return list(to_numpy(column))
    one: Callable[..., object]
    if isinstance(kind, pa.FixedShapeTensorType):  # some are missing
        one = partial(_of_flat, shape=tuple(kind.shape), dtype=kind.value_type.to_pandas_dtype())
    elif isinstance(kind, TensorType):
        one = _array_of
    elif isinstance(kind, ObjectType):
        one = pickle.loads
    else:
        return list(column.to_pylist())
    stored = (value for chunk in column.chunks for value in chunk.storage.to_pylist())
    return [None if value is None else one(value) for value in stored]


def is_own(kind: pa.DataType) -> bool:
    """Whether only this package can read a column of this type."""
    return isinstance(kind, TensorType | ObjectType)


def as_ragged(column: pa.ChunkedArray) -> pa.Array:
    """The same tensors in the form for different shapes."""
    return _of_ragged([numpy.asarray(value) for value in to_values(column)])


def as_objects(column: pa.ChunkedArray) -> pa.Array:
    """The same values in the form for objects."""
    return _of_objects(to_values(column))


def _of_tensors(array: numpy.ndarray) -> pa.Array:
    if array.dtype.kind in "iuf" and array.size:
        return pa.FixedShapeTensorArray.from_numpy_ndarray(numpy.ascontiguousarray(array))
    return _of_ragged(list(array))


def _of_ragged(arrays: list[numpy.ndarray]) -> pa.Array:
    storage = pa.StructArray.from_arrays(
        [
            pa.array([array.tobytes() for array in arrays], pa.large_binary()),
            pa.array([list(array.shape) for array in arrays], pa.list_(pa.int64())),
            pa.array([array.dtype.str for array in arrays], pa.string()),
        ],
        ["data", "shape", "dtype"],
    )
    return pa.ExtensionArray.from_storage(TensorType(), storage)


def _of_objects(values: Sequence[object]) -> pa.Array:
    held = [None if value is None else cloudpickle.dumps(value, 5) for value in values]
    storage = pa.array(held, pa.large_binary())
    return pa.ExtensionArray.from_storage(ObjectType(), storage)


def _array_of(value: dict[str, object]) -> numpy.ndarray:
    return numpy.frombuffer(value["data"], value["dtype"]).reshape(value["shape"])  # type: ignore[call-overload, no-any-return]


def _of_flat(values: list[object], shape: tuple[int, ...], dtype: type) -> numpy.ndarray:
    return numpy.array(values, dtype).reshape(shape)


def _in_array(values: Sequence[object]) -> numpy.ndarray:
    array = numpy.empty(len(values), object)
    for place, value in enumerate(values):  # at once, arrays of one shape would become its axes
        array[place] = value
    return array

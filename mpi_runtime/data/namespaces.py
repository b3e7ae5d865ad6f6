"""Functions of expressions for values of one kind: `col("a").str.upper()`, most of them those of `pyarrow.compute`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mpi_runtime.data.arrow import pa, pc

if TYPE_CHECKING:
    import pyarrow

Call = Callable[..., Any]
"""Makes an expression of a function of `pyarrow.compute`, by its name, or another, and its arguments."""


class Namespace:
    """Functions for values of one kind."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """Before the name of a function in `pyarrow.compute`."""
    names: ClassVar[Mapping[str, str]] = {}
    """Functions with another name there."""

    def __init__(self, expr: object, call: Call) -> None:
        self._expr = expr
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        wanted = [self.names[name]] if name in self.names else [prefix + name for prefix in self.prefixes]
        for one in wanted:
            if hasattr(pc, one):
                return functools.partial(self._call, one, self._expr)
        raise AttributeError(f"there is no function {name!r}: pyarrow.compute has no {' or '.join(wanted)}")


class Texts(Namespace):
    """Functions of texts."""

    prefixes = ("utf8_", "", "binary_")
    names: ClassVar = {
        "len": "utf8_length", "byte_len": "binary_length", "is_ascii": "string_is_ascii",
        "contains": "match_substring", "match": "match_like", "match_regex": "match_substring_regex",
        "find": "find_substring", "find_regex": "find_substring_regex",
        "count": "count_substring", "count_regex": "count_substring_regex",
        "slice": "utf8_slice_codeunits", "replace": "replace_substring", "replace_regex": "replace_substring_regex",
        "replace_slice": "binary_replace_slice", "split": "split_pattern", "split_regex": "split_pattern_regex",
        "extract": "extract_regex",
    }  # fmt: skip

    def strip(self, characters: str | None = None) -> Any:
        """Without these characters, or spaces, at both ends."""
        return self._trimmed("utf8_trim", characters)

    def lstrip(self, characters: str | None = None) -> Any:
        """Without these characters, or spaces, at the beginning."""
        return self._trimmed("utf8_ltrim", characters)

    def rstrip(self, characters: str | None = None) -> Any:
        """Without these characters, or spaces, at the end."""
        return self._trimmed("utf8_rtrim", characters)

    def pad(self, width: int, fillchar: str = " ", side: str = "right") -> Any:
        """With `fillchar` at a side, "left", "right" or "both", up to a length of `width`."""
        functions = {"left": "utf8_lpad", "right": "utf8_rpad", "both": "utf8_center"}
        if side not in functions:
            raise ValueError(f"pad(side={side!r}): side must be 'left', 'right', or 'both'")
        return self._call(functions[side], self._expr, width=width, padding=fillchar)

    def _trimmed(self, function: str, characters: str | None) -> Any:
        if characters is None:
            return self._call(f"{function}_whitespace", self._expr)
        return self._call(function, self._expr, characters=characters)


class Lists(Namespace):
    """Functions of lists."""

    prefixes = ("list_",)
    names: ClassVar = {"len": "list_value_length", "get": "list_element"}

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return self.slice(key.start, key.stop, key.step)
        if not isinstance(key, int):
            raise TypeError(f"the place in a list is a whole number or a slice, not {key!r}")
        return self._call("list_element", self._expr, key)

    def slice(self, start: int | None = None, stop: int | None = None, step: int | None = None) -> Any:
        """The items between these places."""
        return self._call("list_slice", self._expr, start=start or 0, stop=stop, step=1 if step is None else step)

    def sort(self, order: str = "ascending", null_placement: str = "at_end") -> Any:
        """The items of each list in their order."""
        if order not in ("ascending", "descending"):
            raise ValueError(f"order must be either 'ascending' or 'descending', not {order!r}")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(f"null_placement must be 'at_start' or 'at_end', not {null_placement!r}")
        return self._call(_sorted_items, self._expr, order=order, null_placement=null_placement)

    def flatten(self) -> Any:
        """The items of the lists in each list."""
        return self._call(_flat_items, self._expr)


class Structs(Namespace):
    """The fields of structures."""

    def __getitem__(self, key: str | int) -> Any:
        return self._call("struct_field", self._expr, key)

    def field(self, field_name: str) -> Any:
        """The field with this name."""
        return self[field_name]

    def field_by_index(self, index: int) -> Any:
        """The field at this place."""
        return self[index]


class Maps(Namespace):
    """Functions of maps."""

    def keys(self) -> Any:
        """The keys of each map, as a list."""
        return self._call(_keys_of, self._expr)

    def values(self) -> Any:
        """The values of each map, as a list."""
        return self._call(_values_of, self._expr)


class Arrays(Namespace):
    """Functions of arrays."""

    def to_list(self) -> Any:
        """The items of each array of one dimension, as a list."""
        return self._call(_as_lists, self._expr)


class Times(Namespace):
    """Functions of times."""

    names: ClassVar = {"floor": "floor_temporal", "ceil": "ceil_temporal", "round": "round_temporal"}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = super().__getattr__(name)
        if name not in self.names:
            return found
        return lambda unit="day", **options: found(unit=unit, **options)

    def strftime(self, fmt: str) -> Any:
        """As texts in this format."""
        return self._call("strftime", self._expr, format=fmt)


def _whole(column: object) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_list(kind: pyarrow.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _sorted_items(column: object, order: str, null_placement: str) -> Any:
    lists = _whole(column)
    rows = pc.list_parent_indices(lists)
    table = pa.table({"row": rows, "value": pc.list_flatten(lists)})
    keys = [("row", "ascending"), ("value", order)]
    found = table["value"].take(pc.sort_indices(table, sort_keys=keys, null_placement=null_placement))
    return _in_lists(lists, pc.list_value_length(lists), found)


def _flat_items(column: object) -> Any:
    lists = _whole(column)
    if not (_is_list(lists.type) and _is_list(lists.type.value_type)):
        raise TypeError(f"list.flatten() requires lists whose items are lists, not {lists.type}")
    inner = pc.list_flatten(lists)
    sizes = pa.table({"row": pc.list_parent_indices(lists), "size": pc.list_value_length(inner)})
    sums = sizes.group_by("row").aggregate([("size", "sum")])
    by_row = dict(zip(sums["row"].to_pylist(), sums["size_sum"].to_pylist(), strict=True))
    lengths = [
        None if one is None else by_row.get(i) or 0 for i, one in enumerate(pc.list_value_length(lists).to_pylist())
    ]
    return _in_lists(lists, lengths, pc.list_flatten(inner))


def _in_lists(like: Any, lengths: Any, items: Any) -> Any:
    """Put items into lists of these lengths, of which those that are None are missing."""
    offsets, end = [], 0
    for length in lengths if isinstance(lengths, list) else lengths.to_pylist():
        offsets.append(None if length is None else end)
        end += length or 0
    is_large = pa.types.is_large_list(like.type)
    made, kind = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return made.from_arrays(pa.array([*offsets, end], kind), _whole(items))


def _keys_of(column: object) -> Any:
    return _of_maps(_whole(column), 0)


def _values_of(column: object) -> Any:
    return _of_maps(_whole(column), 1)


def _of_maps(maps: Any, place: int) -> Any:
    if not pa.types.is_map(maps.type):
        raise TypeError(f"map.keys() and map.values() require maps, not {maps.type}")
    return _in_lists(maps, pc.list_value_length(maps.cast(_entries(maps.type))), (maps.keys, maps.items)[place])


def _entries(kind: Any) -> pyarrow.DataType:
    return pa.list_(pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]))


def _as_lists(column: object) -> Any:
    arrays = _whole(column)
    storage = arrays.storage if isinstance(arrays, pa.ExtensionArray) else arrays
    return pc.cast(storage, pa.list_(storage.type.value_type))

"""Cuts a data set into a part for each worker: consecutive items, and sizes that differ by one at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import mpi_runtime
from mpi_runtime.core import published


class Items(Protocol):
    """A data set: a length, and items by number."""

    def __len__(self) -> int:
        """The number of items."""

    def __getitem__(self, index: Any, /) -> Any:
        """An item, or a part."""


@published("mpi_runtime.train")
class Shard(Sequence[Any]):
    """The part of a worker. A reference in it is loaded when its item is asked for."""

    def __init__(self, items: Items, start: int, stop: int) -> None:
        self._items = items
        self._range = range(start, stop)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        item = self._items[self._range[index]]
        return mpi_runtime.get(item) if isinstance(item, mpi_runtime.ObjectRef) else item

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return f"<Shard of {len(self)} items, from item {self._range.start}>"


def shared(items: object, size: int) -> object:
    """Prepare a data set of `mpi_runtime.data` for its workers; others as they are."""
    share = getattr(type(items), "shared_by", None)
    return items if share is None else share(items, size)


def check(name: str, items: object) -> None:
    """Refuse data that cannot be cut, by TypeError: it has no length or no items with numbers."""
    if hasattr(type(items), "shared_by"):
        return
    if isinstance(items, Mapping | str | bytes) or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise TypeError(
            f"datasets[{name!r}] must be a list of references or something else with a length and items by number, "
            f"such as an array or a data set of torch, not {type(items).__name__}"
        )


def cut(items: Items, rank: int, size: int, group: str = "") -> Items:
    """Return the part of a worker: a slice of what has slices, such as an array; else a `Shard`.

    `group`: the gang of the workers. Readers of a shared stream begin together with those of their gang.
    """
    reader_of = getattr(type(items), "reader_of", None)
    if reader_of is not None:
        reader: Items = reader_of(items, rank, group)
        return reader
    count = len(items)
    start, stop = count * rank // size, count * (rank + 1) // size
    if not isinstance(items, list | tuple) and hasattr(items, "shape"):
        part: Items = items[start:stop]
        return part
    return Shard(items, start, stop)

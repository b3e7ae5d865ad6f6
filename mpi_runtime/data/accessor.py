"""What reductions that are written for Ray ask of a block: with `--as-ray` the names of `ray.data.block`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa, pc

if TYPE_CHECKING:
    import pandas
    import pyarrow

AggType = U = T = KeyType = object


class BlockMetadata(Struct, frozen=True):
    """What a program says of a block that a task will read. Nothing here uses it."""

    num_rows: int | None = None
    """The number of rows."""
    size_bytes: int | None = None
    """Their bytes."""
    exec_stats: object = None
    """Ray's, without effect."""
    input_files: Sequence[str] | None = None
    """The files from which they are read."""
    schema: object = None
    """Their columns."""


def __getattr__(name: str) -> object:
    if name == "Block":
        return pa.Table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BlockAccessor:
    """Looks into a block."""

    def __init__(self, block: pyarrow.Table) -> None:
        self._block = block

    @staticmethod
    def for_block(block: object) -> BlockAccessor:
        """Of this block."""
        return BlockAccessor(blocks.of_batch(block, "a block"))

    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._block.num_rows)

    def size_bytes(self) -> int:
        """Its bytes."""
        return int(self._block.nbytes)

    def schema(self) -> pyarrow.Schema:
        """Its columns."""
        return self._block.schema

    def column_names(self) -> list[str]:
        """Their names."""
        return list(self._block.column_names)

    def to_arrow(self) -> pyarrow.Table:
        """As a table."""
        return self._block

    def to_pandas(self) -> pandas.DataFrame:
        """As a data frame."""
        return blocks.to_batch(self._block, "pandas")

    def iter_rows(self, public_row_format: bool = True) -> Iterator[blocks.Row]:
        """Its rows."""
        return blocks.to_rows(self._block)

    def count(self, on: str, ignore_nulls: bool = False) -> int:
        """The number of values of a column."""
        column = self._block.column(on)
        return len(column) - (column.null_count if ignore_nulls else 0)

    def sum(self, on: str, ignore_nulls: bool) -> object:
        """The sum of a column."""
        return self._reduced(pc.sum, on, ignore_nulls)

    def min(self, on: str, ignore_nulls: bool) -> object:
        """Its least value."""
        return self._reduced(pc.min, on, ignore_nulls)

    def max(self, on: str, ignore_nulls: bool) -> object:
        """Its greatest value."""
        return self._reduced(pc.max, on, ignore_nulls)

    def mean(self, on: str, ignore_nulls: bool) -> object:
        """Its mean."""
        return self._reduced(pc.mean, on, ignore_nulls)

    def _reduced(self, function: object, on: str, ignore_nulls: bool) -> object:
        return function(self._block.column(on), skip_nulls=ignore_nulls).as_py()  # type: ignore[operator]

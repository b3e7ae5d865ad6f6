"""Blocks as references that a program has, or gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

import mpi_runtime
from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import pa
from mpi_runtime.data.streams.records import SOURCE, Block

if TYPE_CHECKING:
    from mpi_runtime import ObjectRef


@mpi_runtime.remote(num_returns=2)
def _as_block(value: object, name: str) -> object:
    if isinstance(value, bytes):
        value = pa.ipc.open_stream(value).read_all()
    made = {blocks.DATA: value} if isinstance(value, numpy.ndarray) else value
    table = blocks.compact(blocks.of_batch(made, name))
    blocks.check_columns(table)
    return table, (table.num_rows, table.nbytes)


@mpi_runtime.remote
def _as_batch(table: Any, form: str, column: str | None) -> object:
    batch = blocks.to_batch(table, form)
    return batch if column is None else batch[column]  # type: ignore[index]


def stored(given: ObjectRef[Any] | Sequence[ObjectRef[Any]], name: str) -> list[Block]:
    """Blocks of references to tables, data frames or arrays, each made where its value is."""
    refs = list(given) if isinstance(given, list | tuple) else [given]
    made = [_as_block.remote(ref, name) for ref in refs]
    sizes = mpi_runtime.get([size for _, size in made])
    return [
        Block(ref, rows, size, f"{name}, number {number + 1}", SOURCE, (number,))
        for number, ((ref, _), (rows, size)) in enumerate(zip(made, sizes, strict=True))
    ]


def batches(kept: Sequence[Block], form: str, column: str | None = None) -> list[ObjectRef[Any]]:
    """References to batches of this form, one for each block, or to a column of each."""
    return [_as_batch.remote(block.value, form, column) for block in kept]

"""The columns of files of Parquet, which need not all have the same ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mpi_runtime.data.arrow import pa, pq

if TYPE_CHECKING:
    import pyarrow

READERS = 16
"""Threads that read the ends of files: on a file system over a network each takes some milliseconds."""


def schemas_of(paths: Sequence[str]) -> list[pyarrow.Schema]:
    """The columns of each file. A file that cannot be read here is left out: its task will fail."""
    with ThreadPoolExecutor(min(READERS, len(paths))) as threads:
        return [one for one in threads.map(_schema_of, paths) if one is not None]


def _schema_of(path: str) -> pyarrow.Schema | None:
    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return None


def common_schema(schemas: Sequence[pyarrow.Schema], columns: Collection[str] | None) -> pyarrow.Schema | None:
    """The columns of all files, or these of them, each of a type to which those of the files can be converted.

    Returns None if all files have the same columns, or if there are no such types: then each file keeps its own.
    """
    chosen = [
        pa.schema([field for field in one.remove_metadata() if columns is None or field.name in columns])
        for one in schemas
    ]
    if all(one.equals(chosen[0]) for one in chosen):
        return None
    try:
        common = pa.unify_schemas(chosen, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return pa.schema([field.with_nullable(True) for field in common])


def check_columns(schemas: Sequence[pyarrow.Schema], columns: Collection[str], others: Collection[str]) -> None:
    """Check that a file has each of these columns, or that it is one of the others, which have another origin.

    Raises:
        ValueError: none has one of them.
    """
    known = dict.fromkeys(name for one in schemas for name in one.names)
    unknown = [name for name in columns if name not in known and name not in others]
    if unknown and schemas:
        raise ValueError(
            f"read_parquet(columns=...): no file has the column {unknown[0]!r}. They have {', '.join(map(repr, known))}"
        )

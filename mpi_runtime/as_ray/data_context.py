"""Settings of `ray.data`, and their older name."""

import contextlib
import enum
import importlib

from mpi_runtime.data import DataContext, ExecutionOptions, ExecutionResources

for _part in ("compute", "fs", "json", "parquet"):  # Ray loads them: programs write `pa.fs` after `import pyarrow`
    with contextlib.suppress(ImportError):  # the first read reports it
        importlib.import_module(f"pyarrow.{_part}")

DatasetContext = DataContext


class ShuffleStrategy(str, enum.Enum):
    """How Ray shuffles. Here rows are always sorted by ranges and shuffled by pieces: a choice has no effect."""

    SORT_SHUFFLE_PULL_BASED = "sort_shuffle_pull_based"
    SORT_SHUFFLE_PUSH_BASED = "sort_shuffle_push_based"
    HASH_SHUFFLE = "hash_shuffle"
    SHUFFLE_V2 = "shuffle_v2"


__all__ = ["DataContext", "DatasetContext", "ExecutionOptions", "ExecutionResources", "ShuffleStrategy"]

"""How often values of columns are there."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy

from mpi_runtime.data.arrow import pd

if TYPE_CHECKING:
    from mpi_runtime.data.dataset import Dataset

Counts = dict[str, Counter[Hashable]]


def counts(ds: Dataset, columns: Sequence[str], count: Callable[[Any], Counter[Hashable]]) -> Counts:
    """The sums of what `count` returns for each column of each block."""
    total: Counts = {column: Counter() for column in columns}
    for row in ds.map_batches(partial(_counted, list(columns), count), batch_format="pandas").take_all():
        of_block: Counts = pickle.loads(row["counts"])  # type: ignore[arg-type]
        for column in columns:
            total[column].update(of_block[column])
    return total


def _counted(columns: list[str], count: Callable[[Any], Counter[Hashable]], df: Any) -> dict[str, object]:
    if absent := [column for column in columns if column not in df.columns]:
        raise ValueError(f"Column {absent[0]!r} does not exist: there are {', '.join(map(str, df.columns))}")
    return {"counts": [cloudpickle.dumps({column: count(df[column]) for column in columns})]}


def has_lists(values: Any) -> bool:
    """Whether a column of a data frame has lists."""
    first = next((one for one in values if one is not None), None)
    return isinstance(first, list | numpy.ndarray)


def of_values(values: Any, joins_lists: bool) -> Counter[Hashable]:
    """How often each value is there; `joins_lists`: the parts of lists count, else lists do, as tuples."""
    if has_lists(values):
        lists = [one for one in values if one is not None]
        return Counter(part for one in lists for part in one) if joins_lists else Counter(map(tuple, lists))
    return Counter(values.value_counts(dropna=False).to_dict())


def present(values: Any) -> Counter[Hashable]:
    """How often each value is there that is not missing."""
    return Counter(values.value_counts().to_dict())


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN or such."""
    return not isinstance(value, tuple) and bool(pd.isna(value))

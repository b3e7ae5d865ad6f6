"""pyarrow and pandas, loaded when something of them is used: the names of `mpi_runtime.data` exist without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_runtime.errors import optional


class _Lazy:
    """A module that is loaded when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._name,)  # functions that are pickled as a whole refer to it

    def __getattr__(self, name: str) -> object:
        value = getattr(optional.load("mpi_runtime.data", self._name, self._name.partition(".")[0]), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pa_csv
    import pyarrow.fs as pa_fs
    import pyarrow.json as pa_json
    import pyarrow.parquet as pq
else:
    pa = _Lazy("pyarrow")
    pc = _Lazy("pyarrow.compute")
    pa_csv = _Lazy("pyarrow.csv")
    pa_fs = _Lazy("pyarrow.fs")
    pa_json = _Lazy("pyarrow.json")
    pq = _Lazy("pyarrow.parquet")
    pd = _Lazy("pandas")

__all__ = ["pa", "pa_csv", "pa_fs", "pa_json", "pc", "pd", "pq"]

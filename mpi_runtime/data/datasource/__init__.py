"""Sources and sinks of rows that a program writes itself, names of written files, and columns of directories.

With `--as-ray` these are the names of `ray.data.datasource`.

- `read.py`: data sets of sources, and of databases
- `sources.py`: `Datasource`: what a program reads from
- `sinks.py`: `Datasink`: what a program writes to
- `file_sinks.py`: sinks that write a file for each row or block
- `sql.py`: databases, by connections of Python's DB-API
- `names.py`: names of written files
- `partitions.py`: values of columns in the names of directories
"""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    "file_sinks": "BlockBasedFileDatasink RowBasedFileDatasink",
    "names": "FilenameProvider",
    "partitions": "PartitionStyle Partitioning PathPartitionFilter PathPartitionParser",
    "sinks": "Datasink WriteContext WriteResult",
    "sources": "Datasource ReadTask",
}

__all__ = [
    "BlockBasedFileDatasink", "Datasink", "Datasource", "FilenameProvider", "PartitionStyle", "Partitioning",
    "PathPartitionFilter", "PathPartitionParser", "ReadTask", "RowBasedFileDatasink", "WriteContext", "WriteResult",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.data.datasource.file_sinks import BlockBasedFileDatasink, RowBasedFileDatasink
    from mpi_runtime.data.datasource.names import FilenameProvider
    from mpi_runtime.data.datasource.partitions import (
        Partitioning,
        PartitionStyle,
        PathPartitionFilter,
        PathPartitionParser,
    )
    from mpi_runtime.data.datasource.sinks import Datasink, WriteContext, WriteResult
    from mpi_runtime.data.datasource.sources import Datasource, ReadTask
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)

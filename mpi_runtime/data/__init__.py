"""Streams of rows over all nodes of a job, with bounded memory and the names of Ray Data.

    from mpi_runtime import data

    data.read_parquet("in").map_batches(Model, num_gpus=1, concurrency=4).write_parquet("out")

Rows are in blocks, tables of pyarrow in the object store. Blocks stream through the stages of a data set, each a
function that tasks or actors call, and a budget in bytes bounds the blocks that exist. Needs pyarrow, which nothing
loads before it is used.

- `dataset.py`: `Dataset`: transformations, and what asks for rows
- `grouped.py`: groups of its rows
- `sources.py`: data sets of numbers, lists, arrays and tables
- `references.py`: blocks as references that a program has, or gets
- `files/`: files as data sets, and data sets as files
- `datasource/`: sources and sinks that a program writes itself, databases, names of files and directories
- `preprocessors/`: columns prepared for a training, by what was learned of a data set
- `others.py`: data sets of torch and of Hugging Face
- `iterating.py`: rows and batches in the process that asks
- `splitting.py`: one stream for several readers
- `streams/`: runs streams: what is decided, performed and shown
- `plan.py`: operators, and the stages that they become
- `steps.py`: what a task does with its blocks
- `whole/`: what needs all rows at once
- `conditions.py`: conditions in strings
- `expressions.py`: columns made of columns
- `namespaces.py`: functions of expressions, by the kind of values
- `operations.py`: what the operators of expressions do
- `options.py`: arguments of transformations
- `aggregate.py`: what groups are reduced to
- `blocks.py`: tables, batches and rows
- `columns.py`: columns of arrays and objects
- `columns_of_torch.py`: batches as tensors
- `schema.py`: the columns of a data set
- `accessor.py`: blocks, by names that programs for Ray use
- `datatype.py`: types of values
- `context.py`: settings
- `unsupported.py`: what Ray Data has and is not here, each with what to do instead
- `arrow.py`: pyarrow and pandas, loaded on first use
"""

import os
from typing import TYPE_CHECKING

from mpi_runtime import _face

# Arrow asks when it is loaded, and its writers use nothing else: see `arrow.py`.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

_HOMES = {
    "aggregate": "AbsMax AggregateFn AggregateFnV2 AsList Count CountDistinct Max Mean Min MissingValuePercentage "
    "Quantile Std Sum Unique ValueCounter ZeroPercentage",
    "context": "DataContext ExecutionOptions ExecutionResources",
    "dataset": "Dataset MaterializedDataset",
    "grouped": "GroupedData",
    "iterating": "DataIterator",
    "options": "ActorPoolStrategy TaskPoolStrategy",
    "datasource.file_sinks": "BlockBasedFileDatasink RowBasedFileDatasink",
    "datasource.read": "read_datasource read_sql",
    "datasource.sinks": "Datasink",
    "datasource.sources": "Datasource ReadTask",
    "files.finding": "FileShuffleConfig",
    "files.reading": "read_binary_files read_csv read_images read_json read_numpy read_parquet read_text "
    "read_webdataset",
    "preprocessors.base": "Preprocessor",
    "schema": "Schema",
    "others": "from_huggingface from_torch",
    "sources": "from_arrow from_arrow_refs from_blocks from_items from_numpy from_numpy_refs from_pandas "
    "from_pandas_refs range range_tensor",
    "splitting": "StreamSplitDataIterator",
    "steps": "BlockError BlockValueError",
    "files.writing": "SaveMode",
}
"""The names of each module, which is loaded when one of them is used."""

__all__ = [
    "AbsMax", "ActorPoolStrategy", "AggregateFn", "AggregateFnV2", "AsList", "BlockBasedFileDatasink", "BlockError",
    "BlockValueError", "Count", "CountDistinct", "DataContext", "DataIterator", "Dataset", "Datasink", "Datasource",
    "ExecutionOptions", "ExecutionResources", "FileShuffleConfig", "GroupedData", "MaterializedDataset", "Max", "Mean",
    "Min", "MissingValuePercentage", "Preprocessor", "Quantile", "ReadTask", "RowBasedFileDatasink", "SaveMode",
    "Schema", "Std", "Sum", "TaskPoolStrategy", "Unique", "ValueCounter", "ZeroPercentage", "from_arrow",
    "from_arrow_refs", "from_blocks", "from_huggingface", "from_items", "from_numpy", "from_numpy_refs", "from_pandas",
    "from_pandas_refs", "from_torch", "range", "range_tensor", "read_binary_files", "read_csv", "read_datasource",
    "read_images", "read_json", "read_numpy", "read_parquet", "read_sql", "read_text", "read_webdataset",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.data.aggregate import (
        AbsMax,
        AggregateFn,
        AggregateFnV2,
        AsList,
        Count,
        CountDistinct,
        Max,
        Mean,
        Min,
        MissingValuePercentage,
        Quantile,
        Std,
        Sum,
        Unique,
        ValueCounter,
        ZeroPercentage,
    )
    from mpi_runtime.data.context import DataContext, ExecutionOptions, ExecutionResources
    from mpi_runtime.data.dataset import Dataset, MaterializedDataset
    from mpi_runtime.data.datasource.file_sinks import BlockBasedFileDatasink, RowBasedFileDatasink
    from mpi_runtime.data.datasource.read import read_datasource, read_sql
    from mpi_runtime.data.datasource.sinks import Datasink
    from mpi_runtime.data.datasource.sources import Datasource, ReadTask
    from mpi_runtime.data.files.finding import FileShuffleConfig
    from mpi_runtime.data.files.reading import (
        read_binary_files,
        read_csv,
        read_images,
        read_json,
        read_numpy,
        read_parquet,
        read_text,
        read_webdataset,
    )
    from mpi_runtime.data.files.writing import SaveMode
    from mpi_runtime.data.grouped import GroupedData
    from mpi_runtime.data.iterating import DataIterator
    from mpi_runtime.data.options import ActorPoolStrategy, TaskPoolStrategy
    from mpi_runtime.data.others import from_huggingface, from_torch
    from mpi_runtime.data.preprocessors.base import Preprocessor
    from mpi_runtime.data.schema import Schema
    from mpi_runtime.data.sources import (
        from_arrow,
        from_arrow_refs,
        from_blocks,
        from_items,
        from_numpy,
        from_numpy_refs,
        from_pandas,
        from_pandas_refs,
        range,
        range_tensor,
    )
    from mpi_runtime.data.steps import BlockError, BlockValueError
else:  # a checker would take every name for one of ours
    _load, __dir__ = _face(__name__, _HOMES, __all__)

    def __getattr__(name: str) -> object:
        try:
            return _load(name)
        except AttributeError as error:
            import importlib

            absent = importlib.import_module("mpi_runtime.data.unsupported")
            raise AttributeError(absent.of_module(name, str(error)), name=name) from None

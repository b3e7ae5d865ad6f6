"""What Ray Data has and is not here, each with what to do instead."""

from __future__ import annotations

_FRAME = "read the blocks with iter_batches(batch_format='pandas')"
_OWN_STORAGE = "write files, and load them with the tools of that storage"

OF_DATASET = {
    "explain": "stats() shows the stages of a run",
    "iter_tf_batches": "make tensors of iter_batches()",
    "iter_jax_batches": "make arrays of iter_batches()",
    "mix": "use union()",
    "summary": "use count(), min(), max(), mean() and std()",
    "to_dask": _FRAME,
    "to_daft": _FRAME,
    "to_mars": _FRAME,
    "to_modin": _FRAME,
    "to_spark": _FRAME,
    "to_tf": "make tensors of iter_batches()",
    "iter_internal_ref_bundles": "use to_arrow_refs()",
    "to_random_access_dataset": "sort() it, and keep parts of it in actors",
    "to_torch": "use iter_torch_batches()",
    "write_tfrecords": "write files in map_batches()",
    **{f"write_{name}": _OWN_STORAGE for name in ("bigquery", "clickhouse", "delta", "iceberg", "kafka", "lance")},
    **{f"write_{name}": _OWN_STORAGE for name in ("mongo", "orc", "snowflake", "turbopuffer")},
}
_READ = "pass the names of files to from_items(), and read each in flat_map()"
_PAGES = "pass queries, one for each part, to from_items(), and run each in flat_map()"
OF_MODULE = {
    **{f"read_{name}": _READ for name in ("audio", "avro", "lerobot", "mcap", "orc", "tfrecords")},
    **{f"read_{name}": _READ for name in ("videos", "zarr")},
    **{f"read_{name}": _PAGES for name in ("clickhouse", "delta", "delta_sharing_tables", "hudi", "iceberg", "kafka")},
    **{f"read_{name}": _PAGES for name in ("lance", "mongo", "snowflake", "unity_catalog", "bigquery")},
    "from_tf": "from_items(list(dataset.as_numpy_iterator())) has its items",
    **{f"from_{name}": "convert it to tables of pyarrow, and use from_arrow()" for name in ("daft", "dask", "spark")},
    **{f"from_{name}": "convert it to data frames, and use from_pandas()" for name in ("mars", "modin")},
    "TorchVisionPreprocessor": "call the transform in map_batches()",
}


def of_dataset(name: str) -> str:
    """The message for a method that a data set does not have."""
    if name in OF_DATASET:
        return f"Dataset.{name}() is not here: {OF_DATASET[name]}"
    return f"'Dataset' object has no attribute {name!r}"


def of_module(name: str, otherwise: str) -> str:
    """The message for a name that the room does not have; `otherwise`: of one that Ray does not have either."""
    return f"mpi_runtime.data.{name} is not here: {OF_MODULE[name]}" if name in OF_MODULE else otherwise

"""One run of a stream of rows, with `mpi_runtime.data` or Ray Data: the same program for both. See `benchmarks.data`.

    PYTHON benchmarks/systems/data_shapes.py SYSTEM SHAPE ARGUMENTS

SYSTEM is `mpi_runtime`, `ray`, or `by_hand` (images only); ARGUMENTS is an object of JSON. It prints what happened as
lines of JSON, each with the time of the clock that does not jump.
"""

from __future__ import annotations

import glob
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

WORK_S = 0.02
BATCH = 32
PIXELS = 128
CLASSES = 256


def say(event: str, **facts: Any) -> None:
    """Print what has happened."""
    print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


def started(system: str, given: dict[str, Any]) -> Any:
    """Start a job, have processes that import the libraries, and return the library of data sets."""
    runtime = importlib.import_module(system)
    quiet = {"include_dashboard": False, "logging_level": "error"} if system == "ray" else {}
    runtime.init(num_cpus=given["cpus"], object_store_memory=given["store"], log_to_driver=False, **quiet)
    data = importlib.import_module(f"{system}.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = bool(given.get("ordered"))

    def imported(name: str) -> int:
        """What a task loads, and a bit of work with it, since libraries allocate something of their own then."""
        for module in (name, "pyarrow.parquet", "pyarrow.compute", "pandas", *given.get("loaded", ())):
            importlib.import_module(module)
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                rows = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((4, 1000)))})
                pq.write_table(rows, f"{folder}/a.parquet")
                pq.read_table(f"{folder}/a.parquet")
        time.sleep(1.0)
        return os.getpid()

    count = 2 * given["cpus"]  # tasks of half a CPU; actors have processes of their own
    load = runtime.remote(num_cpus=0.5)(imported)
    workers = runtime.get([load.remote(f"{system}.data") for _ in range(count)])
    imported(f"{system}.data")  # what this process has counts as before too
    say("ready", workers=sorted(set(workers)))
    return data


class Slow:
    """Takes 20 ms for a batch, and returns its size."""

    def __init__(self, slow_id: int = -1, slow_s: float = 0.0) -> None:
        self.slow_id = slow_id
        self.slow_s = slow_s

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Wait."""
        time.sleep(self.slow_s if self.slow_id in batch["id"] else WORK_S)
        return {"id": batch["id"], "x": batch["x"]}


def flat(system: str, given: dict[str, Any]) -> None:
    """A fast reader, and a stage of 20 ms behind it; until the time is over."""
    data, size = started(system, given), given["size"]

    def make(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "x": np.zeros((len(batch["id"]), size), np.uint8)}

    count = max(200, 3 * int(given["seconds"] / WORK_S))
    ds = data.range(count, override_num_blocks=min(count, 1000)).map_batches(make, batch_size=1, num_cpus=0.5)
    arguments = (20, given["seconds"] / 3) if given.get("slow") else ()
    ds = ds.map_batches(
        Slow, batch_size=1, concurrency=2 if given.get("slow") else 1, fn_constructor_args=arguments, num_cpus=0.5
    )
    begun, rows = 0.0, 0
    for batch in ds.iter_batches(batch_size=None):
        if not begun:  # the start of processes is not a part of it
            begun = time.monotonic()
            say("begun")
        rows += len(batch["id"])
        if time.monotonic() - begun > given["seconds"]:
            break
    say("ended", rows=rows, bytes=rows * size)


def parquet(system: str, given: dict[str, Any]) -> None:
    """Files of parquet, decoded, 20 ms for each batch of a class, and written."""
    data = started(system, given)
    ds = data.read_parquet(given["input"]).map_batches(decode, num_cpus=0.5)
    ds = ds.map_batches(Slow, batch_size=given["batch"], concurrency=1, num_cpus=0.5)
    say("begun")
    ds.write_parquet(given["output"])
    say("ended")


def readers(system: str, given: dict[str, Any]) -> None:
    """Files of any kind, 20 ms for each batch of a class, and written."""
    data = started(system, given)
    say("begun")
    ds = getattr(data, given["reader"])(given["input"])
    ds = ds.map_batches(Wait, batch_size=None, batch_format="pyarrow", concurrency=1, num_cpus=0.5)
    ds.write_parquet(given["output"])
    say("ended")


class Wait:
    """Takes 20 ms for a batch, and returns it without images, and with its size."""

    def __call__(self, batch: Any) -> Any:
        """Wait."""
        time.sleep(WORK_S)
        sizes = np.full(batch.num_rows, batch.nbytes)
        kept = [name for name in batch.column_names if name != "image"]
        return batch.select(kept).append_column("block_bytes", [sizes])


def decode(batch: dict[str, Any]) -> dict[str, Any]:
    """Another array of the same size."""
    return {"id": batch["id"], "x": batch["x"] * 0.5}


def whole(system: str, given: dict[str, Any]) -> None:
    """All rows in another order: more bytes than the store has."""
    data, width = started(system, given), 1000

    def make(batch: dict[str, Any]) -> dict[str, Any]:
        mixed = batch["id"] * 1_000_003 % given["rows"]
        return {"id": mixed, "x": np.repeat(mixed[:, None], width // 8, axis=1)}

    ds = data.range(given["rows"], override_num_blocks=64).map_batches(make)
    say("begun")
    ds = ds.sort("id") if given["order"] == "sort" else ds.random_shuffle(seed=1)
    rows = total = 0
    for batch in ds.iter_batches(batch_size=None):
        if given["order"] == "sort":
            assert (batch["id"] == np.arange(rows, rows + len(batch["id"]))).all(), "not in order"
        rows += len(batch["id"])
        total += int(batch["id"].sum())
    assert (rows, total) == (given["rows"], given["rows"] * (given["rows"] - 1) // 2), "rows were lost"
    say("ended", rows=rows)


class Model:
    """A model of one layer, on one CPU thread."""

    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).standard_normal((PIXELS * PIXELS * 3, CLASSES), np.float32)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The class of each image."""
        flattened = np.stack(list(batch["image"])).reshape(len(batch["image"]), -1).astype(np.float32)
        return {"label": (flattened @ self.weights).argmax(axis=1)}


def images(system: str, given: dict[str, Any]) -> None:
    """Images, resized, through a model of a class."""
    if system == "by_hand":
        by_hand(given)
        return
    data = started(system, given)
    say("begun")
    ds = data.read_images(given["input"], size=(PIXELS, PIXELS), mode="RGB")
    ds = ds.map_batches(Model, batch_size=BATCH, concurrency=1)
    rows = sum(len(batch["label"]) for batch in ds.iter_batches(batch_size=None))
    say("ended", rows=rows)


_model: Model


def by_hand(given: dict[str, Any]) -> None:
    """The same by a pool of processes, one for each CPU."""
    files = sorted(glob.glob(os.path.join(given["input"], "*")))
    parts = [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
    with multiprocessing.get_context("fork").Pool(given["cpus"], load_model) as pool:
        pool.map(abs, range(given["cpus"]))
        say("ready")
        say("begun")
        rows = sum(pool.imap_unordered(labels_of, parts))
        say("ended", rows=rows)


def load_model() -> None:
    """Have the model in this process."""
    global _model
    _model = Model()


def labels_of(files: list[str]) -> int:
    """Read and resize images, and label them."""
    from PIL import Image

    read = [np.asarray(Image.open(name).convert("RGB").resize((PIXELS, PIXELS))) for name in files]
    return len(_model({"image": read})["label"])


def first(system: str, given: dict[str, Any]) -> None:
    """The time to the first batch, of a first data set and of a second one."""
    data = started(system, given)

    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] * 2}

    for round_ in ("first", "second"):
        begun = time.monotonic()
        batches: Iterator[object] = iter(
            data.range(100_000, override_num_blocks=100).map_batches(double).iter_batches(batch_size=32)
        )
        next(batches)
        say("ended", round=round_, seconds=time.monotonic() - begun)
        batches.close()  # type: ignore[attr-defined]


SHAPES = {"flat": flat, "parquet": parquet, "readers": readers, "images": images, "first": first, "whole": whole}

if __name__ == "__main__":
    SHAPES[sys.argv[2]](sys.argv[1], json.loads(sys.argv[3]))

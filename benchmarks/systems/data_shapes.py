"""One run of a stream of rows, with `mpi_runtime.data` or Ray Data: the same program for both. See `benchmarks.data`.

    PYTHON benchmarks/systems/data_shapes.py SYSTEM SHAPE ARGUMENTS

SYSTEM is `mpi_runtime`, `ray`, or `by_hand` (images only); ARGUMENTS is an object of JSON. It prints what happened,
each with the time of the clock that does not jump, as lines of JSON.
"""

from __future__ import annotations

import glob
import importlib
import json
import multiprocessing
import os
import sys
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

    def imported(name: str) -> None:
        for module in (name, "pyarrow.parquet", "pandas"):
            importlib.import_module(module)
        time.sleep(1.0)

    count = 2 * given["cpus"]  # tasks of half a CPU; actors have processes of their own
    load = runtime.remote(num_cpus=0.5)(imported)
    runtime.get([load.remote(f"{system}.data") for _ in range(count)])
    imported(f"{system}.data")  # what this process has counts as before too
    say("ready")
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

    count = max(200, int(given["seconds"] / WORK_S))
    ds = data.range(count, override_num_blocks=min(count, 1000)).map_batches(make, batch_size=1, num_cpus=0.5)
    arguments = (20, given["seconds"] / 3) if given.get("slow") else ()
    ds = ds.map_batches(
        Slow, batch_size=1, concurrency=2 if given.get("slow") else 1, fn_constructor_args=arguments, num_cpus=0.5
    )
    begun, rows = time.monotonic(), 0
    say("begun")
    for batch in ds.iter_batches(batch_size=None):
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
    say("ended", held=most_held(ds) if system == "mpi_runtime" else 0)


def most_held(ds: Any) -> int:
    """The most bytes of blocks that stages have held, each at its own worst moment."""
    return sum(stage.peak for stage in ds._stats.stream.stages)


def decode(batch: dict[str, Any]) -> dict[str, Any]:
    """Another array of the same size."""
    return {"id": batch["id"], "x": batch["x"] * 0.5}


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


SHAPES = {"flat": flat, "parquet": parquet, "images": images, "first": first}

if __name__ == "__main__":
    SHAPES[sys.argv[2]](sys.argv[1], json.loads(sys.argv[3]))

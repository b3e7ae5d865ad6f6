"""Data sets: iterating, saving, several readers, and training."""

import contextlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import ray
import ray.data
import ray.train
from PIL import Image
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tests.ray_docs.helpers import raised


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _files(folder, suffix):
    return [name for name in sorted(folder.rglob(f"*.{suffix}")) if name.is_file()]


# Page "Iterating over data"


def iterating_over_rows():
    """Rows are dictionaries of plain values, and arrays where there are arrays."""
    print(list(ray.data.range(3).iter_rows()))
    [row] = ray.data.from_numpy(np.ones((1, 2))).iter_rows()
    print(type(row["data"]).__name__, row["data"].tolist())


def iterating_over_batches():
    """Batches have one size, also over the bounds of blocks; the last one has the rest."""
    ds = ray.data.range(10, override_num_blocks=2)
    print([len(batch["id"]) for batch in ds.iter_batches(batch_size=4)])
    print([batch["id"].tolist() for batch in ray.data.range(5, override_num_blocks=1).iter_batches(batch_size=2)])
    print([len(batch["id"]) for batch in ds.iter_batches(batch_size=4, drop_last=True)])
    print([len(batch["id"]) for batch in ds.iter_batches(batch_size=None)])
    print([len(batch["id"]) for batch in ray.data.range(600).iter_batches()])


def forms_of_iterated_batches():
    """numpy, pandas, pyarrow."""
    ds = ray.data.from_items([{"a": i, "t": str(i)} for i in range(3)])
    for form in ("numpy", "pandas", "pyarrow"):
        [batch] = ds.iter_batches(batch_format=form, batch_size=10)
        print(type(batch).__name__, [str(one) for one in batch["t"]])
    print(raised(lambda: list(ds.iter_batches(batch_format="lists")), "ValueError"))


def local_shuffle():
    """Rows are drawn from a buffer: all of them, once."""
    ds = ray.data.range(100)
    batches = [
        b["id"].tolist() for b in ds.iter_batches(batch_size=10, local_shuffle_buffer_size=50, local_shuffle_seed=1)
    ]
    rows = [one for batch in batches for one in batch]
    print(len(batches), sorted(rows) == list(range(100)), rows != sorted(rows))


def iterating_twice():
    """Each loop begins again; an iterator of the data set does too."""
    ds = ray.data.range(5)
    print([sum(row["id"] for row in ds.iter_rows()) for _ in range(2)])
    it = ds.iterator()
    print([sum(int(batch["id"].sum()) for batch in it.iter_batches()) for _ in range(2)])


def leaving_a_loop():
    """A loop may end early."""
    ds = ray.data.range(10_000)
    for batch in ds.iter_batches(batch_size=10):
        print(len(batch["id"]))
        break
    print(next(iter(ds.iter_rows())))


def parts_for_several_readers():
    """`streaming_split`: together they get all rows."""
    parts = ray.data.range(40, override_num_blocks=4).streaming_split(2)

    @ray.remote
    def rows(part):
        return [int(one) for batch in part.iter_batches() for one in batch["id"]]

    found = ray.get([rows.remote(part) for part in parts])
    print(sorted(found[0] + found[1]) == list(range(40)))


def equal_parts_for_several_readers():
    """With `equal` all get the same number of rows."""
    parts = ray.data.range(41, override_num_blocks=4).streaming_split(2, equal=True)

    @ray.remote
    def count(part):
        return [sum(len(batch["id"]) for batch in part.iter_batches()) for _ in range(2)]

    print(ray.get([count.remote(part) for part in parts]))


# Page "Saving data"


def saving_parquet():
    """Files in a directory, which can be read again."""
    with _folder() as folder:
        ds = ray.data.from_items([{"a": i, "t": str(i), "l": [i, i]} for i in range(10)])
        ds.write_parquet(str(folder / "out"))
        print(ray.data.read_parquet(str(folder / "out")).count())
        print(pq.read_table(folder / "out").sort_by("a").to_pylist()[3])
        ds.write_parquet(str(folder / "small"), compression="gzip")
        print(pq.ParquetFile(_files(folder / "small", "parquet")[0]).metadata.row_group(0).column(0).compression)


def saving_csv_and_json():
    """Heads in CSV, an object in each line of JSON."""
    with _folder() as folder:
        ds = ray.data.from_items([{"a": 1, "t": "x"}, {"a": 2, "t": None}], override_num_blocks=1)
        ds.write_csv(str(folder / "csv"))
        print([name.read_text() for name in _files(folder / "csv", "csv")])
        ds.write_json(str(folder / "json"))
        print([json.loads(line) for name in _files(folder / "json", "json") for line in name.read_text().splitlines()])


def saving_numpy():
    """A column as arrays."""
    with _folder() as folder:
        ray.data.range_tensor(4, shape=(2,), override_num_blocks=1).write_numpy(str(folder / "out"), column="data")
        print([np.load(name).tolist() for name in _files(folder / "out", "npy")])


def number_of_files():
    """`repartition` says how many."""
    with _folder() as folder:
        ray.data.range(100).repartition(3).write_parquet(str(folder / "out"))
        print(len(_files(folder / "out", "parquet")))


def saving_partitions():
    """`partition_cols` makes directories of the values of columns."""
    with _folder() as folder:
        ds = ray.data.from_items([{"id": i, "kind": "ab"[i % 2]} for i in range(6)])
        ds.write_parquet(str(folder / "out"), partition_cols=["kind"])
        print(sorted(one.name for one in (folder / "out").iterdir()))
        print(sorted((row["id"], row["kind"]) for row in ray.data.read_parquet(str(folder / "out")).take_all()))


def modes_of_saving():
    """What happens to files that are there."""
    with _folder() as folder:
        out = str(folder / "out")
        ray.data.from_items([{"a": 1}]).write_parquet(out)
        ray.data.from_items([{"a": 2}]).write_parquet(out, mode="ignore")
        print(ray.data.read_parquet(out).take_all())
        print(raised(lambda: ray.data.from_items([{"a": 3}]).write_parquet(out, mode="error"), "ValueError"))
        ray.data.from_items([{"a": 4}]).write_parquet(out, mode="overwrite")
        print(ray.data.read_parquet(out).take_all())
        ray.data.from_items([{"a": 5}, {"a": 6}]).write_parquet(out, mode="append")
        print(sorted(row["a"] for row in ray.data.read_parquet(out).take_all()))


def a_second_write_adds_its_rows():
    """What is written twice is there twice, and a variable of the program makes other rows."""
    with _folder() as folder:
        for factor in (1, 2):
            _factors["a"] = factor
            ray.data.range(2).map(_by_variable).write_parquet(str(folder / "out"))
            ray.data.range(2).write_parquet(str(folder / "out"))
        print(sorted(row["id"] for row in ray.data.read_parquet(str(folder / "out")).take_all()))


_factors = {"a": 1}


def _by_variable(row):
    return {"id": (row["id"] + 1) * 10 * _factors["a"]}


def converting_to_pandas():
    """All rows in a data frame; with a limit there must not be more."""
    ds = ray.data.from_items([{"a": i, "t": str(i)} for i in range(3)])
    print(ds.to_pandas().to_dict("list"), raised(lambda: ds.to_pandas(limit=2), "ValueError"))


# Pages "Working with images", "tensors", "text", and "Batch inference"


def tensors_keep_their_shape_and_type():
    """Through `map` and `map_batches`, of fixed and of different shapes."""
    ds = ray.data.range(2).map(lambda row: {"x": np.full((2, 3), row["id"], dtype=np.float32)})
    print(ds.take_batch(2)["x"].shape, str(ds.take_batch(2)["x"].dtype))
    print(ds.map_batches(lambda batch: {"x": batch["x"].sum(axis=(1, 2))}).take_all())
    ragged = ray.data.range(3).map(lambda row: {"x": np.zeros((row["id"] + 1, 2))})
    batch = ragged.take_batch(3)
    print(batch["x"].dtype, [one.shape for one in batch["x"]], [row["x"].shape for row in ragged.take_all()])


def tensors_in_files():
    """Parquet keeps arrays."""
    with _folder() as folder:
        ray.data.from_numpy(np.arange(8).reshape(2, 2, 2)).write_parquet(str(folder / "out"))
        rows = ray.data.read_parquet(str(folder / "out")).take_all()
        print(sorted(row["data"].tolist() for row in rows), {row["data"].shape for row in rows})


def images_are_transformed():
    """A function of a batch of images."""
    with _folder() as folder:
        for i in range(3):
            Image.new("RGB", (4, 4), (i, 0, 0)).save(folder / f"{i}.png")
        ds = ray.data.read_images(str(folder), mode="RGB").map_batches(
            lambda b: {"mean": b["image"].mean(axis=(1, 2, 3))}
        )
        print(sorted(round(row["mean"], 4) for row in ds.take_all()))


def images_from_bytes():
    """Other formats are decoded by a function of the bytes."""
    import io

    with _folder() as folder:
        Image.new("L", (2, 3), 7).save(folder / "a.png")

        def decoded(row):
            return {"shape": list(np.asarray(Image.open(io.BytesIO(row["bytes"]))).shape)}

        print(ray.data.read_binary_files(str(folder)).map(decoded).take_all())


def texts_are_counted():
    """Lines to words to numbers."""
    with _folder() as folder:
        (folder / "a.txt").write_text("a b\nc\n\nd e f\n")
        words = ray.data.read_text(str(folder)).flat_map(lambda row: [{"word": one} for one in row["text"].split()])
        print(sorted(row["word"] for row in words.take_all()), words.map(lambda row: {"n": len(row["word"])}).sum("n"))


def inference_with_a_model():
    """A class loads the model once, predicts batches, and the results are saved."""

    class Model:
        def __init__(self, weight):
            self.weight = weight

        def __call__(self, batch):
            batch["score"] = batch["x"] * self.weight
            return batch

    with _folder() as folder:
        ds = ray.data.from_items([{"x": float(i)} for i in range(20)])
        ds.map_batches(Model, fn_constructor_args=(0.5,), concurrency=2, batch_size=4).write_parquet(
            str(folder / "out")
        )
        print(pq.read_table(folder / "out").to_pandas()["score"].sum())


# Page "Data loading and preprocessing" of training


def _trained(loop, workers, datasets, folder, **more):
    return DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=str(folder), name="mine"),
        datasets=datasets,
        **more,
    ).fit()


def workers_have_equal_parts():
    """Each worker gets the same number of rows, in each epoch; together nearly all."""
    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop():
            shard = ray.train.get_dataset_shard("train")
            rank = ray.train.get_context().get_world_rank()
            for epoch in range(2):
                ids = [int(one) for batch in shard.iter_batches(batch_size=8) for one in batch["id"]]
                with open(os.path.join(place, f"{epoch}-{rank}"), "w") as file:
                    json.dump(ids, file)

        ds = ray.data.range(40, override_num_blocks=4).map(lambda row: {"id": row["id"] * 2})
        _trained(loop, 2, {"train": ds}, folder)
        for epoch in range(2):
            found = [json.loads((notes / f"{epoch}-{rank}").read_text()) for rank in range(2)]
            print([len(one) for one in found], sorted(found[0] + found[1]) == list(range(0, 80, 2)))


def several_data_sets_of_a_training():
    """By name; a name that is not there is an error."""
    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop():
            train, valid = (ray.train.get_dataset_shard(name) for name in ("train", "valid"))
            sizes = [sum(len(batch["id"]) for batch in shard.iter_batches()) for shard in (train, valid)]
            try:
                ray.train.get_dataset_shard("other")
                missing = "found"
            except KeyError:
                missing = "KeyError"
            with open(os.path.join(place, str(ray.train.get_context().get_world_rank())), "w") as file:
                print(sizes, missing, file=file)

        datasets = {"train": ray.data.range(20), "valid": ray.data.range(6)}
        _trained(loop, 2, datasets, folder)
        print([(notes / str(rank)).read_text() for rank in range(2)])


def data_sets_that_are_not_split():
    """`DataConfig` says which are split; the others go whole to each worker."""
    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop():
            sizes = [
                sum(len(batch["id"]) for batch in ray.train.get_dataset_shard(name).iter_batches())
                for name in ("train", "valid")
            ]
            with open(os.path.join(place, str(ray.train.get_context().get_world_rank())), "w") as file:
                print(sizes, file=file)

        datasets = {"train": ray.data.range(20), "valid": ray.data.range(6)}
        config = ray.train.DataConfig(datasets_to_split=["train"])
        _trained(loop, 2, datasets, folder, dataset_config=config)
        print([(notes / str(rank)).read_text() for rank in range(2)])


def a_whole_data_set_in_each_worker():
    """One that is in the configuration of the loop is read as a whole by each worker."""
    with _folder() as folder, _folder() as notes:
        place = str(notes)

        def loop(config):
            size = sum(len(batch["id"]) for batch in config["valid"].iter_batches())
            with open(os.path.join(place, str(ray.train.get_context().get_world_rank())), "w") as file:
                print(size, file=file)

        _trained(loop, 2, None, folder, train_loop_config={"valid": ray.data.range(6)})
        print([(notes / str(rank)).read_text() for rank in range(2)])


def a_materialized_data_set_of_a_training():
    """Its functions do not run again in each epoch."""
    with _folder() as folder, _folder() as notes:
        name = str(notes / "runs")

        def noted(batch):
            with open(name, "a") as file:
                file.write("x")
            return batch

        ds = ray.data.range(8, override_num_blocks=1).map_batches(noted, batch_size=None).materialize()

        def loop():
            shard = ray.train.get_dataset_shard("train")
            total = sum(len(list(shard.iter_rows())) for _ in range(3))
            with open(name + "-rows", "w") as file:
                print(total, file=file)

        _trained(loop, 1, {"train": ds}, folder)
        print(Path(name + "-rows").read_text(), Path(name).read_text())

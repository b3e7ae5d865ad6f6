"""More sources and files: orders of files, tar files, images, data sets of other libraries."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
image = pytest.importorskip("PIL.Image")

from mpi_runtime import data  # noqa: E402
from mpi_runtime.data.datasource import names  # noqa: E402
from mpi_runtime.errors import TaskError  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}


def column(ds: data.Dataset, name: str = "id") -> list[Any]:
    return [row[name] for row in ds.take_all()]


def numbered(folder: Path, count: int = 20) -> str:
    for i in range(count):
        (folder / f"{i:02d}.csv").write_text(f"id\n{i}\n")
    return str(folder)


def test_files_have_another_order_in_each_run(tmp_path: Path) -> None:
    ds = data.read_csv(numbered(tmp_path), shuffle="files")
    first, second = column(ds), column(ds)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert ds.count() == 20


def test_a_seed_gives_the_order_of_files(tmp_path: Path) -> None:
    path = numbered(tmp_path)
    config = data.FileShuffleConfig(seed=3)
    one, other = (data.read_csv(path, shuffle=config) for _ in range(2))
    first, second = column(one), column(one)
    assert [column(other), column(other)] == [first, second]
    assert first != second
    fixed = data.read_csv(path, shuffle=data.FileShuffleConfig(seed=3, reseed_after_execution=False))
    assert column(fixed) == column(fixed) == first
    with pytest.raises(ValueError, match="shuffle"):
        data.read_csv(path, shuffle="rows")


def test_each_epoch_of_a_split_reads_files_in_another_order(tmp_path: Path) -> None:
    [part] = data.read_csv(numbered(tmp_path), shuffle="files").streaming_split(1)
    epochs = [[row["id"] for row in part.iter_rows()] for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3  # type: ignore[type-var]
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_each_epoch_of_a_split_has_another_shuffle() -> None:
    [part] = data.range(200, override_num_blocks=4).materialize().random_shuffle().streaming_split(1)
    epochs = [[row["id"] for row in part.iter_rows()] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(200))  # type: ignore[type-var]
    assert epochs[0] != epochs[1]


def test_paths_that_are_missing(tmp_path: Path) -> None:
    paths = [numbered(tmp_path, 2), str(tmp_path / "none.csv")]
    assert sorted(column(data.read_csv(paths, ignore_missing_paths=True))) == [0, 1]
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        data.read_csv(paths)
    with pytest.raises(FileNotFoundError):
        data.read_csv(paths[1:], ignore_missing_paths=True)


def test_small_blocks_are_joined_in_files(tmp_path: Path) -> None:
    ds = data.range(100, override_num_blocks=10)
    for kind in ("csv", "json", "parquet"):
        out = tmp_path / kind
        for _ in range(2):
            names._written.clear()  # as in another run
            getattr(ds, f"write_{kind}")(str(out), min_rows_per_file=25)
        assert len(list(out.iterdir())) == 4
        assert sorted(column(getattr(data, f"read_{kind}")(str(out)))) == list(range(100))


def test_tar_files_are_written_once_and_read(tmp_path: Path) -> None:
    rows = [
        {
            "__key__": f"a/{n:03d}",
            "txt": f"für {n}",
            "cls": n,
            "json": {"n": [n]},
            "npy": numpy.full(3, n),
            "bin": b"\0",
        }
        for n in range(7)
    ]
    ds = data.from_items(rows, override_num_blocks=3)
    for _ in range(2):
        names._written.clear()
        ds.write_webdataset(str(tmp_path / "out"))
    files = sorted((tmp_path / "out").iterdir())
    assert [path.suffix for path in files] == [".tar"] * 3
    with tarfile.open(files[0]) as tar:
        assert tar.getnames()[:5] == [f"a/000.{ending}" for ending in ("txt", "cls", "json", "npy", "bin")]
    found = sorted(data.read_webdataset(str(tmp_path / "out")).take_all(), key=lambda row: str(row["__key__"]))
    assert [row.pop("__url__") for row in found] == [str(files[place]) for place in (0, 0, 1, 1, 2, 2, 2)]
    for row, wanted in zip(found, rows, strict=True):
        assert row.pop("npy").tolist() == wanted["npy"].tolist()
        assert row == {name: value for name, value in wanted.items() if name != "npy"}


def member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def png(value: int) -> bytes:
    file = io.BytesIO()
    image.new("RGB", (4, 3), (value, 0, 0)).save(file, "png")
    return file.getvalue()


def test_what_is_read_of_tar_files(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("folder"))
        for n in range(3):
            member(tar, f"x{n}.left.png", png(n))
            member(tar, f"x{n}.cls", str(n).encode())
            member(tar, f"._x{n}.cls", b"of another system")
    path = str(tmp_path / "a.tar")
    rows = data.read_webdataset(path).take_all()
    assert [(row["__key__"], row["left.png"].shape, row["cls"]) for row in rows] == [
        (f"x{n}", (3, 4, 3), n) for n in range(3)
    ]
    assert set(rows[0]) == {"__key__", "__url__", "left.png", "cls"}
    assert data.read_webdataset(path, decoder=None).take(1)[0]["cls"] == b"0"
    assert set(data.read_webdataset(path, suffixes=["cls"]).take(1)[0]) == {"__key__", "__url__", "cls"}
    assert set(data.read_webdataset(path, fileselect=lambda name: "png" in name).take(1)[0]) == {
        "__key__", "__url__", "left.png",
    }  # fmt: skip
    renamed = data.read_webdataset(path, filerename=[("left.png", "img")], decoder=[None, lambda row: {"n": len(row)}])
    assert column(renamed, "n") == [4, 4, 4]
    assert data.read_webdataset(path, fileselect=["*.txt"]).take_all() == []


def test_encoders_of_tar_files(tmp_path: Path) -> None:
    ds = data.from_items([{"png": numpy.zeros((2, 2), "uint8"), "x": 5}], override_num_blocks=1)
    with pytest.raises(TaskError, match=r"000000\.x needs bytes"):
        ds.write_webdataset(str(tmp_path / "a"))
    ds.write_webdataset(str(tmp_path / "b"), encoder=[lambda row: {**row, "x": json.dumps(row["x"])}, True])
    [row] = data.read_webdataset(str(tmp_path / "b")).take_all()
    assert (row["x"], row["png"].shape, row["__key__"]) == (b"5", (2, 2), "000000")


def test_images_are_written(tmp_path: Path) -> None:
    arrays = numpy.arange(48, dtype="uint8").reshape(4, 2, 2, 3)
    for _ in range(2):
        names._written.clear()
        data.from_numpy(list(arrays.reshape(2, 2, 2, 2, 3))).write_images(str(tmp_path / "out"), "data")
    assert len(list((tmp_path / "out").iterdir())) == 4
    found = sorted(row["image"].tolist() for row in data.read_images(str(tmp_path / "out")).take_all())
    assert found == arrays.tolist()


class Squares:
    """A data set of torch has these two methods."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> tuple[int, str]:
        if not 0 <= index < 300:
            raise IndexError(index)
        return index**2, "ab"[index % 2]


class Counting:
    def __iter__(self) -> Iterator[int]:
        return iter(range(1000))


def test_items_by_number_are_made_by_tasks() -> None:
    ds = data.from_torch(Squares())
    assert ds.count() == 300
    assert [row["item"][0] for row in ds.take_all()] == [n**2 for n in range(300)]  # type: ignore[index]
    assert ds.materialize().num_blocks() > 1
    assert data.from_torch(Squares(), override_num_blocks=3).materialize().num_blocks() == 3
    assert column(data.from_torch(Counting()), "item") == list(range(1000))
    with pytest.raises(TypeError, match="from_torch"):
        data.from_torch(5)


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ds = data.from_torch(torch.utils.data.TensorDataset(torch.arange(6).reshape(3, 2)))
    [first, *_] = ds.take_all()
    assert torch.as_tensor(first["item"][0]).tolist() == [0, 1]  # type: ignore[index]
    tensors = data.from_items([{"tensor": torch.full((2,), float(n))} for n in range(3)])
    assert [row["tensor"].tolist() for row in tensors.take_all()] == [[n, n] for n in range(3)]
    tensors.write_parquet(str(tmp_path / "out"))
    assert data.read_parquet(str(tmp_path / "out")).count() == 3
    made = data.range(4).map(lambda row: {"x": torch.ones(2) * row["id"]})
    batches = [*made.iter_torch_batches(batch_size=3)]
    assert [batch["x"].shape for batch in batches] == [(3, 2), (1, 2)]  # type: ignore[index]
    assert batches[0]["x"].dtype == torch.float32  # type: ignore[index]
    [batch] = data.range(3).iter_torch_batches(dtypes=torch.float16)
    assert batch["id"].dtype == torch.float16  # type: ignore[index]
    [batch] = data.range(3).iter_torch_batches(collate_fn=lambda arrays: torch.as_tensor(arrays["id"]) * 2)
    assert batch.tolist() == [0, 2, 4]

    class Model:
        def __init__(self) -> None:
            self.model = torch.nn.Identity().eval()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            with torch.inference_mode():
                return {"output": self.model(torch.as_tensor(batch["data"], dtype=torch.float32))}

    outputs = data.from_numpy(numpy.ones((32, 100))).map_batches(Model, compute=data.ActorPoolStrategy(size=2))
    assert outputs.take_batch(32)["output"].shape == (32, 100)  # type: ignore[index]


def test_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_dict({"text": [f"t{n}" for n in range(50)], "n": list(range(50))})
    ds = data.from_huggingface(whole)
    assert (ds.count(), ds.take(1)) == (50, [{"text": "t0", "n": 0}])
    chosen = data.from_huggingface(whole.select([4, 2]), override_num_blocks=2)
    assert column(chosen, "n") == [4, 2]
    stream = data.from_huggingface(whole.to_iterable_dataset(num_shards=4))
    assert sorted(column(stream, "n")) == list(range(50))
    assert sorted(column(stream.map(lambda row: {"n": row["n"] * 2}), "n")) == list(range(0, 100, 2))


def test_data_sets_of_hugging_face_that_are_refused() -> None:
    with pytest.raises(TypeError, match=r"dataset\['train'\]"):
        data.from_huggingface({"train": None})
    with pytest.raises(TypeError, match="list"):
        data.from_huggingface([1])

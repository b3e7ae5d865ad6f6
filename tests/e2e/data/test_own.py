"""Sources and sinks of a program's own, names of files, databases, and preprocessors."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

from pyarrow import parquet  # noqa: E402

import mpi_runtime  # noqa: E402
from mpi_runtime import data  # noqa: E402
from mpi_runtime.data import datasource  # noqa: E402
from mpi_runtime.data.datasource import (  # noqa: E402
    BlockBasedFileDatasink,
    Datasink,
    Datasource,
    FilenameProvider,
    Partitioning,
    ReadTask,
    RowBasedFileDatasink,
)
from mpi_runtime.data.preprocessors import Chain, Concatenator, OneHotEncoder, StandardScaler, UniformKBinsDiscretizer  # noqa: E402

pytestmark = pytest.mark.usefixtures("job")


class Numbered(FilenameProvider):
    """Short names."""

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return f"part-{task_index}.csv"


class Same(FilenameProvider):
    """One name for all."""

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return "part.csv"


def test_a_provider_names_files_and_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    ds = data.range(6, override_num_blocks=3)
    for _ in range(2):
        ds.write_csv(str(tmp_path), filename_provider=Numbered())
        assert sorted(os.listdir(tmp_path)) == ["part-0.csv", "part-1.csv", "part-2.csv"]
    assert data.read_csv(str(tmp_path)).sum("id") == 15
    with pytest.raises(ValueError, match="to two files"):
        ds.write_csv(str(tmp_path / "same"), filename_provider=Same())
    with pytest.raises(TypeError, match="must be a FilenameProvider"):
        ds.write_csv(str(tmp_path / "none"), filename_provider="part")
    data.range(6).union(ds).write_csv(str(tmp_path / "union"), filename_provider=Numbered())
    assert data.read_csv(str(tmp_path / "union")).sum("id") == 30


def test_names_of_partitioned_and_of_divided_files(tmp_path: Path) -> None:
    ds = data.from_items([{"x": i % 2, "id": i} for i in range(4)], override_num_blocks=1)
    ds.write_parquet(str(tmp_path), partition_cols=["x"], filename_provider=Numbered(), max_rows_per_file=1)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.csv"))
    assert found == [f"x={x}/part-0_00000{row}.csv" for x in (0, 1) for row in (0, 1)]


class Hosts(Datasource):
    """Where its tasks run."""

    supports_distributed_reads = False

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        def read() -> Any:
            yield pyarrow.table({"node": [mpi_runtime.get_runtime_context().get_node_id()]})

        return [ReadTask(read)] * parallelism


def test_a_source_is_read_again_in_each_run_and_may_stay_on_this_host() -> None:
    ds = data.read_datasource(Hosts(), override_num_blocks=3)
    here = mpi_runtime.get_runtime_context().get_node_id()
    assert [row["node"] for row in ds.take_all()] == [here] * 3
    assert ds.count() == ds.limit(3).count() == 3
    with pytest.raises(TypeError, match="takes a Datasource"):
        data.read_datasource("x")  # type: ignore[arg-type]


class Nothing(Datasource):
    """It has no parts."""

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        return []


class Wrong(Datasource):
    """Its parts cannot be read."""

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ReadTask]:
        return [ReadTask(lambda: [3]), 3][1:] if parallelism == 1 else [ReadTask(lambda: [3])]  # type: ignore[return-value]


def test_a_source_without_parts_or_with_wrong_ones() -> None:
    assert data.read_datasource(Nothing()).take_all() == []
    assert data.read_datasource(Nothing()).count() == 0
    with pytest.raises(ValueError, match="must return ReadTasks"):
        data.read_datasource(Wrong(), override_num_blocks=1).take_all()
    with pytest.raises(ValueError, match="a ReadTask of read_Wrong must return"):
        data.read_datasource(Wrong(), override_num_blocks=2).take_all()


class Sizes(Datasink[int]):
    """It returns numbers of rows, and fails if it is to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[Any] = []

    def on_write_start(self) -> None:  # type: ignore[override]  # as older programs have it
        self.calls.append("start")

    def write(self, blocks: Any, ctx: Any) -> int:
        if self.fails == "write":
            raise OSError("full")
        return sum(block.num_rows for block in blocks)

    def on_write_complete(self, write_result: Any) -> None:
        if self.fails == "complete":
            raise KeyError("complete")
        self.calls.append((write_result.num_rows, sorted(write_result.write_returns)))

    def on_write_failed(self, error: Exception) -> None:
        self.calls.append(type(error).__name__)
        raise RuntimeError("this one is not the first")


def test_a_sink_hears_of_its_end() -> None:
    sink = Sizes()
    ds = data.range(10, override_num_blocks=2)
    ds.write_datasink(sink, concurrency=1)
    ds.filter(expr="id < 0").write_datasink(sink)
    assert sink.calls == ["start", (10, [5, 5]), "start", (0, [])]
    with pytest.raises(data.BlockError, match="full"):
        ds.write_datasink(Sizes("write"))
    broken = Sizes("complete")
    with pytest.raises(KeyError):
        ds.write_datasink(broken)
    assert broken.calls == ["start", "KeyError"]
    with pytest.raises(TypeError, match="takes a Datasink"):
        ds.write_datasink("x")  # type: ignore[arg-type]


class Rows(RowBasedFileDatasink):
    """It fails in the middle of a file."""

    def write_row_to_file(self, row: dict[str, Any], file: Any) -> None:
        file.write(b"half")
        if row["id"] == 1:
            raise OSError("full")


class Tables(BlockBasedFileDatasink):
    """Texts of blocks."""

    def write_block_to_file(self, block: Any, file: Any) -> None:
        file.write("\n".join(str(row["id"]) for row in block.iter_rows()).encode())


def test_files_of_sinks_are_there_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(data.BlockError, match="full"):
        data.range(2, override_num_blocks=1).write_datasink(Rows(tmp_path / "rows", file_format="txt"))
    [name] = os.listdir(tmp_path / "rows")
    assert name.endswith("_000000_000000.txt")
    for _ in range(2):  # runs with the same names
        datasource.names._written.clear()
        data.range(10, override_num_blocks=2).write_datasink(Tables(tmp_path / "tables"))
    assert len(os.listdir(tmp_path / "tables")) == 2
    with pytest.raises(ValueError, match="which this would replace"):
        data.read_text(str(tmp_path / "tables")).write_datasink(Tables(tmp_path, mode="overwrite"))
    assert data.read_text(str(tmp_path / "tables")).count() == 10


class Interrupted(Datasink[Any]):
    """Ctrl-C comes at the end of the first write."""

    def __init__(self) -> None:
        self.uuids: list[Any] = []

    def write(self, blocks: Any, ctx: Any) -> Any:
        return ctx.kwargs["write_uuid"]

    def on_write_complete(self, write_result: Any) -> None:
        self.uuids += write_result.write_returns
        if len(self.uuids) == 1:
            raise KeyboardInterrupt


def test_a_write_that_was_interrupted_has_the_same_names_when_it_is_tried_again() -> None:
    ds, sink = data.range(3, override_num_blocks=1), Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ds.write_datasink(sink)
    for _ in range(2):
        ds.write_datasink(sink)
    first, again, third = sink.uuids
    assert first == again != third


class Dying(BlockBasedFileDatasink):
    """The process of each block dies once."""

    def write_block_to_file(self, block: Any, file: Any) -> None:
        rows = [str(row["id"]) for row in block.iter_rows()]
        died = Path(self.path).with_name(f"died-{rows[0]}")
        file.write("\n".join(rows).encode())
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_sink_whose_processes_die_has_each_row_once(tmp_path: Path) -> None:
    data.range(10, override_num_blocks=2).write_datasink(Dying(tmp_path / "out"))
    assert sorted(int(str(row["text"])) for row in data.read_text(str(tmp_path / "out")).take_all()) == list(range(10))
    assert len(os.listdir(tmp_path / "out")) == 2
    assert len(list(tmp_path.glob("died-*"))) == 2


def test_rows_of_databases(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(id, x)")
    ds = data.range(25_000, override_num_blocks=2).map_batches(lambda batch: {**batch, "x": batch["id"] % 3})
    ds.write_sql("INSERT INTO t VALUES (?, ?)", lambda: sqlite3.connect(path, timeout=60))
    read = data.read_sql("SELECT * FROM t WHERE x = ?", lambda: sqlite3.connect(path), sql_params=[1])
    assert (read.count(), read.sum("x")) == (8333, 8333)
    assert data.read_sql("SELECT * FROM t WHERE id < 0", lambda: sqlite3.connect(path)).columns() == ["id", "x"]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (NULL, NULL)")
        connection.commit()
    parts = data.read_sql(
        "SELECT * FROM t", lambda: sqlite3.connect(path), shard_keys=["id"], shard_hash_fn="unicode",
        override_num_blocks=3,
    )  # fmt: skip
    assert (parts.count(), parts.sum("id")) == (25_001, sum(range(25_000)))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        ds.write_sql("INSERT INTO absent VALUES (?, ?)", lambda: sqlite3.connect(path, timeout=60))


def test_a_column_of_directories_in_a_schema(tmp_path: Path) -> None:
    (tmp_path / "year=7").mkdir()
    parquet.write_table(pyarrow.table({"id": [1]}), tmp_path / "year=7" / "a.parquet")
    schema = pyarrow.schema([("id", pyarrow.int32()), ("year", pyarrow.int64())])
    ds = data.read_parquet(str(tmp_path), schema=schema)
    assert ds.take_all() == [{"id": 1, "year": 7}]
    by_year = Partitioning("hive", field_types={"year": float})  # type: ignore[arg-type]
    assert data.read_parquet(str(tmp_path), partitioning=by_year).take_all() == [{"id": 1, "year": 7.0}]
    assert data.read_parquet(str(tmp_path), skip_paths=str(tmp_path / "b")).count() == 1
    with pytest.raises(TypeError, match="must be a Partitioning"):
        data.read_parquet(str(tmp_path), partitioning="hive")


def test_preprocessors_learn_from_all_blocks_and_write_files_of_their_own(tmp_path: Path) -> None:
    ds = data.range(100, override_num_blocks=7).map(lambda row: {"a": row["id"], "b": str(row["id"] % 3)})
    chain = Chain(StandardScaler(["a"]), OneHotEncoder(["b"]), Concatenator(["a"])).fit(ds)
    assert [one.stats_ for one in chain.preprocessors[:2]] == [
        {"mean(a)": 49.5, "std(a)": pytest.approx(28.866070)},
        {"unique_values(b)": {"0": 0, "1": 1, "2": 2}},
    ]
    made = chain.transform(ds, batch_size=10, concurrency=2)
    rows: list[Any] = made.take_all()
    assert sum(row["b"][1] for row in rows) == 33
    again = type(chain).deserialize(chain.serialize())
    assert again.transform_batch(pandas.DataFrame({"a": [49.5], "b": ["2"]}))["concat_out"][0] == [0.0]
    chain.preprocessors[0].own_ = pandas.DataFrame({"a": [1]})
    assert chain.fit_status().value == "FITTED"
    few = StandardScaler(["a"]).fit(data.range(2).rename_columns({"id": "a"}))
    bins = [UniformKBinsDiscretizer(["a"], 2, right=right).fit(ds) for right in (True, False)]
    for one in (StandardScaler(["a"]).fit(ds), few, *bins):
        one.transform(ds).write_csv(str(tmp_path))
    assert data.read_csv(str(tmp_path)).count() == 400

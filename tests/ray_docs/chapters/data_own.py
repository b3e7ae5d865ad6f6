"""Data sets: sources and sinks that a program writes itself, databases, names of files, and columns of directories."""

import contextlib
import os
import re
import sqlite3
import tarfile
import tempfile
from functools import partial
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet as pq
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import (
    BlockBasedFileDatasink,
    Datasink,
    Datasource,
    FilenameProvider,
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
    ReadTask,
    RowBasedFileDatasink,
)

from tests.ray_docs.helpers import raised


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _sorted(rows):
    return sorted(rows, key=str)


def _places(folder):
    """Two directories with a file each, and one beside them."""
    for country in ("us", "jp"):
        (folder / f"country={country}").mkdir()
        (folder / f"country={country}" / "a.csv").write_text(f"id\n{len(country) + ord(country[0])}\n")
    (folder / "b.csv").write_text("id\n3\n")


# Partitioned files


def parsing_hive_paths():
    """Values of "name=value"; other directories do not count."""
    parse = PathPartitionParser.of(PartitionStyle.HIVE)
    print(parse("year=2024/month=01/a.csv"), parse("x/year=2024/a.csv"), parse("a.csv"), parse("x=1=2/b=%2F/a.csv"))
    below = PathPartitionParser.of(base_dir="/data/in", field_names=["year"])
    print(below("/data/in/year=1/a.csv"), below("/other/year=1/a.csv"), below("/data/in/a.csv"))
    print(raised(lambda: below("/data/in/month=1/a.csv"), "ValueError"))
    print(raised(lambda: below("/data/in/year=1/month=1/a.csv"), "ValueError"))


def parsing_directories():
    """Values by place, which need names."""
    parse = PathPartitionParser.of("dir", base_dir="/data", field_names=["year", "month"])
    print(parse("/data/2024/01/a.csv"), parse("/data/a.csv"), parse("/other/1/2/a.csv"))
    print(raised(lambda: parse("/data/2024/a.csv"), "ValueError"))
    print(PathPartitionParser.of("dir", "/data", ["year", None])("/data/2024/01/a.csv"))
    print(raised(lambda: PathPartitionParser.of("dir"), "ValueError"))
    print(raised(lambda: PathPartitionParser.of("other"), "ValueError"))


def types_of_partitions():
    """Texts unless a type is stated."""
    parse = PathPartitionParser.of(field_types={"a": int, "b": float, "c": bool, "d": str})
    print(parse("a=1/b=2/c=true/d=4/x.csv"))
    print(raised(lambda: PathPartitionParser.of(field_types={"a": int})("b=1/x.csv"), "KeyError"))
    print(parse.scheme.field_types == {"a": int, "b": float, "c": bool, "d": str}, parse.scheme.base_dir == "")


def filtering_paths():
    """A filter of paths."""
    keep = PathPartitionFilter.of(lambda values: values.get("year") == "2024")
    print(keep(["year=2024/a", "year=2023/b", "c"]), keep.apply("year=2024/x"))
    print(keep.parser.scheme.style == PartitionStyle.HIVE)


def reading_hive_directories():
    """Names of directories are columns, also of the path itself; None: they are not."""
    with _folder() as folder:
        _places(folder)
        one = str(folder / "country=us")
        print(ray.data.read_csv(one).take_all(), ray.data.read_csv(one + "/a.csv").take_all())
        print(ray.data.read_csv(one, partitioning=None).take_all())
        below = Partitioning("hive", base_dir=one)
        print(ray.data.read_csv(one, partitioning=below).take_all())


def typed_columns_of_directories():
    """Types of partitions are those of columns."""
    with _folder() as folder:
        (folder / "year=2024").mkdir()
        pq.write_table(pa.table({"id": [1, 2]}), folder / "year=2024" / "a.parquet")
        (folder / "year=2024" / "a.csv").write_text("id\n1\n")
        by_year = Partitioning("hive", field_types={"year": int})
        ds = ray.data.read_csv(str(folder / "year=2024" / "a.csv"), partitioning=by_year)
        print(ds.take_all(), ds.schema().types)
        print(ray.data.read_parquet(str(folder / "year=2024" / "a.parquet"), partitioning=by_year).take_all())


def reading_named_directories():
    """Directories without names."""
    with _folder() as folder:
        for animal in ("cat", "dog"):
            (folder / animal).mkdir()
            (folder / animal / "a.txt").write_text(f"{animal}s\n")
        by_place = Partitioning("dir", field_names=["animal"], base_dir=str(folder))
        print(_sorted(ray.data.read_text(str(folder), partitioning=by_place).take_all()))
        some = PathPartitionFilter.of(
            lambda values: values["animal"] == "dog", style="dir", field_names=["animal"], base_dir=str(folder)
        )
        print(ray.data.read_text(str(folder), partitioning=by_place, partition_filter=some).take_all())


def filtering_files():
    """Files by the values in their paths; at least one must stay."""
    with _folder() as folder:
        _places(folder)
        us = PathPartitionFilter.of(lambda values: values.get("country") == "us")
        nobody = PathPartitionFilter.of(lambda values: False)
        print(ray.data.read_csv(str(folder), partition_filter=us).take_all())
        print(raised(lambda: ray.data.read_csv(str(folder), partition_filter=nobody).take_all(), "ValueError"))


def a_column_and_its_directory():
    """They may not have different values."""
    with _folder() as folder:
        (folder / "year=2024").mkdir()
        (folder / "year=2024" / "a.csv").write_text("id,year\n1,2024\n")
        print(ray.data.read_csv(str(folder / "year=2024")).take_all())
        (folder / "year=2024" / "a.csv").write_text("id,year\n1,2023\n")
        print(raised(lambda: ray.data.read_csv(str(folder / "year=2024")).take_all(), "ValueError"))


# Options of readers


def endings_of_files():
    """Endings that are stated hold for files that are named, too."""
    with _folder() as folder:
        (folder / "a.csv").write_text("id\n1\n")
        (folder / "b.txt").write_text("id\n2\n")
        both = [str(folder / "a.csv"), str(folder / "b.txt")]
        print(ray.data.read_csv(both, file_extensions=["csv"]).take_all())
        print(raised(lambda: ray.data.read_csv(both[1], file_extensions=["csv"]), "ValueError"))
        print(_sorted(ray.data.read_csv(str(folder), file_extensions=None).take_all()))


def missing_paths():
    """They are left out, if asked for."""
    with _folder() as folder:
        (folder / "a.csv").write_text("id\n1\n")
        both = [str(folder / "a.csv"), str(folder / "b.csv")]
        print(ray.data.read_csv(both, ignore_missing_paths=True).take_all())
        print(raised(lambda: ray.data.read_csv(both).take_all(), "FileNotFoundError"))


def local_file_systems():
    """Those of pyarrow, with plain paths and those with a scheme."""
    with _folder() as folder:
        (folder / "a.csv").write_text("id\n1\n")
        print(ray.data.read_csv(str(folder / "a.csv"), filesystem=pa.fs.LocalFileSystem()).take_all())
        print(ray.data.read_csv(f"local://{folder}/a.csv").take_all())
        ray.data.range(2).write_csv(str(folder / "out"), filesystem=pa.fs.LocalFileSystem())
        print(ray.data.read_csv(str(folder / "out")).sum("id"))


def compressed_files():
    """A compression that the name does not show."""
    import gzip

    with _folder() as folder:
        with gzip.open(folder / "a.data", "wt") as file:
            file.write("id\n1\n2\n")
        ds = ray.data.read_csv(str(folder / "a.data"), arrow_open_stream_args={"compression": "gzip"})
        print(ds.take_all())
        ds = ray.data.read_binary_files(str(folder / "a.data"), arrow_open_stream_args={"compression": "gzip"})
        print(ds.take_all())
        ds = ray.data.read_text(str(folder / "a.data"), arrow_open_stream_args={"compression": "gzip"})
        print(ds.take_all())


def options_of_json():
    """A schema for the parser."""
    with _folder() as folder:
        (folder / "a.json").write_text('{"a": 1, "b": "x"}\n{"a": 2}\n')
        parse = pa.json.ParseOptions(explicit_schema=pa.schema([("a", pa.float32())]))
        ds = ray.data.read_json(str(folder / "a.json"), parse_options=parse)
        print(ds.take_all(), [str(kind) for kind in ds.schema().types])
        read = pa.json.ReadOptions(block_size=1 << 20)
        print(ray.data.read_json(str(folder / "a.json"), read_options=read).take_all())


def schema_of_parquet():
    """Types and columns for all files."""
    with _folder() as folder:
        pq.write_table(pa.table({"a": [1]}), folder / "1.parquet")
        pq.write_table(pa.table({"a": [2], "b": ["x"]}), folder / "2.parquet")
        schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        ds = ray.data.read_parquet(str(folder), schema=schema)
        print(_sorted(ds.take_all()), ds.schema().names)
        print(_sorted(ray.data.read_parquet(str(folder), schema=schema, columns=["b"]).take_all()))
        print(_sorted(ray.data.read_parquet(str(folder / "2.parquet"), batch_size=1).take_all()))


def entries_of_json_in_samples():
    """They become columns."""
    with _folder() as folder:
        with tarfile.open(folder / "a.tar", "w") as tar:
            for i in range(2):
                member = tarfile.TarInfo(f"{i}.json")
                content = f'{{"label": {i}, "name": "n{i}"}}'.encode()
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
        rows = ray.data.read_webdataset(str(folder), expand_json=True, override_num_blocks=1).take_all()
        print([(row["__key__"], row["label"], row["name"], row["json"]) for row in rows])


# Names of written files


def _numbered(*args, **options):
    class Numbered(FilenameProvider):
        def get_filename_for_task(self, write_uuid, task_index):
            return f"part-{write_uuid}-{task_index}.{self.file_format}"

    return Numbered(*args, **options)


def usual_names():
    """A provider without changes."""
    print(FilenameProvider().get_filename_for_task("abc", 7))
    print(FilenameProvider("set", "csv").get_filename_for_task("abc", 7))
    print(FilenameProvider(file_format="png").get_filename_for_task("abc", 1_234_567))


def names_of_written_files():
    """Each block has one name.

    Differs: Ray adds a number to the name that the provider returns of a file of Parquet.
    """
    with _folder() as folder:
        ds = ray.data.range(4, override_num_blocks=2)
        for kind in ("csv", "json", "parquet"):
            getattr(ds, f"write_{kind}")(str(folder / kind), filename_provider=_numbered(file_format=kind))
            print(_named(folder / kind))
        print(ray.data.read_csv(str(folder / "csv")).sum("id"))
        ds.write_numpy(str(folder / "npy"), column="id", filename_provider=_numbered(file_format="npy"))
        print(_named(folder / "npy"))


def _named(folder):
    """The names of files without the text of the write."""
    return sorted(re.sub("-[0-9a-f]+-", "-", name) for name in os.listdir(folder))


# Sources that a program writes itself


def _squares(*args, **options):
    class Squares(Datasource):
        def __init__(self, count):
            super().__init__()
            self.count = count

        def estimate_inmemory_data_size(self):
            return None

        def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
            meta = BlockMetadata(num_rows=1, size_bytes=8, input_files=None, exec_stats=None)
            return [ReadTask(lambda i=i: [pa.table({"square": [i * i]})], meta) for i in range(self.count)]

    return Squares(*args, **options)


def a_source():
    """Its tasks make tables; the name is that of its class."""
    ds = ray.data.read_datasource(_squares(5), override_num_blocks=5)
    print(_sorted(ds.take_all()), ds.count(), ds.schema().names)
    print(_squares(1).get_name(), _squares(1).supports_distributed_reads)
    print(ds.map(lambda row: {"root": int(row["square"] ** 0.5)}).sum("root"))


def a_source_of_several_blocks():
    """A task may yield blocks, also data frames."""
    import pandas as pd

    class Frames(Datasource):
        def estimate_inmemory_data_size(self):
            return None

        def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
            def read():
                for i in range(3):
                    yield pd.DataFrame({"n": [i, i]})

            return [ReadTask(read, BlockMetadata(None, None, None, None))]

    print(sorted(row["n"] for row in ray.data.read_datasource(Frames()).take_all()))


def a_source_that_fails():
    """The error of a task is that of the run."""

    class Broken(Datasource):
        def estimate_inmemory_data_size(self):
            return None

        def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
            def read():
                raise ValueError("broken")

            return [ReadTask(read, BlockMetadata(None, None, None, None))]

    print(raised(lambda: ray.data.read_datasource(Broken()).take_all(), "ValueError"))
    print(raised(lambda: Datasource().get_read_tasks(1), "NotImplementedError"))


def a_read_task():
    """It can be called, and knows what it was given."""
    meta = BlockMetadata(num_rows=1, size_bytes=8, input_files=None, exec_stats=None)
    task = ReadTask(lambda: [pa.table({"a": [1, 2, 3]})], meta)
    print([block.num_rows for block in task()], task.metadata.num_rows, task.per_task_row_limit)
    limited = ReadTask(lambda: [pa.table({"a": [1, 2, 3]})] * 2, meta, per_task_row_limit=4)
    print([block.num_rows for block in limited()])


# Sinks that a program writes itself


def _counting(*args, **options):
    class Counting(Datasink):
        def __init__(self, fails=False):
            self.fails = fails
            self.calls = []

        def on_write_start(self, schema=None):
            self.calls.append(("start", schema.names if schema else None))

        def write(self, blocks, ctx):
            if self.fails:
                raise ValueError("no")
            return int(sum(block.num_rows for block in blocks))

        def on_write_complete(self, write_result):
            self.calls.append(("complete", int(write_result.num_rows), int(sum(write_result.write_returns))))

        def on_write_failed(self, error):
            self.calls.append(("failed", isinstance(error, Exception)))

    return Counting(*args, **options)


def a_sink():
    """It is called at the beginning, in tasks and at the end."""
    sink = _counting()
    ray.data.from_items([{"id": i} for i in range(10)]).write_datasink(sink)
    print(sink.calls, sink.get_name(), sink.supports_distributed_writes, sink.min_rows_per_write)


def a_sink_that_fails():
    """It hears of it, and the error is raised."""
    sink = _counting(fails=True)
    ds = ray.data.range(10, override_num_blocks=2)
    print(raised(lambda: ds.write_datasink(sink, ray_remote_args={"max_retries": 0}), "ValueError"))
    print(sink.calls[-1])


def returns_of_a_sink():
    """What writes return, as it is."""

    class Ids(Datasink):
        def write(self, blocks, ctx):
            return {"ids": tuple(value for block in blocks for value in block.column("id").to_pylist())}

        def on_write_complete(self, write_result):
            self.found = sorted(one for made in write_result.write_returns for one in made["ids"])
            self.is_large = write_result.size_bytes >= 80

    sink = Ids()
    ray.data.range(10, override_num_blocks=3).write_datasink(sink)
    print(sink.found, sink.is_large)


def least_rows_of_a_write():
    """Blocks are joined."""

    class Sizes(Datasink):
        def write(self, blocks, ctx):
            return int(sum(block.num_rows for block in blocks))

        @property
        def min_rows_per_write(self):
            return 50

        def on_write_complete(self, write_result):
            self.sizes = sorted(map(int, write_result.write_returns))

    sink = Sizes()
    ray.data.range(100, override_num_blocks=4).write_datasink(sink)
    print(sink.sizes)


def _texts(*args, **options):
    class Texts(RowBasedFileDatasink):
        def write_row_to_file(self, row, file):
            file.write(str(row["id"]).encode())

    return Texts(*args, **options)


def _tables(*args, **options):
    class Tables(BlockBasedFileDatasink):
        def write_block_to_file(self, block, file):
            pa.csv.write_csv(block.to_arrow(), file)

    return Tables(*args, **options)


def a_file_for_each_row():
    """Rows are those of `take`."""
    with _folder() as folder:
        ray.data.range(5).write_datasink(_texts(str(folder / "out"), file_format="txt"))
        print(len(os.listdir(folder / "out")), {name.rpartition(".")[2] for name in os.listdir(folder / "out")})
        print(sorted(row["text"] for row in ray.data.read_text(str(folder / "out")).take_all()))


def a_file_for_each_block():
    """The directory is created."""
    with _folder() as folder:
        ray.data.range(6, override_num_blocks=3).write_datasink(_tables(folder / "out", file_format="csv"))
        print(len(os.listdir(folder / "out")), ray.data.read_csv(str(folder / "out")).sum("id"))
        ds = ray.data.range(100, override_num_blocks=20)
        ds.write_datasink(_tables(str(folder / "few"), file_format="csv", min_rows_per_file=50))
        print(len(os.listdir(folder / "few")), ray.data.read_csv(str(folder / "few")).sum("id"))


def directories_of_sinks():
    """Without rows there is no directory, unless it was there."""
    with _folder() as folder:
        none = ray.data.range(1).filter(lambda row: False)
        none.write_datasink(_tables(str(folder / "new")))
        (folder / "old").mkdir()
        none.write_datasink(_tables(str(folder / "old")))
        print(sorted(os.listdir(folder)))


def modes_of_sinks():
    """What is done with a directory that is there."""
    from ray.data import SaveMode

    with _folder() as folder:
        (folder / "a.csv").write_text("id\n7\n")
        ds = ray.data.range(3, override_num_blocks=1)
        ds.write_datasink(_tables(str(folder), mode=SaveMode.IGNORE))
        print(len(os.listdir(folder)))
        print(raised(lambda: ds.write_datasink(_tables(str(folder), mode=SaveMode.ERROR)), "ValueError"))
        ds.write_datasink(_tables(str(folder), mode=SaveMode.APPEND))
        print(len(os.listdir(folder)))
        ds.write_datasink(_tables(str(folder), mode=SaveMode.OVERWRITE))
        print(len(os.listdir(folder)))


def names_of_a_sink():
    """Those of a provider."""
    with _folder() as folder:
        ray.data.range(2, override_num_blocks=1).write_datasink(
            _tables(str(folder), filename_provider=_numbered(file_format="csv"))
        )
        ray.data.range(2, override_num_blocks=1).write_datasink(
            _texts(str(folder), filename_provider=_numbered(file_format="txt"))
        )
        print(_named(folder))


# Databases


def _database(folder):
    path = str(folder / "films.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE film(title, year, score)")
        rows = [("a", 1975, 8.2), ("b", 1971, 7.5), ("c", 1979, None)]
        connection.executemany("INSERT INTO film VALUES (?, ?, ?)", rows)
        connection.commit()
    return path


def reading_a_database():
    """Rows of a query, with parameters."""
    with _folder() as folder:
        path = _database(folder)

        def connect():
            return sqlite3.connect(path)

        ds = ray.data.read_sql("SELECT * FROM film", connect)
        print(_sorted(ds.take_all()), ds.count(), ds.schema().names)
        for query, given in (("> ?", (1971,)), ("> ?", [1971]), ("> :year", {"year": 1971})):
            query = f"SELECT title FROM film WHERE year {query}"
            print(_sorted(ray.data.read_sql(query, connect, sql_params=given).take_all()))
        print(ray.data.read_sql("SELECT * FROM film WHERE year = 1", connect).count())


def dividing_a_query():
    """By the hash of columns, if the database has the functions for it."""
    with _folder() as folder:
        path = _database(folder)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executemany("INSERT INTO film VALUES (?, ?, ?)", [(f"t{i}", i, 0.5) for i in range(500)])
            connection.commit()

        def connect():
            return sqlite3.connect(path)

        query = "SELECT title, year FROM film"
        ds = ray.data.read_sql(
            query, connect, shard_keys=["year"], shard_hash_fn="unicode", override_num_blocks=2
        ).materialize()
        print(ds.num_blocks(), ds.count(), ds.sum("year"))
        wrong = {"no keys": {}, "no function": {"shard_keys": ["year"]}}
        for name, options in wrong.items():
            read = partial(ray.data.read_sql, query, connect, override_num_blocks=2, **options)
            print(name, raised(read, "ValueError"))


def writing_to_a_database():
    """A statement for each row."""
    with _folder() as folder:
        path = _database(folder)
        ds = ray.data.from_items([{"title": f"t{i}", "year": i, "score": i / 2} for i in range(300)])
        ds.write_sql("INSERT INTO film VALUES (?, ?, ?)", lambda: sqlite3.connect(path))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            print(connection.execute("SELECT COUNT(*), SUM(year) FROM film WHERE year < 1000").fetchall())


def errors_of_databases():
    """They are raised."""
    with _folder() as folder:
        path = _database(folder)
        ds = ray.data.range(1)
        insert = "INSERT INTO absent VALUES (?)"
        try:
            ds.write_sql(insert, lambda: sqlite3.connect(path))
        except sqlite3.OperationalError as error:
            print("no such table" in str(error))
        print(raised(lambda: ray.data.read_sql("SELECT 1", lambda: 7).take_all(), "ValueError"))

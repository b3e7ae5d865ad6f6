"""The memory of readers and writers beside the blocks that they read and write."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy
import pytest

pytest.importorskip("pyarrow")
import pyarrow
from pyarrow import csv, parquet

from mpi_runtime.data import blocks
from mpi_runtime.data.arrow import be_frugal, give_back
from mpi_runtime.data.files import formats, webdataset, writing

csv.read_csv(io.BytesIO(b"id\n1\n"))  # pyarrow keeps a pipe of its own from the first time on
MB = 1_000_000
ROWS, WIDTH = 500, 8192
READ = """
for table in formats.parquet_rows(sys.argv[1], {"columns": None, "filter": None}):
    rows += table.num_rows
    del table
"""
WRITE = """
table = pyarrow.ipc.open_stream(pyarrow.memory_map(sys.argv[2])).read_all()
rows = table.num_rows
writing.parquet(table, sys.argv[1], {})
"""


def most_bytes(code: str, *arguments: Path) -> int:
    """The most bytes of Arrow in a process that runs this code."""
    begin = "import sys, pyarrow; from mpi_runtime.data.files import formats, writing; rows = 0"
    end = f"assert rows == {ROWS}, rows; print(pyarrow.default_memory_pool().max_memory())"
    command = [sys.executable, "-c", "\n".join([begin, code, end]), *map(str, arguments)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout)


def arrays() -> pyarrow.Table:
    """A table of 33 MB."""
    values = numpy.random.default_rng(0).standard_normal(ROWS * WIDTH)
    return pyarrow.table({"x": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), WIDTH)})


@pytest.mark.parametrize("group_rows", [ROWS, 50])
def test_a_file_of_parquet_is_read_in_small_parts(tmp_path: Path, group_rows: int) -> None:
    """Also if it is one row group. pyarrow on its own keeps the whole file."""
    parquet.write_table(arrays(), tmp_path / "a.parquet", row_group_size=group_rows, compression="none")
    assert most_bytes(READ, tmp_path / "a.parquet") < 10 * MB


@pytest.mark.parametrize("kind", ["lists", "tensors"])
def test_a_file_of_parquet_is_written_in_small_parts(tmp_path: Path, kind: str) -> None:
    """pyarrow on its own keeps two times the arrays."""
    table = arrays()
    if kind == "tensors":
        storage = table["x"].chunk(0)
        tensor = pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(pyarrow.float64(), [WIDTH]), storage)
        table = pyarrow.table({"x": tensor})
    with pyarrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as stream:
        stream.write_table(table)
    assert most_bytes(WRITE, tmp_path / "a.parquet", tmp_path / "a.arrow") < 10 * MB
    assert parquet.read_table(tmp_path / "a.parquet")["x"].combine_chunks().equals(table["x"].combine_chunks())


def test_columns_that_repeat_keep_their_dictionary(tmp_path: Path) -> None:
    """In lists too; and what the caller says counts."""
    table = pyarrow.table({
        "kind": ["a", "b"] * 500, "tokens": [[1, 2, 1]] * 1000, "price": [1.5, 2.5] * 500, "x": [[0.5, 0.5]] * 1000,
    })  # fmt: skip
    for options, wanted in (({}, [True, True, True, False]), ({"use_dictionary": False}, [False] * 4)):
        writing.parquet(table, str(tmp_path / "a.parquet"), options)
        group = parquet.read_metadata(tmp_path / "a.parquet").row_group(0)
        assert [group.column(place).has_dictionary_page for place in range(4)] == wanted


def test_memory_is_returned_to_the_system() -> None:
    """And growing buffers are not copied: pyarrow's other pools keep and copy them."""
    before = pyarrow.default_memory_pool()
    try:
        be_frugal()
        assert pyarrow.default_memory_pool().backend_name == "system"
        give_back()
    finally:
        pyarrow.set_memory_pool(before)


@pytest.mark.parametrize(("given", "used"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_writers_allocate_from_the_system_too(given: dict[str, str], used: str) -> None:
    """They use the pool with which Arrow begins. What the user has set stays."""
    code = "import mpi_runtime.data, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    rest = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run([sys.executable, "-c", code], env=rest | given, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"{used}\n"


def test_tar_files_are_read_in_small_parts(tmp_path: Path) -> None:
    """A sample, and about a megabyte beside it, exist twice: as bytes and in a table."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as shard:
        for row in range(100):
            member = tarfile.TarInfo(f"{row}.bin")
            member.size = 100_000
            shard.addfile(member, io.BytesIO(bytes(member.size)))
    options = {"suffixes": None, "fileselect": None, "filerename": None, "decoder": True, "expand_json": False}
    tables = list(webdataset.samples(str(path), options))
    assert [table.num_rows for table in tables] == [11] * 9 + [1]
    assert [row for table in tables for row in table["__key__"].to_pylist()] == [str(row) for row in range(100)]


def test_an_array_is_not_kept_whole(tmp_path: Path) -> None:
    """Neither as memory nor as pages of the file."""
    array = numpy.arange(4_000_000).reshape(500, 8000)
    numpy.save(tmp_path / "a.npy", array)
    numpy.save(tmp_path / "b.npy", numpy.asfortranarray(array))
    for name in ("a.npy", "b.npy"):
        rows = 0
        for table in formats.numpy_rows(str(tmp_path / name), {"allow_pickle": False}):
            assert table.nbytes < 5 * MB
            mapped = [line for line in Path("/proc/self/smaps").read_text().split("VmFlags") if name in line]
            assert sum(int(one.partition("Rss:")[2].split()[0]) for one in mapped) * 1024 < 5 * MB
            assert (blocks.to_batch(table, "numpy")["data"] == array[rows : rows + table.num_rows]).all()  # type: ignore[index]
            rows += table.num_rows
        assert rows == len(array)


def test_lines_of_json_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the lengths of lines and the empty ones between them; a list of objects is read whole."""
    monkeypatch.setattr(formats, "JSON_BYTES", 100)
    texts = ["a" * size for size in (0, 1, 99, 100, 101, 350, 3, 3)]
    lines = [json.dumps({"text": text}) for text in texts]
    whole = json.dumps([{"text": text} for text in texts])
    for content in ("\n".join(lines), "\n" * 300 + "\n\n".join(lines) + "\n" * 300, whole, "  " * 90 + whole):
        (tmp_path / "a.json").write_text(content)
        tables = list(formats.json_rows(str(tmp_path / "a.json"), {"lines": False}))
        assert [text for table in tables for text in table["text"].to_pylist()] == texts
        assert len(tables) > 3 or content.strip() == whole


VALUES = {
    "plain": "id,name\n" + "".join(f"{row},name {row}\n" for row in range(200)),
    "empty lines": "\r\n\r\nid,name\r\n" + "\r\n".join(f"{row},name {row}\r\n" for row in range(200)),
    "no line": "id,name\r" + "".join(f"{row},name {row}\r" for row in range(200)),
    "byte order mark": "\ufeffid,name\n" + "".join(f'{row},"a, ""b"""\n' for row in range(200)) + "200,last",
    "the same name": "a,a\n" + "".join(f"{row},x\n" for row in range(200)),
    "columns": "id\n",
    "long": "id,name\n" + "".join(f"{row},{'x' * row}\n" for row in range(0, 2000, 100)),
    "several lines": 'id,name\n"1","a\nb"\n' * 50,
    "semicolons": "id;name\n" + "1;2\n" * 200,
}
OPTIONS: dict[str, dict[str, object]] = {
    "several lines": {"parse_options": csv.ParseOptions(newlines_in_values=True)},
    "semicolons": {"parse_options": csv.ParseOptions(delimiter=";")},
    "long": {"convert_options": csv.ConvertOptions(column_types={"id": pyarrow.float32()}, include_columns=["id"])},
    "empty lines": {"read_options": csv.ReadOptions(skip_rows=0)},
}
NO_OPTIONS = {"read_options": None, "parse_options": None, "convert_options": None}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("size", [20, 100, 1 << 20])
def test_values_in_parts_are_as_those_of_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int
) -> None:
    monkeypatch.setattr(formats, "TEXT_BYTES", size)
    monkeypatch.setattr(formats, "TYPES_BYTES", max(50, size))
    path = tmp_path / "a.csv"
    path.write_bytes(VALUES[kind].encode())
    options = {**NO_OPTIONS, **OPTIONS.get(kind, {})}
    tables = list(formats.csv_rows(str(path), options))
    assert pyarrow.concat_tables(tables).equals(csv.read_csv(path, **options))
    assert all(table.schema == tables[0].schema for table in tables)
    again = list(formats.csv_rows(str(path), options))
    assert again == tables, "options stay as they are"


@pytest.mark.parametrize("seed", range(200))
def test_values_of_several_lines_are_right_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    size = rng.choice([60, 200, 1000, 100_000])
    monkeypatch.setattr(formats, "TEXT_BYTES", size)
    monkeypatch.setattr(formats, "TYPES_BYTES", size)
    columns, end = rng.randint(1, 3), rng.choice(["\n", "\r\n"])
    values = ["x", '"a b"', '"a\nb"', '"a ""b\n"""', '"\n"', '"a\r\n\r\nb"', "5", 'a"b'][: rng.randint(3, 8)]
    rows = [",".join(rng.choices(values, k=columns)) for _ in range(rng.randint(1, 80))]
    path = tmp_path / "a.csv"
    path.write_bytes((",".join("abc"[:columns]) + end + end.join(rows) + end).encode())
    whole = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True))
    found, refused = None, ""
    try:
        found = pyarrow.concat_tables(formats.csv_rows(str(path), NO_OPTIONS))
    except ValueError as error:
        refused = str(error)
    if found is None:
        assert "newlines_in_values" in refused
        assert size < path.stat().st_size
    else:
        assert found.equals(whole)


def test_values_are_of_the_types_of_the_first_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "TEXT_BYTES", 100)
    monkeypatch.setattr(formats, "TYPES_BYTES", 100)
    (tmp_path / "a.csv").write_text("id\n" + "1\n" * 200 + "x\n")
    with pytest.raises(ValueError, match="conversion error to int64: invalid value 'x'"):
        list(formats.csv_rows(str(tmp_path / "a.csv"), NO_OPTIONS))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match="Empty CSV file"):
        list(formats.csv_rows(str(tmp_path / "a.csv"), NO_OPTIONS))


def test_lines_of_a_text_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "TEXT_BYTES", 100)
    lines = ["", "a" * 250, "b", "", *map(str, range(200)), " c "]
    for content in ("\n".join(lines), "\r\n".join(lines) + "\r\n", "\r".join(lines)):
        (tmp_path / "a.txt").write_bytes(content.encode())
        for drops in (False, True):
            options = {"encoding": "utf-8", "drop_empty_lines": drops}
            tables = list(formats.text_rows(str(tmp_path / "a.txt"), options))
            assert len(tables) > 5
            assert [text for table in tables for text in table["text"].to_pylist()] == [
                line for line in lines if line or not drops
            ]


def test_small_tables_are_joined_to_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with other columns are not, and the order stays."""
    monkeypatch.setattr(formats, "TABLE_BYTES", 100)
    small, other = pyarrow.table({"id": [1, 2]}), pyarrow.table({"name": ["a"]})
    large = pyarrow.table({"id": range(100)})
    tables = list(formats.gathered(iter([small, small, other, small, large, *[small] * 8, other])))
    assert [table.num_rows for table in tables] == [4, 1, 102, 14, 2, 1]
    assert all(column.num_chunks == 1 for table in tables for column in table.columns)
    assert not list(formats.gathered([]))


GROWTH = """
def read(path):
    largest = rows = 0
    piece = Files([File(path, 0)], getattr(formats, sys.argv[1]), json.loads(sys.argv[2]), None, False)
    for item in run(Chain((), 64 << 20), Header(("",), (0,)), [piece]):
        largest = max(largest, getattr(item, "bytes", 0))
        item = None
    return largest

def memory(name):
    return int(open("/proc/self/status").read().partition(name + ":")[2].split()[0]) * 1024

read(sys.argv[3])
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = memory("VmRSS")
largest = read(sys.argv[4])
print((memory("VmHWM") - before) / largest)
"""
IMPORTS = """
import json, sys
from mpi_runtime.data.files import formats
from mpi_runtime.data.files.finding import File
from mpi_runtime.data.files.opening import Files
from mpi_runtime.data.steps import Chain, Header, run
"""


def write_file(kind: str, path: Path, times: int) -> None:
    rows = range(100_000)
    table = pyarrow.table({"id": rows, "x": numpy.random.default_rng(0).standard_normal(len(rows))})
    if kind == "parquet_rows":
        with parquet.ParquetWriter(path, table.schema) as writer:
            for _ in range(times):
                writer.write_table(table)
        return
    texts = map(json.dumps, table.to_pylist()) if kind == "json_rows" else map("{},{}".format, *table.columns)
    part = "\n".join(texts) + "\n"
    with path.open("w") as file:
        file.write("id,x\n" if kind == "csv_rows" else "")
        for _ in range(times):
            file.write(part)


@pytest.mark.parametrize(
    ("kind", "options", "times"),
    [
        ("csv_rows", NO_OPTIONS, 60),
        ("json_rows", {"lines": True}, 60),
        ("text_rows", {"encoding": "utf-8", "drop_empty_lines": True}, 40),
        ("parquet_rows", {"columns": None, "filter": None}, 60),
    ],
)
def test_a_reader_needs_little_memory_beside_its_block(
    tmp_path: Path, kind: str, options: dict[str, object], times: int
) -> None:
    """Resident memory: also what the allocator cannot use again. It was 1.7 to 3 times a block of 64 MiB."""
    small, large = tmp_path / "small", tmp_path / "large"
    write_file(kind, small, 1)
    write_file(kind, large, times)
    command = [sys.executable, "-c", IMPORTS + GROWTH, kind, json.dumps(options), str(small), str(large)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    assert float(found) < 1.45

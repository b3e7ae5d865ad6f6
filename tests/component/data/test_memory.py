"""The memory of readers and writers beside the blocks that they read and write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

pytest.importorskip("pyarrow")
import pyarrow
from pyarrow import parquet

from mpi_runtime.data.arrow import be_frugal, give_back
from mpi_runtime.data.files import formats, writing

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

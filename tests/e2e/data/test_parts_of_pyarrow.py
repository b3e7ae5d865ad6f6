"""Parts of pyarrow that a program gets with `import ray.data`, as with Ray."""

import pytest

from tests.helpers import run_program

pytest.importorskip("pyarrow")

PARTS = """
import pyarrow as pa
import ray

ray.init(num_cpus=1)
rows = ray.data.from_items([{"a": 1}, {"a": 5}])
print(pa.fs.LocalFileSystem().type_name, pa.parquet.__name__, pa.json.__name__)


def largest(table):
    return pa.table({"a": [pa.compute.max(table["a"]).as_py()], "b": [pa.fs.LocalFileSystem().type_name]})


print(rows.repartition(1).map_batches(largest, batch_format="pyarrow").take_all())
print(ray.train.Checkpoint("/tmp").filesystem == pa.fs.LocalFileSystem())
"""


def test_parts_of_pyarrow_and_the_file_system_of_a_checkpoint() -> None:
    completed = run_program(PARTS, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout.splitlines() == [
        "local pyarrow.parquet pyarrow.json",
        "[{'a': 5, 'b': 'local'}]",
        "True",
    ]

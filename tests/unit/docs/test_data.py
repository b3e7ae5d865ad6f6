"""docs/data_from_ray.md: what its tables say of names is true."""

import re

import pytest

from mpi_runtime import data
from mpi_runtime.data import preprocessors, unsupported
from tests.helpers import ROOT

ROWS = re.findall(
    r"^\| `(\w+)` \| (yes|no) \| (.*) \|$", (ROOT / "docs" / "data_from_ray.md").read_text(), re.MULTILINE
)
IN_TRAINING = {"get_dataset_shard", "DataConfig"}


@pytest.mark.parametrize(("name", "here", "text"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_is_true(name: str, here: str, text: str) -> None:
    assert text
    is_here = name in data.__all__ or name in dir(data.Dataset) or name in preprocessors.__all__
    is_known = name in unsupported.OF_DATASET or name in unsupported.OF_MODULE
    if name not in IN_TRAINING:
        assert (is_here, is_known) == (here == "yes", here == "no")


def test_each_public_method_has_a_row() -> None:
    known = {name for name, _, _ in ROWS}
    assert len(ROWS) > 80
    assert known >= {name for name in data.__all__ if name.startswith(("read_", "from_", "range"))}
    assert known >= set(data._HOMES["aggregate"].split())
    assert known >= {name for name in preprocessors.__all__ if not name.startswith("Preprocessor")}

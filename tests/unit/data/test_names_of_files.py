"""Names of written files, and columns of directories."""

import os

import pytest

pytest.importorskip("pyarrow")
from mpi_runtime.data.datasource import names
from mpi_runtime.data.datasource.partitions import MISSING, Partitioning, PathPartitionParser, columns_of


def test_each_place_has_a_number_of_its_own() -> None:
    places = [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1), (0, 1), (0, 0, 0, 0, 7), (0, 10**6, 0), (10**6, 0, 0)]
    assert names.index_of((0, 3, 0)) == names.index_of((0, 3)) == 3
    different = [place for place in places if place not in ((0, 1), (0, 0, 0))]
    assert len({names.index_of(place) for place in different}) == len(different)


def test_numbers_stand_in_front_of_the_ending() -> None:
    assert names.numbered("a.csv", 0, 7) == "a_000000_000007.csv"
    assert names.numbered("x=1.5/a", 2) == "x=1.5/a_000002"


@pytest.mark.parametrize("name", ["", "..", "a/b.csv", "/a"])
def test_a_name_in_another_directory_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="without directories"):
        names.checked(name)


def test_a_value_that_is_missing_has_no_type() -> None:
    parser = PathPartitionParser(Partitioning("hive", field_types={"year": int}))  # type: ignore[arg-type]
    assert columns_of(f"in/year={MISSING}/a.csv", parser) == {"year": None}
    assert columns_of("in/year=7/a.csv", parser) == {"year": 7}
    assert columns_of("in/year=7/a.csv", None) == {}


def test_a_relative_base_is_below_the_working_directory() -> None:
    parser = PathPartitionParser.of("dir", "in", ["animal"])  # type: ignore[arg-type]
    assert parser("in/cat/a.png") == parser(os.path.abspath("in/cat/a.png")) == {"animal": "cat"}

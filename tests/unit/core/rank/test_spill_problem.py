"""A rank looks at the start whether values can leave the memory of its host."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.config import Config
from mpi_runtime.core.rank.joining import Rank


@pytest.mark.parametrize(("expects_calls", "is_told"), [(True, True), (False, False)])
def test_the_first_working_rank_of_a_host_tells_of_it(tmp_path: Path, expects_calls: bool, is_told: bool) -> None:
    (tmp_path / "file").touch()
    config = Config(object_spilling_directory=str(tmp_path / "file" / "spill"))
    rank: Any = SimpleNamespace(config=config, expects_calls=expects_calls)
    problem = Rank._spill_problem(rank)
    assert problem.endswith("/file/spill: Not a directory") == is_told
    assert bool(problem) == is_told


@pytest.mark.parametrize("directory", [None, "", "new"])
def test_nothing_is_told_where_it_can_be_used(tmp_path: Path, directory: str | None) -> None:
    config = Config(object_spilling_directory=directory and str(tmp_path / directory))
    rank: Any = SimpleNamespace(config=config, expects_calls=True)
    assert Rank._spill_problem(rank) == ""

"""docs/from_ray.md: what it says is here is here, what it says is not is not, and nothing public is left out."""

import importlib.util
import re
from typing import Any

import pytest

import mpi_runtime
from mpi_runtime.as_ray.ray_names import MODULES
from tests.helpers import ROOT

ROWS = re.findall(
    r"^\| `([\w.]+)` \| (same|differs|only here|not here) \|", (ROOT / "docs" / "from_ray.md").read_text(), re.MULTILINE
)
NOT_RAYS = {
    "ActorClass",
    "ActorHandle",
    "Context",
    "RemoteFunction",
    "Results",
    "RuntimeContext",
    "actor",
    "batch",
    "cloudpickle",
    "errors",
    "mpi",
    "exceptions",
    "rl",
    "runtime_context",
    "runtime_env",
    "util",
}
"""Public names that are no functions to call, or modules."""


def find(name: str) -> Any:
    """What a dotted name of the page stands for."""
    value: Any = mpi_runtime
    path = "mpi_runtime"
    for part in name.split("."):
        path += f".{part}"
        value = getattr(value, part, None) or importlib.import_module(path)
    return value


def test_there_are_rows() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("name", [name for name, here in ROWS if here != "not here"])
def test_what_is_said_to_be_here(name: str) -> None:
    if name in ("util.joblib", "util.dask", "util.tqdm"):
        pytest.importorskip(name.rpartition(".")[2])
    assert find(name) is not None


@pytest.mark.parametrize("name", [name for name, here in ROWS if here == "not here"])
def test_what_is_said_not_to_be_here(name: str) -> None:
    with pytest.raises(ImportError):
        find(name)


def test_every_public_name_has_a_row() -> None:
    public = {name for name in mpi_runtime.__all__ if not name.startswith("_")}
    assert public - NOT_RAYS - {name for name, _ in ROWS} == set()


def test_modules_of_util_that_both_have_are_modules_of_ray() -> None:
    others = {"util.tqdm"}  # in Ray `ray.experimental.tqdm_ray`
    both = [name for name, kind in ROWS if kind in ("same", "differs") and re.fullmatch(r"util\.\w+", name)]
    modules = [name for name in both if importlib.util.find_spec(f"mpi_runtime.{name}") is not None]
    assert "util.metrics" in modules
    assert [name for name in modules if f"ray.{name}" not in MODULES and name not in others] == []

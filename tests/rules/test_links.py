"""Folders at the top level are one package with mpi_runtime: shipped by a mapping, seen in a checkout through links."""

import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT
from tests.rules.house import PACKAGE, project

MAPPING: dict[str, str] = project()["tool"]["setuptools"]["package-dir"]
LINKED = {name: folder for name, folder in MAPPING.items() if name != PACKAGE}


def test_the_mapping_names_the_package_itself() -> None:
    assert MAPPING[PACKAGE] == PACKAGE
    assert LINKED


@pytest.mark.parametrize(("name", "folder"), LINKED.items())
def test_link_shows_its_folder(name: str, folder: str) -> None:
    link = ROOT.joinpath(*name.split("."))
    relative = link.relative_to(ROOT)
    cure = (
        f"{relative} must be a link to ../{folder}. Lost in a checkout or a copy? Then: git config core.symlinks true "
        f"&& git checkout -- {relative}; or: rm -rf {relative} && "
        f"ln -s ../{folder} {relative}. Copy with cp -a, rsync -l or tar."
    )
    assert link.is_symlink(), cure
    assert os.readlink(link) == f"../{folder}", cure
    assert (ROOT / folder).is_dir(), cure
    assert not (ROOT / folder).is_symlink(), f"{folder} is the real folder, {relative} the link"


def test_no_other_links() -> None:
    found = {path for path in (ROOT / PACKAGE).rglob("*") if path.is_symlink()}
    assert found == {ROOT.joinpath(*name.split(".")) for name in LINKED}


@pytest.mark.parametrize("folder", LINKED.values())
def test_folder_cannot_be_imported_by_its_own_name(folder: str) -> None:
    """Two copies of one class would be different classes."""
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: import this package as {PACKAGE}.{folder}" in done.stderr

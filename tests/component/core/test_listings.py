"""Modules found by listings are those that a Python finds in a process of its own."""

import os
import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

from mpi_runtime import listings
from tests.unit.core import test_listings as unit

place = unit.place


def test_imports_of_a_program_are_pythons(place: Path) -> None:
    (place / "plain_x.py").touch()
    assert listings.for_all.find_spec("plain_x") is None
    with listings.for_all, listings.for_all:
        pass
    assert listings.for_all.find_spec("plain_x") is None
    with listings.for_all:
        assert listings.for_all.find_spec("plain_x") is not None
        pid = os.fork()
        if not pid:
            os._exit(listings.for_all.find_spec("plain_x") is not None)
        assert os.waitpid(pid, 0)[1] == 0, "a forked child has user code of its own"
    assert listings.for_all in sys.meta_path
    assert sys.meta_path.index(listings.for_all) < sys.meta_path.index(PathFinder)


def test_a_package_in_a_zip_file(tmp_path: Path) -> None:
    home = Path(listings.__file__).parent
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in (home / "__init__.py", home / "listings.py", *home.glob("errors/*.py")):
            archive.write(file, file.relative_to(home.parent))
    program = "import mpi_runtime.errors.arguments as found; print(found.__file__)"
    command = [sys.executable, "-S", "-c", program]
    variables = {"PYTHONPATH": f"{tmp_path}/all.zip"}
    result = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.strip() == f"{tmp_path}/all.zip/mpi_runtime/errors/arguments.py", result.stderr

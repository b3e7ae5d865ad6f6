"""What earlier versions left on disk continues: a journal that was recorded before modules moved."""

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

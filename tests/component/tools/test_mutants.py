"""A mutant is run in a process of its own and judged by its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import run
from tests.mutants.mutations import mutations


def test_a_command_has_a_temporary_directory_of_its_own(tmp_path: Path) -> None:
    (tree := tmp_path / "tree").mkdir()
    printed = run.run(tree, ("-c", "import sys, tempfile; sys.exit(tempfile.gettempdir())"), 60.0)
    assert printed == f"{tree}.tmp\n"
    assert [path.name for path in tree.iterdir()] == [], "what is copied stays as it is"


def test_a_mutant_is_killed_survives_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = b"def twice(value):\n    while value < 0:\n        value += 1\n    return 2 * value\n"
    (tmp_path / "m.py").write_bytes(source)
    command = ("-c", "import m; assert m.twice(3) == 6; assert m.twice(-3) == 0")
    made = {one.after: one for one in mutations("m.py", source)}
    assert run.judge(tmp_path, made["while value < (-1):"], [command]).outcome == run.KILLED
    assert run.judge(tmp_path, made["while value < (-1):"], []).outcome == run.SURVIVED
    monkeypatch.setattr(run, "LIMIT_S", 2.0)
    assert run.judge(tmp_path, made["value += 0"], [command]).outcome == run.TIMED_OUT
    assert (tmp_path / "m.py").read_bytes() == source

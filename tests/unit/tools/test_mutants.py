"""What mutants are made of a source, how they are judged, and that each one named as equivalent exists."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.helpers import ROOT
from tests.mutants import run
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import mutations

SOURCE = b'''"""A module."""

LIMIT = 3


def clamp(value: int, low: int = 0, *, strict: bool = False) -> int:
    """The docstring stays."""
    # \xc3\xa4: places are counted in bytes
    if value < low and (not strict or value is not None):
        value = low
    assert value >= 0, f"{value + 1}"
    return value if value <= LIMIT else LIMIT
'''


NOTHING = b"""
def found(value: int) -> int | None:
    count: int
    if value:
        return None
    return None
"""


def changed(before: str) -> set[str]:
    return {one.after for one in mutations("m.py", SOURCE) if one.before == before}


def test_what_does_nothing_is_left_alone() -> None:
    """A declaration, and `return None` where a function ends anyway."""
    assert [(one.line, one.after) for one in mutations("m.py", NOTHING)] == [(4, "if not (value):"), (5, "pass")]


def test_every_kind_of_change_is_made() -> None:
    test = "if value < low and (not strict or value is not None):"
    assert changed(test) == {
        "if value <= low and (not strict or value is not None):",
        "if value >= low and (not strict or value is not None):",
        "if value < low or (not strict or value is not None):",
        "if value < low and (not strict and value is not None):",
        "if value < low and (not strict or value is None):",
        "if not (value < low and (not strict or value is not None)):",
    }
    assert changed("value = low") == {"pass"}
    assert changed("def clamp(value: int, low: int = 0, *, strict: bool = False) -> int:") == {
        "def clamp(value: int, low: int = (-1), *, strict: bool = False) -> int:",
        "def clamp(value: int, low: int = 1, *, strict: bool = False) -> int:",
        "def clamp(value: int, low: int = 0, *, strict: bool = True) -> int:",
    }
    assert "return value if not (value <= LIMIT) else LIMIT" in changed("return value if value <= LIMIT else LIMIT")


def test_what_nobody_could_notice_stays() -> None:
    touched = {one.before for one in mutations("m.py", SOURCE)}
    assert not any(text in line for line in touched for text in ("docstring", "LIMIT = 3", "assert"))


def test_all_mutants_of_the_real_files_can_be_compiled() -> None:
    for file in run.files(ROOT):
        source = (ROOT / file).read_bytes()
        some = mutations(file, source)
        assert some or b"def " not in source
        for one in some[::25]:
            ast.parse(one.applied(source))
            assert one.applied(source) != source


def test_each_equivalent_mutant_exists() -> None:
    made = {file: mutations(file, (ROOT / file).read_bytes()) for file in run.files(ROOT)}
    assert [entry for entry in EQUIVALENT if not any(entry.names(one) for one in made.get(entry.file, ()))] == []


def test_each_file_is_found_and_has_unit_tests() -> None:
    assert [pattern for pattern in run.FILES if not [*ROOT.glob(pattern)]] == []
    assert {Path(file).stem for file in run.files(ROOT)} >= run.WORLDS.keys()
    assert [file for file in run.files(ROOT) if run.commands(ROOT, file)[-1][: len(run.PYTEST)] != run.PYTEST] == []
    first, world, *_ = run.commands(ROOT, "scheduler/nodes/spilling.py")
    assert "tests/unit/scheduler/test_spilling.py" in first
    assert world == (*run.SIMULATION, "--spills")

"""Every module is tested somewhere: by a test of its name, or by what `tests/README.md` points to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.rules.house import PACKAGE, modules

ROW = re.compile(r"^\| `([\w/]+)` \| (`[^|]+`) \|$", re.MULTILINE)
NAMED_WITH_THEIR_ROOM = ("scheduler", "gpu", "slurm")


def table(text: str) -> dict[str, list[str]]:
    """For each module in the table the files that test it."""
    return {module: re.findall(r"`([^`]+)`", files) for module, files in ROW.findall(text)}


def known() -> list[str]:
    """The modules of the package, as paths below it; what only says what a folder is has none of its own."""
    return [
        name.removeprefix(f"{PACKAGE}.").replace(".", "/")
        for name, module in modules().items()
        if module.path.stem != "__init__"
    ]


def likely(module: str) -> list[str]:
    """What a test of the module's name may be called."""
    room, _, name = module.rpartition("/")
    own = [f"test_{room}_{name}.py"] if room else []
    return own if room in NAMED_WITH_THEIR_ROOM else [*own, f"test_{name}.py", f"test_api_{name}.py"]


def problems(modules: list[str], files: list[str], rows: dict[str, list[str]]) -> list[str]:
    """What is wrong with the table, in words."""
    names = {Path(file).name for file in files}
    has_own = {module: bool(names.intersection(likely(module))) for module in modules}
    found = [
        f"{module}: no {' or '.join(likely(module))}, and no row; add: | `{module}` | `unit/test_....py` |"
        for module, is_own in has_own.items()
        if not is_own and module not in rows
    ]
    found += [f"{module}: has a row and a test of its name" for module in rows if has_own.get(module)]
    found += [f"{module}: has a row and is no module" for module in rows if module not in has_own]
    found += [f"{module}: {file} is no test" for module, tests in rows.items() for file in tests if file not in files]
    return found


def test_every_module_is_tested_somewhere() -> None:
    tests = ROOT / "tests"
    files = [str(path.relative_to(tests)) for path in tests.rglob("test_*.py")]
    text = (tests / "README.md").read_text()
    rows = table(text)
    assert len(ROW.findall(text)) == len(rows) == text.count("\n| `"), "a row twice, or one that cannot be read"
    assert problems(known(), files, rows) == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({}, "a/two: no test_a_two.py or test_two.py or test_api_two.py, and no row"),
        ({"a/two": ["unit/test_other.py"], "a/one": ["unit/test_one.py"]}, "a/one: has a row and a test of its name"),
        ({"a/two": ["unit/test_other.py"], "a/three": ["unit/test_one.py"]}, "a/three: has a row and is no module"),
        ({"a/two": ["unit/test_gone.py"]}, "a/two: unit/test_gone.py is no test"),
    ],
)
def test_the_table_is_really_compared(rows: dict[str, list[str]], words: str) -> None:
    (found,) = problems(["a/one", "a/two"], ["unit/test_one.py", "unit/test_other.py"], rows)
    assert found.startswith(words)


def test_rooms_that_are_linked_have_tests_with_their_name() -> None:
    assert problems(["scheduler/dispatch"], ["e2e/test_dispatch.py"], {}) != []
    assert problems(["scheduler/dispatch"], ["unit/test_scheduler_dispatch.py"], {}) == []

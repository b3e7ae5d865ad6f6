"""docs/guides and README: every example runs, and prints what the comment behind `print` says."""

import re
from importlib.util import find_spec
from typing import Any

import pytest

from tests.helpers import ROOT, run_program

PAGES = sorted(set((ROOT / "docs" / "guides").glob("*.md")) - {ROOT / "docs" / "guides" / "sessions.md"})
"""The program about sessions needs one: it runs among the tests of sessions."""
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"^ *(?:print|safe_print)\(.*\)  # (.*)$", re.MULTILINE)
LIBRARIES = ("joblib", "dask", "tqdm")


def examples() -> tuple[str, list[str]]:
    """One program of all pages, a job for each, and what it is to print."""
    parts, printed = [], []
    for page in PAGES:
        blocks = [block for block in BLOCK.findall(page.read_text()) if is_possible(block)]
        printed.append(f"=== {page.name}")
        parts.append(f'print("=== {page.name}")\n')
        for block in blocks:
            assert block.count("print(") == len(PRINTED.findall(block)), f"{page.name}: a print without its comment"
            printed += PRINTED.findall(block)
        parts += [*blocks, "ray.shutdown()\n"] if blocks else []
    # Above the first init() each rank would print.
    beginning = "import mpi_runtime as ray\n\nray.init(num_cpus=4)\nray.shutdown()\n"
    return beginning + "\n".join(parts), printed


def is_possible(block: str) -> bool:
    """Whether the libraries that it needs are here."""
    return all(
        find_spec(name) or not re.search(rf"^(?:from|import) {name}\b|util\.{name}\b", block, re.MULTILINE)
        for name in LIBRARIES
    ) and bool(find_spec("pyarrow") or "import data" not in block)


def test_there_are_examples_on_each_page() -> None:
    for page in PAGES:
        assert BLOCK.findall(page.read_text()), page.name


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "how", [{}, pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi)], ids=["plain", "mpirun"]
)
def test_they_print_what_they_say(how: Any) -> None:
    program, printed = examples()
    assert run_program(program, timeout=150.0, **how).expect(0).stdout.splitlines() == printed


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
@pytest.mark.parametrize(
    "how", [{}, pytest.param({"ranks": 3, "mpi": "openmpi"}, marks=pytest.mark.mpi)], ids=["plain", "mpirun"]
)
def test_first_programs_print_what_they_say(page: str, how: Any) -> None:
    programs = BLOCK.findall((ROOT / page).read_text())
    assert programs
    for program in programs:
        assert run_program(program, **how).expect(0).stdout.splitlines() == PRINTED.findall(program) != []

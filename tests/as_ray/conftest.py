"""`--table FILE`: write the table of libraries, their versions and results, as docs/libraries.md has it."""

import ast
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.as_ray.test_libraries import EXPECTED, LIBRARIES

HEAD = """# Libraries made for Ray

`make as-ray` installs these libraries, runs a program of each, unchanged, on three ranks of this runtime under Ray's
name, compares its output with the expected one, and writes this table.

| library | version | what was run | result |
| --- | --- | --- | --- |
"""
RESULTS = {"passed": "right", "failed": "wrong", "skipped": "not run"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", type=Path, metavar="FILE", help="write the table of libraries there")


def rows(outcomes: dict[str, str]) -> Iterator[str]:
    distributions = metadata.packages_distributions()
    for name, outcome in sorted(outcomes.items()):
        library, _, what = (ast.get_docstring(ast.parse((LIBRARIES / f"{name}.py").read_text())) or "").partition(": ")
        module = EXPECTED[name][0]
        found = distributions.get(module, [module.rpartition(".")[2]])
        version = metadata.version(found[0]) if outcome != "skipped" else ""
        yield f"| {library} | {version} | {' '.join(what.split()).rstrip('.')} | {RESULTS[outcome]} |\n"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--table")
    if path is None:
        return
    outcomes = {
        report.nodeid.partition("[")[2].rstrip("]"): outcome
        for outcome in RESULTS
        for report in terminalreporter.stats.get(outcome, ())
        if "[" in report.nodeid and (report.when == "call" or outcome != "passed")
    }
    path.write_text(HEAD + "".join(rows(outcomes)))

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
TAIL = """
## Names that are not here

`python -m tests.as_ray.scan WHEEL...` tries each name of Ray that a package uses. Of the twenty most downloaded
packages that use Ray, these ask for names that are not here. Names of Ray Data can be imported, and raise an error when
they are used.

| package | version | names | what needs them |
| --- | --- | --- | --- |
| sglang, vllm | 0.5.23, 0.33.0 | `ray.serve` | a label of metrics; without Ray Serve they leave it out |
| awswrangler | 3.17.1 | internals of Ray Data | its distributed mode |
| skypilot | 0.14.1 | `ray.autoscaler._private` | its own launches on clouds |
| torchrl | 0.14.1 | `ray.rllib` | an example in a docstring |
| flaml | 2.8.0 | `ray.tune.sample`, `ray.tune.suggest` and others of old versions | nothing: Ray 2.60 lacks them too |
| daft | 0.7.26 | `ray._private.ray_option_utils` | nothing: Ray 2.60 lacks it too |
| xgboost-ray | 0.1.19 | `ray.train._internal`, `ray.worker.get_resource_ids`, old names of Tune | reports to Tune |
| modin | 0.37.1 | `ray.ray_constants` | a cluster with an address |

All names are here for transformers 5.24.0, prefect-ray 0.6.0, sktime 1.2.0, mlforecast 1.1.0, neuralforecast 3.3.0,
autogluon-core 1.6.3, llamafactory 0.9.5, ms-swift 4.6.0 and verl 0.9.1. fugue 0.9.7 and feast 0.67.0 need Ray Data.
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
    path.write_text(HEAD + "".join(rows(outcomes)) + TAIL)

"""The option `--json`: each verb prints one document, and docs/json.md has all of its fields."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.cli.completion import verbs
from mpi_runtime.files.claim import owner_of
from tests.e2e.cli.test_batch import run_batch, run_verb, written
from tests.helpers import ROOT, run_program

ROWS = dict(re.findall(r"^\| `([a-z]+(?: (?:[a-z]+|FILE --check|--report))?)[^`]*` \| (.*) \|$",
                       (ROOT / "docs" / "json.md").read_text(), re.MULTILINE))  # fmt: skip
NAMES = {verb: set(re.findall(r"`(\w+)`", text)) for verb, text in ROWS.items()}
FREE = {"config", "last", "functions", "trials", "resources"}
"""Fields whose own names are those of users."""
SWEEP = """
[[task]]
name = "a"
command = "test {i} != 1"
product = {i = [0, 1]}
time_limit = "1m"
alternatives = [{num_cpus = 1}, {num_cpus = 0.5}]
"""
JOB = """
import mpi_runtime as ray
ray.init(num_cpus=1, journal="journal")

@ray.remote
def f(i):
    return i

ray.get([f.remote(i) for i in range(3)])
"""
STUDY = """
from mpi_runtime import tune

def f(config):
    tune.report({"loss": config["x"]})

run = tune.RunConfig(name="s", storage_path=".")
tune.Tuner(f, param_space={"x": tune.grid_search([1, 2])}, run_config=run,
           tune_config=tune.TuneConfig(metric="loss", mode="min")).fit()
"""


def fields(value: Any) -> set[str]:
    """All names of fields in a document, but those that users choose."""
    if isinstance(value, list):
        return {name for one in value for name in fields(one)}
    if not isinstance(value, dict):
        return set()
    return {*value} | {name for key, one in value.items() if key not in FREE for name in fields(one)}


def shown(verb: str, *words: str, code: int = 0, cwd: Path) -> Any:
    """The document of a verb, whose fields are documented."""
    done = run_verb(*words, "--json", cwd=cwd).expect(code)
    found = json.loads(done.stdout)
    assert fields(found) <= NAMES[verb], fields(found) - NAMES[verb]
    return found


def test_every_verb_that_shows_something_has_it_and_is_documented() -> None:
    having = {verb.path for verb in verbs() for option in verb.options if "--json" in option.flags}
    assert {verb.removesuffix(" FILE --check").removesuffix(" --report") for verb in ROWS} == having


@pytest.mark.timeout(120)
def test_batches(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.toml", SWEEP)
    found = shown("batch FILE --check", "batch", file, "--check", cwd=tmp_path)
    assert [(one["name"], one["commands"], one["time_limit"]) for one in found["groups"]] == [("a", 2, 60)]
    assert found["groups"][0]["requests"] == [{"num_cpus": 1}, {"num_cpus": 0.5}]
    wrong = written(tmp_path / "wrong.txt", "ls #batch num_cpu=1")
    found = shown("batch FILE --check", "batch", wrong, "--check", code=2, cwd=tmp_path)
    assert [(one["line"], one["column"], one["is_note"]) for one in found["problems"]] == [(1, 11, False)]
    run_batch(file, cwd=tmp_path).expect(1)
    found = shown("batch status", "batch", "status", "jobs", code=1, cwd=tmp_path)
    assert (found["done"], found["total"], found["used_by"]) == (1, 2, "")
    assert [(one["name"], one["ending"]) for one in found["failed"]] == [("a.1", "exit code 1")]
    assert json.loads(run_verb("batch", "list", "--json", cwd=tmp_path).expect(0).stdout) == [found]
    found = shown("whatif", "whatif", "jobs", "--nodes", "1,2", cwd=tmp_path)
    assert [one["nodes"] for one in found["prospects"]] == [1, 2]


@pytest.mark.timeout(120)
def test_journals_and_searches(tmp_path: Path) -> None:
    run_program(JOB, cwd=tmp_path).expect(0)
    found = shown("journal list", "journal", "list", "journal", cwd=tmp_path)
    assert (found["functions"], found["used_by"]) == ({"f": 3}, owner_of(tmp_path / "journal"))
    assert len(shown("journal show", "journal", "show", "journal", cwd=tmp_path)) == 3
    assert shown("journal verify", "journal", "verify", "journal", cwd=tmp_path)["calls"] == 3
    run_program(STUDY, cwd=tmp_path).expect(0)
    assert [(one["name"], one["value"]) for one in shown("tune ls", "tune", "ls", ".", cwd=tmp_path)] == [("s", 1)]
    assert [one["status"] for one in shown("tune show", "tune", "show", "s", cwd=tmp_path)] == ["TERMINATED"] * 2
    assert shown("tune best", "tune", "best", "s", cwd=tmp_path)["config"] == {"x": 1}


@pytest.mark.timeout(120)
def test_this_host(tmp_path: Path) -> None:
    assert shown("version", "version", cwd=tmp_path)["python"]
    assert shown("gpus", "gpus", cwd=tmp_path)["gpus"] == []
    assert len(shown("doctor", "doctor", cwd=tmp_path)["ranks"]) == 1
    assert "system" in json.loads(run_verb("doctor", "--report", "--json", cwd=tmp_path).expect(0).stdout)

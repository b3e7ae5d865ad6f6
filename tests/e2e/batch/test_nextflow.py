"""`plugins/nextflow/hq`, called as Nextflow calls it: with the scripts that its executor writes."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import helpers

HQ = helpers.ROOT / "plugins" / "nextflow" / "hq"
SCRIPT = """#!/bin/bash
#HQ --name nf-train_({number})
#HQ --log {folder}/.command.log
#HQ --cwd {folder}
#HQ --resource mem=1073741824
#HQ --cpus 1
#HQ --time-limit 60sec
{text}
"""

pytestmark = pytest.mark.timeout(120)


@contextmanager
def queue(folder: Path) -> Iterator[helpers.Program]:
    (folder / "jobs.jsonl").touch()
    batch = shlex.join([sys.executable, "-m", "mpi_runtime", "batch", "-", "--directory", f"{folder}/batch"])
    words = ["/bin/sh", "-c", f"tail -n +1 -f {folder}/jobs.jsonl | {batch}"]
    with helpers.start_command(words, env={"MPI_RUNTIME_NUM_CPUS": "2"}) as program:
        yield program


def hq(folder: Path, line: str, cwd: Path, code: int = 0) -> str:
    with helpers.start_command(
        [sys.executable, str(HQ), *line.split()], cwd=cwd, env={"HQ_QUEUE": str(folder)}
    ) as made:
        done = made.finish().expect(code)
    return done.stderr if code else done.stdout


def submitted(folder: Path, number: int, text: str, line: str = "") -> str:
    """Submit a script with a text, in a directory of its own whose name the shell would change."""
    work = folder / f"work {{x}} {number}"
    work.mkdir()
    script = SCRIPT.format(number=number, folder=work, text=text).replace(str(work), f'"{work}"')
    (work / ".command.run").write_text(script.replace("#HQ --cpus", f"{line}#HQ --cpus"))
    return hq(folder, "--output-mode=quiet submit --directives=file .command.run", work)


def states(folder: Path) -> dict[str, str]:
    text = hq(folder, "--output-mode=quiet job list --all", folder)
    return {number: state for number, _, state in (line.partition(" ") for line in text.splitlines())}


def test_jobs_are_submitted_listed_and_cancelled(tmp_path: Path) -> None:
    with queue(tmp_path) as program:
        assert submitted(tmp_path, 1, "pwd; echo done > result") == "1\n"
        assert submitted(tmp_path, 2, "exit 3") == "2\n"
        assert submitted(tmp_path, 3, "touch begun; sleep 1000") == "3\n"
        helpers.wait_until((tmp_path / "work {x} 3" / "begun").exists, 60)
        helpers.wait_until(lambda: states(tmp_path) == {"1": "FINISHED", "2": "FAILED", "3": "RUNNING"}, 60)
        hq(tmp_path, "job cancel 3", tmp_path)
        helpers.wait_until(lambda: states(tmp_path)["3"] == "CANCELED", 60)
        work = tmp_path / "work {x} 1"
        assert (work / "result").read_text() == "done\n"
        assert (work / ".command.log").read_text() == f"{work}\n"
        with (tmp_path / "jobs.jsonl").open("a") as file:
            file.write("\x04\n")
        helpers.wait_until(lambda: "no job runs" in hq(tmp_path, "job list --all", tmp_path, code=1), 60)
        program.kill()


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    assert "HQ_QUEUE must name a directory" in hq(tmp_path, "job list --all", tmp_path, code=1)
    (tmp_path / "jobs.jsonl").touch()
    assert "no job runs the batch" in hq(tmp_path, "job cancel 1", tmp_path, code=1)
    (tmp_path / "a.sh").write_text("#HQ --pin taskset\n")
    said = hq(tmp_path, "submit --directives=file a.sh", tmp_path, code=1)
    assert "mpi_runtime has nothing for '#HQ --pin taskset'" in said

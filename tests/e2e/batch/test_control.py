"""The verbs that change a batch which runs, with one job and with two; `wait`, `list`, `log --follow`."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.batch.history.requests import ANSWER, REQUEST
from tests import helpers
from tests.e2e.batch.test_elastic import is_joined
from tests.e2e.cli.test_batch import run_batch, written

JOBS = """
    [[task]]
    name = "gate"
    command = "touch begun-{i}; while [ ! -e go ]; do sleep 0.05; done"
    product = {i = [0, 1, 2, 3]}
    priority = 9
    [[task]]
    name = "late"
    command = "echo {i} >> ran"
    product = {i = [0, 1, 2, 3, 4, 5]}
    [[task]]
    name = "next"
    command = "echo next >> ran"
    after = ["late.2"]
"""


@pytest.mark.parametrize("count", [1, 2])
def test_commands_are_cancelled_paused_hurried_and_added_while_a_batch_runs(tmp_path: Path, count: int) -> None:
    written(tmp_path / "jobs.toml", JOBS)
    written(tmp_path / "more.txt", "echo more >> ran #batch after=late name=more\necho it has no name\n")
    written(tmp_path / "wrong.txt", "true #batch after=nobody\n")
    (tmp_path / "latin.toml").write_bytes(b"[[task]]\ncommand = 'echo gr\xfc\xdfe'\n")
    env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": str(4 // count)}

    def verb(*words: str, code: int = 0) -> str:
        done = run_batch(*words, cwd=tmp_path).expect(code)
        return done.stdout + done.stderr

    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.toml", "--priority", "0"]
    with helpers.start_command(command, cwd=tmp_path, env=env) as first:
        helpers.wait_until((tmp_path / "begun-0").exists, 60)
        second = helpers.start_command(command, cwd=tmp_path, env=env) if count == 2 else None
        if second is not None:
            helpers.wait_until(partial(is_joined, tmp_path, 1), 60)
        for number in range(4):
            helpers.wait_until((tmp_path / f"begun-{number}").exists, 60)
        assert "jobs: 0 of 11 done; run by" in verb("list")
        if count == 1:  # else another job may have them already
            assert "2 commands paused" in verb("pause", "jobs", "late.0-1")
        assert "with the new priority" in verb("priority", "jobs", "late.5", "--to", "7")
        assert "2 commands cancelled" in verb("cancel", "jobs", "late.2", "gate.3")
        assert "did you mean 'late'?" in verb("cancel", "jobs", "lat", code=2)
        assert "nothing is left of these: 2 skipped" in verb("cancel", "jobs", "late.2", "next", code=2)
        assert "2 commands added" in verb("add", "jobs", "more.txt")
        assert "latin.toml is not text in UTF-8: line 2" in verb("add", "jobs", "latin.toml", code=2)
        assert "wrong.txt:1:13: there is no command or array 'nobody'" in verb("add", "jobs", "wrong.txt", code=2)
        (tmp_path / "go").touch()
        if count == 1:
            helpers.wait_until(lambda: len(ran(tmp_path)) == 3, 60)
            assert ran(tmp_path)[0] == "5", "it has the higher priority"
            assert sorted(ran(tmp_path)) == ["3", "4", "5"]
            assert "2 commands resumed" in verb("resume", "jobs", "late.0", "late.1")
        first.finish().expect(1)
        if second is not None:
            with second:
                second.finish().expect(1)
    assert sorted(ran(tmp_path)) == ["0", "1", "3", "4", "5"], "what follows a cancelled one is skipped"
    assert (tmp_path / "batch-jobs" / "more-line-2.out").read_text() == "it has no name\n"
    assert "9 of 13 done" in verb("wait", "jobs", code=1)
    assert "no job runs the batch jobs, and nothing is left of it" in verb("cancel", "jobs", "late", code=2)
    run_batch("jobs.toml", cwd=tmp_path).expect(0)
    assert "next" in ran(tmp_path), "the same line runs what was cancelled"


def test_requests_between_two_lives_are_done_before_the_next_starts_anything(tmp_path: Path) -> None:
    gate = "touch begun; while [ ! -e go ]; do sleep 0.05; done #batch name=gate\n"
    written(tmp_path / "jobs.txt", gate + "".join(f"echo {number} >> ran\n# a gap\n" for number in range(6)))
    written(tmp_path / "more.txt", "echo more >> ran\n")
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(command, cwd=tmp_path, env={"MPI_RUNTIME_NUM_CPUS": "1"}) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        program.process.kill()
        program.finish().expect(-9)
    assert ran(tmp_path) == []

    def verb(*words: str, code: int = 0) -> str:
        done = run_batch(*words, cwd=tmp_path).expect(code)
        return done.stdout + done.stderr

    assert "there is no command or array 'lin-1'" in verb("cancel", "jobs", "lin-1", code=2)
    said = "no job runs the batch jobs now: this is done when the same line continues it, before anything else"
    assert said in verb("cancel", "jobs", "line-2-6")
    assert said in verb("pause", "jobs", "line-8", "line-10")
    assert said in verb("resume", "jobs", "line-10")
    assert said in verb("add", "jobs", "more.txt")
    (tmp_path / "go").touch()
    with helpers.start_command(command, cwd=tmp_path) as program:
        helpers.wait_until(lambda: len(ran(tmp_path)) == 3, 60)
        assert "1 command resumed" in verb("resume", "jobs", "line-8")
        said = program.finish().expect(1).stderr
    assert sorted(ran(tmp_path)) == ["3", "4", "5", "more"]
    assert "requested: cancel line-2-6: 3 commands cancelled" in said
    assert "requested: add: 1 command added" in said
    names = os.listdir(tmp_path / "batch-jobs" / "journal")
    assert not [name for name in names if name.startswith((REQUEST, ANSWER))], "they are gone"


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().split() if (folder / "ran").exists() else []


def test_an_output_is_followed_to_its_end(tmp_path: Path) -> None:
    file = written(
        tmp_path / "jobs.txt", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two #batch name=long\n"
    )
    batch = [sys.executable, "-m", "mpi_runtime", "batch"]
    with helpers.start_command([*batch, file], cwd=tmp_path) as program:
        helpers.wait_until(lambda: (tmp_path / "batch-jobs" / "long.out").exists(), 60)
        with helpers.start_command([*batch, "log", "jobs", "long", "--follow"], cwd=tmp_path) as follower:
            helpers.wait_until(lambda: "one" in follower.stdout, 60)
            (tmp_path / "go").touch()
            assert follower.finish().expect(0).stdout == "one\ntwo\n"
        program.finish().expect(0)

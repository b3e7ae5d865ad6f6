"""What all jobs of a batch share, commands that must not start twice, and inputs that appear late."""

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import used_by
from tests import helpers
from tests.e2e.batch.test_elastic import jobs
from tests.e2e.cli.test_batch import run_batch, written

pytestmark = pytest.mark.timeout(120)
FOUR = {"MPI_RUNTIME_NUM_CPUS": "4"}
COUNTED = "echo + >> {log}; sleep 0.15; echo - >> {log} #batch name=c{n}\n"


def most_at_a_time(log: Path) -> int:
    now = most = 0
    for sign in log.read_text().split():
        now += 1 if sign == "+" else -1
        most = max(most, now)
    return most


def test_jobs_together_have_no_more_of_a_batch_resource_than_there_is(tmp_path: Path) -> None:
    lines = "".join(COUNTED.format(log="began", n=number) for number in range(30))
    first = "#batch batch_resources=licence=2 resources=licence=1 num_cpus=0.5\n"
    written(tmp_path / "jobs.txt", first + lines + "echo free #batch resources=licence=0\n")
    with jobs(tmp_path, 2) as programs:
        for program in programs:
            program.finish().expect(0)
    assert Counter((tmp_path / "began").read_text().split()) == {"+": 30, "-": 30}
    assert most_at_a_time(tmp_path / "began") == 2
    written(tmp_path / "more.txt", "true #batch batch_resources=a=1 resources=a=2\n")
    refused = run_batch("more.txt", cwd=tmp_path).expect(2)
    assert "more.txt:1:33: resources: it needs a 2, and all jobs together have 1" in refused.stderr


SLOW_TO_END = (
    "trap 'sleep 3; echo - >> began; exit 1' TERM; echo + >> began; while true; do sleep 0.1; done "
    "#batch grace=9s name=slow num_cpus=4\n"
)
WHEN_BEGUN = "while [ ! -e began ]; do sleep 0.1; done"
LIMITS = {
    "batch_resources": ("batch_resources=l=1 resources=l=1", "resources=l=0", "resources=l=1,first=1"),
    "group_limit": ("group=g group_limit=1", "group=other", "resources=first=1"),
}
"""What all commands have, what exempts one, and what another has that only the first job can run."""


def one_at_a_time(limit: str) -> str:
    """Two commands of which one runs at a time: first the one that has room in the second job alone."""
    common, exempt, of_first = LIMITS[limit]
    gate = f"{WHEN_BEGUN} #batch name=gate {exempt}\n"
    return (
        f"#batch {common}\n{SLOW_TO_END}{gate}echo + >> began; echo - >> began #batch name=next after=gate {of_first}\n"
    )


@pytest.mark.parametrize("limit", LIMITS)
def test_a_cancelled_command_of_another_job_has_its_share_until_it_has_ended(tmp_path: Path, limit: str) -> None:
    written(tmp_path / "jobs.txt", one_at_a_time(limit))
    with two_jobs(tmp_path) as (first, second):
        helpers.wait_until((tmp_path / "began").exists, 60)
        assert "1 command cancelled" in run_batch("cancel", "jobs", "slow", cwd=tmp_path).expect(0).stdout
        assert "2 of 3 done" in first.finish().expect(1).stderr
        second.finish().expect(1)
    assert (tmp_path / "began").read_text().split() == ["+", "-", "+", "-"]


def test_a_share_is_free_when_the_job_is_killed_that_ends_a_cancelled_command(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", one_at_a_time("group_limit"))
    with two_jobs(tmp_path) as (first, second):
        helpers.wait_until((tmp_path / "began").exists, 60)
        run_batch("cancel", "jobs", "slow", cwd=tmp_path).expect(0)
        second.signal(signal.SIGKILL)
        second.finish().expect(-9)
        assert "2 of 3 done" in first.finish().expect(1).stderr


def test_a_batch_that_a_failure_stops_ends_when_its_commands_in_other_jobs_have_ended(tmp_path: Path) -> None:
    """So the same line can be run again at once."""
    written(tmp_path / "jobs.txt", f"{SLOW_TO_END}{WHEN_BEGUN}; false\n")
    with two_jobs(tmp_path, "--max-failures", "0") as (first, second):
        first.finish().expect(1)
        assert (tmp_path / "began").read_text().split() == ["+", "-"]
        second.finish().expect(1)


@contextlib.contextmanager
def two_jobs(folder: Path, *words: str) -> Iterator[list[helpers.Program]]:
    """The first has one CPU, and coordinates; the second has four."""
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt", "--join", *words]
    with contextlib.ExitStack() as stack:
        found = []
        for cpus, resources in (("1", "first=1"), ("4", "")):
            env = {"MPI_RUNTIME_NUM_CPUS": cpus, "MPI_RUNTIME_RESOURCES": resources}
            found.append(stack.enter_context(helpers.start_command(command, cwd=folder, env=env)))
            helpers.wait_until(lambda: used_by(str(folder / "batch-jobs")), 60)
        yield found


def test_a_command_that_must_not_start_twice_does_not_after_a_kill(tmp_path: Path) -> None:
    line = "echo x >> began; touch up; sleep 60 #batch rerun=false name=once\n"
    written(tmp_path / "jobs.txt", line + "echo later >> began #batch name=other after=once\n")
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(command, cwd=tmp_path, env=FOUR) as program:
        helpers.wait_until(lambda: (tmp_path / "up").exists(), 60)
        os.kill(program.pid, signal.SIGKILL)
        program.finish().expect(-9)
    again = run_batch("jobs.txt", cwd=tmp_path, env=FOUR).expect(1)
    assert "failed: once: it has started before, nobody knows how it ended" in again.stderr
    assert (tmp_path / "began").read_text() == "x\n"
    written(tmp_path / "jobs.txt", line.replace("sleep 60", "true"))
    run_batch("jobs.txt", cwd=tmp_path, env=FOUR).expect(0)  # it is another command now
    run_batch("jobs.txt", "--only", "once", cwd=tmp_path, env=FOUR).expect(0)
    assert (tmp_path / "began").read_text() == "x\nx\nx\n"


def test_a_command_waits_for_inputs_that_appear_late(tmp_path: Path) -> None:
    written(
        tmp_path / "jobs.txt",
        "sleep 1; echo late > in.txt #batch name=writer\n"
        "cat in.txt #batch inputs=in.txt name=reader\n"
        "cat #batch stdin=in.txt name=stdin\n"
        "cat none #batch inputs=none,in.txt latency_wait=0.3 name=never\n",
    )
    done = run_batch("jobs.txt", cwd=tmp_path, env=FOUR).expect(1)
    assert "failed: never: its input none is not there, 0.3 s (latency_wait) after it could start" in done.stderr
    for name in ("reader", "stdin"):
        assert (tmp_path / "batch-jobs" / f"{name}.out").read_text() == "late\n"


def in_job_of(seconds: float, cpus: int = 2) -> dict[str, str | None]:
    """A job of Slurm as its processes see it, which ends in this time; there is no Slurm to ask."""
    end = str(int(time.time() + seconds))
    own = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_END_TIME": end, "PATH": os.environ["PATH"]}
    return {**own, "MPI_RUNTIME_NUM_CPUS": str(cpus)}


def test_what_is_expected_counts_in_place_of_a_generous_limit(tmp_path: Path) -> None:
    text = "#batch batch_resources=l=1 resources=l=1 time_limit=1h expect=1s grace=1s\necho one\necho two\n"
    done = run_batch(written(tmp_path / "jobs.txt", text), cwd=tmp_path, env=in_job_of(300)).expect(0)
    assert "2 of 2 done" in done.stderr


def test_what_can_end_in_time_runs_although_what_is_offered_before_it_cannot(tmp_path: Path) -> None:
    """The large ones wait for room until it is too late for them. They are much, so the last one was not offered."""
    large = "".join(f"true #batch name=large{n} num_cpus=2 time_limit=35s\n" for n in range(8))
    first = "#batch batch_resources=l=1 grace=1s\nsleep 4 #batch name=first priority=2\n"
    text = first + large + "echo ran #batch name=last num_cpus=2 priority=-1 resources=l=1\n"
    done = run_batch(written(tmp_path / "jobs.txt", text), cwd=tmp_path, env=in_job_of(60)).expect(75)
    assert (tmp_path / "batch-jobs" / "last.out").read_text() == "ran\n"
    assert "2 of 10 done, 8 not run" in done.stderr


def test_paused_commands_of_shared_ones_end_with_the_batch(tmp_path: Path) -> None:
    written(
        tmp_path / "jobs.txt",
        "#batch batch_resources=l=1\n"
        "touch begun; sleep 60 #batch name=first resources=l=1 grace=1s\n"
        "true #batch name=second resources=l=1\n",
    )
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(command, cwd=tmp_path, env=FOUR) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        assert "1 command paused" in run_batch("pause", "jobs", "second", cwd=tmp_path).expect(0).stdout
        program.signal(signal.SIGINT)
        done = program.finish().expect(130)
    assert "Traceback" not in done.stderr
    assert "0 of 2 done, 2 not run" in done.stderr

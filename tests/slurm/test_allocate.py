"""`batch --allocate` on a real Slurm: jobs are submitted while commands wait, whatever happens to jobs and to us."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.slurm.cluster import Cluster

LINE = "echo {n} >> began; sleep {s}; echo {n} >> done\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test has started, also if it fails."""
    with ExitStack() as made:
        yield made


def batch(slurm: Cluster, commands: int, seconds: float, more: str = "") -> Path:
    folder = slurm.directory()
    lines = (LINE.format(n=number, s=seconds) for number in range(commands))
    (folder / "jobs.txt").write_text("".join(lines) + more)
    return folder


class Allocating:
    """The process that submits jobs, on the login host. Its jobs are not its own processes: it may end before them."""

    def __init__(self, slurm: Cluster, folder: Path, *words: str, path: Path | None = None) -> None:
        command = ["mpi-runtime", "batch", "jobs.txt", "--allocate", *words]
        self.log = folder / f"said-{time.monotonic_ns()}"
        env = slurm.environment()
        if path is not None:
            env["PATH"] = f"{path}:{env['PATH']}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                slurm.on_login(command, folder), env=env, stdin=subprocess.DEVNULL, stderr=log
            )

    def __enter__(self) -> Allocating:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        """What it has logged."""
        return self.log.read_text()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def finish(self, code: int = 0, timeout: float = 120.0) -> str:
        """Wait for its end, which must be with this exit code. Return what it has logged."""
        assert self.process.wait(timeout) == code, self.said
        return self.said


def status(slurm: Cluster, folder: Path) -> str:
    return slurm.run("mpi-runtime", "batch", "status", "jobs", cwd=folder).stdout


def counted(folder: Path, name: str) -> Counter[str]:
    path = folder / name
    return Counter(path.read_text().split()) if path.exists() else Counter()


def record(folder: Path) -> dict[str, object]:
    path = folder / "batch-jobs/journal/allocator/record"
    found: dict[str, object] = json.loads(path.read_text()) if path.exists() else {"jobs": []}
    return found


def jobs_of(slurm: Cluster, folder: Path, *states: str) -> list[str]:
    """The jobs of the batch as Slurm has them, in these states."""
    lines = slurm.run("squeue", "-h", "-t", "all", "-o", "%i %T %Z").stdout.splitlines()
    rows = [line.split() for line in lines]
    return [job for job, state, place in rows if place == str(folder) and (not states or state in states)]


def expect_done(folder: Path, commands: int, twice: int = 0) -> None:
    done = counted(folder, "done")
    assert {*done} == {str(number) for number in range(commands)}
    assert sum(done.values()) - commands <= twice
    assert sum(counted(folder, "began").values()) - commands <= twice


@pytest.mark.timeout(240)
def test_work_makes_jobs_and_no_work_ends_them(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 200, 0.5)
    program = stack.enter_context(Allocating(slurm, folder, "max=3,cpus=4,time=5m,idle=20s"))
    wait_until(lambda: "submitted: " in program.said, 60, "the first jobs")
    second = slurm.run("mpi-runtime", "batch", "jobs.txt", "--allocate", "max=9", cwd=folder, code=2).stderr
    assert re.search(r"login \(pid \d+\) submits jobs for this batch already", second), second
    most = 0
    while program.is_running():
        most = max(most, len(jobs_of(slurm, folder, "PENDING", "RUNNING")))
    program.finish()
    assert 2 <= most <= 3
    expect_done(folder, 200)
    wait_until(lambda: not jobs_of(slurm, folder, "PENDING", "RUNNING"), 30, "the end of all jobs")
    shown = status(slurm, folder)
    assert re.search(r"queue   jobs batch-jobs-\w{6}: \d ended", shown), shown


@pytest.mark.timeout(200)
def test_what_a_lost_job_ran_makes_another_job_though_nothing_else_is_left(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 2, 8)
    program = stack.enter_context(Allocating(slurm, folder, "max=1,cpus=2,time=5,partition=fragile"))
    wait_until(lambda: len(counted(folder, "began")) == 2, 90, "both commands")
    wait_until(lambda: "2 running" in status(slurm, folder), 90, "both commands")
    (job,) = jobs_of(slurm, folder, "RUNNING")
    node = slurm.facts(job)["NodeList"]
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    slurm.run("scontrol", "update", f"nodename={node}", "state=resume", code=None)  # it may have come back by itself
    said = program.finish()
    assert "NODE_FAIL" in said
    expect_done(folder, 2, twice=2)
    assert len(jobs_of(slurm, folder)) == 2


@pytest.mark.timeout(200)
def test_a_job_is_found_that_was_submitted_when_its_process_was_killed(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 30, 1)
    wrapper = folder / "bin/sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        '#!/bin/sh\n[ "$1" = --test-only ] && exec /usr/bin/sbatch "$@"\n/usr/bin/sbatch "$@"\nkill -9 $PPID\n'
    )
    wrapper.chmod(0o755)
    words = ["max=1,cpus=2,time=5"]
    program = stack.enter_context(Allocating(slurm, folder, *words, path=wrapper.parent))
    assert program.process.wait(60) != 0
    (job,) = jobs_of(slurm, folder)
    assert record(folder)["jobs"] == [], "it could not be recorded"
    said = stack.enter_context(Allocating(slurm, folder, *words)).finish()
    assert f"job {job} of this batch is found in the queue" in said
    assert jobs_of(slurm, folder) == [job], "no second one"
    expect_done(folder, 30)


@pytest.mark.timeout(200)
def test_a_request_that_was_left_makes_a_job(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 20, 1)
    program = stack.enter_context(Allocating(slurm, folder, "max=1,cpus=2,time=5"))
    wait_until(lambda: counted(folder, "began"), 90, "a command")
    slurm.run("mpi-runtime", "batch", "pause", "jobs", "line-11-20", cwd=folder)
    wait_until(lambda: len(counted(folder, "done")) == 10, 60, "all but those")
    slurm.run("scancel", *jobs_of(slurm, folder, "RUNNING"))
    wait_until(lambda: not jobs_of(slurm, folder, "PENDING", "RUNNING"), 90, "the end of the job")
    resumed = slurm.run("mpi-runtime", "batch", "resume", "jobs", "line-11-20", cwd=folder).stdout
    assert "in the next job that login" in resumed
    program.finish()
    expect_done(folder, 20)
    assert len(jobs_of(slurm, folder)) == 2


@pytest.mark.timeout(200)
def test_a_job_that_waits_is_cancelled_when_the_work_is_gone(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 20, 1, "".join(LINE.format(n=number, s=20) for number in (20, 21)))
    blocker = slurm.sbatch("#!/bin/sh\nsleep 300\n", "-N2", "--exclusive", "-w", "n2,n3")
    try:
        slurm.wait_until_running(blocker)
        program = stack.enter_context(
            Allocating(slurm, folder, "max=5,cpus=2,sbatch=--exclusive,time=5,partition=main")
        )
        wait_until(lambda: jobs_of(slurm, folder, "PENDING") and jobs_of(slurm, folder, "RUNNING"), 60, "the jobs")
        states = r"queue   jobs batch-jobs-\w{6}: 1 running, 4 queued; login \(pid \d+\) submits more"
        wait_until(lambda: re.search(states, status(slurm, folder)), 30, "the status of all")
        wait_until(lambda: "all that is left runs: cancelled" in program.said, 60, "the cancel")
        said = program.finish()
    finally:
        slurm.run("scancel", blocker)
    assert said.count("CANCELLED") == 4
    assert "nothing more is submitted" not in said, "that they were of no use is right"
    expect_done(folder, 22)
    assert len(jobs_of(slurm, folder)) == 5
    wait_until(lambda: not jobs_of(slurm, folder, "PENDING", "RUNNING"), 30, "the end of all jobs")


@pytest.mark.timeout(200)
def test_nothing_more_is_submitted_after_jobs_in_which_nothing_ran(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 5, 1)
    program = stack.enter_context(Allocating(slurm, folder, "max=1,time=2,setup=exit 9"))
    said = program.finish(1)
    assert "3 jobs in a row have ended, and no command has ended in them: nothing more is submitted" in said
    assert "FAILED" in said.split("The last one: ")[1]
    assert len(jobs_of(slurm, folder)) == 3
    shown = status(slurm, folder)
    assert "3 ended; no process submits more: the same line continues" in shown
    assert "nothing more is submitted" in shown
    again = stack.enter_context(Allocating(slurm, folder, "max=1,time=2,idle=5s"))
    again.finish()
    expect_done(folder, 5)


@pytest.mark.timeout(200)
def test_a_refused_submission_is_tried_again_and_ctrl_c_says_what_stays(slurm: Cluster, stack: ExitStack) -> None:
    folder = batch(slurm, 300, 0.5)
    program = stack.enter_context(Allocating(slurm, folder, "max=1,cpus=1,time=5,partition=fragile"))
    wait_until(lambda: counted(folder, "done"), 60, "a command")
    slurm.run("scontrol", "update", "partitionname=fragile", "state=drain")
    try:
        (job,) = jobs_of(slurm, folder, "RUNNING")
        slurm.run("scancel", "--full", "--signal=KILL", job)
        wait_until(lambda: "a job was refused, and is tried again after 5 s" in program.said, 60, "the refusal")
    finally:
        slurm.run("scontrol", "update", "partitionname=fragile", "state=up")
    wait_until(lambda: jobs_of(slurm, folder, "RUNNING"), 60, "the next job")
    program.process.send_signal(signal.SIGINT)
    said = program.finish(130)
    (job,) = jobs_of(slurm, folder, "RUNNING")
    assert "interrupted: 1 jobs run and continue, 0 wait in the queue" in said
    assert f"to end them: scancel {job}" in said
    slurm.run("scancel", job)


def test_what_cannot_be_is_refused_and_a_check_submits_nothing(slurm: Cluster) -> None:
    folder = batch(slurm, 50, 1)
    words = ["mpi-runtime", "batch", "jobs.txt", "--allocate"]
    shown = slurm.run(*words, "max=4,cpus=8,time=1h,sbatch=--comment=x", "--check", cwd=folder).stdout
    assert "50 commands may start at once: 4 jobs would be submitted first, and 4 at a time at most" in shown
    assert "#SBATCH --time=1:00:00" in shown
    assert "#SBATCH --comment=x" in shown
    assert jobs_of(slurm, folder) == []
    for spec, error in (
        ("max=4,node=1", "did you mean 'nodes'"),
        ("max=0", "max must be a whole number of 1 or more"),
        ("max=1,partition=absent", "invalid partition"),
        ("max=1,cpus=0.5", "cpus_per_node must be a whole number"),
        ("max=1,time=1x", "time must be minutes"),
    ):
        assert error in slurm.run(*words, spec, cwd=folder, code=2).stderr
    nowhere = slurm.run(*words, "max=1", "--directory", "jobs.txt/x", cwd=folder, code=2).stderr
    assert "No job was submitted" in nowhere
    (folder / "jobs.txt").write_text("true #batch num_cpus=9\n")
    assert "it needs CPU 9" in slurm.run(*words, "max=1,cpus=8", cwd=folder, code=2).stderr

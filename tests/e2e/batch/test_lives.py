"""A batch in several lives: what has failed stays failed until the batch is finished; what follows keeps its place."""

import contextlib
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.batch.history import submitted
from mpi_runtime.batch.history.batch_history import read_history
from tests import helpers
from tests.e2e.batch.test_elastic import is_joined, members
from tests.e2e.cli.test_batch import run_batch, written

pytestmark = pytest.mark.timeout(240)

GATE = "touch runs; while [ ! -e go ]; do sleep 0.05; done"
"""A command that ends when the file `go` is there."""
CHAIN = f"""
echo a >> log; exit 1 #batch name=a on_failure=continue
echo b >> log #batch name=b after=a
echo c >> log; {GATE} #batch name=c after=b
echo d >> log #batch name=d after=c
echo slow >> log; sleep 60 #batch name=slow time_limit=0.3 grace=0.1
echo bad >> log; exit 1 #batch name=bad retries=1
echo after >> log #batch name=after after=bad
"""


def ran(folder: Path) -> Counter[str]:
    """How often each command has begun."""
    return Counter((folder / "log").read_text().split()) if (folder / "log").exists() else Counter()


def failed(folder: Path) -> set[str]:
    return {*read_history(str(folder / "batch-jobs")).failed()}


def began(folder: Path) -> set[str]:
    """What has begun and not ended, as the journal has it.

    A kill loses what is not in it. There are the ends of all that a command waited for when its begin is there, and the
    begins of all that could begin when it could.
    """
    return {*read_history(str(folder / "batch-jobs")).began}


def ended(folder: Path) -> set[str]:
    """What has ended, as the journal has it."""
    return {*read_history(str(folder / "batch-jobs")).ends}


def live(
    folder: Path,
    until: Callable[[], bool],
    *words: str,
    by: int = signal.SIGKILL,
    jobs: int = 1,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run the batch until something has happened, and end its jobs by a signal."""
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt", *words]
    with contextlib.ExitStack() as stack:
        all_env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": "2", **(env or {})}
        programs = [stack.enter_context(helpers.start_command(line, cwd=folder, env=all_env)) for _ in range(jobs)]
        helpers.wait_until(until, 60)
        for program in programs:
            os.kill(program.pid, by)
        helpers.wait_until(lambda: all(program.process.poll() is not None for program in programs), 60)
        codes = [program.finish().returncode for program in programs]
    expected = {signal.SIGKILL: {-9}, signal.SIGTERM: {75, -15}, signal.SIGINT: {130}}[signal.Signals(by)]
    assert {*codes} <= expected, codes


def run(folder: Path, code: int, *words: str, env: Mapping[str, str] | None = None) -> str:
    env = {"MPI_RUNTIME_NUM_CPUS": "2", **(env or {})}
    return run_batch("jobs.txt", *words, cwd=folder, env=env).expect(code).stderr


@pytest.mark.parametrize(
    ("by", "jobs"),
    [(signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGINT, 1), (signal.SIGKILL, 2), (signal.SIGTERM, 2)],
)
def test_another_life_keeps_what_has_failed_and_all_that_follows(tmp_path: Path, by: int, jobs: int) -> None:
    written(tmp_path / "jobs.txt", CHAIN)
    words = ["--join"] if jobs > 1 else []

    def wanted() -> bool:
        is_kept = ended(tmp_path) == {"a", "b", "slow", "bad"}
        return (tmp_path / "runs").exists() and is_kept and len(members(tmp_path)) in (0, jobs)

    live(tmp_path, wanted, *words, by=by, jobs=jobs)
    once = Counter(a=1, b=1, c=1, slow=1, bad=2)
    assert ran(tmp_path) == once
    status = run_batch("status", "jobs", cwd=tmp_path).expect(1).stdout
    assert "jobs: not running, and not finished; last started" in status
    assert "1 of 7 done, 3 failed, 2 not run, 1 skipped" in status
    (tmp_path / "go").touch()
    said = run(tmp_path, 1, *words)
    assert ran(tmp_path) == once + Counter(c=1, d=1), "it had begun, and what waited for it"
    assert "3 commands failed in earlier runs and will not run again until the batch is finished" in said
    assert "3 of 7 done, 1 of them before, 3 failed, 1 skipped" in said
    assert re.search(r"--- (bad: exit code 1|.*exit code 1; .*\bbad\b)", said), "the report has them too"
    assert "jobs: not running; last started" in run_batch("status", "jobs", cwd=tmp_path).expect(1).stdout
    said = run(tmp_path, 1, *words)
    assert ran(tmp_path) == once + once + Counter(c=1, d=2), "the batch was finished: what has not succeeded runs"
    assert "failed in earlier runs" not in said


def test_a_job_that_takes_the_place_of_the_coordinator_finishes_the_batch(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", CHAIN)
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(line, cwd=tmp_path) as first:
        helpers.wait_until(lambda: (tmp_path / "runs").exists(), 60)
        with helpers.start_command(line, cwd=tmp_path) as second:
            helpers.wait_until(lambda: is_joined(tmp_path, 1) and ended(tmp_path) == {"a", "b", "slow", "bad"}, 60)
            first.process.kill()
            (tmp_path / "go").touch()
            first.finish().expect(-9)
            said = second.finish().expect(1).stderr
    assert "this job takes its place" in said
    assert "3 failed, 1 skipped" in said
    once = Counter(a=1, b=1, d=1, slow=1, bad=2)
    assert ran(tmp_path) - Counter(c=2) == once
    run(tmp_path, 1)
    assert ran(tmp_path) - Counter(c=3) == once + once, "it was finished"


def test_a_signal_to_all_processes_of_a_host_fails_no_command(tmp_path: Path) -> None:
    """As when a host shuts down: the command gets it first."""
    written(tmp_path / "jobs.txt", "echo $$ > shell; touch runs; [ -e again ] || exec sleep 60 #batch name=long\n")
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(line, cwd=tmp_path) as program:
        helpers.wait_until((tmp_path / "runs").exists, 60)
        os.kill(int((tmp_path / "shell").read_text()), signal.SIGTERM)
        program.signal(signal.SIGTERM)
        assert "0 of 1 done, 1 not run" in program.finish().expect(75).stderr
    assert not failed(tmp_path)
    (tmp_path / "again").touch()
    run(tmp_path, 0)


MIXED = f"""
echo x >> log; test -e mended #batch name=x
echo y >> log #batch name=y after=x
echo z >> log; exit 1 #batch name=z
{GATE} #batch name=gate
echo last >> log #batch name=last after=gate
"""


def test_failed_commands_are_retried_on_request_though_the_batch_is_not_finished(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", MIXED)
    live(tmp_path, lambda: (tmp_path / "runs").exists() and failed(tmp_path) == {"x", "z"})
    (tmp_path / "mended").touch()
    assert "2 of 5 done, 1 failed, 2 left out" in run(tmp_path, 1, "--retry-failed")
    assert ran(tmp_path) == Counter(x=2, y=1, z=2)
    (tmp_path / "go").touch()
    assert "4 of 5 done, 2 of them before, 1 failed" in run(tmp_path, 1)
    assert ran(tmp_path) == Counter(x=2, y=1, z=2, last=1), "the others were left out: the batch was not finished"
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(x=2, y=1, z=3, last=1)


def test_one_command_alone_does_not_finish_a_batch(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", MIXED)
    live(tmp_path, lambda: (tmp_path / "runs").exists() and failed(tmp_path) == {"x", "z"})
    run(tmp_path, 1, "--only", "x")
    (tmp_path / "go").touch()
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(x=2, z=1, last=1)
    run(tmp_path, 1, "--only", "x")
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(x=4, z=2, last=1), "it was finished before, and is after"


def test_a_finished_batch_that_runs_again_and_is_killed_halfway_is_unfinished(tmp_path: Path) -> None:
    written(
        tmp_path / "jobs.txt", f"echo p >> log; exit 1 #batch name=p\necho q >> log; {GATE}; exit 1 #batch name=q\n"
    )
    (tmp_path / "go").touch()
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(p=1, q=1)
    (tmp_path / "go").unlink()
    live(tmp_path, lambda: ran(tmp_path) == Counter(p=2, q=2) and began(tmp_path) == {"q"})
    (tmp_path / "go").touch()
    assert "1 command failed in earlier runs" in run(tmp_path, 1)
    assert ran(tmp_path) == Counter(p=2, q=3)
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(p=3, q=4)


@pytest.mark.parametrize(("options", "words"), [("on_failure=stop", []), ("", ["--max-failures", "0"])])
def test_a_failure_that_stops_the_batch_stops_its_next_life(tmp_path: Path, options: str, words: list[str]) -> None:
    text = "echo x >> log; while [ ! -e runs ]; do sleep 0.05; done; exit 1 #batch name=x " + options
    text += "\ntrap '' TERM; touch runs; sleep 60 #batch name=long grace=60s\necho never >> log #batch after=long\n"
    written(tmp_path / "jobs.txt", text)
    live(tmp_path, lambda: failed(tmp_path) == {"x"}, *words)
    assert "stopped: " in run(tmp_path, 1, *words)
    assert ran(tmp_path) == Counter(x=1)
    written(tmp_path / "jobs.txt", text.replace("sleep 60", "exit 0"))
    (tmp_path / "runs").unlink()
    run(tmp_path, 1, *words)
    assert ran(tmp_path)["x"] == 2, "the batch had ended with it: it begins again"


def test_what_a_user_has_cancelled_or_paused_stays_so_in_the_next_life(tmp_path: Path) -> None:
    text = f"{GATE} #batch name=gate\n"
    text += "".join(f"echo {name} >> log #batch name={name} after=gate\n" for name in ("x", "held", "free"))
    written(tmp_path / "jobs.txt", text)

    def wanted() -> bool:
        if not (tmp_path / "runs").exists():
            return False
        run_batch("cancel", "jobs", "x", cwd=tmp_path).expect(0)
        run_batch("pause", "jobs", "held", cwd=tmp_path).expect(0)
        return True

    live(tmp_path, wanted)
    (tmp_path / "go").touch()
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(line, cwd=tmp_path) as program:
        helpers.wait_until(lambda: ran(tmp_path) == Counter(free=1), 60)
        run_batch("resume", "jobs", "held", cwd=tmp_path).expect(0)
        said = program.finish().expect(1).stderr
    assert "because the batch was not finished: 1 cancelled, 1 paused" in said
    assert ran(tmp_path) == Counter(free=1, held=1)
    run(tmp_path, 0)
    assert ran(tmp_path) == Counter(free=1, held=1, x=1), "the same line runs it when the batch is finished"


def test_a_journal_of_an_earlier_version_continues_as_it_did_there(tmp_path: Path) -> None:
    """Two jobs were killed there. Nobody knows whether their batch was finished, so what has failed runs again."""
    earlier = Path(__file__).with_name("earlier")
    shutil.copy(earlier / "jobs.txt", tmp_path)
    shutil.copytree(earlier, tmp_path / "batch-jobs" / "journal", ignore=shutil.ignore_patterns("*.txt"))
    assert failed(tmp_path) == {"a", "x", "c"}
    assert "jobs: not running; last started" in run_batch("status", "jobs", cwd=tmp_path).expect(1).stdout
    live(
        tmp_path,
        lambda: failed(tmp_path) == {"a", "x", "c"} and "gate" in ran(tmp_path) and began(tmp_path) == {"gate"},
    )
    assert ran(tmp_path) == Counter(a=1, b=1, c=1, x=1, gate=1)
    (tmp_path / "go").touch()
    run(tmp_path, 1)
    assert ran(tmp_path) == Counter(a=1, b=1, c=1, x=1, gate=2, last=1), "now it is known"


def test_a_requeued_job_continues_what_its_options_have_begun(tmp_path: Path) -> None:
    """Slurm starts the same line again; its options are for the first life. A user who types it again begins again."""
    written(tmp_path / "jobs.txt", f"echo x >> log; exit 1 #batch name=x on_failure=continue\n{GATE} #batch after=x\n")
    lives = [{"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(number)} for number in range(3)]
    (tmp_path / "go").touch()
    run(tmp_path, 1, env=lives[0])
    count = 1

    def second_runs() -> bool:
        return (tmp_path / "runs").exists() and began(tmp_path) == {"line-2"}

    for words in (["--fresh"], ["--from", "x"], ["--only", "x", "--only", "line-2"], ["--retry-failed"]):
        for name in ("go", "runs"):
            (tmp_path / name).unlink()
        for life in (lives[0], lives[0]):  # typed twice in one allocation
            live(tmp_path, second_runs, *words, env=life)
            (tmp_path / "runs").unlink()
            count += 1
            assert ran(tmp_path) == Counter(x=count), words
        live(tmp_path, second_runs, *words, env=lives[1])
        (tmp_path / "go").touch()
        run(tmp_path, 1, *words, env=lives[2])
        assert ran(tmp_path) == Counter(x=count), words


def test_what_a_full_disk_may_have_cost_runs_again_though_the_batch_is_not_finished(tmp_path: Path) -> None:
    """The disk is full while `bad` ends. Root alone can mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    written(tmp_path / "jobs.txt", f"echo bad >> log; exit 1 #batch name=bad\n{GATE} #batch name=gate\n")
    (tmp_path / "batch-jobs").mkdir()
    script = """
mount -t tmpfs -o size=500k none batch-jobs
"$@" & driver=$!
until [ -e runs ] && grep -q "failed: bad" said; do sleep 0.1; done
kill -9 $driver; wait $driver
mount -o remount,size=10m batch-jobs; touch go
"$@"; echo second: $?
"""
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    shell = ["unshare", "-m", "sh", "-c", f"exec 2> said\n{script}", "sh", *line]
    with helpers.start_command(shell, cwd=tmp_path) as program:
        assert program.finish().stdout == "second: 1\n"
    assert ran(tmp_path) == Counter(bad=2)


TOGETHER = f"""
echo a >> log #batch name=a
echo g >> log; {GATE} #batch name=g priority=1
echo z >> log #batch name=z after=g
"""


def job(number: int, restarts: int = 0) -> dict[str, str]:
    known = {"SLURM_JOB_ID": str(number), "SLURM_RESTART_COUNT": str(restarts), "SLURM_JOB_END_TIME": "9999999999"}
    return {**known, "PATH": os.environ["PATH"], "MPI_RUNTIME_NUM_CPUS": "2"}


@pytest.mark.parametrize("flags", [["--fresh"], ["--from", "a", "--from", "g"]])
@pytest.mark.parametrize(("number", "restarts"), [(8, 0), (9, 1)])
def test_flags_for_one_run_are_followed_once_by_jobs_submitted_together_and_requeued_ones(
    tmp_path: Path, flags: list[str], number: int, restarts: int
) -> None:
    """A job of a second line still has to wait until the first has ended."""
    written(tmp_path / "jobs.txt", TOGETHER)
    (tmp_path / "go").touch()
    run(tmp_path, 0)
    (tmp_path / "go").unlink()
    (tmp_path / "runs").unlink()
    submitted.note(str(tmp_path / "batch-jobs"), ["7", "8"])
    line = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt", *flags]
    with helpers.start_command(line, cwd=tmp_path, env=job(7)) as first:
        helpers.wait_until(lambda: (tmp_path / "runs").exists() and ran(tmp_path)["a"] == 2, 60)
        said = run_batch("jobs.txt", *flags, cwd=tmp_path, env=job(10)).expect(2).stderr
        assert f"a job can join it only without {flags[0]}" in said
        with helpers.start_command(line, cwd=tmp_path, env=job(number, restarts)) as second:
            helpers.wait_until(partial(is_joined, tmp_path, 1), 60)
            (tmp_path / "go").touch()
            first.finish().expect(0)
            second.finish().expect(0)
    assert ran(tmp_path) == Counter(a=2, g=2, z=2)


@pytest.mark.parametrize("flags", [["--fresh"], ["--from", "a"]])
def test_a_job_submitted_with_one_that_was_killed_continues_its_run(tmp_path: Path, flags: list[str]) -> None:
    written(tmp_path / "jobs.txt", TOGETHER)
    submitted.note(str(tmp_path / "batch-jobs"), ["7", "8"])

    def is_kept() -> bool:
        """The end of `a` is in the journal; a kill before that would run it once more."""
        return (tmp_path / "runs").exists() and ran(tmp_path)["a"] == 1 and began(tmp_path) == {"g"}

    live(tmp_path, is_kept, *flags, env=job(7))
    (tmp_path / "go").touch()
    run(tmp_path, 0, *flags, env=job(8))
    assert ran(tmp_path) == Counter(a=1, g=2, z=1)

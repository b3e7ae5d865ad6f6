"""What commands may not do: take memory, flood their output, run beside themselves; and the end of the time."""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.run import program
from tests import helpers
from tests.e2e.batch.test_python import output_of
from tests.e2e.cli.test_batch import run_batch, written

HOLD = """
import os, sys, time
print(os.getpid(), file=open("pids", "a"), flush=True)
held = b"1" * 100_000_000
time.sleep(int(sys.argv[1]))
"""


def test_a_command_that_takes_more_memory_or_writes_more_than_it_may_is_ended() -> None:
    """All its processes count, and all of them are ended; what stays below its limits is not."""
    assert output_of(
        """
ray.init(num_cpus=2)
open("hold.py", "w").write("""
        + repr(HOLD)
        + """)

def run(text, **options):
    result = ray.get(batch.command(text, on_failure="continue", retries=3, grace=0.2, **options))
    print(result.is_success, result.attempts, result.problem.partition(", and ")[2])
    return result

run("setsid python3 hold.py 1000 & python3 hold.py 1000; wait", memory="150MB")
print([pid for pid in open("pids").read().split() if os.path.exists(f"/proc/{pid}")])
run("python3 hold.py 1", memory="250MB")
print(os.path.getsize(run("while :; do echo flood; done", output_limit=1_000_000).stdout) >= 1_000_000)
run("head -c 3000000 /dev/zero", output_limit=1_000_000)
run("head -c 1000000 /dev/zero", output_limit=1_000_000)
"""
    ) == [
        "False 1 its memory is 143 MiB",
        "[]",
        "True 1 ",
        "False 1 its output_limit is 977 KiB",
        "True",
        "False 1 its output_limit is 977 KiB",
        "True 1 ",
    ]


@pytest.mark.timeout(120)
def test_a_generous_limit_keeps_no_short_job_idle_where_less_is_expected(tmp_path: Path) -> None:
    """The limit kills all the same."""
    env = {"SLURM_JOB_ID": "5", "SLURM_JOB_END_TIME": str(int(time.time() + 300)), "PATH": os.environ["PATH"]}
    text = """#batch expect=1s grace=1s
    sleep 0.1 #batch name=short time_limit=1h
    sleep 1000 #batch name=long time_limit=2s
    echo never #batch name=other expect=1h time_limit=2s
    """
    words = [written(tmp_path / "jobs.txt", text), "--directory", "out"]
    done = run_batch(*words, cwd=tmp_path, env=env).expect(75)
    assert "failed: long: it ran longer than its time limit of 2 s" in done.stderr
    assert "nothing that is left can end before the job does: command may take 1 h 00 min" in done.stderr
    assert "1 of 3 done" in done.stderr


@pytest.mark.timeout(120)
def test_what_commands_took_counts_more_than_a_limit_that_they_never_need(tmp_path: Path) -> None:
    """35 of the job's 60 s may be used, and by the limit nothing would start after 10 s."""
    env = {"SLURM_JOB_ID": "5", "SLURM_JOB_END_TIME": str(int(time.time() + 60)), "PATH": os.environ["PATH"]}
    file = written(tmp_path / "jobs.txt", "sleep 0.5\n" * 60)
    words = [file, "--directory", "out", "--time-limit", "20s", "--num-cpus", "1"]
    done = run_batch(*words, cwd=tmp_path, env={**env, "MPI_RUNTIME_NUM_CPUS": "2"}).expect(0)
    assert "60 of 60 done" in done.stderr


def test_a_command_has_the_shell_that_it_names(tmp_path: Path) -> None:
    """By name or path, in the file, for one command or on the command line; with a cwd too."""
    text = """#batch shell=bash
    if [[ a == a* ]]; then echo $0; fi; test $0 = bash || test $0 = $(command -v bash) #batch name=named
    echo $0 #batch shell=/bin/sh name=path
    diff <(echo a) <(echo a) && echo same #batch cwd=/tmp name=elsewhere
    echo $0 #batch shell=/no/shell name=missing
    echo $0 #batch shell=no-such-shell name=unknown
    """
    words = [written(tmp_path / "jobs.txt", text), "--directory", "out", "--shell", "no-such-shell"]
    done = run_batch(*words, cwd=tmp_path).expect(1)
    out = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.out")}
    assert (out["path"], out["elsewhere"]) == ("/bin/sh\n", "same\n")
    assert "failed: missing: it could not be started: No such file or directory (/no/shell)" in done.stderr
    assert "its shell 'no-such-shell' is not in the PATH of this host" in done.stderr
    assert "failed: named" not in done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_in_the_place_of_an_output_is_written_through(kind: str, tmp_path: Path) -> None:
    """Else another user of a shared directory would choose the file that is overwritten, or stop the batch."""
    victim, output = tmp_path / "victim", tmp_path / "batch-commands" / "line-1.out"
    victim.write_text("precious")
    output.parent.mkdir()
    if kind == "link":
        output.symlink_to(victim)
    else:
        os.mkfifo(output)
    done = run_batch(written(tmp_path / "commands.txt", "echo one\necho two\n"), cwd=tmp_path)
    assert "line-1: it could not be started" in done.stderr
    assert "1 of 2 done, 1 failed" in done.stderr
    assert victim.read_text() == "precious"


def test_a_command_waits_for_the_processes_of_its_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.out"
    path.write_text("of the earlier run")
    out = str(path)

    def run(is_own: bool) -> program.Ending:
        return program.run_program(Command(text="echo new", stdout=out, stderr=out), os.environ, (), is_own)

    monkeypatch.setattr(program, "LOCK_LIMIT_S", 0.1)
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ending = run(True)
        assert "a process of an earlier run of it still has" in ending.problem
        assert path.read_text() == "of the earlier run", "it may still write there"
        assert run(False).exit_code == 0, "an output of others is not waited for"
    assert run(True).exit_code == 0
    assert path.read_text() == "new\n"
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert run(True).exit_code == 0


def test_the_time_for_which_a_job_is_suspended_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 0.0, 0

    def has_ended(pid: int, limit_s: float) -> bool:
        nonlocal now, looks
        now, looks = now + limit_s + (1000.0 if looks == 2 else 0.0), looks + 1
        return False

    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(program, "_has_ended", has_ended)
    monkeypatch.setattr(program, "_end", lambda pid, grace: None)
    assert program._wait(1, 10.5, 5.0, None) == "it ran longer than its time limit of 10.5 s"
    assert now == 1010.5


def no_locks(descriptor: int, operation: int) -> None:
    raise OSError(38, "Function not implemented")


def test_a_batch_that_is_told_to_end_does_so_in_order_and_says_that_something_is_left(tmp_path: Path) -> None:
    # The pause is for the process that has started it: one that is interrupted while it does so gives no grace.
    long = "trap 'echo saved; exit 9' TERM; sleep 1; touch begun; sleep 1000 & wait"
    file = written(tmp_path / "jobs.txt", f"true\n{long}\necho #batch after=line-2\n")
    with helpers.start_command([sys.executable, "-m", "mpi_runtime", "batch", file], cwd=tmp_path) as command:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        command.signal(signal.SIGTERM)
        done = command.finish().expect(75)
    assert "SIGTERM or the end of the job's time: ending what runs" in done.stderr
    assert "1 of 3 done, 2 not run" in done.stderr
    assert (tmp_path / "batch-jobs" / "line-2.out").read_text() == "saved\n"
    assert "1 of 3 done, 2 not run" in run_batch("status", "jobs", cwd=tmp_path).expect(0).stdout


def test_a_batch_system_that_ends_all_processes_of_a_job_has_failed_no_command(tmp_path: Path) -> None:
    """Commands may end before the batch has its own signal. The job is queued again only for what is left."""
    file = written(tmp_path / "jobs.txt", "echo $$ > begun; exec sleep 1000 #batch on_failure=stop\n")
    command = [sys.executable, "-m", "mpi_runtime", "batch", file]
    with helpers.start_command(command, env={"LSB_JOBID": "1"}, cwd=tmp_path) as program:
        helpers.wait_until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text().strip(), 60)
        os.kill(int((tmp_path / "begun").read_text()), signal.SIGTERM)
        program.signal(signal.SIGTERM)
        done = program.finish().expect(75)
    assert "failed" not in done.stderr
    assert "0 of 1 done, 1 not run" in done.stderr

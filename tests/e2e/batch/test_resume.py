"""A batch that goes on: what was done stays done whatever was killed; what is named, changed or has failed is run."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.batch.history.batch_history import read_history
from tests import helpers
from tests.e2e.cli.test_batch import run_batch, written

PLACES = """
    [[task]]
    name = "first"
    command = "echo {i} >> first; test {i} != 1 -o -e mended"
    product = { i = [0, 1] }
    [[task]]
    name = "second"
    command = "echo {x} >> second"
    zip = { x = ["a", "b"] }
    after = ["first"]
    [[task]]
    name = "other"
    command = "cat >> other"
    stdin = "input"
"""


def counts(folder: Path) -> dict[str, int]:
    return {
        name: len((folder / name).read_text().splitlines()) if (folder / name).exists() else 0
        for name in ("first", "second", "other")
    }


def test_bytes_that_are_not_utf_8_reach_the_shell(tmp_path: Path) -> None:
    """As names of files from an older system have them: in the list, in a rerun, in what is shown, and added later."""
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).write_text("text\n")
    (tmp_path / "jobs.txt").write_bytes(b"cat caf\xe9 >> copy-\xe9\necho \xc3\xa9 > letter\ntest -e mended-\xfc\n")
    done = run_batch("jobs.txt", cwd=tmp_path).expect(1)
    assert r"    test -e mended-\xfc" in done.stderr.splitlines()
    assert (tmp_path / os.fsdecode(b"copy-\xe9")).read_text() == "text\n"
    assert (tmp_path / "letter").read_bytes() == b"\xc3\xa9\n"
    assert "1 failed" in run_batch("status", "jobs", cwd=tmp_path).expect(1).stdout
    run_batch("report", "jobs", cwd=tmp_path).expect(0)
    assert r"test -e mended-\\xfc" in (tmp_path / "jobs.html").read_text()
    (tmp_path / os.fsdecode(b"mended-\xfc")).touch()
    assert "3 of 3 done, 2 of them before" in run_batch("jobs.txt", cwd=tmp_path).expect(0).stderr
    assert (tmp_path / os.fsdecode(b"copy-\xe9")).read_text() == "text\n", "it has not run again"
    (tmp_path / "jobs.txt").write_bytes(b"cat caf\xe9  >> copy-\xe9\necho \xc3\xa9 > letter\ntest -e mended-\xfd\n")
    checked = run_batch("jobs.txt", "--check", cwd=tmp_path).expect(0)
    assert "2 done" in checked.stdout + checked.stderr
    command = [sys.executable, "-m", "mpi_runtime", "batch", "--form", "lines", "-", "--directory", "piped"]
    subprocess.run(command, input=b"cp caf\xe9 piped-\xe9\n", cwd=tmp_path, timeout=100, check=True)
    assert (tmp_path / os.fsdecode(b"piped-\xe9")).exists()


@pytest.mark.parametrize(
    "environment", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C"}]
)
def test_commands_are_utf_8_in_each_locale(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "jobs.txt").write_text("echo é > letter\n")
    run_batch("jobs.txt", cwd=tmp_path, env={**os.environ, **environment}).expect(0)
    assert (tmp_path / "letter").read_text() == "é\n"


def test_the_same_line_does_what_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.toml", PLACES)
    (tmp_path / "input").write_text("line\n")

    def run(code: int, *words: str) -> str:
        return run_batch(file, *words, cwd=tmp_path).expect(code).stderr

    assert "2 of 5 done, 1 failed, 2 skipped" in run(1)
    assert counts(tmp_path) == {"first": 2, "second": 0, "other": 1}
    (tmp_path / "mended").touch()
    assert "5 of 5 done, 2 of them before" in run(0), "what has failed and what was skipped is missing"
    assert counts(tmp_path) == {"first": 3, "second": 2, "other": 1}
    assert "5 of 5 done, 5 of them before" in run(0)
    assert counts(tmp_path) == {"first": 3, "second": 2, "other": 1}
    run(0, "--only", "first.0")
    assert counts(tmp_path) == {"first": 4, "second": 2, "other": 1}
    assert "5 of 5 done, 3 of them before" in run(0), "second comes after a first that was run again"
    assert counts(tmp_path) == {"first": 4, "second": 4, "other": 1}
    run(0, "--from", "first.1")
    assert counts(tmp_path) == {"first": 5, "second": 6, "other": 1}
    (tmp_path / "input").write_text("line\nother line\n")
    run(0)
    assert counts(tmp_path) == {"first": 5, "second": 6, "other": 3}, "its input has changed"
    written(tmp_path / "jobs.toml", PLACES.replace("[0, 1]", "[0, 2]").replace('["a", "b"]', '["a", "b", "c"]'))
    run(0)
    assert counts(tmp_path) == {"first": 6, "second": 9, "other": 3}, "a changed command, and all after it"
    run(0, "--fresh")
    assert counts(tmp_path) == {"first": 8, "second": 12, "other": 5}


def test_only_what_has_failed_and_what_comes_after_it(tmp_path: Path) -> None:
    text = "true #batch name=well\ntest -e mended #batch name=bad\necho >> after #batch after=bad\n"
    file = written(tmp_path / "jobs.txt", text)
    run_batch(file, cwd=tmp_path).expect(1)
    written(tmp_path / "jobs.txt", text + "echo >> never\n")
    (tmp_path / "mended").touch()
    done = run_batch(file, "--retry-failed", cwd=tmp_path).expect(0)
    assert "3 of 4 done, 1 of them before, 1 left out" in done.stderr
    assert (tmp_path / "after").exists()
    assert not (tmp_path / "never").exists()
    wrong = run_batch(file, "--only", "wel", cwd=tmp_path).expect(2)
    assert "there is no command or array 'wel'; did you mean 'well'?" in wrong.stderr


@pytest.mark.mpi
def test_a_rerun_says_first_what_it_repeats_and_a_blank_is_no_change(tmp_path: Path) -> None:
    lines = [f"echo  {number} >> ran" for number in range(12)]
    file = written(tmp_path / "jobs.txt", "\n".join(lines))
    run_batch(file, cwd=tmp_path).expect(0)

    def rerun(change: tuple[str, str], *words: str) -> tuple[str, int]:
        (tmp_path / "ran").unlink(missing_ok=True)
        written(tmp_path / "jobs.txt", "\n".join(one.replace(*change) for one in lines))
        said = run_batch(file, *words, cwd=tmp_path).expect(0)
        count = len((tmp_path / "ran").read_text().splitlines()) if (tmp_path / "ran").exists() else 0
        return said.stdout + said.stderr, count

    said, count = rerun(("echo  ", "echo "))
    assert (count, "changed" in said) == (0, False)
    shown = "of the commands that are done, 12 run again, because they have changed since: line-1, line-2, line-3 and 9"
    said, count = rerun((">>", "2>&1 >>"), "--check")
    assert (count, shown in said, "12 commands: 12 done and changed since" in said) == (0, True, True)
    said, count = rerun((">>", "2>&1 >>"), "--keep-done")
    assert (count, "12 stay done, though they have changed since" in said) == (0, True)
    said, count = rerun((">>", "2>&1 >>"))
    assert (count, shown in said, "--keep-done keeps what is done" in said) == (12, True, True)
    (tmp_path / "ran").unlink()
    written(tmp_path / "jobs.txt", "echo new\n" + "\n".join(one.replace(">>", "2>&1 >>") for one in lines))
    moved = run_batch(file, "--keep-done", cwd=tmp_path).expect(2).stderr
    assert "line-2, line-3, line-4 and 8 more are other commands now" in moved
    assert not (tmp_path / "ran").exists()


def test_what_is_named_is_run_on_ranks_too(tmp_path: Path) -> None:
    text = "echo >> well #batch name=well\ntest -e mended #batch name=bad\necho >> after #batch after=bad name=next\n"
    file = written(tmp_path / "jobs.txt", text)

    def run(code: int, *words: str) -> str:
        return run_batch("-n", "2", file, *words, cwd=tmp_path).expect(code).stderr

    assert "1 of 3 done, 1 failed, 1 skipped" in run(1)
    assert "1 of 3 done, 1 of them before, 1 failed, 1 skipped" in run(1, "--retry-failed")
    (tmp_path / "mended").touch()
    assert "3 of 3 done, 1 of them before" in run(0, "--from", "bad")
    assert "there is no command or array 'nope'" in run(2, "--only", "nope")
    assert (tmp_path / "well").read_text() == (tmp_path / "after").read_text() == "\n"


def test_a_journal_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.txt", "true\n")
    folder = tmp_path / "batch-jobs"
    folder.mkdir()
    (folder / "journal").write_text("")
    assert "the journal batch-jobs/journal cannot be used" in run_batch(file, cwd=tmp_path).expect(2).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("size", ["300k", "48k"])
def test_a_full_disk_is_named_and_what_it_cost_is_run_again(tmp_path: Path, size: str) -> None:
    """Commands fail as they do without us; the batch ends if what it has done itself cannot be written down."""
    file = written(tmp_path / "jobs.txt", "seq 8000\n" * 12)
    (tmp_path / "batch-jobs").mkdir()
    script = f"""
mount -t tmpfs -o size={size} none batch-jobs
"$@"; echo first: $?
mount -o remount,size=10m batch-jobs
"$@"; echo second: $?
cat batch-jobs/*.out | wc -l
"""
    batch = [sys.executable, "-m", "mpi_runtime", "batch", file]
    with helpers.start_command(["unshare", "-m", "sh", "-c", script, "sh", *batch], cwd=tmp_path) as program:
        done = program.finish().expect(0)
    first, *rest = done.stdout.splitlines()
    assert rest == ["second: 0", "96000"]
    whys = {
        "first: 1": "is full: they may have failed for want of room",
        "first: 2": "cannot be written: No space left",
    }
    assert whys[first] in done.stderr


def test_commands_of_a_program_are_in_the_journal_of_its_job(tmp_path: Path) -> None:
    source = """
import sys
import mpi_runtime as ray
from mpi_runtime import batch

ray.init(num_cpus=1, journal=sys.argv[1])
first = batch.command("echo {i} >> ran", i=1)
print(ray.get(batch.command("cat ran; echo >> ran", after=[first])).is_success)
"""
    for _ in range(2):
        assert helpers.run_program(source, str(tmp_path / "journal"), cwd=tmp_path).expect(0).stdout == "True\n"
    assert (tmp_path / "ran").read_text() == "1\n\n"


FULL = """
import os, runpy, sys
from mpi_runtime.batch.history.journal import BatchJournal

turn = BatchJournal.turn

def until_it_is_full(memory):
    if memory._file.tell() > 80_000:
        raise OSError(28, os.strerror(28))
    turn(memory)

BatchJournal.turn = until_it_is_full
sys.argv.insert(1, "batch")
runpy.run_module("mpi_runtime", run_name="__main__")
"""


def test_a_full_disk_ends_the_batch_and_the_same_line_goes_on(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.txt", "".join(f"echo {number} >> done\n" for number in range(300)))
    done = helpers.run_program(FULL, file, cwd=tmp_path).expect(2)
    assert "cannot be written: No space left on device. Running commands were ended." in done.stderr
    known = [name for name, ended in read_history(str(tmp_path / "batch-jobs")).ends.items() if ended.result.is_success]
    assert known
    done = run_batch(file, cwd=tmp_path).expect(0)
    assert f"{len(known)} commands were done by earlier runs" in done.stderr


def killed_again_and_again(folder: Path, count: int, pause_s: float, seed: int) -> tuple[int, int]:
    """Run a batch whose processes are killed at random until it ends well; returns how many kills and runs that took.

    Each command adds a line to a file. What was reported as done has its line, and never gets a second one. The next
    run begins while processes of the one before may still be there.
    """
    rng = random.Random(seed)
    file = written(folder / "jobs.txt", "".join(f"sleep 0.02; echo {number} >> done\n" for number in range(count)))
    command = [sys.executable, "-m", "mpi_runtime", "batch", file]
    kills = runs = 0
    reported: dict[str, int] = {}
    before: helpers.Program | None = None  # the run that was killed last
    while True:
        program = helpers.start_command(command, cwd=folder)
        runs += 1
        kills += _kill_until_it_ends(program, rng, pause_s, folder / "done")
        if before is not None:
            helpers.wait_until(partial(_is_gone, before), 60)
            before.finish()
        lines = _lines(folder)
        for name, ended in read_history(str(folder / "batch-jobs")).ends.items():
            number = str(int(name.removeprefix("line-")) - 1)
            if ended.result.is_success:
                assert lines[number] >= 1, f"{name} is reported as done, and has not run"
                assert lines[number] == reported.setdefault(number, lines[number]), f"{name} was run again"
        if program.process.returncode == 0:
            program.finish()
            break
        before = program
    lines = _lines(folder)
    assert sorted(lines, key=int) == [str(number) for number in range(count)]
    assert reported == lines
    return kills, runs


def _is_gone(program: helpers.Program) -> bool:
    return not program.processes()


def _lines(folder: Path) -> dict[str, int]:
    return Counter((folder / "done").read_text().split()) if (folder / "done").exists() else Counter()


def _kill_until_it_ends(program: helpers.Program, rng: random.Random, pause_s: float, file: Path) -> int:
    """Kill a process of it, the driver or any other, after each pause once a command has run; how often."""
    kills = 0
    size = file.stat().st_size if file.exists() else 0
    while program.process.poll() is None and (file.stat().st_size if file.exists() else 0) == size:
        time.sleep(0.02)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.process.wait(pause_s)
            return kills
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice([program.pid, *program.processes()]), signal.SIGKILL)
            kills += 1


def test_each_command_is_done_and_none_is_done_again_whatever_is_killed(tmp_path: Path) -> None:
    kills, runs = killed_again_and_again(tmp_path, 250, 0.7, seed=1)
    assert kills >= 1
    assert runs >= 2


if __name__ == "__main__":  # the whole of it: 5 000 commands, a kill every two seconds
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = killed_again_and_again(Path(folder), 5000, 2.0, seed=int(sys.argv[1]) if sys.argv[1:] else 1)
    print(f"5000 commands: {found[0]} kills, {found[1]} runs, {time.monotonic() - begin_s:.0f} s")


def test_a_batch_that_loses_its_scheduler_or_its_directory_ends_in_words(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", "rm -r batch-jobs; sleep 60\n")
    said = run_batch("jobs.txt", cwd=tmp_path).expect(2).stderr
    assert "cannot be written: No such file or directory" in said
    assert "See that it is there and may be written" in said
    written(tmp_path / "jobs.txt", "touch begun; sleep 60\n")
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with helpers.start_command(command, cwd=tmp_path) as program:
        helpers.wait_until((tmp_path / "begun").exists, 60)
        head = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text())
        os.kill(head, signal.SIGKILL)
        said = program.finish().expect(2).stderr
    assert "was killed by signal 9" in said
    assert said.endswith("Run the same line again: it continues\n")
    assert "Traceback" not in said

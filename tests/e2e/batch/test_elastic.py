"""Several jobs run one batch: each command is done, none again after its end was recorded, whatever is killed."""

import contextlib
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.batch.elastic import files
from mpi_runtime.batch.elastic.records import ENTRIES, Closed, Entry, Offer
from mpi_runtime.batch.file.parse import read_batch
from mpi_runtime.batch.history.batch_history import Planning, read_history
from mpi_runtime.batch.history.journal import BatchJournal
from mpi_runtime.batch.run.coordinator_run import work_of
from mpi_runtime.files.segments import bodies_in, frame
from tests import helpers
from tests.e2e.cli.test_batch import run_batch, written

pytestmark = pytest.mark.timeout(240)


def commands(count: int) -> str:
    return "".join(f"echo {number} >> began; sleep 0.1; echo {number} >> done\n" for number in range(count))


@contextlib.contextmanager
def jobs(folder: Path, count: int, *words: str) -> Iterator[list[helpers.Program]]:
    """Start jobs of one batch: each when the one before has begun, so that the first one coordinates."""
    env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": "2"}
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt", *words]
            program = stack.enter_context(helpers.start_command(command, cwd=folder, env=env))
            found.append(program)
            helpers.wait_until(lambda: (folder / "began").exists(), 60)
            if number:
                helpers.wait_until(partial(is_joined, folder, number), 60)
        yield found


def members(folder: Path) -> list[str]:
    """The jobs that take part: as soon as there are two, the coordinator is one of them."""
    return [one.job for one in files.statuses(folder / "batch-jobs" / "journal")]


def is_joined(folder: Path, number: int) -> bool:
    return len(members(folder)) > number


def is_shared(folder: Path) -> bool:
    """Whether a member has done something: the first job no longer has all commands in its own scheduler."""
    return any(run.ended for run in read_history(str(folder / "batch-jobs")).runs[1:])


def lines(folder: Path, name: str) -> Counter[str]:
    return Counter((folder / name).read_text().split()) if (folder / name).exists() else Counter()


class Watcher:
    """Notes how often each command had begun when its end was first seen recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: dict[str, int] = {}

    def look(self) -> int:
        history = read_history(str(self.folder / "batch-jobs"))
        began = lines(self.folder, "began")
        for name, ended in history.ends.items():
            if ended.result.is_success:
                number = str(int(name.removeprefix("line-")) - 1)
                self.begun.setdefault(number, began[number])
        return len(self.begun)

    def judge(self, count: int, again: int = 0) -> None:
        """Check the end; `again`: how many may have begun again after their end."""
        done, began = lines(self.folder, "done"), lines(self.folder, "began")
        assert sorted(done, key=int) == [str(number) for number in range(count)], "each is done"
        assert self.look() == count, "and recorded"
        more = {name: began[name] - self.begun[name] for name in began if began[name] != self.begun[name]}
        assert sum(more.values()) <= again, f"{more} begin again after that"


def test_two_jobs_share_a_batch(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", commands(150))
    with jobs(tmp_path, 2) as programs:
        status = run_batch("status", "jobs", cwd=tmp_path).expect(0).stdout
        assert "run by 2 jobs since" in status, status
        first, second = (program.finish().expect(0) for program in programs)
    assert "another job has joined: the commands are shared" in first.stderr
    assert "150 of 150 done" in first.stderr
    assert "this job joins it" in second.stderr
    assert lines(tmp_path, "began") == lines(tmp_path, "done") == {str(number): 1 for number in range(150)}
    runs = read_history(str(tmp_path / "batch-jobs")).runs
    assert [run.role for run in runs] == ["mpi-runtime batch", "mpi-runtime batch member"]
    assert sum(run.ended for run in runs) == 150
    assert min(run.ended for run in runs) > 10, "both have done a part"
    again = run_batch("jobs.txt", cwd=tmp_path).expect(0)
    assert "150 commands were done by earlier runs" in again.stderr


def test_commands_that_turn_out_to_be_short_are_offered_as_such(tmp_path: Path) -> None:
    """With --join all are offered before one is measured: each would count as the second that is assumed then."""
    written(tmp_path / "jobs.txt", "true\n" * 100)
    run_batch("jobs.txt", "--join", "--ranks", "1", cwd=tmp_path, env={"MPI_RUNTIME_NUM_CPUS": "2"}).expect(0)
    entries, _ = bodies_in((tmp_path / "batch-jobs" / "journal" / "offers-1").read_bytes(), ENTRIES)
    offered = [[work.seconds for work in entry.works] for entry in entries if isinstance(entry, Offer)]
    assert offered[0][0] == 1.0
    assert max(offered[-1]) < 1.0, offered


def kill_a_member(programs: list[helpers.Program]) -> int:
    os.kill(programs[-1].pid, signal.SIGKILL)
    return len(programs) - 1


def kill_the_coordinator(programs: list[helpers.Program]) -> int:
    os.kill(programs[0].pid, signal.SIGKILL)
    return 0


@pytest.mark.parametrize("strike", [kill_a_member, kill_the_coordinator])
def test_a_job_is_killed_and_the_others_do_its_part(
    tmp_path: Path, strike: Callable[[list[helpers.Program]], int]
) -> None:
    written(tmp_path / "jobs.txt", commands(500))
    watcher = Watcher(tmp_path)
    with jobs(tmp_path, 4) as programs:
        helpers.wait_until(lambda: watcher.look() > 30, 60)
        killed = strike(programs)
        while any(program.process.poll() is None for program in programs):
            watcher.look()
        for number, program in enumerate(programs):
            program.finish().expect(0 if number != killed else -9)
    watcher.judge(500)


def test_a_coordinator_that_stood_still_joins_the_batch_again(tmp_path: Path) -> None:
    """Its scheduler runs on meanwhile. Both jobs may run a few commands: one ends them just when the other begins."""
    written(tmp_path / "jobs.txt", commands(600))
    watcher = Watcher(tmp_path)
    with jobs(tmp_path, 2) as (first, second):
        helpers.wait_until(lambda: watcher.look() > 30 and is_shared(tmp_path), 60)
        os.kill(first.pid, signal.SIGSTOP)
        second.wait_for_line("the coordinator of the batch is gone: this job takes its place", 60)
        helpers.wait_until(lambda: watcher.look() > 250, 90)
        os.kill(first.pid, signal.SIGCONT)
        while second.process.poll() is None or first.process.poll() is None:
            watcher.look()
        stopped = first.finish().expect(0)
        second.finish().expect(0)
    assert "another job coordinates the batch now" in stopped.stderr
    watcher.judge(600, again=8)


def test_a_command_that_is_offered_again_while_it_runs_runs_once_more_after_it(tmp_path: Path) -> None:
    """As by a coordinator that does not know of the first offer. This process is the coordinator."""
    written(tmp_path / "jobs.txt", "echo 1 >> began; while [ ! -e go ]; do sleep 0.1; done")
    groups, _ = read_batch((tmp_path / "jobs.txt").read_text(), "lines", {}, "")
    command = groups[0].commands[0]
    with contextlib.closing(BatchJournal(str(tmp_path / "batch-jobs"))) as journal:
        journal.plan(Planning(groups))
        journal.turn()
        own = files.JobFiles(journal.path, "1" * 16, lambda bodies: [])
        own.epoch = journal.epoch

        def write(entry: Entry) -> None:
            own.write_offers(journal.published, frame(entry))
            journal.published += len(frame(entry))

        def is_so(condition: Callable[[], object]) -> None:
            def asked() -> object:
                journal.turn()
                return condition()

            helpers.wait_until(asked, 60)

        words = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
        env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": "2"}
        with helpers.start_command(words, cwd=tmp_path, env=env) as program:
            is_so(lambda: files.statuses(journal.path))
            (member,) = files.statuses(journal.path)
            for number in (1, 2):
                write(Offer(f"1-{number}", member.token, (work_of(command, number, b"key", 1.0, 0),)))
                is_so((journal.path / files.TAKEN / f"1-{number}").exists)
                is_so((tmp_path / "began").exists)
            (tmp_path / "go").touch()
            is_so(lambda: [ended.number for ended in read_history(str(tmp_path / "batch-jobs")).all_ends] == [1, 2])
            write(Closed(0))
            is_so(lambda: program.process.poll() is not None)
            assert "2 commands were done by this job" in program.finish().expect(0).stderr
        own.close()
    assert lines(tmp_path, "began") == {"1": 2}


def test_jobs_say_that_their_directory_is_gone(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", commands(300))
    with jobs(tmp_path, 2, "--idle-timeout", "6") as (first, second):
        (tmp_path / "batch-jobs").rename(tmp_path / "elsewhere")
        helpers.wait_until(lambda: None not in (first.process.poll(), second.process.poll()), 90)
        assert "the journal or the outputs in batch-jobs cannot be written" in first.finish().expect(2).stderr
        left = second.finish().expect(1).stderr
    problem = "the files of the batch cannot be used: No such file or directory (batch-jobs/journal)"
    assert left.count(problem) >= 2, "while it lasts, and at the end"
    assert "nothing to do for 6 s, and the files of the batch" in left
    assert "differs from the batch" not in left
    shutil.rmtree(tmp_path / "batch-jobs", ignore_errors=True)  # made for the output of commands that still began
    (tmp_path / "elsewhere").rename(tmp_path / "batch-jobs")
    run_batch("jobs.txt", cwd=tmp_path).expect(0)
    assert sorted(lines(tmp_path, "done"), key=int) == [str(number) for number in range(300)]


def test_a_job_can_only_join_a_batch_as_it_is(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", "touch began; while [ ! -e go ]; do sleep 0.1; done\n")
    with jobs(tmp_path, 1) as (program,):
        refused = run_batch("jobs.txt", "--fresh", cwd=tmp_path).expect(2).stderr
        assert "a job can join it only without --fresh" in refused
        left = run_batch("jobs.txt", "--idle-timeout", "0.5", cwd=tmp_path).expect(0).stderr
        assert "nothing to do for 0.5 s: this job leaves the batch" in left
        with (tmp_path / "jobs.txt").open("a") as file:
            file.write("touch more\ntrue\n")
        left = run_batch("jobs.txt", "--idle-timeout", "0.5", cwd=tmp_path).expect(1).stderr
        assert "jobs.txt differs from the batch that this job has joined: line-2 and 1 more are new or changed" in left
        (tmp_path / "go").touch()
        program.finish().expect(0)
    assert not (tmp_path / "more").exists()


def test_what_fits_no_job_waits_for_one_with_room(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", "echo 1 >> began\necho large >> began #batch num_cpus=4\n")
    with jobs(tmp_path, 1, "--join") as (small,):
        env = {**os.environ, "MPI_RUNTIME_NUM_CPUS": "4"}
        large = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
        with helpers.start_command(large, cwd=tmp_path, env=env) as program:
            assert "1 command was done by this job" in program.finish().expect(0).stderr
        small.finish().expect(0)
    assert lines(tmp_path, "began") == {"1": 1, "large": 1}
    written(tmp_path / "jobs.txt", "true #batch num_cpus=4 name=four\n")
    words = ["jobs.txt", "--join", "--fresh", "--idle-timeout", "1"]
    left = run_batch(*words, cwd=tmp_path, env={**os.environ, "MPI_RUNTIME_NUM_CPUS": "2"}).expect(75)
    assert "no job can run what is left: four needs 4 CPU, which no node of a job has" in left.stderr


def test_jobs_that_start_at_the_same_time_share_a_batch(tmp_path: Path) -> None:
    written(tmp_path / "jobs.txt", commands(100))
    command = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(helpers.start_command(command, cwd=tmp_path)) for _ in range(3)]
        for program in programs:
            program.finish().expect(0)
    assert lines(tmp_path, "began") == lines(tmp_path, "done") == {str(number): 1 for number in range(100)}

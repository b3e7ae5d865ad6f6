"""The value of `--allocate`, how many jobs are useful, the words of a job, and the record on disk."""

import math
import shlex
from pathlib import Path

import pytest

from mpi_runtime.batch.allocate.demand import jobs_for, mean_of, wanted
from mpi_runtime.batch.allocate.spec import Spec, read_spec
from mpi_runtime.batch.allocate.streak import Streak
from mpi_runtime.batch.cli.allocated import job_words
from mpi_runtime.batch.cli.options import read_options
from mpi_runtime.batch.file.model import Command, Demand
from mpi_runtime.batch.file.parse import Group
from mpi_runtime.batch.history import allocations
from mpi_runtime.batch.history.allocations import AllocatedJob, Allocation
from mpi_runtime.batch.history.batch_history import Began, Finished, History, Run
from mpi_runtime.batch.history.journal import is_in
from mpi_runtime.batch.history.outlook import Left, left_of
from mpi_runtime.errors import JournalError
from mpi_runtime.slurm.bounds import Bounds

SIZE = Bounds(8, 2, math.inf, 3600, 1)


def test_a_spec_has_names_of_its_own_and_those_of_requests() -> None:
    found = read_spec(["max=8,nodes=2,time=1h,idle=5m", "partition=short,long,cpus=4,gpus=a100:2,queued=3"])
    request = {"nodes": 2, "time": "1:00:00", "partition": "short,long", "cpus_per_node": 4, "gpus_per_node": "a100:2"}
    assert found == Spec(8, 3, 300.0, None, request)
    assert read_spec(["nodes=1-3,time=90,sbatch=-Ca=b,sbatch=--x"]).request == {
        "nodes": "1-3", "time": "90", "sbatch": ("-Ca=b", "--x"),
    }  # fmt: skip
    assert read_spec(["time=1h30m"]).request == {"time": "1:30:00"}
    assert read_spec(["cpus=2"]).max == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8", "must be NAME=VALUE"),
        ("max=", "must be NAME=VALUE"),
        ("max=0", "max must be a whole number of 1 or more"),
        ("max=2,max=3", "max is stated twice"),
        ("node=2", "did you mean 'nodes'"),
        ("array=0-3", "there is no 'array'"),
        ("idle=soon", "idle must be a duration"),
        ("idle=0", "idle must be more than 0 seconds"),
    ],
)
def test_a_wrong_spec_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_spec([text])


def commands(count: int, **asked: float) -> list[Command]:
    return [Command(text="true", name=str(number), **asked) for number in range(count)]  # type: ignore[arg-type]


def test_jobs_are_as_many_as_the_commands_fill() -> None:
    assert jobs_for(Left(), SIZE) == 0
    assert jobs_for(Left(commands(1)), SIZE) == 1
    assert jobs_for(Left(commands(16)), SIZE) == 2
    assert jobs_for(Left(commands(17)), SIZE) == 3
    assert jobs_for(Left(commands(8), commands(8)), SIZE) == 2, "what runs is in jobs that are there"
    assert jobs_for(Left(commands(16)), SIZE._replace(nodes=2)) == 1
    assert jobs_for(Left(commands(3, num_gpus=1.0)), SIZE) == 2
    assert jobs_for(Left(commands(3, ranks=8)), SIZE) == 3
    assert jobs_for(Left(commands(5, num_cpus=0.0)), SIZE) == 1
    assert jobs_for(Left(commands(5)), SIZE._replace(cpus=math.inf)) == 5, "of unknown size"
    either = Command(text="", alternatives=(Demand(num_cpus=8.0), Demand(num_cpus=1.0, num_gpus=1.0)))
    assert jobs_for(Left([either, either]), SIZE) == 1


def test_what_a_process_had_begun_that_is_gone_may_start() -> None:
    history = History()
    history.plan = {one.name: Group(one.name, (one,)) for one in commands(3)}
    for process in ("n1 (pid 5, job 7)", "n2 (pid 5, job 8)"):
        history.runs.append(Run(process, 0.0))
        history.add(Began(str(len(history.runs)), 1.0, "n"))
    left = left_of(history, lambda process: is_in("7", process))
    assert [one.name for one in left.ready] == ["0", "1"]
    assert [one.name for one in left.running] == ["2"]
    assert len(left_of(history).running) == 2


def test_three_useless_jobs_in_a_row_are_enough_and_ten_that_were_lost() -> None:
    streak = Streak()
    assert not streak
    assert [streak.add("FAILED", "") for _ in range(2)] == ["", ""]
    assert [streak.add("PREEMPTED", "") for _ in range(9)] == [""] * 9
    assert streak
    assert not streak.is_enough
    assert streak.add("CANCELLED", "job 7").startswith("3 jobs in a row have ended, and no command has ended in them")
    assert streak.is_enough
    assert streak.add("FAILED", "") == "", "that is known"
    streak = Streak()
    words = [streak.add("NODE_FAIL", "job 7") for _ in range(10)]
    assert words[:9] == [""] * 9
    assert words[9].startswith("10 jobs in a row were preempted or lost with a node")


def test_what_is_submitted_fills_the_places_that_are_left() -> None:
    left = Left(commands(100))
    assert wanted(left, SIZE, 8, 8, 0, 0, None) == 8
    assert wanted(left, SIZE, 8, 2, 0, 0, None) == 2, "only two wait at a time"
    assert wanted(left, SIZE, 8, 2, 4, 1, None) == 1
    assert wanted(left, SIZE, 8, 8, 5, 3, None) == 0
    assert wanted(left, SIZE, 8, 8, 9, 0, None) == 0, "the limit may have been higher before"
    assert wanted(Left([], commands(9)), SIZE, 8, 8, 1, 0, None) == 0, "all run"
    assert wanted(left, SIZE, 8, 8, 2, 0, 0.1) == 0, "those that run are done before another could start"
    assert wanted(left, SIZE, 8, 8, 0, 0, 0.1) == 8
    assert wanted(left, SIZE, 8, 8, 2, 0, 60.0) == 6
    assert mean_of([]) is None
    assert mean_of([1.0, 2.0]) == 1.5


def test_a_job_has_the_words_of_the_line_and_flags_only_if_it_begins_the_run() -> None:
    line = "jobs.txt --allocate max=2 --fresh --only a --allocate=time=1h --directory out --from=b --idle-timeout 9"
    options = read_options([*shlex.split(line), "--max-failures", "3"])
    common = ["-m", "mpi_runtime.batch", "jobs.txt", "--directory", "out", "--max-failures", "3", "--join"]
    assert job_words(options, Spec()) == (
        [*common, "--idle-timeout", "9"],
        ["--fresh", "--only", "a", "--from=b"],
    )
    assert job_words(options, Spec(idle_s=300.0))[0] == [*common, "--idle-timeout", "300"]


def test_a_run_counts_as_begun_by_one_of_its_jobs_only() -> None:
    history = History()
    history.is_planned, history.since, history.finished = True, 5, Finished(0)
    own = Allocation("x", since=5, was_finished=True)
    assert not own.has_begun(history)
    assert not own.is_finished(history), "that is the run before"
    history.since = 6
    assert own.is_finished(history)
    history.finished = None
    assert own.has_begun(history)
    assert not own.is_finished(history)
    joined = Allocation("x", since=6, was_finished=False)
    assert joined.has_begun(history), "it continues the run of other jobs"
    assert not Allocation("x", 6, False, ["--retry-failed"]).has_begun(history)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = str(tmp_path / "batch-x")
    assert allocations.read(directory) is None
    claim = allocations.take(directory, "here (pid 1)")
    written = Allocation("x", 1, True, ["--fresh"], [AllocatedJob("7", 1.0, "RUNNING"), AllocatedJob("6", 0, "", True)])
    allocations.write(directory, written)
    assert allocations.read(directory) == written
    assert [one.job for one in written.living()] == ["7"]
    assert allocations.allocator_of(directory) == "here (pid 1)"
    claim.release()
    assert allocations.allocator_of(directory) == ""
    (allocations.folder_of(directory) / "record").write_text("{")
    with pytest.raises(JournalError, match="cannot be read"):
        allocations.read(directory)

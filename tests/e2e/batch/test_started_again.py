"""The line of a shared batch is started again at once when its first job is killed, while another job of it lives.

No command runs twice but those that a killed job had begun. That is all that users see, and all that is stated here.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import helpers
from tests.e2e.cli.test_batch import run_batch, written
from tests.hosts.namespaces import missing

pytestmark = pytest.mark.timeout(240)

IN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Its processes cannot be seen by other jobs, as on another host."""
COUNT = 10


def command(number: int, more: str = "") -> str:
    return f"echo {number} $JOB >> began; while [ ! -e go ]; do sleep 0.1; done; echo {number} >> done{more}\n"


class Shared:
    """A batch whose commands wait until they may end, and its jobs by name. The first two run it."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, of_second: tuple[str, ...] = ()) -> None:
        self.folder, self._stack = folder, stack
        self.jobs: dict[str, helpers.Program] = {}
        self.killed: set[str] = set()
        written(folder / "jobs.txt", "".join(map(command, range(COUNT))))
        self.start("A")
        self.wait_for("A")
        self.start("B", *of_second)
        self.wait_for("B")

    def start(self, name: str, *before: str) -> None:
        words = [*before, sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
        env = {"JOB": name, "MPI_RUNTIME_NUM_CPUS": "2"}
        self.jobs[name] = self._stack.enter_context(helpers.start_command(words, cwd=self.folder, env=env))

    def kill(self, name: str) -> None:
        self.killed.add(name)
        self.jobs[name].signal(signal.SIGKILL)
        self.jobs[name].finish().expect(-9)

    def began(self) -> list[tuple[int, str]]:
        """Which command began, and in which job."""
        file = self.folder / "began"
        found = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(int(number), job) for number, job in found]

    def wait_for(self, *names: str) -> None:
        """Wait until one of these jobs has begun something."""
        helpers.wait_until(lambda: any(job in names for _, job in self.began()), 60)

    def finish(self, *codes: int, count: int = COUNT) -> list[helpers.Completed]:
        """Let the first commands end, and see what all have done."""
        (self.folder / "go").touch()
        living = [job for name, job in self.jobs.items() if name not in self.killed]
        completed = [job.finish() for job in living]
        assert [one.returncode for one in completed] == [*codes], [one.stderr for one in completed]
        done = {int(line) for line in (self.folder / "done").read_text().split()}
        assert done == {*range(count)}
        for number in done:
            jobs = [job for one, job in self.began() if one == number]
            assert self.killed.issuperset(jobs[:-1]), f"{number} was begun by {jobs}, killed: {self.killed}"
            assert jobs[-1] not in self.killed
        return completed


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Callable[..., Shared]]:
    with contextlib.ExitStack() as stack:
        yield partial(Shared, tmp_path, stack)


def once(batch: Shared) -> int:
    batch.start("C")
    batch.wait_for("C")
    return 2


def beside_a_job_that_stands_still(batch: Shared) -> int:
    batch.jobs["B"].signal(signal.SIGSTOP)
    batch.start("C")
    batch.wait_for("C")
    time.sleep(2)  # as on a busy host
    batch.jobs["B"].signal(signal.SIGCONT)
    return 2


def twice_at_once(batch: Shared) -> int:
    batch.start("C")
    batch.start("D")
    batch.wait_for("C", "D")
    return 3


def again_and_again(batch: Shared) -> int:
    batch.start("C")
    batch.wait_for("C")
    batch.kill("C")
    batch.start("D")
    batch.wait_for("D")
    return 2


@pytest.mark.parametrize("again", [once, beside_a_job_that_stands_still, twice_at_once, again_and_again])
def test_what_a_living_job_has_begun_does_not_begin_again(
    shared: Callable[..., Shared], again: Callable[[Shared], int]
) -> None:
    batch = shared()
    batch.kill("A")
    batch.finish(*[0] * again(batch))


@pytest.mark.hosts
def test_what_a_living_job_of_another_host_has_begun_does_not_begin_again(shared: Callable[..., Shared]) -> None:
    if reason := missing(("unshare",), "util-linux"):
        pytest.skip(reason)
    batch = shared(IN_NAMESPACE)
    batch.kill("A")
    batch.finish(*[0] * once(batch))


def test_an_edited_list_is_run_when_the_jobs_of_the_old_one_have_ended(
    shared: Callable[..., Shared], tmp_path: Path
) -> None:
    batch = shared()
    batch.kill("A")
    lines = [command(number, " # edited" if number == batch.began()[-1][0] else "") for number in range(COUNT)]
    written(tmp_path / "jobs.txt", "".join([*lines, "echo more >> edited\n"]))
    once(batch)
    assert "are new or changed, and were not run" in batch.finish(0, 1)[1].stderr
    assert not (tmp_path / "edited").exists()
    before = len(batch.began())
    run_batch("jobs.txt", cwd=tmp_path, env={"JOB": "E"}).expect(0)
    assert len(batch.began()) == before + 1
    assert (tmp_path / "edited").read_text() == "more\n"


def test_a_list_that_no_job_runs_any_more_is_run_as_it_is_now(shared: Callable[..., Shared], tmp_path: Path) -> None:
    batch = shared()
    batch.kill("B")
    batch.kill("A")
    written(tmp_path / "jobs.txt", "".join(f"echo new >> done #batch name=new-{number}\n" for number in range(COUNT)))
    before = batch.began()
    run_batch("jobs.txt", cwd=tmp_path).expect(0)
    assert batch.began() == before
    assert (tmp_path / "done").read_text().split() == ["new"] * COUNT


def test_nothing_is_forgotten_while_a_job_lives(shared: Callable[..., Shared], tmp_path: Path) -> None:
    batch = shared()
    batch.kill("A")
    refused = run_batch("jobs.txt", "--fresh", cwd=tmp_path).expect(2).stderr
    assert "is in use by" in refused
    assert "only without --fresh" in refused
    batch.finish(0)


def test_a_cancelled_command_stays_cancelled_while_a_job_lives(shared: Callable[..., Shared], tmp_path: Path) -> None:
    batch = shared()
    run_batch("cancel", "jobs", f"line-{COUNT}", cwd=tmp_path).expect(0)
    batch.kill("A")
    once(batch)
    batch.finish(1, 1, count=COUNT - 1)
    assert COUNT - 1 not in [number for number, _ in batch.began()]

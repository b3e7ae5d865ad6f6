"""Real jobs are recorded and replayed: every decision comes out the same, to the last byte."""

import re
import shutil
from pathlib import Path

import pytest

from mpi_runtime.scheduler.core import Scheduler
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.rank_events import JobBegan, RankJoined
from mpi_runtime.scheduler.recording import ClientSaid, RankSaid, Recording, replay
from tests.e2e.cli.test_batch import run_batch
from tests.e2e.cli.test_examples import EXAMPLES, HANGS_S, LINES, NEEDS, WITHOUT_A_JOB
from tests.helpers import run_program


def replayed(path: Path) -> str:
    """The outcome in words; all of the file was read."""
    recording = Recording(path.read_bytes())
    outcome = replay(recording, Scheduler())
    assert recording.torn == 0
    assert outcome.events > 10
    return str(outcome)


@pytest.mark.timeout(HANGS_S + 30)
@pytest.mark.parametrize("name", [name for name in LINES if name not in WITHOUT_A_JOB])
def test_every_example(name: str, tmp_path: Path) -> None:
    for library in NEEDS.get(name, []):
        pytest.importorskip(library)
    path = tmp_path / "job"
    run_program(EXAMPLES / f"{name}.py", env={"MPI_RUNTIME_RECORD": str(path)}, timeout=HANGS_S).expect(0)
    assert re.fullmatch(r"\d+ events, \d+ decisions: identical", replayed(path))
    calls = [
        event
        for entry in Recording(path.read_bytes())
        if isinstance(entry, ClientSaid)
        for event in entry.events
        if isinstance(event, Call)
    ]
    assert calls


@pytest.mark.mpi
@pytest.mark.timeout(HANGS_S + 30)
@pytest.mark.parametrize("name", ["actors", "put_once", "resources", "demo"])
def test_on_three_ranks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job"
    env = {"MPI_RUNTIME_RECORD": str(path)}
    run_program(EXAMPLES / f"{name}.py", ranks=3, env=env, timeout=HANGS_S).expect(0)
    assert [one.name for one in tmp_path.iterdir()] == ["job"], "rank 0 alone records"
    assert re.fullmatch(r"\d+ events, \d+ decisions: identical", replayed(path))
    first = [entry.event for entry in Recording(path.read_bytes()) if isinstance(entry, RankSaid)][:4]
    joined = [event.rank for event in first if isinstance(event, RankJoined)]
    assert joined == [0, 1, 2], "in their order, whichever came first"
    assert isinstance(first[3], JobBegan)


@pytest.mark.timeout(HANGS_S + 30)
@pytest.mark.parametrize("name", sorted(path.name for path in (EXAMPLES / "batches").iterdir()))
def test_every_batch(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "batches" / name, tmp_path / name)
    path = tmp_path / "job"
    run_batch(f"{name}.toml", "--gpus-per-node", "2", cwd=folder, env={"MPI_RUNTIME_RECORD": str(path)})
    assert re.fullmatch(r"\d+ events, \d+ decisions: identical", replayed(path))


CRASHES = """
import os, signal
import mpi_runtime as ray

@ray.remote(max_retries=2)
def crash(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

@ray.remote(max_restarts=1)
class Keeper:
    def pid(self):
        return os.getpid()

for round in range(2):
    ray.init(num_cpus=2)
    keeper = Keeper.remote()
    os.kill(ray.get(keeper.pid.remote()), signal.SIGKILL)
    print(ray.get(crash.remote(f"mark{round}")))
    print(ray.get(keeper.pid.options(max_task_retries=-1).remote()) > 0)
    ray.shutdown()
"""


def test_crashes_and_two_jobs_of_one_program(tmp_path: Path) -> None:
    path = tmp_path / "job"
    run_program(CRASHES, env={"MPI_RUNTIME_RECORD": str(path)}, cwd=tmp_path).expect(0)
    for name in ("job", "job.2"):
        recording = Recording((tmp_path / name).read_bytes())
        scheduler = Scheduler()
        assert str(replay(recording, scheduler)).endswith(": identical")
        assert scheduler.state.retried >= 1
        assert scheduler.state.restarted == 1


def test_a_recording_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    program = "import mpi_runtime as ray; ray.init(); print('runs')"
    completed = run_program(program, env={"MPI_RUNTIME_RECORD": f"{tmp_path}/{'x' * 300}"}).expect(0)
    assert completed.stdout == "runs\n"
    assert "mpi_runtime: the job is not recorded: [Errno 36] File name too long" in completed.stderr

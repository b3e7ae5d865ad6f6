"""Worker ranks that are killed while a job starts or ends, and a second job after a loss."""

import os
import signal

import pytest

from tests.e2e.launch.test_rank_loss import kill, start, workers
from tests.helpers import start_program

pytestmark = pytest.mark.timeout(180)


def test_a_rank_is_lost_before_the_job_begins() -> None:
    """It has met the others, and is stopped before it can say what it has."""
    source = """
print("begun", ray.get(agent.options(num_cpus=1).remote())[0], ranks(), flush=True)
"""
    prelude = """
import os, signal
from mpi_runtime.core.rank import worker
begin = worker.Worker._begin
def die(self, job):
    if self._transport.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin(self, job)
worker.Worker._begin = die
"""
    with start(source, prelude=prelude) as program:
        assert program.wait_for_line("begun").endswith("[0, 1, 3]")
        completed = program.finish().expect(0)
        assert "died before the job began, which continues without it" in completed.stderr


DIES = """
import os, signal
from mpi_runtime.core.transport import mpi
from mpi_runtime.core.transport.doorbell import Doorbell

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if "2" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    WHERE = die
import mpi_runtime as ray
ray.init(num_cpus=4, start_timeout_s=LIMIT)
"""


START_LIMIT_S = 4


@pytest.mark.parametrize(
    ("where", "limit_s", "words"),
    [
        ("mpi._start_mpi", START_LIMIT_S, f"The job was not up after {START_LIMIT_S} s."),
        ("mpi.MpiTransport._meet", 60, "rank 2 has died while the ranks met"),
        ("Doorbell.join", START_LIMIT_S, f"The job was not up after {START_LIMIT_S} s."),
    ],
)
@pytest.mark.dies("rank at start")
def test_a_rank_that_dies_while_the_ranks_meet_ends_the_job(where: str, limit_s: int, words: str) -> None:
    with start("", prelude=DIES.replace("WHERE", where).replace("LIMIT", str(limit_s))) as program:
        completed = program.finish()
        assert completed.returncode != 0
        assert words in completed.stderr


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("where", ["mpi._start_mpi", "mpi.MpiTransport._meet", "Doorbell.join"])
@pytest.mark.dies("rank at start")
def test_without_ulfm_the_launcher_ends_such_a_job(where: str, mpi: str) -> None:
    with start_program(DIES.replace("WHERE", where).replace("LIMIT", "60"), ranks=4, mpi=mpi) as program:
        completed = program.finish()
        assert completed.returncode != 0
        # Hydra's proxy may find the rank gone by writing to it, and ends the job before it has seen the signal.
        words = ("signal 9",) if mpi == "openmpi" else ("signal 9", "HYDU_sock_write")
        assert any(word in completed.output() for word in words), completed.output()


def test_a_rank_is_lost_during_shutdown() -> None:
    source = """
ray.get([agent.remote() for _ in range(8)])
print("ready", flush=True)
sys.stdin.readline()
sys.exit(3)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        pids = workers(program)
        os.kill(pids[2], signal.SIGSTOP)  # or its part of the shutdown might be over before it dies
        program.write("\n")
        kill(pids[2])
        program.finish().expect(3)


def test_a_program_that_fails_after_a_loss_has_its_own_exit_code() -> None:
    source = """
print("ready", flush=True)
wait_for_loss(1)
raise ValueError("as planned")
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(workers(program)[0])
        completed = program.finish()
        assert completed.returncode == 1
        assert "ValueError: as planned" in completed.stderr


def test_a_second_job_of_the_program_does_without_the_lost_rank() -> None:
    source = """
print("ready", flush=True)
wait_for_loss(1)
ray.shutdown()
ray.init(num_cpus=4)
print("second job", ray.get(agent.remote()) is not None, ranks(), flush=True)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(workers(program)[0])
        assert program.wait_for_line("second job").endswith("True [0, 2, 3]")
        program.finish().expect(0)


def test_a_rank_that_has_not_noticed_the_loss_takes_part_in_the_second_job() -> None:
    """All must agree who shares the memory of the host: rank 3 would take the region of another one, or one too far."""
    prelude = """
from mpi_runtime.core.rank import worker
begin = worker.Worker._begin
def begin_unaware(self, job):
    if self._transport.rank == 3:
        self._transport.lost.clear()
    begin(self, job)
worker.Worker._begin = begin_unaware
"""
    source = """
print("ready", flush=True)
wait_for_loss(1)
ray.shutdown()
ray.init(num_cpus=4)
values = [ray.put(np.full(300_000, number)) for number in range(4)]
places = {ray.get(agent.remote())[0] for _ in range(8)}
print("second job", ranks(), [int(value[-1]) for value in ray.get(values)], flush=True)
"""
    with start(source, prelude=prelude) as program:
        program.wait_for_line("ready")
        kill(workers(program)[0])
        assert program.wait_for_line("second job").endswith("[0, 2, 3] [0, 1, 2, 3]")
        program.finish().expect(0)


def test_a_rank_dies_just_before_the_second_job_begins() -> None:
    source = """
ray.shutdown()
print("ready", flush=True)
sys.stdin.readline()
ray.init(num_cpus=4)
print("second job", ray.get(agent.remote()) is not None, len(ranks()), flush=True)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(workers(program)[1])
        program.write("\n")
        assert program.wait_for_line("second job").endswith("True 3")
        program.finish().expect(0)


@pytest.mark.dies("rank with ulfm")
def test_the_first_rank_that_runs_calls_dies_as_a_job_begins() -> None:
    """What was given to `init` counts for the host, whichever of its ranks had told of it."""
    prelude = """
import os, signal
from mpi_runtime.core.rank import worker
begin, jobs = worker.Worker._begin, []
def begin_and_die(self, job):
    jobs.append(job)
    if self._transport.rank == 1 and len(jobs) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin(self, job)
worker.Worker._begin = begin_and_die
"""
    source = """
ray.shutdown()
ray.init(num_cpus=3, resources={"licence": 2}, labels={"kind": "fast"})
(node,) = ray.nodes()
found = [node["Resources"][name] for name in ("CPU", "licence", "node:" + os.uname().nodename)]
there = agent.options(resources={"licence": 2}, label_selector={"kind": "fast"})
print("second job", ray.get(there.remote(), timeout=30) is not None, ranks(), found, flush=True)
"""
    with start(source, prelude=prelude) as program:
        assert program.wait_for_line("second job").endswith("True [0, 2, 3] [3.0, 2.0, 1.0]")
        program.finish().expect(0)

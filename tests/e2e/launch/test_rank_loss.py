"""Worker ranks that are killed, under Open MPI with ULFM: the job goes on, and its answers are right."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from tests.helpers import Program, make_place, mpi_python, start_command, wait_until

pytestmark = pytest.mark.timeout(180)
NOTICE_S = 10.0
"""A second is promised; a machine that is busy with other things takes longer."""

BEGIN = """
import os, signal, sys, time
import numpy as np
import mpi_runtime as ray
from mpi_runtime.errors import ActorUnavailableError, ObjectLostError, WorkerCrashedError

ray.init(num_cpus=4)

@ray.remote(max_retries=5)
def agent():
    "The rank on which this runs."
    return int(ray.get_runtime_context().get_node_id(), 16), os.getppid()

def ranks():
    return sorted(rank for node in ray.nodes() for rank in node["ranks"])

def wait_for_loss(count):
    end = time.monotonic() + 20
    while len(ranks()) > 4 - count and time.monotonic() < end:
        time.sleep(0.02)
    return ranks()
"""


BY_MPI = {"MPI_RUNTIME_DIRECT_LINES": "0"}
"""Large values of an executor are then in the part of the arena of its own rank, and lost with it."""


def start(
    source: str, ranks: int = 4, launcher: str = "ulfm", prelude: str = "", env: Mapping[str, str] = {}
) -> Program:
    """A program with this source, started as `mpi-runtime run` does it.

    Args:
        source: what it does once the job is up.
        ranks: how many there are.
        launcher: "": without fault tolerance.
        prelude: what every rank does first, to the runtime itself. Open MPI's launcher starts the program then.
        env: further variables.
    """
    python = mpi_python("openmpi")
    place = make_place()
    path = place / "app.py"
    path.write_text(prelude + BEGIN + source)
    if prelude:  # `mpi-runtime run --fault-tolerant` has the program run by rank 0 alone
        return start_command([python.with_name("mpirun"), "--with-ft", launcher, "-n", str(ranks), python, path])
    options = ["--fault-tolerant"] if launcher else []
    command: list[str | Path] = [python.with_name("mpi-runtime"), "run", "-n", str(ranks), *options, path]
    return start_command(command, place=place, env={"PRTE_MCA_rmaps_default_mapping_policy": None, **env})


def workers(program: Program) -> list[int]:
    """The processes of ranks above 0, by what Open MPI has told them."""
    found = {}
    for pid in program.processes():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue
        rank = next((int(one.partition(b"=")[2]) for one in environment if one.startswith(b"OMPI_COMM_WORLD_RANK=")), 0)
        if rank and name.strip() not in ("mpi-rt-executor", "mpi-rt-forksrv") and rank not in found:
            found[rank] = pid
    return [found[rank] for rank in sorted(found)]


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


WORK = """
@ray.remote(max_retries=5)
def large(number, *before):
    time.sleep(0.02)
    return np.full(300_000, number + sum(int(one[0]) for one in before))

@ray.remote(max_retries=5)
def add(number, *values):
    time.sleep(0.02)
    return number + sum(int(value[0]) for value in values)

@ray.remote(max_restarts=-1, max_task_retries=-1)
class Echo:
    def say(self, word):
        time.sleep(0.01)
        return word

actors = [Echo.options(name=f"echo {number}", num_cpus=0).remote() for number in range(3)]
assert ray.get([actor.say.remote("there") for actor in actors]) == ["there"] * 3
line = [large.remote(0)]
for number in range(1, 12):
    line.append(large.remote(number, line[-1]))
sums = [add.remote(number, line[number % 12], line[-1]) for number in range(30)]
words = [actor.say.remote(number) for number in range(20) for actor in actors]
ray.get(line[3])
print("ready", flush=True)
totals = [sum(range(number + 1)) for number in range(12)]
assert ray.get(sums) == [number + totals[number % 12] + totals[-1] for number in range(30)]
assert ray.get(words) == [number for number in range(20) for _ in actors]
assert [int(value[-1]) for value in ray.get(line)] == totals
assert ray.get(ray.get_actor("echo 1").say.remote("again")) == "again"
print("right", ranks(), flush=True)
"""


@pytest.mark.parametrize(
    ("victims", "env"),
    [
        pytest.param((1,), {}, id="1-direct"),
        pytest.param((1,), BY_MPI, id="1-by MPI"),
        pytest.param((2,), BY_MPI, id="2-by MPI"),
        pytest.param((1, 3), {}, id="1-3-direct"),
    ],
)
@pytest.mark.dies("rank with ulfm")
def test_tasks_actors_and_objects_survive_the_loss_of_ranks(victims: tuple[int, ...], env: Mapping[str, str]) -> None:
    with start(WORK, env=env) as program:
        program.wait_for_line("ready")
        pids = workers(program)
        kill(*(pids[rank - 1] for rank in victims))
        completed = program.finish(timeout=120).expect(0)
        left = [rank for rank in range(4) if rank not in victims]
        assert f"right {left}" in completed.stdout
        for rank in victims:
            assert f"rank {rank} on " in completed.stderr


WAITING = """
from mpi_runtime.util import collective, placement_group, state
from mpi_runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

@ray.remote(num_returns="streaming", max_retries=10)
def count(number):
    for step in range(20):
        time.sleep(0.05)
        yield number + step

@ray.remote(max_retries=10)
def square(number):
    time.sleep(0.02)
    return number * number

@ray.remote(num_cpus=0, max_restarts=0)
class Member:
    def join(self, rank):
        collective.init_collective_group(3, rank, group_name="all", timeout_s=60)

    def total(self):
        numbers = np.ones(3)
        collective.allreduce(numbers, "all")
        return float(numbers[0])

@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Placed:
    def say(self, word):
        time.sleep(0.01)
        return word

group = placement_group([{"CPU": 1}])
placed = Placed.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
members = [Member.options(name=f"member {rank}").remote() for rank in range(3)]
ray.get([member.join.remote(rank) for rank, member in enumerate(members)])
assert ray.get([member.total.remote() for member in members]) == [3.0] * 3
streams = [count.remote(100 * number) for number in range(3)]
words = [placed.say.remote(number) for number in range(100)]
squares = square.map(range(500))
heads = [ray.get(next(stream)) for stream in streams]
rank = {one.actor_id: one.rank for one in state.list_workers(limit=1000)}[members[1]._actor_id.hex()]
print("ready", rank, flush=True)
print("left", wait_for_loss(1), flush=True)
assert heads == [0, 100, 200]
for number, stream in enumerate(streams):
    assert [ray.get(one) for one in stream] == [100 * number + step for step in range(1, 20)]
assert list(squares) == [number * number for number in range(500)]
assert ray.get(words) == list(range(100))
for index, member in enumerate(members):
    try:
        ray.get(member.total.remote())
    except RuntimeError as error:
        assert "for rank(s) 1 of 3, whose processes have ended" in str(error), error
        print("told", index, flush=True)
    except ray.exceptions.ActorDiedError as error:
        print("dead", index, flush=True)
print("right", flush=True)
"""


def test_streams_maps_groups_and_collectives_when_a_rank_is_lost() -> None:
    """Whatever the lost rank had a part in goes on, or is told: nothing waits for it for ever."""
    with start(WAITING) as program:
        rank = int(program.wait_for_line("ready").split()[-1])
        assert rank > 0, "rank 0 runs no calls"
        kill(workers(program)[rank - 1])
        completed = program.finish(timeout=100).expect(0)
        assert completed.stdout.endswith("told 0\ndead 1\ntold 2\nright\n")


def test_a_loss_is_noticed_while_nothing_else_happens() -> None:
    source = """
ray.get(agent.remote())
time.sleep(2)
print("ready", flush=True)
began = time.monotonic()
wait_for_loss(1)
print("noticed", time.monotonic() - began, ranks(), flush=True)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(workers(program)[1])
        line = program.wait_for_line("noticed")
        assert line.endswith("[0, 1, 3]")
        assert float(line.split()[1]) < NOTICE_S
        program.finish().expect(0)


def test_a_stream_of_large_values_is_read_whole_though_their_rank_dies() -> None:
    """Those that were yielded and not read yet lay with it. One that is read by another call comes too."""
    source = """
@ray.remote(num_returns="streaming", max_retries=5)
def stream():
    yield os.getppid()
    for number in range(12):
        yield np.full(300_000, number)
        time.sleep(0.05)

@ray.remote(max_retries=5)
def total(one):
    return int(one.sum())

refs = iter(stream.remote())
first = next(refs)
early = [next(refs) for _ in range(4)]
sums = [total.remote(one) for one in early[:2]]
print("ready", ray.get(first), flush=True)
assert len(wait_for_loss(1)) == 3
rest = list(refs)
assert [int(ray.get(one)[-1]) for one in early + rest] == list(range(12))
assert ray.get(sums) == [0, 300_000]
print("right", flush=True)
"""
    with start(source) as program:
        forkserver = int(program.wait_for_line("ready").split()[-1])
        rank = psutil.Process(forkserver).ppid()
        assert rank in workers(program)
        kill(rank)
        completed = program.finish(timeout=100).expect(0)
        assert completed.stdout.rstrip().endswith("right")
        assert "lost for good: 0" in completed.stderr


def test_wait_goes_on_across_a_loss() -> None:
    """One that is under way, of calls that run; and one of values that were there, and are made again or lost."""
    source = """
import threading

@ray.remote(max_retries=5)
def slow(number):
    time.sleep(1)
    return number

@ray.remote(max_retries=5)
def large(number):
    time.sleep(0.2)  # all executors have some
    return np.full(300_000, number)

once = large.options(max_retries=0)
again, kept = ([function.remote(number) for number in range(12)] for function in (large, once))
assert len(ray.wait(again + kept, num_returns=24, fetch_local=False)[0]) == 24
running = [slow.remote(number) for number in range(9)]
found = []
waiter = threading.Thread(target=lambda: found.append(ray.wait(running, num_returns=9, timeout=90)))
waiter.start()
time.sleep(0.5)
print("ready", flush=True)
wait_for_loss(1)
waiter.join()
assert found == [(running, [])], found
assert ray.get(running) == list(range(9))
assert ray.wait(again + kept, num_returns=24, timeout=60) == (again + kept, [])
assert [int(ray.get(value)[0]) for value in again] == list(range(12))
lost = 0
for number, value in enumerate(kept):
    try:
        assert ray.get(value)[0] == number
    except ObjectLostError:
        lost += 1
print("waited", lost, flush=True)
"""
    with start(source, env=BY_MPI) as program:
        program.wait_for_line("ready")
        kill(workers(program)[1])
        assert 0 < int(program.wait_for_line("waited", timeout=100).split()[1]) < 12
        program.finish().expect(0)


def test_values_that_nothing_can_make_again_are_lost_with_a_reason() -> None:
    source = """
@ray.remote(max_retries=0)
def kept():
    return np.zeros(300_000)

values = [kept.remote() for _ in range(8)]
ray.wait(values, num_returns=8)
print("ready", flush=True)
wait_for_loss(3)
lost = 0
for value in values:
    try:
        ray.get(value)
    except ObjectLostError as error:
        lost += 1
        assert "which had its only copy" in str(error), error
print("without a copy:", lost, flush=True)
"""
    with start(source, env=BY_MPI) as program:
        program.wait_for_line("ready")
        kill(*workers(program))
        line = program.wait_for_line("without a copy")
        assert line.split()[-1] == "8"
        program.finish().expect(0)


def test_values_of_executors_with_direct_lines_outlive_their_rank() -> None:
    source = """
@ray.remote(max_retries=0)
def kept(number):
    return np.full(300_000, number)

values = [kept.remote(number) for number in range(8)]
ray.wait(values, num_returns=8)
print("ready", flush=True)
assert wait_for_loss(3) == [0]
print("values", [int(ray.get(value)[-1]) for value in values], flush=True)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(*workers(program))
        assert program.wait_for_line("values").endswith(str(list(range(8))))
        assert "lost for good: 0" in program.finish().expect(0).stderr


def test_values_are_made_again_by_their_calls_when_two_ranks_are_lost_at_once() -> None:
    source = """
@ray.remote(max_retries=3)
def first(number):
    time.sleep(0.3)
    return np.full(300_000, number)

@ray.remote(max_retries=3)
def twice(value):
    return 2 * value

values = [twice.remote(one) for one in [first.remote(number) for number in range(8)]]
ray.wait(values, num_returns=8, fetch_local=False)
print("ready", flush=True)
wait_for_loss(2)
print("values", [int(value[-1]) for value in ray.get(values)], flush=True)
"""
    with start(source, env=BY_MPI) as program:
        program.wait_for_line("ready")
        kill(*workers(program)[1:])
        assert program.wait_for_line("values").endswith(str([2 * number for number in range(8)]))
        completed = program.finish().expect(0)
        assert re.search(r"calls run again for them: [1-9]", completed.stderr)


def test_a_rank_dies_while_the_values_of_another_one_are_made_again() -> None:
    source = """
@ray.remote(max_retries=10)
def first(number):
    time.sleep(0.3)
    return np.full(300_000, number)

@ray.remote(max_retries=10)
def twice(value):
    time.sleep(1)
    return 2 * value

values = [twice.remote(one) for one in [first.remote(number) for number in range(8)]]
ray.wait(values, num_returns=8, fetch_local=False)
print("ready", flush=True)
wait_for_loss(1)
print("one is lost", flush=True)
left = wait_for_loss(2)
print("values", [int(value[-1]) for value in ray.get(values)], left, flush=True)
"""
    with start(source, env=BY_MPI) as program:
        program.wait_for_line("ready")
        pids = workers(program)
        kill(pids[1])
        program.wait_for_line("one is lost")
        kill(pids[2])
        assert program.wait_for_line("values").endswith(f"{[2 * number for number in range(8)]} [0, 1]")
        completed = program.finish().expect(0)
        assert len(re.findall("died, and .* with it", completed.stderr)) == 2
        assert re.search(r"calls run again for them: [1-9]", completed.stderr)


def test_a_job_without_workers_says_that_nothing_can_run() -> None:
    source = """
print("ready", flush=True)
wait_for_loss(3)
try:
    ray.get(agent.remote())
except Exception as error:
    print("failed", type(error).__name__, str(error).splitlines()[0], flush=True)
"""
    with start(source) as program:
        program.wait_for_line("ready")
        kill(*workers(program))
        line = program.wait_for_line("failed")
        assert "Infeasible" in line
        program.finish().expect(0)


def test_a_rank_that_fails_is_lost_as_one_that_is_killed() -> None:
    """MPI tells others of a rank that a signal has killed, and not of one that ends with an error."""
    source = """
print("ready", flush=True)
print("noticed", wait_for_loss(1), flush=True)
"""
    prelude = """
import signal
from mpi_runtime.core.rank import worker
serve = worker.Worker._serve
def fail(number, frame):
    raise RuntimeError("as planned")
def serve_until_signalled(self):
    signal.signal(signal.SIGUSR2, fail)
    serve(self)
worker.Worker._serve = serve_until_signalled
"""
    with start(source, prelude=prelude) as program:
        program.wait_for_line("ready")
        os.kill(workers(program)[1], signal.SIGUSR2)
        assert program.wait_for_line("noticed").endswith("[0, 1, 3]")
        completed = program.finish().expect(0)
        assert "RuntimeError: as planned" in completed.stderr


@pytest.mark.dies("rank")
def test_without_ulfm_the_job_ends_at_once_and_says_what_would_have_helped() -> None:
    with start("print('ready', flush=True)\ntime.sleep(100)", launcher="") as program:
        program.wait_for_line("ready")
        pid = workers(program)[1]
        kill(pid)
        wait_until(lambda: program.process.poll() is not None, NOTICE_S, "the end of the program")
        completed = program.finish()
        assert completed.returncode != 0
        assert re.search(rf"rank 2 on \S+ \(pid {pid}\) has died, and the job ends: ", completed.stderr)
        assert "Started with `mpi-runtime run --fault-tolerant`, the job would have continued" in completed.stderr


def test_a_rank_that_was_told_to_end_is_not_said_to_have_died() -> None:
    with start("print('ready', flush=True)\ntime.sleep(100)", launcher="") as program:
        program.wait_for_line("ready")
        os.kill(workers(program)[1], signal.SIGTERM)
        wait_until(lambda: program.process.poll() is not None, NOTICE_S, "the end of the program")
        completed = program.finish()
        assert completed.returncode != 0
        assert "has died, and the job ends" not in completed.stderr

"""`slurm.Executor` on a real Slurm: calls as jobs and arrays, errors, lost jobs, programs that end, checkpoints."""

import signal
from pathlib import Path

from tests.helpers import MARK, wait_until
from tests.slurm.cluster import Cluster

CALLS = """
import json, os, time
from mpi_runtime import slurm

def add(a, b):
    print("adding", a, b, flush=True)
    return a + b

def boom(x):
    raise ValueError(f"not {x}")

def leave(code):
    os._exit(code)

def hosts():
    import mpi_runtime as ray

    ray.init()

    @ray.remote
    def where(number):
        time.sleep(0.2)
        return os.uname().nodename

    return sorted(set(ray.get([where.remote(number) for number in range(32)])))
"""
EACH = (
    CALLS
    + """
executor = slurm.Executor("calls", time="5", cpus_per_node=1)
one, bad, gone = executor.submit(add, 3, b=4), executor.submit(boom, 3), executor.submit(leave, 0)
many = executor.map_array(add, range(5), range(10, 15))
assert executor.submit(slurm.status, one.job_id).result(60).job == one.job_id  # a function of a module
print("one", one.result(60), one.stdout().strip(), one.folder.parent.name)
print("bad", type(bad.exception(60)).__name__, bad.exception(), "in boom" in str(bad.exception().__cause__))
print("many", [job.result(60) for job in many], len({job.job_id.partition("_")[0] for job in many}))
print("gone", type(gone.exception(90)).__name__, str(gone.exception()).splitlines()[0].partition(", on ")[0])
executor.update_parameters(calls_per_job=3, array_parallelism=1)
print("map", list(executor.map(add, range(7), range(7))))
with executor.batch():
    packed = [executor.submit(add, number, 1) for number in range(4)]
assert len({job.job_id for job in packed}) == 2, [job.job_id for job in packed]
print("packed", [job.result(60) for job in packed], packed[0].cancel())
executor.update_parameters(nodes=2)
print("hosts", executor.submit(hosts).result(60))
executor.shutdown()
try:
    executor.submit(add, 1, 2)
except RuntimeError as error:
    print("shut", error)
"""
)


def run(slurm: Cluster, text: str, place: Path | None = None) -> str:
    place = place or slurm.directory()
    (place / "app.py").write_text(text)
    return slurm.run("python", "app.py", cwd=place).stdout


def test_calls_are_jobs_tasks_of_arrays_and_programs_of_several_nodes(slurm: Cluster) -> None:
    lines = dict(line.split(" ", 1) for line in run(slurm, EACH).splitlines())
    assert lines["one"] == "7 adding 3 4 calls"
    assert lines["bad"] == "ValueError not 3 True"
    assert lines["many"] == "[10, 12, 14, 16, 18] 1"
    assert lines["gone"].startswith("JobError the call has no result: job ")
    assert lines["map"] == "[0, 2, 4, 6, 8, 10, 12]"
    assert lines["packed"] == "[1, 2, 3, 4] False"
    assert lines["hosts"] == "['n1', 'n2']"
    assert lines["shut"].startswith("this executor was shut down")


AGAIN = (
    CALLS
    + """
import sys

executor = slurm.Executor("calls", time="5", cpus_per_node=1)
if sys.argv[1] == "submit":
    executor.map_array(add, range(3), range(3))
    waits = executor.submit(time.sleep, 300)
    print("submitted", waits.job_id, flush=True)
    time.sleep(300)
*many, waits = executor.jobs()
assert executor.jobs() == [*many, waits]
print([job.result(60) for job in many], waits.cancel(), waits.cancelled(), waits.cancel(), waits.job_id, flush=True)
(waits,) = slurm.Executor("calls").jobs()[3:]
print(type(waits.exception(60)).__name__, waits.state)
"""
)


def test_another_program_finds_the_calls_of_one_that_was_killed(slurm: Cluster) -> None:
    place = slurm.directory()
    (place / "app.py").write_text(AGAIN)
    # The job lives on, so it must not have the program's mark.
    first = slurm.start("env", "-u", MARK, "python", "app.py", "submit", cwd=place)
    job = first.wait_for_line("submitted").split()[1]
    first.signal(signal.SIGKILL)
    first.finish().expect(-signal.SIGKILL)
    lines = slurm.run("python", "app.py", "again", cwd=place).stdout.splitlines()
    assert lines == [f"[0, 2, 4] True True True {job}", "JobError CANCELLED"]


CHECKPOINT = """
import os, sys, time
from mpi_runtime import slurm

class Count:
    def __init__(self, done):
        self.done = done

    def __call__(self, end, place):
        while self.done < end:
            with open(place, "a") as file:
                print(self.done + 1, file=file)
            self.done += 1
            time.sleep(0.5)
        return self.done, slurm.allocation().restarts

    def checkpoint(self, end, place):
        before = self.done
        time.sleep(2)
        assert before == self.done, "it stands still"
        return slurm.DelayedSubmission(Count(self.done), end, place)

class Same(Count):
    def checkpoint(self, end, place):
        pass  # it continues as it is

executor = slurm.Executor("calls", time="5", cpus_per_node=1, max_requeues=1)
jobs = [executor.submit(kind(0), 30, os.path.abspath(kind.__name__)) for kind in (Count, Same)]
print("submitted", *(job.job_id for job in jobs), flush=True)
print([job.result(100) for job in jobs])
"""


def test_a_call_continues_from_its_checkpoint_in_the_same_job(slurm: Cluster) -> None:
    place = slurm.directory()
    (place / "app.py").write_text(CHECKPOINT)
    program = slurm.start("python", "app.py", cwd=place)
    jobs = program.wait_for_line("submitted").split()[1:]
    for name, job in zip(("Count", "Same"), jobs, strict=True):
        wait_until((place / name).exists, 60, "the first steps")
        slurm.run("scancel", "--batch", "--signal=USR1", job)
    assert "[(30, 1), (30, 1)]" in program.finish(120).expect().stdout
    for name in ("Count", "Same"):
        steps = list(map(int, (place / name).read_text().split()))
        assert sorted(set(steps)) == list(range(1, 31))
        assert len(steps) <= 31, "only a step in which it was stopped is done again"


REFUSED = """
import threading
from mpi_runtime import slurm

executor = slurm.Executor("calls", time="5", partition="nowhere")
for call in (lambda: executor.submit(print), lambda: executor.map_array(print, [1, 2])):
    try:
        call()
    except slurm.SlurmError as error:
        print("refused", str(error).splitlines()[0])
try:
    executor.submit(print, threading.Lock())
except TypeError as error:
    print("lock", error)
for wrong in ({"calls_per_job": 0}, {"array": "1-3"}, {"nods": 2}):
    try:
        executor.update_parameters(**wrong)
    except ValueError as error:
        print("wrong", error)
futures = []
try:
    with executor.batch():
        futures += [executor.submit(print, number) for number in range(2)]
except slurm.SlurmError:
    print("ended", [one.cancelled() for one in futures])
from mpi_runtime.slurm import calls
assert b"slurm.calls" not in calls._dumps(slurm.DelayedSubmission(print)), "an inner name would be on disk"
print("left", slurm.Executor("calls").jobs())
"""


def test_what_cannot_be_submitted_leaves_nothing(slurm: Cluster) -> None:
    text = run(slurm, REFUSED)
    assert (text.count("refused sbatch says: "), text.count("invalid partition")) == (2, 2)
    assert "lock a call of print cannot be serialised for a job: " in text
    assert "ended [True, True]" in text
    assert (text.count("wrong "), text.splitlines()[-1]) == (3, "left []")

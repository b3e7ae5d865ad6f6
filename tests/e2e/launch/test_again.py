"""`shutdown()` and `init()` again: without a launcher everything ends, under MPI the ranks stay, asleep."""

from contextlib import ExitStack

import pytest

from tests.helpers import idle_cpu, run_program, start_program

MPIS = ["openmpi", "mpich"]
IDLE_CPU_MAX = 0.10
"""Of one core, for all processes together; two percent are promised, on a machine that does nothing else."""

AGAIN = """
import gc, os, sys
import mpi_runtime as ray

@ray.remote
def twice(x):
    return 2 * x

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

counts = []
for number in range(5):
    ray.init(num_cpus=2, object_store_memory=(10 + number) << 20)
    assert ray.is_initialized()
    assert ray.get([twice.remote(i) for i in range(100)]) == list(range(0, 200, 2))
    counter = Counter.remote()
    assert ray.get([counter.add.remote() for _ in range(10)]) == list(range(1, 11))
    big = ray.put(bytes(1_000_000))
    assert len(ray.get(twice.remote(ray.get(big)))) == 2_000_000
    waiting = twice.options(num_cpus=2).remote(1)
    assert ray.cluster_resources()["object_store_memory"] == (10 + number) << 20
    del big, counter
    ray.shutdown()
    ray.shutdown()
    assert not ray.is_initialized()
    counts.append(descriptors())
print("counts", counts[0] == counts[-1], counts, flush=True)
"""


@pytest.mark.parametrize("mpi", [None, pytest.param("openmpi", marks=pytest.mark.mpi),
                                 pytest.param("mpich", marks=pytest.mark.mpi)])  # fmt: skip
def test_shutdown_and_init_again(mpi: str | None) -> None:
    completed = run_program(AGAIN, ranks=3 if mpi else None, mpi=mpi).expect()
    assert completed.stdout.startswith("counts True"), completed.stdout
    assert completed.stderr == ""


@pytest.mark.mpi
def test_work_is_dropped_at_shutdown_and_does_not_reach_the_next_job() -> None:
    """Tasks that run, calls that wait and values on their way between ranks belong to the job that ended."""
    source = """
import time
import mpi_runtime as ray

@ray.remote
def slow(seconds):
    time.sleep(seconds)
    return bytes(3_000_000)

@ray.remote
def size(value):
    return len(value)

for number in range(4):
    ray.init(num_cpus=3)
    refs = [slow.remote(0.001 * i) for i in range(40)]
    sizes = [size.remote(ref) for ref in refs]
    ray.wait(sizes, num_returns=5)
    late = slow.remote(1000)
    ray.shutdown()
ray.init(num_cpus=3)
print(ray.get([size.remote(slow.remote(0)) for _ in range(5)]), flush=True)
"""
    completed = run_program(source, ranks=3).expect()
    assert completed.stdout == f"{[3_000_000] * 5}\n"
    assert completed.stderr == ""


# Idleness.


@pytest.mark.mpi
def test_idle_jobs_sleep() -> None:
    """Three jobs at a time, since most of this is waiting."""
    source = """
import mpi_runtime as ray
ray.init()
f = ray.remote(lambda x: x)
for number in range(2):
    assert ray.get([f.remote(i) for i in range(200)]) == list(range(200))
    print("idle", number, flush=True)
    input()
ray.shutdown()
print("idle 2", flush=True)
input()
ray.init()
print("still there", ray.get(f.remote(5)))
"""
    with ExitStack() as stack:
        programs = {"plain": stack.enter_context(start_program(source))}
        programs |= {mpi: stack.enter_context(start_program(source, ranks=4, mpi=mpi)) for mpi in MPIS}
        for number, state in enumerate(("after work", "after more work", "after shutdown")):
            for program in programs.values():
                program.wait_for_line(f"idle {number}")
            used = idle_cpu(programs)
            print(f"{state}: " + ", ".join(f"{name} {100 * part:.2f} % of a core" for name, part in used.items()))
            assert max(used.values()) < IDLE_CPU_MAX, used
            for program in programs.values():
                program.write("\n")
        for program in programs.values():
            assert "still there 5" in program.finish().expect().stdout


@pytest.mark.mpi
def test_a_thread_that_calls_on_while_jobs_end_and_begin() -> None:
    """Its calls start jobs too. Two at a time would both talk to the one head."""
    source = """
import threading
import mpi_runtime as ray

@ray.remote
def twice(x):
    return 2 * x

def call():
    try:
        while not ends.is_set():
            assert ray.get(twice.remote(1)) == 2
    except ray.errors.ObjectLostError:
        pass

for _ in range(10):
    ray.init(num_cpus=2, ignore_reinit_error=True)
    ends = threading.Event()
    thread = threading.Thread(target=call)
    thread.start()
    assert ray.get(twice.remote(2)) == 4
    ray.shutdown()
    ends.set()
    thread.join()
print("well")
"""
    assert run_program(source, ranks=2, mpi="mpich").expect(0).stdout == "well\n"


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_daemon_threads_that_call_at_the_end_start_no_other_job(ranks: int | None) -> None:
    """Their jobs would begin on the head that ends the one before. The program has ended well: so does its job."""
    source = """
import threading
import mpi_runtime as ray

@ray.remote
def twice(x):
    return 2 * x

def call():
    while True:
        try:
            assert ray.get(twice.remote(1)) == 2
        except ray.errors.MpiRuntimeError:
            pass

ray.init(num_cpus=2)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
print(ray.get(twice.remote(2)))
"""
    for _ in range(2):
        completed = run_program(source, ranks=ranks).expect(0)
        assert completed.stdout == "4\n"
        assert completed.stderr == ""

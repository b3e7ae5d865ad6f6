"""Programs on several hosts: objects go from arena to arena by MPI, and are gone at the end on all of them."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import Program, describe, idle_cpu, process_ids, wait_until
from tests.hosts.lab import Lab

pytestmark = [pytest.mark.mpi, pytest.mark.hosts]
MPIS = ["openmpi", "mpich"]
TWO = {"host1": 2, "host2": 2}
IDLE_CPU_MAX = 0.40
"""Of one core, for all processes: messages from another host come unannounced, so ranks look for them."""

BEGIN = """
import os, sys, time
import numpy as np
import mpi_runtime as ray

ray.init(num_cpus=2)

def on(host, **options):
    return dict(resources={f"node:{host}": 0.001}, **options)

@ray.remote
def make(seed, size):
    return np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)

@ray.remote
def check(seed, array):
    assert np.array_equal(array, np.random.default_rng(seed).integers(0, 255, len(array), dtype=np.uint8))
    return os.uname().nodename, int(array.sum())

@ray.remote
def where():
    return os.uname().nodename
"""


def arenas(program: Program) -> dict[str, tuple[int, int]]:
    """For each memory file of the program's arenas: bytes that are allocated, and number of regions."""
    found = {}
    for pid in program.processes():
        with suppress(OSError):  # it has ended
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if "memfd:mpi_runtime (" in os.readlink(entry):
                    with open(entry, "rb") as file:
                        number = os.fstat(file.fileno()).st_ino
                        header = file.read(16 + 8 * 64)
                        words = [int.from_bytes(header[at : at + 8], sys.byteorder) for at in range(0, len(header), 8)]
                        found[str(number)] = (sum(words[2 : 2 + words[1]]), words[1])
    return found


@pytest.mark.parametrize("mpi", MPIS)
def test_two_hosts_are_two_nodes(mpi: str, two_hosts: Lab) -> None:
    source = (
        BEGIN
        + """
nodes = sorted((node["NodeManagerHostname"], node["Resources"]["CPU"], node["Alive"]) for node in ray.nodes())
print(nodes, ray.cluster_resources()["CPU"])
@ray.remote
def meet(seconds):
    time.sleep(seconds)
    return os.uname().nodename
hosts = ray.get([meet.remote(0.5) for _ in range(16)])
print({host: hosts.count(host) for host in sorted(set(hosts))})
print([ray.get(where.options(**on(host)).remote()) for host in ("host1", "host2", "host1")], flush=True)
os.mkdir("project")
with open("project/data", "wb") as file:
    file.write(bytes(200_000))
@ray.remote(runtime_env={"working_dir": "project"})
def find():
    return os.getcwd(), os.path.getsize("data"), os.uname().nodename
found = ray.get([find.options(**on(host)).remote() for host in ("host1", "host2", "host1", "host2")])
assert found[:2] == found[2:] and [one[1:] for one in found[:2]] == [(200_000, "host1"), (200_000, "host2")], found
assert found[0][0] != found[1][0], found  # each host has its own copy
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        completed = program.finish().expect()
    nodes, spread, asked = completed.stdout.splitlines()
    assert nodes == "[('host1', 2.0, True), ('host2', 2.0, True)] 4.0"
    assert "'host1'" in spread
    assert "'host2'" in spread
    assert asked == "['host1', 'host2', 'host1']"


@pytest.mark.parametrize(("mpi", "size"), [("openmpi", 20_000_000), ("mpich", 1_000_000)])
def test_objects_cross_hosts(mpi: str, size: int, two_hosts: Lab) -> None:
    """As results, as arguments, inside others, from and to the driver; when the last reference goes, all is freed."""
    source = (
        BEGIN
        + f"""
size = {size}
there = make.options(**on("host2")).remote(1, size)
here = make.options(**on("host1")).remote(2, size)
assert ray.get(check.options(**on("host1")).remote(1, there))[0] == "host1"  # a result as an argument
assert ray.get(check.options(**on("host2")).remote(2, here))[0] == "host2"
own = ray.put(np.random.default_rng(3).integers(0, 255, size, dtype=np.uint8))
assert ray.get(check.options(**on("host2")).remote(3, own))[0] == "host2"  # the driver's as an argument

@ray.remote
def look(refs):
    return [int(ray.get(ref).sum()) for ref in refs]

sums = ray.get(look.options(**on("host2")).remote([there, here, own]))
arrays = ray.get([there, here, own])  # to the driver
assert [int(array.sum()) for array in arrays] == sums
assert np.array_equal(arrays[0], np.random.default_rng(1).integers(0, 255, size, dtype=np.uint8))
assert not arrays[0].flags.writeable
print("crossed", flush=True)
input()
del there, here, own, arrays
ray.get(where.remote())
print("dropped", flush=True)
input()
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        program.wait_for_line("crossed")
        held = arenas(program)
        assert len(held) == 2
        assert all(used >= 2 * size for used, regions in held.values()), held
        assert all(regions == 2 for used, regions in held.values()), held
        program.write("\n")
        program.wait_for_line("dropped")
        wait_until(lambda: all(used == 0 for used, _ in arenas(program).values()), what="all memory to be freed")
        program.write("\n")
        program.finish().expect()


@pytest.mark.parametrize("mpi", MPIS[:1])
def test_transfers_beside_other_work(mpi: str, two_hosts: Lab) -> None:
    """Large objects cross in both directions while small calls go on; the slowest of them is printed."""
    source = (
        BEGIN
        + """
arrays = {seed: make.options(**on(f"host{1 + seed % 2}")).remote(seed, 30_000_000) for seed in range(6)}
ray.wait(list(arrays.values()), num_returns=6)
checks = [check.options(**on(f"host{2 - seed % 2}"), num_cpus=0.1).remote(seed, ref) for seed, ref in arrays.items()]
slowest, count = 0.0, 0
while len(ray.wait(checks, num_returns=len(checks), timeout=0)[0]) < len(checks):
    start = time.monotonic()
    ray.get(where.options(num_cpus=0.1).remote())
    slowest, count = max(slowest, time.monotonic() - start), count + 1
assert [host for host, _ in ray.get(checks)] == ["host2", "host1"] * 3
print(f"{count} calls beside 180 MB of transfers, the slowest {1000 * slowest:.1f} ms", flush=True)
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        print(mpi, program.finish().expect().stdout)


@pytest.mark.parametrize("mpi", MPIS[:1])
def test_one_object_for_many_tasks_crosses_once(mpi: str, two_hosts: Lab) -> None:
    source = (
        BEGIN
        + """
def sent():
    with open("/proc/self/net/dev") as file:  # name, then eight figures of what was received, then bytes sent
        return sum(int(line.split()[9]) for line in file if line.strip().startswith("eth0"))

own = ray.put(np.zeros(20_000_000, np.uint8))
before = sent()
assert ray.get([check_zero.options(**on("host2"), num_cpus=0.1).remote(own) for _ in range(40)]) == [0] * 40
print("sent", sent() - before)
""".replace("def sent", "@ray.remote\ndef check_zero(array):\n    return int(array.sum())\n\ndef sent")
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        words = program.finish().expect().stdout.split()
    assert 20_000_000 < int(words[1]) < 30_000_000


def test_a_directory_that_other_hosts_do_not_have(two_hosts: Lab) -> None:
    """MPICH's launcher refuses to start ranks there, so only Open MPI's gets as far."""
    source = (
        BEGIN
        + """
look = ray.remote(lambda: os.path.exists(os.getcwd()))
print(os.getcwd(), [ray.get(look.options(**on(host)).remote()) for host in ("host1", "host2")])
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, directory="/tmp/only-here") as program:
        assert program.finish().expect().stdout == "/tmp/only-here [True, True]\n"


@pytest.mark.parametrize("mpi", MPIS)
def test_jobs_end_with_transfers_under_way(mpi: str, two_hosts: Lab) -> None:
    """What was on its way when a job ended must not arrive in the memory of the next."""
    source = (
        BEGIN
        + """
for attempt in range(2):
    refs = [make.options(**on(f"host{1 + seed % 2}")).remote(seed, 20_000_000) for seed in range(4)]
    ray.wait(refs, num_returns=4)
    places = [on(f"host{2 - seed % 2}", num_cpus=0.1) for seed in range(4)]
    checks = [check.options(**where).remote(seed, ref) for seed, (ref, where) in enumerate(zip(refs, places))]
    if attempt % 2:
        ray.wait(checks, num_returns=1)
    del refs, checks
    ray.shutdown()
    ray.init(num_cpus=2)
refs = [make.options(**on(f"host{1 + seed % 2}")).remote(seed, 20_000_000) for seed in range(4)]
checks = [check.options(**where).remote(seed, ref) for seed, (ref, where) in enumerate(zip(refs, places))]
print([host for host, _ in ray.get(checks)], flush=True)
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        assert program.finish().expect().stdout == "['host2', 'host1', 'host2', 'host1']\n"


STUBBORN = """
while True:
    try:
        time.sleep(1000)
    except BaseException:
        pass
"""


@pytest.mark.parametrize("mpi", MPIS)
def test_a_driver_that_is_killed_on_one_host_ends_all(mpi: str, two_hosts: Lab) -> None:
    source = (
        BEGIN
        + """
@ray.remote
def start():
    import subprocess
    subprocess.Popen(["sleep", "1001"])
    subprocess.Popen(["sleep", "1002"], start_new_session=True)

ray.get([start.options(**on(host)).remote() for host in ("host1", "host2")])
print("ready", os.getpid(), flush=True)
time.sleep(1000)
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        driver = int(program.wait_for_line("ready").split()[-1])
        pids = set(program.processes())
        since = time.monotonic()
        os.kill(driver, signal.SIGKILL)
        wait_until(lambda: not (pids & process_ids()) or not program.processes(), 20, "the end of all")
        print(f"{mpi}, driver killed on one of two hosts: {time.monotonic() - since:.2f} s")
        assert program.finish().returncode != 0


@pytest.mark.parametrize(
    ("driver", "mpi"),
    [
        pytest.param("time.sleep(1000)", "openmpi", id="sleeps-openmpi"),
        pytest.param("while True: pass", "openmpi", id="computes-openmpi"),
        pytest.param(STUBBORN, "openmpi", id="continues-openmpi"),
        pytest.param(STUBBORN, "mpich", id="continues-mpich"),
    ],
)
@pytest.mark.dies("launcher")
def test_the_launcher_is_killed_and_nothing_is_left_on_any_host(mpi: str, driver: str, two_hosts: Lab) -> None:
    source = (
        BEGIN
        + """
@ray.remote
def work():
    print("working", flush=True)
    time.sleep(1001)

refs = [work.options(**on(f"host{1 + number % 2}")).remote() for number in range(4)]
"""
        + driver
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        wait_until(lambda: program.stdout.count("working\n") == 4, 30, "all tasks")
        since = time.monotonic()
        program.signal(signal.SIGKILL)
        wait_until(lambda: not program.processes(), 30, "the end of all")
        print(f"{mpi}, launcher killed on one of two hosts: {time.monotonic() - since:.2f} s")
        assert program.finish().returncode == -signal.SIGKILL


@pytest.mark.parametrize("mpi", MPIS[:1])
def test_an_idle_job_on_two_hosts(mpi: str, two_hosts: Lab) -> None:
    source = (
        BEGIN
        + """
ray.get([where.remote() for _ in range(100)])
print("idle", flush=True)
input()
"""
    )
    with two_hosts.mpirun(source, ranks=TWO, mpi=mpi) as program:
        program.wait_for_line("idle")
        used = idle_cpu({mpi: program})[mpi]
        print(f"{mpi}: 4 idle ranks on two hosts, with their launcher: {100 * used:.2f} % of a core")
        assert used < IDLE_CPU_MAX
        program.write("\n")
        program.finish().expect()


SILENT = (
    BEGIN.replace("num_cpus=2", "num_cpus=2, heartbeat_timeout_s=3")
    + """
@ray.remote
def work():
    print("working", flush=True)
    time.sleep(100)

ray.get([work.remote() for _ in range(4)])
"""
)


@pytest.mark.parametrize(("ranks", "mpi"), [(1, "openmpi"), (2, "openmpi"), (2, "mpich")])
@pytest.mark.dies("host")
def test_a_host_that_is_cut_off_ends_the_job_on_both_sides(mpi: str, ranks: int, two_hosts: Lab) -> None:
    """Nobody is told: no connection is reset, and the launcher hears of no process that ends over there."""
    with two_hosts.mpirun(SILENT, ranks={"host1": ranks, "host2": ranks}, mpi=mpi) as program:
        wait_until(lambda: program.stdout.count("working\n") == 4, 30, "all tasks")
        with two_hosts.cut("host2"):
            wait_until(lambda: program.process.poll() is not None, 15, "the end of the launcher")
            wait_until(lambda: not are_left(program), 15, "the end of all ranks")
        completed = program.finish()
    assert completed.returncode != 0
    assert "on host2: nothing was heard for 3 s, so the host or the network is gone" in completed.stderr


def are_left(program: Program) -> str:
    """Ranks, what they have started, and launchers' processes: all but the stand-in for ssh and what it runs."""
    words = {pid: describe(pid).split(maxsplit=2) for pid in program.processes()}
    names = {pid: parts[2] for pid, parts in words.items() if len(parts) == 3}  # the others have ended
    beside = ("sh ", "/bin/sh ", "sleep ", "nsenter ")
    return "".join(f"{pid} {name}\n" for pid, name in names.items() if not name.startswith(beside))


def test_a_host_that_is_slow_to_answer_is_not_lost(two_hosts: Lab) -> None:
    """A cut that heals within the time costs nothing."""
    source = SILENT.replace("time.sleep(100)", "time.sleep(4)\n    return os.uname().nodename").replace(
        "ray.get([work.remote() for _ in range(4)])", "print(ray.get([work.remote() for _ in range(4)]))"
    )
    with two_hosts.mpirun(source, ranks={"host1": 1, "host2": 1}) as program:
        wait_until(lambda: program.stdout.count("working\n") == 4, 30, "all tasks")
        with two_hosts.cut("host2"):
            time.sleep(1.5)
        assert program.finish().expect().stdout.splitlines()[-1].count("'host2'") == 2


def test_one_rank_on_each_host_serves_both_beside_the_program_s_own_mpi(two_hosts: Lab) -> None:
    """There the head, which runs calls too, is a thread of the program."""
    source = (
        "from mpi4py import MPI\n"
        + BEGIN
        + ("print([ray.get(where.options(**on(host)).remote()) for host in ('host1', 'host2')], MPI.COMM_WORLD.size)\n")
    )
    with two_hosts.mpirun(source, ranks={"host1": 1, "host2": 1}) as program:
        assert program.finish().expect().stdout == "['host1', 'host2'] 2\n"

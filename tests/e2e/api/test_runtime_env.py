"""Calls start in a copy of a directory, and find the modules and variables they are to find; nothing of it is left."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers import kill_at_once, run_program, start_program, wait_until

WAYS = [None, pytest.param((3, "openmpi"), marks=pytest.mark.mpi)]
PROJECT = {
    "project/data/text.txt": "first",
    "project/helper.py": "def who():\n    return 'helper of the project'\n",
    "project/run.sh": "#!/bin/sh\necho ran in $(basename $(dirname $PWD))\n",
    "project/.gitignore": "*.log\nlogs/\n",
    "project/noise.log": "x",
    "project/logs/more": "x",
    "project/left.csv": "x",
    "project/empty/": "",
    "modules/package/__init__.py": "from package.inner import NAME\n",
    "modules/package/inner.py": "NAME = 'package'\n",
    "modules/single.py": "NAME = 'single'\n",
    "other/helper.py": "def who():\n    return 'another helper'\n",
}


def write(place: Path) -> None:
    for name, text in PROJECT.items():
        path = place / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / "project" / "run.sh").chmod(0o755)


USED = """
import os, subprocess, sys
from pathlib import Path
import mpi_runtime as ray

place = Path(sys.argv[1])
own = {"working_dir": str(place / "other"), "env_vars": {"B": "2"}}
ray.init(num_cpus=2, runtime_env={
    "working_dir": str(place / "project"),
    "py_modules": [str(place / "modules" / "package"), place / "modules" / "single.py"],
    "excludes": ["*.csv"],
    "env_vars": {"A": "1"},
})
assert "helper" not in sys.modules and os.getcwd() != str(place / "project")

def look():
    import helper
    try:
        import package, single
    except ImportError:  # in the second job
        package = single = helper
        helper.NAME = ""
    names = sorted(str(path.relative_to(".")) for path in Path(".").rglob("*") if "__pycache__" not in path.parts)
    here = Path.cwd()
    return {
        "who": helper.who(), "modules": [package.NAME, single.NAME], "names": names, "here": here,
        "text": Path("data/text.txt").read_text() if Path("data").exists() else "",
        "first": sys.path[0] == str(here),
        "modes": [oct(path.stat().st_mode & 0o777) for path in (here, here.parent, here.parent.parent)],
        "A": os.environ.get("A"), "B": os.environ.get("B"), "own": ray.get_runtime_context().runtime_env,
        "by a program": subprocess.run(
            [sys.executable, "-c", "import helper; print(helper.who())"], capture_output=True, text=True, cwd="/"
        ).stdout,
    }

look_remotely = ray.remote(look)

@ray.remote
def nested():
    return ray.get([look_remotely.remote(), look_remotely.options(runtime_env=own).remote()])

@ray.remote(runtime_env=own, max_restarts=1)
class Actor:
    def look(self):
        return look()

    def nested(self):
        return ray.get(look_remotely.remote())

(place / "project" / "data" / "text.txt").write_text("changed after init()")
found = ray.get(look_remotely.remote())
assert found["names"] == [".gitignore", "data", "data/text.txt", "empty", "helper.py", "run.sh"], found
assert found["who"] == "helper of the project" and found["modules"] == ["package", "single"], found
assert found["text"] == "first" and found["first"] and found["modes"] == ["0o700"] * 3, found
assert (found["A"], found["B"]) == ("1", None)
assert found["own"]["env_vars"] == {"A": "1"} and found["own"]["working_dir"] == found["here"].name, found
assert len(found["own"]["py_modules"]) == 2 and found["own"] == ray.get_runtime_context().runtime_env, found
assert found["by a program"] == "helper of the project\\n", found
assert found["here"].is_relative_to(os.environ["TMPDIR"]), found
assert not found["here"].is_relative_to(place), found

# What a call says replaces what the job says, but for variables; its modules are still those of the job.
changed = ray.get(look_remotely.options(runtime_env=own).remote())
assert changed["who"] == "another helper" and changed["names"] == ["helper.py"], changed
assert changed["modules"] == ["package", "single"] and (changed["A"], changed["B"]) == ("1", "2"), changed
actor = Actor.remote()
assert ray.get(actor.look.remote())["here"] == changed["here"], "unpacked twice"
assert ray.get(actor.nested.remote())["here"] == changed["here"], "not inherited"
ray.kill(actor, no_restart=False)
assert ray.get(actor.look.remote())["here"] == changed["here"], "started again elsewhere"
assert [one["here"] for one in ray.get(nested.remote())] == [found["here"], changed["here"]]
assert {one["here"] for one in look_remotely.options(runtime_env=own).starmap([()] * 40)} == {changed["here"]}

@ray.remote
def run():
    return subprocess.run(["./run.sh"], capture_output=True, text=True).stdout
assert ray.get(run.remote()).startswith("ran in ")

# A directory that cannot be written is no reason to leave it behind.
@ray.remote
def lock_up():
    Path("made").mkdir()
    Path("made/file").write_text("x")
    Path("made").chmod(0o500)
ray.get(lock_up.remote())

missing = look_remotely.options(runtime_env={"working_dir": "nowhere"})
try:
    missing.remote()
except ValueError as error:
    assert "nowhere" in str(error)
else:
    raise AssertionError("not refused")
other = look_remotely.options(runtime_env=own)

@ray.remote
def through():
    return ray.get(other.remote())

assert ray.get(through.remote())["here"] == changed["here"]
ray.shutdown()
left = [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("mpi_runtime")]
assert left == [], left
ray.init(num_cpus=2)  # the next job knows nothing of it
assert ray.get(ray.remote(os.getcwd).remote()) == os.getcwd()
again = [ray.get(through.remote()), *other.starmap([()] * 10)]  # what has been made in a job was of that job
assert {one["who"] for one in again} == {"another helper"} and again[0]["here"] != changed["here"], again
print("good")
"""


@pytest.mark.parametrize("way", WAYS)
def test_files_are_found(way: tuple[int, str] | None, tmp_path: Path) -> None:
    write(tmp_path)
    ranks, mpi = way or (None, None)
    assert run_program(USED, str(tmp_path), ranks=ranks, mpi=mpi).expect().stdout == "good\n"


HELD = """
import os, sys, time
import mpi_runtime as ray
ray.init(num_cpus=2, runtime_env={"working_dir": sys.argv[1]})

@ray.remote
def here():
    return os.getcwd()

print("in", ray.get(here.remote()), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("ranks", "victim"),
    [(None, "driver"), (None, "mpi-rt-head"), (None, "mpi-rt-forksrv"), pytest.param(2, "", marks=pytest.mark.mpi)],
)
def test_nothing_is_left_however_the_job_ends(ranks: int | None, victim: str, tmp_path: Path) -> None:
    write(tmp_path)
    with start_program(HELD, str(tmp_path / "project"), ranks=ranks) as program:
        directory = Path(program.wait_for_line("in /").removeprefix("in "))
        assert directory.is_dir()
        if not victim:
            program.signal(signal.SIGTERM)
        elif victim == "driver":
            program.signal(signal.SIGKILL)
        else:
            (pid,) = (pid for pid in program.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == victim)
            os.kill(pid, signal.SIGKILL)
        if victim == "mpi-rt-forksrv":  # the job goes on with another one
            program.signal(signal.SIGTERM)
        wait_until(lambda: not directory.parent.parent.exists(), what="the removal")
        assert program.finish().returncode != 0


def test_what_a_job_left_that_was_killed_as_a_whole_goes_with_the_next(tmp_path: Path) -> None:
    write(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {"MPI_RUNTIME_SCRATCH_DIR": str(scratch)}

    def start(until: str) -> tuple[Path, list[int]]:
        with start_program(HELD, str(tmp_path / "project"), env=env) as program:
            directory = Path(program.wait_for_line("in /").removeprefix("in ")).parent
            assert directory.is_dir()
            pids = program.processes()
            if until == "killed":
                kill_at_once(pids)
            else:
                program.signal(signal.SIGINT)
            program.finish()
        return directory, pids

    first, _ = start("killed")
    assert (first / "lock").exists()
    held = scratch / first.parent.name / f"other{first.name[first.name.index('@') :]}"
    held.mkdir()
    import fcntl

    with open(held / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # another job of this user on this host
        second, _ = start("interrupted")
        assert second != first
        assert list((scratch / first.parent.name).iterdir()) == [held]
    start("interrupted")
    assert list(scratch.iterdir()) == []


def test_what_cannot_be_set_up_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    source = """
import os, sys
import mpi_runtime as ray
from mpi_runtime.exceptions import ActorDiedError, RuntimeEnvSetupError

for wrong in (sys.argv[1] + "/nowhere", sys.argv[1] + "/project/helper.py"):
    try:
        ray.init(runtime_env={"working_dir": wrong})
    except ValueError as error:
        assert wrong in str(error)
    else:
        raise AssertionError("not refused")
    assert not ray.is_initialized()
ray.init(num_cpus=1, runtime_env={"working_dir": sys.argv[1] + "/project"})

@ray.remote
def here():
    return os.getcwd()

@ray.remote
class Actor:
    def here(self):
        return os.getcwd()

refs = [here.remote() for _ in range(3)]
for ref in refs:
    try:
        ray.get(ref)
    except RuntimeEnvSetupError as error:
        assert "MPI_RUNTIME_SCRATCH_DIR" in str(error) and "alone" in str(error), error
    else:
        raise AssertionError("not refused")
try:
    ray.get(Actor.remote().here.remote())
except ActorDiedError as error:
    assert "alone" in str(error)
else:
    raise AssertionError("not refused")
os.chmod(sys.argv[2], 0o700)
assert ray.get(here.remote()).startswith(sys.argv[2])
print("good")
"""
    scratch = tmp_path / "scratch"
    anybodys = scratch / f"mpi_runtime-{os.geteuid()}"
    anybodys.mkdir(parents=True)
    anybodys.chmod(0o777)
    env = {"MPI_RUNTIME_SCRATCH_DIR": str(scratch)}
    completed = run_program(source, str(tmp_path), str(anybodys), env=env).expect()
    assert completed.stdout == "good\n"
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("place", ["nowhere", "/proc"])
def test_there_is_no_directory_for_the_files(place: str, tmp_path: Path) -> None:
    """The error says where they go on this host, and how that is changed."""
    write(tmp_path)
    source = """
import os, sys
import mpi_runtime as ray

@ray.remote
def here(): return os.getcwd()

ray.init(num_cpus=1)
try:
    ray.get(here.options(runtime_env={"working_dir": sys.argv[1] + "/project"}).remote())
except ray.errors.RuntimeEnvSetupError as error:
    print(str(error).splitlines()[-1])
"""
    scratch = tmp_path / "nowhere" if place == "nowhere" else Path(place)
    completed = run_program(source, str(tmp_path), env={"MPI_RUNTIME_SCRATCH_DIR": str(scratch)}).expect()
    assert f"unpacked below {scratch}; the variable MPI_RUNTIME_SCRATCH_DIR names another" in completed.stdout


HOOK = """
import os, sys
import mpi_runtime as ray

def hook():
    os.environ["BEGUN"] = os.environ.get("BEGUN", "") + os.environ.get("MODE", "-")

@ray.remote
def begun():
    return os.environ.get("BEGUN")

@ray.remote
class Actor:
    def __init__(self):
        self.begun = os.environ.get("BEGUN")

    def get(self):
        return self.begun

def fails():
    sys.exit(3)

ray.init(num_cpus=2, quiet=True, runtime_env={"env_vars": {"MODE": "fast"}, "worker_process_setup_hook": hook})
print(*ray.get([begun.remote() for _ in range(4)]), ray.get(Actor.remote().get.remote()), os.environ.get("BEGUN"))
print(ray.get(begun.options(runtime_env={"env_vars": {"MODE": "slow"}}).remote()))
print(ray.get(begun.options(runtime_env={"worker_process_setup_hook": "os.getpid"}).remote()))
for wrong in (fails, "os.nothing"):
    try:
        ray.get(begun.options(runtime_env={"worker_process_setup_hook": wrong}).remote())
    except ray.exceptions.RuntimeEnvSetupError as error:
        print(str(error).splitlines()[-1])
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_function_that_each_process_calls_first(way: tuple[int, str] | None) -> None:
    ranks, mpi = way or (None, None)
    completed = run_program(HOOK, ranks=ranks, mpi=mpi).expect(0)
    assert completed.stdout.splitlines() == [
        "fast fast fast fast fast None",
        "slow",
        "None",
        "SystemExit: 3",
        "AttributeError: module 'os' has no attribute 'nothing'",
    ]

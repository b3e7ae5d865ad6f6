"""What tasks find around them: modules, working directory, environment, arguments, descriptors."""

import os
import sys
from pathlib import Path

import pytest

from tests.helpers import run_program, start_command

WAYS = [None, pytest.param(2, marks=pytest.mark.mpi)]
"""Numbers of ranks."""


@pytest.mark.parametrize("ranks", WAYS)
def test_modules_beside_the_program(ranks: int | None, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "def add(a, b): return a + b\nclass Pair:\n    def __init__(self, a): self.a = a\n"
    )
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text(
        "import mpi_runtime as ray\n@ray.remote\ndef inner(x): return x + 1\n"
    )
    app = tmp_path / "app.py"
    app.write_text("""
import helper
import mpi_runtime as ray
from package.inner import inner

@ray.remote
def use(pair):
    import helper as again
    return helper.add(pair.a, 1), isinstance(pair, again.Pair)

ray.init(num_cpus=1)
print(ray.get(use.remote(helper.Pair(2))), ray.get(inner.remote(1)))
""")
    completed = run_program(app, ranks=ranks, cwd=Path("/")).expect()
    assert completed.stdout == "(3, True) 2\n"


@pytest.mark.parametrize("ranks", WAYS)
def test_modules_with_the_names_of_others(ranks: int | None, tmp_path: Path) -> None:
    """A file beside the program that is called like a module of Python's, or like one of ours, stays the user's own.

    The runtime's own processes must not run it, and tasks must find it as the driver does.
    """
    for name in ("queue", "random", "calendar", "types_of_mine", "psutil", "threadpoolctl"):
        (tmp_path / f"{name}.py").write_text(f"import os\nprint('{name} is loaded', flush=True)\nMINE = '{name}'\n")
    app = tmp_path / "app.py"
    app.write_text("""
import mpi_runtime as ray

@ray.remote
def find():
    import calendar, types_of_mine
    return calendar.MINE, types_of_mine.MINE

@ray.remote
def find_common():
    import queue, random
    return getattr(queue, "MINE", "theirs"), getattr(random, "MINE", "theirs")

ray.init(num_cpus=1, log_to_driver=False)
print(ray.get(find.remote()))
import queue, random
mine = getattr(queue, "MINE", "theirs"), getattr(random, "MINE", "theirs")
print(ray.get(find_common.remote()), mine)
""")
    completed = run_program(app, ranks=ranks).expect()
    assert "('calendar', 'types_of_mine')" in completed.stdout.splitlines()
    assert "('queue', 'random') ('queue', 'random')" in completed.stdout.splitlines()
    assert "psutil is loaded" not in completed.stdout
    assert "threadpoolctl is loaded" not in completed.stdout


@pytest.mark.parametrize("ranks", WAYS)
def test_surroundings_of_tasks(ranks: int | None, tmp_path: Path) -> None:
    place = tmp_path / "where"
    place.mkdir()
    source = """
import os, resource, sys
import mpi_runtime as ray

os.environ["SET_ABOVE_INIT"] = "yes"
ray.init(num_cpus=1)
os.environ["SET_BELOW_INIT"] = "yes"

def inheritable():
    found = []
    for number in range(3, 256):
        try:
            found += [number] if os.get_inheritable(number) else []
        except OSError:
            pass
    return found

@ray.remote
def look():
    allowed = ("_default_slots", "_mapping_policy", "_binding_policy", "_AS_ROOT", "_AS_ROOT_CONFIRM")  # settings
    kinds = ("OMPI_COMM", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PRTE_", "MPI_LOCAL", "HYDI_")
    return {
        "directory": os.getcwd(),
        "arguments": sys.argv[1:],
        "launcher": [name for name in os.environ if name.startswith(kinds) and not name.endswith(allowed)],
        "set": [name for name in os.environ if name.startswith("SET_")],
        "stdin": sys.stdin.read(),
        "session": os.getsid(0) == os.getpid(),
        "mpi": "mpi4py.MPI" in sys.modules,
        "inherited": inheritable(),
    }

print(ray.get(look.remote()))
print([name for name in os.environ if name.startswith(("OMPI_COMM", "PMIX_RANK", "PMI_RANK"))])
"""
    completed = run_program(source, "a", "-b", ranks=ranks, cwd=place, env={"SET_OUTSIDE": "yes"}).expect()
    first, second = completed.stdout.splitlines()
    assert eval(first) == {
        "directory": str(place),
        "arguments": ["a", "-b"],
        "launcher": [],
        "set": ["SET_OUTSIDE", "SET_ABOVE_INIT"] if ranks is None else eval(first)["set"],
        "stdin": "",
        "session": True,
        "mpi": False,
        "inherited": [],
    }
    assert {"SET_OUTSIDE", "SET_ABOVE_INIT"} == set(eval(first)["set"])
    assert second == "[]"


@pytest.mark.parametrize("ranks", WAYS)
def test_few_descriptors_are_allowed_at_first(ranks: int | None) -> None:
    """A soft limit of 256: more executors than that has descriptors for; user code keeps its own limit."""
    source = """
import resource
import mpi_runtime as ray

@ray.remote
class Actor:
    def limit(self):
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

ray.init(num_cpus=200)
actors = [Actor.options(num_cpus=1).remote() for _ in range(90)]
print(set(ray.get([actor.limit.remote() for actor in actors])), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    command = [sys.executable, "-c", source]
    if ranks:
        command = [str(Path(sys.executable).with_name("mpirun")), "-n", str(ranks), *command]
    with start_command(["bash", "-c", 'ulimit -S -n 256; exec "$@"', "bash", *command]) as program:
        completed = program.finish().expect()
    assert completed.stdout == "{256} 256\n"


@pytest.mark.parametrize("ranks", WAYS)
def test_whoever_started_it_ignores_the_end_of_children(ranks: int | None) -> None:
    """Processes inherit that. Then nobody could learn how a child has ended, unless he changes it."""
    source = """
import os, signal
import mpi_runtime as ray

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ray.init(num_cpus=1)

@ray.remote(max_retries=0)
def end(code):
    os._exit(code)

try:
    ray.get(end.remote(7))
except ray.errors.WorkerCrashedError as error:
    print("code 7" in str(error))
print(ray.get(ray.remote(os.system).remote("exit 3")) >> 8)
"""
    completed = run_program(source, ranks=ranks).expect()
    assert (completed.stdout, completed.stderr) == ("True\n3\n", "")


def test_a_directory_that_is_gone() -> None:
    source = """
import os, sys
import mpi_runtime as ray
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
ray.init(num_cpus=1)
print(ray.get(ray.remote(lambda: 5).remote()))
"""
    assert run_program(source).expect().stdout == "5\n"


def test_closed_standard_streams(tmp_path: Path) -> None:
    """As a daemon or cron may start it: without standard input, output and error."""
    app = tmp_path / "app.py"
    app.write_text("""
import mpi_runtime as ray
ray.init(num_cpus=1)
@ray.remote
def talk():
    print("heard by nobody")
    return 5
value = ray.get(talk.remote())
open("answer", "w").write(str(value))
""")
    with start_command(["bash", "-c", f"exec {sys.executable} {app} <&- >&- 2>&-"], cwd=tmp_path) as program:
        program.finish().expect()
    assert (tmp_path / "answer").read_text() == "5"


def test_without_a_home_or_path() -> None:
    source = "import mpi_runtime as ray\nray.init(num_cpus=1)\nprint(ray.get(ray.remote(lambda: 5).remote()))"
    environment = {name: None for name in os.environ if name not in ("PATH", "PYTHONPATH", "MPI_RUNTIME_TEST")}
    assert run_program(source, env={**environment, "PATH": None}).expect().stdout == "5\n"


def test_optimised_and_isolated_interpreters(tmp_path: Path) -> None:
    """`python -O` and `python -X utf8` mean the tasks too."""
    app = tmp_path / "app.py"
    app.write_text("""
import sys
import mpi_runtime as ray
ray.init(num_cpus=1)
print(ray.get(ray.remote(lambda: (sys.flags.optimize, sys.flags.utf8_mode)).remote()))
""")
    with start_command([sys.executable, "-O", "-X", "utf8", app]) as program:
        assert program.finish().expect().stdout == "(1, 1)\n"


def test_no_warnings_in_pythons_development_mode() -> None:
    program = """
import mpi_runtime as ray

@ray.remote
def f(): return 1

for _ in range(2):
    ray.init(num_cpus=1)
    print(ray.get(f.remote()))
    ray.shutdown()
"""
    completed = run_program(program, options=["-X", "dev"]).expect()
    assert completed.stdout == "1\n1\n"
    assert "Warning" not in completed.stderr, completed.stderr


@pytest.mark.parametrize("ranks", WAYS)
def test_a_program_closes_all_descriptors(ranks: int | None) -> None:
    """As programs do that make themselves daemons: they are told, and it is not the end of what can go on."""
    source = """
import os
import mpi_runtime as ray

@ray.remote(max_retries=0)
def close(): os.closerange(3, 4096)

ray.init(num_cpus=1)
try:
    ray.get(close.remote())
except ray.errors.WorkerCrashedError:
    print(ray.get(ray.remote(len).remote("four")))
os.closerange(3, 4096)
for _ in range(2):
    try:
        ray.get(ray.remote(len).remote("four"))  # a small value that was put needs no head
    except ray.errors.HeadDiedError as error:
        print("Close only descriptors that you have opened" in str(error))
ray.shutdown()
try:
    ray.init(num_cpus=1)
    print(ray.get(ray.put(5)))
except ray.errors.LaunchError as error:
    print("Close only descriptors that you have opened" in str(error))
"""
    completed = run_program(source, ranks=ranks)
    assert completed.stdout.splitlines() == ["4", "True", "True", "True" if ranks else "5"]
    assert "code of this process has closed its descriptor" in completed.stderr, "what the task says"
    assert "Traceback" not in completed.stderr

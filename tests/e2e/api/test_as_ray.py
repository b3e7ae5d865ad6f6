"""`import ray` gives this runtime: by `--as-ray`, by `install_as_ray()`, in the driver and in every executor."""

import sys
from pathlib import Path

import pytest

from mpi_runtime.cli.run import python_command
from tests.helpers import run_program, start_command

LIBRARY = """
import ray
from ray.actor import ActorHandle
from ray.util.queue import Queue


def double(numbers):
    if not ray.is_initialized():
        ray.init(num_cpus=2)
    return ray.get([ray.remote(lambda n: 2 * n).remote(n) for n in numbers])


@ray.remote
class Adder:
    def __init__(self, start):
        self.total = start

    def add(self, n):
        self.total += n
        return self.total
"""
PROGRAM = """
import library
import ray


@ray.remote
def nested(handle):
    import library
    import ray._private.services

    assert isinstance(handle, library.ActorHandle), handle
    address = ray._private.services.get_node_ip_address()
    return ray.__name__, ray.get(handle.add.remote(5)), library.double([4]), address != ""


@ray.remote(runtime_env={"env_vars": {"A": "1"}})
def other():
    import os

    import ray
    import ray.util

    return os.environ["A"], ray.util.as_completed.__name__


print(library.double([1, 2]))
print(ray.get(nested.remote(library.Adder.remote(1))), ray.get(other.remote()))
try:
    ray.get(ray.remote(lambda: 1 / 0).remote())
except ray.exceptions.RayTaskError as error:
    print(isinstance(error, ZeroDivisionError))
queue = library.Queue()
queue.put(3)
print(queue.get(), ray.get_runtime_context().get_job_id())
"""
SAID = "[2, 4]\n('ray', 6, [8], True) ('1', 'as_completed')\nTrue\n3 01000000\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path / "app.py"


def test_by_the_option_of_the_module(app: Path) -> None:
    assert run_program(app, options=("-m", "mpi_runtime", "--as-ray")).expect(0).stdout == SAID


@pytest.mark.mpi
def test_on_several_ranks(app: Path) -> None:
    completed = run_program(app, ranks=3, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout == SAID


@pytest.mark.mpi
def test_by_the_option_of_run(app: Path) -> None:
    command = [sys.executable, "-m", "mpi_runtime", "run", "-n", "2", "--as-ray", str(app)]
    with start_command(command) as program:
        assert program.finish().expect(0).stdout == SAID


@pytest.mark.mpi
def test_by_the_function_where_all_ranks_run_the_program(app: Path) -> None:
    app.write_text("import mpi_runtime\nmpi_runtime.install_as_ray()\n" + PROGRAM)
    assert run_program(app, ranks=2).expect(0).stdout == SAID


def test_with_an_exit_file(app: Path, tmp_path: Path) -> None:
    options = ("-m", "mpi_runtime", "--exit-file", str(tmp_path / "code"), "--as-ray")
    run_program(app, options=options).expect(0)
    assert (tmp_path / "code").read_text() == "0\n"


def test_the_function_comes_too_late() -> None:
    completed = run_program("""
import sys, types
import mpi_runtime
mpi_runtime.init(num_cpus=1)
def import_another():
    mpi_runtime.shutdown()
    sys.modules["ray"] = types.ModuleType("ray")
for prepare in (lambda: None, import_another):
    prepare()
    try:
        mpi_runtime.install_as_ray()
    except RuntimeError as error:
        print(error)
""").expect(0)
    running, imported = completed.stdout.splitlines()
    assert "before init()" in running.replace("\n", " ")
    assert "Ray itself has been imported" in imported


NAMES = """
import importlib.metadata, importlib.util
import ray, ray.util
from ray import *
from ray.util.placement_group import placement_group, PlacementGroup
import ray.util.placement_group

assert ray.util.placement_group is placement_group, "the module has taken the function's place"
assert init is ray.init and ObjectRef is ray.ObjectID and "ActorPool" in dir(ray.util)
found = list(importlib.metadata.distributions(name="ray"))
print(importlib.metadata.version("ray") == ray.__version__, [found[0].version])
print(importlib.util.find_spec("ray.rllib"), importlib.util.find_spec("ray.util.queue").name)
print(hasattr(ray, "nothing"), hasattr(ray.util, "nothing"), isinstance(1, ray.data.Dataset))
for line in ("import ray.rllib", "from ray import serve", "ray.nothing", "ray.serve", "ray.java_function(1)",
             "from ray.util import nothing", "ray.data.from_pandas(1)", "ray.data.Dataset()", "import ray.nothing",
             "from ray.dag import InputNode", "import ray._private.utils", "ray.job_config.JobConfig()"):
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_what_is_not_there_is_named_where_it_is_used() -> None:
    first, second, third, *errors = (
        run_program(NAMES, options=("-m", "mpi_runtime", "--as-ray")).expect(0).stdout.splitlines()
    )
    assert (first, second, third) == ("True ['2.60.0']", "None ray.util.queue", "False False False")
    assert [line.split()[:2] for line in errors] == [
        ["ModuleNotFoundError", "ray.rllib"],
        ["ModuleNotFoundError", "ray.serve"],
        ["AttributeError", "module"],
        ["AttributeError", "ray.serve"],
        ["NotImplementedError", "ray.java_function"],
        ["ImportError", "cannot"],
        ["NotImplementedError", "ray.data.from_pandas"],
        ["NotImplementedError", "ray.data.Dataset"],
        ["ModuleNotFoundError", "No"],
        ["ModuleNotFoundError", "ray.dag"],
        ["ModuleNotFoundError", "ray._private.utils"],
        ["NotImplementedError", "ray.job_config.JobConfig"],
    ]
    assert all("mpi_runtime" in line for line in errors[:5])


def test_nothing_is_called_ray_unless_it_is_asked_for() -> None:
    completed = run_program("""
import mpi_runtime, sys
mpi_runtime.install_as_ray
mpi_runtime.init(num_cpus=1)
print(any("as_ray.modules" in name for name in sys.modules), mpi_runtime.get(mpi_runtime.remote(
    lambda: any("as_ray" in type(finder).__module__ for finder in sys.meta_path)).remote()))
""").expect(0)
    assert completed.stdout == "False False\n"


def test_the_command_that_run_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()
    begin = [sys.executable, "-m", "mpi_runtime", "--as-ray"]
    assert python_command(["app.py", "x"], as_ray=True) == [*begin, "app.py", "x"]
    assert python_command(["-m", "pkg"], as_ray=True) == [*begin, "-m", "pkg"]
    assert python_command(["-"], as_ray=True) == [*begin, "-"]
    optimised = [sys.executable, "-O", *begin[1:], "app.py"]
    assert python_command(["python", "-O", "app.py"], as_ray=True) == optimised

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
             "from ray.util import nothing", "ray.data.from_tf(1)", "import ray.nothing",
             "import ray.experimental.channel", "import ray._private.utils", "ray.autoscaler.sdk.request_resources()"):
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, error)
from ray.train import ControllerError, PreemptionError, TRAIN_DATASET_KEY, TrainingFailedError, WorkerGroupError
assert TRAIN_DATASET_KEY == "train" and issubclass(WorkerGroupError, TrainingFailedError)
try:
    raise WorkerGroupError("of a worker", {0: ValueError()})
except (ControllerError, PreemptionError):
    print("never raised")
except WorkerGroupError:
    pass
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
        ["NotImplementedError", "ray.data.from_tf"],
        ["ModuleNotFoundError", "No"],
        ["ModuleNotFoundError", "ray.experimental.channel"],
        ["ModuleNotFoundError", "ray._private.utils"],
        ["NotImplementedError", "ray.autoscaler.sdk.request_resources"],
    ]
    assert all("mpi_runtime" in line for line in errors[:5])


ARGUMENTS = """
import ray
from ray.dag import InputNode, MultiOutputNode
from ray.util import state

ray.init(num_cpus=2)
add = ray.remote(lambda a, b: a + b)
ref = ray.put(3)
print(ray.get(object_refs=ref, timeout=9), ray.get([ref], copy=True))
print(ray.wait(ray_waitables=[ref], timeout=9) == ([ref], []))
ray.cancel(ray_waitable=ref, force=False)
print(ref.job_id() == ray.JobID.from_hex(ray.get_runtime_context().get_job_id()))
with InputNode() as given:
    graph = MultiOutputNode([add.bind(given[0], 1), add.bind(given.by, 2)])
print(ray.get(graph.execute(10, by=20)))

@ray.remote
class Counter:
    total = 0
    def inc(self, by): pass
    def _hidden(self): pass

counter = Counter.remote()
print([name for name in ("inc", "total", "remote", "_hidden") if name in dir(Counter)])
ray.get(counter.__ray_ready__.remote())
listed = state.list_actors(None, [["class_name", "=", "Counter"]], limit=5, detail=True, timeout=3)
print(len(listed), state.get_actor(listed[0].actor_id, timeout=3).state, len(state.list_actors(_explain=True)))
assert type(listed[0].asdict()) is dict and listed[0].asdict() == listed[0]
group = ray.util.placement_group([{"CPU": 1}])
ray.get(group.ready())
by_id = state.get_placement_group(group.id.hex())
worker = state.list_workers(filters=[("actor_id", "=", listed[0].actor_id)])[0]
print(by_id.state, state.get_worker(worker.worker_id).pid == worker.pid, len(state.get_objects(ref.hex())))
objects = state.summarize_objects(raise_on_missing_output=False)["cluster"]
print(state.get_worker("0" * 31 + "9"), objects["total_objects"] > 0)
inside = ray.remote(lambda: ray.get_runtime_context().current_placement_group_id).options(placement_group=group)
print(ray.get(inside.remote()) == group.id, ray.get_runtime_context().current_placement_group_id)
Pool = ray.util.multiprocessing.Pool
for wrong in (lambda: state.list_tasks("10.0.0.1"), lambda: Pool(1, ray_address="10.0.0.1:6379")):
    try:
        wrong()
    except ValueError as error:
        print(error)
with Pool(1, ray_address="auto") as pool:
    print(pool.map(abs, [-1]))
ray.shutdown(wait_for_processes=True)
"""


def test_arguments_with_the_names_of_ray() -> None:
    printed = run_program(ARGUMENTS, options=("-m", "mpi_runtime", "--as-ray")).expect(0).stdout.splitlines()
    assert printed == [
        "3 [3]",
        "True",
        "True",
        "[11, 22]",
        "['inc', 'total', 'remote']",
        "1 ALIVE 1",
        "CREATED True 1",
        "None True",
        "True None",
        "address='10.0.0.1': an MPI job has no address. Omit it: the lists are of this job.",
        "ray_address='10.0.0.1:6379': an MPI job has no address. Omit it: the pool is of this job.",
        "[1]",
    ]


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


OF_LIBRARIES = """
import logging
import ray
from ray._private import state
from ray._private.worker import BaseContext
from ray.dag import ClassMethodNode, ClassNode, FunctionNode, InputAttributeNode, InputNode
from ray.data import DatasetContext, ExecutionResources

context = ray.init(num_cpus=2)
assert isinstance(context, BaseContext)
(node,) = ray.nodes()
assert state.total_resources_per_node() == {node["NodeID"]: node["Resources"]}
assert state.available_resources_per_node() == {node["NodeID"]: node["Available"]}
assert state.actors() == {}


@ray.remote
class Counter:
    def get(self):
        return 1


counter = Counter.remote()
ray.get(counter.get.remote())
(facts,) = state.actors().values()
print(facts["ActorClassName"], facts["State"], facts["Address"]["NodeID"] == node["NodeID"])
assert state.actors(facts["ActorID"]) == facts and state.actors("00") == {}
group = ray.util.placement_group([{"CPU": 1}])
ray.get(group.ready())
specs = state.state.placement_group_table(group.id)
assert specs["bundles_to_node_id"] == {0: node["NodeID"]}
assert list(state.state.placement_group_table()) == [group.id.hex()]
print(ray.logger is logging.getLogger("ray"), ray.SPILL_WORKER_MODE, ray.RESTORE_WORKER_MODE)
assert ray.worker.get_dashboard_url() == "" and ray.worker.global_worker is ray._private.worker.global_worker
print(ray.util.client.ray.get_context().is_connected(), ray.util.PublicAPI(len) is len)
assert issubclass(ray.ActorClassID, ray.UniqueID) and ray.tune.search.create_searcher("random") is not None
DatasetContext.get_current().execution_options.resource_limits = ExecutionResources.for_limits(cpu=3)
print(ray.data.DataContext.get_current().execution_options.resource_limits.cpu)


class Own(FunctionNode): ...


def add(a, b):
    return a + b


print(ray.get(Own(add, (Own(add, (1, 2), {}, {}), 3), {}, {"num_cpus": 1}).execute()))
print(ray.get(ClassNode(list, ((2, 1),), {}, {}).execute().index.remote(1)))
from ray._private.internal_api import free

ref = ray.put(1)
free([ref])
print(ray.__version__)
"""


def test_names_that_libraries_use() -> None:
    """As Ray 2.60 answers them, but that `free` keeps values."""
    options = ("-m", "mpi_runtime", "--as-ray")
    completed = run_program(OF_LIBRARIES, options=options, env={"MPI_RUNTIME_RAY_VERSION": "2.58.1"}).expect(0)
    assert completed.stdout.splitlines() == ["Counter ALIVE True", "True 3 4", "False True", "3", "6", "1", "2.58.1"]

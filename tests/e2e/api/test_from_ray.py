"""What programs written for Ray rely on, and what was seen to break: arguments, generators, ends of actors."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers import run_program

BIG = """
import os, sys
import mpi_runtime as ray
sys.argv += [f"a-file-with-quite-a-long-name-as-a-shell-writes-it-for-a-pattern-{n:06}" for n in range(4_000)]
ray.init(num_cpus=2)
@ray.remote
def f():
    return len(sys.argv), os.environ.get("BIG", "")[:3], len(os.environ.get("BIG", ""))
print(*ray.get(f.remote(), timeout=40))
print(*ray.get(f.options(runtime_env={"env_vars": {"BIG": "abc" * 100_000}}).remote(), timeout=40))
"""


@pytest.mark.parametrize("ranks", [None, pytest.param(2, marks=pytest.mark.mpi)])
def test_many_arguments_and_large_variables(ranks: int | None) -> None:
    """227 KB of arguments did not fit the socket of the forkserver: no call ever ran."""
    completed = run_program(BIG, ranks=ranks).expect(0)
    assert completed.stdout == "4001  0\n4001 abc 300000\n"


def test_arguments_and_directories_that_are_no_utf_8(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9")
    directory.mkdir()
    (directory / "beside.py").write_text("VALUE = 7\n")
    source = """
import os, sys
import mpi_runtime as ray
sys.path.insert(0, os.getcwd())
ray.init(num_cpus=1)
def f():
    import beside
    return beside.VALUE, os.fsencode(os.getcwd())[-4:], os.fsencode(sys.argv[1])
print(*ray.get(ray.remote(f).remote(), timeout=40))
"""
    completed = run_program(source, os.fsdecode(b"arg\xff"), cwd=directory).expect(0)
    assert completed.stdout == "7 b'caf\\xe9' b'arg\\xff'\n"


def test_limits_of_arguments() -> None:
    completed = run_program("""
import mpi_runtime as ray
from mpi_runtime.util.placement_group import placement_group
ray.init(num_cpus=2)
@ray.remote
def f():
    return 1
@ray.remote(max_pending_calls=10**30 and 5)
class A:
    def f(self): return 1
def said(call):
    try:
        return call()
    except (ValueError, TypeError) as error:
        return type(error).__name__
print(ray.get(f.remote(), timeout=float("inf")), ray.get(f.remote(), timeout=1e10), end=" ")
print(said(lambda: ray.get(f.remote(), timeout=float("nan"))))
for options in ({"num_returns": 2**63}, {"max_retries": 10**30}, {"priority": 10**30}, {"name": "\\ud800"}):
    print(said(lambda: f.options(**options).remote()), end=" ")
print(said(lambda: ray.wait([f.remote()], num_returns=0.5)), said(lambda: ray.explain(5)))
class Odd(Exception):
    @property
    def args(self):
        raise KeyError("no")
@ray.remote(max_retries=0)
def g():
    raise Odd
try:
    ray.get(g.remote(), timeout=40)
except ray.exceptions.RayTaskError:
    print("RayTaskError")
print(ray.get(A.remote().f.remote()))
""").expect(0)
    assert (
        completed.stdout
        == "1 1 ValueError\nValueError ValueError ValueError ValueError TypeError TypeError\nRayTaskError\n1\n"
    )


def test_a_reference_that_was_given_back() -> None:
    """In a cycle: `get` in a destructor that runs after the reference's own waited for ever."""
    completed = run_program("""
import gc
import mpi_runtime as ray
ray.init(num_cpus=1)
class Holder:
    def __init__(self):
        self.me = self
        self.ref = ray.put(1)
    def __del__(self):
        try:
            print("got", ray.get(self.ref, timeout=20))
        except ray.exceptions.ObjectLostError as error:
            print("lost")
holder = Holder()
ref = holder.ref
type(ref).__del__(ref)
try:
    ray.get(ref, timeout=20)
except ray.exceptions.ObjectLostError as error:
    print("released already" in str(error))
del ref, holder
gc.collect()
""").expect(0)
    assert completed.stdout == "True\nlost\n"


def test_exit_actor_in_the_background_and_swallowed() -> None:
    completed = run_program("""
import asyncio
import mpi_runtime as ray
ray.init(num_cpus=2)
@ray.remote
class A:
    async def start(self):
        async def later():
            ray.actor.exit_actor()
        self.task = asyncio.get_running_loop().create_task(later())
    async def f(self):
        await asyncio.sleep(0.01)
        return 1
@ray.remote
class B:
    def leave(self):
        try:
            ray.actor.exit_actor()
        except:
            return "swallowed"
a, b = A.remote(), B.remote()
ray.get(a.start.remote())
for call in (lambda: [ray.get(a.f.remote()) for _ in range(500)], lambda: ray.get(b.leave.remote())):
    try:
        print(call())
    except ray.exceptions.ActorDiedError:
        print("died")
""").expect(0)
    assert completed.stdout == "died\ndied\n"


def test_an_item_error_is_retried_as_a_whole() -> None:
    """With `retry_exceptions` a generator that raises is run again; without it its items are kept."""
    completed = run_program("""
import os
import mpi_runtime as ray
ray.init(num_cpus=1)
def items(path):
    yield "x" * 200_000
    if not os.path.exists(path):
        open(path, "w").close()
        raise ValueError("first")
    yield 2
    yield 3
f = ray.remote(num_returns=3)(items)
a, b, c = f.remote("one")
print(len(ray.get(a)), end=" ")
for ref in (b, c):
    try:
        ray.get(ref)
    except ValueError as error:
        print("ValueError", end=" ")
print(ray.get(f.options(max_retries=1, retry_exceptions=True).remote("two"))[1:])
""").expect(0)
    assert completed.stdout == "200000 ValueError ValueError [2, 3]\n"


def test_base_exceptions_keep_their_class() -> None:
    completed = run_program("""
import mpi_runtime as ray
ray.init(num_cpus=1)
class Stop(BaseException):
    pass
@ray.remote
def f(kind):
    raise kind
for kind in (Stop, KeyboardInterrupt, GeneratorExit):
    try:
        ray.get(f.remote(kind))
    except BaseException as error:
        kinds = kind, ray.exceptions.RayTaskError, ray.exceptions.TaskCancelledError
        print(*(isinstance(error, one) for one in kinds))
""").expect(0)
    assert completed.stdout == "True True False\nFalse True True\nFalse True False\n"


def test_pending_calls() -> None:
    completed = run_program("""
import time
import mpi_runtime as ray
ray.init(num_cpus=1)
@ray.remote(max_pending_calls=2)
class A:
    def f(self, seconds):
        time.sleep(seconds)
a = A.remote()
refs = [a.f.remote(1), a.f.remote(0)]
try:
    a.f.remote(0)
except ray.exceptions.PendingCallsLimitExceeded as error:
    print("max_pending_calls" in str(error))
ray.get(refs)
ray.get([a.f.remote(0), a.f.remote(0)])
print("again")
""").expect(0)
    assert completed.stdout == "True\nagain\n"


PROCESSES = """
import multiprocessing
import mpi_runtime as ray
from concurrent.futures import ProcessPoolExecutor

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return 2 * point.x

def put(queue, x):
    queue.put(x + 1)

@ray.remote
def pool(method):
    with multiprocessing.get_context(method).Pool(2) as made:
        return made.map(double, [Point(1), Point(2)])

@ray.remote
def process(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=put, args=(queue, 1))
    child.start()
    found = queue.get(timeout=60)
    child.join()
    return found

@ray.remote
def futures():
    with ProcessPoolExecutor(1) as made:
        return list(made.map(double, [Point(5)]))

if __name__ == "__main__":
    ray.init(num_cpus=1)
    for method in ("fork", "spawn", "forkserver"):
        print(*ray.get([pool.remote(method), process.remote(method)], timeout=100))
    print(ray.get(futures.remote(), timeout=100))
"""


def test_multiprocessing_in_a_task_with_functions_of_the_program() -> None:
    completed = run_program(PROCESSES, timeout=150).expect(0)
    assert completed.stdout == "[2, 4] 2\n" * 3 + "[10]\n"


LOGGING = """
import logging
import ray
settings = ray.LoggingConfig(encoding="%s", additional_log_standard_attrs=["name"])
ray.init(num_cpus=1, quiet=True, logging_config=settings)

@ray.remote
class A:
    def f(self):
        logging.getLogger("library").info("in an actor")
        logging.getLogger("library").debug("no")

a = A.remote()
ray.get(a.f.remote())
logging.info("in the driver")
"""


@pytest.mark.parametrize("encoding", ["TEXT", "JSON"])
def test_settings_of_logging(encoding: str) -> None:
    completed = run_program(LOGGING % encoding, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    lines = completed.stderr.splitlines()  # those of the actor come by the head, before the driver's or after
    (actor,) = (line for line in lines if "in an actor" in line)
    (driver,) = (line for line in lines if "in the driver" in line)
    assert "DEBUG" not in completed.stderr
    for name in ("job_id", "worker_id", "node_id", "actor_id", "task_id", "timestamp_ns", "library"):
        assert name in actor
        assert (name in driver) is (name not in ("actor_id", "task_id", "library"))
    assert "pid=" not in actor
    if encoding == "JSON":
        assert [json.loads(line)["message"] for line in (actor, driver)] == ["in an actor", "in the driver"]


def test_a_variable_chooses_how_processes_log() -> None:
    source = LOGGING.replace(", logging_config=settings", "") % "TEXT"
    options, env = ("-m", "mpi_runtime", "--as-ray"), {"RAY_LOGGING_CONFIG_ENCODING": "JSON"}
    lines = run_program(source, options=options, env=env).expect(0).stderr.splitlines()
    assert any("in an actor" in line and '"actor_id": ' in line for line in lines)
    (driver,) = (line for line in lines if "in the driver" in line)
    assert json.loads(driver)["message"] == "in the driver"


def test_records_in_the_form_of_ray() -> None:
    source = """
import json, logging, sys
import ray
from ray._common.filters import CoreContextFilter
from ray._common.formatters import JSONFormatter, TextFormatter
from ray.job_config import JobConfig

ray.init(num_cpus=1, quiet=True, job_config=JobConfig.from_json({"metadata": {"a": "b"}, "runtime_env": None}))
formatter, record = JSONFormatter(), logging.makeLogRecord({"msg": "said", "user": "me"})
try:
    raise ValueError("wrong")
except ValueError:
    record.exc_info = sys.exc_info()
print(CoreContextFilter().filter(record), record.job_id == ray.get_runtime_context().get_job_id())
line = json.loads(formatter.format(record))
print(line["message"], line["user"], "wrong" in line["exc_text"], line["timestamp_ns"] > 0, "name" in line)
formatter.set_additional_log_standard_attrs(["name"])
print("name" in json.loads(formatter.format(record)), "user=me" in TextFormatter().format(record))
inner = logging.makeLogRecord({"ray_serve_extra_fields": {"route": "/"}})
print(json.loads(formatter.format(inner))["route"])
inner.ray_serve_extra_fields = "no"
try:
    formatter.format(inner)
except ValueError as error:
    print(error)
print(ray.LoggingConfig.from_dict({**ray.LoggingConfig("JSON").to_dict(), "other": 1}))
"""
    completed = run_program(source, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout.splitlines() == [
        "True True",
        "said me True True False",
        "True True",
        "/",
        "ray_serve_extra_fields of a log record must be a dictionary, not 'no'",
        "LoggingConfig(encoding='JSON', log_level='INFO', additional_log_standard_attrs=[])",
    ]


def test_resources_of_nodes_have_their_addresses_as_in_ray() -> None:
    source = """
import ray
ray.init(num_cpus=1, quiet=True)
address = ray.util.get_node_ip_address()
names = sorted(name for name in ray.cluster_resources() if name.startswith("node:"))
print([name.replace(address, "A") for name in names], [one["NodeManagerAddress"] == address for one in ray.nodes()])
print(ray.get(ray.remote(lambda: 1).options(resources={f"node:{address}": 0.001, names[1]: 0.5}).remote(), timeout=40))
"""
    completed = run_program(source, options=("-m", "mpi_runtime", "--as-ray")).expect(0)
    assert completed.stdout == "['node:A', 'node:__internal_head__'] [True]\n1\n"


DEVICES = """
import os
import ray
ray.init(num_cpus=1, num_gpus=2, quiet=True)

@ray.remote
def seen():
    return os.environ.get("CUDA_VISIBLE_DEVICES")

def asked(num_gpus, variable):
    environment = {"env_vars": {variable: "1"}} if variable else {}
    return ray.get(seen.options(num_gpus=num_gpus, runtime_env=environment).remote())

print([asked(0, ""), asked(1, "")])
print([asked(1, "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"), asked(0, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")])
"""


def test_processes_without_devices_keep_the_variable_as_in_ray() -> None:
    options, env = ("-m", "mpi_runtime", "--as-ray"), {"CUDA_VISIBLE_DEVICES": "3,5"}
    completed = run_program(DEVICES, options=options, env=env).expect(0)
    assert completed.stdout == "['3,5', '3']\n['3,5', '']\n"

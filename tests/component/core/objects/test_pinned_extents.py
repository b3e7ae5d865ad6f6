"""Pinned extents when their process is killed or forks."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from mpi_runtime.core.objects import pinned_extents
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.gpu import cuda_context
from tests.helpers import ROOT
from tests.unit.core.objects import test_pinned_extents as extents
from tests.unit.core.objects.test_pinned_extents import CAPACITY, MIB, Host, kept_pinned

cupy = extents.cupy
host = extents.host


def in_process(work: Callable[[], None]) -> int:
    """Fork a process that works, says so by stopping itself, and waits to be killed; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            os._exit(1)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), "it has failed"
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_process_that_is_killed_has_pinned_nothing_any_more(host: Host) -> None:
    offset = host.agent.allocate(2 * MIB)
    assert offset is not None

    def pin() -> None:
        client, place = ClientArena(host.descriptor), (0, offset, 2 * MIB)
        host.cupy.arange(1)  # makes a context
        for is_pinned in (False, True):
            with client.pinned(*place) as whole:
                assert (whole is not None) == is_pinned

    pids = [in_process(pin) for _ in range(2)]
    host.agent.free(offset)
    for pid in pids:
        assert host.agent.trim(CAPACITY) == 0
        kill(pid)
    assert host.agent.trim(CAPACITY) == 2 * MIB


@pytest.mark.parametrize("plant", [False, True])
def test_a_forked_child_leaves_its_parent_what_is_locked(
    host: Host, plant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the locks in common with it. The bug that is planted: it does not forget them."""
    stored = kept_pinned(host)
    host.agent.free(stored.offset)
    if plant:
        monkeypatch.setattr(pinned_extents.PinnedExtents, "forget", lambda self: None)
        monkeypatch.setattr(cuda_context, "unregister", lambda cuda, address: 0)

    def use_and_close() -> None:
        with host.client.pinned(0, stored.offset, stored.size) as whole:
            assert plant or whole is None, "CUDA works in no child"
        host.client.close()

    pid = in_process(use_and_close)
    assert (host.agent.trim(CAPACITY) == 0) == (not plant)
    kill(pid)
    assert (host.agent.trim(CAPACITY) == 0) == (not plant) or plant


def test_processes_of_ranks_have_nothing_that_pins_or_asks_cuda() -> None:
    program = """
import sys
import mpi_runtime.core.head.head, mpi_runtime.core.rank.worker, mpi_runtime.core.agent.agent
rooms = "gpu.cuda_context gpu.staging gpu.arrays objects.pinned_extents objects.device_arrays".split()
loaded = [room for room in rooms if f"mpi_runtime.{room}" in sys.modules]
print(loaded, "mpi_runtime.core.objects.range_locks" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"

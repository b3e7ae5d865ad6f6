"""The error of gangs when the helper process of their node has ended names its signal or its exit code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mpi_runtime.core.executor import forkserver_handle
from mpi_runtime.core.executor.fork_messages import ForkHelper, ask
from mpi_runtime.core.gangs.library import Library
from mpi_runtime.core.gangs.pmix_helper import Helper
from mpi_runtime.core.host.launchers import child_environment
from mpi_runtime.core.host.process_tree import children, descendants
from mpi_runtime.core.host.spawn import library_path
from mpi_runtime.core.transport.poller import Poller

pytestmark = pytest.mark.timeout(60)


@pytest.mark.dies("gang helper")
def test_the_error_names_the_end_of_the_helper(tmp_path: Path) -> None:
    poller, found = Poller(), list[Library]()
    before = set(children())
    forkserver = forkserver_handle.start(child_environment(os.environ), library_path())
    (pid,) = set(children()) - before
    helpers = [_helper(poller, forkserver, tmp_path, found) for _ in range(4)]
    try:
        # The others are forked after the first: no copy of its connection may stay open in them.
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGALRM):
            while not descendants(pid):
                poller.poll(0.01)
            os.kill(min(descendants(pid)), number)
            while len(found) < 1 or not found[-1].problem:
                poller.poll(0.01)
            texts = {
                signal.SIGKILL: "was killed by signal 9 (SIGKILL: Killed)",
                signal.SIGSEGV: "was killed by signal 11 (SIGSEGV: ",
                signal.SIGALRM: "took longer than 10 s",
            }
            assert texts[number] in found.pop().problem
    finally:
        for helper in helpers:
            helper.close()
        forkserver.end()
        poller.close()


def _helper(poller: Poller, forkserver: forkserver_handle.Handle, above: Path, found: list[Library]) -> Helper:
    def fork(directory: str, library: str, end: int) -> None:
        ask(forkserver.socket, ForkHelper(directory, library), [end])

    return Helper(poller, fork, str(above), "/none", found.append)

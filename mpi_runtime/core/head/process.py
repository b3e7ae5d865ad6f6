"""The process of the head, or its thread in a program that uses MPI itself: start, one job after another, end.

`head.py` has one job, and the steps in which it ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Container

from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.agent.leftovers import watch_launcher, watch_ranks
from mpi_runtime.core.executor.forkserver_handle import Handle, load_and_fork
from mpi_runtime.core.head.head import DriverFrameError, Head, die_soon
from mpi_runtime.core.head.journal import JournalLostError
from mpi_runtime.core.host import launchers, signals
from mpi_runtime.core.host.launch import INSIDE
from mpi_runtime.core.host.process_tree import die_with_parent, end_launcher
from mpi_runtime.core.host.spawn import library_path, name_process
from mpi_runtime.core.rank.heartbeat import LostError
from mpi_runtime.core.rank.joining import Rank, end_process, join, library, raise_descriptor_limit
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import TransportError
from mpi_runtime.core.transport.channel import Channel
from mpi_runtime.core.transport.messages import Stop, Welcome, WorkerToHead
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.core.transport.start import Start, read_start, send_welcome


def serve(
    end: socket.socket, beside_user_mpi: bool, forkserver: Handle | None = None, at_start: Container[str] = ()
) -> int:
    """Be the head of one job after another until the driver ends. Return the exit code of the head's process.

    An error is printed on standard error, unless the driver could receive it.
    """
    code = 1
    try:
        code = _serve(end, beside_user_mpi, forkserver, at_start)
    except (DriverFrameError, JournalLostError, TransportError) as error:
        print(f"mpi_runtime: rank 0: {error}", file=sys.stderr, flush=True)
        if isinstance(error, LostError):
            end_launcher(os.getppid(), wait=True)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())  # not the program's own: it may call MPI
    end.close()
    return code


def _serve(end: socket.socket, beside_user_mpi: bool, forkserver: Handle | None, at_start: Container[str]) -> int:
    if not beside_user_mpi:
        raise_descriptor_limit()
    start = read_start(end)
    if start is None:
        return 1
    poller = Poller()
    head: Head

    def report(message: WorkerToHead) -> None:
        head.report(message)

    path = library_path() if beside_user_mpi else sys.path
    forkservers: Forkservers | None = Forkservers(path, forkserver)
    driver = Channel(end)
    try:
        transport = join(start.launch, beside_user_mpi)
    except TransportError as error:
        return _refuse(driver, start, error)
    if not beside_user_mpi:
        die_with_parent(False)
    if transport.size > 1 and not beside_user_mpi:
        watch_launcher(poller, os.getppid())
    if not launchers.is_fault_tolerant():
        watch_ranks(poller, transport, library(start.launch))
    if transport.fileno() >= 0:
        poller.add(transport.fileno(), lambda: transport.wake(rung=True))
    while start is not None and start.job is not None:
        start.job.lost = sorted(transport.lost)
        for rank in range(1, transport.size):
            transport.send(rank, codec.encode([start.job]))
        try:
            ours = Rank(transport, poller, report, start.job, start.launch.kind, forkservers or Forkservers(path))
        except TransportError as error:
            return _refuse(driver, start, error)
        head = Head(driver, transport, poller, start, ours, beside_user_mpi)
        try:
            head.run()
            head.end()
        finally:
            head.close_files()
        os.close(ours.host.arena)
        driver_is_gone = head.driver_is_gone
        del head, ours
        if not beside_user_mpi:
            gc.collect()  # the job is in circles; what is there at a fork (`load_and_fork`) is never collected
        forkservers = None
        start = None if driver_is_gone else read_start(end)
        if start is not None and start.job is not None and start.launch.kind == INSIDE:
            forkservers = Forkservers(path, load_and_fork(at_start, start.job.preload))
    if start is None:
        die_soon()
    for rank in range(1, transport.size):
        transport.send(rank, codec.encode([Stop()]))
    transport.close(clean=True)
    return 0


def _refuse(driver: Channel, start: Start, error: TransportError) -> int:
    """Send the driver the reason why there is no job. Return the exit code."""
    send_welcome(driver, Welcome(str(error)), None)
    if start.log >= 0:
        os.close(start.log)
    return 1


def main(descriptor: int, driver: int, forkserver: Handle | None, at_start: Container[str]) -> None:
    """Be the head of the driver with this process id, at the other end of this socket.

    `forkserver`: for the executors of this rank, if it exists already. `at_start`: see `main` of `forkserver.py`.
    """
    name_process("mpi-rt-head")
    die_with_parent()  # until the ranks have met: MPI waits for them, and the driver's socket is not read
    if os.getppid() != driver:
        os._exit(1)  # it has died before
    signals.ignore(signal.SIGTERM)  # at all of them the driver may save first
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, the status of a forkserver would be lost
    gc.set_threshold(100_000, 50, 100)  # there are many records, and they make no cycles
    end_process(serve(socket.socket(fileno=descriptor), False, forkserver, at_start))

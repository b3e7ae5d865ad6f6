"""The worker: a rank above 0. A node agent, and the wire to the head; it runs no user code and unpickles nothing.

How it ends, in steps:
1. The head says `EndJob` at `shutdown()` and `Stop` when the program ends (or MPI says that the head is gone: then
   the process ends at once, see 4).
2. The agent closes its forkserver's socket; that kills all executors and ends, and the agent waits for it.
3. The transport closes together with the head's and the other workers'.
4. The process ends without what Python does at its end (`end_process`).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from mpi_runtime import config as configuration
from mpi_runtime.executor.forkserver_handle import Handle
from mpi_runtime.host import launchers
from mpi_runtime.host.launch import FIRST_WORKER, Launch
from mpi_runtime.host.process_tree import end_launcher
from mpi_runtime.rank.bad_frames import BadFrames
from mpi_runtime.rank.gpu_finder import Finder
from mpi_runtime.rank.heartbeat import Heartbeat, LostError
from mpi_runtime.rank.joining import Host, Rank, end_process, join, library, raise_descriptor_limit
from mpi_runtime.rank.leftovers import watch_launcher, watch_ranks
from mpi_runtime.rank.node_agent import NodeAgent
from mpi_runtime.rank.poller import Poller
from mpi_runtime.scheduler.effects import RankEffect
from mpi_runtime.transport import codec
from mpi_runtime.transport.base import Buffer, HeadLostError, Transport, TransportError
from mpi_runtime.transport.messages import EndJob, Idle, Job, PauseLogs, Pull, Stop, ToExecutor, Unpull, WorkerToHead

HEAD = 0
MEET_GRACE_S = 5.0
"""How much longer than the driver a worker waits for all ranks: the driver's error says more."""
BLAME_S = 3.0


class Worker:
    """Passes on what the head says to executors, and what they say to the head, in one job after another."""

    def __init__(self, transport: Transport, poller: Poller, agent: NodeAgent, finder: Finder, launcher: str) -> None:
        """Use a transport, and for the first job this agent and what looks for GPUs. `launcher` is its kind."""
        self._finder: Finder | None = finder
        self._launcher = launcher
        self._transport = transport
        self._poller = poller
        self._agent = agent
        self._host: Host | None = None
        """While there is a job."""
        self._has_worked = False
        self._bad_frames = BadFrames(transport.rank)
        self._reports: list[WorkerToHead] = []
        self._is_ending = False
        """The job ends here, and the head has not been told yet."""
        self._stopping = False
        self._has_said_idle = False
        """Nothing is to come but the end, or another job."""
        self._heartbeat = Heartbeat(transport, 0.0, time.monotonic)

    def report(self, message: WorkerToHead) -> None:
        """Have the head told."""
        self._reports.append(message)

    def run(self) -> None:
        """Work until the head says stop."""
        try:
            self._serve()
        except HeadLostError:
            if not self._has_said_idle:
                raise
            self._agent.stop()  # where a rank has died nobody waits for others at the end, so the head may be faster
        else:
            self._agent.stop()
            self._transport.close(clean=True)

    def _serve(self) -> None:
        transport, poller = self._transport, self._poller
        if transport.fileno() >= 0:
            poller.add(transport.fileno(), lambda: transport.wake(rung=True))
        busy_s = time.monotonic()
        limit: float | None = 0.0
        while not self._stopping:
            active = poller.gather(limit)
            transport.wake()
            for source, frame in transport.receive():
                active = True
                self._hear(source, frame)
            soon = self._agent.turn()
            if self._is_ending and not self._agent.is_transferring:
                self._is_ending = False
                self._has_said_idle = True
                self.report(Idle(transport.rank))
            if self._reports:
                active = True
                transport.send(HEAD, codec.encode(self._reports))
                self._reports.clear()
            if active:
                busy_s = time.monotonic()
            soon = shorter(soon, self._heartbeat.turn())
            limit = shorter(soon, transport.prepare_sleep(time.monotonic() - busy_s))

    def _hear(self, source: int, frame: Buffer) -> None:
        self._heartbeat.seen.add(source)
        try:
            messages = codec.between_ranks.decode(frame)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(source, error)
            return
        if not messages and self._host is not None:
            self._heartbeat.expect([source])  # a sign of life: there will be more
        for message in messages:
            self._take(source, message)

    def _take(self, source: int, message: object) -> None:
        try:
            self._perform(source, message)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(source, error)

    def _perform(self, source: int, message: object) -> None:
        agent = self._agent
        kind = type(message)
        if kind is ToExecutor:
            agent.to_executor(message.executor, message.ids, message.frame)  # type: ignore[attr-defined]
        elif kind is Job:
            self._begin(message)  # type: ignore[arg-type]
        elif kind is EndJob:
            self._end(message.all_idle)  # type: ignore[attr-defined]
        elif kind is Stop:
            self._stopping = True
        elif kind is Pull or kind is Unpull:
            agent.pull(source, message)  # type: ignore[arg-type]
        elif kind is PauseLogs:
            agent.pause_logs(message.paused)  # type: ignore[attr-defined]
        elif isinstance(message, RankEffect):
            agent.obey(message)
        else:
            raise codec.BadFrameError(f"a {kind.__name__} is not for a worker")

    def _end(self, all_idle: bool) -> None:
        """Step 1."""
        if self._host is None:
            raise codec.BadFrameError("there is no job that could end")
        self._heartbeat.stop()
        if not all_idle:
            self._agent.stop()
            self._is_ending = True
            return
        self._agent.close()
        os.close(self._host.arena)
        self._host = None

    def _begin(self, job: Job) -> None:
        if self._host is not None:
            raise codec.BadFrameError("a job begins, and the last one has not ended")
        self._has_said_idle = False
        if self._has_worked:
            self._agent = new_agent(self._poller, self.report, sys.path)
        self._has_worked = True
        config = configuration.from_bytes(job.config)
        self._heartbeat = Heartbeat(self._transport, config.heartbeat_timeout_s, time.monotonic)
        self._host = Host(self._transport, job)
        self._agent.connect(self._transport)
        finder, self._finder = self._finder or Finder(sys.path), None
        self.report(Rank(self._transport, self._host, self._agent, job, finder, self._launcher).joined)


def new_agent(
    poller: Poller,
    report: Callable[[WorkerToHead], None],
    path: Sequence[str],
    forkserver: Handle | None = None,
) -> NodeAgent:
    """An agent whose executors will not have the variables that make a process our rank."""
    environment = launchers.child_environment(configuration.environment())
    return NodeAgent(poller, report, time.monotonic, environment, path, forkserver)


def shorter(first: float | None, second: float | None) -> float | None:
    """The shorter of two times, where None is for ever."""
    if first is None:
        return second
    return first if second is None else min(first, second)


def work(launch: Launch, start_timeout_s: float | None = None, forked: Handle | None = None) -> NoReturn:
    """Be the worker of this rank until the job ends; then end the process.

    Args:
        launch: how it was started.
        start_timeout_s: how long to wait for the other ranks, in seconds; None for ever.
        forked: a forkserver for its executors, if there is one already.
    """
    code = 1
    try:
        _work(launch, start_timeout_s, forked)
        code = 0
    except TransportError as error:
        print(f"mpi_runtime: rank {launch.rank}: {error}", file=sys.stderr, flush=True)
        if isinstance(error, LostError):
            end_launcher(os.getpid(), wait=False)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())  # not the program's own: it may call MPI
    finally:
        end_process(code)


def _work(launch: Launch, start_timeout_s: float | None, forked: Handle | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher and the driver; they decide
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # launchers hand it on to all; it is for the driver
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the program has set: it does not run here
    raise_descriptor_limit()
    poller = Poller()
    agent = new_agent(poller, lambda message: worker.report(message), sys.path, forked)
    finder = Finder(sys.path)
    if launch.rank == FIRST_WORKER:
        agent.expect_calls()  # the first call will run here; it comes up while MPI does
    if start_timeout_s is not None:
        # A rank that has ended before it called MPI_Init is missed by nobody but us: MPICH's launcher does not care.
        # Python cannot interrupt MPI_Init, so this ends the process with a trace of where it waits.
        faulthandler.dump_traceback_later(start_timeout_s + MEET_GRACE_S, exit=True)
    try:
        transport = join(launch)
    except TransportError:
        time.sleep(BLAME_S)  # where all ranks have the same problem, rank 0 says it, and its end is that of all
        raise
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, partial(_end_as_told, transport))
    watch_launcher(poller, os.getpid())
    if not launchers.is_fault_tolerant():
        watch_ranks(poller, transport, library(launch))
    worker = Worker(transport, poller, agent, finder, launch.kind)
    try:
        worker.run()
    finally:
        transport.leave()


def _end_as_told(transport: Transport, number: int, _: object) -> NoReturn:
    """Whoever asks a rank to end needs not be told that it has."""
    transport.leave()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("a signal that ends the process has returned")

"""The worker: a rank above 0. It is a node agent with a connection to the head. It runs no user code.

It ends in steps:
1. The head sends `EndJob` at `shutdown()`, and `Stop` when the program ends. If MPI reports that the head has died, the
   process ends at once (4).
2. The agent closes the socket of its forkserver, which kills all executors and ends. The agent waits for it.
3. The transport closes together with those of the head and the other workers.
4. The process ends without the exit handlers of Python (`end_process`).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import NoReturn

from mpi_runtime.core.agent.forkserver import Forkservers
from mpi_runtime.core.agent.gpus import Finder
from mpi_runtime.core.agent.leftovers import watch_head, watch_launcher, watch_ranks
from mpi_runtime.core.executor.forkserver_handle import Handle
from mpi_runtime.core.host import launchers, signals
from mpi_runtime.core.host.launch import FIRST_WORKER, Launch
from mpi_runtime.core.host.process_tree import end_launcher
from mpi_runtime.core.rank.bad_frames import BadFrames
from mpi_runtime.core.rank.heartbeat import Heartbeat, LostError
from mpi_runtime.core.rank.joining import Rank, end_process, join, library, raise_descriptor_limit
from mpi_runtime.core.transport import codec
from mpi_runtime.core.transport.base import Buffer, HeadLostError, Transport, TransportError
from mpi_runtime.core.transport.messages import (
    EndJob,
    ForAgent,
    Idle,
    Job,
    PauseLogs,
    Pull,
    StartDirect,
    Stop,
    ToExecutor,
    Unpull,
    WorkerToHead,
)
from mpi_runtime.core.transport.poller import Poller, shorter
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.effects import RankEffect

HEAD = 0
MEET_GRACE_S = 5.0
"""Seconds that a worker waits for all ranks longer than the driver, because the driver's error has more details."""
BLAME_S = 3.0
"""Seconds that a worker with an error at the start waits, because the head may report the same error."""
DRIVER_S = 1.0
"""Seconds that a worker without a head waits before it ends. Then the launcher ends the driver, which first prints its
error."""


class Worker:
    """Forwards messages between the head and the executors of its rank, in one job after another."""

    def __init__(
        self, transport: Transport, poller: Poller, forkservers: Forkservers, finder: Finder, launcher: str
    ) -> None:
        """Use this transport. `forkservers` and `finder` are for the first job. `launcher`: its kind."""
        self._forkservers: Forkservers | None = forkservers
        self._finder: Finder | None = finder
        self._launcher = launcher
        self._transport = transport
        self._poller = poller
        self._rank: Rank | None = None
        """None between jobs."""
        self._bad_frames = BadFrames(transport.rank)
        self._reports: list[WorkerToHead] = []
        self._is_ending = False
        """Whether the job is ending, and this rank has not sent `Idle`."""
        self._stopping = False
        self._has_sent_idle = False
        """Whether it has. Then only the end or another job can follow."""
        self._heartbeat = Heartbeat(transport, 0.0, time.monotonic)

    def report(self, message: WorkerToHead) -> None:
        """Send a message to the head, with the next frame."""
        self._reports.append(message)

    def run(self) -> None:
        """Work until the head sends `Stop`."""
        try:
            self._serve()
        except HeadLostError:
            has_left = HEAD in self._transport.neighbours and self._transport.has_left(HEAD)
            if not (self._has_sent_idle or has_left):
                raise
            self._stop()  # after the loss of a rank no rank waits for others at the end, so the head may end first
        else:
            self._stop()
            self._transport.close(clean=True)

    def _stop(self) -> None:
        if self._rank is not None:
            self._rank.agent.stop()
        elif self._forkservers is not None:
            self._forkservers.end()

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
            soon = None
            if self._rank is not None:
                self._rank.host.heed_losses()
                soon = self._rank.agent.turn()
                if self._is_ending and not self._rank.agent.is_transferring:
                    self._is_ending = False
                    self._has_sent_idle = True
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
        if not messages and self._rank is not None:
            self._heartbeat.expect([source])  # a heartbeat: more will follow
        for message in messages:
            self._take(source, message)

    def _take(self, source: int, message: object) -> None:
        try:
            self._perform(source, message)
        except codec.BadFrameError as error:
            self._bad_frames.dropped(source, error)

    def _perform(self, source: int, message: object) -> None:
        kind = type(message)
        if kind is Job:
            self._begin(message)  # type: ignore[arg-type]
        elif kind is Stop:
            self._stopping = True
        elif self._rank is not None:
            self._perform_in_job(self._rank, source, message)
        elif kind is not PauseLogs:  # the output of the last job may still be on its way to the user
            raise codec.BadFrameError(f"a {kind.__name__} is for a job, and none is running")

    def _perform_in_job(self, rank: Rank, source: int, message: object) -> None:
        agent = rank.agent
        if isinstance(message, ToExecutor):
            agent.custodian.to_executor(message.executor, message.ids, message.frame)
        elif isinstance(message, StartDirect):
            agent.start(message.start, message.key)
        elif isinstance(message, RankEffect | ForAgent):
            agent.obey(message)
        elif isinstance(message, Pull | Unpull):
            agent.pull(source, message)
        elif isinstance(message, EndJob):
            self._end(rank, message.all_idle)
        else:
            raise codec.BadFrameError(f"a {type(message).__name__} is not for a worker")

    def _end(self, rank: Rank, all_idle: bool) -> None:
        """Take `EndJob`: step 1."""
        self._heartbeat.stop()
        if not all_idle:
            rank.agent.stop()
            self._is_ending = True
            return
        rank.agent.close()
        os.close(rank.host.arena)
        self._rank = None

    def _begin(self, job: Job) -> None:
        if self._rank is not None:
            raise codec.BadFrameError("a job begins, and the last one has not ended")
        self._has_sent_idle = False
        forkservers, finder = self._forkservers or Forkservers(sys.path), self._finder
        self._forkservers = self._finder = None
        self._rank = Rank(self._transport, self._poller, self.report, job, self._launcher, forkservers, finder)
        self._heartbeat = Heartbeat(self._transport, self._rank.config.heartbeat_timeout_s, time.monotonic)
        self.report(self._rank.joined)


def work(launch: Launch, start_timeout_s: float | None = None, forked: Handle | None = None) -> NoReturn:
    """Be the worker of this rank until the job ends; then end the process.

    `start_timeout_s`: how long to wait for the other ranks; None: for ever. `forked`: a forkserver that exists already.
    """
    code = 1
    try:
        _work(launch, start_timeout_s, forked)
        code = 0
    except BaseException as error:
        _print(error, launch.rank)
        if isinstance(error, HeadLostError):
            time.sleep(DRIVER_S)
        if isinstance(error, LostError):
            end_launcher(os.getpid(), wait=False)
    finally:
        end_process(code)


def _print(error: BaseException, rank: int) -> None:
    if isinstance(error, (TransportError, LaunchError)):
        print(f"mpi_runtime: rank {rank}: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)  # not the program's own: it may call MPI


def _work(launch: Launch, start_timeout_s: float | None, forked: Handle | None) -> None:
    if threading.current_thread() is not threading.main_thread():
        join(launch)  # launchers end all ranks if one fails after MPI_Init
        raise LaunchError(
            "init() was called in a thread, so this rank cannot become a worker: only the main thread of a process may "
            "set how it responds to signals. Call init() in the main thread on each rank, or start the program with "
            "`python -m mpi_runtime app.py`, which runs it on rank 0 only."
        )
    signals.ignore()  # the launcher and the driver get them too; they decide
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the program may have set a handler, and does not run here
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, the status of a forkserver would be lost
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0.0)  # what the program has set before is for rank 0: its handler would end this rank
    raise_descriptor_limit()
    poller = Poller()
    forkservers = Forkservers(sys.path, forked)
    finder = Finder(sys.path)
    if launch.rank == FIRST_WORKER:
        forkservers.start_early()  # the first call will run here
    if start_timeout_s is not None:
        # MPICH's launcher ignores a rank that ends before MPI_Init, and the other ranks would wait for it for ever.
        # Python cannot interrupt MPI_Init, so this ends the process and prints where it waits.
        faulthandler.dump_traceback_later(start_timeout_s + MEET_GRACE_S, exit=True)
    try:
        transport = join(launch)
    except TransportError:
        time.sleep(BLAME_S)  # if all ranks have the same problem, rank 0 reports it, and its end ends all
        raise
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, partial(_leave_and_end, transport))
    watch_launcher(poller, os.getpid())
    tolerant = launchers.is_fault_tolerant()
    if tolerant:
        watch_head(poller, transport)
    else:
        watch_ranks(poller, transport, library(launch))
    worker = Worker(transport, poller, forkservers, finder, launch.kind)
    try:
        worker.run()
    except (HeadLostError, LostError):
        raise
    except BaseException as error:
        if tolerant:
            _print(error, launch.rank)
            os.kill(os.getpid(), signal.SIGKILL)  # MPI reports only deaths by a signal to other ranks
        raise
    finally:
        transport.leave()


def _leave_and_end(transport: Transport, number: int, _: object) -> NoReturn:
    """End by this signal. Neighbours are notified, so that none reports it as a death."""
    transport.leave()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container does not end by a signal of its own

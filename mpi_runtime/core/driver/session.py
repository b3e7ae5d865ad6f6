"""The session: the processes of one program between `init()` and `shutdown()`, started and ended from the driver.

How a job ends:
1. `shutdown()`, or the end of the program in any way that runs `atexit`, sends `Shutdown` to the head.
2. If there are no other ranks, the head ends, and we wait for it. With MPI the head stays and ends with the driver,
   because MPI cannot be started twice in a program.
3. A driver that is killed sends nothing, but its socket closes. For the head this means the same.
4. If the head dies, the driver raises `HeadDiedError` (`head_handle.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, NoReturn

from mpi_runtime import config as configuration
from mpi_runtime import listings
from mpi_runtime.config import Config
from mpi_runtime.core.client import current
from mpi_runtime.core.client.interrupts import Interrupts, repeat_ignored
from mpi_runtime.core.driver.head_handle import END_LIMIT_S, HeadHandle, is_beside_mpi
from mpi_runtime.core.host import launch as launching
from mpi_runtime.core.host import launchers, machine
from mpi_runtime.core.host.launch import FIRST_WORKER, Launch
from mpi_runtime.core.host.spawn import library_path
from mpi_runtime.core.transport.messages import Shutdown
from mpi_runtime.errors import HeadDiedError, LaunchError, RuntimeNotInitializedError
from mpi_runtime.scheduler.protocol.events import EndAnnounced
from mpi_runtime.scheduler.protocol.questions import Progress
from mpi_runtime.show import log

if TYPE_CHECKING:
    from mpi_runtime.core.client.client import Executing
    from mpi_runtime.core.client.scope import Inherited, Scope
    from mpi_runtime.core.driver.end_of_time import EndWatch
    from mpi_runtime.core.driver.near import Connection
    from mpi_runtime.core.driver.own_session import OwnSession
    from mpi_runtime.core.lines.arrivals import Attendants

_LOOK_S = 0.3
"""Seconds between checks whether actors have saved their states."""
RELEASE_LIMIT_S = 60.0
"""Seconds that the ranks may take to start in a program without `init()`."""


class Session:
    """A job: the head, and the client of this process."""

    def __init__(
        self,
        head: HeadHandle,
        config: Config,
        scope: Scope,
        inherited: Inherited | None = None,
        executing: Executing | None = None,
        secret: str = "",
    ) -> None:
        """Start a job and wait until all ranks have joined it.

        Args:
            head: serves it.
            config: its arguments.
            scope: of the driver's calls.
            inherited: settings that these inherit; None: the namespace of the configuration.
            executing: the parts of an executor, if a call of it is the driver.
            secret: see `HeadHandle.begin`.
        """
        with Interrupts():  # see its module; not at the top: the head's process starts meanwhile
            from mpi_runtime.core.client.client import Client
            from mpi_runtime.core.client.scope import Inherited
            from mpi_runtime.core.objects.arena import ClientArena

        self.head = head
        self.config = config
        self.listener = log.Listener() if log.has_handler() else None
        try:
            welcome, self._arena = head.begin(config, self.listener, secret)
        except BaseException:
            self._stop_listening()
            raise
        self.client = Client(
            head.socket,
            ClientArena(self._arena),
            welcome.regions,
            config.inline_bytes_max,
            inherited=inherited or Inherited(config.namespace),
            journal=config.journal,
            scope=scope,
            log_after_s=0.0 if config.quiet else config.waiting_line_s,
            why_lost=head.why_lost,
            executing=executing,
        )
        head.listen()
        self.attendants: Attendants | None = None
        if secret:
            from mpi_runtime.core.lines.arrivals import Attendants  # not at the top: few jobs are sessions

            self.attendants = Attendants(secret)
        self.end_watch: EndWatch | None = None
        """Asks for the end of a batch job again."""
        self.reporter: Reporter | None = None
        if config.report or config.metrics:
            from mpi_runtime.core.driver.report import Reporter  # not at the top: most jobs have no report

            self.reporter = Reporter(
                config.report, config.metrics, config.report_every_s, config.quiet, self.client.questions
            )

    def save_and_requeue(self) -> None:
        """Near the end of the job's time: have actors save their states, and queue the job again.

        A job that has recorded nothing waits for its first record: the next one would not get further.
        """
        client, limit_s = self.client, time.monotonic() + self.config.requeue_before_s / 2
        client.outbox.post_now(EndAnnounced())
        while (unsaved := client.questions.ask(Progress()).unsaved) and time.monotonic() < limit_s:
            time.sleep(_LOOK_S)
        if unsaved:
            self._warn(f"{unsaved} actors have not saved their states in time: calls since then will run again")
        if not client.questions.ask(Progress()).recorded:
            self._warn(
                "the job is not requeued yet: no call has been recorded, so the next job would get no further. "
                "Make calls shorter than the job's time limit, or raise the limit"
            )
            threading.Thread(target=self._requeue_when_recorded, name="mpi_runtime requeue", daemon=True).start()
            return
        self._requeue()

    def _requeue_when_recorded(self) -> None:
        with contextlib.suppress(HeadDiedError, OSError):  # the job has ended
            while not self.client.questions.ask(Progress()).recorded:
                time.sleep(1.0)
            self._requeue()

    def _requeue(self) -> None:
        time.sleep(_LOOK_S)  # the journal is written by now
        from mpi_runtime import slurm  # not at the top: other jobs do not need it

        slurm.requeue()

    def _warn(self, text: str) -> None:
        log.say(log.line(log.WARNING, log.JOURNAL, text), self.config.quiet)

    def end(self) -> bool:
        """End the job. Return whether the head has confirmed that all its processes have ended."""
        if self.reporter is not None:
            if current.report_values is not None:
                current.report_values(self.client)
            self.reporter.end()
        if self.end_watch is not None:
            self.end_watch.end()
        self.head.expected_to_end = True
        with contextlib.suppress(HeadDiedError, OSError):
            self.client.outbox.send_last(Shutdown())
            self.client.line.read_to_end(END_LIMIT_S)
        from mpi_runtime.core.client.connection import SHUT_DOWN  # not at the top: see `__init__`

        is_confirmed = self.client.line.closed == SHUT_DOWN
        self._stop_listening()
        self.client.close()
        self.head.stop_listening()
        with contextlib.suppress(OSError):  # the program has closed all descriptors
            os.close(self._arena)
        if self.attendants is not None:
            self.attendants.end()
        if not self.head.is_reusable:
            self.head.end()
        return is_confirmed

    def _stop_listening(self) -> None:
        if self.listener is not None:
            self.listener.close(END_LIMIT_S)


changing = threading.RLock()
"""Held while a job starts or ends: threads that need a job at the same time start one between them."""
_session: Session | Connection | None = None
_own: OwnSession | None = None
"""The session that was submitted for this program, if it has one."""
_head: HeadHandle | None = None
_jobs = 0
_is_requeued = False
"""Whether the timer that requeues the job of the batch system was set."""
_is_over = False
"""Whether the program is ending. Its daemon threads run on while the job ends."""
_failure = ""
"""Why a job with MPI could not start. MPI cannot be started twice in a program, so every later start fails too."""


def start(
    config: Config,
    address: str = "",
    arguments: Mapping[str, object] | None = None,
    batch: Mapping[str, object] | None = None,
) -> Session | Connection:
    """Start a job from this driver, or connect to a session. The caller holds `changing`.

    Args:
        config: of the job.
        address: of a session; empty: that of the variables, if there is one.
        arguments: those of `init()` that were stated.
        batch: the options of a batch job of its own; None or empty: it has none.

    Raises:
        ConnectionError: there is no such session, or it refuses this program.
        LaunchError: see `start_job`.
        RuntimeNotInitializedError: this is a daemon thread of a program that is ending.
        ValueError: the address or an argument is not allowed; or variables of the batch system make no sense.
    """
    if _is_over and threading.current_thread() is not threading.main_thread():
        raise RuntimeNotInitializedError(_OVER)  # the head may still be ending the job before
    variable = ""
    repeat_ignored()
    if batch:
        return _in_own_session(config, batch, arguments or {})
    if not address:
        variable, address = configuration.address()
    if address and (found := _connected(config, address, variable, arguments or {})) is not None:
        return found
    return start_job(config)


_OVER = "The program is ending, and its job has ended: the threads that it leaves behind cannot start another one."


def _in_own_session(config: Config, batch: Mapping[str, object], arguments: Mapping[str, object]) -> Connection:
    """Connect to a session that is submitted for this program."""
    global _own
    from mpi_runtime.core.driver import own_session  # not at the top: most programs have none

    rest = own_session.of_connection(arguments)
    own = own_session.OwnSession(batch, arguments)
    try:
        found = _connected(config, own.address, "", rest)
        assert found is not None
    except BaseException:
        own.end()
        raise
    _own = own
    return found


def _connected(config: Config, address: str, variable: str, arguments: Mapping[str, object]) -> Connection | None:
    """Connect to the session at an address; None: this program starts a job of its own."""
    global _session
    with Interrupts():  # see its module; not at the top: most programs start their own job
        from mpi_runtime.core.driver import addresses, near

    found = addresses.find(address, variable)
    if found is None:
        return None
    try:
        near.check_arguments(arguments)
    except BaseException:
        found.close()
        raise
    _session = connection = near.Connection(found, config)
    current.set_client(connection.client)
    if current.report_values is not None:  # what was recorded before
        current.report_values(connection.client)
    text = f"connected to the session {connection.name!r} as its driver {connection.client.number}"
    log.say(log.line(log.INFO, log.SESSION, text), config.quiet)
    return connection


def start_job(config: Config, secret: str = "") -> Session:
    """Start a job from this driver; on a rank above 0, become a worker and never return. The caller holds `changing`.

    `secret`: see `HeadHandle.begin`.

    Raises:
        LaunchError: the ranks were started in a way that cannot work, or not all of them started.
        ValueError: variables of the batch system make no sense, or `object_spilling_directory` cannot be written.
    """
    global _session, _head, _jobs, _failure
    if _failure:
        raise LaunchError(f"MPI cannot be started again in this program, after init() has failed with: {_failure}")
    head = _head
    if head is None:
        launch = launching.detect(configuration.environment())
        if launch.problem:
            raise LaunchError(launch.problem)
        if configuration.is_batch_job():
            from mpi_runtime.slurm.allocation import from_environment  # not at the top: most jobs need none of it

            from_environment(configuration.environment())  # to report mistakes here, before a head starts
        if launch.rank:
            _be_worker(launch, config.start_timeout_s)
        _check_spilling(config)
        try:
            with Interrupts():  # or its process may have started, and nobody would end it
                head = HeadHandle(launch)
        except KeyboardInterrupt:
            if head is not None:
                head.end(limit_s=0.0)
            if launch.size != 1:
                _failure = "KeyboardInterrupt"
            raise
        if head.is_reusable:
            _head = head
    try:
        with Interrupts():
            from mpi_runtime.core.client.scope import Scope  # not at the top: see `Session`

        _session = Session(head, config, Scope(b"driver", _jobs), secret=secret)
    except BaseException as error:
        if not head.has_begun:
            head.end(limit_s=0.0)
        if head.is_reusable:
            _failure = str(error) or type(error).__name__
        _head = None
        raise
    _jobs += 1
    current.set_client(_session.client)
    if current.report_values is not None:  # what was recorded before
        current.report_values(_session.client)
    if config.requeue:
        _requeue_in_time(config.requeue_before_s)
    if configuration.is_batch_job():
        from mpi_runtime.core.driver import other_jobs  # not at the top: most jobs are not in a batch job
        from mpi_runtime.core.driver.end_of_time import EndWatch

        spare_s = config.requeue_before_s if config.requeue else config.drain_s
        _session.end_watch = EndWatch(_session.client.outbox.post_now, spare_s)
        if text := other_jobs.crowded():
            log.say(log.line(log.WARNING, log.UNUSED, text), config.quiet)
    return _session


def _check_spilling(config: Config) -> None:
    for directory in configuration.spill_directories(config) if config.object_spilling_directory else ():
        if problem := machine.unusable(directory):
            raise ValueError(f"object_spilling_directory {directory}: {problem}")


def running_config() -> Config | None:
    """The configuration of the running job; None: this is not its driver."""
    return _session.config if _session is not None else None


def address() -> str:
    """The address of the running job."""
    return "local" if _session is None or isinstance(_session, Session) else f"session:{_session.name}"


def _requeue_in_time(seconds: float) -> None:
    global _is_requeued
    from mpi_runtime import slurm  # not at the top: most jobs do not need it
    from mpi_runtime.slurm.walltime import can_requeue, end_time_at_start, lead_s

    if not _is_requeued and can_requeue():
        _is_requeued = True
        slurm.before_walltime(lead_s(seconds, end_time_at_start()), _save_and_requeue)


def _save_and_requeue() -> None:
    if isinstance(_session, Session):
        _session.save_and_requeue()


def stop() -> None:
    """End the running session, if there is one."""
    with changing:
        _stop()


def _stop() -> None:
    global _session, _own
    if _session is not None and current.client_or_none() is _session.client:
        ending, _session = _session, None
        current.set_client(None)
        ending.end()
        if _own is not None:
            own, _own = _own, None
            own.end()


def work(at_start: Container[str]) -> NoReturn:
    """Run the worker of this rank, in a process that has run no user code: it can be forked to get the forkserver.

    `at_start`: names of the modules that Python had loaded at the start.
    """
    _be_worker(launching.detect(configuration.environment()), None, at_start)


def release_workers() -> None:
    """End the other ranks at the end of a program that never called `init()`: they still wait for it.

    Those of a program that was interrupted are left to the launcher: they may take long to start.
    """
    if _jobs or _failure or getattr(sys, "last_type", None) is KeyboardInterrupt:
        return
    if launchers.are_ranks_taken():
        launchers.wait_for_ranks(END_LIMIT_S)
    else:
        HeadHandle(launching.detect(configuration.environment())).end(RELEASE_LIMIT_S)


def _be_worker(launch: Launch, start_timeout_s: float | None, at_start: Container[str] | None = None) -> NoReturn:
    sys.path[:] = library_path()  # no module of the program is imported from here on
    listings.for_all.__enter__()
    forked = None
    if at_start is not None:
        from mpi_runtime.core.executor import forkserver_handle

        # Before MPI starts, because a process of MPI must not fork. The child has the modules that are loaded here.
        forked = forkserver_handle.fork(at_start, preload=launch.rank == FIRST_WORKER)
    from mpi_runtime.core.rank import worker  # not at the top: it loads the agent, which only workers need here

    worker.work(launch, start_timeout_s, forked)


@atexit.register
def _at_exit() -> None:
    global _head, _is_over
    _is_over = True
    _stop()  # not `stop`: a thread of the program may be starting a job, and that may take long
    failed = bool(_failure)
    if _head is not None:
        _head.end()
        failed = _head.failed
        _head = None
    if failed and is_beside_mpi():
        _abort()


def _abort() -> None:
    """End all ranks of a program that has started MPI itself and has lost its head.

    The other ranks wait for the head, and MPI_Finalize would wait for them.
    """
    from mpi_runtime.core.transport.mpi import abort_job

    sys.stdout.flush()
    sys.stderr.flush()
    abort_job(1)


def _after_fork_in_child() -> None:
    """Forget the session in a forked child: the head belongs to its parent."""
    global _session, _head, changing
    changing = threading.RLock()  # another thread of the parent may hold it
    if _session is not None and _session.listener is not None:
        _session.listener.forget()
    _session = _head = None
    current.disown()


os.register_at_fork(after_in_child=_after_fork_in_child)

"""The head as the driver sees it: starts it, gives it jobs, watches it and ends it.

The driver learns of the death of the head in two ways. The connection closes, so the next call raises `HeadDiedError`.
A program that computes or sleeps makes no call, and would continue without a job. So a thread watches the head process.
If it dies, a signal raises the same error in the main thread, unless a call has raised it there. The program may save
its work. Without a launcher nothing else ends it. With one it has `SAVE_LIMIT_S`: the other ranks end the launcher then
(`agent/leftovers.py`), and most launchers end the program. The thread does what they have not done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from mpi_runtime import config as configuration
from mpi_runtime.config import Config
from mpi_runtime.core.client.interrupts import Interrupts
from mpi_runtime.core.host import launchers, machine
from mpi_runtime.core.host.launch import INSIDE, Launch
from mpi_runtime.core.host.process_tree import launchers_above
from mpi_runtime.core.host.spawn import PRELOADED_IF_USED, library_path, start_python
from mpi_runtime.core.transport import channel
from mpi_runtime.core.transport.messages import Job, Welcome, text_to_bytes
from mpi_runtime.core.transport.start import Start, read_welcome, send_start
from mpi_runtime.errors import HeadDiedError, LaunchError, from_code
from mpi_runtime.show import log

if TYPE_CHECKING:
    import subprocess

END_LIMIT_S = 10.0
"""Seconds that the head may take to end. Executors are killed, but it takes time to free a large memory."""
WAITS_S = 10.0
"""After this number of seconds a start logs what it waits for."""
DEATH_SIGNAL = signal.SIGURG
"""Interrupts the main thread when the head has died. Programs do not use this signal, and by default it is ignored."""
INTERRUPT_AGAIN_S = 0.05
"""Seconds until the main thread is interrupted again if it has not raised the error; doubled each time, up to 1."""
REAP_LIMIT_S = 1.0
"""Seconds that a call waits to learn how the head died: the connection closes a little before the process ends."""
SAVE_LIMIT_S = 5.0
"""Seconds that a program has to save its work after both its launcher and the head have ended."""
LOOK_S = 0.5
"""Seconds between checks whether the launcher has ended, too, after the head has."""

_is_lost = False
"""Whether the head of a job has ended unexpectedly."""


def is_lost() -> bool:
    """Whether a job of this program was lost: a node failed, or a process was killed."""
    return _is_lost


class HeadHandle:
    """The head as the driver sees it: a process; or a thread, if the program has started MPI itself."""

    def __init__(
        self,
        launch: Launch,
        environment: Mapping[str, str] | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        """Start the head.

        Args:
            launch: how this process was started.
            environment: of the head; None: that of this process.
            on_lost: called in a thread, with a description, if the process of the head ends unexpectedly; None: the
                main thread is interrupted.

        Raises:
            LaunchError: its process or the thread that watches it could not be started.
        """
        self.launch = launch
        self._on_lost = on_lost
        _occupy_standard_descriptors()
        self.socket, theirs = channel.pair()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self.expected_to_end = True
        """Whether its end is not logged: no job runs, or the job is ending."""
        self.failed = False
        """Whether it has ended with an error. Only for a thread."""
        self._has_ended = threading.Event()
        self._is_reported = threading.Event()
        """Set when the main thread need no longer be interrupted."""
        self.has_begun = False
        """Whether there was to be a job. If its start fails, the process is ended."""
        self._is_over = threading.Event()
        """Set when the program ends by itself."""
        self._how = "has ended"
        self._has_raised = False
        """Whether the main thread has raised the error."""
        if launch.size != 1 and is_beside_mpi():
            self._start_thread(theirs)
        else:
            fork = "None"
            if launch.kind == INSIDE:
                fork = "forkserver_handle.load_and_fork(at_start)"
            elif launch.size == 1:  # this host runs calls: the forkserver loads its modules meanwhile
                fork = "forkserver_handle.fork(at_start)"
            code = (
                "from mpi_runtime.core.executor import forkserver_handle; "
                f"forkserver = {fork}; from mpi_runtime.core.head.process import main; "
                f"main({theirs.fileno()}, {os.getpid()}, forkserver, at_start)"
            )
            environment = environment or configuration.environment()
            try:
                self._process = start_python(code, [theirs.fileno()], environment, library_path(), keep_all=True)
            except OSError as error:
                self.socket.close()
                raise LaunchError(f"The head process could not be started: {machine.shortage(error)}.") from error
            finally:
                theirs.close()
            if launch.size != 1:
                launchers.take_ranks(self._process.pid)
            launchers.leave_launcher()
            self._thread = threading.Thread(target=self._watch, name="mpi_runtime head watch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                self.end()
                refused = machine.shortage(OSError(errno.EAGAIN, str(error)))
                raise LaunchError(f"The head process could not be watched: {refused}.") from error

    def _start_thread(self, theirs: socket.socket) -> None:
        from mpi_runtime.core.head.process import serve

        def work() -> None:
            self.failed = serve(theirs, True) != 0
            self._report_end("has ended")

        self._thread = threading.Thread(target=work, name="mpi_runtime head", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        """Wait for the end of the head, or of the launcher: if the launcher is killed, the job has to end too.

        Most launchers take all their processes with them, and most MPI libraries notice the end of the launcher. The
        driver does not rely on either: it is not a process of MPI.
        """
        assert self._process is not None
        head, above = os.pidfd_open(self._process.pid), launchers_above(os.getpid())
        launcher = -1
        with contextlib.suppress(OSError):  # it has just ended
            launcher = os.pidfd_open(above[0]) if above else -1
        watched = [head, launcher] if launcher >= 0 else [head]
        try:
            ready = select.select(watched, [], [])[0]
            if head not in ready and not select.select([head], [], [], REAP_LIMIT_S)[0]:
                self._process.kill()
            code = self._process.wait()
            self._report_end(f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}")
            while launcher >= 0 and not _has_ended(launcher):
                if self._is_over.wait(LOOK_S):
                    return
            if launcher >= 0 and not self._is_over.wait(SAVE_LIMIT_S):
                os.kill(os.getpid(), signal.SIGKILL)
                os._exit(128 + signal.SIGKILL)  # the first process of a container does not end by it
        finally:
            for descriptor in watched:
                with contextlib.suppress(OSError):  # the program has closed all descriptors
                    os.close(descriptor)

    def _report_end(self, how: str) -> None:
        """Log the end of the head and interrupt the main thread, unless the end was expected."""
        global _is_lost
        _is_lost = _is_lost or not self.expected_to_end
        self._how = how
        if self._on_lost is not None and not self.expected_to_end:
            self._on_lost(how)
        self._has_ended.set()
        if not (self.expected_to_end or hasattr(sys, "ps1") or sys.is_finalizing()):
            log.say(log.line(log.CRITICAL, log.END, f"the head process {how}: the job is over."), quiet=False)
        self._interrupt_main()
        self._is_reported.set()

    def _interrupt_main(self) -> None:
        pause_s = INTERRUPT_AGAIN_S
        while not (self._has_raised or self.expected_to_end or hasattr(sys, "ps1") or sys.is_finalizing()):
            main = threading.main_thread()
            if signal.getsignal(DEATH_SIGNAL) != self._interrupt:  # the program's own, or init() ran in a thread
                signal.pthread_kill(main.ident or 0, signal.SIGINT)
                return
            signal.pthread_kill(main.ident or 0, DEATH_SIGNAL)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def listen(self) -> None:
        """Install the handler that interrupts the main thread. Only in the main thread, and if the signal is unused."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(DEATH_SIGNAL) == signal.SIG_DFL:
            signal.signal(DEATH_SIGNAL, self._interrupt)

    def stop_listening(self) -> None:
        """Remove the handler."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(DEATH_SIGNAL) == self._interrupt:
            signal.signal(DEATH_SIGNAL, signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._has_raised or self.expected_to_end or not self._has_ended.is_set():
            return
        if not threading.main_thread().is_alive():  # other threads raise the error in their calls
            self._has_raised = True
            return
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return  # Python would swallow the error there; the signal is sent again
            frame = frame.f_back
        self._has_raised = True
        raise HeadDiedError(self._why())

    def why_lost(self) -> str:
        """Return the message for a call that has lost its connection to the head.

        The main thread raises it here, and is not interrupted. Others wait until it was interrupted: it may wait for
        their result, and would raise the error twice.
        """
        if threading.current_thread() is threading.main_thread():
            self._has_raised = True
            self._has_ended.wait(REAP_LIMIT_S)
        else:
            self._is_reported.wait(REAP_LIMIT_S)
        return self._why()

    def _why(self) -> str:
        from mpi_runtime.core.client.outbox import CLOSED, is_closed_here  # not at the top: see `Session`

        if is_closed_here(self.socket):
            return CLOSED
        limit = f": within {SAVE_LIMIT_S:g} s its launcher ends it" if self.launch.size != 1 else ""
        return (
            f"The head process (scheduler) {self._how}, so the job cannot continue. Its own error, if any, is printed "
            "above; `dmesg` shows whether the kernel killed it for memory. "
            f"The program may save its work and end{limit}."
        )

    def begin(self, config: Config, listener: log.Listener | None, secret: str = "") -> tuple[Welcome, int]:
        """Start a job. Return the head's welcome and the descriptor of the arena.

        Args:
            config: of the job.
            listener: gets the head's log lines; None: the head writes them to standard error.
            secret: of a session: programs that know it may connect; empty: this is a plain job.

        Raises:
            LaunchError: the job did not start. The message says why.
            GpuDiscoveryError: requested GPUs do not exist.
            JournalError: the journal cannot be used.
        """
        global _is_lost
        self.has_begun = True
        directory = working_directory()
        path = [os.path.join(directory, entry) for entry in sys.path]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        preload = [name for name in PRELOADED_IF_USED if name in sys.modules]
        token = os.urandom(8).hex()
        where = text_to_bytes(directory), [*map(text_to_bytes, path)], [*map(text_to_bytes, sys.argv)]
        job = Job(config, *where, descriptors, preload, token)
        try:
            theirs = listener.theirs.fileno() if listener is not None else -1
            try:
                send_start(self.socket, Start(job, self.launch, log.level(config.quiet), theirs, secret))
            except OSError as error:
                raise LaunchError(self._why()) from error
            if listener is not None:
                listener.theirs.close()
            welcome, arena = self._read_welcome(config)
        except BaseException as error:
            self.end(limit_s=0.0)
            if isinstance(error, KeyboardInterrupt):
                _is_lost = False  # Ctrl-C has ended the program
            raise
        if welcome.problem:
            self.end()
            raise from_code(welcome.error, welcome.problem)
        self.expected_to_end = False
        return welcome, arena

    def _read_welcome(self, config: Config) -> tuple[Welcome, int]:
        """Wait until the job has started. After `WAITS_S` log what it waits for."""
        started_s, waits, is_logged = time.monotonic(), "", False
        while True:
            timeout_s, waited_s = config.start_timeout_s, time.monotonic() - started_s
            if not is_logged and waited_s >= WAITS_S:
                is_logged = True
                text = f"the job has not begun after {WAITS_S:g} s: {waits or self._first_wait()}"
                text = f"{text}. It may take {timeout_s:g} s (start_timeout_s)"
                log.say(log.line(log.WARNING, log.START, text), config.quiet)
            limit_s = timeout_s if is_logged else min(WAITS_S, timeout_s)
            if select.select([self.socket], [], [], max(0.0, limit_s - waited_s))[0]:
                try:
                    with Interrupts():
                        welcome, arena = read_welcome(self.socket)
                except ConnectionError:
                    message = "The head process ended while it started; its own error, if any, is printed above."
                    raise LaunchError(message) from None
                if not welcome.waits:
                    return welcome, arena
                waits = welcome.waits
            elif limit_s == timeout_s:
                raise LaunchError(self._late(timeout_s, waits))

    def _first_wait(self) -> str:
        """Return what a job waits for before its head reports it."""
        if not self.is_reusable:
            return "the process of its head has not started"
        return f"not all of {self.launch.size or 'several'} ranks have started and met in MPI"

    def _late(self, timeout_s: float, waits: str) -> str:
        """Return the message for a job that has not started in time."""
        if not self.is_reusable:
            return (
                f"The head process was not up after {timeout_s:g} s. A slow file system or a busy machine may need "
                "init(start_timeout_s=...)."
            )
        seen = f" The head reports: {waits}." if waits else ""
        return (
            f"The job was not up after {timeout_s:g} s.{seen} The launcher started {self.launch.size or 'several'} "
            "ranks, and all of them must call init() (or be started by `python -m mpi_runtime app.py`): a rank "
            "that failed earlier has printed its error above, but a killed one cannot. A slow file "
            "system may need init(start_timeout_s=...)."
        )

    @property
    def is_reusable(self) -> bool:
        """Whether the head stays for further jobs."""
        return self.launch.size != 1 or self.launch.kind == INSIDE

    @property
    def has_ended(self) -> bool:
        """True as soon as its end was noticed, whether or not it was expected."""
        return self._has_ended.is_set()

    def end(self, limit_s: float = END_LIMIT_S) -> None:
        """End the head, and wait for its end. Its process is killed after the limit."""
        self.expected_to_end = True
        self._is_over.set()
        with contextlib.suppress(OSError):  # it is gone already
            send_start(self.socket, Start(None, self.launch))
        with contextlib.suppress(OSError):
            self.socket.close()
        if self._process is not None:
            import subprocess  # not at the top: a thread as the head needs none

            try:
                self._process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process is not None and self._process.returncode and self.has_begun:
            global _is_lost
            _is_lost = True
        if self._thread is not None:
            self._thread.join(limit_s)


def _has_ended(process: int) -> bool:
    try:
        return bool(select.select([process], [], [], 0)[0])
    except OSError:
        return False  # the program has closed all descriptors


def working_directory() -> str:
    """Return the working directory of this program."""
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"


def _occupy_standard_descriptors() -> None:
    """Open the descriptors 0, 1 and 2 if they are closed: children replace them, so our sockets must not get them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def is_beside_mpi() -> bool:
    """Whether the program itself has started MPI."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    from mpi_runtime.core.transport.mpi import mpi_is_initialised  # not at the top: it loads MPI

    return mpi_is_initialised()

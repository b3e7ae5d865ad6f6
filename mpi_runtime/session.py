"""The session: the processes of one program between `init()` and `shutdown()`, started and ended from the driver.

Ends, in steps:
1. `shutdown()`, or the end of the program by any way that runs `atexit`, says `Shutdown` to the head.
2. Where there are no other ranks the head ends, and we wait for it; with MPI it stays, because MPI cannot be started
   twice in a program, and ends with the driver.
3. A driver that is killed says nothing, but its socket closes, which means the same to the head.
4. A head that dies closes its end: the next call of ours raises `HeadDiedError`. A program that computes or sleeps
   makes none, and would go on without a job: a thread that watches the head's process has a signal raise the same
   error in the main thread, unless that knows already. Nothing else ends the program: it may save its work.
"""

from __future__ import annotations

import atexit
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
from collections.abc import Container
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime import log
from mpi_runtime.client import current
from mpi_runtime.client.client import Client
from mpi_runtime.client.scope import Scope
from mpi_runtime.client.stalls import Says
from mpi_runtime.config import Config
from mpi_runtime.errors import HeadDiedError, LaunchError, from_code
from mpi_runtime.host import launch as launching
from mpi_runtime.host import launchers, machine
from mpi_runtime.host.launch import FIRST_WORKER, Launch
from mpi_runtime.host.process_tree import launchers_above
from mpi_runtime.host.spawn import PRELOADED_IF_USED, library_path, start_python
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.transport import channel
from mpi_runtime.transport.messages import Job, Shutdown, Welcome, text_to_bytes
from mpi_runtime.transport.start import Start, send_start

if TYPE_CHECKING:
    import subprocess

END_LIMIT_S = 10.0
"""How long the head may take to end: executors are killed, but their memory may be large."""
DEATH_SIGNAL = signal.SIGURG
"""Interrupts the main thread when the head has died. Nobody uses it, and who does not expect it ignores it."""
TELL_AGAIN_S = 0.05
"""After so long the main thread is interrupted again, if it could not be: then after twice as long, up to a second."""
REAP_LIMIT_S = 1.0
"""How long a call waits for what the head has died of: its connection is closed a little before."""
RELEASE_LIMIT_S = 60.0
"""How long the ranks may take to come up only to be told to end."""


SAVE_LIMIT_S = 5.0
"""How long a program may go on whose launcher was killed, and the head with it: time to save what it has."""


class HeadHandle:
    """The head as the driver sees it: a process, or beside a user's own MPI a thread."""

    def __init__(self, launch: Launch) -> None:
        """Start it."""
        self.launch = launch
        _occupy_standard_descriptors()
        self.socket, theirs = channel.pair()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self.expected_to_end = True
        """Whether nobody need be told when it ends."""
        self.failed = False
        """As a thread: it has ended otherwise than it was told to."""
        self._has_ended = threading.Event()
        self._all_told = threading.Event()
        """The main thread need not be interrupted any more."""
        self._how = "has ended"
        self._told = False
        """Whether the main thread knows that it has died."""
        if launch.size != 1 and _mpi_is_initialised():
            self._start_thread(theirs)
        else:
            fork = "None"
            if launch.size == 1:  # the head will run calls: its forkserver loads its modules while the head does too
                fork = "forkserver_handle.fork(at_start)"
            code = (
                "at_start = set(sys.modules); from mpi_runtime.executor import forkserver_handle; "
                f"forkserver = {fork}; from mpi_runtime.rank.head import main; main({theirs.fileno()}, forkserver)"
            )
            environment = configuration.environment()
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
        from mpi_runtime.rank.head import serve

        def work() -> None:
            self.failed = serve(theirs, True) != 0
            self._tell_end("has ended")

        self._thread = threading.Thread(target=work, name="mpi_runtime head", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        """Wait for the end of the head, or of the launcher: whoever kills that wants all of it to end.

        Most launchers take all with them, and most MPIs notice. Here it does not matter: the driver is no rank of MPI.
        """
        assert self._process is not None
        head, above = os.pidfd_open(self._process.pid), launchers_above(os.getpid())
        launcher = -1
        with contextlib.suppress(OSError):  # it is just going
            launcher = os.pidfd_open(above[0]) if above else -1
        watched = [head, launcher] if launcher >= 0 else [head]
        try:
            ready = select.select(watched, [], [])[0]
            if head not in ready and not select.select([head], [], [], REAP_LIMIT_S)[0]:
                self._process.kill()
            code = self._process.wait()
            is_orphan = launcher >= 0 and bool(select.select([launcher], [], [], 0)[0])
        finally:
            for descriptor in watched:
                os.close(descriptor)
        self._tell_end(f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}")
        if is_orphan:
            time.sleep(SAVE_LIMIT_S)
            os.kill(os.getpid(), signal.SIGKILL)

    def _tell_end(self, how: str) -> None:
        """Step 4."""
        global _is_lost
        _is_lost = _is_lost or not self.expected_to_end
        self._how = how
        self._has_ended.set()
        if not (self.expected_to_end or hasattr(sys, "ps1") or sys.is_finalizing()):
            log.say(log.line(log.CRITICAL, log.END, f"the head process {how}: the job is over."), quiet=False)
        self._interrupt_main()
        self._all_told.set()

    def _interrupt_main(self) -> None:
        pause_s = TELL_AGAIN_S
        while not (self._told or self.expected_to_end or hasattr(sys, "ps1") or sys.is_finalizing()):
            main = threading.main_thread()
            if signal.getsignal(DEATH_SIGNAL) != self._interrupt:  # the program's own, or `init()` was not called there
                signal.pthread_kill(main.ident or 0, signal.SIGINT)
                return
            signal.pthread_kill(main.ident or 0, DEATH_SIGNAL)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def listen(self) -> None:
        """Have the main thread interrupted when the head dies, if this is it and nobody else uses the signal."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(DEATH_SIGNAL) == signal.SIG_DFL:
            signal.signal(DEATH_SIGNAL, self._interrupt)

    def listen_no_more(self) -> None:
        """Give the signal back."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(DEATH_SIGNAL) == self._interrupt:
            signal.signal(DEATH_SIGNAL, signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._told or self.expected_to_end or not self._has_ended.is_set():
            return
        if not threading.main_thread().is_alive():  # what is left is to wait for other threads, which hear of it
            self._told = True
            return
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return  # the error would vanish there; we come again
            frame = frame.f_back
        self._told = True
        raise HeadDiedError(self._why())

    def why_lost(self) -> str:
        """What is told by a call that finds no head any more. Where the main thread asks it need not be interrupted.

        Other threads wait until it was: it may await what they complete, and would be told twice.
        """
        if threading.current_thread() is threading.main_thread():
            self._told = True
            self._has_ended.wait(REAP_LIMIT_S)
        else:
            self._all_told.wait(REAP_LIMIT_S)
        return self._why()

    def _why(self) -> str:
        return (
            f"The head process, which has the scheduler, {self._how}: the job cannot go on. What it said is above, if "
            "it could; `dmesg` tells whether the kernel killed it for memory. The program may save its work and end."
        )

    def begin(self, config: Config, listener: log.Listener | None) -> tuple[Welcome, int]:
        """Begin a job; the head's welcome and the descriptor of the arena. What it has to say goes to the listener.

        Raises:
            LaunchError: it did not come up; says why.
        """
        directory = _working_directory()
        path = [os.path.join(directory, entry) for entry in sys.path]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        preload = [name for name in PRELOADED_IF_USED if name in sys.modules]
        token = os.urandom(8).hex()
        where = text_to_bytes(directory), [*map(text_to_bytes, path)], [*map(text_to_bytes, sys.argv)]
        job = Job(configuration.to_bytes(config), *where, descriptors, preload, token)
        try:
            theirs = listener.theirs.fileno() if listener is not None else -1
            send_start(self.socket, Start(job, self.launch, log.level(config.quiet), theirs))
            if listener is not None:
                listener.theirs.close()
            welcome, arena = self._read_welcome(config.start_timeout_s)
        except BaseException:
            self.end(limit_s=0.0)
            raise
        if welcome.problem:
            self.end()
            raise from_code(welcome.error, welcome.problem)
        self.expected_to_end = False
        return welcome, arena

    def _read_welcome(self, timeout_s: float) -> tuple[Welcome, int]:
        if not select.select([self.socket], [], [], timeout_s)[0]:
            if not self.is_reusable:
                raise LaunchError(
                    f"The head process was not up after {timeout_s:g} s. A slow file system or a busy machine may need "
                    "init(start_timeout_s=...)."
                )
            raise LaunchError(
                f"The job was not up after {timeout_s:g} s. The launcher started {self.launch.size or 'several'} "
                "ranks, and all of them must call init() (or be started by `python -m mpi_runtime app.py`): a rank "
                "that failed before that says so above. A slow file system may need init(start_timeout_s=...)."
            )
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, 4, 1)
        except ConnectionError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            missing = 4 + int.from_bytes(data[:4], "little") - len(data) if len(data) >= 4 else 4 - len(data)
            part = self.socket.recv(missing)
            if not part:
                raise LaunchError("The head process ended while it started; what it said is above.")
            data += part
        return msgspec.msgpack.decode(data[4:], type=Welcome), descriptors[0] if descriptors else -1

    @property
    def is_reusable(self) -> bool:
        """Whether it stays after a job."""
        return self.launch.size != 1

    def end(self, limit_s: float = END_LIMIT_S) -> None:
        """Have it end, and wait for that, for as long as the limit."""
        self.expected_to_end = True
        with contextlib.suppress(OSError):  # it is gone already
            send_start(self.socket, Start(None, self.launch))
        self.socket.close()
        if self._process is not None:
            import subprocess  # it was imported to start the process

            try:
                self._process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process is not None and self._process.returncode:
            global _is_lost
            _is_lost = True
        if self._thread is not None:
            self._thread.join(limit_s)


class Session:
    """A job: the head, and the client of this process."""

    def __init__(self, head: HeadHandle, config: Config, number: int) -> None:
        """Start a job and wait until all ranks have joined it."""
        self.head = head
        self.config = config
        self.listener = log.Listener() if log.has_handler() else None
        try:
            welcome, self._arena = head.begin(config, self.listener)
        except BaseException:
            self._listen_no_more()
            raise
        self.size = welcome.size
        self.client = Client(head.socket, ClientArena(self._arena), welcome.regions, config.inline_bytes_max)
        self.client.scopes.enter(Scope(b"driver", number))
        self.client.inherited.namespace = config.namespace
        self.client.store.journal = config.journal
        self.client.stalls.says = Says(config.waiting_line_s, config.quiet)
        self.client.outbox.why_lost = head.why_lost
        head.listen()

    def end(self) -> None:
        """End the job."""
        self.head.expected_to_end = True
        with contextlib.suppress(HeadDiedError, OSError):
            self.client.outbox.send_last(Shutdown())
            self.client.line.read_to_end(END_LIMIT_S)
        self._listen_no_more()
        self.client.close()
        self.head.listen_no_more()
        os.close(self._arena)
        if not self.head.is_reusable:
            self.head.end()

    def _listen_no_more(self) -> None:
        if self.listener is not None:
            self.listener.close(END_LIMIT_S)


_session: Session | None = None
_head: HeadHandle | None = None
_jobs = 0
_is_lost = False
"""The head of a job has ended as it was not meant to."""
_failure = ""
"""Why the ranks could not be joined: MPI cannot be started twice in a program."""


def start(config: Config) -> Session:
    """Start a job from this driver; on a rank above 0, become a worker and never return.

    Raises:
        LaunchError: the ranks were started in a way that cannot work, or did not come up.
    """
    global _session, _head, _jobs, _failure
    if _failure:
        raise LaunchError(f"MPI cannot be started again in this program, after init() has failed with: {_failure}")
    head = _head
    if head is None:
        launch = launching.detect(configuration.environment())
        if launch.problem:
            raise LaunchError(launch.problem)
        if launch.rank:
            _be_worker(launch, config.start_timeout_s)
        head = HeadHandle(launch)
        if head.is_reusable:
            _head = head
    try:
        _session = Session(head, config, _jobs)
    except BaseException as error:
        if head.is_reusable:
            _failure = str(error) or type(error).__name__
        _head = None
        raise
    _jobs += 1
    current.set_client(_session.client)
    return _session


def session() -> Session | None:
    """The running session, if there is one."""
    return _session


def is_lost() -> bool:
    """Whether a job has ended under this program: a node has failed, or something was killed."""
    return _is_lost


def stop() -> None:
    """End the running session, if there is one."""
    global _session
    if _session is not None and current.client_or_none() is _session.client:
        ending, _session = _session, None
        current.set_client(None)
        ending.end()


def work(at_start: Container[str]) -> NoReturn:
    """Be the worker of this rank in a process that has run nothing of the program: its forkserver can be a copy of it.

    Args:
        at_start: names of the modules that are loaded before the program begins.
    """
    _be_worker(launching.detect(configuration.environment()), None, at_start)


def release_workers() -> None:
    """At the end of a program that runs on rank 0 alone: if nothing has called `init()`, the others wait."""
    if _jobs or _failure:
        return
    if launchers.are_ranks_taken():
        launchers.wait_for_ranks(END_LIMIT_S)
    else:
        HeadHandle(launching.detect(configuration.environment())).end(RELEASE_LIMIT_S)


def _be_worker(launch: Launch, start_timeout_s: float | None, at_start: Container[str] | None = None) -> NoReturn:
    sys.path[:] = library_path()  # from here on nothing of the program is imported
    forked = None
    if at_start is not None:
        from mpi_runtime.executor import forkserver_handle

        # Before MPI, which does not bear it. Most of what it loads it has then without asking the file system again.
        forked = forkserver_handle.fork(at_start, preload=launch.rank == FIRST_WORKER)
    from mpi_runtime.rank import worker  # with it comes the agent, which a driver and executors never need

    worker.work(launch, start_timeout_s, forked)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"


def _occupy_standard_descriptors() -> None:
    """See to it that 0, 1 and 2 are open, or sockets of ours would get these numbers, which children fill anew."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _mpi_is_initialised() -> bool:
    return "mpi4py.MPI" in sys.modules and _transport_mpi_is_initialised()


def _transport_mpi_is_initialised() -> bool:
    from mpi_runtime.transport.mpi import mpi_is_initialised

    return mpi_is_initialised()


@atexit.register
def _at_exit() -> None:
    global _head
    stop()
    failed = bool(_failure)
    if _head is not None:
        _head.end()
        failed = _head.failed
        _head = None
    if failed and _mpi_is_initialised():
        _abort()


def _abort() -> None:
    """Beside the user's own MPI: other ranks wait for a head that is no more, and MPI_Finalize would wait for them."""
    from mpi_runtime.transport.mpi import abort_job

    sys.stdout.flush()
    sys.stderr.flush()
    abort_job(1)


def _after_fork_in_child() -> None:
    """A forked child has no session: the head belongs to its parent."""
    global _session, _head
    if _session is not None and _session.listener is not None:
        _session.listener.forget()
    _session = _head = None
    current.disown()


os.register_at_fork(after_in_child=_after_fork_in_child)

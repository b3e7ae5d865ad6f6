"""The forkserver: a process with the libraries loaded, from which executors are forked in milliseconds.

A new Python imports for a long time before it can run a call; a fork of one that has imported runs it in milliseconds.
But a process with threads or with MPI cannot be forked safely. The idea: a process that only imports and forks. It has
one thread and runs no user code. Its agent sends requests over a socket pair, with descriptors beside them.

    agent -- Fork, Kill, Interrupt --> forkserver -- fork --> executors, each in a process group of its own
          <-- ExecutorStarted, Exited --

It is the parent of all executors of its agent, and cleans up after them:
1. It reaps them, and reports to the agent how each ended.
2. Before it reaps an executor, it kills the rest of its process group, so that programs started by user code do not
   outlive it. Until then the kernel cannot give its process id to another process.
3. It reports the end only when the whole group has ended. A forked child, such as a data loader, holds the device files
   that its parent had opened, and so the memory of the GPU, which the next executor needs.
4. It removes what MPI libraries leave in shared memory (`host/mpi_files.py`).
5. A process that has left the group becomes a child of the forkserver when its parent ends (`adopt_orphans`). With an
   executor the forkserver kills its copies that may hold GPUs, recognised by their pipes, the command of a batch and
   the processes of a call with its own scheduler, recognised by their environment, and awaits their end. Other programs
   may outlive their executor.
6. When the agent ends, however it ends, the socket closes: then the forkserver kills all its children and ends. If the
   forkserver is killed, the kernel kills the executors (`die_with_parent`).

Not obvious: objects that exist before a fork are frozen (`gc.freeze`), so that collections in executors do not copy
their pages. Only modules on a short list are imported here, numpy with one BLAS thread: a library that starts a thread
or opens a device would break its copies (docs/decisions/0204).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Container, Sequence
from types import ModuleType
from typing import NamedTuple, NoReturn

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime import listings
from mpi_runtime.core.client.interrupts import CANCEL_SIGNAL
from mpi_runtime.core.executor import output, scratch
from mpi_runtime.core.executor.fork_messages import (
    MESSAGE_BYTES_MAX,
    Exited,
    Fork,
    ForkHelper,
    Kill,
    OpenMpi,
    Setup,
    read_request,
)
from mpi_runtime.core.executor.own_scheduler_mark import CALL_OF
from mpi_runtime.core.executor.scratch import NSIGHT
from mpi_runtime.core.host import mpi_files, signals
from mpi_runtime.core.host.machine import shortage
from mpi_runtime.core.host.process_tree import (
    adopt_orphans,
    children,
    continue_without_parent,
    die_with_parent,
    has_variable,
    is_exiting,
    is_group,
    kill_group,
    open_files,
)
from mpi_runtime.core.host.spawn import COSTLY, THREAD_VARIABLES, name_process, shadowed
from mpi_runtime.core.transport.messages import bytes_to_text
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted

PUBLIC = (*(f"mpi_runtime.core.api.{name}" for name in ("job", "calls", "values", "context")),)
"""The modules that user code calls. They are text, since this module must not import them."""
PRELOADED = ("cloudpickle", "mpi_runtime.core.executor.process_setup", *PUBLIC)
"""Modules that executors find loaded."""
EXECUTOR = "mpi-rt-executor"
"""The name of the process of an executor."""
LOOK_AGAIN_MS = 20
"""Milliseconds between two looks at the rest of a group. The end of adopted processes, which are most, is signalled."""
DESCRIPTORS_MAX = 8
"""Descriptors of one request: those of an executor, two more of a member of a gang, and a file with a long request."""
END_LIMIT_S = 5.0
"""How long to wait for killed processes, in seconds. Freeing much memory takes time, and one that hangs in a device
driver never ends."""


class Leaving(NamedTuple):
    """An executor that has ended, and whose process group has not."""

    exited: Exited
    """The report for the agent."""
    pipe: str
    """The name in /proc of its pipe, if it had GPUs."""
    deadline_s: float


class Forkserver:
    """Forks and kills executors as its agent asks, until the agent ends."""

    _setup: Setup
    """The agent's first message: it precedes all others."""

    def __init__(self, end: socket.socket, at_start: Container[str]) -> None:
        self._end = end
        self._at_start = at_start
        self._arena = self._drafts = -1
        self._shadowed: list[str] = []
        self._scratch_lock = -1
        """The lock that keeps other jobs from removing the files of executors; -1: there are no files."""
        self._executors: dict[int, tuple[int, str]] = {}
        """By process id: the number of an executor, and, if it has GPUs, the name in /proc of a pipe that only it and
        its copies have."""
        self._profiled: set[int] = set()
        """Those of nsys, whose child is the executor."""
        self._leaving: dict[int, Leaving] = {}
        """By process id: executors that are reaped, and whose process group has not ended."""
        self._helpers: dict[int, tuple[str, int]] = {}
        """By process id: the directory of a helper of gangs, and a copy of its connection. So the agent sees the end of
        the connection when the cause has been written."""
        self._wake, self._wake_end = socket.socketpair()
        for one in (self._wake, self._wake_end):
            one.setblocking(False)
        signal.set_wakeup_fd(self._wake_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the agent ends; then kill all children."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        alive = True
        while alive:
            ready = dict(poll.poll(LOOK_AGAIN_MS if self._leaving else None))
            if self._wake.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    while self._wake.recv(512):
                        pass
            self._reap()
            if self._end.fileno() in ready:
                alive = self._serve()
        if self._profiled:
            _profiled().await_reports(self._profiled, self._reap)
        deadline = time.monotonic() + END_LIMIT_S
        while (left := children() or list(self._executors)) and time.monotonic() < deadline:
            for pid in left:
                kill_group(pid)
            self._reap()
            time.sleep(1e-3)
        mpi_files.sweep()
        if self._scratch_lock >= 0:
            scratch.leave(self._setup.scratch, self._scratch_lock)
        self._close()

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        for one in (self._end, self._wake, self._wake_end):
            one.close()

    def _serve(self) -> bool:
        """Read and carry out one request. Return False if the agent has ended."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
        except OSError:
            return False
        if not data:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # not inherited by programs that user code starts
        request = read_request(data, descriptors)
        if isinstance(request, Setup):
            self._setup = request
            self._arena, self._drafts = descriptors
            make_ready(request.job.preload)
            self._look_for_shadowed()
            scratch.clean(request.scratch)
            mpi_files.sweep()  # of jobs that were killed with all their processes
        elif isinstance(request, Fork):
            self._fork(request, descriptors)
        elif isinstance(request, OpenMpi):
            from mpi_runtime.core.gangs import library  # not at the top: most jobs have no gang

            library.open_ahead()
        elif isinstance(request, ForkHelper):
            self._fork_helper(request, *descriptors)
        else:
            for pid in [pid for pid, (number, _) in self._executors.items() if number == request.executor]:
                if isinstance(request, Kill):
                    if pid not in self._profiled or not _profiled().kill(pid):
                        kill_group(pid)
                elif pid in self._profiled:
                    os.killpg(pid, CANCEL_SIGNAL)  # by default processes ignore it, and so does nsys
                else:
                    os.kill(pid, CANCEL_SIGNAL)
        return True

    def _enter_scratch(self) -> str:
        """Make the directory for files, once. Return why it cannot be made, else empty."""
        if self._scratch_lock < 0:
            try:
                self._scratch_lock = scratch.enter(self._setup.scratch)
            except OSError as error:
                return scratch.why_not(error, self._setup.scratch)
        return ""

    def _look_for_shadowed(self) -> None:
        path = self._setup.job.path
        self._shadowed = shadowed(bytes_to_text(path[0]), self._at_start) if path else []

    def _import(self, names: Sequence[str]) -> None:
        """Import costly modules once for all later executors. If an import fails here, it is left to them."""
        new = [name for name in COSTLY if name in names and name not in sys.modules]
        if new:
            with contextlib.suppress(Exception):
                load(new)
            self._look_for_shadowed()

    def _fork(self, request: Fork, descriptors: list[int]) -> None:
        self._import(request.imports)
        if request.member is not None:
            importlib.import_module("mpi_runtime.core.gangs.member")  # once for all members
        problem = self._enter_scratch() if scratch.needs_files(request.environment) else ""
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._send(Exited(request.executor, 0, f"could not be forked: {shortage(error)}"))
            return
        if not pid:
            try:
                self._become_executor(request, descriptors, problem, parent)
            except BaseException:
                with contextlib.suppress(OSError):  # already done
                    os.dup2(descriptors[4], 2)
                traceback.print_exc(file=sys.__stderr__)  # the callers of its calls get the text
            finally:
                os._exit(1)
        if request.member is not None:
            self._enter_scratch()  # the agent has files of gangs there, and may be killed
        pipe = f"pipe:[{os.fstat(descriptors[2]).st_ino}]"
        for descriptor in descriptors:
            os.close(descriptor)
        self._executors[pid] = request.executor, pipe if request.gpu_ids else ""
        if NSIGHT in request.environment:
            self._profiled.add(pid)
        self._send(ExecutorStarted(request.executor, pid))

    def _fork_helper(self, request: ForkHelper, descriptor: int) -> None:
        """Fork the helper of gangs: it has most of its modules, which take longer than all else that it does first."""
        from mpi_runtime.core.gangs import pmix_server  # not at the top: most jobs have no gang

        parent = os.getpid()
        pid = -1
        with contextlib.suppress(OSError):  # the agent notices that the connection has ended
            pid = os.fork()
        if not pid:
            try:
                self._leave(parent)
                pmix_server.main(descriptor, request.directory, request.library)
            finally:
                os._exit(1)
        if pid > 0:
            self._helpers[pid] = request.directory, descriptor
        else:
            os.close(descriptor)

    def _end_helper(self, pid: int, status: int) -> None:
        """A helper of gangs was reaped. Its agent removes the directory before, if it has closed the connection."""
        from mpi_runtime.core.gangs import pmix_server

        directory, descriptor = self._helpers.pop(pid)
        with contextlib.suppress(OSError), open(f"{directory}/{pmix_server.STATUS}", "w") as file:
            file.write(str(status))
        os.close(descriptor)

    def _leave(self, parent: int) -> None:
        """In a child: undo what belongs to the forkserver, the parent, which may be dead by now."""
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        self._close()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in (self._scratch_lock, *(end for _, end in self._helpers.values())):
            if descriptor >= 0:
                os.close(descriptor)

    def _become_executor(self, request: Fork, descriptors: list[int], problem: str, parent: int) -> NoReturn:
        """In the child: be an executor.

        `problem`: see `become`. `parent`: see `_leave`.
        """
        self._leave(parent)
        be_named_and_listen()
        if NSIGHT in request.environment:
            ours = (self._setup, request, descriptors, self._arena, self._drafts)
            problem = problem or _profiled().begin(*ours, problem, parent)
        _seed_numpy()
        from mpi_runtime.core.executor import process_setup  # loaded already: see PRELOADED

        process_setup.become(
            self._setup, request, descriptors, self._arena, self._drafts, self._shadowed, self._at_start, problem
        )

    def _reap(self) -> None:
        """Reap executors, and report those whose process groups have ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                ended = None
            if ended is None:
                self._report_ends()
                return
            pid = ended.si_pid
            executor = self._executors.pop(pid, None)
            self._profiled.discard(pid)
            if executor is not None:
                kill_group(pid)
            _, status = os.waitpid(pid, 0)
            if pid in self._helpers:
                self._end_helper(pid, status)
            if executor is not None:
                number, pipe = executor
                self._leaving[pid] = Leaving(Exited(number, status), pipe, time.monotonic() + END_LIMIT_S)

    def _report_ends(self) -> None:
        """Report executors whose process groups have ended, or do not end within `END_LIMIT_S`."""
        gone = [pid for pid, leaving in self._leaving.items() if self._is_gone(pid, leaving)]
        if gone:
            mpi_files.sweep()
        for pid in gone:
            self._send(self._leaving.pop(pid).exited)

    def _is_gone(self, pid: int, leaving: Leaving) -> bool:
        """Whether the process group of an executor has ended, or will not; kill what it has left outside of it."""
        left = self._left_by(pid, leaving.pipe)
        for one in left:
            kill_group(one)
        is_gone = not left and (pid in self._executors or not is_group(pid))
        is_gone = is_gone and not any(map(is_exiting, children()))  # it may be one of them, or have left children
        return is_gone or time.monotonic() > leaving.deadline_s

    def _left_by(self, executor: int, pipe: str) -> list[int]:
        """Return copies of an executor and its command that have become our children."""
        return [
            one
            for one in children()
            if one not in self._executors
            and (
                (pipe and pipe in open_files(one))
                or has_variable(one, configuration.COMMAND_OF, str(executor))
                or has_variable(one, CALL_OF, str(executor))
            )
        ]

    def _send(self, message: ExecutorStarted | Exited) -> None:
        with contextlib.suppress(OSError):  # the agent has ended: `_serve` notices
            self._end.send(msgspec.msgpack.encode(message))


def main(descriptor: int, at_start: Container[str], preload: bool = True) -> None:
    """Be the forkserver of the agent at the other end of this descriptor, a socket.

    `at_start`: see `become`. `preload`: see `fork` of `forkserver_handle.py`.
    """
    signals.ignore(signal.SIGTERM)  # the agent's end decides
    name_process("mpi-rt-forksrv")
    continue_without_parent()
    listings.for_all.__enter__()  # until an executor is forked
    output.install()
    if preload:
        make_ready()
    gc.disable()
    Forkserver(socket.socket(fileno=descriptor), at_start).run()
    os._exit(0)


def _profiled() -> ModuleType:
    return importlib.import_module("mpi_runtime.core.executor.profiled")  # not at the top: few jobs have it


def be_named_and_listen() -> None:
    """Set the name and the signals of an executor."""
    name_process(EXECUTOR)
    signals.listen(configuration.is_batch_job())


def _seed_numpy() -> None:
    """Seed numpy's global generator, if it was loaded before the fork: all executors would draw the same numbers.

    Older versions of numpy load it by themselves. Python seeds its own generator at each fork.
    """
    generators = sys.modules.get("numpy.random")
    if generators is not None:
        generators.seed()


def make_ready(more: Sequence[str] = ()) -> None:
    """Do slow work before the first executor. A second call takes no time."""
    adopt_orphans()
    load([*PRELOADED, *more])


def load(modules: Sequence[str]) -> None:
    """Import modules, and exclude their objects from garbage collections of executors."""
    environment = configuration.environment()
    asked = {name: environment.get(name) for name in ("OMP_NUM_THREADS", *THREAD_VARIABLES)}
    os.environ.update(dict.fromkeys(asked, "1"))
    try:
        for name in modules:
            importlib.import_module(name)
    finally:
        for name, value in asked.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
    gc.collect()
    gc.freeze()

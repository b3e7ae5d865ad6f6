"""The forkserver: a clean process with the libraries loaded, from which executors are forked in milliseconds.

It is the parent of all executors of its agent, and their guardian:
1. It reaps them, and tells the agent how each ended.
2. Before it reaps one, it kills what is left of the executor's process group, so that programs that user code started
   do not outlive it; until it is reaped its number cannot belong to anybody else.
3. Programs that have left the group become the forkserver's children when their parents end (`adopt_orphans`).
   When the agent is gone, however it ended, the socket says so: the forkserver kills all its children and ends.
4. If it is itself killed, the kernel kills the executors (`die_with_parent`).
It is single-threaded, or forking would not be safe, and runs no user code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Container, Mapping, Sequence
from importlib.machinery import PathFinder
from typing import NamedTuple, NoReturn

import msgspec
from msgspec import Struct

from mpi_runtime import config as configuration
from mpi_runtime.gpu.device import Device
from mpi_runtime.processes import scratch
from mpi_runtime.processes.interrupts import CANCEL_SIGNAL
from mpi_runtime.processes.spawn import name_process, start_python

MESSAGE_BYTES_MAX = 1 << 18

PRELOADED = ("cloudpickle", "mpi_runtime.processes.executor", "mpi_runtime.api", "mpi_runtime.context")
"""What executors find loaded. The last are what user code calls: by name, since they stand above this module."""
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What numerical libraries ask once, when they are loaded."""
END_LIMIT_S = 5.0
"""How long to wait for what was killed: much memory takes its time, and what hangs in the system never ends."""


class Setup(Struct, array_like=True, tag=1):
    """From the agent, first: what all executors have in common. With it comes the arena's descriptor."""

    rank: int
    hostname: str
    regions: dict[int, int]
    inline_bytes_max: int
    directory: str
    path: list[str]
    argv: list[str]
    descriptors: int
    preload: list[str]
    namespace: str
    scratch: str
    """Where the job may have files on this host."""


class Fork(Struct, array_like=True, tag=2):
    """From the agent: fork an executor.

    With it come five descriptors: its socket, its token counter, the pipe with ids of calls to cancel, its standard
    output and error.
    """

    executor: int
    environment: dict[str, str]
    gpus: list[int]
    threads: int
    cpus: list[int]
    devices: list[Device] = []
    """What is known of the GPUs."""
    variables: Mapping[str, str] = {}
    """What shows them to CUDA: for this process alone, where `environment` is for the calls that it makes too."""


class Kill(Struct, array_like=True, tag=3):
    """From the agent: kill an executor, or interrupt it."""

    executor: int
    interrupt: bool = False


class Forked(Struct, array_like=True, tag=4):
    """To the agent."""

    executor: int
    pid: int


class Exited(Struct, array_like=True, tag=5):
    """To the agent: an executor is gone and reaped; `status` as of `waitpid`."""

    executor: int
    status: int


_requests = msgspec.msgpack.Decoder(Setup | Fork | Kill)


class Forkserver:
    """Obeys its agent until that is gone."""

    def __init__(self, end: socket.socket, at_start: Container[str]) -> None:
        self._end = end
        self._at_start = at_start
        self._setup: Setup | None = None
        self._arena = -1
        self._shadowed: list[str] = []
        self._scratch_lock = -1
        """While executors may have files: keeps others from removing them."""
        self._executors: dict[int, int] = {}
        """Executor number by process number."""
        self._pids: dict[int, int] = {}
        self._wake, wake = socket.socketpair()
        for one in (self._wake, wake):
            one.setblocking(False)
        self._wake_end = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the agent is gone; then leave nothing."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        alive = True
        while alive:
            ready = dict(poll.poll())
            if self._wake.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    while self._wake.recv(512):
                        pass
                self._reap()
            if self._end.fileno() in ready:
                alive = self._serve()
        deadline = time.monotonic() + END_LIMIT_S
        while (children := _children() or list(self._executors)) and time.monotonic() < deadline:
            for pid in children:
                kill_group(pid)
            self._reap()
            time.sleep(1e-3)
        if self._scratch_lock >= 0:
            assert self._setup is not None
            scratch.leave(self._setup.scratch, self._scratch_lock)

    def _serve(self) -> bool:
        """Read one request; whether there may be more."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, MESSAGE_BYTES_MAX, 5)
        except OSError:
            return False
        if not data:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # not for programs that user code starts
        request = _requests.decode(data)
        if isinstance(request, Setup):
            self._setup = request
            self._arena = descriptors[0]
            make_ready(request.preload)
            self._shadowed = shadowed(request.path[0], self._at_start) if request.path else []
            scratch.clean(request.scratch)
        elif isinstance(request, Fork):
            self._fork(request, descriptors)
        elif request.executor in self._pids:
            pid = self._pids[request.executor]
            if request.interrupt:
                os.kill(pid, CANCEL_SIGNAL)
            else:
                kill_group(pid)
        return True

    def _enter_scratch(self) -> str:
        """Make the directory for files, once; why it cannot be made, or nothing."""
        assert self._setup is not None
        if self._scratch_lock < 0:
            try:
                self._scratch_lock = scratch.enter(self._setup.scratch)
            except OSError as error:
                return str(error)
        return ""

    def _fork(self, request: Fork, descriptors: list[int]) -> None:
        problem = self._enter_scratch() if scratch.needs_files(request.environment) else ""
        pid = os.fork()
        if not pid:
            try:
                self._become_executor(request, descriptors, problem)
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        self._executors[pid] = request.executor
        self._pids[request.executor] = pid
        self._send(Forked(request.executor, pid))

    def _become_executor(self, request: Fork, descriptors: list[int], problem: str) -> NoReturn:
        """In the child: leave everything of the forkserver behind, then run user code.

        `problem`: why there can be no files for it.
        """
        setup = self._setup
        assert setup is not None
        name_process("mpi-rt-executor")
        parent = os.getppid()
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # srun sends it to all processes. A handler, not SIG_IGN: programs that a task starts begin with the default.
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for one in (self._end, self._wake, self._wake_end):
            one.close()
        if self._scratch_lock >= 0:
            os.close(self._scratch_lock)
        channel, tokens, cancels, output, error = descriptors
        os.dup2(output, 1)
        os.dup2(error, 2)
        os.close(output)
        os.close(error)
        for name in self._shadowed:
            del sys.modules[name]
        prepare(setup, request)
        from mpi_runtime.objects.arena import ClientArena
        from mpi_runtime.processes import executor
        from mpi_runtime.processes.client import Client

        end = socket.socket(fileno=channel)
        client = Client(end, ClientArena(self._arena), setup.regions, setup.inline_bytes_max)
        if not problem and scratch.needs_files(request.environment):
            problem = scratch.settle_in(
                client, setup.scratch, request.environment, lambda path: shadowed(path, self._at_start)
            )
        executor.limit_threads(request.threads)
        executor.main(client, tokens, cancels, setup, request, problem)
        leave()

    def _reap(self) -> None:
        """Tell how executors ended that have ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            number = self._executors.pop(ended.si_pid, None)
            if number is not None:
                kill_group(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            if number is not None:
                del self._pids[number]
                self._send(Exited(number, status))

    def _send(self, message: Forked | Exited) -> None:
        with contextlib.suppress(OSError):  # the agent is gone: noticed when reading
            self._end.send(msgspec.msgpack.encode(message))


def prepare(setup: Setup, request: Fork) -> None:
    """Give the process the environment that user code is to find."""
    os.environ.update(request.variables)
    # What the user states for a task is his own word, and goes before ours.
    os.environ.update({name: text for name, text in request.environment.items() if "=" not in name})
    os.environ["OMP_NUM_THREADS"] = str(request.threads)
    if request.cpus:
        with contextlib.suppress(OSError):  # processors that this rank was not given: it stays on its own
            os.sched_setaffinity(0, request.cpus)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # its agent's, which needs many
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, setup.descriptors), hard))
    with contextlib.suppress(OSError):  # a directory that this host does not have
        os.chdir(setup.directory)
    sys.path[:] = setup.path
    sys.argv[:] = setup.argv
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.enable()


def shadowed(directory: str, at_start: Container[str]) -> list[str]:
    """The modules that are loaded here, but that the program finds in its own directory under the same name.

    Executors forget them, so that an import in a task means what it means in the driver.
    """
    loaded = {name.partition(".")[0] for name in sys.modules}
    try:
        there = {name.partition(".")[0] for name in os.listdir(directory)}
    except OSError:
        return []
    hidden = set()
    for name in loaded & there - {"__main__", "mpi_runtime"}:
        spec = None if name in at_start else PathFinder.find_spec(name, [directory])
        if spec is not None and spec.origin not in (None, getattr(sys.modules.get(name), "__file__", None)):
            hidden.add(name)
    return [name for name in sys.modules if name.partition(".")[0] in hidden]


def leave() -> NoReturn:
    """End an executor as Python ends, without the forkserver's frames below."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that nothing outlives even kill -9."""
    PR_SET_PDEATHSIG = 1
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Have the kernel give this process the descendants whose parents end, instead of giving them to init."""
    PR_SET_CHILD_SUBREAPER = 36
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes  # not at the top: agents load this module too

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def _children() -> list[int]:
    """All children of this single-threaded process; none where the kernel was built without telling."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def kill_group(pid: int) -> None:
    """Kill a process and all of its group; before it has made its own group, only itself."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


class Handle(NamedTuple):
    """A forkserver as its agent has it."""

    socket: socket.socket
    wait: Callable[[], int]
    """Waits for its end; its exit code, or the number of the signal that ended it, negative."""

    def end(self) -> None:
        """End it: it kills all executors when our end closes."""
        self.socket.close()
        self.wait()


def start(environment: Mapping[str, str], path: Sequence[str]) -> Handle:
    """Start a forkserver in a new interpreter.

    Args:
        environment: of its executors.
        path: where it finds its modules.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    remember = "at_start = set(sys.modules); from mpi_runtime.processes.forkserver import main"
    code = f"{remember}; main({theirs.fileno()}, at_start)"
    # A launcher kills ranks by group; the forkserver has to live a little longer, to kill what executors started.
    process = start_python(code, [theirs.fileno()], environment, path, own_session=True)
    theirs.close()
    return Handle(ours, process.wait)


def fork(at_start: Container[str], preload: bool = True) -> Handle:
    """Start a forkserver as a copy of this process, which has done nothing yet: half the time of a new interpreter.

    Args:
        at_start: see `main`.
        preload: whether it loads what executors need at once, or when its agent has a first executor forked.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) != theirs.fileno():
                    with contextlib.suppress(OSError):  # the one that lists them
                        os.close(int(name))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # launchers may give all ranks their own
            os.closerange(3, theirs.fileno())
            sys.modules["__main__"] = types.ModuleType("__main__")  # not ours: it is to be the program's
            configuration.leave_launcher()
            main(theirs.detach(), at_start, preload)
        finally:
            os._exit(1)
    theirs.close()
    return Handle(ours, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def main(descriptor: int, at_start: Container[str], preload: bool = True) -> None:
    """Be the forkserver of the agent at the other end of this descriptor.

    Args:
        descriptor: a socket.
        at_start: names of the modules that Python loads before it looks into the directory of any program.
        preload: see `fork`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole foreground group; the driver decides
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what a batch system announces is for the driver
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agent's end decides
    name_process("mpi-rt-forksrv")
    if preload:
        make_ready()
    gc.disable()
    Forkserver(socket.socket(fileno=descriptor), at_start).run()
    os._exit(0)


def make_ready(more: Sequence[str] = ()) -> None:
    """Do what takes time before the first executor; what has been done already takes none."""
    adopt_orphans()
    _load([*PRELOADED, *more])


def _load(modules: Sequence[str]) -> None:
    """Import these, and keep what they have made out of the way of executors' garbage collections."""
    environment = configuration.environment()
    asked = {name: environment.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(asked, "1"))
    for name in modules:
        importlib.import_module(name)
    for name, value in asked.items():
        del os.environ[name]
        if value is not None:
            os.environ[name] = value
    gc.collect()
    gc.freeze()

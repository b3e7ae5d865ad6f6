"""The forkserver of an agent: started with the first executor or earlier, and again after it was killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.core.agent import leftovers
from mpi_runtime.core.executor import fork_messages, forkserver_handle, scratch
from mpi_runtime.core.executor.fork_messages import Exited, Request, Setup
from mpi_runtime.core.executor.forkserver_handle import Handle
from mpi_runtime.core.host import launchers, mpi_files
from mpi_runtime.core.transport.poller import Poller
from mpi_runtime.scheduler.protocol.rank_events import ExecutorStarted


class Forkservers:
    """Starts the forkservers of one job. The first may start before the job, because it takes longest to be ready."""

    def __init__(self, path: Sequence[str], early: Handle | None = None) -> None:
        """Start nothing yet. `path`: where forkservers find their modules; `early`: one that exists already.

        Executors do not get the variables by which a process is a rank of the launcher, nor those by which an mpirun
        of their own would start ranks on all nodes of the job.
        """
        self.path = path
        self._environment = launchers.on_one_host(launchers.child_environment(configuration.environment()))
        self._early = early

    def start_early(self) -> None:
        """Start the first one now."""
        with contextlib.suppress(OSError):  # the first call that needs it gets the error
            self._early = self.take()

    def take(self) -> Handle:
        """Return the first one, or a new one.

        Raises:
            OSError: the system allows no further process, or no further descriptor.
        """
        early, self._early = self._early, None
        return early or forkserver_handle.start(self._environment, self.path)

    def end(self) -> None:
        """End the first one, unless it was taken."""
        if self._early is not None:
            self._early.end()
            self._early = None


class ForkserverLine:
    """The forkserver of one agent, while there is one."""

    def __init__(
        self,
        poller: Poller,
        forkservers: Forkservers,
        setup: Setup,
        descriptors: list[int],
        on_message: Callable[[ExecutorStarted | Exited], None],
        on_lost: Callable[[int], None],
        pids: Callable[[], list[int]],
    ) -> None:
        """Start nothing yet. `setup`: the first request to each forkserver, with these descriptors.

        `on_lost` is called with the exit code of a forkserver that has ended. The kernel has killed its executors.
        `pids` returns the process ids of the executors.
        """
        self._poller = poller
        self._forkservers = forkservers
        self._setup = setup, descriptors
        self._heard = on_message
        self._lost = on_lost
        self._pids = pids
        self._handle: Handle | None = None
        self._has_forked = False

    def start(self) -> None:
        """Start the forkserver if there is none.

        Raises:
            OSError: the system allows no further process, or no further descriptor.
        """
        if self._handle is None:
            self._handle = self._forkservers.take()
            self._poller.add(self._handle.socket, self._on_message)
            self.ask(*self._setup)

    def ask(self, request: Request, descriptors: list[int]) -> None:
        """Send a request with these descriptors. Without a forkserver nothing happens."""
        if self._handle is not None:
            with contextlib.suppress(OSError):  # it has ended, which `_on_message` will notice
                fork_messages.ask(self._handle.socket, request, descriptors)

    def _on_message(self) -> None:
        assert self._handle is not None
        try:
            data = self._handle.socket.recv(fork_messages.MESSAGE_BYTES_MAX)
        except ConnectionError:
            data = b""
        if not data:
            self._lose()
            return
        message = _decoder.decode(data)
        if isinstance(message, ExecutorStarted) and not self._has_forked:
            self._has_forked = True
            leftovers.adopt()
        self._heard(message)

    def _lose(self) -> None:
        assert self._handle is not None
        handle, self._handle = self._handle, None
        self._poller.remove(handle.socket)
        code = handle.end()
        leftovers.kill_left(self._pids())
        self._remove_files()
        self._lost(code)

    def end(self) -> None:
        """End the forkserver. It kills all executors when our end of the socket closes."""
        if self._handle is not None:
            self._poller.remove(self._handle.socket)
            if self._handle.end():
                leftovers.kill_left(self._pids())
            self._handle = None
            self._remove_files()
        self._forkservers.end()

    def _remove_files(self) -> None:
        """Remove the files of the job, as the forkserver does unless it is killed."""
        mpi_files.sweep()
        scratch.leave(self._setup[0].scratch)


_decoder = msgspec.msgpack.Decoder(ExecutorStarted | Exited)

"""An agent's connection to its forkserver, which is started with the first executor, and again after it was killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mpi_runtime.executor import fork_messages, forkserver_handle, scratch
from mpi_runtime.executor.fork_messages import Exited, Forked, Request, Setup
from mpi_runtime.executor.forkserver_handle import Handle
from mpi_runtime.rank import leftovers
from mpi_runtime.rank.poller import Poller


class ForkserverLine:
    """The forkserver of one agent, while there is one."""

    def __init__(
        self,
        poller: Poller,
        environment: Mapping[str, str],
        path: Sequence[str],
        forked: Handle | None,
        heard: Callable[[Forked | Exited], None],
        lost: Callable[[int], None],
        pids: Callable[[], list[int]],
    ) -> None:
        """Start nothing yet.

        Args:
            poller: waits for messages of the forkserver.
            environment: of executors.
            path: the module path of the forkserver.
            forked: a forkserver that exists already, if any.
            heard: is called with each message of the forkserver.
            lost: is called with the exit code of a forkserver that has ended. The kernel has killed its executors.
            pids: returns the process ids of the executors.
        """
        self._poller = poller
        self._environment = environment
        self._path = path
        self._forked = forked
        self._heard = heard
        self._lost = lost
        self._pids = pids
        self._handle: Handle | None = None
        self._setup: tuple[Setup, list[int]] | None = None
        """The first request to each forkserver, and its descriptors."""
        self._has_forked = False

    def set_up(self, setup: Setup, descriptors: list[int]) -> None:
        """Tell this forkserver and all later ones what executors have in common."""
        self._setup = (setup, descriptors)
        self.ask(*self._setup)

    def start(self) -> None:
        """Start the forkserver if there is none.

        Raises:
            OSError: the system allows no further process, or no further descriptor.
        """
        if self._handle is not None:
            return
        self._handle = self._forked or forkserver_handle.start(self._environment, self._path)
        self._forked = None
        self._poller.add(self._handle.socket, self._on_message)
        if self._setup is not None:
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
        if isinstance(message, Forked) and not self._has_forked:
            self._has_forked = True
            leftovers.adopt()
        self._heard(message)

    def _lose(self) -> None:
        """Clean up after a forkserver that has ended. The kernel has killed its executors."""
        assert self._handle is not None
        handle, self._handle = self._handle, None
        self._poller.remove(handle.socket)
        code = handle.end()
        leftovers.kill_left(self._pids())
        self._leave_scratch()
        self._lost(code)

    def end(self) -> None:
        """End the forkserver. It kills all executors when our end of the socket closes."""
        if self._handle is not None:
            self._poller.remove(self._handle.socket)
            if self._handle.end():
                leftovers.kill_left(self._pids())
            self._handle = None
            self._leave_scratch()
        elif self._forked is not None:
            self._forked.end()
            self._forked = None

    def _leave_scratch(self) -> None:
        """Remove the files of the job, which the forkserver does itself unless it is killed."""
        if self._setup is not None:
            scratch.leave(self._setup[0].scratch)


_decoder = msgspec.msgpack.Decoder(Forked | Exited)

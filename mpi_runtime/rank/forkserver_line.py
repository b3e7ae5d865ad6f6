"""The line of an agent to its forkserver: started when the first executor is wanted, and again if it was killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mpi_runtime.executor import fork_messages, forkserver_handle, scratch
from mpi_runtime.executor.fork_messages import Exited, Fork, Forked, Kill, Setup
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
        """Give executors this environment; the forkserver finds its modules in `path`. `forked` is one that is there.

        `heard` is called with what it says, `lost` with its exit code when it was killed, and with it, by the kernel,
        all executors. `pids` are theirs.
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
        """What it is told first, and the descriptors that go with it."""
        self._has_forked = False

    def set_up(self, setup: Setup, descriptor: int) -> None:
        """Tell the forkserver, and each that follows it, what executors have in common."""
        self._setup = (setup, [descriptor])
        self.ask(*self._setup)

    def start(self) -> None:
        """Start it if there is none.

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

    def ask(self, request: Setup | Fork | Kill, descriptors: list[int]) -> None:
        """Have it do something, with these descriptors."""
        if self._handle is not None:
            with contextlib.suppress(OSError):  # it is gone, which we hear from `_on_message`
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
        """It was killed, and the kernel has killed the executors with it. The next one is forked by another."""
        assert self._handle is not None
        handle, self._handle = self._handle, None
        self._poller.remove(handle.socket)
        code = handle.end()
        leftovers.kill_left(self._pids())
        self._leave_scratch()
        self._lost(code)

    def end(self) -> None:
        """End it: it kills all executors when our end closes."""
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
        """The forkserver has removed the files of the job, unless it was killed."""
        if self._setup is not None:
            scratch.leave(self._setup[0].scratch)


_decoder = msgspec.msgpack.Decoder(Forked | Exited)

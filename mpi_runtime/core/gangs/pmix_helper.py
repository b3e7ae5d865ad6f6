"""The helper processes of a node, as its agent sees them: forked with the first gang, renewed after some hundreds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from typing import Protocol

import msgspec

from mpi_runtime.core.gangs import pmix_server
from mpi_runtime.core.gangs.library import Library
from mpi_runtime.core.gangs.pmix_messages import Collected, Forget, Found, Order, Register, Report, reports
from mpi_runtime.core.host.process_tree import describe_end
from mpi_runtime.core.transport.channel import Channel, ChannelClosedError, pair
from mpi_runtime.core.transport.poller import Poller

GANGS_MAX = 500
"""Gangs of one PMIx server. It keeps some kB of each for ever."""
WORDS_MAX = 1000

ForkIt = Callable[[str, str, int], None]
"""Has the forkserver fork a helper, with the arguments of its `main`: directory, library, descriptor."""


class Client(Protocol):
    """A gang of the helper."""

    def on_report(self, report: Report) -> None:
        """Take what the helper reports."""

    def on_helper_lost(self, problem: str) -> None:
        """Give up the start: nothing more is reported. `problem`: how the helper ended."""


class Helper:
    """A process with a PMIx server for the gangs of this node: a crash of that library ends it alone."""

    def __init__(
        self, poller: Poller, fork: ForkIt, above: str, library: str, on_found: Callable[[Library], None]
    ) -> None:
        """Have the process forked.

        Args:
            poller: waits for its reports.
            fork: has it forked. If that fails, the connection ends.
            above: the directory in which it gets one of its own.
            library: the path of the PMIx library; empty: it looks for it, and `on_found` is called.
            on_found: is called with the library.

        Raises:
            OSError: the system allows no further descriptor or directory.
        """
        self._poller, self._on_found = poller, on_found
        self.gangs: dict[str, Client] = {}
        self.total = 0
        """The gangs that it has had."""
        self.is_suspect = False
        """Whether members of a gang have ended without MPI_Finalize: its library may hang, or not hear the next ones.

        OpenPMIx 5.0.11, about once in 100 times that members were killed in MPI_Init: it waited for no byte of the next
        connection.
        """
        self.is_closed = False
        self._asked: dict[int, Client] = {}
        self._number = 0
        self._directory = tempfile.mkdtemp(prefix="pmix-", dir=above)
        ours, theirs = pair()
        with theirs:
            fork(self._directory, library, theirs.fileno())
        self._channel = Channel(ours)
        poller.add(self._channel, self._on_ready)

    def register(self, client: Client, order: Register) -> None:
        """Begin a gang."""
        self.gangs[order.name] = client
        self.total += 1
        self.send(order)

    def forget(self, name: str) -> None:
        """End a gang."""
        client = self.gangs.pop(name, None)
        self._asked = {number: one for number, one in self._asked.items() if one is not client}
        self.send(Forget(name))

    def number(self, client: Client) -> int:
        """Return a number for a `LookUp`, whose answer goes to this gang."""
        self._number += 1
        self._asked[self._number] = client
        return self._number

    def send(self, order: Order) -> None:
        """Have the helper do this. What comes of it arrives as reports."""
        self._poller.send(self._channel, msgspec.msgpack.encode(order))

    def look(self) -> None:
        """Read what it has reported by now."""
        if not self.is_closed:
            self._on_ready()

    def _on_ready(self) -> None:
        try:
            frames = self._channel.receive()
        except ChannelClosedError:
            self._on_lost()
            return
        for _, frame in frames:
            report = reports.decode(frame)
            if isinstance(report, Found):
                self._on_found(report.library)
                continue
            of = self._asked.pop(report.number, None) if isinstance(report, Collected) else self.gangs.get(report.name)
            if of is not None:
                of.on_report(report)

    def _on_lost(self) -> None:
        gangs, self.gangs = list(self.gangs.values()), {}
        problem = f"the helper process with the PMIx server of this host {self._how_it_ended()}{self._last_words()}"
        self.close()
        self._on_found(Library(problem=problem))
        for client in gangs:
            client.on_helper_lost(problem)

    def _how_it_ended(self) -> str:
        try:
            with open(f"{self._directory}/{pmix_server.STATUS}") as file:
                status = int(file.read())
        except (OSError, ValueError):  # the forkserver has ended too, or the disk is full
            return "has ended: it was killed, or crashed"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return f"has ended: its library took longer than {pmix_server.CALL_LIMIT_S:.0f} s"
        return describe_end(status)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), open(f"{self._directory}/{pmix_server.ERRORS}", errors="replace") as file:
            if lines := file.read()[-WORDS_MAX:].strip().splitlines():
                return ". Its last lines: " + " | ".join(lines[-3:])
        return ""

    def close(self) -> None:
        """Have the process end, as it does without its connection, and remove its files."""
        if not self.is_closed:
            self.is_closed = True
            self._poller.remove(self._channel)
            self._channel.close()
            shutil.rmtree(self._directory, ignore_errors=True)

"""Connecting to a session: makes this program one of its drivers.

On the host of the session the memory for values is shared: the head sends its descriptor. One on another host is
reached by ssh or srun (`far.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.config import Config
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.connection import SHUT_DOWN
from mpi_runtime.core.client.scope import Inherited, Scope
from mpi_runtime.core.driver.addresses import Found
from mpi_runtime.core.driver.head_handle import END_LIMIT_S, working_directory
from mpi_runtime.core.executor.driver_mark import Home, mark
from mpi_runtime.core.host.spawn import COSTLY, PRELOADED_IF_USED
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport.channel import SOCKET_BYTES
from mpi_runtime.core.transport.hello import LENGTH_BYTES, Hello, ways
from mpi_runtime.core.transport.messages import Shutdown, Welcome, text_to_bytes
from mpi_runtime.core.transport.start import read_welcome
from mpi_runtime.errors import HeadDiedError, SessionEndedError
from mpi_runtime.files import session_files
from mpi_runtime.scheduler.protocol.events import Released

if TYPE_CHECKING:
    from mpi_runtime.core.client.far_arena import FarArena

OF_CONNECTION = (
    *("namespace", "log_to_driver", "start_timeout_s", "quiet", "waiting_line_s", "ignore_unhandled_errors"),
    "reconnect_s",
)
"""The arguments of `init()` that a program may state although the session runs already."""
TRACES_S = 3.0
"""Seconds until a session that has ended is seen to have, after the end of a connection."""
LOOK_S = 0.05


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of `init()` that are those of a session.

    Raises:
        ValueError: one is stated.
    """
    for name, value in arguments.items():
        if value is not None and name in Config.__struct_fields__ and name not in OF_CONNECTION:
            raise ValueError(
                f"When connecting to an existing cluster, {name} must not be provided: the session runs already. State "
                "it when the session starts, or omit the address (and the variables MPI_RUNTIME_ADDRESS and "
                "RAY_ADDRESS) for a job of this program's own."
            )
    if configuration.environment().get(configuration.JOURNAL):
        raise ValueError(
            f"A program that connects to a session has no journal, and the variable {configuration.JOURNAL} names one: "
            "unset it."
        )


class Connection:
    """This program as a driver of a session, from `init()` to `shutdown()`."""

    listener = None
    """Its log lines are not records of `logging`: the head writes them."""

    def __init__(self, found: Found, config: Config) -> None:
        """Connect.

        Raises:
            ConnectionError: the session refuses this program, or does not answer.
        """
        self.config = config
        self.name = found.session.name
        self._found = found
        self._arena = -1
        self._is_far = found.end is None
        self._words = -1
        """Where the process of the line leaves why it was lost; -1: this program is on the session's host."""
        if found.end is not None:
            self._socket = found.end
        else:
            from mpi_runtime.core.driver import far  # not at the top: near drivers do not need it

            self._socket, self._words = far.dialled(found.path, found.session, config)
        try:
            # A line leads to the session already: its secret crosses no network.
            welcome = self._introduce(found.session.secret if found.end is not None else "")
            if welcome.problem:
                raise ConnectionError(welcome.problem)
        except BaseException:
            self._close()
            raise
        arena: ClientArena | FarArena
        far_arena = None
        if self._arena >= 0:
            arena = ClientArena(self._arena)
        else:
            from mpi_runtime.core.client.far_arena import FarArena  # not at the top, as above

            arena = far_arena = FarArena(welcome.store_bytes, welcome.files)
        number = welcome.driver
        namespace = config.namespace or os.urandom(16).hex()
        inherited = Inherited(namespace, mark(number, _home(namespace)))
        self.client = Client(
            self._socket,
            arena,
            welcome.regions,
            welcome.inline_bytes_max,
            inherited=inherited,
            scope=Scope(b"driver", number),
            log_after_s=0.0 if config.quiet else config.waiting_line_s,
            why_lost=self._why_lost,
        )
        self.client.number = number
        if far_arena is not None:
            far_arena.attach(self.client.questions)

    def _introduce(self, secret: str) -> Welcome:
        """Send the `Hello`, and return the answer."""
        config, end = self.config, self._socket
        program = os.path.basename(sys.argv[0]) or "python"
        if self._is_far:  # else its process id would look like one of the session's host
            program += f" on {os.uname().nodename}"
        hello = Hello(
            secret=secret, ways=ways(), pid=os.getpid(), program=program.encode(errors="replace").decode(),
            log_to_driver=config.log_to_driver,
        )  # fmt: skip
        data = msgspec.msgpack.encode(hello)
        streams, opened = _streams()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        end.settimeout(config.start_timeout_s)
        try:
            socket.send_fds(end, [len(data).to_bytes(LENGTH_BYTES, "little") + data], streams)
            welcome, self._arena = read_welcome(end)
        except TimeoutError:
            text = f"the session {self.name!r} has not answered in {config.start_timeout_s:g} s (start_timeout_s)"
            why = "ssh or srun waits for its host" if self._is_far else "its head is very busy, or stopped"
            raise ConnectionError(f"{text}: {why}") from None
        except OSError as error:
            text = f"the session {self.name!r} has closed the connection ({error})"
            raise ConnectionError(f"{text}: it ends, or too many programs connect at this time") from error
        finally:
            for stream in opened:
                os.close(stream)
        end.settimeout(None)
        return welcome

    def _why_lost(self) -> HeadDiedError:
        """Return the error for the end of the connection."""
        found, name = self._found, self.name
        output = session_files.output_of(found.path, found.session)
        lost = ""
        if self._words >= 0:
            from mpi_runtime.core.driver import far  # not at the top, as above

            lost = far.why_lost(self._words)
        if why := _why_ended(found, 0.0 if lost else TRACES_S):
            return SessionEndedError(
                f"The session {name!r} has ended: {why}. Its output is in {output}. The program may save its work, and "
                "connect to another session."
            )
        if lost:
            return HeadDiedError(
                f"The line to the session {name!r} on {found.session.host} is lost: {lost}. What belonged to this "
                "program ends there; detached actors stay. The program may save its work, and connect again."
            )
        return HeadDiedError(
            f"The session {name!r} has closed the connection of this program: it has refused this program, or nothing "
            "can be seen of its end. `mpi-runtime session list` shows whether it runs, and its output is in "
            f"{output}. The program may save its work, and connect again."
        )

    def end(self) -> None:
        """Leave the session: what belongs to this program ends. Arrays in shared memory stay valid."""
        client = self.client
        with contextlib.suppress(HeadDiedError, OSError):
            if current.report_values is not None:
                current.report_values(client)
            client.outbox.send_local(Shutdown())
            client.line.read_to_end(END_LIMIT_S)
        client.has_ended = True
        client.line.end()
        if client.line.closed == SHUT_DOWN and self._release():
            client.outbox.on_quiet = self._close_if_unused
        else:
            self.client.close()
            self._close()

    def _release(self) -> bool:
        """Release all objects but those of arrays that the program still has. Return whether there are any.

        Their connection stays open, and the outbox releases each with its last array.
        """
        references, outbox = self.client.references, self.client.outbox
        with outbox.interrupts, outbox.lock:
            outbox.flush_or(lambda: None)
            if not references.views:
                return False
            ids = [id for id in references.counts if id not in references.views]
            for id in ids:
                references.counts[id] += 1  # never released again
            outbox.post(Released(ids))
        return True

    def _close_if_unused(self) -> None:
        """Close a connection that was kept for arrays when they are gone."""
        if not self.client.references.views:
            self.client.close()
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        if self._arena >= 0:
            with contextlib.suppress(OSError):  # the program has closed all descriptors
                os.close(self._arena)
            self._arena = -1
        if self._words >= 0:
            with contextlib.suppress(OSError):
                os.close(self._words)
            self._words = -1


def _why_ended(found: Found, limit_s: float) -> str:
    """Return why a session has ended; empty: it is not known to have ended. Waits as long for its traces."""
    path, session = found.path, found.session
    until_s = time.monotonic() + limit_s
    while True:
        if why := session_files.end_of(path, session):
            return why
        if session_files.is_dead(session):
            return "its keeper, or its host, was killed"
        if time.monotonic() > until_s:
            break
        time.sleep(LOOK_S)
    if session.job:
        from mpi_runtime.core.driver import session_jobs  # not at the top: others need no batch system

        job = session_jobs.status(path, session)
        if job is not None and job.state not in ("RUNNING", "PENDING"):
            return f"its batch job {session.job} is {job.state}{f' ({job.reason})' if job.reason else ''}"
    return ""


def _home(namespace: str) -> Home:
    directory = working_directory()
    path = [os.path.join(directory, entry) for entry in sys.path]
    imports = [name for name in PRELOADED_IF_USED if name in sys.modules and name not in COSTLY]
    where = text_to_bytes(directory), [*map(text_to_bytes, path)], [*map(text_to_bytes, sys.argv)]
    return Home(*where, namespace, imports)


def _streams() -> tuple[list[int], list[int]]:
    """Return the descriptors of standard output and error, and those of them that were opened here: nobody reads."""
    opened = []
    streams = []
    for stream in (1, 2):
        try:
            os.fstat(stream)
        except OSError:
            stream = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            opened.append(stream)
        streams.append(stream)
    return streams, opened

"""This program as a driver of a session on another host: starts the process that reaches it, in place of a head."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.config import Config
from mpi_runtime.core.host.spawn import library_path, start_python
from mpi_runtime.core.lines.commands import ways_to
from mpi_runtime.core.lines.dialler import Task
from mpi_runtime.core.transport import channel
from mpi_runtime.files.session_files import Session


def dialled(path: Path, session: Session, config: Config) -> socket.socket:
    """Return a socket that behaves as one from the door of a session on another host: what goes wrong comes by it.

    Raises:
        ConnectionError: there is neither ssh nor srun here.
    """
    ways = ways_to(session, path.absolute(), sys.executable)
    if not ways:
        raise ConnectionError(
            f"init('session:{session.name}'): the session runs on {session.host}, and neither ssh nor srun is in the "
            "PATH of this program"
        )
    task = Task(ways, session.name, session.host, os.getpid(), config.reconnect_s, config.quiet)
    ours, theirs = channel.pair()
    text = msgspec.json.encode(task).decode()
    with theirs:
        process = start_python(
            f"from mpi_runtime.core.lines.dialler import main; main({theirs.fileno()}, {text!r})",
            [theirs.fileno()], configuration.environment(), library_path(), own_session=True,
        )  # fmt: skip
    # It ends when this program has closed its socket, or has ended.
    threading.Thread(target=_reap, args=(process,), name="mpi_runtime line", daemon=True).start()
    return ours


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.wait()

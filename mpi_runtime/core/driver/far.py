"""This program as a driver of a session on another host: starts the process that reaches it, in place of a head."""

from __future__ import annotations

import contextlib
import os
import select
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
from mpi_runtime.files import session_files
from mpi_runtime.files.session_files import Session

WORDS_LIMIT_S = 3.0
"""Seconds for the words of a dialler that has closed the connection of its program."""


def dialled(path: Path, session: Session, config: Config) -> tuple[socket.socket, int]:
    """Reach a session on another host.

    Return a socket that behaves as one from the door of a session: what goes wrong comes by it. And a pipe for
    `why_lost`, which the caller closes.

    Raises:
        ConnectionError: there is neither ssh nor srun here.
    """
    ways = ways_to(session, path.absolute(), sys.executable)
    if not ways:
        raise ConnectionError(
            f"init('session:{session.name}'): the session runs on {session.host}, and neither ssh nor srun is in the "
            "PATH of this program"
        )
    files = str(session_files.new_directory_of(path.absolute()))
    task = Task(ways, session.name, session.host, os.getpid(), config.reconnect_s, config.quiet, files)
    ours, theirs = channel.pair()
    text = msgspec.json.encode(task).decode()
    words, out = os.pipe2(os.O_CLOEXEC)
    with theirs:
        try:
            process = start_python(
                f"from mpi_runtime.core.lines.dialler import main; main({theirs.fileno()}, {out}, {text!r})",
                [theirs.fileno(), out], configuration.environment(), library_path(), own_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(words)
            ours.close()
            raise
        finally:
            os.close(out)
    # It ends when this program has closed its socket, or has ended.
    threading.Thread(target=_reap, args=(process,), name="mpi_runtime line", daemon=True).start()
    return ours, words


def why_lost(words: int) -> str:
    """Return why the line was lost for good; empty: the session has ended it. Call it when the connection has ended."""
    waits = select.poll()  # not `select`, which takes no descriptors above 1023
    waits.register(words, select.POLLIN)
    if not waits.poll(WORDS_LIMIT_S * 1000):
        return ""
    data = os.read(words, select.PIPE_BUF)
    if not data:
        return "the process `mpi-runtime line` beside this program was killed"
    return data.decode(errors="replace").strip()


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.wait()

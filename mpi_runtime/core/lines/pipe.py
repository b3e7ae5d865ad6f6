"""The verb `session pipe`, which a dialler starts on the host of rank 0 by ssh or srun.

It hands its standard input and output to an attendant in the keeper, and lives as long as these are used: when it ends,
so does the line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime.core.lines.end import address_of
from mpi_runtime.core.transport.local import reached
from mpi_runtime.errors import LaunchError
from mpi_runtime.files import session_files

GONE = 3
"""The exit code if the session has ended: no later line can reach it."""


def pipe(words: Sequence[str]) -> int:
    """Be the end of a line on the host of the session, and return the exit code."""
    parser = argparse.ArgumentParser(prog="mpi-runtime session pipe", description="Used by programs on other hosts.")
    parser.add_argument("--file", type=Path, required=True, metavar="FILE", help="the session file")
    options = parser.parse_args(words)
    try:
        found = session_files.read(options.file)
    except FileNotFoundError:
        return _failed(f"the session has ended: there is no {options.file} on {os.uname().nodename}", GONE)
    except OSError as error:
        return _failed(f"the session file {options.file} cannot be read: {error.strerror}")
    except LaunchError as error:
        return _failed(str(error))
    try:
        end = reached(address_of(found.secret))
    except OSError:
        here = os.uname().nodename
        if found.host != here:
            return _failed(f"the session {found.name!r} runs on {found.host}, and this host is {here}")
        if session_files.is_dead(found):
            return _failed(f"the session {found.name!r} was killed", GONE)
        return _failed(f"the session {found.name!r} does not listen on {here}: it starts, or runs in a container")
    except LaunchError as error:
        return _failed(str(error))
    secret = found.secret.encode()
    with end:
        end.settimeout(None)
        socket.send_fds(end, [len(secret).to_bytes(2, "little") + secret], [0, 1])
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nowhere, stream)
        with contextlib.suppress(OSError):
            while end.recv(1):
                pass
    return 0


def _failed(text: str, code: int = 1) -> int:
    print(f"mpi_runtime: {text}", file=sys.stderr, flush=True)
    return code

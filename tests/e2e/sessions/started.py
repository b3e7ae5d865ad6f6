"""Sessions for tests: started and stopped by the command, in a directory of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_runtime.files import session_files
from tests.helpers import HANG_S, Completed, Program, start_command, start_program, wait_until

NAME = "s"
CONNECT = f"import mpi_runtime as ray\nray.init('session:{NAME}', quiet=True, namespace='tests')\n"
"""The first lines of a program."""


def command(state: Path, *words: str) -> Program:
    """Start `mpi-runtime session ...` with this directory of state."""
    return start_command([sys.executable, "-m", "mpi_runtime", "session", *words], env={"XDG_STATE_HOME": str(state)})


def said(state: Path, *words: str) -> Completed:
    """Run `mpi-runtime session ...` to its end."""
    with command(state, *words) as program:
        return program.finish()


@contextmanager
def session(state: Path, *words: str, name: str = NAME) -> Iterator[Program]:
    """A session, with these options of `start`. Yields the program that has started it: all its processes are of it."""
    with command(state, "start", "--name", name, *words) as program:
        assert program.process.wait(HANG_S) == 0, program.stderr
        yield program
        if content(state, name) is not None:
            assert said(state, "stop", name).returncode == 0


def content(state: Path, name: str = NAME) -> session_files.Session | None:
    """The session file; None: it is gone."""
    found = list(state.glob(f"mpi_runtime/sessions/*/{name}.json"))
    return session_files.read(found[0]) if found else None


def log(state: Path, name: str = NAME) -> str:
    """The output of the session itself."""
    (path,) = state.glob(f"mpi_runtime/sessions/*/{name}.log")
    return path.read_text()


def driver(state: Path, source: str, *args: str, connects: bool = True, cwd: Path | None = None) -> Program:
    """Start a program that connects."""
    text = (CONNECT if connects else "") + source
    return start_program(text, *args, env={"XDG_STATE_HOME": str(state)}, cwd=cwd)


def drivers_left(state: Path, count: int, name: str = NAME) -> None:
    """Wait until this number of drivers have left."""
    wait_until(lambda: log(state, name).count("has left") >= count, what=f"{count} drivers to leave")

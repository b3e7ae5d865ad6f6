"""The verbs `session run` and `session logs`: a program on the host of a session, and the output of the session itself.

An actor of the session starts the program, so that it lives on when the line to this process breaks: Slurm ends what
it has started for `srun`, and `sshd` may do the same. The actor is detached, and ends after the program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_runtime import config as configuration
from mpi_runtime.cli.run import python_command
from mpi_runtime.errors import HeadDiedError, LaunchError, MpiRuntimeError
from mpi_runtime.files import private, session_files
from mpi_runtime.files.session_files import Session

if TYPE_CHECKING:
    from mpi_runtime.actor import ActorHandle

LINES = 20
PART_BYTES = 1 << 16
READ_S = 1.0
"""The longest wait for output, in one call."""
LOOK_S = 0.1
UNREAD_S = 10.0
"""Seconds that the end of a program waits to be read. Then nobody is there any more."""
_NAMESPACE = "mpi_runtime session run"


class Program:
    """A program on the host of the session: the class of an actor."""

    def __init__(self, command: list[str], address: str, output: str) -> None:
        from mpi_runtime import get_runtime_context  # not at the top: other verbs start no job

        self._output = output
        env = {**configuration.environment(), configuration.ADDRESS: address}
        env[configuration.COMMAND_OF] = str(os.getpid())  # it ends with this process
        with open(private.create_file(output), "wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env, start_new_session=True
            )
        self._is_read = threading.Event()
        # Not a call of who has made it: that may be gone before the call begins.
        own = get_runtime_context().current_actor
        threading.Thread(target=self._live, args=(own,), daemon=True).start()

    def _live(self, own: ActorHandle) -> None:
        """End this actor after the program, if nobody reads the end."""
        from mpi_runtime import kill  # not at the top, as above

        code = self._process.wait()
        if not self._is_read.wait(UNREAD_S):
            with open(self._output, "a") as file:
                print(f"mpi-runtime session run: the program has ended with {code}", file=file)
            kill(own)

    def read(self, begin: int) -> tuple[bytes, int | None]:
        """Return the output from this byte on, and the exit code; None: it runs. Waits a while for either."""
        until_s = time.monotonic() + READ_S
        while True:
            code = self._process.poll()
            with open(self._output, "rb") as file:
                file.seek(begin)
                data = file.read(PART_BYTES)
            if data or code is not None or time.monotonic() > until_s:
                return data, code
            time.sleep(LOOK_S / 2)

    def signal(self, number: int) -> None:
        """Send a signal to the program and those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def was_read(self) -> None:
        """Note that the end was read."""
        self._is_read.set()


def chosen(name: str) -> tuple[Path, Session]:
    """Return the session of this name on this host, or else anywhere.

    Raises:
        LaunchError: no session has this name.
    """
    found = session_files.all_of(name)
    if not found:
        raise LaunchError(f"there is no session {name!r}: `mpi-runtime session list` shows all")
    here = [one for one in found if one[1].host == os.uname().nodename]
    return (here or found)[0]


def run_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime session run`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime session run",
        usage="mpi-runtime session run NAME (app.py | -m module | -c code) [arguments]",
        description="Run a program as a driver of a session, on the host of its rank 0, and show its output. It lives "
        "on when this command is killed or its line breaks; Ctrl-C reaches it.",
    )
    parser.add_argument("name", metavar="NAME", help="the name of the session")
    return parser


def run(words: Sequence[str]) -> int:
    """Run a program in a session, and return its exit code."""
    options, program = run_parser().parse_args(words[:1]), list(words[1:])
    command = python_command(program)
    path, found = chosen(options.name)
    from mpi_runtime import get_runtime_context, init, kill, remote, shutdown  # not at the top: others start no job
    from mpi_runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    output = path.with_name(f"{found.name}.run-{os.urandom(4).hex()}.out")
    try:
        init(f"session:{found.name}", namespace=_NAMESPACE, quiet=True, log_to_driver=False)
    except ConnectionError as error:
        raise LaunchError(str(error)) from error
    try:
        here = NodeAffinitySchedulingStrategy(get_runtime_context().get_node_id(), soft=False)
        options_of_actor = {"num_cpus": 0, "lifetime": "detached", "name": output.name, "max_concurrency": 8}
        actor = remote(Program).options(**options_of_actor, scheduling_strategy=here)
        started = actor.remote(command, f"session:{found.name}", str(output))
        print(f"mpi-runtime session run: the output is also in {output}", file=sys.stderr, flush=True)
        code = _follow(started)
        kill(started)
        return code
    except HeadDiedError as error:
        print(f"mpi-runtime session run: {error}", file=sys.stderr)
        return 1
    except MpiRuntimeError as error:
        raise LaunchError(str(error)) from error
    finally:
        shutdown()


def _follow(program: ActorHandle) -> int:
    """Show the output of a program until it ends, and return its exit code."""
    from mpi_runtime import get  # not at the top, as above

    begin, code = 0, None
    while True:
        try:
            data, code = get(program.read.remote(begin))
            begin += len(data)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            program.signal.remote(signal.SIGINT)
            continue
        if code is not None and not data:
            get(program.was_read.remote())
            return 128 - code if code < 0 else int(code)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `session logs`."""
    parser.add_argument("-n", "--lines", type=int, default=LINES, metavar="N", help=f"how many; default: {LINES}")
    parser.add_argument("-f", "--follow", action="store_true", help="and new lines, until the session ends")


def logs(options: argparse.Namespace) -> int:
    """Print the last lines of the output of a session itself."""
    path, found = chosen(options.name)
    output = session_files.output_of(path, found)
    try:
        with open(output, errors="replace") as file:
            print("".join(file.readlines()[-options.lines :] if options.lines > 0 else []), end="", flush=True)
            while options.follow and _is_there(path, found):
                print(file.read(), end="", flush=True)
                time.sleep(LOOK_S)
            print(file.read() if options.follow else "", end="", flush=True)
    except FileNotFoundError:
        raise LaunchError(f"the session {found.name!r} has no output yet: {output} is not there") from None
    return 0


def _is_there(path: Path, found: Session) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return session_files.read(path).secret == found.secret
    return False

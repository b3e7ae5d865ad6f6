"""The verb `session`: jobs that outlive the programs that use them.

`start` makes the session file and launches `keep` as the program of rank 0: the keeper. It runs no code of users, and
ends the job when it gets a signal. Under a launcher of several ranks, `start` itself becomes the keeper.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from mpi_runtime import config as configuration
from mpi_runtime.cli.running_job import in_lines
from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting
from mpi_runtime.core.host.launch import detect
from mpi_runtime.core.transport.hello import address_of
from mpi_runtime.errors import HeadDiedError, LaunchError
from mpi_runtime.files import private, session_files
from mpi_runtime.files.session_files import Session
from mpi_runtime.show.tables import aligned

DEFAULT = "default"
LOOK_S = 0.05
STOP_LIMIT_S = 60.0
"""Seconds in which a session must end after `stop`: executors are killed, and free their memory."""
LOG_LINES = 20
"""The last lines of the output of a session that did not start."""
_LATER = {
    "run": "start the program itself on the host of the session, with the variable MPI_RUNTIME_ADDRESS=session:NAME",
    "logs": "`mpi-runtime session status NAME` names the file with the output",
}
_OF_BATCH = ("-N", "--nodes", "--time", "--gpus-per-node", "--idle")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def session(words: Sequence[str]) -> int:
    """Run a verb below `session`, and return the exit code."""
    if words and words[0] == "pipe":
        from mpi_runtime.core.lines.pipe import pipe  # not at the top: people do not use it

        return pipe(words[1:])
    if words and words[0] in _LATER:
        raise LaunchError(f"there is no `session {words[0]}` yet: {_LATER[words[0]]}")
    options, rest = session_parser().parse_known_args(words)
    if options.verb == "start":
        for word in rest:
            if word.partition("=")[0] in _OF_BATCH:
                raise LaunchError(
                    f"{word}: `session start` submits no batch job yet. Start the session inside an allocation: "
                    "`salloc -N 4 mpi-runtime session start -n 8`"
                )
    if rest:
        session_parser().error(f"unrecognized arguments: {' '.join(rest)}")
    action = {"start": start, "keep": keep, "list": list_, "status": status, "stop": stop}[options.verb]
    return action(options)


def session_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime session`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime session",
        description="Jobs that outlive the programs that use them: init('session:NAME') connects to one.",
    )
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    about = "start a session on this host or inside an allocation; under mpirun this process keeps it"
    one = choices.add_parser("start", help=about, description=f"{about.capitalize()}.")
    one.add_argument("--name", default=DEFAULT, metavar="NAME", help=f"its name; default: {DEFAULT}")
    one.add_argument(
        "-n", "--ranks", type=int, default=1, metavar="N",
        help="number of ranks; 1, the default, needs no MPI and uses only this host",
    )  # fmt: skip
    one.add_argument("--mpi", choices=("openmpi", "mpich", "intel"), help="use the launcher of this MPI")
    one.add_argument("--hosts", metavar="A[:RANKS],B...", help="start the ranks on these hosts (by ssh)")
    _add_config(one)
    about = "show the sessions of this user"
    choices.add_parser("list", help=about, description=f"{about.capitalize()}.")
    for verb, about in (("status", "show what runs in a session"), ("stop", "end a session, with all that runs in it")):
        one = choices.add_parser(verb, help=about, description=f"{about.capitalize()}.")
        one.add_argument("name", nargs="?", default=DEFAULT, metavar="NAME", help=f"its name; default: {DEFAULT}")
    about = "be the program of rank 0 of a session; `start` starts this"
    one = choices.add_parser("keep", help=about, description=f"{about.capitalize()}.")
    one.add_argument("--file", type=Path, required=True, metavar="FILE", help="the session file")
    _add_config(one)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-cpus", type=float, metavar="N", help="CPUs of each node; default: those that are found")
    parser.add_argument("--num-gpus", type=float, metavar="N", help="GPUs of each node; default: those that are found")
    parser.add_argument("--object-store-memory", type=float, metavar="BYTES", help="memory for values on each host")


def start(options: argparse.Namespace) -> int:
    """Start a session, and wait until programs can connect."""
    launch = detect(configuration.environment())
    if launch.problem:
        raise LaunchError(launch.problem)
    if launch.rank:
        _be_worker()
    _check_journal()
    path = session_files.path_of(options.name)
    made = _made(path)
    if launch.size != 1:
        return _keep(path, made, options)
    command = [sys.executable, "-m", "mpi_runtime", "run", "-n", str(options.ranks)]
    for name in ("mpi", "hosts"):
        command += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    command += ["-m", "mpi_runtime", "session", "keep", "--file", str(path), *_config_words(options)]
    try:
        return _started(path, made, command)
    except BaseException:
        session_files.forget(path, made)
        raise


def _check_journal() -> None:
    name = configuration.JOURNAL
    if configuration.environment().get(name):
        raise LaunchError(f"a session has no journal, and the variable {name} names one: unset it")


def _config_words(options: argparse.Namespace) -> list[str]:
    names = ("num_cpus", "num_gpus", "object_store_memory")
    stated = [(name, getattr(options, name)) for name in names if getattr(options, name) is not None]
    return [f"--{name.replace('_', '-')}={value:.17g}" for name, value in stated]


def _made(path: Path) -> Session:
    """Make the file of a new session. That of a session that was killed is replaced."""
    while True:
        try:
            return session_files.new(path)
        except FileExistsError:
            pass
        except OSError as error:
            raise LaunchError(f"{path} cannot be made: {error.strerror or error}") from error
        with contextlib.suppress(FileNotFoundError):
            found = session_files.read(path)
            if not session_files.is_dead(found):
                raise LaunchError(
                    f"the session {found.name!r} exists: {_in_words(found)}. Choose another name with --name, or end "
                    f"that one: mpi-runtime session stop {found.name}"
                )
            session_files.forget(path, found)


def _started(path: Path, made: Session, command: list[str]) -> int:
    """Start the keeper in the background, and wait for it."""
    log = session_files.log_of(path)
    with contextlib.suppress(FileNotFoundError):
        log.unlink()
    ours = configuration.with_addresses()
    env = {name: text for name, text in configuration.environment().items() if name not in ours}
    with open(private.create_file(log), "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
        )
    try:
        while (found := _read(path, made)) is None or not found.is_open:
            if found is None:  # the keeper has failed, or was stopped
                process.wait(STOP_LIMIT_S)
            if process.poll() is not None:
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                raise LaunchError("\n".join(["the session has not started. Its output:", *lines]))
            time.sleep(LOOK_S)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    print(
        f"The session {found.name!r} runs on {found.host}, and its output goes to {log}.\n"
        f"  in programs on this host: init('session:{found.name}')\n"
        f"  to end it: mpi-runtime session stop {found.name}"
    )
    process.returncode = 0  # it runs on, and is not waited for
    return 0


def _read(path: Path, made: Session) -> Session | None:
    """Return the present content of a session file; None: it is gone."""
    try:
        found = session_files.read(path)
    except FileNotFoundError:
        return None
    if found.secret != made.secret:
        raise LaunchError("the session was replaced by another of this name while it started")
    return found


def keep(options: argparse.Namespace) -> int:
    """Be the program of rank 0; on other ranks, a worker."""
    if detect(configuration.environment()).rank:
        _be_worker()
    path = options.file
    return _keep(path, session_files.read(path), options)


def _be_worker() -> None:
    from mpi_runtime.core.driver.session import work  # not at the top: other verbs start no job

    work(set(sys.modules))


def _keep(path: Path, made: Session, options: argparse.Namespace) -> int:
    """Run the job of a session until a signal ends it."""
    from mpi_runtime.core.driver import session as driver  # not at the top, as above

    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in _SIGNALS:
        signal.signal(number, stop)
    memory = options.object_store_memory
    try:
        _check_journal()
        for name in configuration.with_addresses():
            configuration.own_environment().pop(name, None)
        config = configuration.from_init(
            num_cpus=options.num_cpus, num_gpus=options.num_gpus,
            object_store_memory=int(memory) if memory is not None else None,
        )  # fmt: skip
        with driver.changing:
            driver.start_job(config, made.secret)
        if _read(path, made) is None:
            raise LaunchError("the session was stopped while it started")
        session_files.opened(path, made)
        stopped.wait()
    except (TypeError, ValueError) as error:
        raise LaunchError(str(error)) from error
    except HeadDiedError as error:
        print(f"mpi-runtime session: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        session_files.forget(path, made)
        driver.stop()
    return 0


def list_(_: argparse.Namespace) -> int:
    """Print the sessions of this user."""
    rows = [
        (one.name, one.host, str(one.pid), time.strftime("%Y-%m-%d %H:%M", time.localtime(one.begun_s)), _state(one))
        for _, one in session_files.all_of()
    ]
    if not rows:
        print("no sessions: `mpi-runtime session start` starts one")
        return 0
    print("\n".join(aligned([("NAME", "HOST", "PID", "BEGAN", "STATE"), *rows])))
    return 0


def _state(found: Session) -> str:
    """Return the state of a session in a word or two."""
    if found.is_open:
        try:
            inspecting.reached(address_of(found.secret)).close()
            return "running"
        except TimeoutError:
            return "does not answer"
        except (OSError, LaunchError):
            pass
    if session_files.is_dead(found):
        return "killed"
    if found.host != os.uname().nodename:
        return "not seen from here"
    return "not reachable" if found.is_open else "starting"


def _in_words(found: Session) -> str:
    return f"on {found.host}, pid {found.pid}, {_state(found)}"


def _chosen(name: str) -> tuple[Path, Session]:
    """Return the session of this name on this host, or else anywhere."""
    found = session_files.all_of(name)
    if not found:
        raise LaunchError(f"there is no session {name!r}: `mpi-runtime session list` shows all")
    here = [one for one in found if one[1].host == os.uname().nodename]
    return (here or found)[0]


def _check_is_here(found: Session) -> None:
    if found.host != os.uname().nodename:
        raise LaunchError(f"the session {found.name!r} runs on {found.host}: give the command there")


def status(options: argparse.Namespace) -> int:
    """Print what runs in a session."""
    path, found = _chosen(options.name)
    print(f"session {found.name!r} {_in_words(found)}; its output: {session_files.log_of(path)}")
    if _state(found) != "running":
        return 1
    print("\n".join(in_lines(Watching(found.pid).facts)[1:]))
    return 0


def stop(options: argparse.Namespace) -> int:
    """End a session, and wait until it has ended."""
    path, found = _chosen(options.name)
    if session_files.is_dead(found):
        session_files.forget(path, found)
        print(f"The session {found.name!r} was killed before; its file is removed.")
        return 0
    _check_is_here(found)
    try:
        keeper = os.pidfd_open(found.pid)
    except ProcessLookupError:
        keeper = -1
    if keeper < 0 or not session_files.is_visible(found):
        raise LaunchError(f"the session {found.name!r} runs in another container of this host: give the command there")
    try:
        if not session_files.is_dead(found):  # its number was not used again before it was opened
            signal.pidfd_send_signal(keeper, signal.SIGTERM)
            if not select.select([keeper], [], [], STOP_LIMIT_S)[0]:
                text = f"the session {found.name!r} has not ended in {STOP_LIMIT_S:g} s"
                raise LaunchError(f"{text}; `kill -9 {found.pid}` ends it at once")
    finally:
        os.close(keeper)
    session_files.forget(path, found)
    print(f"The session {found.name!r} has ended.")
    return 0

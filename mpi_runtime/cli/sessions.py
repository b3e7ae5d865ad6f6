"""Most verbs below `session`: jobs that outlive the programs that use them.

`start` makes the session file and launches `keep` as the program of rank 0: the keeper (`session_keeper.py`). Under a
launcher of several ranks, `start` itself becomes the keeper. With the resources of a batch job, `start` submits one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mpi_runtime import config as configuration
from mpi_runtime.cli import session_keeper, session_runs, slurm
from mpi_runtime.cli.running_job import in_lines
from mpi_runtime.cli.slurm import Options
from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.driver import session_jobs
from mpi_runtime.core.host.launch import detect
from mpi_runtime.core.transport.hello import address_of
from mpi_runtime.core.transport.local import reached
from mpi_runtime.errors import LaunchError
from mpi_runtime.files import private, session_files
from mpi_runtime.files.session_files import Session
from mpi_runtime.show.tables import aligned

DEFAULT = "default"
LOOK_S = 0.05
STOP_LIMIT_S = 60.0
"""Seconds in which a session must end after `stop`: executors are killed, and free their memory."""
LOG_LINES = 20
"""The last lines of the output of a session that did not start."""
_INTERRUPTED = 130
"""The exit code of shells for SIGINT."""


def perform(words: Sequence[str]) -> int:
    """Run a verb below `session` that has its options here, and return the exit code."""
    options = session_parser().parse_args(words)
    return _ACTIONS[options.verb](options)


def session_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime session`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime session",
        description="Jobs that outlive the programs that use them: init('session:NAME') connects to one.",
    )
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    about = "start a session: on this host, inside an allocation, or with --nodes as a batch job"
    one = choices.add_parser("start", help=about, description=f"{about.capitalize()}.", allow_abbrev=False)
    one.add_argument("--name", default=DEFAULT, metavar="NAME", help=f"its name; default: {DEFAULT}")
    one.add_argument(
        "-n", "--ranks", type=int, metavar="N",
        help="number of ranks; 1, the default, needs no MPI and uses only this host",
    )  # fmt: skip
    one.add_argument("--mpi", choices=("openmpi", "mpich", "intel"), help="use the launcher of this MPI")
    one.add_argument("--hosts", metavar="A[:RANKS],B...", help="start the ranks on these hosts (by ssh)")
    one.add_argument(
        "--idle", type=_duration, metavar="TIME",
        help="end the session when no program was connected and no call ran for this time, such as 30m",
    )  # fmt: skip
    one.set_defaults(first=None)
    _add_config(one)
    slurm.add_resources(one)
    about = "show the sessions of this user"
    choices.add_parser("list", help=about, description=f"{about.capitalize()}.")
    for verb, about in (("status", "show what runs in a session"), ("stop", "end a session, with all that runs in it")):
        one = choices.add_parser(verb, help=about, description=f"{about.capitalize()}.")
        _add_name(one)
    about = "print the last lines of the output of a session itself"
    one = choices.add_parser("logs", help=about, description=f"{about.capitalize()}.")
    _add_name(one)
    session_runs.add_options(one)
    about = "run a program as a driver of a session, on the host of its rank 0"
    choices.add_parser("run", help=about, description=f"{about.capitalize()}.")
    about = "be the program of rank 0 of a session; `start` starts this"
    one = choices.add_parser("keep", help=about, description=f"{about.capitalize()}.")
    one.add_argument("--file", type=Path, required=True, metavar="FILE", help="the session file")
    one.add_argument("--idle", type=float, metavar="SECONDS", help="end it when nobody has used it for this time")
    one.add_argument("--first", type=float, metavar="SECONDS", help="end it with its first program, or without one")
    _add_config(one)
    return parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=DEFAULT, metavar="NAME", help=f"its name; default: {DEFAULT}")


def _duration(text: str) -> float:
    from mpi_runtime.batch.file.options import seconds  # not at the top: it loads the room of batches

    try:
        found = seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return found


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-cpus", type=float, metavar="N", help="CPUs of each node; default: those that are found")
    parser.add_argument("--num-gpus", type=float, metavar="N", help="GPUs of each node; default: those that are found")
    parser.add_argument("--object-store-memory", type=float, metavar="BYTES", help="memory for values on each host")


def start(options: argparse.Namespace) -> int:
    """Start a session, and wait until programs can connect."""
    session_keeper.check_journal()
    resources = slurm.stated_resources(options)
    if resources or options.profile:
        return _submit(options, resources)
    launch = detect(configuration.environment())
    if launch.problem:
        raise LaunchError(launch.problem)
    if launch.rank:
        session_keeper.be_worker()
    path = session_files.path_of(options.name)
    made = _made(path)
    if launch.size != 1:
        return session_keeper.Keeper(path, made, options).run()
    command = [sys.executable, "-m", "mpi_runtime", "run", "-n", str(options.ranks or 1)]
    for name in ("mpi", "hosts"):
        command += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    command += ["-m", "mpi_runtime", "session", "keep", "--file", str(path), *_config_words(options)]
    try:
        return _started(path, made, command)
    except BaseException:
        session_files.forget(path, made)
        raise


def _config_words(options: argparse.Namespace) -> list[str]:
    names = ("num_cpus", "num_gpus", "object_store_memory", "idle")
    stated = [(name, getattr(options, name)) for name in names if getattr(options, name) is not None]
    return [f"--{name.replace('_', '-')}={value:.17g}" for name, value in stated]


def _submit(options: argparse.Namespace, resources: Options) -> int:
    """Submit a session as a batch job, and wait for it."""
    for name in ("ranks", "mpi", "hosts"):
        if getattr(options, name):
            raise LaunchError(f"--{name} is not for batch jobs: state --nodes, and --ranks-per-node or --launcher")
    words = _config_words(options)
    path, made = session_jobs.submit(options.name, words, options.profile, resources, _claim)
    end = f"  to end it: mpi-runtime session stop {made.name}"
    try:
        found = session_jobs.wait(path, made)
    except KeyboardInterrupt:
        print(f"\nmpi-runtime: the session {made.name!r} stays in the queue, as job {made.job}", file=sys.stderr)
        print(f"  its state: mpi-runtime session list\n{end}", file=sys.stderr)
        return _INTERRUPTED
    print(
        f"The session {found.name!r} runs on {found.host}, in job {found.job}, and its output goes to {found.output}.\n"
        f"  in programs on {found.host}: init('session:{found.name}')\n{end}"
    )
    return 0


def _made(path: Path) -> Session:
    """Make the file of a new session. That of a session that has ended is replaced."""
    try:
        return session_jobs.made(path, "", _claim)
    except OSError as error:
        raise LaunchError(f"{path} cannot be made: {error.strerror or error}") from error


def _claim(path: Path) -> None:
    """Remove the file of a session that has ended; that of another session is an error."""
    with contextlib.suppress(FileNotFoundError):
        found = session_files.read(path)
        if not session_jobs.is_dead(path, found):
            raise LaunchError(
                f"the session {found.name!r} exists: {_in_words(path, found)}. Choose another name with --name, or end "
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


def list_(_: argparse.Namespace) -> int:
    """Print the sessions of this user."""
    rows = [
        (
            one.name,
            one.host if one.is_open or not one.system else "-",
            str(one.pid) if one.is_open or not one.system else "-",
            one.job or "-",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.begun_s)),
            _state(path, one),
        )
        for path, one in session_files.all_of()
    ]
    if not rows:
        print("no sessions: `mpi-runtime session start` starts one")
        return 0
    print("\n".join(aligned([("NAME", "HOST", "PID", "JOB", "BEGAN", "STATE"), *rows])))
    return 0


def _state(path: Path, found: Session) -> str:
    """Return the state of a session in a word or two."""
    is_near = found.host == os.uname().nodename
    if found.is_open and is_near:
        try:
            reached(address_of(found.secret)).close()
            return "running"
        except TimeoutError:
            return "does not answer"
        except (OSError, LaunchError):
            pass
    if (job := session_jobs.status(path, found)) is not None and job.state != "RUNNING":
        return f"{job.state} ({job.reason})" if job.reason else job.state
    if session_jobs.is_dead(path, found):
        return "killed"
    if job is not None and found.is_open:
        return "running"
    if not found.is_open and (job is not None or is_near):
        return "starting"
    return "not reachable" if is_near else "not seen from here"


def _in_words(path: Path, found: Session) -> str:
    job = f"job {found.job}, " if found.job else ""
    if found.system and not found.is_open:
        return f"{job}{_state(path, found)}"
    return f"on {found.host}, {job}pid {found.pid}, {_state(path, found)}"


def status(options: argparse.Namespace) -> int:
    """Print what runs in a session."""
    path, found = session_runs.chosen(options.name)
    print(f"session {found.name!r} {_in_words(path, found)}; its output: {session_files.output_of(path, found)}")
    job = session_jobs.status(path, found)
    if job is not None:
        print(str(job).splitlines()[0])
    if _state(path, found) != "running":
        return 1
    if found.host == os.uname().nodename:
        print("\n".join(in_lines(Watching(found.pid).facts)[1:]))
    else:
        print(f"what runs in it is seen on {found.host}: mpi-runtime session status {found.name}")
    return 0


def stop(options: argparse.Namespace) -> int:
    """End a session, and wait until it has ended."""
    path, found = session_runs.chosen(options.name)
    if session_jobs.is_dead(path, found):
        session_files.forget(path, found)
        print(f"The session {found.name!r} had ended before; its file is removed.")
        return 0
    is_near = found.host == os.uname().nodename
    if found.job:
        session_jobs.end(path, found)
    elif is_near:
        _end_keeper(path, found)
    else:
        raise LaunchError(f"the session {found.name!r} runs on {found.host}: give the command there")
    print(f"The session {found.name!r} has ended.")
    return 0


def _end_keeper(path: Path, found: Session) -> None:
    """End a session on this host by a signal to its keeper."""
    try:
        keeper = os.pidfd_open(found.pid)
    except ProcessLookupError:
        keeper = -1
    if keeper < 0 or not session_files.is_visible(found):
        raise LaunchError(f"the session {found.name!r} runs in another container of this host: give the command there")
    try:
        if not session_files.is_dead(found):  # its number was not used again before it was opened
            signal.pidfd_send_signal(keeper, signal.SIGHUP if found.is_open else signal.SIGTERM)
            if not select.select([keeper], [], [], STOP_LIMIT_S)[0]:
                text = f"the session {found.name!r} has not ended in {STOP_LIMIT_S:g} s"
                raise LaunchError(f"{text}; `kill -9 {found.pid}` ends it at once")
    finally:
        os.close(keeper)
    session_files.forget(path, found)


_ACTIONS = {
    "start": start, "keep": session_keeper.keep, "list": list_, "status": status, "stop": stop,
    "logs": session_runs.logs,
}  # fmt: skip

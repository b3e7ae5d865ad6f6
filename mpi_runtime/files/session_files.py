"""Session files: the name of a session, its place, and the secret with which programs connect to it.

A file has the mode 0600, and is made before the session starts, with O_EXCL: of two starts with one name at the same
time, one is refused. The keeper of the session replaces it when programs can connect, and removes it at its end. After
a keeper that was killed it stays: whether a session lives is asked of its processes and its door, or of its batch
system. A session in a batch job is first the file of the program that submits it. Once that has noted the job, only the
keeper writes the file.

Beside it the keeper leaves a file that says why the session has ended, for programs that were connected.

Clusters share home directories. So there is a directory for each cluster, or for each host outside of clusters.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import shutil
import sys
import time
from pathlib import Path

import msgspec

from mpi_runtime import config as configuration
from mpi_runtime.errors import LaunchError
from mpi_runtime.files import claim, private
from mpi_runtime.files.writing import beside

SUFFIX = ".json"
_OF_END = ".end"
_OF_DRIVERS = ".values."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHERS = 0o077
LOG_WORDS = "`mpi-runtime session status {}` shows where its output is"


class Session(msgspec.Struct, kw_only=True):
    """The content of a session file."""

    name: str
    secret: str
    """A program that knows it can run code in the session."""
    host: str
    """The host of rank 0."""
    scope: str
    """The scope of `pid`, from `claim.here()`."""
    pid: int
    """The process that starts the session; later its keeper."""
    started: str
    """The start of that process by the kernel's clock."""
    begun_s: float
    """When the session began, in seconds since 1970."""
    is_open: bool = False
    """Whether programs can connect."""
    python: str = ""
    """The path of its Python, by which programs on other hosts reach it."""
    step_of: str = ""
    """The job of Slurm in which `srun` reaches its host; empty: none."""
    system: str = ""
    """The batch system to which it is submitted; empty: it is not."""
    job: str = ""
    """The batch job that it runs in; empty: none, or it is not submitted yet."""
    output: str = ""
    """The path of the output of its batch job; empty: see `log_of`."""


def check_name(name: str) -> str:
    """Return a name that a session may have.

    Raises:
        LaunchError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise LaunchError(
            f"{name!r} is not a name for a session: letters, digits, '.', '_' and '-', the first a letter or a digit, "
            "and 64 of them at most"
        )
    return name


class End(msgspec.Struct):
    """How a session has ended."""

    begun_s: float
    """The session, by its begin."""
    why: str


def directory(cluster: str = "") -> Path:
    """Return the directory for the files of a cluster; by default of this one, or of this host if it is in none."""
    return _root() / (cluster or configuration.cluster() or os.uname().nodename)


def _root() -> Path:
    return Path(configuration.state_directory()) / "mpi_runtime" / "sessions"


def path_of(name: str, cluster: str = "") -> Path:
    """Return the path of the file of a session of a cluster; by default of this one, or of this host."""
    return directory(cluster) / f"{check_name(name)}{SUFFIX}"


def log_of(path: Path) -> Path:
    """Return the path of the file for the output of a session's own processes, beside its session file."""
    return _beside(path, ".log")


def output_of(path: Path, session: Session) -> Path:
    """Return the path of the file with the output of a session's own processes."""
    return Path(session.output) if session.output else log_of(path)


def new_directory_of(path: Path) -> Path:
    """Return a new path beside a session file, for files of one driver."""
    return _beside(path, f"{_OF_DRIVERS}{secrets.token_hex(8)}")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX) + suffix)  # a name may have a dot


def new(path: Path, system: str = "") -> Session:
    """Make the file of a session that this process starts or submits, and return its content.

    `system`: the batch system to which it will be submitted; empty: none.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be made.
    """
    private.make_directory(path.parent)
    made = Session(
        name=path.name.removesuffix(SUFFIX), secret=secrets.token_hex(32), host=os.uname().nodename,
        scope=claim.here(), pid=os.getpid(), started=claim.state_and_start(os.getpid())[1], begun_s=time.time(),
        system=system,
    )  # fmt: skip
    with open(private.create_file(path), "wb") as file:
        file.write(msgspec.json.encode(made))
    forget_end(path)
    for left in path.parent.glob(f"{glob.escape(made.name)}{_OF_DRIVERS}{'[0-9a-f]' * 16}"):  # of hosts that crashed
        shutil.rmtree(left, ignore_errors=True)
    return made


def write(path: Path, content: Session | End) -> None:
    """Replace the content of a file.

    Raises:
        OSError: it cannot be written.
    """
    with beside(path) as spare, open(private.create_file(spare), "wb") as file:
        file.write(msgspec.json.encode(content))


def opened(path: Path, session: Session) -> None:
    """Note that this process keeps the session, and that programs can connect.

    Raises:
        OSError: it cannot be written.
    """
    session.pid, session.started = os.getpid(), claim.state_and_start(os.getpid())[1]
    session.host, session.scope = os.uname().nodename, claim.here()  # a launcher may have started it elsewhere
    session.python, session.step_of = sys.executable, dict(configuration.batch_job_variables()).get("SLURM_JOB_ID", "")
    session.is_open = True
    write(path, session)


def note_end(path: Path, session: Session, why: str) -> None:
    """Leave the reason for the end of a session, if it can be written."""
    with contextlib.suppress(OSError):
        write(_beside(path, _OF_END), End(session.begun_s, why))


def forget_end(path: Path) -> None:
    """Remove the reason for the end of a session."""
    with contextlib.suppress(FileNotFoundError):
        _beside(path, _OF_END).unlink()


def end_of(path: Path, session: Session) -> str:
    """Return the reason for the end of a session; empty: it has left none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        with open(private.open_file(_beside(path, _OF_END)), "rb") as file:
            found = msgspec.json.decode(file.read(), type=End)
        return found.why if found.begun_s == session.begun_s else ""
    return ""


def forget(path: Path, session: Session) -> None:
    """Remove the file of a session that has ended, unless another one has its name by now."""
    with contextlib.suppress(OSError, LaunchError):
        if read(path).secret == session.secret:
            path.unlink()


def read(path: Path) -> Session:
    """Return the content of a file.

    Raises:
        FileNotFoundError: no file has this path.
        LaunchError: it cannot be used: it is another user's, others may read it, or it is damaged.
        OSError: it cannot be read.
    """
    try:
        with open(private.open_file(path), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read()
    except PermissionError as error:
        raise LaunchError(f"the session file {path} belongs to another user, and is not used") from error
    if mode & _OTHERS:
        raise LaunchError(
            f"other users may read the secret in {path}: chmod 600, if nobody has read it; else remove it"
        )
    try:
        return msgspec.json.decode(data, type=Session)
    except msgspec.MsgspecError as error:
        raise LaunchError(f"the session file {path} is damaged ({error}): remove it") from error


def all_of(name: str | None = None) -> list[tuple[Path, Session]]:
    """Return the sessions of this user on all clusters, with the paths of their files. `name`: only those.

    Files that cannot be used are left out, and so are those that vanish meanwhile.
    """
    found = []
    for path in sorted(_root().glob(f"*/{check_name(name) if name is not None else '*'}{SUFFIX}")):
        with contextlib.suppress(OSError, LaunchError):
            found.append((path, read(path)))
    return found


def is_visible(session: Session) -> bool:
    """Whether the process of a session has its number in the same namespace of processes as this one."""
    return session.scope == claim.here()


def is_dead(session: Session) -> bool:
    """Whether the process of a session is known to have ended. That can be seen on its own host only.

    A session in a batch job has no process before it is open, but that of the program that submits it.
    """
    if session.host != os.uname().nodename or (session.job and not session.is_open):
        return False
    boot, ours = session.scope.partition(" ")[0], claim.here().partition(" ")[0]
    return boot != ours or claim.is_dead(session.scope, session.pid, session.started)

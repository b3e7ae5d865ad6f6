"""Directories for the files of a job: what a `runtime_env` has brought, unpacked once on a host.

    <scratch>/mpi_runtime-<user id>/<job>@<host>/
        lock            held by the forkservers of the job on this host
        <hash>/         an archive, unpacked by the executor that needs it first
        <hash>.lock     held by the executor that unpacks it

They are made with the first executor that needs them, and are the user's alone. How they go, in steps:
1. A forkserver that has used the directory lets go of the lock at its end, and removes the directory if nobody else
   holds it. It outlives its agent for this, however that ended.
2. If the forkserver itself was killed, its agent does that.
3. If all processes of a host were killed at once, no one is left that could. Locks end with their processes, so the
   forkserver of the user's next job on the host finds that nobody holds this one, and removes the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mpi_runtime import config as configuration

WORKING_DIR, PY_MODULES = "=working_dir", "=py_modules"
"""Entries of an executor's environment that are no variables (their names could not be): archives it is to find, each
as `<hash>.<id of its object>`, with commas between them."""
_GOING = "going-"
"""Before the name of a directory that is being removed."""
_ATTEMPTS = 100


def directory_of(base: str, job: str, hostname: str) -> str:
    """Where the files of a job are on a host; nothing is made yet."""
    return os.path.join(base, f"mpi_runtime-{os.geteuid()}", f"{job}@{hostname.replace('/', '_')}")


def archives_in(environment: Mapping[str, str], key: str) -> list[tuple[str, bytes]]:
    """The archives that an environment names: hash, and id of the object."""
    words = filter(None, environment.get(key, "").split(","))
    return [(hash, bytes.fromhex(id)) for hash, _, id in (word.partition(".") for word in words)]


def held(environment: Mapping[str, str]) -> list[bytes]:
    """The objects that calls with this environment need."""
    return [id for key in (WORKING_DIR, PY_MODULES) for _, id in archives_in(environment, key)]


def needs_files(environment: Mapping[str, str]) -> bool:
    """Whether an environment names archives."""
    return WORKING_DIR in environment or PY_MODULES in environment


# Forkservers and agents.


def enter(directory: str) -> int:
    """Make the directory if it is not there, and keep others from removing it; a descriptor, for `leave`.

    Raises:
        OSError: it cannot be made, or is not this user's alone; says what to do.
    """
    parent = os.path.dirname(directory)
    os.stat(os.path.dirname(parent))
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it just now, with another job
            with contextlib.suppress(FileExistsError):
                os.mkdir(parent, 0o700)
            _check_own(parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks: see `_remove_unless_held`
                fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)
    raise OSError(f"{directory} was removed again and again while it was made")


def leave(directory: str, lock: int = -1) -> None:
    """Let go of the directory, and remove it if nobody else holds it."""
    if lock >= 0:
        os.close(lock)
    if os.path.isdir(directory):
        _remove_unless_held(directory, if_unknown=True)
        with contextlib.suppress(OSError):  # there are others in it
            os.rmdir(os.path.dirname(directory))


def clean(directory: str) -> None:
    """Remove what this user's jobs on this host have left behind that were killed as a whole (step 3)."""
    parent, own = os.path.split(directory)
    try:
        names = os.listdir(parent)
        _check_own(parent)
    except OSError:
        return
    for name in names:
        if name != own and name.partition("@")[2] == own.partition("@")[2]:
            # Without locks nothing tells whether its job still runs.
            _remove_unless_held(os.path.join(parent, name), if_unknown=False)
    with contextlib.suppress(OSError):
        os.rmdir(parent)


def _check_own(parent: str) -> None:
    """Anybody may make a directory of this name where all users may write."""
    found = os.lstat(parent)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{parent} is not a directory of this user alone, so nothing is put there: remove it, or name another "
            "place on this host with the variable MPI_RUNTIME_SCRATCH_DIR"
        )


def _remove_unless_held(directory: str, if_unknown: bool) -> None:
    """Remove a directory of a job unless one of its processes lives; `if_unknown`: also where there are no locks."""
    parent, name = os.path.split(directory)
    try:
        lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        if name.startswith(_GOING):
            _remove(directory)
        else:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return
    except OSError:
        if not if_unknown:
            os.close(lock)
            return
    going = directory if name.startswith(_GOING) else os.path.join(parent, _GOING + name)
    with contextlib.suppress(OSError):  # another process may be at it too
        os.rename(directory, going)
    _remove(going)
    os.close(lock)


def _remove(directory: str) -> None:
    import shutil  # not at the top: nearly no job has such a directory

    shutil.rmtree(directory, ignore_errors=True)
    if os.path.isdir(directory):  # user code has made directories that cannot be written
        for path, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):
                os.chmod(path, 0o700)
        shutil.rmtree(directory, ignore_errors=True)


# Executors.


def settle_in(
    fetch: Callable[[bytes], Any], directory: str, environment: Mapping[str, str], shadowed: Callable[[str], list[str]]
) -> str:
    """Give an executor the files that its environment names: unpack what is not there yet, go there, find modules.

    Returns why that cannot be, or nothing.

    Args:
        fetch: brings the value of an object, which is an archive.
        directory: of the job, which exists.
        environment: of the executor.
        shadowed: tells which loaded modules a directory has others for.
    """
    found: list[str] = []
    try:
        for key in (WORKING_DIR, PY_MODULES):
            for hash, id in archives_in(environment, key):
                path = _unpacked(fetch, directory, hash, id)
                found.append(path)
                if key == WORKING_DIR:
                    os.chdir(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for path in found:
        for name in shadowed(path):
            sys.modules.pop(name, None)
    sys.path[:0] = found
    before = configuration.environment().get("PYTHONPATH", "")  # for Python programs that calls start
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*found, before]))
    return ""


def _unpacked(fetch: Callable[[bytes], Any], directory: str, hash: str, id: bytes) -> str:
    """The path of an archive's content."""
    from mpi_runtime.objects import archives

    path = os.path.join(directory, hash)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # without locks several may unpack it, and one of them puts it into place
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(path):
            part = f"{path}.{os.getpid()}"
            os.mkdir(part, 0o700)
            try:
                archives.unpack(fetch(id), part)
                with contextlib.suppress(OSError):  # somebody else was first
                    os.rename(part, path)
            finally:
                _remove(part)  # if there was no room
    finally:
        os.close(lock)
    return path

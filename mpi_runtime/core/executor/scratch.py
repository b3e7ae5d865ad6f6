"""Directories for the files of a job: archives of a `runtime_env`, unpacked once on each host.

    <scratch>/mpi_runtime-<user id>/<job>@<host>/
        lock            held by the forkservers of the job on this host
        <hash>/         an archive, unpacked by the executor that needs it first
        <hash>.lock     held by the executor that unpacks it

The first executor that needs them makes them, and only the user may read them. They are removed in one of three ways:
1. A forkserver that has used the directory releases the lock at its end, and removes the directory if nobody else holds
   the lock. It outlives its agent for this, however the agent ended.
2. If the forkserver was killed, its agent removes the directory.
3. If all processes of a host were killed at once, their locks ended with them. So the forkserver of the user's next job
   on the host finds that no process holds the lock, and removes the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mpi_runtime import config as configuration

WORKING_DIR, PY_MODULES = "=working_dir", "=py_modules"
"""Entries of an executor's environment that are not variables, as the '=' in their names shows: archives that it
needs, each as `<hash>.<id of its object>`, separated by commas."""
HOOKS = ("=logging", "=setup_hook")
"""Further entries: what the process calls before its first call, see `setup_hooks.py`."""
NSIGHT = "=nsight"
"""A further entry: the options of the profiler under which the process runs, as JSON, see `profiled.py`."""
_GOING = "going-"
"""Prefix of the name of a directory that is being removed."""
_ATTEMPTS = 100


def directory_of(base: str, job: str, hostname: str) -> str:
    """Return the directory for the files of a job on a host, without making it."""
    return os.path.join(base, f"mpi_runtime-{os.geteuid()}", f"{job}@{hostname.replace('/', '_')}")


def archives_in(environment: Mapping[str, str], key: str) -> list[tuple[str, bytes]]:
    """Return the archives that an environment names: hash and id of the object."""
    words = filter(None, environment.get(key, "").split(","))
    return [(hash, bytes.fromhex(id)) for hash, _, id in (word.partition(".") for word in words)]


def held(environment: Mapping[str, str]) -> list[bytes]:
    """Return the ids of the objects that calls with this environment need."""
    return [id for key in (WORKING_DIR, PY_MODULES) for _, id in archives_in(environment, key)]


def described_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The `runtime_env` that an environment of calls came from. Packed files appear as hashes."""
    variables = {name: text for name, text in environment.items() if "=" not in name}
    found: dict[str, Any] = {"env_vars": variables} if variables else {}
    for hash, _ in archives_in(environment, WORKING_DIR):
        found["working_dir"] = hash
    modules = [hash for hash, _ in archives_in(environment, PY_MODULES)]
    return {**found, "py_modules": modules} if modules else found


def needs_files(environment: Mapping[str, str]) -> bool:
    """Whether an environment names archives."""
    return WORKING_DIR in environment or PY_MODULES in environment


# Forkservers and agents.


def enter(directory: str) -> int:
    """Make the directory if it does not exist, and keep others from removing it. Return the lock, for `leave`.

    Raises:
        OSError: it cannot be made, or other users may write to it. The message says what to do.
    """
    parent = os.path.dirname(directory)
    os.stat(os.path.dirname(parent))
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # another job has just removed it
            with contextlib.suppress(FileExistsError):
                os.mkdir(parent, 0o700)
            _check_own(parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # the file system has no locks: see `_remove_unless_held`
                fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)
    raise FileNotFoundError(errno.ENOENT, "it cannot be made", directory)


def why_not(error: Exception, directory: str) -> str:
    """Return why there can be no files in the directory of a job, and what to do."""
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    if error.errno is None:  # one of ours, with advice
        return str(error)
    base = os.path.dirname(os.path.dirname(directory))
    return (
        f"{error.strerror}: {error.filename or directory}. On this host files of a runtime_env are unpacked below "
        f"{base}; the variable MPI_RUNTIME_SCRATCH_DIR names another directory"
    )


def leave(directory: str, lock: int = -1) -> None:
    """Release the directory, and remove it if no other process holds it."""
    if lock >= 0:
        os.close(lock)
    if os.path.isdir(directory):
        _remove_unless_held(directory, if_unknown=True)
        with contextlib.suppress(OSError):  # other jobs use it
            os.rmdir(os.path.dirname(directory))


def clean(directory: str) -> None:
    """Remove directories of this user's jobs on this host that were killed at once (3)."""
    parent, own = os.path.split(directory)
    try:
        names = os.listdir(parent)
        _check_own(parent)
    except OSError:
        return
    for name in names:
        if name != own and name.partition("@")[2] == own.partition("@")[2]:
            # Without locks it is not known whether the job still runs.
            _remove_unless_held(os.path.join(parent, name), if_unknown=False)
    with contextlib.suppress(OSError):
        os.rmdir(parent)


def _check_own(parent: str) -> None:
    """Check that the directory belongs to this user only. Where all users may write, another could have made it.

    Raises:
        PermissionError: other users may read or write it.
    """
    found = os.lstat(parent)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{parent} is not a directory of this user alone, so nothing is put there: remove it, or name another "
            "place on this host with the variable MPI_RUNTIME_SCRATCH_DIR"
        )


def _remove_unless_held(directory: str, if_unknown: bool) -> None:
    """Remove a directory of a job unless a process holds its lock. `if_unknown`: also if there are no locks."""
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
    with contextlib.suppress(OSError):  # another process may do the same
        os.rename(directory, going)
    _remove(going)
    os.close(lock)


def _remove(directory: str) -> None:
    import shutil  # not at the top: few jobs have such a directory

    shutil.rmtree(directory, ignore_errors=True)
    if os.path.isdir(directory):  # user code has made directories without write permission
        for path, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):
                os.chmod(path, 0o700)
        shutil.rmtree(directory, ignore_errors=True)


# Executors.


def settle_in(
    fetch: Callable[[bytes], bytes],
    directory: str,
    environment: Mapping[str, str],
    shadowed: Callable[[str], list[str]],
) -> str:
    """Give an executor the files that its environment names: unpack archives, change directory, set the module path.

    Args:
        fetch: returns the value of an object, which is an archive.
        directory: of the job; it exists.
        environment: of the executor.
        shadowed: returns the loaded modules for which a directory has others of the same name.

    Returns:
        Why this is impossible; empty if it was done.
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
        return why_not(error, directory)
    for path in found:
        for name in shadowed(path):
            sys.modules.pop(name, None)
    sys.path[:0] = found
    before = configuration.environment().get("PYTHONPATH", "")  # for Python programs that calls start
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*found, before]))
    return ""


def _unpacked(fetch: Callable[[bytes], bytes], directory: str, hash: str, id: bytes) -> str:
    """Return the directory with the content of an archive. Unpack it if no other executor has."""
    from mpi_runtime.core.objects import working_dirs
    from mpi_runtime.files.writing import beside

    path = os.path.join(directory, hash)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # without locks several may unpack it, and one moves it into place
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(path):
            try:
                with beside(path) as part:
                    os.mkdir(part, 0o700)
                    working_dirs.unpack(fetch(id), part)
            except OSError:
                if not os.path.isdir(path):  # else another executor was first
                    raise
    finally:
        os.close(lock)
    return path

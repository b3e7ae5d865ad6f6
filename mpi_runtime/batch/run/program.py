"""One attempt of a command: a shell in its own session, its time limit, the end of all its processes.

While it runs, what leaves its process group becomes a child of this process when its parent ends (`adopt_orphans`).
So it is found: at the end all children are killed that were not there before.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mpi_runtime.host.memory_usage import Memory
from mpi_runtime.host.process_tree import adopt_orphans, children, descendants, kill_group

KILL_LIMIT_S = 5.0
"""How long killed processes are waited for: one that hangs in a driver does not end."""
LOCK_LIMIT_S = 20.0
"""How long processes of a killed run are waited for: that run ends them when it notices, which takes a second or so."""
LOOK_S = 0.2
"""How often memory and output of a command with limits are looked at."""
PAUSE_S = 0.002
_NOT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_NOTHING = contextlib.nullcontext()


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt has ended."""

    exit_code: int | None = None
    signal: int | None = None
    problem: str = ""
    start: float
    end: float
    peak_memory: int = 0
    cpu_time: float = 0.0


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt of a command runs."""

    text: str
    """For `/bin/sh -c`."""
    env: Mapping[str, str]
    """Its whole environment."""
    cwd: str = ""
    """Where it starts; empty: here."""
    stdin: str = ""
    """The path of its standard input; empty: nothing to read."""
    stdout: str
    stderr: str
    time_limit: float | None = None
    """Seconds until SIGTERM."""
    grace: float = 5.0
    """Seconds from there to SIGKILL."""
    cpus: Sequence[int] = ()
    """Processors to which it is bound; none: no change."""
    is_own: bool = False
    """Whether no other command writes to its output, so that an earlier run of it is waited for."""
    appends: tuple[bool, bool] = (False, False)
    """Whether others write to its standard output and to that of its errors, so that it is not emptied."""
    memory: int = 0
    """Bytes that its processes may have together, without what they share; 0: no limit."""
    output_limit: int = 0
    """Bytes that its output may have; 0: no limit."""


def run_program(program: Program) -> Ending:
    """Run a program to its end, whatever end that is."""
    start = time.time()
    before = _children()
    adopt_orphans()
    try:
        pid, problem = _run_to_its_end(program)
        # Before it is reaped: until then its number, which is that of the group, belongs to nobody else.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    except OSError as error:
        return Ending(problem=f"it could not be started: {error}", start=start, end=time.time())
    finally:
        _kill_new(before)
        adopt_orphans(False)
    code = os.waitstatus_to_exitcode(status)
    return Ending(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        problem=problem,
        start=start,
        end=time.time(),
        peak_memory=usage.ru_maxrss * 1024,
        cpu_time=usage.ru_utime + usage.ru_stime,
    )


def _run_to_its_end(program: Program) -> tuple[int, str]:
    """Start a program and wait until its shell has ended, which is not reaped; its process id, and what it exceeded."""
    opened: list[int] = []
    before = _children() if program.memory else set()
    try:
        output = _open_for_writing(program.stdout, program.is_own, program.appends[0], opened)
        is_one = program.stderr == program.stdout
        error = output if is_one else _open_for_writing(program.stderr, False, program.appends[1], opened)
        if program.stdin:
            opened.append(os.open(program.stdin, os.O_RDONLY | os.O_CLOEXEC))
        with _bound_to(program.cpus) if program.cpus else _NOTHING:
            pid = _spawn(program.text, program.env, program.cwd, (opened[-1] if program.stdin else -1, output, error))
        limits = _Limits(program.memory, program.output_limit, (output, error), frozenset(before))
        return pid, _wait(pid, program.time_limit, program.grace, limits)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _spawn(text: str, env: Mapping[str, str], cwd: str, streams: tuple[int, int, int]) -> int:
    """Start the shell of a command in a session of its own; its process id.

    By posix_spawn: `subprocess` takes more time for the same, and is left for what posix_spawn cannot do. A standard
    input of -1 is empty.
    """
    words = ["/bin/sh", "-c", text]
    stdin, stdout, stderr = streams
    if cwd or min(stdout, stderr) < 3 or 0 <= stdin < 3:
        process = subprocess.Popen(
            words,
            env=dict(env),
            cwd=cwd or None,
            stdin=stdin if stdin >= 0 else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        process.returncode = 0  # it is waited for here, not there
        return process.pid
    # As subprocess does: signals that Python ignores, such as SIGPIPE, are not ignored in the command.
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    if stdin >= 0:
        actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    return os.posix_spawn(words[0], words, env, file_actions=actions, setsid=True, setsigdef=_NOT_IGNORED)


@functools.cache
def _memory() -> Memory:
    return Memory()


class _Limits(msgspec.Struct, frozen=True):
    """What a command may have while it runs, besides time; 0: as much as it likes."""

    memory: int
    output: int
    descriptors: tuple[int, int]
    """Of its output and its errors."""
    others: frozenset[int]
    """Children of this process that are not of the command. Only for membership."""

    def exceeded(self) -> str:
        """Which of them it has exceeded, in words; empty: none."""
        if self.memory:
            used = sum(_memory().private_of(pid) for pid in descendants() if pid not in self.others)
            if used > self.memory:
                return f"it had {used} bytes of memory, and its memory is {self.memory}"
        if self.output and (size := max(os.fstat(one).st_size for one in self.descriptors)) > self.output:
            return f"it had written {size} bytes, and its output_limit is {self.output}"
        return ""


def _wait(pid: int, time_limit: float | None, grace: float, limits: _Limits) -> str:
    """Wait until a process has ended, and end it when it exceeds a limit; what that was, in words."""
    if time_limit is None and not limits.memory and not limits.output:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # half of what a descriptor and poll take
            return ""
        except BaseException:  # a cancel: KeyboardInterrupt
            _end_of(pid, grace)
            raise
    descriptor = os.pidfd_open(pid)
    problem = ""
    end_s = None if time_limit is None else time.monotonic() + time_limit
    step_s = LOOK_S if limits.memory or limits.output else None
    try:
        while not problem:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            if _has_ended(descriptor, min((one for one in (left_s, step_s) if one is not None), default=None)):
                return ""
            problem = limits.exceeded()
            if not problem and end_s is not None and time.monotonic() >= end_s:
                problem = f"it ran longer than its time limit of {time_limit:g} s"
        _end(pid, descriptor, grace)
        return problem
    except BaseException:  # a cancel: KeyboardInterrupt
        _end(pid, descriptor, grace)
        raise
    finally:
        os.close(descriptor)


def _end_of(pid: int, grace: float) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        _end(pid, descriptor, grace)
    finally:
        os.close(descriptor)


def _end(pid: int, descriptor: int, grace: float) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    if not _has_ended(descriptor, grace):
        kill_group(pid)
        _has_ended(descriptor, KILL_LIMIT_S)


def _has_ended(descriptor: int, limit_s: float | None) -> bool:
    """Whether a process ends within a time."""
    end_s = None if limit_s is None else time.monotonic() + limit_s
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        # At most a day at a time: poll takes milliseconds as an int of C.
        if poller.poll(None if left_s is None else min(left_s, 86400.0) * 1000):
            return True
        if left_s is not None and left_s <= 86400.0:
            return False


def _children() -> set[int]:
    """The children of this process. That there are none, as is usual, takes one call of the kernel to know."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    return set(children())


def _kill_new(before: set[int]) -> None:
    """Kill and reap the children of this process that were not there before, and what these leave."""
    end_s = time.monotonic() + KILL_LIMIT_S
    while (new := _children() - before) and time.monotonic() < end_s:
        for pid in new:
            kill_group(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(PAUSE_S)


def _open_for_writing(path: str, is_locked: bool, appends: bool, opened: list[int]) -> int:
    """Open a file for the output of a command, empty unless it `appends`; its directory is made.

    The descriptor is added to `opened`.

    A command keeps a lock on its own output as long as one of its processes has it open. So a batch that is started
    again while the processes of a killed run still end does not run a command beside itself.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    if is_locked:  # neither a symbolic link, which another user may have made, nor a pipe without a reader
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    opened.append(descriptor)
    if is_locked:
        os.set_blocking(descriptor, True)
        _lock(descriptor, path)
    found = os.fstat(descriptor)
    if found.st_size and not appends and stat.S_ISREG(found.st_mode):
        os.ftruncate(descriptor, 0)
    return descriptor


def _lock(descriptor: int, path: str) -> None:
    """Wait until no process of an earlier run of a command has its output open.

    Raises:
        OSError: one still has when it ought to have ended.
    """
    end_s = time.monotonic() + LOCK_LIMIT_S
    while not _is_locked(descriptor):
        if time.monotonic() > end_s:
            raise OSError(f"a process of an earlier run of it still has {path} open; end that first")
        time.sleep(PAUSE_S * 10)


def _is_locked(descriptor: int) -> bool:
    """Whether the lock could be had, or this file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _bound_to(cpus: Sequence[int]) -> Iterator[None]:
    """Bind what this thread starts meanwhile."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextlib.contextmanager
def claimed_cpus(count: int) -> Iterator[tuple[int, ...]]:
    """Processors that no other command of this user is bound to on this host; none if there are too few.

    A claim is the address of a socket that only the kernel knows: it goes with its process, however that ends.
    """
    with contextlib.ExitStack() as claims:
        found: list[int] = []
        for cpu in sorted(os.sched_getaffinity(0)):
            if len(found) == count:
                break
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            claims.enter_context(claim)
            with contextlib.suppress(OSError):
                claim.bind(f"\0mpi_runtime-{os.geteuid()}-cpu-{cpu}")
                found.append(cpu)
        yield tuple(found) if len(found) == count else ()

"""One attempt of a command: a shell in its own session, its time limit, the end of all its processes.

While it runs, a process that leaves its group becomes a child of this process when its parent ends (`adopt_orphans`).
At the end all new children are killed, and files that MPI libraries leave are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.raw_bytes import bytes_of
from mpi_runtime.extend import Memory, adopt_orphans, children, descendants, kill_group, mpi_files
from mpi_runtime.scheduler.protocol.limits import LOOK_US, STOPPED_US
from mpi_runtime.show.numbers import size

KILL_LIMIT_S = 5.0
"""How long to wait for killed processes: one that hangs in a driver does not end."""
LOCK_LIMIT_S = 20.0
"""How long to wait for the processes of a killed run, which that run ends within about a second."""
LOOK_S = 0.2
"""Seconds between checks of the memory and the output of a command with limits."""
STEP_S = LOOK_US / 1e6
STOPPED_S = STOPPED_US / 1e6
POLL_MAX_S = 2_000_000.0
"""The longest wait of poll, which takes milliseconds as an int of C."""
PAUSE_S = 0.002
_NOT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_NOTHING = contextlib.nullcontext()


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt."""

    exit_code: int | None = None
    signal: int | None = None
    problem: str = ""
    has_aborted: bool = False
    """Whether the problem is that the program has called MPI_Abort: an end of its own, as an exit code is."""
    has_output: bool = False
    """Whether its outputs were opened for it. If not, what lies at their paths is of an earlier run."""
    start: float
    end: float
    peak_memory: int = 0
    cpu_time: float = 0.0


def run_program(
    made: Command,
    env: Mapping[str, str],
    cpus: Sequence[int],
    is_own: bool,
    outputs: tuple[int, int] | None = None,
    is_alone: bool = False,
) -> Ending:
    """Run a command to its end, also if it fails or cannot be started.

    Args:
        made: the command. Its placeholders have their values, and it names its outputs.
        env: its whole environment.
        cpus: processors to which it is bound; empty: no change.
        is_own: whether no other command writes to its output, so that it waits for the end of an earlier run.
        outputs: descriptors of its outputs; None: it writes to the files that it names.
        is_alone: whether this process runs nothing but commands: then it adopts orphans to its end.
    """
    start = time.time()
    before = _children()
    if is_alone:
        _adopt_for_good()
    else:
        adopt_orphans()
    try:
        pid, problem = _run_to_its_end(made, env, cpus, is_own, outputs)
        # Before it is reaped: until then no other process has its number, which is that of the group.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    except OSError as error:
        return msgspec.structs.replace(not_started(error, start), has_output=outputs is not None)
    finally:
        _kill_new(before)
        mpi_files.sweep()
        if not is_alone:
            adopt_orphans(False)
    code = os.waitstatus_to_exitcode(status)
    return Ending(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        problem=problem,
        has_output=True,
        start=start,
        end=time.time(),
        peak_memory=usage.ru_maxrss * 1024,
        cpu_time=usage.ru_utime + usage.ru_stime,
    )


def not_started(error: Exception, start: float) -> Ending:
    """The end of a command that an error has kept from starting."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        words = f"{error.strerror} ({error.filename})"
    return Ending(problem=f"it could not be started: {words}", start=start, end=time.time())


def _run_to_its_end(
    made: Command, env: Mapping[str, str], cpus: Sequence[int], is_own: bool, outputs: tuple[int, int] | None
) -> tuple[int, str]:
    """Start a program and wait until its shell has ended, which is not reaped.

    Return its process id, and the limit that it exceeded, in words.
    """
    opened: list[int] = []
    before = _children() if made.memory else set()
    try:
        output, error = outputs or open_outputs(made, is_own, opened)
        if made.stdin:
            opened.append(os.open(made.stdin, os.O_RDONLY | os.O_CLOEXEC))
        with _bound_to(cpus) if cpus else _NOTHING:
            words: list[str | bytes] = [_path_of(made.shell, env), "-c", bytes_of(made.text)]
            pid = _spawn(words, env, made.cwd, (opened[-1] if made.stdin else -1, output, error))
        has_limits = made.memory or made.output_limit
        limits = _Limits(made.memory, made.output_limit, (output, error), frozenset(before)) if has_limits else None
        return pid, _wait(pid, made.time_limit, made.grace, limits)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def open_outputs(made: Command, is_own: bool, opened: list[int]) -> tuple[int, int]:
    """Open the files of a command for its outputs. The descriptors are added to `opened`."""
    output = _open_for_writing(made.stdout, is_own, "stdout" in made.appends, opened)
    if made.stderr == made.stdout:
        return output, output
    return output, _open_for_writing(made.stderr, False, "stderr" in made.appends, opened)


def _path_of(shell: str, env: Mapping[str, str]) -> str:
    """The path of a shell that is named as in a terminal.

    Raises:
        OSError: there is no such program on this host.
    """
    if "/" in shell:
        return shell
    if (found := shutil.which(shell, path=env.get("PATH"))) is None:
        raise FileNotFoundError(f"its shell {shell!r} is not in the PATH of this host")
    return found


def _spawn(words: list[str | bytes], env: Mapping[str, str], cwd: str, streams: tuple[int, int, int]) -> int:
    """Start the shell of a command in a session of its own, and return its process id.

    By posix_spawn, which is faster than `subprocess`, unless the directory or the streams rule it out. A standard input
    of -1 is empty.
    """
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
            close_fds=False,  # as below: what may be inherited is
        )
        process.returncode = 0  # so that subprocess does not wait for it
        return process.pid
    # As subprocess does: signals that Python ignores, such as SIGPIPE, are not ignored in the command.
    actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    if stdin >= 0:
        actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    return os.posix_spawn(words[0], words, env, file_actions=actions, setsid=True, setsigdef=_NOT_IGNORED)


_adopt_for_good = functools.cache(adopt_orphans)
"""Adopts orphans from now on. The system call and ctypes are needed once for all commands of this process."""
_memory = functools.cache(Memory)


class _Limits(msgspec.Struct, frozen=True):
    """Limits of a running command, besides time; 0: no limit."""

    memory: int
    output: int
    descriptors: tuple[int, int]
    """Of its standard output and its standard error."""
    others: frozenset[int]
    """Children of this process that are not of the command. Only for membership."""

    def exceeded(self) -> str:
        """The limit that it has exceeded, in words; empty: none."""
        if self.memory:
            used = sum(_memory().private_of(pid) for pid in descendants(os.getpid()) if pid not in self.others)
            if used > self.memory:
                return f"it had {size(used)} of memory, and its memory is {size(self.memory)}"
        return self.too_much_output()

    def too_much_output(self) -> str:
        """The limit of its output in words, if it has written more; else empty."""
        if self.output and (written := max(os.fstat(one).st_size for one in self.descriptors)) > self.output:
            return f"it had written {size(written)}, and its output_limit is {size(self.output)}"
        return ""


def _wait(pid: int, time_limit: float | None, grace: float, limits: _Limits | None) -> str:
    """Wait until a process has ended. Return the limit that it exceeded and that ended it, in words."""
    problem = ""
    end_s = None if time_limit is None else time.monotonic() + time_limit
    step_s = LOOK_S if limits is not None else STEP_S
    try:
        if end_s is None and limits is None:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # in half the time of a descriptor and poll
            return ""
        while not problem:
            begin_s = time.monotonic()
            wait_s = step_s if end_s is None else min(step_s, max(0.0, end_s - begin_s))
            if _has_ended(pid, wait_s):
                return limits.too_much_output() if limits is not None else ""  # it may have been quicker than a look
            stopped_s = time.monotonic() - begin_s - wait_s
            if end_s is not None and stopped_s > STOPPED_S:
                end_s += stopped_s
            problem = limits.exceeded() if limits is not None else ""
            if not problem and end_s is not None and time.monotonic() >= end_s:
                problem = f"it ran longer than its time limit of {time_limit:g} s"
        _end(pid, grace)
        return problem
    except BaseException:  # a cancel: KeyboardInterrupt
        _end(pid, grace)
        raise


def _end(pid: int, grace: float) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    if not _has_ended(pid, grace):
        kill_group(pid)
        _has_ended(pid, KILL_LIMIT_S)


def _has_ended(pid: int, limit_s: float) -> bool:
    """Whether a process that nobody has reaped ends within a time."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(min(limit_s, POLL_MAX_S) * 1000))
    finally:
        os.close(descriptor)


def _children() -> set[int]:
    """The children of this process. If there are none, as is usual, one system call finds out."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    return set(children())


def _kill_new(before: set[int]) -> None:
    """Kill and reap the new children of this process, and the orphans that they leave."""
    end_s = time.monotonic() + KILL_LIMIT_S
    while (new := _children() - before) and time.monotonic() < end_s:
        for pid in new:
            kill_group(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(PAUSE_S)


def _open_for_writing(path: str, is_locked: bool, appends: bool, opened: list[int]) -> int:
    """Open a file for the output of a command, empty unless it `appends`. Its directory is made.

    The descriptor is added to `opened`. A command keeps a lock on its own output as long as one of its processes has it
    open. So if a batch starts while the processes of a killed run still end, no command runs beside itself.
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
        OSError: one has it open for longer than `LOCK_LIMIT_S`.
    """
    end_s = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise OSError(f"a process of an earlier run of it still has {path} open; end that first") from None
            time.sleep(PAUSE_S * 10)
            continue
        except OSError:
            pass  # this file system has no locks
        return


@contextlib.contextmanager
def _bound_to(cpus: Sequence[int]) -> Iterator[None]:
    """Bind the processes that this thread starts inside the block."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)

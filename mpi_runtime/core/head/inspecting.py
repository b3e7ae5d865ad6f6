"""The other end of a job's window: finds the jobs of this user on this host, and asks one of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
from pathlib import Path

import msgspec

from mpi_runtime.core.head.inspection import INSIDE, prefix
from mpi_runtime.core.transport.local import LIMIT_S, reached
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.questions import A, Question
from mpi_runtime.scheduler.protocol.window_questions import Reply, Watch

_reply = msgspec.msgpack.Decoder(Reply)


def jobs() -> list[int]:
    """Return the process ids of the programs of this user on this host that have a job."""
    found: list[int] = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split(maxsplit=7)[7:]
        pid = name[0].removeprefix("@" + prefix()) if name else ""
        if pid.isdecimal():  # any program may have an address of any name
            found.append(int(pid))
    return sorted(set(found))


def chosen(job: int | None, verb: str) -> int:
    """Return the job that a verb of the command line is about; None: the only one.

    Raises:
        LaunchError: there is no job, or more than one.
    """
    if job is not None:
        return job
    found = jobs()
    if len(found) == 1:
        return found[0]
    if not found:
        raise LaunchError(
            f"no job of this user runs on this host, {os.uname().nodename}. A job is visible on the host of its rank "
            f"0: under Slurm by `srun --jobid=ID --overlap -N 1 -n 1 mpi-runtime {verb}`"
        )
    lines = "".join(f"\n  mpi-runtime {verb} {pid}    # {command_of(pid)}" for pid in found)
    raise LaunchError(f"{len(found)} jobs run on this host; name one of them:{lines}")


def gone(pid: int) -> LaunchError:
    """Return the error for a job that there is not, or no longer."""
    return LaunchError(f"there is no running job with the process id {pid} on this host: see `mpi-runtime top`")


def command_of(pid: int) -> str:
    """Return the command line of a program."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        return shlex.join([os.path.basename(words[0]), *words[1:]])
    return "?"


def ask(pid: int, question: Question[A]) -> A | None:
    """Ask a job, and return its answer; None: it has ended.

    Raises:
        LaunchError: it does not answer, or the answer is not from this user.
        LookupError: it cannot answer this.
    """
    found = reply(pid, question)
    return found.to(question) if found is not None else None


def reply(pid: int, question: Question[object]) -> Reply | None:
    """Ask a job, and return its reply; None: it has ended.

    Raises:
        LaunchError: it does not answer, or the answer is not from this user.
    """
    try:
        with connected(pid) as connection:
            connection.sendall(msgspec.msgpack.encode(question))
            return read(connection)
    except TimeoutError:
        raise LaunchError(f"job {pid} has not answered in {LIMIT_S:g} s: its head is very busy, or stopped") from None
    except OSError:
        return None


def read(connection: socket.socket) -> Reply | None:
    """Read a reply to its end; None: the job has ended meanwhile."""
    data = b""
    while block := connection.recv(1 << 16):
        data += block
    try:
        return _reply.decode(data)
    except msgspec.DecodeError:
        return None


def watch(pid: int) -> socket.socket:
    """Return a connection on which the final state arrives when the program has ended its job: see `read`.

    Raises:
        OSError: there is no such job.
    """
    connection = connected(pid)
    connection.sendall(msgspec.msgpack.encode(Watch()))
    return connection


def connected(pid: int) -> socket.socket:
    """Connect to the window of a job within a time.

    Raises:
        LaunchError: the address is used by another user.
        OSError: there is no such job.
    """
    address = f"\0{prefix()}{pid}"
    try:
        return reached(address)
    except ConnectionRefusedError:
        return reached(address + INSIDE)

"""The verb `top`: shows a running job, from another terminal of its host."""

import argparse
import contextlib
import errno
import os
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mpi_runtime.batch.show.overview import duration
from mpi_runtime.errors import LaunchError
from mpi_runtime.head.window import prefix, user_of

LIMIT_S = 10.0
"""How long a job may take to answer: its head may be busy."""
PAUSE_S = 2.0
ROWS = 20
_CLEAR = "\x1b[H\x1b[2J"


def top(words: Sequence[str]) -> int:
    """Show a running job, and return the exit code."""
    options = _parser().parse_args(words)
    pid = _chosen(options.job)
    is_first = True
    while True:
        found = _ask(pid)
        if found is None:
            if is_first:
                raise LaunchError(
                    f"there is no running job with the process id {pid} on this host: see `mpi-runtime top`"
                )
            print("the job has ended")
            return 0
        text = "\n".join(in_lines(_command_of(pid), pid, found))
        print(_CLEAR + text if options.watch and sys.stdout.isatty() else text, flush=True)
        if not options.watch:
            return 0
        is_first = False
        try:
            time.sleep(PAUSE_S)
        except KeyboardInterrupt:
            return 130


def jobs() -> list[int]:
    """The process ids of the programs of this user on this host that have a job."""
    found: list[int] = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split(maxsplit=7)[7:]
        pid = name[0].removeprefix("@" + prefix()) if name else ""
        if pid.isdecimal():  # any program may have an address of any name
            found.append(int(pid))
    return sorted(set(found))


def _chosen(job: int | None) -> int:
    """The job to show.

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
            "0: under Slurm by `srun --jobid=ID --overlap -N 1 -n 1 mpi-runtime top`"
        )
    lines = "".join(f"\n  mpi-runtime top {pid}    # {_command_of(pid)}" for pid in found)
    raise LaunchError(f"{len(found)} jobs run on this host; name one of them:{lines}")


def _ask(pid: int) -> dict[str, Any] | None:
    """The state of a job; None if it has ended.

    Raises:
        LaunchError: it does not answer, or the answer is not from this user.
    """
    data = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            _connect(connection, f"\0{prefix()}{pid}")
            if user_of(connection) != os.geteuid():
                raise LaunchError(f"the address of job {pid} is used by a program of another user; it is not asked")
            while block := connection.recv(1 << 16):
                data += block
    except TimeoutError:
        raise LaunchError(f"job {pid} has not answered in {LIMIT_S:g} s: its head is very busy, or stopped") from None
    except OSError:
        return None
    try:
        found: dict[str, Any] = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None  # it ended while it answered
    return found


def _connect(connection: socket.socket, address: str) -> None:
    """Connect within a time. If too many wait for a connection, the kernel answers EAGAIN."""
    connection.settimeout(LIMIT_S)
    end_s = time.monotonic() + LIMIT_S
    while (problem := connection.connect_ex(address)) == errno.EAGAIN:
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.05)
    if problem:
        raise OSError(problem, os.strerror(problem))


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        return shlex.join([os.path.basename(words[0]), *words[1:]])
    return "?"


def in_lines(command: str, pid: int, found: dict[str, Any]) -> list[str]:
    """A job in lines for people.

    Args:
        command: its program.
        pid: the process id.
        found: its state.
    """
    counts, total, free = found["counts"], found["total"], found["free"]
    words = [
        (counts["finished"] + counts["failed"], "ended"), (counts["failed"], "of them failed"),
        (counts["running"], "running"), (counts["waiting"], "waiting"), (counts["retried"], "run again"),
    ]  # fmt: skip
    calls = ", ".join(f"{count} {word}" for count, word in words if count) or "none yet"
    lines = [
        f"{command[:100]} (pid {pid})",
        f"calls: {calls}; {counts['actors']} actors, {counts['executors']} processes",
        "; ".join(filter(None, (_used(what, total, free) for what in sorted(total)))),
    ]
    if found["nodes_in_all"] > 1:
        lines += [
            f"  {name}: {used:g} of {cpus:g} CPUs, {count} processes" for name, cpus, used, count in found["nodes"]
        ]
        hidden = found["nodes_in_all"] - len(found["nodes"])
        lines += [f"  and {hidden} more nodes"] if hidden else []
    if len(found["functions"]) > 1:
        lines += [f"  {count} x {name}" for name, count in found["functions"][:ROWS]]
    for name, _, is_blocked, host, rank, pid_of_call, for_us in found["running"][:ROWS]:
        what = "waits" if is_blocked else "runs"
        lines.append(f"  {what:5} {name}  for {duration(for_us / 1e6)}  on {host}, rank {rank}, pid {pid_of_call}")
    hidden = counts["running"] - len(found["running"][:ROWS])
    return [*lines, *([f"  and {hidden} more run"] if hidden > 0 else [])]


def _used(what: str, total: dict[str, float], free: dict[str, float]) -> str:
    if what.startswith("node:"):
        return ""
    used, whole = total[what] - free.get(what, 0.0), total[what]
    if what in ("memory", "object_store_memory", "gpu_memory"):
        return f"{used / 2**30:.1f} of {whole / 2**30:.1f} GiB of {what.replace('_', ' ')}" if used >= 1 << 20 else ""
    return f"{used:g} of {whole:g} {what}{'s' if what in ('CPU', 'GPU') else ''} in use"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpi-runtime top",
        description="Show a running job of this user: running and waiting calls, places, durations, resources in use.",
        epilog="The time of a call counts from the last message of its process, so a call that submits others counts "
        "from there. Start it on the host of rank 0.",
    )
    parser.add_argument(
        "job", nargs="?", type=int, metavar="JOB", help="the process id of its program; default: the one"
    )
    parser.add_argument("--watch", action="store_true", help="again every two seconds, until the job has ended")
    return parser

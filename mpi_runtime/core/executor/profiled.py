"""Executors under `nsys profile`: `runtime_env={"nsight": "default"}`.

A profiler must start the process that it observes. So the process that was forked becomes nsys, which starts a fresh
interpreter, and that one becomes the executor: it has the descriptors of the fork. Both are in one process group, so
the forkserver ends both.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import NoReturn

import msgspec
from msgspec import Struct

from mpi_runtime.core.executor import driver_mark
from mpi_runtime.core.executor.fork_messages import Fork, Setup
from mpi_runtime.core.executor.scratch import NSIGHT
from mpi_runtime.core.host.process_tree import descendants, name_of
from mpi_runtime.core.host.spawn import interpreter_options, shadowed
from mpi_runtime.core.transport.messages import bytes_to_text

DIRECTORY = "nsight"
"""Reports are written below it, in the directory of the program."""
_DEFAULT = {"t": "cuda,cudnn,cublas,nvtx", "o": "worker_process_%p", "stop-on-exit": "true"}
"""Ray's."""
PROFILED_END_S, REPORT_S = 1.0, 60.0
"""Seconds for executors under a profiler to end by themselves, and for the profiler to write its report then."""


class Start(Struct):
    """What the fresh interpreter needs to be the executor."""

    setup: Setup
    request: Fork
    descriptors: list[int]
    arena: int
    drafts: int
    forkserver: int
    """A pidfd; -1: the kernel has none."""
    problem: str


def words(options: Mapping[str, str] | str, directory: str) -> list[str]:
    """Return the command up to the program, as Ray makes it: quotes in values are those of a shell."""
    given = dict(_DEFAULT if isinstance(options, str) else options)
    given["o"] = os.path.join(directory, *shlex.split(given.get("o", _DEFAULT["o"])))
    found = ["nsys", "profile"]
    for name, value in given.items():
        text = value if name == "o" else "".join(shlex.split(value))
        found += [f"--{name}={text}"] if len(name) > 1 else [f"-{name}", text]
    return found


def begin(
    setup: Setup, request: Fork, descriptors: Sequence[int], arena: int, drafts: int, problem: str, parent: int
) -> str:
    """Become nsys. Return only if that is impossible: the cause. `parent`: the forkserver."""
    program = shutil.which("nsys")
    if program is None:
        return (
            f"runtime_env has 'nsight', and {setup.hostname} has no nsys on the PATH of the job. Load the module of "
            "Nsight Systems before the job starts, on all hosts, or install it."
        )
    home = driver_mark.home_of(request.environment) or driver_mark.home_in(setup.job)
    directory = os.path.join(bytes_to_text(home.directory), DIRECTORY)
    command = words(json.loads(request.environment[NSIGHT]), directory)
    try:
        os.makedirs(os.path.dirname(command[command.index("-o") + 1]), exist_ok=True)
        forkserver = os.pidfd_open(parent) if hasattr(os, "pidfd_open") else -1
        memory = os.memfd_create("start", 0)
        start = Start(setup, request, list(descriptors), arena, drafts, forkserver, problem)
        os.pwrite(memory, msgspec.msgpack.encode(start), 0)
        for one in (*descriptors, arena, drafts, memory, *([forkserver] if forkserver >= 0 else [])):
            os.set_inheritable(one, True)
        for stream, pipe in enumerate(descriptors[3:5], 1):
            os.dup2(pipe, stream)
        code = (
            f"import sys; at_start = set(sys.modules); sys.path[:] = {sys.path!r}; "
            f"from mpi_runtime.core.executor.profiled import main; main({memory}, at_start)"
        )
        os.execv(program, [*command, sys.executable, *interpreter_options(), "-c", code])
    except OSError as error:
        return f"nsys cannot be started: {error}"


def main(memory: int, at_start: Container[str]) -> NoReturn:
    """In the fresh interpreter: be the executor."""
    from mpi_runtime.core.executor import forkserver, output

    with open(memory, "rb") as file:
        file.seek(0)
        start = msgspec.msgpack.decode(file.read(), type=Start)
    for one in (*start.descriptors, start.arena, start.drafts):
        os.set_inheritable(one, False)
    if start.forkserver >= 0:
        threading.Thread(target=_end_with, args=(start.forkserver,), daemon=True).start()
    output.install()
    forkserver.load([*forkserver.PRELOADED, *start.setup.job.preload])
    forkserver.be_named_and_listen()
    from mpi_runtime.core.executor import process_setup

    path = start.setup.job.path
    hidden = shadowed(bytes_to_text(path[0]), at_start) if path else []
    process_setup.become(
        start.setup, start.request, start.descriptors, start.arena, start.drafts, hidden, at_start, start.problem
    )


def await_reports(profilers: Collection[int], reap: Callable[[], None]) -> None:
    """Have profilers write their reports. Their executors end with the agent, unless they run user code.

    `reap` removes those that have ended.
    """
    begin = time.monotonic()
    while profilers and (waited_s := time.monotonic() - begin) < REPORT_S:
        for pid in profilers if waited_s > PROFILED_END_S else ():
            kill(pid)
        reap()
        time.sleep(1e-2)


def kill(profiler: int) -> bool:
    """Kill the executor that a profiler has started, and not the profiler, which writes its report then.

    Return whether there was one.
    """
    from mpi_runtime.core.executor import forkserver

    found = [pid for pid in descendants(profiler) if name_of(pid) == forkserver.EXECUTOR]
    for pid in found:
        with contextlib.suppress(OSError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def _end_with(forkserver: int) -> None:
    """End with the forkserver, as other executors do: the kernel ends nsys only."""
    poll = select.poll()
    poll.register(forkserver, select.POLLIN)
    poll.poll()
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGKILL)

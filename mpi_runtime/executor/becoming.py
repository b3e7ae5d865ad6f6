"""How a process that was forked becomes an executor: it gets what user code is to find, makes a client, runs calls."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import socket
import sys
from collections.abc import Container, Sequence
from typing import NoReturn

from mpi_runtime.client.client import Client
from mpi_runtime.executor import executor, scratch
from mpi_runtime.executor.fork_messages import Fork, Setup
from mpi_runtime.executor.shadowing import shadowed
from mpi_runtime.host.spawn import THREAD_VARIABLES
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.transport.draft import Draft, map_memory
from mpi_runtime.transport.messages import bytes_to_text

OOM_SCORE = 1000
"""The most that there is. Ray's workers say the same of themselves."""
SELECTABLE_MAX = 1024
"""`select` takes descriptors below this number."""
HIGH_DESCRIPTORS = 32
"""How far below the limit those of ours begin."""


def become(
    setup: Setup,
    request: Fork,
    descriptors: Sequence[int],
    arena: int,
    drafts: int,
    forget: Sequence[str],
    at_start: Container[str],
    problem: str,
) -> NoReturn:
    """Be an executor until told to exit.

    Args:
        setup: what all executors have in common.
        request: what is this one's own.
        descriptors: those that came with the request.
        arena: the descriptor of the arena.
        drafts: that of the file in which one draft is its own.
        forget: modules that the program means something else by.
        at_start: names of the modules that Python loads before it looks into the directory of any program.
        problem: why there can be no files for it.
    """
    channel, tokens, cancels, output, error = descriptors
    os.dup2(output, 1)
    os.dup2(error, 2)
    os.close(output)
    os.close(error)
    for name in forget:
        del sys.modules[name]
    prepare(setup, request)
    draft = Draft(map_memory(drafts, request.draft))
    os.close(drafts)
    channel, tokens, cancels, arena = (out_of_the_way(one) for one in (channel, tokens, cancels, arena))
    end = socket.socket(fileno=channel)
    client = Client(end, ClientArena(arena), setup.regions, setup.inline_bytes_max)
    client.store.journal = setup.journal
    if not problem:
        problem = _settle_in(client, setup, request, at_start)
    executor.limit_threads(threads_of(request))
    executor.main(client, tokens, cancels, draft, setup, request, problem)
    leave()


def _settle_in(client: Client, setup: Setup, request: Fork, at_start: Container[str]) -> str:
    """Give the process the files that its environment names; why that cannot be, or nothing."""
    environment = request.environment
    if not scratch.needs_files(environment):
        return ""
    for key in (scratch.WORKING_DIR, scratch.PY_MODULES):
        for hash, id in scratch.archives_in(environment, key):
            client.outbox.adopt(id)  # for as long as the process lives: calls that its own calls make name it too
            client.inherited.archives[hash] = id
    return scratch.settle_in(
        lambda id: client.waiting.get([id], None)[0],
        setup.scratch,
        environment,
        lambda path: shadowed(path, at_start),
    )


def prepare(setup: Setup, request: Fork) -> None:
    """Give the process the environment that user code is to find."""
    os.environ.update(request.variables)
    # What the user states for a task is his own word, and goes before ours.
    os.environ.update({name: text for name, text in request.environment.items() if "=" not in name})
    os.environ["OMP_NUM_THREADS"] = str(request.threads)
    cpus = near_devices(request)
    if cpus:
        with contextlib.suppress(OSError):  # processors that this rank was not given: it stays on its own
            os.sched_setaffinity(0, cpus)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # its agent's, which needs many
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, setup.descriptors), hard))
    with contextlib.suppress(OSError):  # a directory that this host does not have
        os.chdir(bytes_to_text(setup.directory))
    sys.path[:] = map(bytes_to_text, setup.path)
    sys.argv[:] = map(bytes_to_text, setup.argv)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Rather this process than its rank, if the kernel has to kill one for memory.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    gc.enable()


def threads_of(request: Fork) -> int:
    """How many threads numerical libraries are to use. One that is loaded asks no more what the user states for it."""
    stated = [request.environment.get(name, "") for name in THREAD_VARIABLES]
    return next((int(text) for text in stated if text.isdecimal()), request.threads)


def out_of_the_way(descriptor: int) -> int:
    """Give a descriptor of ours a high number, and close the low one.

    User code that closes, reads or writes descriptors by number, mistaken or in the way of daemons, means low ones.
    """
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], SELECTABLE_MAX)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(3, limit - HIGH_DESCRIPTORS))
    os.close(descriptor)
    return moved


def near_devices(request: Fork) -> Sequence[int]:
    """The processors for an executor: those near to its GPUs, if they are known and as many as it has threads."""
    near = {cpu for device in request.devices for cpu in device.cpus}
    found = [cpu for cpu in request.cpus if cpu in near]
    return found if len(found) >= request.threads else request.cpus


def leave() -> NoReturn:
    """End an executor as Python ends, without the forkserver's frames below."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)

"""From a forked process to an executor: it sets the environment of its user code, makes a client, and runs calls."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import re
import resource
import socket
import sys
from collections.abc import Container, Mapping, Sequence
from typing import NoReturn

from mpi_runtime import config as configuration
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.executor import driver_mark, multiprocessing_pickles, output, own_scheduler_mark, scratch
from mpi_runtime.core.executor.executor import Executor, limit_threads
from mpi_runtime.core.executor.fork_messages import Fork, Setup
from mpi_runtime.core.host.launchers import settings_for_mpi
from mpi_runtime.core.host.spawn import AS_RAY, THREAD_VARIABLES, shadowed
from mpi_runtime.core.objects import process_facts
from mpi_runtime.core.transport.messages import bytes_to_text
from mpi_runtime.core.transport.unsent_frame import Draft, map_memory
from mpi_runtime.errors import HeadDiedError

OWN_DESCRIPTORS = 5
"""The number of descriptors of each executor. Those of a member of a gang follow."""
OOM_SCORE = 1000
"""The largest value: the kernel kills such a process first when memory runs out. Ray gives its workers the same."""
SELECTABLE_MAX = 1024
"""`select` accepts only descriptors below this number."""
ENDING_S = 5.0
"""The seconds in which a process is expected to end after its last call."""
HIGH_DESCRIPTORS = 32
"""Our descriptors are moved to numbers from this much below the limit."""


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
    """Be an executor until `Exit` arrives.

    Args:
        setup: what all executors have in common.
        request: the request for this executor.
        descriptors: those that came with the request.
        arena: the descriptor of the arena.
        drafts: that of the file in which one draft is its own.
        forget: loaded modules whose names the program uses for modules of its own.
        at_start: names of the modules that Python loads before it looks into the directory of any program.
        problem: why the `runtime_env` cannot be set up; empty: it can.
    """
    channel, tokens, cancels, *pipes = descriptors[:OWN_DESCRIPTORS]
    for stream, pipe in enumerate(pipes, 1):
        os.dup2(pipe, stream)
    home = driver_mark.home_of(request.environment)
    if home is not None:
        forget = shadowed(bytes_to_text(home.path[0]), at_start) if home.path else ()
    for name in forget:
        del sys.modules[name]
    prepare(setup, request)
    import_from(request.environment.get("PYTHONPATH", ""), at_start)
    for name in home.imports if home is not None else ():
        importlib.import_module(name)
    member = None
    if request.member is not None and request.mpi is not None:
        from mpi_runtime.core.gangs import member as gang_member  # not at the top: few executors are members

        numbers = dict(zip(request.mpi.descriptors, descriptors[OWN_DESCRIPTORS:], strict=True))
        member = gang_member.become(request.member, request.mpi.environment, request.mpi.unset, numbers)
    draft = Draft(map_memory(drafts, request.draft))
    os.close(drafts)
    channel, tokens, cancels, arena = (out_of_the_way(one) for one in (channel, tokens, cancels, arena))
    output.mark_in([out_of_the_way(pipe) for pipe in pipes])
    end = socket.socket(fileno=channel)
    executor = Executor(end, arena, tokens, cancels, draft, setup, request, member)
    if not problem:
        problem = _settle_in(executor.client, setup, request, at_start)
    limit_threads(threads_of(request))
    if own_scheduler_mark.brings_one(request.environment):
        current.set_aside(executor.client)
    else:
        current.set_client(executor.client)
    multiprocessing_pickles.install()
    process_facts.is_on(setup.hostname, request.gpu_ids)
    if member is not None:
        member.begin()
    if not problem and any(key in request.environment for key in scratch.HOOKS):
        from mpi_runtime.core.executor import setup_hooks  # not at the top: few jobs have them

        problem = setup_hooks.run(request.environment)
    try:
        executor.run(problem)
    except HeadDiedError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    leave()


def _settle_in(client: Client, setup: Setup, request: Fork, at_start: Container[str]) -> str:
    """Give the process the files of its `runtime_env`. Return why that is impossible, else empty."""
    environment = request.environment
    if not scratch.needs_files(environment):
        return ""
    for key in (scratch.WORKING_DIR, scratch.PY_MODULES):
        for hash, id in scratch.archives_in(environment, key):
            with client.outbox.interrupts:
                client.outbox.adopt(id)  # for the life of the process: calls that its calls submit need it too
            client.inherited.archives[hash] = id
    return scratch.settle_in(
        lambda id: client.waiting.get([id], None)[0],
        setup.scratch,
        environment,
        lambda path: shadowed(path, at_start),
    )


def prepare(setup: Setup, request: Fork) -> None:
    """Set the environment in which user code runs."""
    for name in (*configuration.OF_THIS_JOB, *configuration.with_addresses()):
        os.environ.pop(name, None)
    for name, text in settings_for_mpi(request.threads).items():
        os.environ.setdefault(name, text)
    if not _leaves_devices(setup, request):
        os.environ.update(request.variables)
    os.environ["OMP_NUM_THREADS"] = str(request.threads)
    # What the user states for a task overrides our values.
    set_variables(request.environment)
    cpus = near_devices(request)
    if cpus:
        with contextlib.suppress(OSError):  # processors that this rank must not use: its own affinity remains
            os.sched_setaffinity(0, cpus)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # inherited from its agent, which needs many
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, setup.job.descriptors), hard))
    home = driver_mark.home_of(request.environment) or driver_mark.home_in(setup.job)
    driver_mark.enter(home)
    sys.path[:] = map(bytes_to_text, home.path)
    sys.argv[:] = map(bytes_to_text, home.argv)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # If memory runs out, the kernel should kill this process and not its rank.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    gc.enable()


def _leaves_devices(setup: Setup, request: Fork) -> bool:
    """Whether the variables that show the process its devices stay as they are, as in Ray with `--as-ray`.

    Ray leaves them to processes that have no device, and to all if a variable demands it. Libraries that choose a
    device by the rank of a process set that variable.
    """
    if AS_RAY not in setup.job.preload:
        return False
    given = {**configuration.environment(), **request.environment}
    if not request.gpu_ids:
        return given.get("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "").lower() not in ("1", "true")
    return any(given.get(f"RAY_EXPERIMENTAL_NOSET_{name}", "").lower() in ("1", "true") for name in request.variables)


def set_variables(environment: Mapping[str, str]) -> None:
    """Set the variables of a `runtime_env`. As in Ray, `$NAME` and `${NAME}` in texts refer to what the process has."""
    for name, text in sorted(environment.items()):
        if "=" not in name:
            os.environ[name] = re.sub(r"\$\{\w+\}", "", os.path.expandvars(text)) if "$" in text else text


def import_from(stated: str, at_start: Container[str]) -> None:
    """Find modules in the directories of the PYTHONPATH of a `runtime_env`, as a Python that starts with it does."""
    text = configuration.environment().get("PYTHONPATH", "") if stated else ""  # with what `$NAME` stood for
    found = [path for path in text.split(os.pathsep) if path and path not in sys.path]
    for path in found:
        for name in shadowed(path, at_start):
            del sys.modules[name]
    sys.path[1:1] = found  # the directory of the program stays first


def threads_of(request: Fork) -> int:
    """Return the number of threads for numerical libraries. Loaded ones ignore the variables, so they are read here."""
    variables = configuration.environment()
    names = (*THREAD_VARIABLES, "OMP_NUM_THREADS")
    stated = [variables.get(name, "") for name in names if name in request.environment]
    return next((int(text) for text in stated if text.isdecimal()), request.threads)


def out_of_the_way(descriptor: int) -> int:
    """Move a descriptor of ours to a high number, and return that.

    User code that uses descriptors by number, by mistake or as daemons close all of theirs, means low ones.
    """
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], SELECTABLE_MAX)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(3, limit - HIGH_DESCRIPTORS))
    os.close(descriptor)
    return moved


def near_devices(request: Fork) -> Sequence[int]:
    """Return the processors for an executor: those near its GPUs, if they are known and at least as many as threads."""
    near = {cpu for device in request.devices for cpu in device.cpus}
    found = [cpu for cpu in request.cpus if cpu in near]
    return found if len(found) >= request.threads else request.cpus


def _report_what_stays() -> None:
    import threading

    threads = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    what = f"threads that are not daemons: {', '.join(threads)}" if threads else "functions registered with atexit"
    print(
        f"This process ran its last call {ENDING_S:g} s ago, and has not ended: it waits for {what}. Until it has "
        "ended, it keeps its CPUs and GPUs.",
        file=sys.stderr,
        flush=True,
    )


def leave() -> NoReturn:
    """End an executor as Python does at its end, but without returning to the frames of the forkserver."""
    import atexit
    import threading

    reminder = threading.Timer(ENDING_S, _report_what_stays)
    reminder.daemon = True
    with contextlib.suppress(RuntimeError):  # the system refuses a thread
        reminder.start()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    output.flush()
    os._exit(0)

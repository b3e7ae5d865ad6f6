"""Starts further Python processes of our own: the head, forkservers, helpers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from mpi_runtime.config import environment
from mpi_runtime.core.host import signals

if TYPE_CHECKING:
    import subprocess

COSTLY = ("numpy", "mpi_runtime.tune.trials.runner", "mpi_runtime.batch.run.attempts")
"""Modules that take long to load. They are loaded before executors are forked if the first function or its submitter
uses them, so they must start no threads that stay and use no GPUs. The second one runs trials in executors, the third
one commands."""
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Libraries read these variables once, when they are loaded, beside OMP_NUM_THREADS, which the runtime sets."""
AS_RAY = "mpi_runtime.as_ray.install"
"""Its import gives `import ray` the same meaning in executors as in the driver."""
PRELOADED_IF_USED = (*COSTLY, AS_RAY)
"""Modules that executors load at the start if the driver has loaded them by `init()`."""


END_LIMIT_S = 1.0
"""Seconds that a helper may take to end."""
_REMEMBER = "at_start = set(sys.modules)"
_LIST = "from mpi_runtime import listings; listings.for_all.__enter__()"
"""Such a process runs no user code, so it finds all modules by listings."""


def start_python(
    code: str,
    descriptors: Sequence[int],
    env: Mapping[str, str],
    path: Sequence[str],
    keep_all: bool = False,
    own_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start an interpreter like this one, with the same options.

    From its first moment on it ignores the signals that are for the driver.

    Args:
        code: the code to run. `at_start` are the names of the modules that Python has loaded before it.
        descriptors: are inherited under the same numbers.
        env: the environment of the new process.
        path: its module path; see `library_path`.
        keep_all: also pass on every other inheritable descriptor. Launchers pass some to their processes.
        own_session: make it the leader of a session, so that killing this process's group does not kill it.
    """
    import subprocess  # not at the top: most ranks start nothing

    if keep_all:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
    # The path is set before any import, so that no module of the user is taken for one of the library.
    begin = f"import sys; sys.path[:] = {list(path)!r}; {signals.IGNORE}; {_REMEMBER}; {_LIST}"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.FOR_DRIVER)  # inherited, until the child ignores it
    try:
        return subprocess.Popen(
            [sys.executable, *interpreter_options(), "-c", f"{begin}; {code}"],
            stdin=subprocess.DEVNULL,
            env=dict(env),
            close_fds=not keep_all,
            pass_fds=() if keep_all else descriptors,
            start_new_session=own_session,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_helper(
    code: str, descriptors: Sequence[int], path: Sequence[str], own_session: bool = False
) -> subprocess.Popen[bytes]:
    """Start an interpreter for a short task of a rank: without the rank's place in the job of the launcher."""
    from mpi_runtime.core.host.launchers import child_environment  # not at the top: forkservers load this module

    return start_python(code, descriptors, child_environment(environment()), path, own_session=own_session)


def wait_for_end(helper: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a helper that ends; None: it hangs in a driver, and may never end."""
    import subprocess

    try:
        return helper.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None


def name_process(name: str) -> None:
    """Set the name under which `ps` and `top` show this process, at most 15 characters."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)


def interpreter_options() -> list[str]:
    """Return the options with which to start an interpreter like this one."""
    import subprocess

    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    try:
        os.getcwd()
    except FileNotFoundError:
        # Python 3.13.0 fails to import anything in a directory that is gone, unless it need not look there for modules.
        if sys.version_info >= (3, 11):
            options.append("-P")
    return options


def library_path() -> list[str]:
    """Return the module path for processes that run no user code: the program's directory comes last.

    A file there may have the name of a module that we need. The directory stays in the path because this package itself
    may be found only there.
    """
    return [*sys.path[1:], *sys.path[:1]]


def shadowed(directory: str, at_start: Container[str]) -> list[str]:
    """Return the loaded modules for which the directory of the program has others of the same name.

    Executors unload them, so that an import in a task gives the same module as in the driver. `at_start`: names of the
    modules that Python loads before it looks there.
    """
    from importlib.machinery import PathFinder  # not at the top: drivers load this module, and do not need it

    loaded = {name.partition(".")[0] for name in sys.modules}
    try:
        there = {name.partition(".")[0] for name in os.listdir(directory)}
    except OSError:
        return []
    hidden = set()
    for name in loaded & there - {"__main__", "mpi_runtime"}:
        spec = None if name in at_start else PathFinder.find_spec(name, [directory])
        if spec is not None and spec.origin not in (None, getattr(sys.modules.get(name), "__file__", None)):
            hidden.add(name)
    return [name for name in sys.modules if name.partition(".")[0] in hidden]

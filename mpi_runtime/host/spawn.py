"""Starting further Python processes of our own: the head and the forkservers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

COSTLY = ("numpy",)
"""What executors find loaded if their first function, or whoever submits it, uses it: it takes long, and a program
without it need not wait. Nothing that starts threads or knows GPUs: it is loaded before executors are forked."""
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What these ask once, when they are loaded, beside OMP_NUM_THREADS, which is ours to set."""
PRELOADED_IF_USED = (*COSTLY, "mpi_runtime.as_ray.installed")
"""What executors find loaded if the driver has loaded it by `init()`. The last makes `import ray` mean in them what it
means there."""


def start_python(
    code: str,
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    path: Sequence[str],
    keep_all: bool = False,
    own_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start an interpreter like this one, with the same options.

    Args:
        code: what to run.
        descriptors: to be inherited under the same numbers.
        environment: of the new process.
        path: its module path; see `library_path`.
        keep_all: also pass on every other inheritable descriptor: launchers hand some to their processes.
        own_session: make it the leader of a session, so that who kills this process's group does not kill it too.
    """
    import subprocess  # not at the top: most ranks start nothing

    if keep_all:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
    return subprocess.Popen(
        # The path before any import: none may find a module of the user's that has the name of another.
        [sys.executable, *_interpreter_options(), "-c", f"import sys; sys.path[:] = {list(path)!r}; {code}"],
        stdin=subprocess.DEVNULL,
        env=dict(environment),
        close_fds=not keep_all,
        pass_fds=() if keep_all else descriptors,
        start_new_session=own_session,
    )


def name_process(name: str) -> None:
    """Have `ps` and `top` show this process under a name of at most 15 characters."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)


def _interpreter_options() -> list[str]:
    import subprocess

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]


def library_path() -> list[str]:
    """The module path of a program for processes that run none of it: the program's own directory comes last.

    There a file may have the name of a module that we need. Only this package itself may be found nowhere else.
    """
    return [*sys.path[1:], *sys.path[:1]]

"""Starting further Python processes of our own: the head and the forkservers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


def start_python(
    code: str, descriptors: Sequence[int], environment: Mapping[str, str], keep_all: bool = False
) -> subprocess.Popen[bytes]:
    """Start an interpreter that runs `code` with this process's module path.

    Args:
        code: what to run.
        descriptors: to be inherited under the same numbers.
        environment: of the new process.
        keep_all: also pass on every other inheritable descriptor: launchers hand some to their processes.
    """
    # First of all, before any import could find a module of the user's that has the name of another. For the same
    # reason the directory of the user's script comes last: only it may happen to be where this package is found.
    path = [*sys.path[1:], *sys.path[:1]]
    if keep_all:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"],
        stdin=subprocess.DEVNULL,
        env=dict(environment),
        close_fds=not keep_all,
        pass_fds=() if keep_all else descriptors,
    )

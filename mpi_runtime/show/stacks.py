"""The stack of a running Python process, by py-spy: it reads the memory of the process, which does not notice.

Of a process on another host the job is asked: the rank there runs py-spy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from mpi_runtime.scheduler.protocol.window_questions import Stack

LIMIT_S = 20.0
ELSEWHERE_S = 25.0
"""The most seconds to wait for another host."""
PAUSE_S = 0.2


def stack(pid: int) -> str:
    """Return the stacks of all threads of a process, or why they cannot be read."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    program = beside if os.path.exists(beside) else shutil.which("py-spy")
    if program is None:
        return "A stack needs py-spy: pip install py-spy"
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"py-spy has failed: {error}"
    if done.returncode:
        hint = ""
        if "ermission" in done.stderr:
            hint = "\nThe system lets a process read the memory of its own children only: see kernel.yama.ptrace_scope."
        return f"py-spy has failed: {done.stderr.strip()}{hint}"
    return done.stdout.strip()


def elsewhere(ask: Callable[[Stack], str | None], host: str, pid: int) -> str:
    """Return the same of a process of a job on another host. `ask`: asks the job's window."""
    end_s = time.monotonic() + ELSEWHERE_S
    while time.monotonic() < end_s:
        try:
            text = ask(Stack(host, pid))
        except LookupError as error:
            return f"The stack cannot be read: {error}"
        if text is None:
            return "The job has ended."
        if text:
            return text
        time.sleep(PAUSE_S)
    return f"{host} has not answered in {ELSEWHERE_S:g} s: process {pid} has ended, or its rank is very busy."

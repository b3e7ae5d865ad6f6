"""The stack of a running Python process, by py-spy: it reads the memory of the process, which does not notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

LIMIT_S = 20.0


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

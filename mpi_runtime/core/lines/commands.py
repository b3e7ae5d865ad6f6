"""The commands that reach the host of a session, ssh and srun, and what their failures mean."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mpi_runtime.core.host.launchers import child_environment
from mpi_runtime.files.session_files import Session

CONNECT_LIMIT_S = 10
"""Seconds that ssh may take to reach the host."""
DIAL_LIMIT_S = 45.0
"""Seconds until the other end must have answered: srun waits for a busy controller."""
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")


class Way(msgspec.Struct):
    """A way to the host of a session."""

    name: str
    """For people."""
    command: list[str]
    is_slow: bool = False
    """Whether large values had better take another way."""


def ways_to(session: Session, file: Path, python: str) -> list[Way]:
    """Return the ways to a session, the first one to be tried first.

    Args:
        session: its file's content.
        file: the path of its file.
        python: of this program, for a session whose file names none.
    """
    words = [session.python or python, "-m", "mpi_runtime", "session", "pipe", "--file", str(file)]
    ways = []
    if shutil.which("ssh"):
        options = ("BatchMode=yes", f"ConnectTimeout={CONNECT_LIMIT_S}", "ControlPath=none")
        ssh = ["ssh", "-T", "-a", "-x", *(word for option in options for word in ("-o", option)), session.host]
        ways.append(Way(f"ssh {session.host}", [*ssh, f"cd / && exec {shlex.join(words)}"]))
    if session.step_of and shutil.which("srun"):
        # A step beside those that use the allocation. Without its own memory and devices it waits for none.
        srun = ["srun", f"--jobid={session.step_of}", "--overlap", "-N1", "-n1", "-w", session.host]
        srun += ["--mpi=none", "--mem=0", "--gres=none", "--chdir=/"]
        ways.append(Way(f"srun --jobid={session.step_of} --overlap", [*srun, *words], is_slow=True))
    return ways


def environment_for(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of such a command: that of this program, without its place in a job."""
    env = child_environment(base)
    return {name: text for name, text in env.items() if not name.startswith("SLURM_") or name in _KEPT}


_CURES = (
    # A part of the message in lower case, and what helps.
    ("permission denied", "ssh must log in without a question: a key without a passphrase, or one in an ssh-agent"),
    ("host key verification failed", "log in by hand once: ssh asks whether the host is the right one"),
    ("could not resolve hostname", "name the host in ~/.ssh/config, if it has another name here"),
    ("unrecognized option", "this srun has no --overlap (Slurm before 20.11): only ssh can reach the session"),
    ("no module named", "the Python there has no mpi_runtime: start the session with the Python of this program"),
    ("no such file or directory", "its Python must have the same path on both hosts"),
    ("not found", "its Python must have the same path on both hosts"),
    ("invalid job id", "the batch job of the session has ended"),
    ("job/step already completing", "the batch job of the session has ended"),
)


def explained(way: Way, problem: str, said: str) -> str:
    """Return why a way has failed: the last line that its command wrote, and advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1].removeprefix("mpi_runtime: ") if lines else problem
    cure = next((cure for part, cure in _CURES if part in said.lower()), "")
    return f"`{way.name}`: {last}" + (f" ({cure})" if cure else "")

"""Slurm's commands, run to their end; what they complain about becomes an error that says what to do."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 120.0
"""How long a command may take: a busy controller answers late, but it answers."""

_CURES = (
    # What Slurm says in lower case, and what helps.
    ("invalid partition", "The partitions there are: sinfo -o '%R %l %G'"),
    ("invalid account", "Your accounts: sacctmgr show associations user=$USER format=account,partition"),
    ("invalid qos", "What you may use: sacctmgr show associations user=$USER format=account,qos"),
    ("memory specification", "What the nodes have, in MB: sinfo -o '%R %m'"),
    ("generic resource", "What the nodes have: sinfo -N -o '%N %R %G'"),
    ("node configuration is not available", "What the nodes have: sinfo -o '%R %D %c %m %G'"),
    ("more processors requested", "What the nodes have: sinfo -o '%R %D %c %m %G'"),
    ("node count specification", "How many nodes a job may have: scontrol show partition"),
    ("time limit", "The longest time that each partition allows: sinfo -o '%R %l'"),
    ("configuration source", "Slurm is not set up on this host: use a login node of the cluster."),
    ("unable to contact slurm controller", "The controller does not answer: sinfo says when it is back."),
    ("invalid job id", "Slurm forgets jobs a few minutes after their end; sacct -j JOB may still know it."),
)  # fmt: skip
_WITHOUT_TERM = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
"""What is ignored before stays ignored."""


class SlurmError(RuntimeError):
    """Slurm refused, or could not be asked; the message has Slurm's own words and what helps."""


def call(
    command: Sequence[str],
    cwd: str | Path | None = None,
    stdin: str = "",
    limit_s: float = LIMIT_S,
    ends_us: bool = False,
) -> str:
    """Run a command of Slurm and return what it prints. One that `ends_us` outlives the SIGTERM that it brings about.

    SlurmError: it is not there, does not end, or ends with a code other than 0.
    """
    words = [*_WITHOUT_TERM, *command] if ends_us else command
    try:
        done = subprocess.run(
            # Names of files need not be UTF-8: as Python reads them they are written.
            words, cwd=cwd, input=stdin, capture_output=True, encoding="utf-8", errors="surrogateescape",
            timeout=limit_s,
        )  # fmt: skip
    except FileNotFoundError:
        raise SlurmError(
            f"there is no {command[0]} here. Slurm's commands are on the login nodes of a cluster and on its compute "
            "nodes; inside a container they may have to be bound into it."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{shlex.join(command)} has not answered within {limit_s:g} s") from None
    if done.returncode:
        raise SlurmError(explain(command[0], done.stderr.strip() or f"it ended with {done.returncode}"))
    return done.stdout


def explain(name: str, words: str) -> str:
    """Return what a command has said, without its prefixes, and what helps against it."""
    lines = [line.removeprefix(f"{name}: ").removeprefix("error: ") for line in words.splitlines()]
    text = f"{name} says: " + "\n".join(dict.fromkeys(filter(None, lines)))
    cure = next((cure for part, cure in _CURES if part in words.lower()), "")
    return f"{text}\n{cure}" if cure else text

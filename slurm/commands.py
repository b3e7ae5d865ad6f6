"""Runs commands of a batch system. Failures become errors with the command's own message and advice."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpi_runtime.slurm.environment import environment

LIMIT_S = 120.0
"""Seconds that a command may take. A busy controller answers late, but it answers."""

Cures = Sequence[tuple[str, str]]
"""A part of an error message in lower case, and what helps."""
_ANSWERS = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}
"""Indices of arrays in full, not cut after 64 characters; times as ISO 8601, whatever the user has set."""
_WITHOUT_TERM = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
"""A signal that is ignored before `exec` stays ignored."""


class SlurmError(RuntimeError):
    """The batch system refused a request, or could not be reached. The message has its words and advice."""


def call(
    command: Sequence[str],
    cwd: str | Path | None = None,
    stdin: str = "",
    limit_s: float = LIMIT_S,
    ends_us: bool = False,
    env: Mapping[str, str] | None = None,
    cures: Cures = (),
    whose: str = "Slurm",
) -> str:
    """Run a command and return its output. A command that `ends_us` survives the SIGTERM that it causes.

    `env`: its environment; None: that of this process, and what makes Slurm's answers the same everywhere.
    `cures`: advice for its error messages.
    `whose`: the name of the batch system.

    Raises:
        SlurmError: the command does not exist, does not end, or ends with a code other than 0.
    """
    words = [*_WITHOUT_TERM, *command] if ends_us else command
    try:
        done = subprocess.run(
            # Names of files need not be UTF-8. Bytes that are not are passed through unchanged.
            words, cwd=cwd, input=stdin, capture_output=True, encoding="utf-8", errors="surrogateescape",
            timeout=limit_s, env={**environment(), **_ANSWERS} if env is None else env,
        )  # fmt: skip
    except FileNotFoundError:
        raise SlurmError(
            f"there is no {command[0]} here. {whose}'s commands are on the login nodes of a cluster and on its compute "
            "nodes; inside a container they may have to be bound into it."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{shlex.join(command)} has not answered within {limit_s:g} s") from None
    if done.returncode:
        raise SlurmError(
            explain(command[0], (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}", cures)
        )
    return done.stdout


def explain(name: str, words: str, cures: Cures = ()) -> str:
    """Return an error message of the command `name` without its prefixes, followed by advice if we have any."""
    lines = [line.removeprefix(f"{name}: ").removeprefix("error: ") for line in words.splitlines()]
    text = f"{name} says: " + "\n".join(dict.fromkeys(filter(None, lines)))
    cure = next((cure for part, cure in cures if part in words.lower()), "")
    return f"{text}\n{cure}" if cure else text

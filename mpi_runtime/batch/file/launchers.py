"""The option `launcher` of a command: which launchers there are, and what goes with them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mpi_runtime.batch.file.templates import names_in

SELF = "self"
LAUNCHERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun")
"""Programs that may be a launcher of ranks: their options for hosts are known."""


def launcher_of(value: Any) -> str:
    """Read the option `launcher`.

    Raises:
        ValueError: it is neither a known launcher nor `SELF`.
    """
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")
    text = value.strip()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"must be words for a shell, not {value!r}: {error}") from None
    if words != [SELF] and (not words or os.path.basename(words[0]) not in LAUNCHERS):
        known = ", ".join(LAUNCHERS)
        raise ValueError(
            f"must begin with one of {known}, with options of yours, or be 'self' if the command itself starts its "
            f"ranks, with {{ranks}} and {{hostfile}}; not {value!r}"
        )
    return text


def wrong_with_launcher(fields: Mapping[str, Any], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Problems of a command that a launcher starts, and of one that has none: the option and a message, for each.

    `fields` are those that could be read; `texts` the names of those that may have placeholders, besides `env`.
    """
    launcher = fields.get("launcher", "")
    shown = [*(fields[name] for name in texts if name in fields), *fields.get("env", {}).values()]
    names = {name for text in shown if "{" in text for name in names_in(text)}
    if not launcher:
        why = "{hostfile} is for a command that starts its ranks itself: set launcher to 'self'"
        return [("command", why)] if "hostfile" in names else []
    wrong = []
    if "rank" in names:
        why = "{rank} has no value with a launcher: all ranks have one line. Their environment has their number"
        wrong.append(("command", why))
    if fields.get("pin"):
        wrong.append(("pin", "pin has no meaning with a launcher, which binds its ranks by options of its own"))
    return wrong

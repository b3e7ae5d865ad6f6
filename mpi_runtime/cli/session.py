"""The verb `session`: which module has the verb below it. `pipe` starts with each line, so it loads no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser


def session(words: Sequence[str]) -> int:
    """Run a verb below `session`, and return the exit code."""
    if words[:1] == ["pipe"]:
        from mpi_runtime.core.lines.pipe import pipe  # none of these at the top: each verb loads its own

        return pipe(words[1:])
    if words[:1] == ["run"]:
        from mpi_runtime.cli.session_runs import run

        return run(words[1:])
    from mpi_runtime.cli.sessions import perform

    return perform(words)


def session_parser() -> ArgumentParser:
    """The arguments of `mpi-runtime session`."""
    from mpi_runtime.cli.sessions import session_parser as parser

    return parser()

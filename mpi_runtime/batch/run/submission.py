"""Submits the tasks of commands."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import msgspec

import mpi_runtime
from mpi_runtime import ObjectRef
from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.values import CONTINUE
from mpi_runtime.batch.memory.results import CommandError, CommandResult
from mpi_runtime.batch.run.attempts import RetriedError, amounts, run_command, run_ranks
from mpi_runtime.batch.run.ranks import GRACE_S

GATHER_US = 50_000
"""How long the result of a command may wait to be sent with others, while its process has more to run."""
LOST_MAX = 3
"""How often a command is retried after its process or rank was lost. Its own `retries` are for failures."""
_RUN: Any = mpi_runtime.remote(max_retries=LOST_MAX)(run_command)
_RUN_RANKS: Any = mpi_runtime.remote(num_ranks=1, mpi_grace=GRACE_S, _starts_mpi=False)(run_ranks)


def submit(
    made: Command,
    directory: str,
    raises: bool,
    names: tuple[str, ...] = (),
    refs: Sequence[ObjectRef[Any]] = (),
    path_us: int = 0,
    until_s: float = 0.0,
) -> ObjectRef[Any]:
    """Submit the task of a command. Its value is a `CommandResult`; unless it `raises`, in msgpack.

    Args:
        made: the command.
        directory: of its output.
        raises: whether the task fails with the command.
        names: parameters that have references.
        refs: these references, then others to wait for.
        path_us: how long it and the longest chain after it take, in microseconds; 0: not known.
        until_s: it does not begin after this time by the clock of this host: then its value is empty. 0: whenever.
    """
    name = made.name or "command"
    if not raises:  # thousands of names would be thousands of functions to the head
        name = name.rpartition(".")[0] or "command"
    options = {
        "name": name,
        "num_cpus": made.num_cpus,
        "num_gpus": made.num_gpus,
        "memory": made.memory or None,
        "priority": made.priority,
        "time_limit": None if made.time_limit is None else made.time_limit + made.grace,
        "journal": None if raises else False,  # a batch has a journal of its own
        "_account": (made.group, made.group_weight, made.group_limit) if made.group else None,
        "_path_us": path_us,
        "_alternatives": tuple(map(amounts, made.alternatives[1:])),
        "expect": made.expect,
        "_gather_us": 0 if raises else GATHER_US,
    }
    has_gang = made.ranks > 1 or bool(made.launcher)
    if has_gang:
        options |= {
            "num_ranks": made.ranks,
            "ranks_per_node": made.ranks_per_node or None,
            "max_retries": LOST_MAX + made.retries,
            "retry_exceptions": (RetriedError,) if made.retries else False,
        }
    call = _call(tuple(made.resources.items()), *options.items())
    sent_s = time.time() if until_s else 0.0  # a journal knows calls again by their arguments
    found: ObjectRef[Any] = call.remote(
        msgspec.msgpack.encode(made), directory, raises, sent_s, until_s, ",".join(names), *refs
    )
    return _SETTLE.remote([found]) if has_gang and raises and made.on_failure == CONTINUE else found


@mpi_runtime.remote(num_cpus=0)
def _SETTLE(refs: list[ObjectRef[Any]]) -> CommandResult:
    """The result of a command with several ranks, also if it has failed: its task raises then, to end the others."""
    try:
        found: CommandResult = mpi_runtime.get(refs[0])
    except CommandError as error:
        return error.result
    return found


@functools.lru_cache(maxsize=1000)
def _call(resources: tuple[tuple[str, float], ...], *options: tuple[str, Any]) -> Any:
    """The remote function with these options. The head receives each once, with its code."""
    given = dict(options)
    if "retry_exceptions" in given:
        classes = given["retry_exceptions"]
        return _RUN_RANKS.options(
            resources=dict(resources), **{**given, "retry_exceptions": [*classes] if classes else False}
        )
    return _RUN.options(resources=dict(resources), **given)

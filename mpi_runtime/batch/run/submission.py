"""Submits commands as tasks: the public `command` and `array`, and what the loop of a batch submits."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

import mpi_runtime
from mpi_runtime import ObjectRef
from mpi_runtime.batch.file.model import CONTINUE, SKIP, Command, as_first_packed, call_options
from mpi_runtime.batch.file.options import OPTIONS, read_command
from mpi_runtime.batch.file.parameters import Row, combined, product
from mpi_runtime.batch.history.outputs import SharedFiles
from mpi_runtime.batch.history.results import CommandError, CommandResult
from mpi_runtime.batch.run.attempts import RetriedError, run_command, run_ranks
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
        **call_options(made, path_us),
        "name": name,
        "journal": None if raises else False,  # a batch has a journal of its own
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
    call = _call(tuple(options.pop("resources").items()), *options.items())
    sent_s = time.time() if until_s else 0.0  # a journal knows calls again by their arguments
    data = as_first_packed(made) if raises else msgspec.msgpack.encode(made)
    found: ObjectRef[Any] = call.remote(data, directory, raises, sent_s, until_s, ",".join(names), *refs)
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


DIRECTORY = "batch-output"
"""The default directory for the output of commands."""


def command(
    text: str, *, after: Sequence[ObjectRef[Any]] = (), directory: str = DIRECTORY, **options: Any
) -> ObjectRef[CommandResult]:
    """Run a shell command as a task.

    Args:
        text: for its shell (`/bin/sh`), with placeholders: `{seed}` is the value of a parameter, quoted for the shell.
        after: results of commands or of any other calls, which are ready before it starts.
        directory: the directory of its output, `NAME.out`.
        **options: options of commands, as the guide on batches lists them, and parameters: every other keyword is
            the value of the placeholder of its name. A reference stands for its value.

    Returns:
        A reference to a `CommandResult`. If the command fails, `get` raises a `CommandError`, and calls that have the
        result as an argument fail with it; with `on_failure="continue"` a failed command has a result like any other.

    Raises:
        ValueError: an option or a parameter is wrong. The message lists all problems.

    Example:
        ```python
        from mpi_runtime import batch

        result = ray.get(batch.command("echo {word} > words; wc -w < words", word="two words", num_cpus=1))
        print(open(result.stdout).read().strip())  # 2
        ```
    """
    own = {name: value for name, value in options.items() if name in OPTIONS}
    values = {name: value for name, value in options.items() if name not in OPTIONS}
    return _submitted(_made(text, own, values), values, after, directory)


def array(
    text: str,
    *,
    rows: Iterable[Row] | None = None,
    after: Sequence[ObjectRef[Any]] = (),
    directory: str = DIRECTORY,
    **options: Any,
) -> list[ObjectRef[CommandResult]]:
    """Run a shell command once for each row of parameters.

    Args:
        text: as in `command`.
        rows: the values of parameters by name, one mapping for each command: see `product`, `zipped` and `rows`.
        after: as in `command`, for all commands.
        directory: as in `command`.
        **options: options of commands, and parameters: every other keyword is a list of values. Each combination runs,
            with each row of `rows`. With `name="train"` the names are `train.0`, `train.1` and so on.

    Returns:
        A reference to a `CommandResult` for each command, in the order of the rows.

    Raises:
        TypeError: a parameter is a single value.
        ValueError: an option or a parameter is wrong. The message lists all problems.
    """
    own = {name: value for name, value in options.items() if name in OPTIONS}
    parts = [list(rows)] if rows is not None else []
    parts.append(product(**{name: value for name, value in options.items() if name not in OPTIONS}))
    found = combined(parts)
    names = [{"name": f"{own['name']}.{number}"} if "name" in own else {} for number in range(len(found))]
    commands = [_made(text, {**own, **name}, row) for row, name in zip(found, names, strict=True)]
    files = SharedFiles()
    files.add(commands)
    return [_submitted(files.marked(made), row, after, directory) for made, row in zip(commands, found, strict=True)]


def _made(text: str, options: dict[str, Any], values: Mapping[str, Any]) -> Command:
    known = {name: "" if isinstance(value, ObjectRef) else value for name, value in values.items()}
    made, wrong = read_command(text, options, known)
    if wrong or made is None:
        raise ValueError("; ".join(message for _, message in wrong))
    if made.on_failure not in (SKIP, CONTINUE):
        raise ValueError('on_failure="stop" is for batches in files; here get() raises, and the program decides')
    if made.shares or not made.rerun:
        raise ValueError("batch_resources and rerun are for batches in files, with a journal that all jobs share")
    return made


def _submitted(
    made: Command, values: Mapping[str, Any], after: Sequence[ObjectRef[Any]], directory: str
) -> ObjectRef[CommandResult]:
    later = {name: value for name, value in values.items() if isinstance(value, ObjectRef)}
    return submit(made, directory, True, (*later,), (*later.values(), *after))

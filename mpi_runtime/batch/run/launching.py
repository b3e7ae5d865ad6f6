"""The public functions that run commands as tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpi_runtime import ObjectRef
from mpi_runtime.batch.file.model import OPTIONS, Command, read_command
from mpi_runtime.batch.file.parameters import Row, combined, product
from mpi_runtime.batch.file.values import CONTINUE, SKIP
from mpi_runtime.batch.memory.outputs import SharedFiles
from mpi_runtime.batch.memory.results import CommandResult
from mpi_runtime.batch.run.submission import submit

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

"""Commands as tasks: a task whose body starts the program, on top of the public functions."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

import mpi_runtime
from mpi_runtime.batch.model import CONTINUE, OPTIONS, SKIP, Command, read_command, text_of
from mpi_runtime.batch.outputs import SharedFiles
from mpi_runtime.batch.parameters import Row, combined, product
from mpi_runtime.batch.program import Ending, claimed_cpus, run_program
from mpi_runtime.batch.results import CommandError, CommandResult
from mpi_runtime.batch.templates import fill, names_in, plain
from mpi_runtime.client import current
from mpi_runtime.client.refs import ObjectRef
from mpi_runtime.config import COMMAND_OF, NUM_CPUS, RESOURCES, environment, scratch_directory
from mpi_runtime.executor import scratch

DIRECTORY = "batch-output"
"""Where the output of commands is written that name no other place."""
GATHER_US = 20_000
"""How long the end of a command of a batch may be told later, together with others, if its process has more to run."""
LOST_MAX = 3
"""How often a command is run again whose process or rank was lost. How often if it fails, the command says itself."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def command(
    text: str, *, after: Sequence[ObjectRef[Any]] = (), directory: str = DIRECTORY, **options: Any
) -> ObjectRef[CommandResult]:
    """Run a shell command as a task.

    Args:
        text: for `/bin/sh -c`, with placeholders: `{seed}` is the value of a parameter, quoted for the shell.
        after: references to what is ready before it starts: results of commands or of any other calls.
        directory: where its output is written, as `NAME.out`.
        **options: options of commands, as the guide on batches lists them, and parameters: every other keyword is
            the value of the placeholder of its name. The value of a reference is put there when it is ready.

    Returns:
        A reference to a `CommandResult`. If the command fails, `get` raises a `CommandError`, and calls that have the
        result as an argument fail with it; with `on_failure="continue"` a failed command has a result like any other.

    Raises:
        ValueError: an option or a parameter is wrong. The message has all that is wrong.

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
        after: as in `command`, for all of them.
        directory: as in `command`.
        **options: options of commands, and parameters: every other keyword is a list of values. Every combination is
            run, with every row of `rows`. With `name="train"` the commands are called `train.0`, `train.1` and so on.

    Returns:
        A reference to a `CommandResult` for each command, in the order of the rows.

    Raises:
        TypeError: a parameter is a single value.
        ValueError: an option or a parameter is wrong. The message has all that is wrong.
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
    return made


def _submitted(
    made: Command, values: Mapping[str, Any], after: Sequence[ObjectRef[Any]], directory: str
) -> ObjectRef[CommandResult]:
    later = {name: value for name, value in values.items() if isinstance(value, ObjectRef)}
    return submit(made, directory, True, (*later,), (*later.values(), *after))


def submit(
    made: Command,
    directory: str,
    raises: bool,
    names: tuple[str, ...] = (),
    refs: Sequence[ObjectRef[Any]] = (),
    path_us: int = 0,
) -> ObjectRef[Any]:
    """Submit the task of a command. Its value is a `CommandResult`; unless it `raises`, in msgpack.

    Args:
        made: the command.
        directory: of its output.
        raises: whether the task fails with the command.
        names: the parameters whose values are references.
        refs: first the values of these, then what else is waited for.
        path_us: how long it and the longest chain after it take, in microseconds; 0: nothing is known.
    """
    limit = None if made.time_limit is None else made.time_limit + made.grace
    name = made.name or "command"
    if not raises:  # thousands of names would be thousands of functions to the head
        name = name.rpartition(".")[0] or "command"
    account = (made.group, made.group_weight, made.group_limit) if made.group else None
    own = (made.num_cpus, made.num_gpus, made.memory, tuple(made.resources.items()))
    call = _call(raises, own, made.priority, limit, name, account, path_us)
    found: ObjectRef[Any] = call.remote(msgspec.msgpack.encode(made), directory, raises, ",".join(names), *refs)
    return found


@functools.lru_cache(maxsize=1000)
def _call(
    raises: bool, own: tuple[float, float, int, tuple[tuple[str, float], ...]], priority: int, limit: float | None,
    name: str, account: tuple[str, float, int] | None, path_us: int,
) -> Any:  # fmt: skip
    """The remote function with these options: each is told to the head once, with its code.

    `own` are CPUs, GPUs, bytes of memory and custom resources.
    """
    num_cpus, num_gpus, memory, resources = own
    journal = None if raises else False  # a batch has a journal of its own
    return _RUN.options(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        memory=memory or None,
        resources=dict(resources),
        priority=priority,
        time_limit=limit,
        name=name,
        journal=journal,
        _account=account,
        _path_us=path_us,
        _gather_us=0 if raises else GATHER_US,
    )


def _run(data: bytes, directory: str, raises: bool, names: str, *values: Any) -> CommandResult | bytes:
    """The body of the task: run a command, and again where it asks for that.

    Args:
        data: the command in msgpack: plain values are serialised in a tenth of the time of others.
        directory: of its output.
        raises: whether it is of a program: then the result is an object, else it is in msgpack too.
        names: the parameters whose values are not in the command, with commas between.
        values: these, and what else it has waited for.
    """
    made = msgspec.msgpack.decode(data, type=Command)
    texts = {name: text_of(value) for name, value in zip(names.split(","), values, strict=False)} if names else {}
    if texts or not made.name:
        name = made.name or f"command-{mpi_runtime.get_runtime_context().get_task_id()}"
        made = msgspec.structs.replace(made, name=name, values={**made.values, **texts})
    with claimed_cpus(int(made.num_cpus)) if made.pin else _NOT_PINNED as cpus:
        call = current.client().scopes.current().call
        attempt = first = 1 + (call.attempt if call is not None else 0)  # it may have been lost before
        while True:
            result = _attempt(made, directory, attempt, cpus, not raises)
            if result.is_success or attempt - first >= made.retries or not _is_retried(made, result):
                break
            time.sleep(made.retry_delay)
            attempt += 1
    if not raises:
        return msgspec.msgpack.encode(result)
    if not result.is_success and made.on_failure == SKIP:
        raise CommandError(result)
    return result


_RUN: Any = mpi_runtime.remote(max_retries=LOST_MAX)(_run)
_NOT_PINNED: contextlib.nullcontext[tuple[int, ...]] = contextlib.nullcontext(())


def _is_retried(made: Command, result: CommandResult) -> bool:
    """Whether this end is one after which a command is run again; never if its time was over."""
    if result.problem:
        return False
    code = result.exit_code if result.exit_code is not None else -(result.signal or 0)
    return not made.retry_codes or code in made.retry_codes


def _attempt(made: Command, directory: str, attempt: int, cpus: tuple[int, ...], is_alone: bool) -> CommandResult:
    host = socket.gethostname()
    gpu_ids = tuple(mpi_runtime.get_gpu_ids())
    values = {
        **made.values,
        "gpu": ",".join(map(str, gpu_ids)),
        "cpus": f"{made.num_cpus:g}",
        "attempt": str(attempt),
        "host": host,
    }
    with _workdir(made) as workdir:
        values["workdir"] = workdir
        stdout = fill(made.stdout, values, plain) or os.path.join(directory, f"{made.name}.out")
        stderr = fill(made.stderr, values, plain) or stdout
        text = fill(made.text, values)
        ending = run_program(
            text,
            _environment(made, values, is_alone),
            fill(made.cwd, values, plain),
            (fill(made.stdin, values, plain), stdout, stderr),
            made.time_limit,
            made.grace,
            cpus,
            is_own=not made.stdout,
            appends=("stdout" in made.appends, "stderr" in made.appends),
            memory=made.memory,
            output_limit=made.output_limit,
        )
        is_success = not ending.problem and ending.exit_code in made.success_codes
        kept = _kept(made, workdir, directory) if workdir and made.keep_workdir and not is_success else ""
    return _result(made, text, ending, is_success, attempt, host, cpus, gpu_ids, (stdout, stderr), kept)


def _result(
    made: Command,
    text: str,
    ending: Ending,
    is_success: bool,
    attempt: int,
    host: str,
    cpus: tuple[int, ...],
    gpu_ids: tuple[int, ...],
    paths: tuple[str, str],
    workdir: str,
) -> CommandResult:
    stdout = os.path.abspath(paths[0])
    return CommandResult(
        name=made.name,
        command=text,
        exit_code=ending.exit_code,
        signal=ending.signal,
        problem=ending.problem,
        is_success=is_success,
        attempts=attempt,
        start=ending.start,
        end=ending.end,
        host=host,
        cpus=cpus,
        gpu_ids=gpu_ids,
        peak_memory=ending.peak_memory,
        cpu_time=ending.cpu_time,
        stdout=stdout,
        stderr=os.path.abspath(paths[1]) if paths[1] != paths[0] else stdout,
        workdir=workdir,
    )


def _environment(made: Command, values: Mapping[str, str], is_alone: bool) -> dict[str, str]:
    """The environment of a command: this executor's, which has its GPUs and nothing of the launcher.

    Where no code of users runs beside commands (`is_alone`), nothing changes it.
    """
    cpus = str(max(1, int(made.num_cpus)))
    base = _unchanged_environment(cpus) if is_alone else _environment_with(cpus)
    return {**base, **{name: fill(text, values, plain) for name, text in made.env.items()}} if made.env else base


def _environment_with(cpus: str) -> dict[str, str]:
    """The environment of this process; a job of ours that the command starts has the CPUs of the command."""
    own = {**dict.fromkeys((*_THREADS, NUM_CPUS), cpus), RESOURCES: "", COMMAND_OF: str(os.getpid())}
    return {**environment(), **own}


_unchanged_environment = functools.lru_cache(maxsize=10)(_environment_with)


@contextlib.contextmanager
def _workdir(made: Command) -> Iterator[str]:
    """A scratch directory for one attempt, if a text of the command names it; it is removed however this ends."""
    texts = (made.text, made.cwd, made.stdin, made.stdout, made.stderr, *made.env.values())
    if not any("workdir" in names_in(text) for text in texts):
        yield ""
        return
    own = f"command-{mpi_runtime.get_runtime_context().get_task_id()}"
    directory = scratch.directory_of(scratch_directory(), own, socket.gethostname())
    lock = scratch.enter(directory)
    try:
        path = os.path.join(directory, "workdir")
        os.mkdir(path, 0o700)
        yield path
    finally:
        scratch.leave(directory, lock)


def _kept(made: Command, workdir: str, directory: str) -> str:
    """Move the scratch directory of a failed command beside its output; the path."""
    target = os.path.abspath(os.path.join(directory, f"{made.name}.workdir"))
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(directory, exist_ok=True)
    shutil.move(workdir, target)
    return target

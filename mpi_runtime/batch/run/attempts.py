"""The task of a command: it runs the program, and retries it if the command asks for that."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import msgspec

import mpi_runtime
from mpi_runtime.batch.file.model import SKIP, Command
from mpi_runtime.batch.file.text import fill, in_text, names_in, plain
from mpi_runtime.batch.history.results import CommandError, CommandResult
from mpi_runtime.batch.run.program import Ending, run_program
from mpi_runtime.batch.run.ranks import Rank
from mpi_runtime.config import COMMAND_OF, NUM_CPUS, RESOURCES, environment, scratch_directory
from mpi_runtime.extend import claimed_processors, job, scratch, settings_for_mpi, spec_of, this_call
from mpi_runtime.scheduler.protocol.events import Call

POLL_S = 0.1
"""Seconds between looks for the inputs of a command."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ALONE = {"ranks": "1", "rank": "0", "hosts": f"{socket.gethostname()}:1"}
_NOT_PINNED: contextlib.nullcontext[tuple[int, ...]] = contextlib.nullcontext(())
_NO_WORKDIR = contextlib.nullcontext("")
_delays = deque[float](maxlen=256)  # of the last commands: a clock may be set meanwhile


def run_command(
    data: bytes, directory: str, raises: bool, sent_s: float, until_s: float, names: str, *values: object
) -> CommandResult | bytes:
    """The body of the task: run a command, with its retries.

    Args:
        data: the command in msgpack, which takes a tenth of the time of pickle.
        directory: of its output.
        raises: whether a program has submitted it: then the result is an object, else it is in msgpack too.
        sent_s: when it was submitted, in seconds since 1970, by the clock of the host that submits.
        until_s: after this time, by that clock, it does not begin, and nothing is returned; 0: no such time. If a job
            was stopped, another may have run the command meanwhile.
        names: parameters that get their values here, with commas between.
        values: their values, and whatever else it has waited for.
    """
    if until_s and has_expired(sent_s, until_s):
        return b""
    made = _made(data, names, values)
    call = this_call()
    number = _alternative_of(made, call) if made.alternatives else 0
    if number:
        made = msgspec.structs.replace(made, **msgspec.structs.asdict(made.alternatives[number]))
    with claimed_processors(int(made.num_cpus)) if made.pin else _NOT_PINNED as cpus:
        attempt = first = _attempt_number(call)  # earlier attempts may have been lost
        while True:
            result, is_retried = _attempt(made, number, directory, attempt, cpus, not raises)
            if not is_retried or attempt - first >= made.retries:
                break
            time.sleep(made.retry_delay)
            attempt += 1
    if not raises:
        return msgspec.msgpack.encode(result)
    if not result.is_success and made.on_failure == SKIP:
        raise CommandError(result)
    return result


def run_ranks(
    comm: None, data: bytes, directory: str, raises: bool, sent_s: float, until_s: float, names: str, *values: object
) -> CommandResult | bytes:
    """The body of the task of a command with several ranks. It runs on all of them; the result of rank 0 counts.

    The arguments are those of `run_command`, behind the place of a communicator.

    Raises:
        RetriedError: this rank has failed, and the command is retried.
        CommandError: this rank has failed for good.
    """
    rank = Rank()
    if until_s and rank.any_of_all(has_expired(sent_s, until_s)):
        return b""
    made = _made(data, names, values)
    attempt = _attempt_number(this_call())
    if attempt > 1:
        time.sleep(made.retry_delay)
    with claimed_processors(int(made.num_cpus)) if made.pin else _NOT_PINNED as cpus:
        result, is_retried = _attempt(made, 0, directory, attempt, cpus, False, rank)
    if not result.is_success and rank.counts(made):
        kind = RetriedError if is_retried and attempt <= made.retries else CommandError
        raise kind(msgspec.structs.replace(result, rank=None if made.launcher else rank.number))
    return result if raises else msgspec.msgpack.encode(result)


def has_expired(sent_s: float, until_s: float) -> bool:
    """Whether a command must not begin any more. On the host of rank 0, which submits, the clock is the same."""
    if job().questions.host == 0:
        return time.time() > until_s
    return is_too_late(sent_s, until_s, _delays)


def is_too_late(sent_s: float, until_s: float, delays: deque[float]) -> bool:
    """Whether a command must not begin any more on another host than that of rank 0.

    Clocks of hosts may differ by hours. So the least of the `delays`, between the submission of a command there and its
    turn here, counts as their difference; it was truly at least zero. The first command of a process is never too late.
    """
    now_s = time.time()
    delays.append(now_s - sent_s)
    return now_s - min(delays) > until_s


class RetriedError(CommandError):
    """A rank has failed, and the command is retried."""


def _made(data: bytes, names: str, values: Sequence[object]) -> Command:
    """The command, with the values of parameters that are references, and a name."""
    made = msgspec.msgpack.decode(data, type=Command)
    texts = {name: in_text(value) for name, value in zip(names.split(","), values, strict=False)} if names else {}
    if texts or not made.name:
        name = made.name or f"command-{mpi_runtime.get_runtime_context().get_task_id()}"
        made = msgspec.structs.replace(made, name=name, values={**made.values, **texts})
    return made


def _attempt_number(call: Call | None) -> int:
    return 1 + (call.attempt if call is not None else 0)


def _is_retried(made: Command, ending: Ending) -> bool:
    """Whether `retries` are for this end: not for a limit that was exceeded, or a program that cannot start."""
    if ending.problem and not ending.has_aborted:
        return False
    code = ending.exit_code if ending.exit_code is not None else -(ending.signal or 0)
    has_failed = ending.has_aborted or code not in made.success_codes
    return has_failed and (not made.retry_codes or code in made.retry_codes)


def _alternative_of(made: Command, call: Call | None) -> int:
    """The index of the alternative whose resources this executor has."""
    spec = spec_of(call) if made.alternatives and call is not None else None
    if spec is None:
        return 0
    return [one.request() for one in made.alternatives].index(spec.asks)


def _attempt(
    made: Command,
    alternative: int,
    directory: str,
    attempt: int,
    cpus: tuple[int, ...],
    is_alone: bool,
    rank: Rank | None = None,
) -> tuple[CommandResult, bool]:
    """Run a command once. Return its result, and whether `retries` are for this end."""
    host = socket.gethostname()
    gpu_ids = tuple(mpi_runtime.get_gpu_ids())
    values = {
        **made.values,
        "gpu": ",".join(map(str, gpu_ids)),
        "cpus": f"{made.num_cpus:g}",
        "attempt": str(attempt),
        "host": host,
        **(rank.values() if rank is not None else _ALONE),
    }
    with _workdir(0 if rank is None else rank.number) if _names_workdir(made) else _NO_WORKDIR as workdir:
        values["workdir"] = workdir
        stdout = fill(made.stdout, values, plain) or os.path.join(directory, f"{made.name}.out")
        program = msgspec.structs.replace(
            made,
            text=fill(made.text, values),
            cwd=fill(made.cwd, values, plain),
            stdin=fill(made.stdin, values, plain),
            stdout=stdout,
            stderr=fill(made.stderr, values, plain) or stdout,
        )
        begin_s = time.time()
        if problem := _obstacle(program, [fill(path, values, plain) for path in made.inputs], values["rank"]):
            ending = Ending(problem=problem, start=begin_s, end=time.time())
        elif rank is not None:
            ending = rank.run(program, _environment(made, values, is_alone), cpus, not made.stdout)
        else:
            env = _environment(made, values, is_alone)
            ending = run_program(program, env, cpus, not made.stdout, is_alone=is_alone)
        is_success = not ending.problem and ending.exit_code in made.success_codes
        kept = _kept(made, workdir, directory) if workdir and made.keep_workdir and not is_success else ""
    fields = msgspec.structs.asdict(ending)
    has_output = fields.pop("has_output")
    del fields["has_aborted"]
    output = os.path.abspath(stdout) if has_output else ""
    result = CommandResult(
        name=made.name,
        command=program.text,
        is_success=is_success,
        attempts=attempt,
        alternative=alternative,
        host=host,
        cpus=cpus,
        gpu_ids=gpu_ids,
        stdout=output,
        stderr=os.path.abspath(program.stderr) if has_output and program.stderr != stdout else output,
        workdir=kept,
        **fields,
    )
    return result, _is_retried(made, ending)


def _obstacle(made: Command, inputs: Sequence[str], rank: str) -> str:
    """Why a command must not start, in words; empty: it may. From now on it has started."""
    end_s = time.monotonic() + made.latency_wait
    for path in (*inputs, *([made.stdin] if made.stdin else [])):
        while not os.path.exists(path):
            if time.monotonic() > end_s:
                return f"its input {path} is not there, {made.latency_wait:g} s (latency_wait) after it could start"
            with contextlib.suppress(OSError):
                os.listdir(os.path.dirname(path) or ".")  # a network file system then looks again
            time.sleep(POLL_S)
    if not made.started:
        return ""
    try:
        os.makedirs(os.path.dirname(made.started), exist_ok=True)
        os.close(os.open(f"{made.started}.{rank}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return (
            "it has started before, nobody knows how it ended, and with rerun=false it does not start again; "
            f"--only {made.name} starts it all the same"
        )
    except OSError as error:
        return f"it does not start, because that cannot be recorded (rerun=false): {error}"
    return ""


def _environment(made: Command, values: Mapping[str, str], is_alone: bool) -> dict[str, str]:
    """The environment of a command: that of this executor, which names its GPUs and has no launcher's variables.

    If no user code runs beside commands (`is_alone`), the environment of the executor does not change.
    """
    cpus = str(max(1, int(made.num_cpus)))
    base = _unchanged_environment(cpus) if is_alone else _environment_with(cpus)
    return {**base, **{name: fill(text, values, plain) for name, text in made.env.items()}} if made.env else base


def _environment_with(cpus: str) -> dict[str, str]:
    """The environment of this process. A job of this runtime that the command starts has the CPUs of the command."""
    own = {**dict.fromkeys((*_THREADS, NUM_CPUS), cpus), RESOURCES: "", COMMAND_OF: str(os.getpid())}
    return {**settings_for_mpi(int(cpus)), **environment(), **own}


_unchanged_environment = functools.lru_cache(maxsize=10)(_environment_with)


def _names_workdir(made: Command) -> bool:
    texts = (made.text, made.cwd, made.stdin, made.stdout, made.stderr, *made.env.values())
    return any("workdir" in names_in(text) for text in texts if "{" in text)


@contextlib.contextmanager
def _workdir(rank: int) -> Iterator[str]:
    """A scratch directory for one attempt of a command that names it. It is always removed."""
    own = f"command-{mpi_runtime.get_runtime_context().get_task_id()}{f'-{rank}' if rank else ''}"
    directory = scratch.directory_of(scratch_directory(), own, socket.gethostname())
    lock = scratch.enter(directory)
    try:
        path = os.path.join(directory, "workdir")
        os.mkdir(path, 0o700)
        yield path
    finally:
        scratch.leave(directory, lock)


def _kept(made: Command, workdir: str, directory: str) -> str:
    """Move the scratch directory of a failed command beside its output, and return its path."""
    target = os.path.abspath(os.path.join(directory, f"{made.name}.workdir"))
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(directory, exist_ok=True)
    shutil.move(workdir, target)
    return target

"""Errors of user code that another process raised: their text, and their bytes in messages."""

import pickle
import traceback
from typing import TypeVar

from mpi_runtime.errors import (
    GpuOutOfMemoryError,
    InternalError,
    MpiRuntimeError,
    SerializationError,
    TaskError,
    task_error,
)  # fmt: skip
from mpi_runtime.errors import frames as tracebacks

_Error = TypeVar("_Error", bound=BaseException)

_TEXT_CHARACTERS_MAX = 20_000
"""Longer texts lose their middle: a chain of a thousand tasks would otherwise carry a thousand tracebacks."""

_BRIEF_CHARACTERS_MAX = 300


def describe(function_name: str, pid: int, rank: int, host: str, exc: BaseException, title: str = "") -> str:
    """Return the text of a remote error: where it happened, and the traceback without this package's own frames.

    `title` is the `repr` of the actor in which it happened.
    """
    internal = isinstance(exc, InternalError)  # our own frames matter then
    lines = traceback.format_exception(exc) if internal else tracebacks.lines(exc, _is_deliberate)
    actor = f", repr={title}" if title else ""
    text = f"{function_name}() failed: pid={pid}, rank={rank}, host={host}{actor}\n{''.join(lines)}".rstrip()
    text = tracebacks.in_utf8(text)
    if len(text) > _TEXT_CHARACTERS_MAX:
        half = _TEXT_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _is_deliberate(error: BaseException) -> bool:
    if isinstance(error, (MpiRuntimeError, KeyboardInterrupt)):
        return not isinstance(error, InternalError)
    kinds = (TypeError, ValueError, LookupError, AttributeError, RuntimeError)
    return isinstance(error, kinds) and tracebacks.is_raised_here(error)


def show_errors() -> None:
    """Show an error that ends this program without frames of this package, and with a hint if there is one."""
    tracebacks.install_hook(_is_deliberate, _hint)


def _hint(error: BaseException) -> str:
    from mpi_runtime.errors import hints  # not at the top: only a failing task or program pays for it

    return hints.hint(error)


def brief(exc: BaseException) -> str:
    """Return class and text of an exception in one line of at most 300 characters."""
    if isinstance(exc, TaskError):
        exc = exc.cause
    text = tracebacks.in_utf8(" ".join("".join(traceback.format_exception_only(type(exc), exc)).split()))
    return text if len(text) <= _BRIEF_CHARACTERS_MAX else f"{text[: _BRIEF_CHARACTERS_MAX - 3]}..."


def substitute(error: BaseException, problem: BaseException) -> SerializationError:
    """Return an error with the traceback of one that cannot be described or sent, because its own code raises."""
    kind, why = (vars(type)["__qualname__"].__get__(type(one)) for one in (error, problem))
    text = f"{kind} was raised. Nothing more can be read of it, because code of its class or its arguments raises {why}"
    return SerializationError(text).with_traceback(tracebacks.of(error))


def bare(error: _Error) -> _Error:
    """Return the error without its frames. They are all of this package, and only matter for bugs."""
    if _is_deliberate(error):
        BaseException.with_traceback(error, None)  # not its own, which its class may have replaced
    return error


def make_task_error(
    exc: BaseException, function_name: str, pid: int, rank: int, host: str, title: str = "", note: str = ""
) -> TaskError:
    """Return the error for an exception that escaped from user code. `note` is added to its text.

    The error of another task keeps its first cause, and its text grows by one traceback. Others may get a hint.
    """
    try:
        return _made(exc, function_name, pid, rank, host, title, note)
    except KeyboardInterrupt:  # the call is cancelled
        raise
    except BaseException as problem:
        return _made(substitute(exc, problem), function_name, pid, rank, host, title, note)


def _made(exc: BaseException, function_name: str, pid: int, rank: int, host: str, title: str, note: str) -> TaskError:
    cause = exc.cause if isinstance(exc, TaskError) else exc
    text = describe(function_name, pid, rank, host, exc, title)
    if cause is exc:
        note = note or _hint(cause)
    return task_error(cause, f"{text}\n{note}" if note else text)


def to_bytes(error: MpiRuntimeError) -> bytes:
    """Return the error as bytes that any process can read. A process without the class reads it as text.

    So does each if the exception of user code cannot be pickled and read back.
    """
    import cloudpickle  # not at the top: only a failing task pays for it

    try:
        pickled = cloudpickle.dumps(error, protocol=5)
        if isinstance(error, TaskError):
            pickle.loads(pickled)
    except KeyboardInterrupt:
        raise
    except BaseException as reason:  # code of its class may raise SystemExit
        if not isinstance(error, TaskError):
            raise
        text = "".join(traceback.format_exception_only(type(error.cause), error.cause)).strip()
        why = f"{type(reason).__name__}: {reason}"
        substitute = SerializationError(f"{text}\n(in words: the exception cannot be pickled and read back: {why})")
        error = task_error(substitute, error.traceback_str)
        pickled = cloudpickle.dumps(error, protocol=5)
    plain = GpuOutOfMemoryError if isinstance(error, GpuOutOfMemoryError) else TaskError
    return pickle.dumps((pickled, str(error), plain), 5)


def from_bytes(data: bytes | memoryview) -> MpiRuntimeError:
    """Return the error that `to_bytes` packed."""
    pickled, text, plain = pickle.loads(data)
    try:
        error: MpiRuntimeError = pickle.loads(pickled)
    except KeyboardInterrupt:
        raise
    except BaseException as reason:
        why = f"the exception cannot be read in this process: {type(reason).__name__}: {reason}"
        in_words: TaskError = plain(SerializationError(why), f"{text}\n(in words: {why})")
        return in_words
    return error

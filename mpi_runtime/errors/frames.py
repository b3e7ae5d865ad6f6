"""Tracebacks with the frames of user code, and without frames of this package.

The file of its code says whether a frame is ours. Errors that this package raises on purpose, or passes on, show no
frames of ours. Any other exception from our code is a bug of ours, and keeps the frames that show where it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

_TRACEBACK = vars(BaseException)["__traceback__"]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_RUNPY = os.path.join(os.path.dirname(os.__file__), "runpy.py")
_HAS_HINTS = "_mpi_runtime_hints"
_FROZEN = ("<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


def is_user(filename: str) -> bool:
    """Whether this is a file of user code: neither ours nor one of those with which Python starts programs."""
    return not filename.startswith(_PACKAGE) and filename != _RUNPY and filename not in _FROZEN


def in_utf8(text: str) -> str:
    """Return a text that messages can hold: surrogates, from names of files and texts of errors, are escaped."""
    return text.encode(errors="backslashreplace").decode()


def user_line() -> str:
    """Return the line of user code that is running, as `app.py:12 in main`; empty: no user code is running."""
    frame = sys._getframe(1)
    while not is_user(frame.f_code.co_filename):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return in_utf8(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")


def definition(function: object) -> str:
    """Return where a function or method begins, as `app.py:5`; empty: it is not written in Python."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return in_utf8(f"{code.co_filename}:{code.co_firstlineno}") if code is not None else ""


def lines(error: BaseException, is_deliberate: Callable[[BaseException], bool]) -> list[str]:
    """Return the lines of a traceback as `traceback.format_exception` does, with user frames only, also for causes.

    `is_deliberate`: whether this package raised an error on purpose, so that its own frames do not help users.
    """
    described = traceback.TracebackException(type(error), error, of(error))
    _clean(described, error, is_deliberate)
    return list(described.format())


def of(error: BaseException) -> TracebackType | None:
    """Return the true traceback of an exception: its class may have an attribute of that name."""
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def is_in_import(error: BaseException) -> bool:
    """Whether an exception was raised while a module was imported."""
    trace = of(error)
    while trace is not None:  # Python removes its own frames between these of modules
        code, trace = trace.tb_frame.f_code, trace.tb_next
        if code.co_name == "<module>" or code.co_filename in _FROZEN:
            return True
    return False


def in_notebook(error: BaseException, keeps_ours: bool) -> list[str]:
    """Return the lines that IPython shows of an error: without frames of this package, unless they are to be kept."""
    found, trace = [], error.__traceback__
    while trace is not None:
        if keeps_ours or is_user(trace.tb_frame.f_code.co_filename):
            found.append(trace)
        trace = trace.tb_next
    for one in reversed(found):
        trace = _followed_by(trace, one)
    shell = sys.modules["IPython"].get_ipython()
    shown: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=1)
    return shown


def _followed_by(rest: TracebackType | None, one: TracebackType) -> TracebackType:
    """Return a copy of one entry of a traceback, with this rest. Code without a line has None, at Ctrl-C too."""
    return TracebackType(rest, one.tb_frame, one.tb_lasti, one.tb_lineno or -1)


def _clean(
    described: traceback.TracebackException, error: BaseException, is_deliberate: Callable[[BaseException], bool]
) -> None:
    pending: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(described, error)]
    while pending:
        one, cause = pending.pop()
        if one is None or cause is None:
            continue
        one.stack[:] = _shown(one.stack, is_deliberate(cause))
        pending += [(one.__cause__, cause.__cause__), (one.__context__, cause.__context__)]
        # Groups came with Python 3.11.
        pending += zip(getattr(one, "exceptions", None) or (), getattr(cause, "exceptions", None) or (), strict=False)


def _shown(stack: traceback.StackSummary, is_deliberate: bool) -> list[traceback.FrameSummary]:
    """Return the frames of users and, unless the error `is_deliberate`, our frames at the end of the stack."""
    end = len(stack)
    while not is_deliberate and end and stack[end - 1].filename.startswith(_PACKAGE):
        end -= 1
    kept = [frame for frame in stack[:end] if is_user(frame.filename)]
    if not kept and not is_deliberate:
        return []  # user code had not started, and the error names the failure
    return kept + list(stack[end:])


def without_start(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error that ends a program, without the frames that started the program.

    If there are no other frames, all are kept. For a syntax error none are, as in Python itself.
    """
    frames = error.__traceback__
    while frames is not None and not is_user(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames if frames is not None or isinstance(error, SyntaxError) else error.__traceback__


def is_raised_here(error: BaseException) -> bool:
    """Whether a `raise` of this package has raised an error: a check of ours, not a mistake in our code."""
    trace = of(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_user(trace.tb_frame.f_code.co_filename):
        return False
    import opcode  # not at the top: only an error that is shown needs it

    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == opcode.opmap["RAISE_VARARGS"]


def fold(error: BaseException, is_deliberate: Callable[[BaseException], bool]) -> None:
    """Remove the frames of this package from an error that ends the program, as `lines` does, and from its causes."""
    seen: list[BaseException | None] = [None]
    at: BaseException | None = error
    while at is not None and not any(at is one for one in seen):
        seen.append(at)
        is_ours = is_deliberate(at)  # judged by its traceback, which is replaced below
        found: list[TracebackType] = []
        trace = of(at)
        while trace is not None:
            found.append(trace)
            trace = trace.tb_next
        end = len(found)
        while not is_ours and end and not is_user(found[end - 1].tb_frame.f_code.co_filename):
            end -= 1
        kept = [one for one in found[:end] if is_user(one.tb_frame.f_code.co_filename)]
        for one in reversed([*kept, *found[end:]] if kept or at is not error else found):
            trace = _followed_by(trace, one)
        BaseException.with_traceback(at, trace)
        if is_ours and at.__cause__ is not None and _is_of_library(at.__cause__):
            at.__cause__ = None  # its text is in ours
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _is_of_library(error: BaseException) -> bool:
    """Whether an exception has passed no frame of a program, only some of libraries."""
    trace = of(error)
    while trace is not None:
        path, trace = trace.tb_frame.f_code.co_filename, trace.tb_next
        if is_user(path) and "-packages" not in path:
            return False
    return True


def install_hook(is_deliberate: Callable[[BaseException], bool], hint: Callable[[BaseException], str]) -> None:
    """Show an error that ends the program with frames of user code, and with the `hint` that helps beginners."""

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if error.__traceback__ is frames:
            frames = error.__traceback__ = without_start(error)
            if frames is not None and is_user(frames.tb_frame.f_code.co_filename):
                fold(error, is_deliberate)
                frames = error.__traceback__
        sys.__excepthook__(kind, error, frames)
        with contextlib.suppress(Exception):  # code of its class, or there is no standard error
            # After Ctrl-C nothing more may be evaluated from text, or Python forgets to end by the signal.
            if isinstance(error, Exception) and (text := hint(error)):
                print(text, file=sys.stderr)

    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show
    _install_in_notebook(hint)


def _install_in_notebook(hint: Callable[[BaseException], str]) -> None:
    """Show the hint below the error of a cell, once for each shell of IPython: it does not call `sys.excepthook`."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or getattr(shell, _HAS_HINTS, False):
        return

    def after_cell(result: object) -> None:
        error = getattr(result, "error_in_exec", None)
        with contextlib.suppress(Exception):  # code of its class
            if isinstance(error, Exception) and (text := hint(error)):
                print(text, file=sys.stderr)

    setattr(shell, _HAS_HINTS, True)
    shell.events.register("post_run_cell", after_cell)

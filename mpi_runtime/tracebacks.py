"""Tracebacks as users want them: their own frames, and none of this package's.

Frames are told apart by the files of their code. What this package raises on purpose, or passes on, shows nothing of
it. Any other exception that comes out of its code is a bug of its own, and keeps the frames that show where.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RUNPY = os.path.join(os.path.dirname(os.__file__), "runpy.py")
_FROZEN = ("<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


def is_user(filename: str) -> bool:
    """Whether the code of this file is neither ours nor what Python starts programs and modules with."""
    return not filename.startswith(_PACKAGE) and filename != _RUNPY and filename not in _FROZEN


def lines(error: BaseException, is_told: Callable[[BaseException], bool]) -> list[str]:
    """The traceback of an error and of all that led to it, as `traceback.format_exception` has it, in user frames.

    Args:
        error: what was raised.
        is_told: whether an error was raised on purpose by this package, so that where it was raised says nothing.
    """
    described = traceback.TracebackException(type(error), error, error.__traceback__)
    _clean(described, error, is_told)
    return list(described.format())


def _clean(
    described: traceback.TracebackException, error: BaseException, is_told: Callable[[BaseException], bool]
) -> None:
    pending: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(described, error)]
    while pending:
        one, cause = pending.pop()
        if one is None or cause is None:
            continue
        one.stack[:] = _shown(one.stack, is_told(cause))
        pending += [(one.__cause__, cause.__cause__), (one.__context__, cause.__context__)]
        # Groups came with Python 3.11.
        pending += zip(getattr(one, "exceptions", None) or (), getattr(cause, "exceptions", None) or (), strict=False)


def _shown(stack: traceback.StackSummary, is_told: bool) -> list[traceback.FrameSummary]:
    """The frames of users; of those of ours the last, without a gap, unless the error `is_told`."""
    end = len(stack)
    while not is_told and end and stack[end - 1].filename.startswith(_PACKAGE):
        end -= 1
    kept = [frame for frame in stack[:end] if is_user(frame.filename)]
    if not kept and not is_told:
        return []  # user code had not begun: what failed is said by the error
    return kept + list(stack[end:])


def without_start(error: BaseException) -> TracebackType | None:
    """The traceback of an error that ends a program, without the frames that have started the program.

    Where there are no others, all are kept; but of what cannot be compiled Python shows none either.
    """
    frames = error.__traceback__
    while frames is not None and not is_user(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames if frames is not None or isinstance(error, SyntaxError) else error.__traceback__


def hide_start() -> None:
    """Have an exception that ends the program shown as if Python itself had started it."""

    def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if error.__traceback__ is frames:
            frames = without_start(error)
            error.__traceback__ = frames
        sys.__excepthook__(kind, error, frames)

    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show

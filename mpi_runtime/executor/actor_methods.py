"""The methods of an actor, with those that every actor has, its title, and its end by its own wish."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from mpi_runtime.client import current
from mpi_runtime.scheduler.events import Spec

_TITLE_CHARACTERS_MAX = 100
"""It stands before each line of an actor's output."""


class ActorExit(BaseException):
    """Raised in an actor by `exit_actor()`; user code does not catch it by mistake."""


def find_method(actor: Any, spec: Spec) -> Callable[..., Any]:
    """The method that calls of this spec run: the class's, also where an attribute of the instance hides it."""
    name = spec.function.decode() if spec.function else spec.name.rpartition(".")[2]
    if name in _SPECIAL:
        return _SPECIAL[name](actor)
    kind = type(actor)
    raw = inspect.getattr_static(kind, name, None)
    found: Callable[..., Any] = raw.__get__(actor, kind) if hasattr(raw, "__get__") else getattr(actor, name)
    return found


def title_of(actor: object) -> str:
    """What an actor calls itself, in one line: its `repr`, if its class defines one; else nothing."""
    if type(actor).__repr__ is object.__repr__:
        return ""
    try:
        line = " ".join(repr(actor).split())
    except Exception as error:  # it is asked for before the first call, by us: no reason for the actor to die
        print(f"{type(actor).__name__}.__repr__ raised {error!r}: its output has the class's name.", file=sys.stderr)
        return ""
    line = line.encode(errors="replace").decode()
    return line if len(line) <= _TITLE_CHARACTERS_MAX else f"{line[: _TITLE_CHARACTERS_MAX - 3]}..."


def _terminate() -> NoReturn:
    executor = current.client().executor
    assert executor is not None
    executor.end_actor()
    raise ActorExit


_SPECIAL: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "__ray_call__": lambda actor: lambda function, *args, **kwargs: function(actor, *args, **kwargs),
    "__ray_ready__": lambda actor: lambda: True,
    "__ray_terminate__": lambda actor: _terminate,
}
"""Methods that every actor has."""

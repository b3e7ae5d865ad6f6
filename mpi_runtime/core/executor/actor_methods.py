"""Methods of an actor, with those that every actor has; its title; the exception by which it ends itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from mpi_runtime.core.client import current
from mpi_runtime.scheduler.protocol.events import Spec

_TITLE_CHARACTERS_MAX = 100
"""The title is printed before each line of the output of an actor."""


class ActorExit(BaseException):
    """Raised by `exit_actor()`. It is not an `Exception`, so that user code does not catch it by mistake."""


def find_method(actor: object, spec: Spec) -> Callable[..., object]:
    """Return the method that calls of this spec run: that of the class, even if the instance has such an attribute."""
    name = spec.function.decode() if spec.function else spec.name.rpartition(".")[2]
    if name in _SPECIAL:
        return _SPECIAL[name](actor)
    kind = type(actor)
    raw = inspect.getattr_static(kind, name, None)
    found: Callable[..., object] = raw.__get__(actor, kind) if hasattr(raw, "__get__") else getattr(actor, name)
    return found


def construct(cls: Callable[..., object], positional: tuple[object, ...], named: dict[str, object]) -> object:
    """Return an instance of the class of an actor, or a coroutine that returns it, if `__init__` is one."""
    if not inspect.iscoroutinefunction(getattr(cls, "__init__", None)):
        return cls(*positional, **named)
    return _construct(cls, positional, named)


async def _construct(cls: Any, positional: tuple[object, ...], named: dict[str, object]) -> object:
    actor = cls.__new__(cls, *positional, **named) if cls.__new__ is not object.__new__ else object.__new__(cls)
    await cls.__init__(actor, *positional, **named)
    return actor


def title_of(actor: object) -> str:
    """Return the title of an actor: its `repr` in one line, if its class defines one; else empty."""
    if type(actor).__repr__ is object.__repr__:
        return ""
    try:
        line = " ".join(repr(actor).split())
    except Exception as error:  # the runtime asks for it, so the actor should not die of it
        print(f"{type(actor).__name__}.__repr__ raised {error!r}: its output has the class's name.", file=sys.stderr)
        return ""
    line = line.encode(errors="replace").decode()
    return line if len(line) <= _TITLE_CHARACTERS_MAX else f"{line[: _TITLE_CHARACTERS_MAX - 3]}..."


def _terminate() -> NoReturn:
    current.executor().end_actor()
    raise ActorExit


def _save() -> bool:
    return current.executor().save_now()


_SPECIAL: dict[str, Callable[[object], Callable[..., object]]] = {
    "__ray_call__": lambda actor: lambda function, *args, **kwargs: function(actor, *args, **kwargs),
    "__ray_ready__": lambda actor: lambda: True,
    "__ray_terminate__": lambda actor: _terminate,
    "__checkpoint__": lambda actor: _save,
}
"""Methods that every actor has, by name."""

"""Finds the part of a value, function or class that cannot be serialised."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from mpi_runtime import ActorClass, RemoteFunction
from mpi_runtime.errors.arguments import check_whole
from mpi_runtime.extend import dumps

CONTENT_CHARACTERS_MAX = 80
"""The number of characters of an object's text that are shown."""


@dataclass(eq=False)
class Failure:
    """An innermost part that cannot be serialised."""

    obj: object
    """The part itself."""
    name: str
    """Its name."""
    parent: object
    """What it is a part of; None for the object that was checked."""

    def __repr__(self) -> str:
        return f"Failure({self.name} [obj={_shown(self.obj)}, parent={_shown(self.parent)}])"


def inspect_serializability(
    base_obj: object, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[Failure]]:
    """Find the parts of an object that cannot be serialised, and print the path to each as a tree.

    Args:
        base_obj: any value, function, class, remote function or actor class.
        name: its name in the output.
        depth: the number of levels of members to look into.
        print_file: the file to print to; standard output by default.

    Returns:
        Whether all of the object can be serialised, and the set of the innermost parts that cannot.

    Example:
        ```python
        lock = threading.Lock()
        inspect_serializability(lambda: lock.acquire(), name="task")
        # task (function) cannot be serialised: cannot pickle '_thread.lock' object
        #   variable 'lock' (lock): cannot pickle '_thread.lock' object
        ```
    """
    if print_file is not None and not hasattr(print_file, "write"):
        raise TypeError(f"print_file must be a file that is open for text, not {print_file!r}")
    check_whole("depth", depth, 0)
    if name is None:
        name = getattr(base_obj, "__name__", None) or _shown(base_obj)
    reason = _reason(base_obj)
    failures: set[Failure] = set()
    if reason is None:
        print(f"{name} ({type(base_obj).__name__}) can be serialised", file=print_file)
        return True, failures
    print(f"{name} ({type(base_obj).__name__}) cannot be serialised: {reason}", file=print_file)
    if not _descend((base_obj,), depth, set(), failures, print_file):
        failures.add(Failure(base_obj, name, None))
    print(
        f"{'These' if len(failures) > 1 else 'This'} must not be part of it: "
        f"{', '.join(sorted(failure.name for failure in failures))}. "
        "Make such things inside the task or actor that uses them, or leave them out in __getstate__().",
        file=print_file,
    )
    return False, failures


def _descend(
    way: tuple[object, ...], depth: int, reported: set[int], failures: set[Failure], print_file: TextIO | None
) -> bool:
    """Check the members of the last object of the path. Returns whether any cannot be serialised."""
    if depth < len(way):
        return False
    found = False
    for what, name, member in _members(way[-1]):
        if any(member is one for one in way):
            continue  # a circle: another part of it has the reason
        reason = "see above" if id(member) in reported else _reason(member)
        if reason is None:
            continue
        found = True
        print(f"{'  ' * len(way)}{what} {name!r} ({type(member).__name__}): {reason}", file=print_file)
        if id(member) not in reported:
            reported.add(id(member))
            if not _descend((*way, member), depth, reported, failures, print_file):
                failures.add(Failure(member, name, way[-1]))
    return found


def _reason(obj: object) -> str | None:
    """Why the object cannot be serialised; None if it can."""
    try:
        dumps(obj)
    except Exception as error:
        # The cause of our own errors has the shorter message.
        return str(error.__cause__ or error) or type(error).__name__
    return None


def _members(obj: Any) -> Iterator[tuple[str, str, object]]:
    """The parts that are serialised with an object: kind, name and value of each."""
    if isinstance(obj, (RemoteFunction, ActorClass)):
        inner = obj._function if isinstance(obj, RemoteFunction) else obj._class
        yield "code", inner.__name__, inner
    elif isinstance(obj, types.FunctionType):
        yield from (("variable", name, value) for name, value in _variables(obj))
        yield from (("default", str(number), value) for number, value in enumerate(obj.__defaults__ or ()))
        yield from (("default", name, value) for name, value in (obj.__kwdefaults__ or {}).items())
    elif isinstance(obj, types.MethodType):
        yield "object", "__self__", obj.__self__
        yield "function", "__func__", obj.__func__
    elif isinstance(obj, (staticmethod, classmethod)):
        yield "function", "__func__", obj.__func__
    elif isinstance(obj, property):
        yield from ((kind, kind, getattr(obj, kind)) for kind in ("fget", "fset", "fdel"))
    elif isinstance(obj, functools.partial):
        yield "function", "func", obj.func
        yield from (("argument", str(number), value) for number, value in enumerate(obj.args))
        yield from (("argument", name, value) for name, value in obj.keywords.items())
    elif isinstance(obj, type):
        yield from (("base", base.__name__, base) for base in obj.__bases__)
        yield from (("attribute", name, value) for name, value in vars(obj).items() if name not in _OF_EVERY_CLASS)
    elif isinstance(obj, Mapping):
        yield from (("item", str(key), value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from (("item", str(number), value) for number, value in enumerate(obj))
    else:
        yield from _state(obj)


_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__doc__", "__module__")


def _variables(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The variables of enclosing functions, and the globals that the function or a function within it uses."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if inspect.iscode(one)))


def _state(obj: Any) -> Iterator[tuple[str, str, object]]:
    """The parts from which an object is rebuilt: class, arguments and attributes."""
    try:
        reduced = obj.__reduce_ex__(5)
    except Exception:
        return  # this object itself refuses
    if isinstance(reduced, str):
        return
    args, state, items = [*list(reduced), None, None, None][1:4]
    yield from (("argument", str(number), value) for number, value in enumerate(args or ()))
    for part in state if isinstance(state, tuple) else (state,):  # of a class with slots: two dictionaries
        if isinstance(part, dict):
            yield from (("attribute", str(name), value) for name, value in part.items())
        elif part is not None:
            yield "state", "__getstate__()", part
    yield from (("item", str(number), value) for number, value in enumerate(items or ()))


def _shown(obj: object) -> str:
    try:
        text = repr(obj)
    except Exception:
        text = object.__repr__(obj)
    return text if len(text) <= CONTENT_CHARACTERS_MAX else f"{text[: CONTENT_CHARACTERS_MAX - 4]} ..."

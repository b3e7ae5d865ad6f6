"""The hash of a function with everything that it refers to: equal in all runs and processes of the same program.

Bytecode, constants, defaults, closures and the globals that it names count, and so do functions and classes of
the program among these, at any depth. Of a module of the program the whole source counts. Of installed modules, and of
Python itself, only the names count. Line numbers and names of files do not.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from mpi_runtime.core.calls.module_digest import imported_names, instructions, is_installed, module_digest
from mpi_runtime.core.client.interrupts import is_of_handler
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.objects import first_version
from mpi_runtime.scheduler.protocol.ids import digest

DIGEST_BYTES = 16
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_OF_CLASSES = ("__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__", "__annotate__",
               "__annotations__", "__annotate_func__", "__annotations_cache__", "__slotnames__", "_abc_impl",
)  # fmt: skip
"""Attributes of classes that do not change their behaviour."""


class _UnknownError(Exception):
    """The code refers to something that may differ in the next run."""


def digest_of(function: object) -> bytes:
    """The hash of a function; empty: it refers to something that cannot be hashed."""
    try:
        words = _Words().of(function)
    except (_UnknownError, RecursionError):
        return b""
    return digest(repr((sys.version_info[:2], words)).encode("utf-8", "surrogatepass"), DIGEST_BYTES)


class _Words:
    """Describes things by plain values. A thing that was described before is named by its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []

    def of(self, thing: Any) -> object:
        kind = type(thing)
        if kind in _PLAIN:
            return kind.__name__, repr(thing)
        if kind in (tuple, list):
            return kind.__name__, [self.of(one) for one in thing]
        if id(thing) in self._numbers:
            return "before", self._numbers[id(thing)]
        self._numbers[id(thing)] = len(self._numbers)
        self._alive.append(thing)
        return self._of_new(kind, thing)

    def _of_new(self, kind: type, thing: Any) -> object:
        if kind in (set, frozenset):
            return kind.__name__, sorted(repr(_Words().of(one)) for one in thing)
        if kind is dict:
            return "dict", [(self.of(key), self.of(value)) for key, value in thing.items()]
        if isinstance(thing, types.ModuleType):
            return self._of_module(thing.__name__)
        if isinstance(thing, types.CodeType):
            return self._of_code(thing)
        if isinstance(thing, types.FunctionType):
            return self._of_function(thing)
        if isinstance(thing, (staticmethod, classmethod)):
            return kind.__name__, self.of(thing.__func__)
        if isinstance(thing, types.MethodType):
            return "method", self.of(thing.__func__), self.of(thing.__self__)
        if isinstance(thing, property):
            return "property", [self.of(one) for one in (thing.fget, thing.fset, thing.fdel)]
        if isinstance(thing, functools.partial):
            return "partial", self.of(thing.func), self.of(thing.args), self.of(thing.keywords)
        if isinstance(thing, type):
            return self._of_class(thing)
        if isinstance(thing, types.BuiltinFunctionType):
            return "builtin", thing.__module__, thing.__qualname__
        if code_attribute := getattr(kind, "code_attribute", ""):
            return "remote", self.of(vars(thing)[code_attribute])
        return self._of_value(thing)

    def _of_function(self, function: types.FunctionType) -> object:
        if _is_installed(function):
            return "function", _module_of(function), function.__qualname__
        enclosed = [self._of_cell(cell) for cell in function.__closure__ or ()]
        names = {one.argval for one in instructions(function.__code__) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        named = [(name, self.of(function.__globals__[name])) for name in sorted(names & function.__globals__.keys())]
        defaults = self.of(function.__defaults__), self.of(function.__kwdefaults__)
        wrapped = [self.of(value) for name, value in sorted(vars(function).items()) if name == "__wrapped__"]
        imported = [self._of_module(name) for name in imported_names(function.__code__)]
        return "function", self.of(function.__code__), enclosed, named, defaults, wrapped, imported

    def _of_module(self, name: str) -> object:
        try:
            return "module", name, module_digest(name)
        except (OSError, SyntaxError, ValueError) as error:
            raise _UnknownError from error

    def _of_cell(self, cell: types.CellType) -> object:
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "empty"

    def _of_code(self, code: types.CodeType) -> object:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return "code", code.co_code, self.of(code.co_consts), names, counts, getattr(code, "co_exceptiontable", b"")

    def _of_class(self, cls: type) -> object:
        if _is_installed(cls):
            return "class", _module_of(cls), cls.__qualname__
        own = [(name, value) for name, value in sorted(vars(cls).items()) if name not in _OF_CLASSES]
        slots = (types.GetSetDescriptorType, types.MemberDescriptorType)
        members = [(name, self.of(value)) for name, value in own if not isinstance(value, slots)]
        return "class", cls.__qualname__, [self.of(base) for base in cls.__bases__], members

    def _of_value(self, thing: object) -> object:
        """Any other value: its pickle. Handles and references stand for values that may have changed."""
        from mpi_runtime.core.objects import code_pickler  # not at the top: it loads cloudpickle
        from mpi_runtime.core.objects.collecting import Collecting

        if isinstance(thing, ObjectRef):
            raise _UnknownError
        with Collecting() as refs:
            try:
                data = code_pickler.to_hash(thing)
            except Exception as error:
                if is_of_handler(error):
                    raise
                raise _UnknownError from error
        if refs:
            raise _UnknownError
        return "value", self.of(type(thing)), data


def _module_of(thing: type | types.FunctionType) -> str:
    """The word for the module of something installed. Journals contain it, so it is the same wherever that moves."""
    own: str = thing.__module__
    return first_version.MODULES.get((own, thing.__qualname__), own)


def _is_installed(thing: object) -> bool:
    """Whether it belongs to Python or to a library."""
    name = getattr(thing, "__module__", None) or ""
    if name == "__main__":
        return False
    if name.partition(".")[0] == "mpi_runtime":
        return True
    module = sys.modules.get(name)
    return module is not None and is_installed(getattr(module, "__file__", None))

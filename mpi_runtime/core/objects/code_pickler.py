"""The pickler of cloudpickle, with file names in functions, and ids of classes that outlive the run.

Since 3.1.3 cloudpickle replaces the file name in code objects by a constant. Tracebacks would then show no lines.

By a random id of a class of the program cloudpickle finds it again when an instance returns. Values in a journal return
in another run: there such an instance would belong to a class of its own, and equal nothing. So with a journal the id
is a hash of the class. Of two equal classes of a process the second keeps a random one.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
import sys
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType, FunctionType
from typing import Any, ClassVar, cast
from uuid import UUID

import cloudpickle
from cloudpickle import cloudpickle as inside

from mpi_runtime.scheduler.protocol.ids import digest

ID_BYTES = 16
_OF_PLACES = ("__firstlineno__", "__static_attributes__", "__slotnames__")
"""Attributes of classes that say where they stand, and whether an instance was pickled before."""
_CONSTANT = "<dynamic-code>"
_OF_CODE = b"cloudpickle.cloudpickle"
_SETS = (set, frozenset)
_NUMBERS = (int, float, complex, bool)
_PLAIN = (Enum, UUID, Decimal, date, time, timedelta)
_SET = pickle.EMPTY_SET + pickle.MEMOIZE + pickle.MARK
_FROZENSET = pickle.FROZENSET + pickle.MEMOIZE
_AFTER_ITEM = re.compile(rb"(?:[\x94\x88\x89N]|[hK].|M..|[jJ].{4}|G.{8})" + re.escape(_FROZENSET), re.DOTALL)
_COMMON = cloudpickle.Pickler.dispatch_table
_MAIN_OF_SPAWNED = "__mp_main__"
"""The program in a child of `multiprocessing` that was not forked. No other process can import that name."""
if _MAIN_OF_SPAWNED in sys.modules:
    cloudpickle.register_pickle_by_value(sys.modules[_MAIN_OF_SPAWNED])


def _reduce(code: CodeType) -> tuple[object, ...]:
    make, arguments = _COMMON[CodeType](code)
    return make, tuple(code.co_filename if type(one) is str and one == _CONSTANT else one for one in arguments)


def _reduce_cached(function: Any) -> str | tuple[object, ...]:
    """Reduce a function under `functools.cache` or `lru_cache`: by name if it can be imported, else with no cache."""
    if inside._lookup_module_and_qualname(function) is not None:
        name: str = function.__qualname__
        return name
    parameters = function.cache_parameters()
    return _cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached(function: Callable[..., object], maxsize: int | None, typed: bool) -> object:
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_by_key(found: weakref.WeakKeyDictionary[object, object]) -> tuple[object, ...]:
    """Reduce a dictionary with weak keys: `functools.singledispatch` has one in each function."""
    return weakref.WeakKeyDictionary, (dict(found),)


def _reduce_property(found: functools.cached_property[object]) -> tuple[object, ...]:
    """Reduce a `functools.cached_property`, which has a lock before Python 3.12."""
    return _property, (found.func, found.attrname)


def _property(function: Callable[[Any], object], name: str | None) -> functools.cached_property[object]:
    found = functools.cached_property(function)
    found.attrname = name
    return found


_OURS: dict[type, Callable[[Any], object]] = {
    type(functools.lru_cache(_cached)): _reduce_cached,
    functools.cached_property: _reduce_property,
    weakref.WeakKeyDictionary: _reduce_by_key,
}
"""Reducers of what the standard library makes around functions."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles anything that cloudpickle can, and functions with caches and with dispatch by type."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce, **_OURS}, *_COMMON.maps)


def dumps(value: object) -> bytes:
    """Pickle a value, with functions and classes of the program by value."""
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def check(value: object) -> None:
    """Raise the error of `dumps`. Takes no copies of arrays."""
    Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: False).dump(value)


_ids: Any = inside._DYNAMIC_CLASS_TRACKER_BY_CLASS
_born: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes that had no id when this process first saw them: no other process has made them."""


def _is_new(thing: object) -> bool:
    if not isinstance(thing, type) or (thing in _ids and thing not in _born):
        return False
    _born.add(thing)
    return True


def _is_by_value(reduced: object) -> bool:
    """Whether a function, class or instance is pickled with its content."""
    return type(reduced) is tuple and len(reduced) > 2


def _reduce_without_place(code: CodeType) -> tuple[object, ...]:
    found: tuple[object, ...] = _COMMON[CodeType](code.replace(co_filename="", co_firstlineno=1, co_linetable=b""))
    return found


class _Hashing(Pickler):
    """Leaves out of functions and classes what differs if they stand at another line, and sorts sets."""

    dispatch_table: ClassVar[object] = ChainMap({CodeType: _reduce_without_place, **_OURS}, *_COMMON.maps)
    has_sorted = False
    """Whether there was a set whose order may be another one in the next run."""

    def persistent_id(self, thing: object) -> object:
        if type(thing) not in _SETS or all(type(one) in _NUMBERS for one in thing):  # type: ignore[attr-defined]
            return None  # hashes of journals of the first version have sets of numbers as they are
        if not all(map(_is_plain, thing)):  # type: ignore[call-overload]
            return None  # such as objects, which may lead to the set again
        self.has_sorted = True
        return type(thing).__name__, _sorted(thing)  # type: ignore[arg-type]

    def reducer_override(self, thing: object) -> object:
        _is_new(thing)  # cloudpickle gives it an id, which is not to stay
        found = cloudpickle.Pickler.reducer_override(self, thing)
        if not _is_by_value(found):
            return found
        if isinstance(thing, FunctionType):  # its globals begin with the name of their file
            return found[0], (found[1][0], {}, *found[1][2:]), *found[2:]
        if isinstance(thing, type):
            for name in _OF_PLACES:
                found[2][0].pop(name, None)
        return found


def _is_plain(thing: object) -> bool:
    """Whether this value refers to no others but such."""
    if type(thing) in (tuple, frozenset):
        return all(map(_is_plain, cast("Iterable[object]", thing)))
    if thing is None or type(thing) in (str, bytes, *_NUMBERS) or isinstance(thing, _PLAIN):
        return True
    from pathlib import PurePath  # not at the top: it loads urllib, and most programs have none

    return isinstance(thing, PurePath)


def _sorted(things: Set[object]) -> bytes:
    """The elements of a set. Hashes of texts, by which it is ordered, are others in each run."""
    kinds = set(map(type, things))
    if len(kinds) == 1 and kinds <= {str, bytes}:
        return pickle.dumps(sorted(things), 5)
    return pickle.dumps(sorted(map(to_hash, things)), 5)


def to_hash(value: object, if_sorted: bool = False) -> bytes:
    """Return bytes that are equal for equal values in all runs of a program, wherever its functions stand in it.

    `if_sorted`: return nothing if they are those of the pickle, but for code.
    """
    file, buffers = io.BytesIO(), []

    def hashed(buffer: pickle.PickleBuffer) -> bool:
        try:
            buffers.append(digest(cast("bytes", buffer.raw()), ID_BYTES))
        except BufferError:
            return True  # it is not contiguous
        return False

    pickler = _Hashing(file, protocol=5, buffer_callback=hashed)
    pickler.dump(value)
    if if_sorted and not pickler.has_sorted:
        return b""
    data = file.getvalue()
    for id in list(inside._DYNAMIC_CLASS_TRACKER_BY_ID):
        data = data.replace(id.encode(), b"")
    return b"".join((data, *buffers))


def _reduce_with_lasting_id(self: Pickler, thing: object) -> object:
    is_new = _is_new(thing)
    found = cloudpickle.Pickler.reducer_override(self, thing)
    if is_new and _is_by_value(found):
        inside._lookup_class_or_track(digest(to_hash(thing), ID_BYTES).hex(), thing)
        _born.discard(cast("type", thing))
        found = cloudpickle.Pickler.reducer_override(self, thing)
    return found


_keeps_ids = False


def keep_ids() -> None:
    """From now on give classes of the program ids that are the same in its next run."""
    global _keeps_ids
    _keeps_ids = True
    Pickler.reducer_override = _reduce_with_lasting_id


def identity(value: object, data: bytes, rest: Sequence[object]) -> bytes:
    """Return what is hashed in place of a pickle whose bytes differ in the next run; empty: `data` and `rest`."""
    if not _keeps_ids:
        return b""
    pieces = [piece for piece in (data, *rest) if type(piece) is bytes]
    if any(_OF_CODE in piece for piece in pieces):
        return to_hash(value)
    return to_hash(value, if_sorted=True) if any(map(_may_have_sets, pieces)) else b""


def _may_have_sets(piece: bytes) -> bool:
    """Whether a set or a frozenset seems to be in a pickle. Rarely other bytes look like one."""
    return _SET in piece or (_FROZENSET in piece and _AFTER_ITEM.search(piece) is not None)

"""The arguments of a remote call. References at the top level become slots for their values; the rest is serialised."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.client.submitting import put
from mpi_runtime.core.objects import first_version, serialize
from mpi_runtime.scheduler.protocol.events import Call
from mpi_runtime.scheduler.protocol.ids import digest

DIGEST_BYTES = 16


class Parameters(NamedTuple):
    """The parameters of a function, for a fast check of calls."""

    least: float
    """With fewer positional arguments, or with any keyword argument, `signature` decides."""
    most: float
    signature: inspect.Signature | None

    @classmethod
    def of(cls, function: Callable[..., object]) -> Parameters:
        """The parameters of a function or class. For some C functions they are unknown."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls(0, math.inf, None)
        return cls.of_signature(signature)

    @classmethod
    def of_signature(cls, signature: inspect.Signature) -> Parameters:
        """Count them: `least` is infinite if a call with positional arguments alone cannot be right."""
        by_kind: dict[object, list[inspect.Parameter]] = {}
        for parameter in signature.parameters.values():
            by_kind.setdefault(parameter.kind, []).append(parameter)
        positional = by_kind.get(inspect.Parameter.POSITIONAL_ONLY, [])
        positional = positional + by_kind.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
        least: float = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
        if any(one.default is inspect.Parameter.empty for one in by_kind.get(inspect.Parameter.KEYWORD_ONLY, [])):
            least = math.inf
        return cls(least, math.inf if inspect.Parameter.VAR_POSITIONAL in by_kind else len(positional), signature)

    def without_first(self, name: str) -> Parameters:
        """The parameters of a function with `num_ranks`, which gets the communicator first."""
        if self.signature is None:
            return self
        ones = list(self.signature.parameters.values())
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if ones and ones[0].kind in kinds:
            return Parameters.of_signature(self.signature.replace(parameters=ones[1:]))
        if ones and ones[0].kind is inspect.Parameter.VAR_POSITIONAL:
            return self
        raise TypeError(f"{name}() has the option num_ranks, so its first parameter must be the communicator: comm")

    def portable(self, drop: int) -> tuple[tuple[str, int, bool], ...] | None:
        """The parameters in a form for handles, without the first `drop`; None: unknown."""
        if self.signature is None:
            return None
        ones = list(self.signature.parameters.values())[drop:]
        return tuple((one.name, int(one.kind), one.default is not inspect.Parameter.empty) for one in ones)

    def in_words(self, name: str) -> str:
        """How to call the function, for its `repr`."""
        if self.signature is None:
            return f"{name}(...)"
        plain = inspect.Parameter.empty
        bare = [one.replace(annotation=plain) for one in self.signature.parameters.values()]
        return f"{name}{self.signature.replace(parameters=bare, return_annotation=plain)}"

    def check(self, args: tuple[object, ...], kwargs: dict[str, object], name: str, how: str = "remote") -> None:
        """Raise TypeError if `name` cannot be called with these arguments, which were given to its `.remote`."""
        if not kwargs and self.least <= len(args) <= self.most:
            return
        if self.signature is not None:
            try:
                self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}.{how}(): {error}") from None


@functools.lru_cache(maxsize=1024)
def parameters_of(portable: tuple[tuple[str, int, bool], ...] | None) -> Parameters:
    """The reverse of `Parameters.portable`. None: any arguments will do."""
    if portable is None:
        return Parameters(0, math.inf, None)
    kind_of: Any = type(inspect.Parameter.VAR_KEYWORD)  # an enumeration without a public name
    empty = inspect.Parameter.empty
    ones = [
        inspect.Parameter(name, kind_of(kind), default=None if optional else empty) for name, kind, optional in portable
    ]
    return Parameters.of_signature(inspect.Signature(ones))


def digest_of_arguments(call: Call, packed: Packed) -> bytes:
    """The hash of the arguments of a call. Ids of references are left out: their values count."""
    payload = first_version.as_first_pickled(packed.identity or call.payload)
    for index, id in enumerate(call.holds):
        payload = payload.replace(id, index.to_bytes(len(id), "big"))
    return digest(payload, DIGEST_BYTES)


class Scatter:
    """An argument with an item for each rank. `mpi.scatter` makes it."""

    def __init__(self, items: list[object]) -> None:
        self.items = items

    def refs(self, client: Client, ranks: int, name: str) -> list[ObjectRef[object]]:
        """References to the items, in the order of ranks: there must be one for each."""
        if len(self.items) != ranks:
            raise ValueError(
                f"{name}.remote(): mpi.scatter() has {len(self.items)} items, and the call has num_ranks={ranks}: pass "
                "one item for each rank"
            )
        what = f"an item of mpi.scatter() for {name}()"
        return [item if type(item) is ObjectRef else put(client, serialize.dumps(item, what)) for item in self.items]

    def __repr__(self) -> str:
        return f"mpi.scatter({len(self.items)} items)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            "mpi.scatter() must be an argument of a function with num_ranks, not a part of an argument. Methods and "
            "other functions do not cut it: pass the items, and let each rank take items[comm.rank]"
        )


class Packed(NamedTuple):
    """The arguments in the form of a call."""

    payload: bytes
    arguments: tuple[bytes, ...]
    """Objects whose values replace slots."""
    holds: tuple[bytes, ...]
    """References inside the arguments."""
    keep: list[ObjectRef[object]] | None
    """References to keep until the call has been submitted."""
    scattered: int = 0
    """The number of arguments of `mpi.scatter`: their items are the last of `arguments`."""
    identity: bytes = b""
    """See `Serialized`."""


NOTHING = Packed(b"", (), (), None)


def pack(client: Client, args: tuple[object, ...], kwargs: dict[str, object], name: str, ranks: int = 0) -> Packed:
    """Serialise the arguments of a call to `name`. Those larger than `inline_bytes_max` become an object.

    Raises:
        TypeError: an argument cannot be serialised.
        ObjectStoreFullError: the arguments are large, and the object store has no room for them.
    """
    ids: list[bytes] = []
    scattered: list[Scatter] = []
    keep: list[ObjectRef[object]] = []
    common = sum(type(value) is ObjectRef for value in (*args, *kwargs.values())) if ranks else 0

    def slot(value: object) -> object:
        if type(value) is ObjectRef:
            value.check_job()
            ids.append(value.binary())
            return serialize.Slot(len(ids) - 1)
        if ranks and type(value) is Scatter:  # each rank has one object for each of them, behind the others
            scattered.append(value)
            return serialize.Slot(common + len(scattered) - 1)
        return value

    args = tuple([slot(value) for value in args])
    if kwargs:
        kwargs = {key: slot(value) for key, value in kwargs.items()}
    for one in scattered:
        refs = one.refs(client, ranks, name)
        keep += refs
        ids += [ref.binary() for ref in refs]
    serialized = serialize.dumps_arguments(args, kwargs, f"an argument of {name}()")
    payload = serialized.inline_up_to(client.store.inline_bytes_max)
    if payload is not None:
        holds, identity = tuple(serialized.refs), serialized.identity
        return Packed(payload, tuple(ids), holds, keep or None, len(scattered), identity)
    whole = put(client, serialized)
    return Packed(b"", (whole.binary(), *ids), (), [*keep, whole], len(scattered))

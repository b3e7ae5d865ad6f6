"""The arguments of a remote call: references at the top level become slots for their values, the rest is serialised."""

from __future__ import annotations

from typing import Any, NamedTuple

from mpi_runtime.objects import serialize
from mpi_runtime.processes.client import Client
from mpi_runtime.refs import ObjectRef

PAYLOAD_BYTES_MAX = 65536
"""Arguments larger than this travel as an object."""


class Packed(NamedTuple):
    """Arguments as a call carries them."""

    payload: bytes
    arguments: list[bytes]
    """Objects that stand in for slots."""
    holds: list[bytes]
    """References inside."""
    keep: ObjectRef[Any] | None
    """To be kept until the call has been submitted."""


def pack(client: Client, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Packed:
    """Serialise the arguments of a call to `name`.

    Raises:
        TypeError: one of them cannot be serialised.
        ObjectStoreFullError: they are large, and there is no room for them.
    """
    ids: list[bytes] = []

    def slot(value: Any) -> Any:
        if type(value) is ObjectRef:
            value.check_job()
            ids.append(value.binary())
            return serialize.Slot(len(ids) - 1)
        return value

    args = tuple([slot(value) for value in args])
    if kwargs:
        kwargs = {key: slot(value) for key, value in kwargs.items()}
    serialized = serialize.dumps_arguments(args, kwargs, f"an argument of {name}()")
    if serialized.size() <= PAYLOAD_BYTES_MAX:
        return Packed(serialized.inline(), ids, serialized.refs, None)
    whole = client.put_serialized(serialized)
    return Packed(b"", [whole.binary(), *ids], [], whole)

"""Ids with a type, as programs written for Ray have them. They are bytes, and can be used where those are wanted."""

from __future__ import annotations

import os
from typing import TypeVar

from mpi_runtime.scheduler.ids import ID_BYTES

Self = TypeVar("Self", bound="BaseID")


class BaseID(bytes):
    """The bytes of an id."""

    __slots__ = ()
    SIZE = ID_BYTES

    @classmethod
    def from_hex(cls: type[Self], text: str) -> Self:
        """The id with these hexadecimal digits."""
        return cls(bytes.fromhex(text))

    @classmethod
    def from_binary(cls: type[Self], data: bytes) -> Self:
        """The id with these bytes."""
        return cls(data)

    @classmethod
    def from_random(cls: type[Self]) -> Self:
        """An id that nothing has."""
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def nil(cls: type[Self]) -> Self:
        """The id that stands for none."""
        return cls(b"\xff" * cls.SIZE)

    def binary(self) -> bytes:
        """Its bytes."""
        return bytes(self)

    def is_nil(self) -> bool:
        """Whether it stands for none."""
        return self == self.nil()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __reduce__(self) -> tuple[type[BaseID], tuple[bytes]]:
        return type(self), (bytes(self),)

    __str__ = __repr__


class UniqueID(BaseID):
    """An id of no kind."""

    __slots__ = ()


class ActorID(BaseID):
    """Of an actor."""

    __slots__ = ()


class FunctionID(BaseID):
    """Of a function."""

    __slots__ = ()


class JobID(BaseID):
    """Of the job."""

    __slots__ = ()
    SIZE = 4


class NodeID(BaseID):
    """Of a node."""

    __slots__ = ()


class PlacementGroupID(BaseID):
    """Of a placement group."""

    __slots__ = ()


class TaskID(BaseID):
    """Of a call."""

    __slots__ = ()


class WorkerID(BaseID):
    """Of a process that runs calls."""

    __slots__ = ()

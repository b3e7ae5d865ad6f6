"""Typed ids, as programs written for Ray use them. They are bytes, and are accepted wherever bytes are."""

from __future__ import annotations

import os
from typing import TypeVar

from mpi_runtime.core import published
from mpi_runtime.scheduler.protocol.ids import ID_BYTES

Self = TypeVar("Self", bound="BaseID")


class BaseID(bytes):
    """An id that is its own bytes, so that it compares equal to them."""

    __slots__ = ()
    SIZE = ID_BYTES

    @classmethod
    def from_hex(cls: type[Self], text: str) -> Self:
        """The reverse of `hex`."""
        return cls(bytes.fromhex(text))

    @classmethod
    def from_binary(cls: type[Self], data: bytes) -> Self:
        """The reverse of `binary`."""
        return cls(data)

    @classmethod
    def from_random(cls: type[Self]) -> Self:
        """Return an id that nothing has."""
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def nil(cls: type[Self]) -> Self:
        """Return the id that refers to nothing."""
        return cls(b"\xff" * cls.SIZE)

    def binary(self) -> bytes:
        """Return `bytes` without a type of their own, as messages have them."""
        return bytes(self)

    def is_nil(self) -> bool:
        """Whether it refers to nothing."""
        return self == self.nil()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __reduce__(self) -> tuple[type[BaseID], tuple[bytes]]:
        return type(self), (bytes(self),)

    __str__ = __repr__


@published()
class UniqueID(BaseID):
    """An id of no particular kind."""


@published()
class ActorClassID(UniqueID):
    """The id of a class of actors. Nothing here has one."""


@published()
class ActorID(BaseID):
    """The id of an actor."""


@published()
class FunctionID(BaseID):
    """Nothing here returns one: it is for programs written for Ray."""


@published()
class JobID(BaseID):
    """4 bytes: the number of a driver in a session, from 1 on, the lowest byte first."""

    SIZE = 4


def job_id(driver: int) -> JobID:
    """Return the id of what belongs to this driver; 0: the program of rank 0."""
    return JobID((driver + 1).to_bytes(JobID.SIZE, "little"))


@published()
class NodeID(BaseID):
    """The id of a node."""


@published()
class PlacementGroupID(BaseID):
    """The id of a placement group."""


@published()
class TaskID(BaseID):
    """Of a call: of a task, or of one method call of an actor."""


@published()
class WorkerID(BaseID):
    """Of an executor: another one for each process."""

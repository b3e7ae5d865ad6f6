"""What the agent of a node and its helper with the PMIx server send each other: orders, and reports."""

from __future__ import annotations

import msgspec

from mpi_runtime.core.gangs.library import Library


class Register(msgspec.Struct, array_like=True, tag="r"):
    """A gang begins. The helper answers `Registered`."""

    name: str
    hosts: list[int]
    """The number of the node of each rank."""
    names: list[str]
    own: int
    """The number of this node."""


class Forget(msgspec.Struct, array_like=True, tag="x"):
    """The members of a gang have ended."""

    name: str


class LookUp(msgspec.Struct, array_like=True, tag="l"):
    """Another node wants the data of a member of this one. The helper answers `Collected`."""

    number: int
    name: str
    rank: int


class Collected(msgspec.Struct, array_like=True, tag="c"):
    """The answer to `Fence` or `Wanted`, and to `LookUp`."""

    number: int
    status: int
    data: bytes


class Grouped(msgspec.Struct, array_like=True, tag="g"):
    """The answer to a `Fence` that makes a group."""

    number: int
    context: int
    """The number of the new group, unique in its gang."""
    parts: list[bytes]
    """The endpoints of the members of each node."""


class Found(msgspec.Struct, array_like=True, tag="F"):
    """The MPI library of programs here."""

    library: Library


class Registered(msgspec.Struct, array_like=True, tag="R"):
    """A gang is known; the variables of its members on this node."""

    name: str
    variables: dict[int, dict[str, str]] = {}
    problem: str = ""
    """Why it cannot be started; empty: it can."""


class Member(msgspec.Struct, array_like=True, tag="M"):
    """A member has called MPI_Init or MPI_Finalize."""

    name: str
    rank: int
    is_final: bool


class Aborted(msgspec.Struct, array_like=True, tag="A"):
    """A member has called MPI_Abort."""

    name: str
    rank: int
    code: int
    text: str


class Logged(msgspec.Struct, array_like=True, tag="S"):
    """The MPI library of a member has a text for the user."""

    name: str
    rank: int
    text: bytes


class Fence(msgspec.Struct, array_like=True, tag="C"):
    """The members of this node are in a fence with other nodes, or make a group of processes with them."""

    name: str
    number: int
    ranks: list[int]
    """All that take part; empty: the whole gang."""
    data: bytes
    group: str | None = None
    """The name of the group; None: it is a fence."""


class Wanted(msgspec.Struct, array_like=True, tag="W"):
    """A member wants the data of a rank on another node."""

    name: str
    number: int
    rank: int


Order = Register | Forget | LookUp | Collected | Grouped
Report = Found | Registered | Member | Aborted | Logged | Fence | Wanted | Collected

orders = msgspec.msgpack.Decoder(Order)
reports = msgspec.msgpack.Decoder(Report)

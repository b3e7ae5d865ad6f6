"""Questions that clients ask about their job, each with the type of its answer. They change nothing.

    for call in extend.ask(RunningCalls()):
        print(call.host, call.for_us)

A question is a class: its fields are the arguments, and its base names the answer. So `ask(RunningCalls())` is a
`list[RunningCall]` for a type checker, and whoever asks decodes the answer as that. Where an answer is an entry of a
public list, its fields on the wire are the public keys, in their order: `msgspec.to_builtins(entry)` gives the
dictionary that users get.

To add a question:

1. Write the class of its answer, if that needs one, and the question below it. What is asked often is `array_like`.
2. Add the question to `ClientQuestion`.
3. Write a function `(state, question, now) -> answer` in `scheduler/answers/`, and add it to `ANSWERS` in
   `answers/answering.py`.

Ids of calls, actors, objects and groups are 16 bytes; in answers for people they are hexadecimal. The empty id, the
default, asks for all entries of a list. Times are microseconds; `for_us` is the time since the last message of the
process that runs a call. Questions of programs outside the job are in `window_questions.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from mpi_runtime.scheduler.protocol.entries import (
    ActorEntry,
    Amounts,
    Counts,
    DriverEntry,
    EnvironmentEntry,
    GroupEntry,
    NodeEntry,
    NodeStoreEntry,
    ObjectEntry,
    TaskEntry,
    WorkerEntry,
)
from mpi_runtime.scheduler.protocol.past import Past, Runs

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Question(Struct, Generic[A_co], array_like=True, tag=True):
    """A question with an answer of this type."""


def decoded(question: Question[A], data: bytes | msgspec.Raw) -> A:
    """Decode the answer to a question.

    Raises:
        msgspec.ValidationError: it is of another type.
    """
    answer: A = _decoder(type(question)).decode(data)
    return answer


@cache
def _decoder(kind: type[Question[object]]) -> msgspec.msgpack.Decoder[Any]:
    (base,) = vars(kind)["__orig_bases__"]
    return msgspec.msgpack.Decoder(base.__args__[0])


# Lists and amounts


class Statistics(Question[Counts]):
    """Counts of everything, for tests, leaks and displays."""


class ClusterResources(Question[Amounts]):
    """The resources of all nodes together."""


class AvailableResources(Question[Amounts]):
    """The free resources of all nodes together, without those of which nothing is free."""


class Nodes(Question[list[NodeEntry]]):
    """The nodes, or the one with this id."""

    id: bytes = b""


class NodeOfRank(Question[str]):
    """The id of the node of a rank."""

    rank: int


class Tasks(Question[list[TaskEntry]]):
    """The calls that have not ended, then the last attempts that have; or the call with this id."""

    id: bytes = b""
    ended: int = 0
    """The most ended attempts, up to `ENDED_MAX`."""


class AllDrivers(Struct, array_like=True):
    """The drivers of a session of which anything is left."""

    joined: int
    """The number of all that have connected."""
    drivers: list[DriverEntry]


class Drivers(Question[AllDrivers]):
    """The drivers of the session."""


class Actors(Question[list[ActorEntry]]):
    """The actors, then the last ones that have ended and have no handle left; or the one with this id."""

    id: bytes = b""
    ended: int = 0
    """The most of those that have ended."""


class Objects(Question[list[ObjectEntry]]):
    """The objects of the store, or the one with this id."""

    id: bytes = b""


class Workers(Question[list[WorkerEntry]]):
    """The executors, then the last ones that have ended; or the one with this number as its id."""

    id: bytes = b""
    ended: int = 0
    """The most of those that have ended."""


class Environments(Question[list[EnvironmentEntry]]):
    """The environments that executors have."""


class Groups(Question[list[GroupEntry]]):
    """The placement groups, then the last ones that were removed; or the one with this id."""

    id: bytes = b""
    removed: int = 0
    """The most of those that were removed."""


class Store(Question[list[NodeStoreEntry]]):
    """The object store by node."""


# Names, and the values of groups


class NamedActorFound(Struct, array_like=True):
    """An actor with a name: its id and its handle."""

    id: bytes
    handle: bytes


class NamedActor(Question[NamedActorFound | None]):
    """The actor with this name, if there is one."""

    namespace: str
    name: str


class ActorName(Struct, array_like=True):
    """The name of an actor."""

    namespace: str
    name: str


class NamedActors(Question[list[ActorName]]):
    """The names of all actors that have one."""


class Group(Question[bytes | None]):
    """The value of the object of a placement group; None: it has been removed."""

    id: bytes


class NamedGroup(Question[bytes | None]):
    """The same of the placement group with this name, if there is one."""

    namespace: str
    name: str


# How far the job is


class Saved(Struct, array_like=True):
    """What the journal has."""

    unsaved: int
    """The number of actors that have yet to save their state."""
    recorded: int
    """The number of records."""


class Progress(Question[Saved]):
    """How much a next run of the job would find."""


class RunningCall(Struct, array_like=True):
    """A running call."""

    id: bytes
    host: str
    for_us: int


class RunningCalls(Question[list[RunningCall]]):
    """The newest running calls."""


class LateFunction(Struct, array_like=True):
    """A function with calls that are too late to start."""

    name: str
    calls: int
    each_us: int
    """The duration of each."""


class LateCalls(Struct, array_like=True):
    """The ready tasks that cannot end before the job's time does."""

    functions: list[LateFunction]
    end_us: int
    """The end of the job's time, since 1970; 0: not known."""


class Late(Question[LateCalls]):
    """The ready tasks that are too late to start."""


class Explanation(Struct, kw_only=True, omit_defaults=True):
    """Why a value is not there, or where it is."""

    state: str
    name: str = ""
    """The function whose call makes it; empty: no call does."""
    why: str
    story: str = ""
    """The unusual moves of its call."""


class Explain(Question[Explanation]):
    """Why the call that makes this object has not ended."""

    id: bytes


# What has run


class Report(Question[Runs]):
    """All attempts that are remembered, for the page of a job."""


class History(Question[Past]):
    """All runs and moves that are remembered."""


ClientQuestion = (
    ClusterResources | AvailableResources | Nodes | NodeOfRank
    | Tasks | Actors | Objects | Workers | Environments | Groups | Store | Statistics
    | NamedActor | NamedActors | Group | NamedGroup
    | Progress | RunningCalls | Late | Explain | Report | History | Drivers
)  # fmt: skip

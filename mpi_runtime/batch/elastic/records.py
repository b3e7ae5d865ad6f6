"""What the jobs of an elastic batch write for each other."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import msgspec

from mpi_runtime.batch.file.model import Asked, Demand

Request = tuple[tuple[str, float], ...]
"""Amounts of resources by name, without zeros, in the order of names."""

EPOCH_BITS = 32
"""Numbers of commands: those of a later coordinator are higher. A command keeps its number if it is offered again."""


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A command that may start."""

    number: int
    """Given by the coordinator when the command may start: a later start of a command has a higher number."""
    name: str
    key: bytes
    """The hash of the command: an end counts only for it."""
    command: bytes = msgspec.msgpack.encode(Asked())
    """In msgpack. Not its place in a file, which may be edited while jobs run."""
    request: Request = ()
    """Its amounts, of all ranks together; of the first alternative. Here because decisions need it most often."""
    seconds: float = 1.0
    """How long it is assumed to take."""
    limit_s: float = 0.0
    """How long it may take at most; 0: not known, or `seconds` counts in its place."""
    order: tuple[int, int] = (0, 0)
    """Commands with lower values are offered first: those of a high priority, then those before a long chain."""
    attempt: int = 0
    """How often it was offered before to a job that was lost."""
    together: str = ""
    """Commands with this text run in one job, because they write to one file."""

    @property
    def asked(self) -> Asked:
        """What the command asks of a job."""
        return _asked(self.command)

    @property
    def path_us(self) -> int:
        """The chain after it, for the scheduler of the job that runs it."""
        return -self.order[1]

    def requests(self) -> list[Request]:
        """The amounts of all its alternatives."""
        asked = self.asked
        return [self.request, *(request_of(one, asked.ranks) for one in asked.alternatives[1:])]


_asked = functools.lru_cache(maxsize=4096)(msgspec.msgpack.Decoder(Asked).decode)


def request_of(demand: Demand, ranks: int = 1) -> Request:
    """The amounts of an alternative, of all ranks together."""
    return tuple(sorted((name, ranks * amount) for name, amount in demand.amounts().items() if amount))


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Commands for one job."""

    slice: str
    """The name that a job must make before it starts any of them. There is only one such offer."""
    token: str
    """The job."""
    works: tuple[Work, ...]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Commands that are to be ended wherever they run."""

    numbers: tuple[int, ...]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Nothing is left: all jobs may end."""

    exit_code: int


Entry = Offer | Stop | Closed
ENTRIES = msgspec.msgpack.Decoder(Entry)


class Status(msgspec.Struct, frozen=True):
    """What a job writes about itself, again and again."""

    token: str
    """Random: a job that is requeued keeps its id."""
    beat: int
    job: str
    """The job in words."""
    host: str
    """The scope of its process number."""
    pid: int
    started: str
    batch_job: str
    """Its id in Slurm; empty: none."""
    segment: int
    """The number of the file with its records."""
    length: int
    """How many bytes of that file are written."""
    nodes: tuple[dict[str, float], ...]
    left_s: float | None = None
    """How long from now it starts commands; None: no limit is known."""
    is_leaving: bool = False
    """It starts nothing more and writes nothing more."""


class Returned(msgspec.Struct, frozen=True):
    """A job gives commands back, and will not end them."""

    numbers: tuple[int, ...]
    slices: tuple[str, ...]
    """Those with which the job had them. It may have been offered one of them again since."""
    is_begun: bool
    """Whether they had begun."""


def share_of(request: Request, nodes: tuple[dict[str, float], ...]) -> float:
    """The largest share of a resource of all nodes of a job that a command needs."""
    most = 0.0
    for name, amount in request:
        total = sum(node.get(name, 0.0) for node in nodes)
        most = max(most, amount / total if total else 1.0)
    return most


def share_on(work: Work, nodes: tuple[dict[str, float], ...]) -> float:
    """The share of all nodes of a job that a command takes, with the first alternative that fits."""
    if work.asked.alternatives:
        found = (one for one in work.requests() if _has_room(one, nodes))
        return share_of(next(found, work.request), nodes)
    return share_of(work.request, nodes)


def fits(work: Work, nodes: tuple[dict[str, float], ...]) -> bool:
    """Whether the nodes of a job have room for a command when they are empty."""
    asked = work.asked
    if asked.ranks > 1:
        return room_for_ranks(asked.amounts(), nodes, asked.ranks_per_node or asked.ranks) >= asked.ranks
    return any(_has_room(one, nodes) for one in work.requests())


def _has_room(request: Request, nodes: tuple[dict[str, float], ...]) -> bool:
    return any(all(node.get(name, 0.0) >= amount for name, amount in request) for node in nodes)


def room_for_ranks(each: Mapping[str, float], nodes: Iterable[Mapping[str, float]], most: int) -> int:
    """The number of ranks with these amounts for which empty nodes have room; `most`: on each."""
    found = 0
    for node in nodes:
        fit = [node.get(name, 0.0) / amount + 1e-9 for name, amount in each.items() if amount]
        found += int(min([*fit, most]))
    return found

"""What the jobs of an elastic batch write for each other."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from mpi_runtime.batch.file.model import Asked, counted
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.resources import Pool, fits, pool_for, room

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
    amounts: tuple[tuple[str, float], ...] = ()
    """Not used: earlier versions write its amounts here, and `command` has them too."""
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

    def requests(self) -> tuple[Request, ...]:
        """What each of its ranks needs; with alternatives what each of these needs."""
        return _requests(self.command)


_asked = functools.lru_cache(maxsize=4096)(msgspec.msgpack.Decoder(Asked).decode)


@functools.lru_cache(maxsize=4096)
def _requests(command: bytes) -> tuple[Request, ...]:
    return tuple(one.request() for one in _asked(command).demands())


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


def pool_of(amounts: Mapping[str, float]) -> Pool:
    """What a node has as the scheduler counts it; its `amounts` by name, as jobs state them on disk."""
    return pool_for(counted(amounts))


def share_on(work: Work, nodes: tuple[Pool, ...]) -> float:
    """The largest share of a resource of all nodes of a job that a command takes, with the first alternative that fits.

    More than 1: the nodes do not have as much.
    """
    requests = work.requests()
    request = requests[0]
    if len(requests) > 1:
        request = next((one for one in requests if any(fits(one, node) for node in nodes)), request)
    needs = [
        (request.cpu, sum(node.cpu for node in nodes)),
        (request.memory, sum(node.memory for node in nodes)),
        *((units, sum(node.custom.get(name, 0) for node in nodes)) for name, units in request.custom),
    ]
    if request.gpu:
        needs.append((request.gpu, sum(sum(node.gpu_units) for node in nodes)))
    ranks = work.asked.ranks
    return max((ranks * amount / total if total else 1.0 for amount, total in needs if amount), default=0.0)


def can_run(work: Work, nodes: tuple[Pool, ...]) -> bool:
    """Whether the nodes of a job have room for a command when they are empty."""
    asked = work.asked
    if asked.ranks > 1:
        most = asked.ranks_per_node or asked.ranks
        return sum(room(work.requests()[0], node, most) for node in nodes) >= asked.ranks
    return any(fits(request, node) for request in work.requests() for node in nodes)

"""Sources: nodes and bundles from which executors get grants. A source can be reserved for a claimant that waits."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.limits import RESERVATION_US
from mpi_runtime.scheduler.protocol.resources import Pool, fits

NOTHING: Final = 1 << 62
"""The position of a claimant that does not wait; a time in the infinite future."""


class Claimant(Struct, eq=False, gc=False):
    """A family of queues or a placement group, for which sources can be reserved while it waits."""

    reserved: list[Source] = []
    """The sources that are reserved for it."""
    priority: int = 0
    no_reservation_until_us: int = 0
    """It gets no further reservation before this time: the last one has lapsed."""
    patience_us: int = RESERVATION_US
    """The shortest duration of its next reservation."""

    def position(self) -> int:
        """The position of its first waiting call among all calls ever submitted; NOTHING if it does not wait."""
        raise NotImplementedError

    def spares(self, request: Request, free: Pool) -> bool:
        """Whether others may take a request from its source, because it waits for other resources."""
        return False


class Contender(Struct, eq=False, gc=False):
    """A queue, as sources see it."""

    family: Claimant
    """The claimant for which its sources are reserved."""
    kin: list[Claimant] = []
    """The claimants for its other alternatives, whose sources it may use too."""
    takes_us: int = NOTHING
    """The estimated duration of its next call; NOTHING: not known."""


class Source(Struct, eq=False, gc=False):
    """A node or a bundle: grants are taken from it and returned to it."""

    total: Pool
    free: Pool
    actor_cpu: int = 0
    """CPU units of actors: they do not become free by waiting."""
    reserved_for: Claimant | None = None
    reserved_until_us: int = 0
    begins_in_us: int = 0
    """While it is reserved: the estimated time until the claimant can start. Shorter calls do not delay it."""

    def is_closed(self) -> bool:
        """Whether nothing is started here for now."""
        return False

    def may_take(self, request: Request, asks: Contender | None) -> bool:
        """Whether a request of a queue can be served here now, in spite of reservations."""
        return not self.is_closed() and self.is_open_to(request, asks, self.free) and fits(request, self.free)

    def is_open_to(self, request: Request, asks: Contender | None, free: Pool) -> bool:
        """Whether the source is not reserved for others, or this request of a queue does not delay them."""
        kept_for = self.reserved_for
        return (
            kept_for is None
            or (
                asks is not None
                and (kept_for is asks.family or asks.takes_us <= self.begins_in_us or kept_for in asks.kin)
            )
            or kept_for.spares(request, free)
        )

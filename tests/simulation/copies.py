"""Copies between hosts, looked at from outside: where they are ordered from, and how many from one place at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi_runtime.scheduler.protocol.effects import Effects, Fetch, StopFetch
from mpi_runtime.scheduler.protocol.rank_events import Arriving, Fetched, RoomWanted
from mpi_runtime.scheduler.values import spreading
from tests.simulation.require import require

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker


@dataclass
class Order:
    """A copy that is on its way."""

    effect: Fetch
    has_failed: bool = False


class Copies:
    """Watches one simulation."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.orders: dict[tuple[bytes, int], Order] = {}
        """By object, and the rank that brings it."""
        self.arriving: dict[tuple[int, int], bytes] = {}
        """What has begun to arrive, by rank and place."""
        self.tight: set[int] = set()
        """Ranks whose clients want room. Only for membership."""

    def rank_said(self, rank: int, message: object) -> None:
        """A rank said this."""
        if isinstance(message, RoomWanted):
            (self.tight.add if message.size else self.tight.discard)(self.checker.rank_hosts[rank])
        if not isinstance(message, Arriving | Fetched):
            return
        order = self.orders.get((message.id, rank))
        if order is None or message.order < order.effect.order:
            return  # it answers an older one
        if isinstance(message, Arriving):
            self.arriving[rank, message.offset] = message.id
        elif message.is_lost:
            order.has_failed = True
        else:
            del self.orders[message.id, rank]
            self.arriving.pop((rank, message.offset), None)

    def rank_lost(self, rank: int) -> None:
        """A rank is gone."""
        self.orders = {key: one for key, one in self.orders.items() if key[1] != rank}
        self.arriving = {place: id for place, id in self.arriving.items() if place[0] != rank}
        for order in self.orders.values():
            order.has_failed |= order.effect.rank == rank

    def decided(self, effects: Effects) -> None:
        """The head has decided."""
        new = []
        for rank, some in effects.ranks.items():
            for effect in some:
                if isinstance(effect, StopFetch):
                    self.orders.pop((effect.id, rank), None)
                    self.arriving = {
                        place: id for place, id in self.arriving.items() if (place[0], id) != (rank, effect.id)
                    }
                elif isinstance(effect, Fetch):
                    self.orders[effect.id, rank] = Order(effect)
                    new.append((rank, effect))
        for rank, effect in new:
            order = self.orders.get((effect.id, rank))
            if order is not None and order.effect is effect:  # else the same decision stops it again
                self._look_at_source(rank, effect)

    def _look_at_source(self, rank: int, effect: Fetch) -> None:
        """It is where the object is or arrives, and serves no more than it may."""
        place = effect.rank, effect.offset
        name = f"the copy of {effect.id.hex()} that rank {rank} is to bring from {place}"
        quality = self.checker.quality
        is_whole = self.arriving.get(place) != effect.id
        is_known = effect.id in quality.copies  # not an error
        is_there = self.checker.rank_hosts[effect.rank] in quality.copies.get(effect.id, {})
        require(not is_whole or not is_known or is_there, f"{name} is not there")
        self.checker.world.counters["copies passed on while they arrive"] += not is_whole
        others = [
            other
            for (id, other), order in self.orders.items()
            if id == effect.id and not order.has_failed and (order.effect.rank, order.effect.offset) == place
        ]
        others = [one for one in others if self.checker.rank_hosts[one] not in self.tight]
        most = max(1, spreading.SHARED_BYTES // effect.size)
        require(len(others) <= most, f"{name} is brought by {others} at the same time; {most} may")
        chain = [place]
        while chain[-1] in self.arriving and len(chain) <= len(self.orders):
            before = self.orders[effect.id, chain[-1][0]].effect
            chain.append((before.rank, before.offset))
        require(len(chain) <= len(self.orders), f"{name} comes by way of itself: {chain}")
        passing = len(chain) - 1
        require(passing < max(1, effect.size // spreading.HOP_BYTES), f"{name} comes by way of {passing} others")

"""The hosts of a simulation as its checkers see them: what each owns, and what the processes there use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mpi_runtime.scheduler.protocol.rank_events import RankJoined
from tests.simulation.cards import Cards, Taken
from tests.simulation.places import NOWHERE, Place


@dataclass
class Use:
    """What the process of an executor uses at a moment."""

    host: int
    cpu: int = 0
    memory: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    devices: tuple[Taken, ...] = ()
    is_blocked: bool = False
    is_held: bool = False
    """It is what an actor keeps: that is not lent."""
    woke: bool = False
    """It has been blocked since it last had nothing to do, or, as an actor, since all fitted: it may be overdrawn."""
    woke_us: int = 0
    actor: bytes = b""
    place: Place = NOWHERE


@dataclass
class Host:
    """The resources and labels of a host, and the executors that use them."""

    cpus: set[int] = field(default_factory=set)
    cards: Cards = field(default_factory=Cards)
    memory: int = 0
    custom: Counter[str] = field(default_factory=Counter)
    labels: dict[str, str] = field(default_factory=dict)
    uses: dict[int, Use] = field(default_factory=dict)


def node_ids(joined: Sequence[RankJoined]) -> dict[int, str]:
    """The id of the node that each host is: nodes are numbered as their first ranks join."""
    return {host: f"{number:032x}" for number, host in enumerate(dict.fromkeys(event.host for event in joined))}

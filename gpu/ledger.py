"""Which devices of a host a request gets: whole ones, or a share of one. Pure; amounts are integers.

A device has `UNIT` units and so many bytes. A whole device is all of both. A share of it takes its part of the bytes,
or as many as were asked for; where only bytes are asked for it takes no units. Each process takes some more for itself
(`Device.reserve`): of the part of its share, or beside the bytes that were asked for. Several devices of one request
are visible to one rank, and none of them is an instance of MIG, of which CUDA shows a process only one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mpi_runtime.gpu.device import UNIT, Device, Link
from mpi_runtime.gpu.topology import choose_set, pair_weight

Ranks = frozenset[int] | None
"""Numbers of ranks; None: whoever is there."""

SETS_MAX = 4096
"""Answers that are remembered for one host."""

Granted = tuple[tuple[int, int, int], ...]
"""(device id, units, bytes) for each device, in order of ids."""


class Inventory(Struct, eq=False, gc=False):
    """The devices of a host, by id, and what is known of them beyond what is free."""

    devices: list[Device] = []
    seen_by: list[Ranks] = []
    """For each the ranks that can use it."""
    links: dict[tuple[str, str], int] = {}
    """Weight of the connection of two, by their UUIDs."""
    weights: list[list[int]] = []
    """The same, by their ids."""
    sets: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    """Sets that were chosen before, by candidates and count."""
    homes: list[int] = []
    """For each the number of the rank that is nearest; empty until it is asked for."""
    suspects: dict[int, str] = {}
    """Those on which the last process that used them failed at once: what it ran, if that may be the reason. They are
    given after all others."""
    out: dict[int, str] = {}
    """Those that are given to nobody any more, and why."""

    def add(self, devices: Sequence[Device], links: Sequence[Link], ranks: Ranks) -> list[Device]:
        """Ranks can use these. Returns those that were not known; ids are given anew, in order of place."""
        known = {device.uuid: id for id, device in enumerate(self.devices)}
        new = []
        for device in devices:
            if device.uuid in known:
                before = self.seen_by[known[device.uuid]]
                self.seen_by[known[device.uuid]] = None if before is None or ranks is None else before | ranks
            else:
                new.append(device)
                self.devices.append(device)
                self.seen_by.append(ranks)
        for link in links:
            weight = pair_weight(link.nvlinks, link.distance)
            self.links[link.first, link.second] = self.links[link.second, link.first] = weight
        self._keep(sorted(range(len(self.devices)), key=lambda id: self.devices[id].place))
        return new

    def keep_only(self, devices: Sequence[Device]) -> None:
        """Forget all others."""
        self._keep([id for id, device in enumerate(self.devices) if device in devices])

    def _keep(self, ids: Sequence[int]) -> None:
        self.seen_by = [self.seen_by[id] for id in ids]
        self.devices = [self.devices[id] for id in ids]
        uuids = [device.uuid for device in self.devices]
        self.weights = [[self.links.get((one, other), 0) for other in uuids] for one in uuids]
        self.sets.clear()
        self.homes.clear()

    def is_seen_by(self, device: int, rank: int) -> bool:
        """Whether a rank can use a device."""
        ranks = self.seen_by[device]
        return ranks is None or rank in ranks

    def ranks_of(self, devices: Sequence[int]) -> Ranks:
        """The ranks that can use all of these."""
        sets = [ranks for device in devices if (ranks := self.seen_by[device]) is not None]
        return frozenset.intersection(*sets) if sets else None

    def can_use(self, device: int, types: Sequence[str], memory: int) -> bool:
        """Whether a device is in use, of all these types, and has so much memory."""
        one = self.devices[device]
        return device not in self.out and one.memory >= memory and all(name in one.types for name in types)

    def in_use(self) -> list[Device]:
        """Those that may be given to somebody."""
        return [one for id, one in enumerate(self.devices) if id not in self.out]


def choose(
    inventory: Inventory,
    free: Sequence[int],
    free_memory: Sequence[int],
    units: int,
    memory: int = 0,
    types: Sequence[str] = (),
) -> Granted | None:
    """Devices for a request; None if there are none for it now.

    Args:
        inventory: what the devices are.
        free: units of each that are free; less than none where it is out of the question.
        free_memory: bytes of each that are free.
        units: UNIT for each whole device, or a share of one; 0 where only memory is asked for.
        memory: bytes that each device must have for the request.
        types: what each device must be called.
    """
    if units >= UNIT:
        return _whole(inventory, free, free_memory, units // UNIT, memory, types)
    best: tuple[bool, int, int, int] | None = None
    for device, left in enumerate(free):
        one = inventory.devices[device]
        needed = part(one, units, memory)
        if left < units or free_memory[device] < needed or one.is_exclusive:
            continue
        # Where shares lie already, so that others stay whole.
        rank = (device in inventory.suspects, left, free_memory[device], device)
        if (best is None or rank < best) and inventory.can_use(device, types, memory):
            best = rank
    if best is None:
        return None
    device = best[3]
    return ((device, units, part(inventory.devices[device], units, memory)),)


def part(device: Device, units: int, memory: int = 0) -> int:
    """The bytes that a share of a device takes. `memory` was asked for; if it is 0 they follow from the units."""
    own = memory or device.memory * units // UNIT
    return own + device.reserve if memory or own <= device.reserve else own


def cap(device: Device, units: int, memory: int = 0) -> int:
    """The bytes that libraries may take for it; 0: as many as there are."""
    return part(device, units, memory) - device.reserve if units < UNIT else 0


def _whole(
    inventory: Inventory,
    free: Sequence[int],
    free_memory: Sequence[int],
    count: int,
    memory: int,
    types: Sequence[str],
) -> Granted | None:
    candidates = tuple(
        device
        for device, left in enumerate(free)
        if left == UNIT
        and free_memory[device] == inventory.devices[device].memory
        and inventory.can_use(device, types, memory)
        and (count == 1 or not inventory.devices[device].is_instance)
    )
    trusted = tuple(device for device in candidates if device not in inventory.suspects)
    chosen = (_best(inventory, trusted, count) if len(trusted) >= count else ()) or _best(inventory, candidates, count)
    return tuple((device, UNIT, inventory.devices[device].memory) for device in chosen) if chosen else None


def _best(inventory: Inventory, candidates: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The best set that one rank can use; empty if no rank can use so many."""
    found = inventory.sets.get((candidates, count))
    if found is not None:
        return found
    reach = dict.fromkeys(_reachable(inventory, candidates))
    sets = [choose_set(within, count, inventory.weights) for within in reach if len(within) >= count]
    weights = inventory.weights
    found = max(sets, key=lambda chosen: sum(weights[a][b] for a in chosen for b in chosen), default=())
    if len(inventory.sets) >= SETS_MAX:
        inventory.sets.clear()
    inventory.sets[candidates, count] = found
    return found


def _reachable(inventory: Inventory, candidates: tuple[int, ...]) -> list[tuple[int, ...]]:
    """For each rank the candidates that it can use."""
    sets = {inventory.seen_by[device] for device in candidates}
    if len(sets) == 1:
        return [candidates]
    ranks = frozenset[int]().union(*(ranks for ranks in sets if ranks is not None))
    return [tuple(device for device in candidates if inventory.is_seen_by(device, rank)) for rank in sorted(ranks)]

"""Chooses devices of a host for a request: whole ones, or a share of one. Pure; amounts are integers.

A device has `UNIT` units and a number of bytes. A whole device is all of both. A share takes the same fraction of the
bytes as of the units, or as many bytes as were requested; a request for bytes alone takes no units. Each process needs
some bytes for itself (`Device.reserve`): they come out of the fraction, or are added to the bytes that were requested.
If one request gets several devices, one rank can see all of them, and none is a MIG instance, because CUDA shows a
process only one of those.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from mpi_runtime.gpu.device import UNIT, Device, Link
from mpi_runtime.gpu.topology import choose_set, pair_weight

Ranks = frozenset[int] | None
"""Numbers of ranks; None: all ranks of the host."""

SETS_MAX = 4096
"""How many chosen sets are remembered for one host."""

Granted = tuple[tuple[int, int, int], ...]
"""(GPU id, units, bytes) for each device, in order of ids."""


class Inventory(Struct, eq=False, gc=False):
    """The devices of a host and what is known about them. How much of each is free is kept elsewhere.

    A device's id is its position in the lists.
    """

    devices: list[Device] = []
    seen_by: list[Ranks] = []
    """For each device the ranks that can use it."""
    links: dict[tuple[str, str], int] = {}
    """Weight of the connection between two devices, by their UUIDs."""
    weights: list[list[int]] = []
    """The same, by their ids."""
    sets: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    """Sets that were chosen before, by candidates and count."""
    homes: list[int] = []
    """For each device its home, the nearest rank; empty until somebody needs it."""
    suspects: dict[int, str] = {}
    """Devices on which the last process failed at once, with its program if that may be the cause. They are granted
    only when no other device will do."""
    out: dict[int, str] = {}
    """Devices in quarantine, and why."""

    def add(self, devices: Sequence[Device], links: Sequence[Link], ranks: Ranks) -> list[Device]:
        """Add devices that these ranks can use, and return the new ones. Ids change: they follow `Device.place`."""
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
        """Forget all other devices. Ids change."""
        self._keep([id for id, device in enumerate(self.devices) if device in devices])

    def _keep(self, ids: Sequence[int]) -> None:
        self.seen_by = [self.seen_by[id] for id in ids]
        self.devices = [self.devices[id] for id in ids]
        uuids = [device.uuid for device in self.devices]
        self.weights = [[self.links.get((one, other), 0) for other in uuids] for one in uuids]
        self.sets.clear()
        self.homes.clear()

    def forget_rank(self, rank: int) -> list[int]:
        """Note that a rank is lost. Return the devices that no other rank can use, without those in quarantine."""
        self.seen_by = [None if ranks is None else ranks - {rank} for ranks in self.seen_by]
        self.sets.clear()
        self.homes.clear()
        return [id for id, ranks in enumerate(self.seen_by) if ranks is not None and not ranks and id not in self.out]

    def is_seen_by(self, id: int, rank: int) -> bool:
        """Whether a rank can use a device."""
        ranks = self.seen_by[id]
        return ranks is None or rank in ranks

    def ranks_of(self, gpu_ids: Sequence[int]) -> Ranks:
        """Return the ranks that can use all of these devices."""
        sets = [ranks for id in gpu_ids if (ranks := self.seen_by[id]) is not None]
        return frozenset.intersection(*sets) if sets else None

    def can_use(self, id: int, types: Sequence[str], memory: int) -> bool:
        """Whether a device is not in quarantine, has all of these types, and has at least this much memory."""
        one = self.devices[id]
        return id not in self.out and one.memory >= memory and all(name in one.types for name in types)

    def in_use(self) -> list[Device]:
        """Return the devices that are not in quarantine."""
        return [one for id, one in enumerate(self.devices) if id not in self.out]


def choose(
    inventory: Inventory,
    free: Sequence[int],
    free_memory: Sequence[int],
    units: int,
    memory: int = 0,
    types: Sequence[str] = (),
) -> Granted | None:
    """Return the devices for a request; None if it cannot be served now.

    Args:
        inventory: the devices.
        free: free units of each device; negative for a device that must not be chosen.
        free_memory: free bytes of each device.
        units: UNIT for each whole device, or a share of one; 0 if only memory is requested.
        memory: bytes that are requested of each device; 0 if none are.
        types: names that each device must have in `Device.types`.
    """
    if units >= UNIT:
        return _whole(inventory, free, free_memory, units // UNIT, memory, types)
    best: tuple[bool, int, int, int] | None = None
    for id, left in enumerate(free):
        one = inventory.devices[id]
        needed = part(one, units, memory)
        if left < units or free_memory[id] < needed or one.is_exclusive:
            continue
        # The device with the least free, so that others stay whole.
        rank = (id in inventory.suspects, left, free_memory[id], id)
        if (best is None or rank < best) and inventory.can_use(id, types, memory):
            best = rank
    if best is None:
        return None
    id = best[3]
    return ((id, units, part(inventory.devices[id], units, memory)),)


def whole(
    inventory: Inventory, free: Sequence[int], free_memory: Sequence[int], count: int, memory: int, types: Sequence[str]
) -> tuple[int, ...]:
    """Return the devices that may be among the `count` whole ones of a request: see `choose`."""
    if free.count(UNIT) < count:  # the frequent case, and a cheap check
        return ()
    devices, is_any = inventory.devices, not (memory or types or inventory.out)
    return tuple(
        id
        for id, left in enumerate(free)
        if left == UNIT
        and free_memory[id] == devices[id].memory
        and (is_any or inventory.can_use(id, types, memory))
        and (count == 1 or not devices[id].is_instance)
    )


def part(device: Device, units: int, memory: int = 0) -> int:
    """Return the bytes that a share of a device takes. `memory` was requested; if it is 0 the units decide."""
    own = memory or device.memory * units // UNIT
    return own + device.reserve if memory or own <= device.reserve else own


def cap(device: Device, units: int, memory: int = 0) -> int:
    """Return the bytes that libraries in the process may take of its share; 0: no limit."""
    return part(device, units, memory) - device.reserve if units < UNIT else 0


def _whole(
    inventory: Inventory, free: Sequence[int], free_memory: Sequence[int], count: int, memory: int, types: Sequence[str]
) -> Granted | None:
    candidates = whole(inventory, free, free_memory, count, memory, types)
    if len(candidates) < count:
        return None
    trusted = tuple(id for id in candidates if id not in inventory.suspects)
    chosen = (_best(inventory, trusted, count) if len(trusted) >= count else ()) or _best(inventory, candidates, count)
    return tuple((id, UNIT, inventory.devices[id].memory) for id in chosen) if chosen else None


def _best(inventory: Inventory, candidates: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the best connected set that one rank can use; empty if no rank can use that many."""
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
    """Return for each rank the candidates that it can use."""
    sets = {inventory.seen_by[id] for id in candidates}
    if len(sets) == 1:
        return [candidates]
    ranks = frozenset[int]().union(*(ranks for ranks in sets if ranks is not None))
    return [tuple(device for device in candidates if inventory.is_seen_by(device, rank)) for rank in sorted(ranks)]

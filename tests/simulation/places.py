"""Looks from outside at where calls run: strategies hold, and no bundle is oversold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tests.simulation.steps import Bundle, Function, MakeGroup

if TYPE_CHECKING:
    from tests.simulation.hosts import Use

Place = tuple[bytes, int]
"""A placement group and one of its bundles, or -1."""
NOWHERE: Place = (b"", -1)


class Amounts:
    """What is used of a host or of a bundle."""

    def __init__(self) -> None:
        self.cpu = self.memory = self.gpu = 0
        self.custom: Counter[str] = Counter()

    def add_use(self, use: Use) -> None:
        """What a process uses. CPU may be overdrawn by those that were blocked and woke."""
        self.cpu += 0 if use.is_blocked or use.woke else use.cpu
        self.memory += use.memory
        self.gpu += sum(units for _, units, _ in use.devices)
        self.custom.update(dict(use.custom))

    def add_bundle(self, bundle: Bundle) -> None:
        """What a bundle reserves."""
        self.cpu += bundle.cpu
        self.memory += bundle.memory
        self.gpu += bundle.gpu
        self.custom.update(dict(bundle.custom))

    def add_most(self, other: Amounts, another: Amounts) -> None:
        """Of each the larger of two."""
        self.cpu += max(other.cpu, another.cpu)
        self.memory += max(other.memory, another.memory)
        self.gpu += max(other.gpu, another.gpu)
        self.custom.update(other.custom | another.custom)

    def exceeds(self, cpu: int, memory: int, gpu: int, custom: Mapping[str, int]) -> str:
        """What there is too much of, or nothing."""
        found = [("CPU", self.cpu, cpu), ("memory", self.memory, memory), ("GPU", self.gpu, gpu)]
        found += [(name, units, custom.get(name, 0)) for name, units in self.custom.items()]
        return "; ".join(f"{used} of {owned} {name} in use" for name, used, owned in found if used > owned)


class Places:
    """What clients have said about places, and what has been seen of them."""

    def __init__(self, node_ids: Mapping[int, str]) -> None:
        self.groups: dict[bytes, MakeGroup] = {}
        self.alive: dict[bytes, None] = {}
        """Groups that the head has heard of and not been told to remove."""
        self.told: dict[bytes, Place] = {}
        """Where each call was to run."""
        self.node_ids = node_ids
        """Of each host, by its lowest rank."""
        self.bundle_hosts: dict[Place, int] = {}
        self.hosts: dict[bytes, dict[int, None]] = {}
        """On which hosts calls of a group have run."""

    def started(self, call: bytes, function: Function, host: int, labels: Mapping[str, str]) -> str:
        """A call starts on a host. What is wrong with that, or nothing."""
        if function.node and function.node != self.node_ids[host]:
            return f"is to run on {function.node}, not on host {host}"
        if function.zone and function.zone != labels.get("zone"):
            return f"is to run in {function.zone}, not on host {host} with {labels}"
        place = self.told[call]
        if place == NOWHERE:
            return ""
        group, index = place
        made = self.groups[group]
        self.hosts.setdefault(group, {})[host] = None
        if made.strategy == "STRICT_PACK" and len(self.hosts[group]) > 1:
            return f"its group is to be on one host, and is on {list(self.hosts[group])}"
        if index >= 0:
            if self.bundle_hosts.setdefault(place, host) != host:
                return f"its bundle is on host {self.bundle_hosts[place]}, not on {host}"
            zone = made.bundles[index].zone
            if zone and zone != labels.get("zone"):
                return f"its bundle is to be in {zone}, not on host {host} with {labels}"
            others = [at for (one, number), at in self.bundle_hosts.items() if one == group and number != index]
            if made.strategy == "STRICT_SPREAD" and host in others:
                return f"its group is to have a host for each bundle, and has two on host {host}"
        return ""

    def host_lost(self, host: int) -> None:
        """A host is gone: what was there goes elsewhere."""
        self.bundle_hosts = {place: at for place, at in self.bundle_hosts.items() if at != host}
        for hosts in self.hosts.values():
            hosts.pop(host, None)

    def oversold(self, uses: Iterable[Use]) -> str:
        """Which bundle or group is used for more than it has, by what all processes use."""
        sums: dict[Place, Amounts] = {}
        for use in uses:
            if use.place != NOWHERE:
                for place in {use.place: None, (use.place[0], -1): None}:
                    sums.setdefault(place, Amounts()).add_use(use)
        for (group, index), used in sums.items():
            bundles = self.groups[group].bundles
            owned = Amounts()
            for bundle in bundles if index < 0 else bundles[index : index + 1]:
                owned.add_bundle(bundle)
            wrong = used.exceeds(owned.cpu, owned.memory, owned.gpu, owned.custom)
            if wrong:
                return f"bundle {index} of group {group.hex()}: {wrong}"
        return ""

    def taken(self, host: int, uses: Iterable[Use]) -> Amounts:
        """What is taken of a host: by processes, and by bundles whether anything runs in them or not."""
        total = Amounts()
        by_group: dict[bytes, Amounts] = {}
        for use in uses:
            if use.place[0] in self.alive:
                by_group.setdefault(use.place[0], Amounts()).add_use(use)
            else:
                total.add_use(use)
        for group in self.alive:
            bundles = Amounts()
            for (one, index), at in self.bundle_hosts.items():
                if one == group and at == host:
                    bundles.add_bundle(self.groups[group].bundles[index])
            total.add_most(bundles, by_group.get(group, Amounts()))
        return total

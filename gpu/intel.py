"""Finds Intel's devices in the files of the kernel's drivers i915 and xe: no library is loaded and none is needed.

A card has one tile or several. Whether Level Zero counts cards or tiles is the user's choice: see `masks.py`. Tasks do
not get graphics within a processor, but Level Zero counts them too, after the cards. Facts and their sources:
docs/gpus.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from mpi_runtime.gpu import sysfs
from mpi_runtime.gpu.device import Card, Device, Link, Measures, Report
from mpi_runtime.gpu.vendor import DRM, INTEL, intel_addresses, is_on_a_slot, names_in, text

GIB = 1 << 30
_MODELS = {
    # By PCI device: the name, and GiB of memory, for drivers that do not report it.
    **dict.fromkeys((0x0BD5, 0x0BD6, 0x0BD7, 0x0BD8), ("Max-1550", 128)),
    **dict.fromkeys((0x0BD9, 0x0BDA, 0x0BDB), ("Max-1100", 48)),
    0x56C0: ("Flex-170", 16), 0x56C1: ("Flex-140", 6), 0x56A0: ("Arc-A770", 16), 0x56A1: ("Arc-A750", 8),
    0xE20B: ("Arc-B580", 12), 0xE20C: ("Arc-B570", 10), 0xE211: ("Arc-Pro-B60", 24), 0xE212: ("Arc-Pro-B50", 16),
}  # fmt: skip
_TILED = range(0x0BD0, 0x0BE6)
"""PCI devices of Ponte Vecchio. i915 shows tiles as GTs; in other devices a second GT is for media."""


def look(root: str, with_integrated: bool) -> Report:
    """Return what the drivers show to this process. Tiles are devices of their own."""
    report = Report(vendor=INTEL.key)
    closed = []
    inside: list[Card] = []
    addresses = intel_addresses(root)
    for address in sorted(addresses, key=lambda one: (not is_on_a_slot(one), one)):
        name = addresses[address]
        place = f"{root}{DRM}/{name}"
        render = next((one for one in names_in(f"{place}/device/drm") if one.startswith("renderD")), "")
        file = f"{root}dev/dri/{render}"
        if not render or not os.path.exists(file):
            continue  # a container without it, or a display that computes nothing
        if not os.access(file, os.R_OK | os.W_OK):
            closed.append(file)
            continue
        if not is_on_a_slot(address) and not with_integrated:
            inside.append(Card(f"GPU-{sysfs.host(root)}-{address}", "integrated", address))
            continue
        devices = list(_devices(root, place, address))
        report.cards.append(Card(devices[0].card, devices[0].name, address))
        report.devices += devices
    if closed and not report.devices:
        report.error = f"this user may not open {closed[0]}, as Intel's devices must be: add the user to its group"
    if report.devices:
        report.cards += inside
    report.links = list(_links(report.devices))
    return report


def _devices(root: str, place: str, address: str) -> Iterator[Device]:
    """Yield the tiles of a card."""
    number = sysfs.number(f"{place}/device/device", 0)
    model, gigabytes = _MODELS.get(number, ("", 0))
    tiles = _tiles(place, number)
    whole = sysfs.number(f"{place}/lmem_total_bytes", gigabytes * GIB)
    card = f"GPU-{sysfs.host(root)}-{address}"
    for index, tile in enumerate(tiles):
        yield Device(
            card if len(tiles) == 1 else f"{card}.{index}",
            f"Intel {model.replace('-', ' ') or f'GPU {number:04x}'}",
            types=(f"Intel-GPU-{model}", model) if model else (),
            memory=sysfs.number(f"{tile}/physical_vram_size_bytes", whole // len(tiles)),
            bus=address,
            card=card,
            numa=sysfs.number(f"{place}/device/numa_node", -1),
            cpus=sysfs.processors(text(f"{place}/device/local_cpulist")),
        )


def _tiles(place: str, number: int) -> list[str]:
    """Return the directories of the tiles; a card without any has one."""
    of_xe = [f"{place}/device/{name}" for name in _in_order(f"{place}/device", r"tile\d+")]
    of_i915 = [f"{place}/gt/{name}" for name in _in_order(f"{place}/gt", r"gt\d+")] if number in _TILED else []
    return of_xe or of_i915 or [f"{place}/device"]


def _in_order(path: str, form: str) -> list[str]:
    return sorted(name for name in names_in(path) if re.fullmatch(form, name))


def _links(devices: Sequence[Device]) -> Iterator[Link]:
    """Yield how each two are connected. The drivers do not show Xe Link: only tiles of one card are known as near."""
    for index, device in enumerate(devices):
        for other in devices[index + 1 :]:
            yield Link(device.uuid, other.uuid, 0, sysfs.distance(device, other))


def measure(root: str, uuids: Sequence[str]) -> list[Measures]:
    """Return what is measured now at these devices: the drivers show neither their use nor the used memory."""
    by_card = {device.card: device for device in look(root, with_integrated=True).devices}
    return [_measure(root, by_card, uuid) for uuid in uuids]


def _measure(root: str, by_card: dict[str, Device], uuid: str) -> Measures:
    device = by_card.get(uuid) or by_card.get(uuid.rpartition(".")[0])
    if device is None:
        return sysfs.silent(uuid)
    return Measures(uuid, temperature=sysfs.temperature(sysfs.pci(root, device.bus)))

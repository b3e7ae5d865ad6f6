"""Finds AMD's devices in the files of the kernel's driver: no library is loaded and none is needed.

The driver for computing (KFD) has a directory for each of its nodes, processors and GPUs. A GPU has several nodes if it
is split by compute partitions; the two halves of an MI250X are a GPU each. ROCm numbers GPUs in the order of nodes, and
leaves out those that it may not open. Facts and their sources: docs/gpus.md.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpi_runtime.gpu import sysfs
from mpi_runtime.gpu.device import Card, Device, Link, Measures, Report, Use, foreign_use
from mpi_runtime.gpu.vendor import AMD, names_in, text

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
PROCESSES = "sys/class/kfd/kfd/proc"
_HEAPS_OF_DEVICE = (1, 2)
"""Kinds of memory banks on the device: seen by processors, and not."""
_WHOLE = "SPX"
"""The mode of a card that is not split."""
_XGMI = 11
"""The kind of an AMD link between devices; 2 is PCI Express."""
_LINK_MB_S = 50_000
"""The bandwidth of one link, in the driver's unit: it reports that of all links between two devices together."""
_INTEGRATED = frozenset(
    (70000, 80001, 90002, 90009, 90012, 100103, 100303, 100305, 100306, 110003, 110500, 110501, 110502, 110503)
)
"""Graphics within a processor, by `gfx_target_version`. An MI300A is not one of them."""
_MODELS = {
    # By PCI device: our name, and Ray's, whose programs ask for it.
    0x66A0: ("MI60", ""), 0x66A1: ("MI50", "AMD-Instinct-MI50"), 0x738C: ("MI100", "AMD-Instinct-MI100"),
    0x7408: ("MI250X", "AMD-Instinct-MI250X"), 0x740C: ("MI250", "AMD-Instinct-MI250X-MI250"),
    0x740F: ("MI210", "AMD-Instinct-MI210"), 0x74A0: ("MI300A", "AMD-Instinct-MI300A"),
    0x74A1: ("MI300X", "AMD-Instinct-MI300X-OAM"), 0x74A2: ("MI308X", "AMD-Instinct-MI308X-OAM"),
    0x74A5: ("MI325X", "AMD-Instinct-MI325X-OAM"), 0x74A9: ("MI300X", "AMD-Instinct-MI300X-HF"),
    0x75A0: ("MI350X", "AMD-Instinct-MI350X-OAM"), 0x75A3: ("MI355X", "AMD-Instinct-MI355X-OAM"),
}  # fmt: skip


class _Node(Struct, gc=False):
    """A GPU, or a part of one, as the driver has it."""

    number: int
    path: str
    facts: dict[str, int]
    bus: str
    unique: int

    @property
    def gpu_id(self) -> str:
        return text(f"{self.path}/gpu_id")


def look(root: str, with_integrated: bool) -> Report:
    """Return what the driver shows to this process."""
    report = Report(vendor=AMD.key)
    nodes, closed = _nodes(root, report, with_integrated)
    if closed and not nodes:
        report.error = f"this user may not open {closed[0]}, as AMD's devices must be: add the user to its group"
        return report
    if nodes and not os.access(f"{root}dev/kfd", os.R_OK | os.W_OK):
        report.error = f"AMD's driver cannot be used: this user may not open {root}dev/kfd, or it is not there"
        return report
    named = _named(root, nodes)
    uses = _uses(root, nodes)
    for node, device in named:
        report.cards.append(Card(device.uuid, device.name, device.bus))
        report.devices.append(device)
        is_whole = sum(one.bus == node.bus for one in nodes) == 1
        used = sysfs.number(f"{sysfs.pci(root, node.bus)}/mem_info_vram_used", 0) if is_whole else 0
        by_process = uses.get(node.gpu_id, {})
        used = used or sum(by_process.values())
        report.uses.append(Use(device.uuid, used, tuple(sorted(by_process))))
        if problem := foreign_use(node.number, device.uuid, used, device.memory):
            report.problems.append(problem)
    report.links = list(_links(named))
    report.devices.sort(key=lambda device: device.place)
    return report


def _nodes(root: str, report: Report, with_integrated: bool) -> tuple[list[_Node], list[str]]:
    """Return the GPUs that this process can open, and the files of those for which it lacks the right."""
    found: list[_Node] = []
    closed: list[str] = []
    for number in sorted(int(name) for name in names_in(root + TOPOLOGY) if name.isdecimal()):
        path = f"{root}{TOPOLOGY}/{number}"
        try:
            facts = sysfs.properties(f"{path}/properties")
        except PermissionError:
            continue  # a control group hides it, and ROCm does not count it
        except OSError as error:
            report.problems.append(f"the driver's node {number} does not answer ({error.strerror}) and is left out")
            report.missing += 1
            continue
        if not facts.get("simd_count") or (facts.get("gfx_target_version") in _INTEGRATED and not with_integrated):
            continue
        render = f"{root}dev/dri/renderD{facts.get('drm_render_minor', 0)}"
        if os.access(render, os.R_OK | os.W_OK):
            place = facts.get("location_id", 0)
            # The function's bits and the upper ones may hold the number of a partition.
            bus = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"
            found.append(_Node(number, path, facts, bus, facts.get("unique_id", 0)))
        elif os.path.exists(render):
            closed.append(render)
    return found, closed


def _named(root: str, nodes: Sequence[_Node]) -> list[tuple[_Node, Device]]:
    """Return the devices in the order in which ROCm numbers them."""
    parts = Counter(node.bus for node in nodes)
    host = sysfs.host(root)
    found = []
    for node in nodes:
        # Devices without a serial number, as in virtual machines, are known by their place on this host.
        card = f"GPU-{node.unique:016x}" if node.unique else f"GPU-{host}-{node.bus}"
        place = sysfs.pci(root, node.bus)
        mode = text(f"{place}/current_compute_partition").replace(_WHOLE, "")
        is_part = bool(mode) or parts[node.bus] > 1
        # Parts of a card may have one serial number. A process may see only some of them, and all call them the same.
        uuid = f"{card}.{node.number}" if is_part else card
        version = node.facts.get("gfx_target_version", 0)
        model, of_ray = _MODELS.get(node.facts.get("device_id", 0), ("", ""))
        device = Device(
            uuid,
            " ".join(filter(None, ("AMD", model or text(f"{node.path}/name") or "GPU", mode))),
            types=_types(model, of_ray, _architecture(version), mode or "part" * is_part),
            memory=_memory(root, node),
            bus=node.bus,
            card=card,
            numa=sysfs.number(f"{place}/numa_node", -1),
            cpus=sysfs.processors(text(f"{place}/local_cpulist")),
            capability=(version // 10_000, version // 100 % 100),
        )
        found.append((node, device))
    return found


def _types(model: str, of_ray: str, architecture: str, part: str) -> tuple[str, ...]:
    """Return the names for `accelerator_type`; the last is the one for tables. A part of a GPU is not of its type."""
    if part:
        return tuple(filter(None, (architecture, f"{model}-{part}" if model else "")))
    return tuple(filter(None, (of_ray, architecture, model)))


def _architecture(version: int) -> str:
    """Return the name by which compilers know it: 90010 is gfx90a, the last two digits are hexadecimal."""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _memory(root: str, node: _Node) -> int:
    banks = (
        sysfs.properties(f"{node.path}/mem_banks/{name}/properties") for name in names_in(f"{node.path}/mem_banks")
    )
    own = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _HEAPS_OF_DEVICE)
    return own or sysfs.number(f"{sysfs.pci(root, node.bus)}/mem_info_vram_total", 0)


def _uses(root: str, nodes: Sequence[_Node]) -> dict[str, dict[int, int]]:
    """Return for each device, by the driver's id, the processes that have memory of it, with the bytes."""
    found: dict[str, dict[int, int]] = {node.gpu_id: {} for node in nodes}
    for pid in names_in(root + PROCESSES):
        for id, of_processes in found.items() if pid.isdecimal() else ():
            if size := sysfs.number(f"{root}{PROCESSES}/{pid}/vram_{id}", 0):
                of_processes[int(pid)] = size
    return found


def _links(named: Sequence[tuple[_Node, Device]]) -> Iterator[Link]:
    for index, (node, device) in enumerate(named):
        between = {}
        for name in names_in(f"{node.path}/io_links"):
            link = sysfs.properties(f"{node.path}/io_links/{name}/properties")
            if link.get("type") == _XGMI:
                between[link.get("node_to", -1)] = max(1, link.get("max_bandwidth", 0) // _LINK_MB_S)
        for other, second in named[index + 1 :]:
            yield Link(device.uuid, second.uuid, between.get(other.number, 0), sysfs.distance(device, second))


def measure(root: str, uuids: Sequence[str]) -> list[Measures]:
    """Return what is measured now at these devices. The parts of a card have its figures."""
    by_uuid = {device.uuid: device for device in look(root, with_integrated=True).devices}
    return [_measure(root, by_uuid[uuid]) if uuid in by_uuid else sysfs.silent(uuid) for uuid in uuids]


def _measure(root: str, device: Device) -> Measures:
    place = sysfs.pci(root, device.bus)
    errors = sysfs.properties(f"{place}/ras/umc_err_count", missing_ok=True).get("ue:", 0)
    return Measures(
        device.uuid,
        sysfs.number(f"{place}/gpu_busy_percent", -1),
        sysfs.number(f"{place}/mem_info_vram_used", -1),
        sysfs.number(f"{place}/mem_info_vram_total", -1),
        sysfs.temperature(place),
        f"{errors} memory errors that could not be corrected" if errors else "",
    )
